# kill -9 at random moments of a run that writes a checkpoint after every update: each time the run
# can be resumed, and in the end the weights are those of an undisturbed run. The run is endless, so
# that no signal comes too late; its number of updates is read afterwards.
. "$(dirname "$0")/lib.bash"

every=(--set run.checkpoint_every=1 --set run.keep=2 --set run.eval_every=-1 --set run.predict=false --quiet)
RANDOM=7
step=0
for nth in $(seq 20); do
    begin train net.yaml --out cut "${every[@]}" --set train.steps=100000000 --resume
    # Every other time the delay starts only when the run is at work, however slow its start.
    [ $((nth % 2)) = 1 ] || wait_while $pid has_saved cut $((step + RANDOM % 15))
    sleep "0.$(printf '%03d' $((RANDOM % 120 + 5)))"
    kill -9 $pid
    ends 137 "of a killed run"
    [ ! -s err ] || fail "a killed run had something to say"
    step=$(newest cut)
    step=${step:-0}
done
steps=$((step + 5))
run 0 train net.yaml --out cut "${every[@]}" --set train.steps=$steps --resume
if grep -q 'warning' err; then fail "a checkpoint was damaged"; fi
run 0 train net.yaml --out whole "${every[@]}" --set train.steps=$steps --set run.checkpoint_every=0
same "$(field cut/summary.json weights_sha256)" "$(field whole/summary.json weights_sha256)" \
    "after 20 kills"
cut -d, -f1-4 whole/metrics.jsonl >m1
cut -d, -f1-4 cut/metrics.jsonl >m2
cut -d, -f1-4 whole/metrics.csv >c1
cut -d, -f1-4 cut/metrics.csv >c2
cmp c1 c2 || fail "metrics.csv differs"
cmp m1 m2 || fail "metrics after 20 kills"
same "$(ls -A cut/checkpoint | wc -l)" 2 "checkpoints kept"
echo "ok: 20 kills, $steps steps"
