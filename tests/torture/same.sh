#!/bin/bash
# same.sh -- threads or processes, any layout: the same numbers, for every method.
#
#   tests/torture/same.sh FORERUN [PART...]
#
# Parts: flush, dp, asynchronous, alone (replicas that step alone). Hundreds of runs under mpirun
# with 2, 3, 4 and 8 ranks; each gives the weights, the evaluations and the losses of the same config
# in threads, bit for bit, and, where the method says so, those of one worker. Half an hour on two
# cores; NETS="mlp tied" limits the networks. Prints a line for each network and method.
# tests/cli/mpi_same.sh has a few of them.
# shellcheck disable=SC1091,SC2154
forerun=$(realpath "${1:?usage: same.sh FORERUN [PART...]}")
parts=("${@:2}")
[ ${#parts[@]} -gt 0 ] || parts=(flush dp asynchronous alone)
set -- "$forerun" "$(realpath "$(dirname "$0")/../..")"
. "$(dirname "${BASH_SOURCE[0]}")/../cli/same.bash"

exact=train.exact_sum=true
clip=(train.clip_norm=0.1 run.grad_norm=true)

tell() { printf '%-10s %-16s %3d runs, all the same (%d s)\n' "$1" "$2" $((n_same - before)) $SECONDS; }

# Pipelines with one worker a stage give the numbers of `single`, as they are.
pipelines() { # NET METHOD FIRST-KEY=VALUE
    local net=$1 chunks=1 stages ranks per_rank setting
    [ "$2" != interleaved ] || chunks=2
    for layout in "2 1" "4 1" "8 1" "4 2" "8 2" "8 4"; do
        read -r stages per_rank <<<"$layout"
        ranks=$((stages / chunks / per_rank))
        [ $ranks -gt 1 ] || continue
        case $2 in
        file) setting=parallel.schedule_file=$(by_hand "$stages") ;;
        *) setting=parallel.method=$2 ;;
        esac
        same_in $ranks "$net" "$setting" "parallel.stages=$stages" "parallel.workers_per_rank=$per_rank"
        as_single "$net"
    done
    same_in 2 "$net" "$setting" parallel.stages=8 "parallel.workers_per_rank=$((4 / chunks))" "${clip[@]}"
    as_single "$net" "${clip[@]}"
}

# Replicas: the numbers of threads as they are, those of `single` if sums go by the tree.
hybrids() { # NET METHOD
    local net=$1 chunks=1 stages replicas per_rank ranks setting
    [ "$2" != interleaved ] || chunks=2
    for layout in "2 2 1" "4 2 1" "2 4 1" "2 2 2" "4 2 2" "4 2 4"; do
        read -r stages replicas per_rank <<<"$layout"
        ranks=$((stages * replicas / chunks / per_rank))
        [ $ranks -gt 1 ] || continue
        case $2 in
        file) setting=parallel.schedule_file=$(by_hand "$stages" "$replicas") ;;
        *) setting=parallel.method=$2 ;;
        esac
        set -- "$net" "$2" "$setting" "parallel.stages=$stages" "parallel.replicas=$replicas" \
            "parallel.workers_per_rank=$per_rank"
        same_in $ranks "$net" "${@:3}" "$exact" "${clip[@]}"
        as_single "$net" "$exact" "${clip[@]}"
        [ "$layout" != "2 2 1" ] || same_in $ranks "$net" "${@:3}"
    done
}

uneven() { # NET METHOD
    local replicas ranks
    for layout in "3 [2,1]" "3 [1,2]" "4 [2,1,1]" "8 [4,2,1,1]" "4 [4,2,1,1] 2"; do
        read -r ranks replicas per_rank <<<"$layout"
        set -- "$1" "$2" "parallel.method=$2" "parallel.replicas=$replicas" \
            "parallel.workers_per_rank=${per_rank:-1}"
        same_in "$ranks" "$1" "${@:3}" "$exact"
        as_single "$1" "$exact"
    done
    same_in 3 "$1" "parallel.method=$2" 'parallel.replicas=[2,1]'
}

flush() {
    for net in ${NETS:-mlp resnet tied reslstm vgg gpt}; do
        for method in 1f1b zb-h1 interleaved gpipe naive-mp file; do
            case "$net $method" in vgg\ [gnf]* | gpt\ [gnf]*) continue ;; esac
            before=$n_same
            pipelines "$net" $method
            hybrids "$net" $method
            case $method in naive-mp | gpipe | 1f1b) uneven "$net" $method ;; esac
            tell "$net" $method
        done
    done
}

dp() {
    for net in ${NETS:-mlp resnet tied reslstm vgg gpt}; do
        before=$n_same
        for n in 2 4 8; do
            same_in $n "$net" parallel.method=dp parallel.replicas=$n
            same_in $n "$net" parallel.method=dp parallel.replicas=$n "$exact"
            as_single "$net" "$exact"
            same_in $n "$net" parallel.method=dp parallel.replicas=$n "$exact" "${clip[@]}"
            as_single "$net" "$exact" "${clip[@]}"
        done
        same_in 2 "$net" parallel.method=dp parallel.replicas=8 parallel.workers_per_rank=4 "$exact"
        as_single "$net" "$exact"
        tell "$net" dp
    done
}

async_methods=(vanilla-async pipedream pipedream-2bw spectrain spectrain-v2 xpipe pipeoptim decay-aware
    pipemare forerun paci nesterov-async timeprest)

# method_of NAME: its settings; nadam where the method asks for it
method_of() {
    echo "parallel.method=$1"
    [ "$1" != nesterov-async ] || echo 'train.optimizer={name: nadam, lr: 0.01, beta1: 0.99}'
}

asynchronous() {
    for net in ${NETS:-mlp resnet reslstm tied}; do
        for method in "${async_methods[@]}"; do
            before=$n_same
            mapfile -t set < <(method_of "$method")
            set+=(train.steps=6 run.eval_every=3)
            same_in 2 "$net" "${set[@]}" parallel.stages=2
            same_in 4 "$net" "${set[@]}" parallel.stages=4
            same_in 8 "$net" "${set[@]}" parallel.stages=8
            same_in 2 "$net" "${set[@]}" parallel.stages=4 parallel.workers_per_rank=2
            same_in 4 "$net" "${set[@]}" parallel.stages=2 parallel.replicas=2
            same_in 4 "$net" "${set[@]}" parallel.stages=2 parallel.replicas=2 "$exact"
            same_in 8 "$net" "${set[@]}" parallel.stages=4 parallel.replicas=2
            same_in 2 "$net" "${set[@]}" parallel.stages=2 parallel.replicas=2 parallel.workers_per_rank=2
            if [ "$method" != timeprest ]; then
                same_in 3 "$net" "${set[@]}" 'parallel.replicas=[2,1]'
                same_in 4 "$net" "${set[@]}" 'parallel.replicas=[2,1,1]'
            fi
            tell "$net" "$method"
        done
    done
}

# Each replica steps for itself; they agree by means or in waves.
alone() {
    local rules=('average' '{name: average, every: 2}' '{name: wsp}' '{name: wsp, distance: 1}'
        '{name: wsp, distance: 2, every: 2}')
    for net in ${NETS:-mlp resnet}; do
        for rule in "${rules[@]}"; do
            before=$n_same
            [ "$rule" != average ] || rule='{name: average}'
            set=(train.steps=6 run.eval_every=3 "parallel.sync=$rule")
            same_in 2 "$net" "${set[@]}" parallel.method=dp parallel.replicas=2
            same_in 4 "$net" "${set[@]}" parallel.method=model-averaging parallel.replicas=4
            same_in 8 "$net" "${set[@]}" parallel.method=1f1b parallel.stages=2 parallel.replicas=4
            for method in 1f1b zb-h1 "${async_methods[@]}"; do
                mapfile -t own < <(method_of "$method")
                same_in 4 "$net" "${set[@]}" "${own[@]}" parallel.stages=2 parallel.replicas=2
                same_in 2 "$net" "${set[@]}" "${own[@]}" parallel.stages=2 parallel.replicas=2 \
                    parallel.workers_per_rank=2
            done
            tell "$net" "$rule"
        done
    done
}

for part in "${parts[@]}"; do "$part"; done
echo "ok: $n_same runs in several processes gave the numbers of $n_known in one"
