# forerun compare: methods by name and cases of a config. A comparison that is killed at random
# moments continues, and its table equals that of an undisturbed one. Wrong input is refused.
. "$(dirname "$0")/lib.bash"

cat >tiny.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 4, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 16, steps: 240, seed: 3, optimizer: {name: sgd, lr: 0.05, momentum: 0.9}}
parallel: {threads: 1, pin: false}
run: {predict: false, checkpoint_every: 60, keep: 2, trace: 50}
YAML
methods=single,dp,1f1b,spectrain
what=(compare tiny.yaml --methods $methods --seeds 3 --columns train_loss,eval_loss,eval_accuracy --format csv)

# --- 4 methods x 3 seeds, killed and killed again ------------------------------------------------

run 0 "${what[@]}" --out whole
mv out whole.csv
same "$(grep -c ' done after ' err)" 12 "lines of progress"
same "$(wc -l <whole.csv)" 5 "rows"
same "$(grep -c ',done,' whole.csv)" 4 "cases that are done"
[ -s whole/report.html ] || fail "no report"

# Killed a moment after a number of runs have begun. A comparison that ends before its third kill
# starts again, until it is killed three times.
has_begun() { [ "$(find cut -name metrics.jsonl 2>/dev/null | wc -l)" -ge "$1" ] || ! kill -0 $pid 2>/dev/null; }
RANDOM=11
rounds=0 begun=0
while :; do
    begin "${what[@]}" --out cut --quiet
    begun=$((begun + 1 + RANDOM % 3))
    wait_for has_begun $begun
    sleep "0.$(printf '%03d' $((RANDOM % 80)))"
    victim=$pid
    if [ $((RANDOM % 3)) = 0 ]; then # the run, not the comparison
        child=$(cut -d' ' -f1 "/proc/$pid/task/$pid/children" 2>/dev/null)
        victim=${child:-$pid}
    fi
    kill -9 "$victim" 2>/dev/null
    code=0
    wait $pid 2>/dev/null || code=$?
    begun=$(find cut -name metrics.jsonl | wc -l)
    if [ $code = 0 ]; then
        [ $rounds -lt 3 ] || break
        rm -rf cut
        rounds=0 begun=0
        continue
    fi
    [ $code = 137 ] || [ $code = 1 ] || fail "exit code $code after kill -9 of $victim"
    [ $code = 137 ] || grep -q 'killed by signal 9' err || fail "a killed run is not told"
    rounds=$((rounds + 1))
done
run 0 "${what[@]}" --out cut
cmp out whole.csv || fail "the table after $rounds kills"
if grep -q ' done after ' err; then fail "a run was made again"; fi
for run in whole/*/seed-*/; do
    same "$(field "$run/summary.json" weights_sha256)" \
        "$(field "cut/${run#whole/}/summary.json" weights_sha256)" "weights of $run"
done

# --- more of it, other settings ------------------------------------------------------------------

run 0 compare tiny.yaml --methods single,dp --seeds 4 --out whole --quiet
same "$(ls -d whole/single/seed-*/ | wc -l)" 4 "seeds"
run 2 compare tiny.yaml --methods single --out whole --set train.optimizer.lr=0.1
says whole/single/seed-3 'train.optimizer.lr is 0.05 there, 0.1 here' --force
before=$(field whole/dp/seed-3/summary.json weights_sha256)
run 0 compare tiny.yaml --methods single --out whole --set train.optimizer.lr=0.1 --force --quiet
[ "$(field whole/single/seed-3/summary.json weights_sha256)" != "$before" ] || fail "not run again"
same "$(field whole/dp/seed-3/summary.json weights_sha256)" "$before" "a case that was not asked for"

# --- cases of a config ---------------------------------------------------------------------------

mkdir -p configs
cat >configs/box.yaml <<YAML
device: {speed: 1}
topology: {bandwidth: 1 GB/s, latency: 20 us, devices: 2}
YAML
cases() { # LINE...: a config with these cases
    sed 's/^run:.*/run: {predict: false}/' tiny.yaml >configs/cases.yaml
    printf 'compare:\n  title: Two boxes\n  cases:\n' >>configs/cases.yaml
    printf '    - %s\n' "$@" >>configs/cases.yaml
}
cases '{name: one, set: {train.steps: 20}}' \
    '{name: wild, set: {train.steps: 20, train.optimizer: {name: sgd, lr: 1.0e+30}}}' \
    '{name: two, kind: simulated, set: {parallel.cluster: box.yaml, parallel.method: 1f1b, parallel.stages: 2, train.micro: 4},
       published: {speedup: 1.5, source: "somebody, 2020"}}' \
    '{name: far, kind: published, published: {eval_accuracy: 91, source: "somebody, 2020"}}'
run 0 compare configs/cases.yaml --out kinds
for text in 'one *measured' 'wild *measured.*diverged' 'two *simulated' 'two *published \[1\].*1.50' \
    'far *published \[1\] *91.00' '^\[1\] somebody, 2020' 'virtual clock' 'kinds/report.html'; do
    grep -q "$text" out || fail "the table lacks '$text'"
done
[ -s kinds/two-simulated/simulated.json ] && [ -s kinds/profile-*.json ] || fail "no simulation"
run 0 compare configs/cases.yaml --out kinds --json --quiet
cmp out kinds/compare.json || fail "compare.json"
run 0 train configs/cases.yaml --out alone --set train.steps=2 --quiet
if grep -q compare alone/config.yaml; then fail "a run has the section compare"; fi

# A run fails: with --keep-going the others continue, and the next call retries it.
cases '{name: bad, set: {run.fault: "error:worker=0,step=3"}}' '{name: good, set: {train.steps: 20}}'
run 1 compare configs/cases.yaml --out faults
grep -q 'bad, seed 3: exit code' err || fail "the failure is not told"
[ ! -d faults/good/seed-3 ] || fail "went on after a failure"
run 1 compare configs/cases.yaml --out faults --keep-going
grep -q 'bad.*failed' out || fail "the failed case is not in the table"
grep -q '\[2/2\] good, seed 3: done' err || fail "did not keep going"

# Ctrl-C: the run writes a checkpoint, and the next call continues from it. If the run ends before
# the signal, it gets more steps.
steps=4000
while :; do
    cases "{name: long, set: {train.steps: $steps, run.eval_every: -1}}"
    begin compare configs/cases.yaml --out asked
    wait_while $pid test -s asked/long/seed-3/metrics.jsonl
    kill -INT $pid
    code=0
    wait $pid || code=$?
    [ $code = 0 ] || break
    steps=$((steps * 4))
    rm -r asked
done
same $code 130 "exit code after Ctrl-C"
grep -q 'the same command continues' err || fail "no word of how to go on"
[ -n "$(ls asked/long/seed-3/checkpoint)" ] || fail "no checkpoint after Ctrl-C"
run 0 compare configs/cases.yaml --out asked
grep -q 'long, seed 3: resumed, done' err || fail "not resumed"

# Processes, if the config requests them and there is more than one worker.
. "$source_dir/tests/cli/launcher.bash"
if [ ${#mpirun[@]} != 0 ]; then
    run 0 compare tiny.yaml --methods single,1f1b --out ranks --set parallel.transport=mpi --quiet
    same "$(field ranks/1f1b/seed-3/summary.json processes)" 2 "processes of 1f1b"
    same "$(field ranks/single/seed-3/summary.json processes)" 1 "processes of single"
else
    skipped "a comparison of several processes" "built without MPI, or no mpirun"
fi

# --- refusals before anything runs -----------------------------------------------------

run 2 compare tiny.yaml
says tiny.yaml 'no cases to compare' --methods
run 2 compare tiny.yaml --methods single,sepctrain --out no
says --methods sepctrain spectrain
run 2 compare tiny.yaml --methods single --columns speed --out no
says --columns speed speedup
cases '{name: a, set: {parallel.method: nothing}}'
run 2 compare configs/cases.yaml --out no
says cases.yaml:9 'case a' nothing
cases '{name: a}' '{name: a}'
run 2 compare configs/cases.yaml --out no
says cases.yaml:10 'duplicate case a'
cases '{name: a, sets: {train.steps: 3}}'
run 2 compare configs/cases.yaml --out no
says cases.yaml:9 'compare.cases[0].sets' set
cases '{name: a, set: {train.seed: 3}}'
run 2 compare configs/cases.yaml --out no
says train.seed compare.seeds
cases '{name: a, published: {speedup: 3}}'
run 2 compare configs/cases.yaml --out no
says cases.yaml:9 source
cases '{name: a, kind: guessed}'
run 2 compare configs/cases.yaml --out no
says guessed measured simulated
cases '{name: a, kind: simulated}'
run 2 compare configs/cases.yaml --out no
says 'case a' parallel.cluster
run 2 compare configs/cases.yaml --only b --out no
says --only b
[ ! -e no ] || fail "a refused comparison left a folder"
run 0 train tiny.yaml --out plain --quiet
run 2 compare tiny.yaml --methods single --out plain
says plain 'holds a run'
echo "ok: $rounds kills"
