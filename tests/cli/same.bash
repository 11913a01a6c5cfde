# same.bash -- the same numbers in processes as in threads: small networks, and how to compare them.
# Sources mpi.bash, or skips.
# shellcheck shell=bash disable=SC1091,SC2154
. "$(dirname "${BASH_SOURCE[0]}")/mpi.bash"

# net NAME "MODEL" "OPTIMIZER"
net() {
    cat >"$1.yaml" <<YAML
model: $2
data: {name: synthetic, n: 64, n_eval: 16}
train: {batch: 16, micro: 8, steps: 3, seed: 3, optimizer: $3}
parallel: {threads: 1, pin: false}
run: {trace: 0, prediction_samples: 0, eval_every: 2}
YAML
}
momentum='{name: sgd, lr: 0.05, momentum: 0.9}'
adam='{name: adam, lr: 0.01}'
net mlp '{name: mlp, inputs: 12, depth: 8, width: 16, classes: 4}' "$momentum"
net vgg '{name: vgg16, image: 32, channels: 3, classes: 4, width_factor: 0.06, batch_norm: true}' "$adam"
net gpt '{name: gpt, layers: 3, width: 16, heads: 2, context: 8, vocab: 11, dropout: 0.2}' "$adam"
net tied '{name: gpt, layers: 3, width: 16, heads: 2, context: 8, vocab: 11, dropout: 0.2, tied: true}' "$adam"
net reslstm '{name: reslstm, layers: 4, width: 16, context: 6, vocab: 11, classes: 3}' "$momentum"
# A projected and a plain block of residual learning.
net resnet '
  nodes:
    - {name: in, op: input, shape: [3, 8, 8]}
    - {name: c0, op: conv2d, inputs: [in], out: 6, kernel: 3, pad: 1}
    - {name: n0, op: batch_norm}
    - {name: r0, op: relu}
    - {name: c1, op: conv2d, inputs: [r0], out: 8, kernel: 3, pad: 1, stride: 2}
    - {name: n1, op: batch_norm}
    - {name: side, op: conv2d, inputs: [r0], out: 8, kernel: 1, stride: 2}
    - {name: s1, op: add, inputs: [n1, side]}
    - {name: r1, op: relu}
    - {name: c2, op: conv2d, inputs: [r1], out: 8, kernel: 3, pad: 1}
    - {name: n2, op: batch_norm}
    - {name: s2, op: add, inputs: [n2, r1]}
    - {name: r2, op: relu}
    - {name: pool, op: global_pool}
    - {name: head, op: linear, out: 4}' "$momentum"

# Schedules as files, as PyTorch writes them: computation only, so that they fit networks whose
# skips cross a stage, too. by_hand STAGES [REPLICAS]: the name of the file; with replicas it is the
# schedule of one pipeline, which has its share of the micro-batches.
by_hand() {
    local micro=$((8 / ${2:-1}))
    local file=by-hand-$1-$micro.csv
    [ -f "$file" ] || {
        "$forerun" schedule 1f1b --stages "$1" --micro $micro --format csv >by-hand.csv || fail "$file"
        sed -E 's/[0-9]+(SEND|RECV)_[FB][0-9]+//g; s/,+/,/g; s/^,|,$//g' by-hand.csv >"$file"
    }
    echo "$file"
}

# numbers RUN: what must be the same: weights, evaluation, and one line per mini-batch without times.
numbers() {
    field "$1/summary.json" weights_sha256
    field "$1/summary.json" eval_loss
    sed 's/ "samples_per_s": [^,]*, "elapsed_s": [^,}]*,\{0,1\}//' "$1/metrics.jsonl"
}

# threads_run NET KEY=VALUE...: the numbers of such a run in threads, in the file threads-numbers;
# made once.
declare -A known=()
n_known=0
threads_run() {
    local key="$*" net=$1 sets=() pair
    shift
    if [ -z "${known[$key]:-}" ]; then
        for pair in "$@"; do sets+=(--set "$pair"); done
        rm -rf threads
        run 0 train "$net.yaml" --out threads "${sets[@]}" --quiet
        n_known=$((n_known + 1))
        known[$key]=$n_known
        numbers threads >"numbers-$n_known"
        [ "$(wc -l <"numbers-$n_known")" -ge 5 ] || fail "$key: numbers are missing"
    fi
    cp "numbers-${known[$key]}" threads-numbers || fail "no numbers of $key"
}

# same_in RANKS NET KEY=VALUE...: RANKS processes give the numbers of threads.
n_same=0
last_sets=
same_in() {
    local n=$1 net=$2 sets=() pair
    shift 2
    for pair in "$@"; do sets+=(--set "$pair"); done
    last_sets="$net $*"
    threads_run "$net" "$@"
    rm -rf ranks
    mpi "$n" 0 train "$net.yaml" --out ranks "${sets[@]}" --quiet
    numbers ranks >ranks-numbers
    cmp -s threads-numbers ranks-numbers || {
        diff threads-numbers ranks-numbers
        fail "$net, $n ranks, $*: other numbers than threads"
    }
    n_same=$((n_same + 1))
}

# The running statistics of batch_norm are the mean over replicas, so that evaluations are close to
# those of one worker, but not equal.
comparable() { # NET
    case "$last_sets $1" in
    *replicas*vgg | *replicas*resnet) sed '2d; s/, "eval_.*//' ;;
    *) cat ;;
    esac
}

# as_single NET KEY=VALUE...: the last numbers are also those of one worker that has these settings.
as_single() {
    comparable "$1" <threads-numbers >last-numbers
    threads_run "$@"
    comparable "$1" <threads-numbers >single-numbers
    cmp -s single-numbers last-numbers || {
        diff single-numbers last-numbers
        fail "$last_sets: other numbers than single"
    }
}
