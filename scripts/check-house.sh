#!/bin/sh
# check-house.sh -- the house rules that a compiler does not see.
#
#   scripts/check-house.sh [--root DIR] [layers] [kernels] [headers] [sizes] [words] [skips]
#
#   layers   a module includes itself and lower layers only, siblings never; cli and examples
#            see public headers only
#   kernels  oneDNN is behind one header of the cpu backend
#   headers  each header compiles alone; public ones in C11 and C++17, under 200 lines, with FR_API
#   sizes    no source file over 700 lines, no function of the library or the command over 70
#   skips    a test that does not make a check says which and why
#   words    no marks of unfinished work, no paths of somebody's machine
#
# All of them by default. One line a finding, file first; exit code 1 if there is any.
# shellcheck disable=SC2016,SC2046,SC2086,SC2317
set -eu
root=$(dirname "$0")/..
if [ "${1:-}" = --root ]; then
    root=$2
    shift 2
fi
cd "$root"

files() { # "FOLDER..." PATTERN...: files below those of the folders that are there
    folders=$(ls -d $1 2>/dev/null || true)
    shift
    find $folders -type f \( "$@" \) | sort
}

layers() {
    files "include src cli examples" -name '*.[ch]' | xargs awk '
    BEGIN {
        n = split("base:0 io:1 graph:1 team:1 optim:1 models:2 tokens:2 backend:2 data:3 transport:3 sched:3 " \
                  "weights:3 cost:3 methods:4 exec:5 emulate:5 engine:6 probe:7 sim:7 plan:8 config:8 forecast:9 " \
                  "checkpoint:9 runlog:10 run:11 study:12 compare:12 report:12", rows, " ")
        for (i = 1; i <= n; i++) { split(rows[i], row, ":"); layer[row[1]] = row[2] + 0 }
        owner["attrs"] = "graph" # public headers that are not named after their module
        owner["operators"] = "graph"
        owner["groups"] = "optim"
        owner["efficiency"] = "study"
        owner["events"] = "sched"
        owner["clock"] = "sched"
        owner["run"] = "config" # implemented by several modules: the lowest that includes it
        owner["train"] = "config"
        owner["export"] = "run"
        owner["predict"] = "config"
        owner["state"] = "engine"
        owner["exec_plan"] = "methods"
        owner["stability"] = "methods"
    }
    function say(text) { print FILENAME ":" FNR ": " text }
    FNR == 1 {
        split(FILENAME, part, "/")
        area = part[1]
        module = area == "include" ? part[3] : part[2]
        sub(/\.h$/, "", module)
        if (area == "include" && module in owner) module = owner[module]
        if (area == "include" && module == "forerun") module = "" # the one that takes all
        else if ((area == "include" || area == "src") && !(module in layer))
            say(module " has no layer in scripts/check-house.sh")
    }
    /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
        name = $0
        sub(/^[^<"]*/, "", name)
        quoted = substr(name, 1, 1) == "\""
        name = substr(name, 2)
        sub(/[>"].*/, "", name)
        steps = split(name, step, "/")
        public = step[1] == "forerun"
        target = public ? step[2] : step[1]
        sub(/\.h$/, "", target)
        if (public && target in owner) target = owner[target]
        if (name ~ /\.\./) say("include \"" name "\": name it from src, without ..")
        else if (area == "cli" || area == "examples") {
            if (quoted && steps > 1)
                say("include \"" name "\": " area " uses <forerun/...> and its own files only")
        } else if (module == "") {
            # forerun.h may take every public header
        } else if (public && target == "forerun")
            say("include <" name ">: the library includes the headers it uses, one by one")
        else if (area == "include" && quoted)
            say("include \"" name "\": a public header includes public headers only")
        else if (public || (quoted && steps > 1)) {
            if (!(target in layer)) say("include " name ": no such module")
            else if (target != module && layer[target] >= layer[module])
                say("include " name ": " module " (layer " layer[module] ") must not see " \
                    target " (layer " layer[target] ")")
            else if (quoted && steps > 2 && part[3] != step[2])
                say("include \"" name "\": a part of " target " is used from inside that part only")
        }
    }'
}

kernels() {
    files "include src cli tests examples" -name '*.[ch]' | xargs awk '
        /^[ \t]*#[ \t]*include[ \t]*[<"](oneapi\/|dnnl)/ {
            if (FILENAME ~ /^src\/backend\/cpu\/[^\/]*\.h$/ && (home == "" || home == FILENAME))
                home = FILENAME
            else
                print FILENAME ":" FNR ": oneDNN is included by one header of src/backend/cpu only"
        }'
}

headers() {
    for header in include/forerun/*.h; do
        awk '/^[a-z][a-z0-9_ *]*[ *]fr_[a-z0-9_]*\(/ && !/^(typedef|static) / {
            print FILENAME ":" FNR ": a public function without FR_API" }' "$header"
        wc -l "$header" | awk '$1 >= 200 { print $2 ": " $1 " lines; a public header stays under 200" }'
        cc -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c "$header" 2>&1 ||
            echo "$header: does not compile alone as C11"
        c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ "$header" 2>&1 ||
            echo "$header: does not compile alone as C++17"
    done
    mpi=$(mpicc --showme:compile 2>/dev/null || true)
    files "src cli" -name '*.h' | while read -r header; do
        case $header in src/*/mpi/*) [ -n "$mpi" ] || continue ;; esac
        cc -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -Icli $mpi -fsyntax-only -x c "$header" 2>&1 ||
            echo "$header: does not compile alone"
    done
}

sizes() {
    files "include src cli tests bench examples scripts" -name '*.[ch]' -o -name '*.sh' -o -name '*.py' | xargs awk '
        FNR == 1 { open = 0; long_said = 0 }
        FNR > 700 && !long_said { print FILENAME ": over 700 lines; split it at a seam"; long_said = 1 }
        FILENAME ~ /^(src|cli).*\.c$/ && /^{/ { open = FNR }
        FILENAME ~ /\.c$/ && /^}/ && open {
            if (FNR - open > 70) print FILENAME ":" open ": a function of " FNR - open - 1 " lines"
            open = 0
        }'
}

words() {
    marks='TO[D]O|FIX[M]E|(^|[^X])XX[X]([^X]|$)'
    machine='/(wor[k]|far[m]|roo[t])/[a-z.]|/tmp/w[t]?/'
    find . \( -name .git -o -name 'build*' -o -name runs \) -prune -o -type f -print |
        sed 's|^\./||' | sort | xargs grep -nIE "$marks|$machine" /dev/null || true
    files "include src cli" -name '*.[ch]' |
        xargs grep -niE 'not (yet )?implemented|not supported yet' /dev/null || true
}

skips() {
    files tests -name 'test_*.c' | xargs awk '
        /(^|[^a-z_])skip\(\);/ {
            print FILENAME ":" FNR ": skip() without a reason; skip_because (tests/support/test.h) has one"
        }'
    files "tests/cli tests/report" -name '*.sh' -o -name '*.bash' | xargs awk '
        /exit 77/ && FILENAME != "tests/cli/lib.bash" {
            print FILENAME ":" FNR ": exit 77 without a reason; skip_all (tests/cli/lib.bash) has one"
        }'
}

[ $# -gt 0 ] || set -- layers kernels headers sizes words skips
findings=0
for check in "$@"; do
    case $check in
    layers | kernels | headers | sizes | words | skips) ;;
    *)
        echo "check-house: no check called $check; there are: layers kernels headers sizes words skips" >&2
        exit 2
        ;;
    esac
    report=$($check)
    if [ -n "$report" ]; then
        printf '%s\n' "$report"
        findings=1
    fi
done
[ $findings = 0 ] && echo "check-house: $* in order"
exit $findings
