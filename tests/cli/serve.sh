# A run that is shown live: the address on stderr, the page while it trains, the end told to readers;
# a port that is taken is refused before anything is written.
. "$(dirname "$0")/lib.bash"
command -v curl >/dev/null || skip_all "no curl"

"$forerun" train net.yaml --out probe --serve 0 --quiet 2>err
grep -q libmicrohttpd err && skip_all "built without libmicrohttpd"

# A folder named by an address that cannot be had stays unmade.
run 2 train net.yaml --out none --serve 127.0.0.1:x
says "127.0.0.1:x" "PORT"
[ ! -e none ] || fail "a folder was made"

begin train net.yaml --out run "${endless[@]}" --set run.predict=false --serve 0
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

# Ctrl-C: readers hear how it ended, and the process ends though they are there.
kill -INT $pid
ends 130 "after Ctrl-C"
wait $reader
grep -A 1 '^event: over' events | grep -q '"status": "interrupted"' || fail "the end was not told"
[ "$(tail -1 run/metrics.jsonl | sed 's/.*"step": \([0-9]*\),.*/\1/')" = \
    "$(grep '^data: {"step"' events | tail -1 | sed 's/.*"step": \([0-9]*\),.*/\1/')" ] ||
    fail "the last step was not told"

# Quiet is quiet, and nobody looking on does not delay the end.
run 0 train net.yaml --out quiet --serve 0 --quiet
[ ! -s err ] || fail "words though --quiet"
exit 0
