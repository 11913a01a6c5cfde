# Runs of several processes: the numbers of one process, checkpoints that any number of processes can
# read, every message once, the same end for all ranks.
# shellcheck shell=bash disable=SC1091,SC2154,SC2086
. "$(dirname "$0")/mpi.bash"

ranks() { # N CODE ARGUMENT...: forerun train as N processes must end with that exit code
    local n=$1 code=$2
    shift 2
    mpi "$n" "$code" train "$@"
}
losses() { sed 's/.*"loss": \([^,]*\),.*/\1/' "$1/metrics.jsonl"; }
sha() { field "$1/summary.json" weights_sha256; }
layout() { echo "parallel={backend: ref, threads: 1, $1}"; }

cat >net.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 4, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 16, micro: 4, steps: 24, seed: 3, exact_sum: true, optimizer: {name: adam, lr: 0.01}}
parallel: {backend: ref, threads: 1}
run: {checkpoint_every: 6, keep: 9, predict: false}
YAML

# --- the same numbers as one process, which is one worker ---
run 0 train net.yaml --quiet --out single
while read -r n what; do
    rm -rf new
    ranks "$n" 0 net.yaml --quiet --out new --set "$(layout "$what")"
    [ ! -s err ] || fail "$what: a quiet run speaks"
    same "$(sha new)" "$(sha single)" "weights of $n ranks, $what"
    same "$(losses new)" "$(losses single)" "losses of $n ranks, $what"
    same "$(field new/summary.json processes)" "$n" "processes"
done <<'LAYOUTS'
2 method: dp, replicas: 2
4 method: zb-h1, stages: 4
4 method: gpipe, stages: 2, replicas: 2
3 method: 1f1b, replicas: [2, 1]
2 method: 1f1b, stages: 2, replicas: 2, workers_per_rank: 2
LAYOUTS

# --- a checkpoint of processes read by threads, and the reverse ---
ranks 4 0 net.yaml --quiet --out cut --set train.steps=12 --set "$(layout 'method: 1f1b, stages: 2, replicas: 2')"
cp -r cut other
run 0 train net.yaml --quiet --out cut --resume --set "$(layout 'method: 1f1b, stages: 3')"
same "$(sha cut)" "$(sha single)" "saved by ranks, resumed by threads"
ranks 2 0 net.yaml --quiet --out other --resume --set "$(layout 'method: dp, replicas: 2')"
same "$(sha other)" "$(sha single)" "saved by ranks, resumed by other ranks"
same "$(losses other)" "$(losses single)" "losses of the resumed run"

# All ranks skip a damaged checkpoint.
ranks 2 0 net.yaml --quiet --out worn --set train.steps=18 --set "$(layout 'method: dp, replicas: 2')"
printf x | dd of=worn/checkpoint/step-18/model.safetensors bs=1 seek=2000 conv=notrunc 2>/dev/null
ranks 4 0 net.yaml --out worn --resume --set "$(layout 'method: 1f1b, stages: 4')"
grep -q "step-18/model.safetensors.*using the checkpoint before it" err || fail "no word of damage"
grep -q "resuming from worn/checkpoint/step-12" err || fail "not resumed from the one before"
same "$(sha worn)" "$(sha single)" "resumed from the checkpoint before a damaged one"

# --- dump, ledger and policy state: the files of one process, byte for byte ---
two=$(layout 'method: pipedream-2bw, stages: 2, replicas: 2')
run 0 train net.yaml --quiet --out threads --set "$two" --dump-step 7 --ledger threads.csv
ranks 4 0 net.yaml --quiet --out mpi --set "$two" --dump-step 7 --ledger mpi.csv
cmp threads/step-7.safetensors mpi/step-7.safetensors || fail "the dumps differ"
cmp threads.csv mpi.csv || fail "the ledgers differ"
for file in model optimizer; do
    cmp {threads,mpi}/checkpoint/step-18/$file.safetensors || fail "$file of step 18 differs"
done
grep -q '"pid": *4' mpi/trace.json || fail "no process for rank 3 in the trace"

# --- wrong from the start: one line, nothing written ---
ranks 2 2 net.yaml --out new2 --set "$(layout 'method: 1f1b, stages: 2, replicas: 2')"
says "4 workers (2 stages x 2 replicas), 2 processes" "mpirun -n 4, or parallel.workers_per_rank: 2"
ranks 2 2 net.yaml --out new2 --set train.bach=3
says "unknown key train.bach"
ranks 2 2 net.yaml --out single --set "$(layout 'method: dp, replicas: 2')"
says "single: already holds a run"
dp=$(layout 'method: dp, replicas: 2')
# pair FIRST SECOND: two ranks, each with its own arguments. (Not by mpirun's `:`, with which Open
# MPI 5.0.7 crashes occasionally.)
cat >rank.sh <<'SH'
own=$1
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || own=$2
shift 2
exec "$@" $own
SH
pair() {
    local code=0
    "${launcher[@]}" -n 2 bash rank.sh "$1" "$2" "$forerun" train --out new2 --set "$dp" >out 2>err || code=$?
    hush err
    same $code 2 "ranks with '$1' and '$2'"
}
pair net.yaml "net.yaml --set train.seed=4"
says "the config of rank 1" "rank 0"
pair net.yaml gone.yaml
says "forerun: rank 1: cannot open gone.yaml"
[ ! -e new2 ] || fail "a refused run has left a folder"

# --- ends in the middle ---
ranks 4 4 net.yaml --quiet --out nan --set "$(layout 'method: 1f1b, stages: 2, replicas: 2')" \
    --set "run.fault='nan:worker=3,step=10'"
grep -q "mini-batch 10.*not a number" err || fail "no word of the divergence"
[ -e nan/checkpoint/step-10/state.json ] || fail "the last good weights were not saved"
ranks 2 0 net.yaml --quiet --out nan --resume --set "$dp"
same "$(sha nan)" "$(sha single)" "resumed after a divergence"

ranks 4 3 net.yaml --quiet --out lost --set "$(layout 'method: 1f1b, stages: 2, replicas: 2')" \
    --set "run.fault='error:worker=3,step=10'"
grep -q "worker 3 (stage 1).*fault injected" err || fail "no word of who failed"
grep -q "lost/checkpoint/step-6 is whole, --resume" err || fail "no word how to go on"
ranks 2 0 net.yaml --quiet --out lost --resume --set "$dp"
same "$(sha lost)" "$(sha single)" "resumed after a failure"
echo "several processes: same numbers, one voice, one end"
