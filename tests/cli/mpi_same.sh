# Threads or processes: the same weights, evaluations and losses, bit for bit. A few of the
# combinations of tests/torture/same.sh.
# shellcheck shell=bash disable=SC1091,SC2154
. "$(dirname "$0")/same.bash"

clip=(train.clip_norm=0.1 run.grad_norm=true)
exact=train.exact_sum=true

# --- flush methods give the numbers of one worker ---
same_in 2 mlp parallel.method=1f1b parallel.stages=2 "${clip[@]}"
as_single mlp "${clip[@]}"
same_in 4 resnet parallel.method=zb-h1 parallel.stages=4 'parallel.recompute=[0, "n*", "s*"]'
as_single resnet
same_in 2 gpt parallel.method=zbv parallel.stages=4 'parallel.recompute=["h.*.mlp.*", "h.*.attn"]'
as_single gpt
same_in 3 mlp parallel.method=zb-h2 parallel.stages=3
as_single mlp
same_in 2 reslstm parallel.method=dualpipev parallel.stages=4
as_single reslstm
same_in 2 tied parallel.method=interleaved parallel.stages=4
as_single tied
same_in 2 reslstm parallel.schedule_file="$(by_hand 4)" parallel.workers_per_rank=2
as_single reslstm
same_in 8 mlp parallel.method=gpipe parallel.stages=8
as_single mlp

# --- also with replicas, if sums follow a tree ---
for n in 2 8; do
    same_in $n mlp parallel.method=dp parallel.replicas=$n $exact
    as_single mlp $exact
done
same_in 4 tied parallel.method=1f1b parallel.stages=2 parallel.replicas=2 $exact "${clip[@]}"
as_single tied $exact "${clip[@]}"
same_in 3 mlp parallel.method=1f1b 'parallel.replicas=[2,1]'

# --- messages of bf16, which differ from those of one worker ---
same_in 4 resnet parallel.method=1f1b parallel.stages=4 parallel.messages=bf16
same_in 2 tied parallel.method=zbv parallel.stages=4 parallel.messages=bf16
same_in 3 gpt parallel.method=spectrain 'parallel.replicas=[2,1]' parallel.messages=bf16

# --- the precision bf16: one worker's numbers again where the method is a flush ---
half=train.precision=bf16
same_in 2 mlp parallel.method=1f1b parallel.stages=2 "${clip[@]}" $half
as_single mlp "${clip[@]}" $half
same_in 4 resnet parallel.method=zb-h1 parallel.stages=4 $half
as_single resnet $half
same_in 2 tied parallel.method=zbv parallel.stages=4 $half
as_single tied $half
same_in 4 gpt parallel.method=1f1b parallel.stages=2 parallel.replicas=2 $exact $half
as_single gpt $exact $half
same_in 4 tied parallel.method=spectrain parallel.stages=2 parallel.replicas=2 $half
same_in 2 reslstm parallel.method=xpipe parallel.stages=2 $half
same_in 4 vgg parallel.method=forerun parallel.stages=4 $half

# --- asynchronous methods do not depend on timing ---
same_in 4 mlp parallel.method=spectrain parallel.stages=2 parallel.replicas=2 \
    train.clip_norm=0.1 train.clip=late
same_in 4 tied parallel.method=forerun parallel.stages=4 train.clip_norm=0.1 train.clip=late
same_in 4 tied parallel.method=spectrain parallel.stages=2 parallel.replicas=2
same_in 2 mlp parallel.method=xpipe parallel.replicas=2 'parallel.sync={name: wsp, distance: 1}'
echo "ok: $n_same runs in several processes"
