#!/usr/bin/env bash
# make-reference.sh -- generates the parts of docs/ that come from the code.
#
#   scripts/make-reference.sh [--check] [FORERUN]
#
#   docs/reference.md, docs/forerun.1    forerun reference
#   docs/stability.svg                   scripts/draw-stability.sh
#   docs/methods/NAME.svg                forerun schedule NAME --format svg
#   docs/methods/NAME.md                 what stands between <!-- drawing --> or <!-- numbers --> and
#                                        <!-- end -->; the rest is written by hand
#
# Writes these files. With --check it compares instead, shows the differences, and exits with 1 if
# there are any. FORERUN is the command (default: build/forerun).
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
mkdir "$new/methods" "$new/parts"

"$forerun" reference >"$new/reference.md"
"$forerun" reference --format man >"$new/forerun.1"
scripts/draw-stability.sh "$forerun" >"$new/stability.svg"

# Sizes that show the characteristics of a method in a readable drawing.
drawing_of() {
    case $1 in
    dp | model-averaging) echo --micro 8 --replicas 2 ;;
    naive-mp | timeprest) echo --micro 2 ;;
    interleaved | zbv | v-half | v-min | dualpipev) echo --micro 8 --stages 8 ;;
    single | gpipe | 1f1b | zb-h1 | zb-h2) echo --micro 8 ;;
    *) echo --micro 4 ;;
    esac
}

page() { # NAME: its page with newly generated parts between the marks
    local name=$1 page=docs/methods/$1.md row
    local -a sizes
    read -ra sizes <<<"$(drawing_of "$name")"
    "$forerun" schedule "$name" "${sizes[@]}" --format svg >"$new/methods/$name.svg"
    row=$(sed -n '/^### Methods/,/^### Weight/p' "$new/reference.md" | grep -F "| \`$name\` |")
    IFS='|' read -r _ _ _ schedule weights sync _ <<<"$row"
    printf '| schedule | weights | sync of replicas |\n|---|---|---|\n|%s|%s|%s|\n\n![Schedule of %s](%s.svg)\n' \
        "$schedule" "$weights" "$sync" "$name" "$name" >"$new/parts/drawing"
    "$forerun" methods "$name" --format markdown >"$new/parts/numbers"
    if [ ! -f "$page" ]; then
        echo "$page is missing: write it like those of other methods" >&2
        return 1
    fi
    awk -v parts="$new/parts" '
        /^<!-- end -->$/ { is_made = 0 }
        !is_made { print }
        /^<!-- (drawing|numbers) -->$/ {
            is_made = 1
            while ((getline line < (parts "/" $2)) > 0) print line
        }' "$page" >"$new/methods/$name.md"
}
for name in $("$forerun" methods | sed -n '/^parallel.method/,/^parallel.weights/s/^  \([^ ]*\) .*/\1/p'); do
    page "$name"
done
rm -r "$new/parts"

old=0
while IFS= read -r file; do
    if [ -z "$check" ]; then
        cmp -s "$new/$file" "docs/$file" || cp "$new/$file" "docs/$file"
    elif ! diff -u "docs/$file" "$new/$file"; then
        echo "docs/$file differs from the code; update it by scripts/make-reference.sh FORERUN"
        old=1
    fi
done < <(cd "$new" && find . -type f -printf '%P\n' | sort)
exit $old
