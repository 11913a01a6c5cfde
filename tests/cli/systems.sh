# scripts/try-system.sh when it cannot run, is used wrongly, or finds half a system. .ci/run tries
# the systems themselves.
. "$(dirname "$0")/lib.bash"
mkdir tools
try() { # CODE ARGUMENT...
    local wanted=$1 code=0
    shift
    PATH=$work/tools:$PATH FORERUN_SYSTEMS=$work/systems "$source_dir/scripts/try-system.sh" "$@" >out 2>err || code=$?
    same "$code" "$wanted" "exit code of try-system.sh $*"
}
tool() { # NAME: a program of that name, from stdin
    { echo '#!/bin/sh' && cat; } >"tools/$1"
    chmod +x "tools/$1"
}
try 2
says "SUITE" "--help"
try 2 --test trixie
says "unknown option --test"
try 2 trixie bookworm
try 2 ../trixie
try 2 --tests
try 0 --help
grep -q -- --if-possible out || fail "no help"

tool id <<<'echo 1000'
try 3 trixie
says "trixie was left out" "root"
try 0 --if-possible trixie
says "trixie was left out" "root"
rm tools/id

# An unfinished system is not used, neither by this run nor by the next.
tool debootstrap <<'T'
while [ "${1#--}" != "$1" ]; do shift; done
mkdir -p "$2/etc" && echo "$1 in $2" >>"$CALLS"
exit 1
T
export CALLS=$work/calls
if [ "$(id -u)" != 0 ] || ! unshare --mount --pid --fork true 2>/dev/null || ! git -C "$source_dir" rev-parse 2>/dev/null; then
    skipped "a system that is half made" "it takes root, namespaces and a checkout"
    exit 0
fi
for n in 1 2; do
    try 1 trixie
    says "trixie cannot be made"
    same "$(wc -l <calls)" "$n" "calls of debootstrap"
    same "$(ls systems/trixie)" $'archives\nlock' "what is left of half a system"
done

# A signal ends the run and all of its children.
tool debootstrap <<'T'
exec 8>"$CALLS.held"
flock 8 && touch "$CALLS.begun"
sleep 1000
T
PATH=$work/tools:$PATH "$source_dir/scripts/try-system.sh" --cache systems trixie >out 2>err &
pid=$!
until [ -e calls.begun ]; do kill -0 $pid || fail "it has not begun"; sleep 0.1; done
kill -TERM $pid
code=0
wait $pid || code=$?
same "$code" 1 "exit code after a signal"
flock calls.held true # waits for what holds it
same "$(ls systems/trixie)" $'archives\nlock' "what is left after a signal"

# A mount left in an old trial ends the run, and is not unmounted.
mkdir -p systems/trixie/tried/mnt precious
: >precious/file
tool under-a-mount <<'T'
mount --bind precious systems/trixie/tried/mnt && exec "$@"
T
code=0
PATH=$work/tools:$PATH unshare --mount tools/under-a-mount "$source_dir/scripts/try-system.sh" --cache systems trixie >out 2>err || code=$?
same "$code" 1 "exit code with a mount in the way"
grep -q "tried/mnt is a mount; unmount it first" err || fail "the mount is not named"
[ -e precious/file ] || fail "what was mounted is gone"
echo ok
