# If the folder of a run is moved, removed or replaced, the run ends with exit code 1 and one line,
# and writes nothing to the replacement. The runs of this test are endless.
# shellcheck shell=bash disable=SC1091,SC2154
. "$(dirname "$0")/lib.bash"
. "$source_dir/tests/cli/folder.bash"
command=("$forerun" train net.yaml)
run 0 train net.yaml --out finished --set run.checkpoint_every=10 --quiet

lose_folders --set run.checkpoint_every=1 --set run.keep=2
lose_folders --set run.checkpoint_every=50 --set run.tensorboard=false --set run.csv=false \
    --set parallel.method=spectrain --set parallel.stages=2

# A moved run continues in its new place, with the numbers of an undisturbed run.
begin run --set run.checkpoint_every=10
mv run moved
lost mv
n=$(($(find moved/checkpoint -name 'step-*' | sed 's/.*-//' | sort -n | tail -n 1) + 10))
more=(--set train.steps="$n" --set run.eval_every=-1 --set run.checkpoint_every=10 --quiet)
run 0 train net.yaml --out moved --resume "${more[@]}"
run 0 train net.yaml --out alone "${more[@]}"
same "$(field moved/summary.json weights_sha256)" "$(field alone/summary.json weights_sha256)" "moved and resumed"
same "$(wc -l <moved/metrics.jsonl)" $n "lines of metrics"

# A second run in the same place has the folder for itself.
begin run --set run.checkpoint_every=10
mv run gone
"$forerun" train net.yaml --out run --set run.checkpoint_every=10 --quiet || fail "a run in the freed place"
lost "a second run"
same "$(field run/summary.json weights_sha256)" "$(field finished/summary.json weights_sha256)" "the second run"
same "$(wc -l <run/metrics.jsonl)" 40 "its lines"
run 0 checkpoint verify run
rm -rf run gone

# The loss of a single file is noticed as well.
begin run --set run.checkpoint_every=10
mv run/metrics.jsonl elsewhere
lost "mv metrics.jsonl"

# A pipe in place of a file of the run is refused before anything is trained.
for file in config.yaml summary.json metrics.jsonl; do
    cp -r finished piped
    rm "piped/$file"
    mkfifo "piped/$file"
    run 2 train net.yaml --out piped --resume --set train.steps=50 --quiet
    says "piped/$file"
    rm -r piped
done

# Twelve starts at once: one wins.
pids=()
for i in $(seq 12); do
    "$forerun" train net.yaml --out twelve "${endless[@]}" --quiet >/dev/null 2>"err.$i" </dev/null &
    pids+=($!)
done
until [ ${#pids[@]} = 1 ]; do
    wait -n -p who "${pids[@]}" && fail "a run without end has ended"
    for i in "${!pids[@]}"; do [ "${pids[i]}" != "$who" ] || unset "pids[i]"; done
done
winner=${pids[*]}
until has_lines twelve; do
    kill -0 "$winner" || fail "twelve starts: nobody won"
    sleep 0.02
done
kill -INT "$winner"
code=0
wait "$winner" || code=$?
same $code 130 "exit code of the winner"
same "$(cat err.* | grep -c 'another run is writing there\|already holds a run')" 11 "starts that were refused"
run 0 checkpoint verify twelve
same "$(field twelve/summary.json steps)" "$(wc -l <twelve/metrics.jsonl)" "updates and lines of the winner"
echo ok
