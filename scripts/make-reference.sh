#!/usr/bin/env bash
# make-reference.sh -- the parts of docs/ that are made from the code.
#
#   scripts/make-reference.sh [--check] [FORERUN]
#
#   docs/reference.md, docs/forerun.1    forerun reference
#
# Writes them; with --check compares instead, shows what differs, and ends with code 1 if anything
# does. FORERUN is the command to ask (build/forerun).
set -euo pipefail
check=
if [ "${1:-}" = --check ]; then
    check=1
    shift
fi
root=$(cd "$(dirname "$0")/.." && pwd)
forerun=$(realpath "${1:-$root/build/forerun}")
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
cd "$root"

"$forerun" reference >"$new/reference.md"
"$forerun" reference --format man >"$new/forerun.1"

old=0
while IFS= read -r file; do
    if [ -z "$check" ]; then
        cmp -s "$new/$file" "docs/$file" || cp "$new/$file" "docs/$file"
    elif ! diff -u "docs/$file" "$new/$file"; then
        echo "docs/$file is not what the code says; mend it: scripts/make-reference.sh FORERUN"
        old=1
    fi
done < <(cd "$new" && find . -type f -printf '%P\n' | sort)
exit $old
