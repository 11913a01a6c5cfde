# TensorBoard's files and metrics.csv of a run that is stopped and resumed; protoc reads the events.
. "$(dirname "$0")/lib.bash"
command -v protoc >/dev/null || skip_all "no protoc (package protobuf-compiler)"

# Every event of a file as text, by its frames: length (8 bytes), CRC (4), event, CRC (4).
decode() {
    local at=0 length size
    size=$(stat -c %s "$1")
    while [ "$at" -lt "$size" ]; do
        length=$(od -An -t u8 -j "$at" -N 8 "$1")
        tail -c +$((at + 13)) "$1" | head -c $((length)) |
            protoc --decode=Event -I "$source_dir/tests/io" event.proto || return 1
        at=$((at + 16 + length))
    done
}

run 0 train net.yaml --set train.steps=6 --set run.checkpoint_every=4 --set run.eval_every=3 \
    --set run.grad_norm=true --quiet
rm -r run/checkpoint/step-6 # as after a kill
run 0 train net.yaml --set train.steps=7 --set run.eval_every=-1 --resume --quiet
files=(run/events.out.tfevents.*)
same "${#files[@]}" 2 "event files"
case ${files[*]} in *"$(hostname)"*) fail "the name of the machine is in ${files[*]}" ;; esac

for i in 0 1; do
    decode "${files[i]}" >"events-$i" || fail "protoc cannot read ${files[i]}"
    same "$(grep -c '^wall_time: 1[0-9]*\.[0-9]' "events-$i")" $((i == 0 ? 8 : 5)) "events"
    grep -qE '^[0-9]+:' "events-$i" && fail "fields that nobody knows"
    same "$(grep -c 'file_version: "brain.Event:2"' "events-$i")" 1 "first event"
done
[ "$(grep -m 2 -v wall_time events-0 | tail -1)" = "step: 1" ] || fail "where the run begins"
grep -A 3 '^step: 5$' events-1 | grep -q 'status: START' || fail "where the session begins"
for tag in loss/train lr throughput/samples_per_s grad_norm; do
    same "$(grep -c "tag: \"$tag\"" events-0)" 6 "$tag"
done
for tag in loss/eval accuracy/eval; do
    same "$(grep -c "tag: \"$tag\"" events-0)" 2 "$tag"
    grep -q "tag: \"$tag\"" events-1 && fail "$tag without an evaluation"
done

# metrics.csv: the numbers of metrics.jsonl, and nothing where there is none.
same "$(head -1 run/metrics.csv)" \
    step,samples,loss,lr,samples_per_s,elapsed_s,grad_norm,eval_loss,eval_accuracy,eval_mae,eval_perplexity "columns"
same "$(tail -n +2 run/metrics.csv | cut -d, -f1 | tr '\n' ' ')" "1 2 3 4 5 6 7 " "steps"
sed 's/"[a-z_]*": //g; s/[{} ]//g' run/metrics.jsonl >numbers
tail -n +2 run/metrics.csv | sed 's/,,*/,/g; s/,$//' >rows
cmp numbers rows || fail "metrics.csv and metrics.jsonl have other numbers"
same "$(tail -n +2 run/metrics.csv | tr -dc ',\n' | sort -u)" ",,,,,,,,,," "commas"

# Ctrl-C: all measurements are in all files, including those not yet flushed.
begin train net.yaml --out stopped "${endless[@]}" --quiet
lines() { [ -f stopped/metrics.jsonl ] && [ "$(wc -l <stopped/metrics.jsonl)" -ge 2 ]; }
wait_while $pid lines
kill -INT $pid
ends 130 "after Ctrl-C"
n=$(wc -l <stopped/metrics.jsonl)
same "$(($(wc -l <stopped/metrics.csv) - 1))" "$n" "rows of a stopped run"
decode stopped/events.out.tfevents.* >stopped-events || fail "protoc cannot read a stopped run"
same "$(grep '^step: ' stopped-events | tail -1)" "step: $n" "last event of a stopped run"

run 0 train net.yaml --out bare --set run.tensorboard=false --set run.csv=false --quiet
[ ! -e bare/metrics.csv ] || fail "metrics.csv though run.csv is false"
ls bare | grep -q tfevents && fail "events though run.tensorboard is false"
exit 0
