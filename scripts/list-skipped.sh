#!/bin/sh
# list-skipped.sh -- counts the skipped checks of a test log, by reason.
#
#   scripts/list-skipped.sh LOG
#
# LOG is BUILD/Testing/Temporary/LastTest.log of ctest (`make test`: a copy of it). A test that
# cannot make a check on this machine or in this build prints a line
#
#   SKIPPED: what: why
#
# (tests/support/test.h and tests/cli/lib.bash have functions for it). Checks are grouped by reason.
# The exit code is 0: a skipped check has not failed.
set -eu
awk '
    function after(text, mark) { return substr(text, index(text, mark) + length(mark)) }
    / Test: / && /^[0-9]+\/[0-9]+ / { test = after($0, " Test: ") }
    /^SKIPPED: / {
        line = after($0, "SKIPPED: ")
        what = substr(line, 1, index(line, ": ") - 1)
        why = after(line, ": ")
        if (seen[test, line]++) next # several processes print it
        if (!(why in of)) order[++n_reasons] = why
        of[why] = of[why] "\n        " test ": " what
        n++
    }
    END {
        if (n == 0) { print "No check was skipped."; exit }
        print n (n == 1 ? " check was skipped:" : " checks were skipped:")
        for (i = 1; i <= n_reasons; i++) print "    " order[i] of[order[i]]
    }' "$1"
