# predict: outputs of a checkpoint, of any node, from the evaluation data or a file; the same bits
# through one stage and three; the numbers of a formula; refusals.
. "$(dirname "$0")/lib.bash"

# A linear network whose weights are known: y = 2 a - b + 0.5, as far as it has learnt.
awk 'BEGIN { print "a,b,y" > "train.csv"; print "a,b,y" > "test.csv"; print "b,extra,a" > "new.csv"
    for (i = 0; i < 64; i++) { a = i % 8 / 4 - 1; b = int(i / 8) / 4 - 1
        print a "," b "," 2 * a - b + 0.5 > "train.csv"
        if (i < 13) { print a "," b "," 0 > "test.csv"; print b ",7," a > "new.csv" } } }'
cat >line.yaml <<YAML
model:
  loss: mse
  nodes:
    - {name: x, op: input, shape: [2]}
    - {name: half, op: linear, out: 3}
    - {name: bend, op: tanh}
    - {name: wide, op: linear, inputs: [half], out: 4}
    - {name: both, op: concat, inputs: [bend, wide]}
    - {name: score, op: linear, out: 1}
data: {name: csv, path: train.csv, eval_path: test.csv}
train: {batch: 8, micro: 2, steps: 400, optimizer: {name: adam, lr: 0.05}, schedule: {name: cosine}}
parallel: {method: 1f1b, stages: 3, threads: 1}
run: {out: run, predict: false}
YAML
run 0 train line.yaml --quiet
run 0 predict line.yaml --out score.csv
grep -q '13 samples' err || fail "no line about the samples"
# In the order of the samples, with the padding of the last mini-batch left out.
paste -d, test.csv score.csv | awk -F, 'NR == 1 { if ($4 != "score") exit 1 }
    NR > 1 { e = $4 - (2 * $1 - $2 + 0.5); if (e * e > 0.05) exit 1; n++ } END { exit n != 13 }' ||
    fail "not the line that was learnt"

# One stage and three give the same bytes, for every node and kind of file.
one=(--set parallel.method=single --set parallel.stages=1)
for node in half bend wide both score loss; do
    for kind in npy csv jsonl; do
        run 0 predict line.yaml --quiet --checkpoint run --node $node --out three.$kind
        run 0 predict line.yaml --quiet --checkpoint run --node $node --out one.$kind "${one[@]}"
        cmp -s one.$kind three.$kind || fail "$node: $kind differs between one stage and three"
    done
    [ ! -s err ] || fail "--quiet is not quiet"
    same "$(wc -l <one.jsonl)" 13 "$node: lines"
done
cmp -s score.csv <(run 0 predict line.yaml --quiet --out again.csv && cat again.csv) || fail "another time"
# bend is tanh of half, by another implementation; jsonl and csv hold the same numbers.
run 0 predict line.yaml --quiet --node half --out half.csv
run 0 predict line.yaml --quiet --node bend --out bend.csv
run 0 predict line.yaml --quiet --node bend --out bend.jsonl
paste -d, half.csv bend.csv | awk -F, 'NR > 1 { for (i = 1; i <= 3; i++) {
    t = 1 - 2 / (exp(2 * $i) + 1) - $(i + 3); if (t * t > 1e-12) exit 1 } }' || fail "bend is not tanh of half"
same "$(sed 's/.*: \[//; s/\]}//; s/ //g' bend.jsonl)" "$(sed 1d bend.csv)" "jsonl and csv"
head -n 1 bend.csv | grep -qx 'bend_0,bend_1,bend_2' || fail "names of columns"

# The array: 13 x 1 floats behind a head of a multiple of 64 bytes; its values are those of the table.
run 0 predict line.yaml --quiet --out score.npy
size=$(stat -c %s score.npy)
same $(((size - 52) % 64)) 0 "head of the array"
head -c $((size - 52)) score.npy | grep -aq "'<f4', 'fortran_order': False, 'shape': (13, 1), }" || fail "shape"
same "$(tail -c 52 score.npy | od -An -v -w4 -f | awk '{ printf "%.5g\n", $1 }')" \
    "$(sed 1d score.csv | awk '{ printf "%.5g\n", $1 }')" "npy and csv"

# A table of other samples, by the names of its columns.
run 0 predict line.yaml --quiet --input new.csv --out new-score.csv
cmp -s score.csv new-score.csv || fail "a file with the same samples, other numbers"

# Metrics of eval are those of the predictions. number KEY: of the last eval --json
number() { sed "s/.*\"$1\": \([-0-9.e+nul]*\).*/\1/" out; }
close() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "null" && d * d < 1e-10) }' || fail "$3: $1 and $2"; }
run 0 predict line.yaml --quiet --set data.eval_path=train.csv --out fit.csv
run 0 eval line.yaml --json --set data.eval_path=train.csv
paste -d, train.csv fit.csv | awk -F, 'NR > 1 { e = $4 - $3; res += e * e; s += $3; q += $3 * $3; n++
    abs += e < 0 ? -e : e } END { printf "%.12g %.12g\n", 1 - res / (q - s * s / n), abs / n }' >wanted
read -r r2 mae <wanted
close "$(number eval_r2)" "$r2" "R squared"
close "$(number eval_mae)" "$mae" "mean absolute error"
same "$(number eval_accuracy),$(number eval_f1),$(number eval_top5)" null,null,null "a regression"

awk 'BEGIN { print "a,b,kind"; for (i = 0; i < 60; i++) print i % 7 / 7 "," i % 11 / 11 "," (i * i + i % 3) % 7 }' >kinds.csv
cat >kinds.yaml <<YAML
model: {name: mlp, depth: 1, width: 8}
data: {name: csv, path: kinds.csv, eval_path: kinds.csv}
train: {batch: 8, steps: 60, optimizer: {name: adam, lr: 0.02}}
parallel: {threads: 1}
run: {out: kinds, predict: false}
YAML
run 0 train kinds.yaml --quiet
run 0 predict kinds.yaml --quiet --out logits.csv
run 0 eval kinds.yaml --json
paste -d, kinds.csv logits.csv | awk -F, 'NR > 1 { best = 4; before = 0; t = $3 + 4
    for (i = 4; i <= NF; i++) { if ($i > $best) best = i; before += $i > $t }
    n++; acc += best == t; top += before < 5; hit[t] += best == t; real[t]++; said[best]++ }
    END { for (i = 4; i <= NF; i++) if (real[i] + said[i]) { f += 2 * hit[i] / (real[i] + said[i]); k++ }
    printf "%.12g %.12g %.12g\n", acc / n, top / n, f / k }' >wanted
read -r accuracy top5 f1 <wanted
close "$(number eval_accuracy)" "$accuracy" accuracy
close "$(number eval_top5)" "$top5" top5
close "$(number eval_f1)" "$f1" F1
same "$(number eval_mae),$(number eval_r2),$(number eval_perplexity)" null,null,null "a classifier"

# Refusals: one line, exit code 2, no file.
refused() { # TEXTS... -- ARGUMENTS...
    local texts=()
    while [ "$1" != -- ]; do texts+=("$1") && shift; done
    shift
    run 2 predict "$@"
    says "${texts[@]}"
    [ ! -e bad.csv ] || fail "a file was written"
}
refused "no config" -- --out bad.csv
refused "--out" -- line.yaml
refused "no node 'nowhere'" "score" -- line.yaml --node nowhere --out bad.csv
refused "'x' holds data" -- line.yaml --node x --out bad.csv
refused "no checkpoint" "empty" -- line.yaml --checkpoint empty --out bad.csv
refused ".npy, .csv or .jsonl" -- line.yaml --out bad.txt
refused "one.npy" "(2)" -- line.yaml --input one.npy --out bad.csv
refused "missing.npy" -- line.yaml --input missing.npy --out bad.csv
refused "no column a" -- line.yaml --input bend.csv --out bad.csv
refused "evaluation part" "--input" -- line.yaml --set 'data.eval_path=""' --out bad.csv
refused "cannot" "no/such" -- line.yaml --out no/such/file.csv
[ -z "$(find . -name '*.tmp')" ] || fail "a temporary file is left"
echo ok
