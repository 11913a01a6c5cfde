# The page of the report as a reader meets it: opened in a browser, hovered, clicked, zoomed, made
# dark, made small. Red when a script throws, a picture is empty, text sticks out, or anything is
# asked of a network. FR_SHOTS=DIR leaves pictures of what it saw.
. "$(dirname "$0")/../cli/lib.bash"
. "$source_dir/tests/report/webdriver.bash"
looks=$(cat "$source_dir/tests/report/look.js")
see() { js "$looks; return $1"; }

# of CSS EXPRESSION: of the element x.
of() { see "((x) => $2)(document.querySelector('$1'))"; }
# The page draws when the browser comes to it. Each look is two frames after the one before; what has
# not come after so many of them does not come.
looks_at_most=300
# shows QUESTION is|not|holds VALUE WHAT: sooner or later. QUESTION: what to see.
shows() {
    local got i
    for ((i = 0; i < looks_at_most; i++)); do
        got=$(see "$1")
        case $2 in
        is) [ "$got" != "$3" ] || return 0 ;;
        not) [ "$got" = "$3" ] || return 0 ;;
        holds) [[ $got != *"$3"* ]] || return 0 ;;
        esac
    done
    fail "$4: '$got'; expected: $2 '$3'"
}
# shows_of CSS EXPRESSION ...: so, of the element x.
shows_of() {
    local css=$1 expression=$2
    shift 2
    shows "((x) => $expression)(document.querySelector('$css'))" "$@"
}

# Whatever page is open, at any time.
sound() {
    shows 'empty()' is "[]" "$1: empty pictures"
    in_order "$1"
}
in_order() {
    shows 'overflowing()' is "[]" "$1: what sticks out"
    same "$(log browser | jq -c '[.[] | select(.level == "SEVERE") | .message]')" "[]" "$1: errors"
}

# --- runs: one, eight, and as many and as large as it gets ---
cat >pipe.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 6, width: 16, classes: 4}
data: {name: synthetic, n: 200, n_eval: 50}
train: {batch: 8, micro: 4, steps: 40, seed: 3, optimizer: {name: adam, lr: 0.01}}
parallel: {threads: 1, stages: 4, method: spectrain}
run: {eval_every: 10}
YAML
# evenly RUN: each instruction of its trace takes as long as another, and follows the one before it on
# its worker at once. As this machine has timed them, there may be long gaps where nothing is to see.
evenly() {
    jq -c '.traceEvents |= ([.[] | select(.ph == "M")]
        + ([.[] | select(.ph == "X")] | group_by(.tid)
            | map(sort_by(.ts) | to_entries | map(.value + {ts: (60 * .key), dur: 60})) | add))' \
        "$1/trace.json" >even
    mv even "$1/trace.json"
}
run 0 train pipe.yaml --out spectrain
evenly spectrain
for method in single gpipe 1f1b zb-h1 vanilla-async pipedream pipeoptim; do
    stages=4
    [ $method = single ] && stages=1
    run 0 train pipe.yaml --out $method --set parallel.method=$method --set parallel.stages=$stages
    evenly $method
done
echo '{device: {speed: 1}, topology: {bandwidth: 1 GB/s, devices: 4}}' >box.yaml
for method in 1f1b spectrain; do
    run 0 train pipe.yaml --out box-$method --set parallel.method=$method \
        --set parallel.cluster="$PWD/box.yaml"
done
run 0 report spectrain --out one.html
run 0 report 1f1b spectrain box-1f1b box-spectrain --out clocks.html
run 0 report single gpipe 1f1b zb-h1 vanilla-async pipedream pipeoptim spectrain --out eight.html

# 20 runs, one of 200,000 mini-batches on 64 workers.
summary_of_64() {
    jq '.stages = 64 | .n_workers = 64
        | .workers = [range(64) as $i | .workers[$i % 4] | .stages = [$i]]
        | .per_stage = [range(64) as $i | .per_stage[$i % 4] | .worker = $i]' spectrain/summary.json
}
trace_of_64() {
    awk 'BEGIN {
        print "{\"displayTimeUnit\": \"ms\", \"traceEvents\": ["
        for (w = 0; w < 64; w++) {
            printf "%s{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":%d,", w ? "," : "", w + 1
            printf "\"args\":{\"name\":\"worker %d, stage %d\"}}\n", w, w
            for (i = 0; i < 1000; i++) {
                printf ",{\"ph\":\"X\",\"name\":\"%s%d\",\"pid\":1,\"tid\":%d,\"cat\":\"%s\",",
                    i % 2 ? "B" : "F", int(i / 2), w + 1, i % 2 ? "backward" : "forward"
                printf "\"ts\":%d,\"dur\":90,\"args\":{\"stage\":%d,\"mini_batch\":%d,",
                    40 * w + 100 * i, w, i / 8
                printf "\"micro_batch\":%d,\"version\":%d,\"ahead\":1}}\n", int(i / 2) % 4, i / 8
            }
        }
        print "]}" }'
}
for i in $(seq 20); do
    mkdir -p "many/run-$i"
    methods=(single gpipe 1f1b spectrain)
    cp "${methods[i % 4]}"/{config.yaml,summary.json,metrics.jsonl} "many/run-$i/"
done
summary_of_64 >many/run-1/summary.json
trace_of_64 >many/run-1/trace.json
awk 'BEGIN {
    for (i = 1; i <= 200000; i++)
        printf "{\"step\": %d, \"samples\": %d, \"loss\": %.4f, \"lr\": 0.01, " \
            "\"samples_per_s\": 900, \"elapsed_s\": %.3f}\n",
            i, 8 * i, 2 / (1 + i / 18000) + (i * 7919 % 100) / 500, i / 110
}' >many/run-1/metrics.jsonl
run 0 report many/run-* --out many.html

browser_up

# --- one run ---
open_page "file://$work/one.html"
sound "one run"
shot one
shows 'text("h1")' holds spectrain title
shows 'all(".tile").length >= 6' is true "tiles"
shows 'all("#curves canvas").length >= 4' is true "curves"
shows 'text(".verdict")' holds "Predicted:" "weights of spectrain"
hover "#curves canvas" 0 0
shows 'text("#tip")' holds "Loss at" "tooltip of the loss"
hover "#timeline canvas" 40 -14
shows 'text("#tip")' holds "took" "tooltip of the timeline"
hover "#time .bar" 0 0
shows 'text("#tip")' holds "forward" "tooltip of a worker's time"
hover "#memory .bar" 0 0
shows 'text("#tip")' holds "weights" "tooltip of a worker's memory"
hover "#versions canvas" 0 -14
shows 'text("#tip")' holds "version" "tooltip of a weight version"

# zoom: the wheel is the page's until the picture is clicked
shows_of "#timeline output" x.textContent holds " to " "stretch of the timeline"
shown=$(of "#timeline output" x.textContent)
wheel "#timeline canvas" -300
shows_of "#timeline output" x.textContent is "$shown" "wheel without a click"
click "#timeline canvas"
before=$(of "#timeline canvas" "print(x)")
wheel "#timeline canvas" -300
shows_of "#timeline output" x.textContent not "$shown" "wheel on the timeline"
near=$(of "#timeline output" x.textContent)
shows_of "#timeline canvas" "print(x)" not "$before" "picture after the wheel"
press "+"
shows_of "#timeline output" x.textContent not "$near" "key + on the timeline"
near=$(of "#timeline output" x.textContent)
drag "#timeline canvas" 100 -100
shows_of "#timeline output" x.textContent not "$near" "timeline dragged"
click "#timeline .keypad button:nth-child(5)"
shows_of "#timeline output" x.textContent holds "0 s to" "all of the timeline"
click "#timeline .keypad button:nth-child(6)"
shows_of "#timeline output" x.textContent is "$shown" "back at the start"

shows_of .reset x.disabled is true "nothing zoomed yet"
drag "#curves canvas" -60 60
shows_of .reset x.disabled is false "curves zoomed by dragging"
click .reset
shows_of .reset x.disabled is true "zoom of the curves reset"
for button in 'over"] button:nth-child(3)' 'scale"] button:nth-child(2)'; do
    before=$(of "#curves canvas" "print(x)")
    click "[aria-label=\"$button"
    shows_of "#curves canvas" "print(x)" not "$before" "curves after $button"
done
sound "curves over time, logarithmic"

before=$(of "#timeline canvas" "print(x)")
paper=$(see 'getComputedStyle(document.body).backgroundColor')
click "#theme"
shows 'getComputedStyle(document.body).backgroundColor' not "$paper" "other theme"
shows_of "#timeline canvas" "print(x)" not "$before" "timeline in the other theme"
sound "dark"
shot one-dark
click "#theme"

# --- eight runs ---
open_page "file://$work/eight.html"
sound "eight runs"
shot eight
shows 'all("#figures tbody tr").length' is 8 "rows"
first=$(of "#figures tbody td" x.textContent)
click "#figures th:nth-child(1) button"
click "#figures th:nth-child(1) button"
shows_of "#figures tbody td" x.textContent not "$first" "sorted by name, from the last"
shows 'all("#curves .legend button").length' is 8 "keys of the legend"
before=$(of "#curves canvas" "print(x)")
click "#curves .legend button:nth-child(8)"
hover h1 0 0
shows_of "#curves .legend button:nth-child(8)" "x.getAttribute('aria-pressed')" is false "run switched off"
shows_of "#curves canvas" "print(x)" not "$before" "curves without one run"
choose() { # RUN: the page shows what is inside it
    see "(() => {
        const s = document.getElementById('run');
        s.value = [...s.options].findIndex((o) => o.text === '$1');
        s.dispatchEvent(new Event('change'));
    })()" >/dev/null
}
while read -r method word; do
    choose "$method"
    shows 'text(".verdict")' holds "$word:" "weights of $method"
    sound "inside $method"
done <<END
single Newest
1f1b Newest
vanilla-async Stale
pipedream Kept
pipeoptim Predicted
END

# --- two clocks: no axis and no scale for both ---
open_page "file://$work/clocks.html"
sound "two clocks"
shot clocks
same "$(see 'all("#curves h3").map((x) => x.textContent.split(":")[0])')" '["Measured","Emulated"]' \
    "curves by clock"
same "$(see 'all("#curves .legend").map((x) => x.textContent)')" '["1f1bspectrain","box-1f1bbox-spectrain"]' \
    "runs of each clock"
same "$(see 'all("#idle .card, #batches .card").length')" 4 "bars by clock"
before=$(see 'all("#curves canvas").map(print)')
click '[aria-label="over"] button:nth-child(3)'
after=$(see 'all("#curves canvas").map(print)')
same "$(jq -n --argjson a "$before" --argjson b "$after" '[range($a | length) | select($a[.] == $b[.])] | length')" 0 \
    "charts of either clock that stay over updates"

# --- many ---
open_page "file://$work/many.html"
sound "twenty runs"
shot many
choose run-1
sound "64 workers"
shows 'all("#time .bar").length' is 64 "bars of 64 workers"
click "#timeline canvas"
for by in -300 -300 300; do wheel "#timeline canvas" $by; done
shows_of "#timeline output" x.textContent holds " of 102.5 ms" "timeline of 64 workers, zoomed"

# --- phone ---
for page in one eight clocks many; do
    for width in 390 360; do
        [ $width = 360 ] || [ $page = one ] || continue
        screen $width 760 true
        open_page "file://$work/$page.html"
        sound "$page, $width px"
    done
    shot $page-phone
done

# --- and all the time: not a word to any network ---
asked=$(log performance | jq -c '[.[].message | fromjson | .message
    | select(.method == "Network.requestWillBeSent") | .params.request.url
    | select(startswith("file:") or startswith("data:") | not)]')
same "$asked" "[]" "asked of the network"

# --- a run that goes on ---
begin train pipe.yaml --out going "${endless[@]}" --set run.eval_every=10 --serve 0
training=$pid
trap 'kill -9 $training 2>/dev/null; browser_down; rm -rf "$work"' EXIT
is_live() { grep -qs 'live at http\|libmicrohttpd' err; }
wait_while $training is_live
if grep -qs libmicrohttpd err; then
    skipped "the page of a run that goes on" "built without libmicrohttpd"
    exit 0
fi
looks_at_most=3000 # its news come by the clock
screen 1280 900 false
open_page "$(sed -n 's/^forerun: live at //p' err)"
shows 'text(".live")' holds "of 100,000,000" "steps to come"
shows 'text(".live .state")' holds "live" "state of a run that goes on"
sound "live"
before=$(of "#curves canvas" "print(x)")
words=$(see 'text(".live .words")')
shows_of "#curves canvas" "print(x)" not "$before" "curves of a run that goes on"
shows 'text(".live .words")' not "$words" "progress of a run that goes on"
shot live
kill -INT $training
shows 'text(".live .state")' holds "interrupted" "state of a run that is over"
# The server waits a second for a reader to load all of it once more; then the page says that it is
# gone.
if [[ $(see 'text(".live .state")') == *"("* ]]; then
    skipped "the timeline of a live run that is over" "the browser came too late for the data"
else
    shows 'all("#timeline canvas").length' is 1 "timeline once the run is over"
    in_order "a live run that is over" # what there is to see, its own times decide
fi
