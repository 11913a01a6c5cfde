# Every example config trains: always on small or synthetic data, and for a few steps on the real
# data if FR_DATA_DIR has it.
. "$(dirname "$0")/lib.bash"

# The whole of each config is read; only the data, the number of steps and the threads change.
try() {
    local name=$1
    shift
    run 0 train "$source_dir/examples/$name.yaml" --out "$name" --set train.steps=2 \
        --set train.batch=4 --set run.eval_every=0 --set parallel.threads=1 "$@"
    [ "$(wc -l <"$name/metrics.jsonl")" = 2 ] || fail "$name: metrics"
    rm -rf "$name"
    tried="$tried $name"
}
tried=""
made_up=(--set 'data={name: synthetic, n: 16, n_eval: 8}')
for i in $(seq 8); do printf '%d\tthis is text number %d of them\n' $((i % 2)) "$i"; done >train.tsv
cp train.tsv test.tsv
for i in $(seq 8); do echo "ein text mit der nummer $i"; done >train.de
for i in $(seq 8); do echo "a text with the number $i"; done >train.en
mkdir parallel && cp train.de parallel/val.de && cp train.en parallel/val.en && mv train.de train.en parallel
mkdir texts && mv train.tsv test.tsv texts

try fashion-cnn "${made_up[@]}"
try mlp "${made_up[@]}" --set model.inputs=784 --set model.classes=10
try vgg16-cifar "${made_up[@]}" --set model.image=32 --set model.classes=10
try your-own-model "${made_up[@]}"
try demo "${made_up[@]}"
try spectrain-paper --set model.width=32
try pipedream-paper --set model.width_factor=0.1
try xpipe-paper "${made_up[@]}"
try pipeoptim-paper "${made_up[@]}"
try gpt-text --set data.path="$source_dir/LICENSE"
weights=$source_dir/tests/fixtures/gpt2 # a small network of this kind
try finetune-gpt2 --set model.layers=2 --set model.width=8 --set model.heads=2 --set model.context=12 \
    --set model.positions=12 --set model.vocab=256 --set model.weights="$weights" \
    --set data.input="$weights/x.npy" --set data.target="$weights/y.npy"
try tsv-transformer --set data.path=texts
try reslstm --set data.path=texts
try gnmt --set data.path=parallel
try regression "${made_up[@]}" --set model.inputs=4 --set model.classes=2
try biglstm --set data.path="$source_dir/LICENSE" --set data.eval_path="$source_dir/LICENSE"
for file in "$source_dir"/examples/*.yaml; do
    case "$tried " in
    *" $(basename "$file" .yaml) "*) ;;
    *) fail "$(basename "$file") is not tried here" ;;
    esac
done

if [ -d "${FR_DATA_DIR:-}" ]; then
    for pair in fashion-cnn:fashion-mnist mlp:fashion-mnist your-own-model:fashion-mnist \
        vgg16-cifar:cifar-10 tsv-transformer:imdb-10k reslstm:imdb-10k \
        gpt-text:tinyshakespeare/input.txt gnmt:multi30k; do
        path=$FR_DATA_DIR/${pair#*:}
        if [ -e "$path" ]; then
            try "${pair%%:*}" --set data.path="$path" --set run.eval_every=-1
        else
            skipped "${pair%%:*} on real data" "FR_DATA_DIR does not name a folder that has it"
        fi
    done
else
    skipped "examples on real data" "FR_DATA_DIR does not name a folder that has it"
fi
echo ok
