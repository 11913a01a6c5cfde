#!/usr/bin/env bash
# make-picture.sh -- makes the picture of the report in README.md.
#
#   scripts/make-picture.sh [REPORT]
#
# Opens REPORT (default: runs/demo/report.html of `make demo`) in headless Chromium and writes the
# top of the page to docs/report.png. scripts/install-deps.sh --test installs the browser.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
report=$(realpath "${1:-$root/runs/demo/report.html}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -s "$report" ] || {
    echo "make-picture: no $report; run make demo first" >&2
    exit 2
}
alone=()
[ "$(id -u)" != 0 ] || alone=(--no-sandbox) # root has no sandbox
chromium --headless=new "${alone[@]}" --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
    --user-data-dir="$work/profile" --window-size=1280,1560 --force-device-scale-factor=0.65 --virtual-time-budget=5000 \
    --screenshot="$work/report.png" "file://$report" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
[ -s "$work/report.png" ] || {
    echo "make-picture: the browser wrote no picture: $(tail -n 1 "$work/log")" >&2
    exit 1
}
mv "$work/report.png" "$root/docs/report.png"
