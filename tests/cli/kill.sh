# kill -9 at random moments of a run that writes a checkpoint after every update: each time the run
# can be resumed, and in the end the weights are those of a run that was left alone.
. "$(dirname "$0")/lib.bash"

set_all=(--set train.steps=400 --set run.checkpoint_every=1 --set run.keep=2 --set run.eval_every=-1
    --set run.predict=false)
run 0 train net.yaml --out whole "${set_all[@]}" --set run.checkpoint_every=0 --quiet
RANDOM=7
kills=0
newest=
while [ $kills -lt 20 ]; do
    "$forerun" train net.yaml --out cut "${set_all[@]}" --resume --quiet >out 2>err &
    pid=$!
    # Every other time it is at work when the clock begins to run, however slow its start.
    for _ in $(seq $((kills % 2 * 300))); do
        [ "$(ls cut/checkpoint 2>/dev/null | sort -V | tail -1)" = "$newest" ] || break
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    sleep "0.$(printf '%03d' $((RANDOM % 120 + 5)))"
    kill -9 $pid 2>/dev/null
    code=0
    wait $pid 2>/dev/null || code=$?
    [ $code != 0 ] || break # done before the signal
    same $code 137 "exit code of a killed run"
    [ ! -s err ] || fail "a killed run had something to say"
    kills=$((kills + 1))
    newest=$(ls cut/checkpoint 2>/dev/null | sort -V | tail -1)
done
run 0 train net.yaml --out cut "${set_all[@]}" --resume
if grep -q 'warning' err; then fail "a checkpoint was damaged"; fi
[ $kills -ge 3 ] || fail "only $kills kills before the run was done"
same "$(field cut/summary.json weights_sha256)" "$(field whole/summary.json weights_sha256)" \
    "after $kills kills"
cut -d, -f1-4 whole/metrics.jsonl >m1
cut -d, -f1-4 cut/metrics.jsonl >m2
cut -d, -f1-4 whole/metrics.csv >c1
cut -d, -f1-4 cut/metrics.csv >c2
cmp c1 c2 || fail "metrics.csv differs"
cmp m1 m2 || fail "metrics after $kills kills"
same "$(ls -A cut/checkpoint | wc -l)" 2 "checkpoints kept"
echo "ok: $kills kills"
