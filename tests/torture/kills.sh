#!/bin/bash
# kills.sh -- ranks of supervised runs killed at random moments, half of them while a checkpoint is
# being written.
#
#   tests/torture/kills.sh FORERUN [KILLS (100)] [SEED (1)]
#
# Runs of 2 to 4 processes, one after the other, under `forerun launch`; each is killed up to ten
# times and then left to end. After every kill: all its processes are gone, every checkpoint
# of the folder loads with the sha256 it was written with, the newest one is no older than before,
# and, if the ranks had met, somebody has said which one was lost. In the end: the weights and metrics of a run that was
# left alone, in one process. Prints a line for each run; about 5 s a kill. STEPS=1000 makes shorter
# runs, for a machine that is busy.
set -uo pipefail
forerun=$(realpath "$1")
n_kills=${2:-100}
RANDOM=${3:-1}
limit=900 # seconds for anything that is waited for: out of reach of a run that is well
. "$(dirname "$0")/../cli/launcher.bash" # the settings of runs on one machine, and `library`
work=$(mktemp -d)
trap 'end_all; rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_WAIT_POLICY=passive

cat >net.yaml <<YAML
model: {name: mlp, inputs: 64, depth: 6, width: 256, classes: 10}
data: {name: synthetic, n: 1000, n_eval: 32}
train: {batch: 16, micro: 4, steps: ${STEPS:-6000}, seed: 3, exact_sum: true, optimizer: {name: adam, lr: 0.001}}
parallel: {threads: 1, pin: false}
run: {checkpoint_every: 25, eval_every: -1, stall_timeout: 5, trace: 0}
YAML
# processes and layout; the weights of the flush ones are all the same
layouts=(
    "2 method=1f1b stages=2"
    "3 method=gpipe stages=3"
    "4 method=1f1b stages=2 replicas=2"
    "2 method=dp replicas=2"
    "3 method=spectrain stages=3"
    "4 method=zb-h1 stages=4"
    "3 method=1f1b stages=2 replicas=[2,1]"
)

launch=
end_all() { [ -z "$launch" ] || { kill -CONT "$launch" && kill -TERM "$launch" && sleep 3 && kill -KILL "$launch"; } 2>/dev/null; }

fail() {
    echo "FAILED: $*"
    sed 's/^/  /' log | tail -n 20
    kept=$(mktemp -d)
    cp -r "$work/." "$kept"
    echo "  what there was: $kept"
    exit 1
}

field() { sed -n "s/^ *\"$2\": \"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p" "$1"; }

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# Processes below $1, as "RANK PID", ranks only.
ranks_below() {
    local child rank
    for child in $(pgrep -P "$1"); do
        rank=$({ tr '\0' '\n' <"/proc/$child/environ"; } 2>/dev/null | sed -nE 's/^(OMPI_COMM_WORLD|PMI)_RANK=//p')
        if [ -n "$rank" ]; then echo "$rank $child"; else ranks_below "$child"; fi
    done
}

newest() { find "$1/checkpoint" -maxdepth 1 -name 'step-*' 2>/dev/null | sed 's/.*-//' | sort -n | tail -n 1; }

is_alive() { kill -0 "$launch" 2>/dev/null; }

# Until all n ranks are there; false: the run is over.
wait_for_ranks() {
    until [ "$(ranks_below "$launch" | wc -l)" = "$1" ]; do
        is_alive || return 1
        sleep 0.02
    done
}

# A random moment, or one in which a checkpoint is being written; false: the run is over.
wait_for_moment() {
    local end=$((SECONDS + limit))
    if [ "$1" = random ]; then
        sleep "$((RANDOM % 4)).$(printf '%03d' $((RANDOM % 1000)))"
    else
        until grep -q '^forerun: mlp' log; do # what the run before has left is gone
            is_alive || return 1
            sleep 0.02
        done
        until compgen -G "$out/checkpoint/.tmp-step-*" >/dev/null; do
            is_alive || return 1
            [ $SECONDS -lt $end ] || fail "no checkpoint was written for $limit s"
        done
        [ $((RANDOM % 2)) = 0 ] || sleep "0.00$((RANDOM % 10))"
    fi
    is_alive
}

# All that launch has started has ended; it has yet to hear of it.
has_ended() {
    local child
    for child in $(pgrep -P "$launch"); do
        grep -q '^State:.Z' "/proc/$child/status" 2>/dev/null || return 1
    done
}

# One kill of the run in $out; false: the run was over before.
kill_one() {
    local n=$1 aim=$2 rank=$((RANDOM % $1)) before begin victim
    wait_for_ranks "$n" || return 1
    victim=$(ranks_below "$launch" | sed -n "s/^$rank //p")
    before=$(newest "$out")
    wait_for_moment "$aim" && kill -9 "$victim" 2>/dev/null || return 1
    kill -STOP "$launch" # it goes on when all has been looked at
    begin=$(now_ms)
    until has_ended; do
        [ $(($(now_ms) - begin)) -lt $((limit * 1000)) ] ||
            fail "$out: ranks $(ranks_below "$launch" | tr '\n' ' ') live $limit s after rank $rank was killed"
        sleep 0.02
    done
    took=$(($(now_ms) - begin))
    [ $took -le $slowest ] || slowest=$took
    ! compgen -G "$out/checkpoint/.tmp-step-*" >/dev/null || torn=$((torn + 1))
    look_at_checkpoints "$before"
    # MPICH's mpirun kills all others at once: what is said is launch's.
    [[ $library = MPICH* ]] || ! grep -q '^forerun: mlp' log || grep -q "rank $rank (" log ||
        fail "$out: nobody says that rank $rank was lost"
    : >log
    kill -CONT "$launch"
}

look_at_checkpoints() {
    local before=$1 step
    [ "$(newest "$out")" -ge "${before:-0}" ] 2>/dev/null || [ -z "$before" ] ||
        fail "$out: checkpoint step-$before is lost"
    for step in "$out"/checkpoint/step-*; do
        [ -d "$step" ] || continue # there is none yet
        "$forerun" eval net.yaml --checkpoint "$step" >said 2>&1 ||
            { cp said log && fail "$step does not load"; }
        loaded=$((loaded + 1))
    done
}

# One run, up to ten kills.
torment() {
    local n=$1 kills=0 aimed=0 aim code=0 sets=()
    shift
    for set in "$@"; do sets+=(--set "parallel.$set"); done
    out=run$round torn=0 slowest=0
    "$forerun" train net.yaml --out "alone$round" "${sets[@]}" --quiet || fail "a run left alone"
    : >log
    "$forerun" launch net.yaml -n "$n" --out "$out" "${sets[@]}" --restarts 1000 >>log 2>&1 </dev/null &
    launch=$!
    while [ $kills -lt 10 ] && [ $done_kills -lt "$n_kills" ]; do
        aim=random
        [ $((done_kills % 2)) = 0 ] || aim=checkpoint
        kill_one "$n" $aim || break
        kills=$((kills + 1)) done_kills=$((done_kills + 1))
        [ $aim = random ] || aimed=$((aimed + 1))
    done
    timeout $limit tail --pid=$launch -f /dev/null || fail "$out: does not end"
    wait $launch || code=$?
    launch=
    [ $code = 0 ] || fail "$out: launch ended with exit code $code"
    [ "$(field "$out/summary.json" weights_sha256)" = "$(field "alone$round/summary.json" weights_sha256)" ] ||
        fail "$out: other weights than a run left alone"
    cmp <(cut -d, -f1-4 "$out/metrics.jsonl") <(cut -d, -f1-4 "alone$round/metrics.jsonl") ||
        fail "$out: other metrics than a run left alone"
    printf '%-4s %-9s %-40s %5s %6s %5s %10s  %s\n' "$round" "$n" "$*" $kills $aimed $torn \
        "$slowest ms" "$(field "$out/summary.json" weights_sha256 | cut -c1-12)"
    rm -rf "$out" "alone$round"
}

printf '%-4s %-9s %-40s %5s %6s %5s %10s  %s\n' run processes layout kills aimed torn slowest weights
done_kills=0 round=0 loaded=0
while [ $done_kills -lt "$n_kills" ]; do
    read -r -a layout <<<"${layouts[$((round % ${#layouts[@]}))]}"
    round=$((round + 1))
    before_round=$done_kills
    torment "${layout[@]}"
    [ $done_kills -gt $before_round ] || fail "a run ends before it can be killed; raise train.steps"
done
[ $loaded -gt 0 ] || fail "no checkpoint was whole at any of $done_kills kills: more kills are needed to judge"
echo "ok: $done_kills kills, $loaded checkpoints loaded, none torn or lost"
