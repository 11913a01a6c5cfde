# Runs in several processes have the weights of threads, and print every message once. mpi_same.sh
# has more layouts, ranks.sh checkpoints and ranks with different configs.
# shellcheck shell=bash disable=SC1091,SC2046,SC2086,SC2154
. "$(dirname "$0")/mpi.bash"

stages() { echo --set parallel.stages="$1" --set parallel.method="$2"; }

# --- the same weights, and every message once ---
run 0 train pipe.yaml --out single --quiet
sha=$(field single/summary.json weights_sha256)
for layout in "2 1f1b" "4 gpipe"; do
    read -r n method <<<"$layout"
    mpi $n 0 train pipe.yaml --out "$method-$n" $(stages $n $method)
    same "$(field "$method-$n/summary.json" weights_sha256)" "$sha" "$layout"
    same "$(field "$method-$n/summary.json" eval_accuracy)" \
        "$(field single/summary.json eval_accuracy)" "accuracy of $layout"
    same "$(wc -l <out)" 3 "lines of the result"
    same "$(sort err | uniq -d | wc -l)" 0 "lines that are said twice"
    grep -q 'rank' out && fail "a rank speaks"
done
same "$(field gpipe-4/summary.json n_workers)" 4 "workers"
mpi 2 0 train pipe.yaml --out two-each $(stages 4 1f1b) --set parallel.workers_per_rank=2 --quiet
same "$(field two-each/summary.json weights_sha256)" "$sha" "two workers a rank"
[ ! -s err ] && [ ! -s out ] || fail "--quiet speaks"
mpi 2 0 train pipe.yaml --out json $(stages 2 1f1b) --quiet --json
same "$(grep -c weights_sha256 out)" 1 "summaries on stdout"
# A limit of memory: processes count buffers for messages, and all end if one of them is too large.
cat >fits.yaml <<YAML
model: {name: gpt, layers: 4, width: 32, heads: 2, context: 32, vocab: 50}
data: {name: synthetic, n: 64, n_eval: 8}
train: {batch: 16, micro: 8, steps: 2}
parallel: {threads: 1, method: 1f1b, stages: 3}
run: {eval_every: -1}
YAML
peaks() { sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$1/summary.json"; }
mpi 3 0 train fits.yaml --out roomy --quiet
most=$(peaks roomy | sort -n | tail -n 1)
mpi 3 2 train fits.yaml --out x --set parallel.memory=$((most - 1)) --quiet
grep -q "needs .*, parallel.memory allows" err || fail "a limit of memory: $(cat err)"
[ ! -e x ] || fail "a refused run left a folder"
mpi 3 0 train fits.yaml --out auto --set parallel.memory=$((most - 1)) --set parallel.recompute=auto
grep -q 'recompute: auto: [0-9]* of [0-9]* nodes' err || fail "recompute: auto: $(cat err)"
[ "$(peaks auto | sort -n | tail -n 1)" -lt "$most" ] || fail "auto takes $(peaks auto), at most $most - 1"
same "$(field auto/summary.json weights_sha256)" "$(field roomy/summary.json weights_sha256)" "auto in processes"
# By launch: one process per worker.
run 0 launch pipe.yaml --out launched $(stages 3 1f1b) --json
same "$(field out weights_sha256)" "$sha" "launched"
# Asynchronous methods also give the weights of threads.
run 0 train pipe.yaml --out threads $(stages 3 pipedream) --ledger threads.csv --quiet
mpi 3 0 train pipe.yaml --out ranks $(stages 3 pipedream) --ledger ranks.csv --quiet
same "$(field ranks/summary.json weights_sha256)" "$(field threads/summary.json weights_sha256)" pipedream
cmp <(sort threads.csv) <(sort ranks.csv) || fail "ledger of pipedream"

# Gradients of a parameter that two stages share are exchanged in pieces: no process holds all of
# them for both. Bytes of one: 30000 x 128 numbers, four pieces.
cat >tied.yaml <<YAML
model: {name: gpt, layers: 2, width: 128, heads: 4, context: 8, vocab: 30000, dropout: 0, tied: true}
data: {name: synthetic, n: 16, n_eval: 4}
train: {batch: 4, micro: 2, steps: 2, clip_norm: 1, optimizer: {name: adamw, lr: 0.001}}
parallel: {threads: 1}
run: {predict: false, report: false, checkpoint_every: 1}
YAML
tied=$((30000 * 128 * 4))
run 0 train tied.yaml --out tied-single --quiet
run 0 train tied.yaml --out tied-threads $(stages 2 1f1b) --quiet
mpi 2 0 train tied.yaml --out tied-ranks $(stages 2 1f1b) --quiet
for way in threads ranks; do
    same "$(field tied-$way/summary.json weights_sha256)" \
        "$(field tied-single/summary.json weights_sha256)" "tied weights over $way"
done
for what in engine_bytes host_bytes; do # weights, gradients, two states; or three of them copied
    bytes=$(field tied-ranks/summary.json $what)
    [ "$bytes" -gt $((4 * tied)) ] && [ "$bytes" -lt $((6 * tied)) ] ||
        fail "$what of a process with a tied parameter of $tied bytes: $bytes"
done

# --- errors: one line, the exit code of one process ---
mpi 2 2 train
says "no config given"
mpi 2 2 train pipe.yaml --resmue
says "no option --resmue"
mpi 2 2 trian
says "did you mean train?"
mpi 2 2 train nosuch.yaml
says "forerun: cannot open nosuch.yaml"
mpi 2 2 train pipe.yaml --out bad
says "1 worker" "2 processes"
mpi 3 2 train pipe.yaml --out bad $(stages 2 1f1b)
says "2 workers" "3 processes" "mpirun -n 2"
[ -e bad ] && fail "a refused run left a folder"
for verb in "eval pipe.yaml" "launch pipe.yaml" info; do
    mpi 2 2 $verb
    says "forerun ${verb%% *}: runs in one process"
done
mpi 2 0 --version
same "$(wc -l <out)" 1 "versions"
echo ok
