#!/bin/sh
# beside-load.sh -- run a command on a busy machine: beside the given number of endless loops.
#
#   scripts/beside-load.sh LOOPS COMMAND [ARGUMENT]...
#
# No test may depend on the pace of the machine; `scripts/beside-load.sh 6 make test` checks this.
# The loops end with the command, and with this script if it is killed. The exit code is that of the
# command.
set -eu
case ${1:-} in
'' | *[!0-9]*)
    echo 'usage: scripts/beside-load.sh LOOPS COMMAND [ARGUMENT]...' >&2
    exit 2
    ;;
esac
n=$1 loops=''
shift
trap 'kill $loops 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM HUP
while [ "$n" -gt 0 ]; do
    setpriv --pdeathsig KILL -- sh -c 'while :; do :; done' &
    loops="$loops $!" n=$((n - 1))
done
code=0
"$@" || code=$?
exit $code
