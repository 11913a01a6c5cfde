# folder.bash -- a run's folder moved, removed and replaced under it. Sourced after lib.bash or
# mpi.bash, with the array `command`, which starts a run of net.yaml or pipe.yaml.
# shellcheck shell=bash disable=SC2154
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$work"' EXIT # endless runs, or their launchers
has_lines() { [ "$(wc -l 2>/dev/null <"$1/metrics.jsonl")" -gt 0 ] 2>/dev/null; }
has_checkpoint() { compgen -G "$1/checkpoint/step-*" >/dev/null; }

# begin OUT ARGUMENT...: a run without end that is slow, so that it leaves the cores to others; at work.
begin() {
    local out=$1
    shift
    "${command[@]}" --out "$out" "${endless[@]}" --quiet "$@" >out 2>err </dev/null &
    pid=$! pids=($!)
    until has_lines "$out" && has_checkpoint "$out"; do
        kill -0 $pid 2>/dev/null || fail "the run ended before its first checkpoint"
        sleep 0.02
    done
}

# lost WHAT [TEXT]: it ends by itself, with exit code 1 and one line.
lost() {
    local code=0
    wait $pid || code=$?
    ! declare -F hush >/dev/null || hush err
    same $code 1 "exit code after: $1"
    says run
    grep -qE "${2:-moved, removed or replaced}" err || fail "$1: not a word about it"
}

tree() { (cd "$1" && find . -type f -exec sha256sum {} + | sort); }

# All of it, also for a run that is started with these arguments.
lose_folders() {
    begin run "$@"
    mv run moved
    lost mv
    [ ! -e run ] || fail "mv: the run has made its folder anew"
    run 0 checkpoint verify moved

    begin run "$@"
    until rm -rf run 2>/dev/null; do :; done # the run may add files while they go
    lost "rm -rf" "moved, removed or replaced|No such file" # if some of it was still there
    rm -rf run
    [ "$(echo ./*.tmp)" = './*.tmp' ] || fail "rm -rf: files beside the folder"

    begin run "$@"
    mv run gone && mkdir run && echo mine >run/note
    lost "replaced by a folder of somebody else"
    same "$(ls -A run)" note "what is in the new folder"
    rm -r run gone

    begin run "$@"
    cp -r finished other
    tree other >tree-before
    mv run gone && mv other run
    lost "replaced by another run"
    tree run >tree-after
    cmp tree-before tree-after || fail "files of two runs are mixed"
    rm -r run gone moved
}
