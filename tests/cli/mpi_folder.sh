# The folder of a run in several processes moved, removed and replaced under it: all ranks end with
# exit code 1 and one line. Damaged checkpoints; a run that diverges with weights already infinite.
# shellcheck shell=bash disable=SC1091,SC2154
. "$(dirname "$0")/mpi.bash"
. "$source_dir/tests/cli/folder.bash"
command=("${launcher[@]}" -n 3 "$forerun" train pipe.yaml --set parallel.stages=3)
run 0 train pipe.yaml --out finished --set run.checkpoint_every=10 --quiet
lose_folders --set parallel.method=1f1b --set run.checkpoint_every=1

mpi 3 0 train pipe.yaml --out damaged --set parallel.stages=3 --set parallel.method=pipedream-2bw \
    --set run.checkpoint_every=10 --quiet
weights=$(field damaged/summary.json weights_sha256)
rm -r damaged/checkpoint/step-30
printf 'x' | dd of=damaged/checkpoint/step-20/optimizer.safetensors bs=1 seek=2000 conv=notrunc status=none
mpi 3 0 train pipe.yaml --out damaged --set parallel.stages=3 --set parallel.method=pipedream-2bw \
    --set run.checkpoint_every=10 --resume --quiet
sed -i '/methods --stability/d' err # its warning is another one
says step-20/optimizer.safetensors "using the checkpoint before it"
same "$(field damaged/summary.json weights_sha256)" "$weights" "weights after damage"

mpi 4 4 train pipe.yaml --out wild --set parallel.stages=4 --set parallel.method=vanilla-async \
    --set train.micro=1 --set train.optimizer='{name: sgd, lr: 1e20}' --quiet
grep -q 'wild/checkpoint/step-0; --resume continues' err || fail "no word of the last finite state"
same "$(field wild/summary.json status)" diverged "status"
run 0 checkpoint verify wild
echo ok
