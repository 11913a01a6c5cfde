#!/usr/bin/env bash
# try-system.sh -- tries Forerun on another Debian, as a new user would.
#
#   scripts/try-system.sh [OPTION]... SUITE       e.g. trixie (Debian 13), bookworm (Debian 12)
#
# Creates the system in a folder (debootstrap: a minimal one with make, git and ca-certificates),
# copies the tracked files of this checkout into a fresh copy of it, and runs `make demo` and `make
# test` there, as root. scripts/install-deps.sh installs the rest. Exit code: 0 passed, 1 something
# failed, 2 wrong use, 3 this machine cannot do it. It needs root, debootstrap and the right to
# mount.
#
#   --no-demo        without `make demo`
#   --tests REGEX    instead of `make test`: `make` and the tests whose names match (ctest -R)
#   --no-tests       without tests
#   --run COMMAND    instead of both: a shell command in the checkout
#   --if-possible    if this machine cannot do it, print the reason and exit with 0
#   --cache DIR      where systems are kept; else FORERUN_SYSTEMS, else ~/.cache/forerun/systems
#   --fresh          create the system again, without the parts kept from earlier runs
#   --keep           leave the tried copy for a look, whatever the outcome
#   --mirror URL     take packages from there; else from where apt takes them on this machine
#
# Kept between runs, below DIR/SUITE: the system as debootstrap left it, and downloaded packages.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
self=$(realpath "$0")
say() { printf 'try-system: %s\n' "$*"; }
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$self"; }

# inside ROOT COMMAND...: runs a command with the folder ROOT as its system, in separate namespaces
# of mounts and processes. Both vanish when it ends, in any way.
inside() {
    local root=$1
    shift
    mount --bind "$root/../archives" "$root/var/cache/apt/archives"
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys" || mount --rbind -o ro /sys "$root/sys"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    mkdir "$root/dev/shm" "$root/dev/pts"
    local device
    for device in null zero full random urandom tty; do
        : >"$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s fd/0 "$root/dev/stdin"
    ln -s fd/1 "$root/dev/stdout"
    ln -s fd/2 "$root/dev/stderr"
    exec env -i HOME=/home/user PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        LANG=C.UTF-8 TERM=dumb ${http_proxy:+http_proxy="$http_proxy"} \
        ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} \
        chroot "$root" "$@"
}
if [ "${1:-}" = --inside ]; then # this script, called by itself
    shift
    inside "$@"
fi

# --- options, and requirements of the machine ---
demo=yes tests=all run='' fresh='' keep='' unable=3 suite='' mirror=''
cache=${FORERUN_SYSTEMS:-${XDG_CACHE_HOME:-$HOME/.cache}/forerun/systems}
wrong() { # MESSAGE
    say "$1; --help says more" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --no-demo) demo='' ;;
    --no-tests) tests='' ;;
    --if-possible) unable=0 ;;
    --fresh) fresh=yes ;;
    --keep) keep=yes ;;
    --tests | --run | --cache | --mirror)
        [ $# -gt 1 ] || wrong "$1 needs a value"
        declare "${1#--}=$2"
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) wrong "unknown option $1" ;;
    *)
        [ -z "$suite" ] || wrong "one SUITE, not $suite and $1"
        suite=$1
        ;;
    esac
    shift
done
[[ $suite =~ ^[a-z]+$ ]] || wrong "SUITE is the name of a Debian release, such as trixie"
cannot() { # REASON
    say "$suite was left out: $1" >&2
    exit $unable
}
[ "$(id -u)" = 0 ] || cannot "it needs root"
command -v debootstrap >/dev/null || cannot "debootstrap is missing (scripts/install-deps.sh --dev installs it)"
in_namespaces=(unshare --mount --pid --fork --kill-child)
"${in_namespaces[@]}" mount -t tmpfs tmpfs /mnt 2>/dev/null || cannot "mounting is not allowed here"
cache=$(realpath -m "$cache")
cd "$(dirname "$self")/.."
git rev-parse --git-dir >/dev/null 2>&1 || cannot "$PWD is not a git checkout"

# --- the system ---
# shellcheck disable=SC2016
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null |
    grep -m1 -E '/debian/?$' || true) # other archives (Ubuntu, security) have other names
home=$cache/$suite
mkdir -p "$home/archives/partial"
base=$home/base tried=$home/tried
exec 9>"$home/lock"
flock -n 9 || { say "another run uses $home; waiting for it" && flock 9; }

# remove FOLDER...: never through a foreign mount inside it (ours are gone at this point).
remove() {
    local folder at
    for folder in "$@"; do
        while read -r _ _ _ _ at _; do
            printf -v at %b "$at"
            if [[ $at == "$folder"/* ]]; then
                say "$at is a mount; unmount it first: what is in it would be removed" >&2
                return 1
            fi
        done </proc/self/mountinfo
        rm -rf --one-file-system "$folder"
    done
}

child=
# shellcheck disable=SC2317
leave() {
    [ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
    remove "$base.part"
    [ -n "$keep" ] || remove "$tried"
}
trap leave EXIT
trap 'exit 1' INT TERM HUP
waiting() { # COMMAND...: handles signals at once; the command keeps the lock if this script is killed
    "$@" </dev/null &
    child=$!
    local code=0
    wait "$child" || code=$?
    child=
    return $code
}

remove "$base.part" "$tried" # left by a run that was killed
[ -z "$fresh" ] || remove "$base"
if [ ! -d "$base" ]; then
    say "making $suite in $base${mirror:+, from $mirror}"
    waiting "${in_namespaces[@]}" debootstrap --variant=minbase --include=ca-certificates,git,make \
        "$suite" "$base.part" ${mirror:+"$mirror"} || {
        say "$suite cannot be made: debootstrap failed" >&2
        exit 1
    }
    mv "$base.part" "$base" # only complete systems have this name
fi
cp -a --reflink=auto "$base" "$tried"
cp -L /etc/resolv.conf /etc/hosts "$tried/etc/"
checkout=$tried/home/user/forerun
mkdir -p "$checkout"
git ls-files -z | while IFS= read -rd '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
    tar -c --null -T - | tar -x --no-same-owner -C "$checkout"

# --- the trial ---
failed=()
try() { # NAME COMMAND: a shell command in the checkout
    local start=$SECONDS verdict=passed
    printf '\n--- %s: %s\n' "$suite" "$2"
    waiting "${in_namespaces[@]}" "$self" --inside "$tried" \
        sh -c "cd /home/user/forerun && $2" 2>&1 || {
        verdict=FAILED
        failed+=("$1")
    }
    say "$suite: $1 $verdict after $((SECONDS - start)) s"
}
if [ -n "$run" ]; then
    try "$run" "$run"
    demo='' tests=''
fi
[ -z "$demo" ] || try "make demo" "make demo"
case $tests in
'') ;;
all) try "make test" "make test" ;;
*)
    try build make
    printf -v pattern %q "$tests"
    try tests "scripts/install-deps.sh --test && ctest --preset release -j $(nproc) -R $pattern"
    ;;
esac

if [ -n "$keep" ]; then say "the tried system is left in $tried"; fi
if [ ${#failed[@]} -gt 0 ]; then
    printf -v what '%s, ' "${failed[@]}"
    say "$suite: FAILED: ${what%, }"
    sed 's/^[0-9]*:/  /' "$checkout"/build/Testing/Temporary/LastTestsFailed*.log 2>/dev/null || true
    exit 1
fi
say "$suite: all passed"
