# The live view of a run: the address on stderr, the page while it trains, the end sent to readers; a
# port in use is refused before anything is written.
. "$(dirname "$0")/lib.bash"
command -v curl >/dev/null || skip_all "no curl"

"$forerun" train net.yaml --out probe --serve 0 --quiet 2>err
grep -q libmicrohttpd err && skip_all "built without libmicrohttpd"

# With an unusable address the folder is not created.
run 2 train net.yaml --out none --serve 127.0.0.1:x
says "127.0.0.1:x" "PORT"
[ ! -e none ] || fail "a folder was made"

begin train net.yaml --out run "${endless[@]}" --serve 0
wait_while $pid grep -qs 'live at http' err
at=$(sed -n 's/^forerun: live at //p' err)
: >events
curl -sN "$at"events >events &
reader=$!
news() { [ "$(grep -c '^data: {"step"' events)" -ge 2 ]; }
wait_while $reader news
curl -s -o page "$at" && grep -qi '<!doctype html>' page || fail "no page"
curl -s -o data "$at"data.json && grep -q '"live": true.*"folder": "run"' data || fail "no data"

port=${at##*:}
"$forerun" train net.yaml --out second --serve "127.0.0.1:${port%/}" >out2 2>err2 && fail "a port for two"
grep -q "in use" err2 || fail "what is wrong with the port: $(cat err2)"
[ ! -e second ] || fail "a folder was made"

# Ctrl-C: readers receive the outcome, and the process ends although they are connected.
kill -INT $pid
ends 130 "after Ctrl-C"
wait $reader
grep -A 1 '^event: over' events | grep -q '"status": "interrupted"' || fail "the end was not told"
[ "$(tail -1 run/metrics.jsonl | sed 's/.*"step": \([0-9]*\),.*/\1/')" = \
    "$(grep '^data: {"step"' events | tail -1 | sed 's/.*"step": \([0-9]*\),.*/\1/')" ] ||
    fail "the last step was not told"

# --quiet prints nothing, and without readers the end is not delayed.
run 0 train net.yaml --out quiet --serve 0 --quiet
[ ! -s err ] || fail "words though --quiet"
exit 0
