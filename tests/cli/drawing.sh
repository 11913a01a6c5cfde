# Drawings of schedules are well-formed, contain every pass once, and note the weights that the
# ledger of a run records.
. "$(dirname "$0")/lib.bash"

passes() { sed -n 's/.*<title>\(forward\|backward[a-z ]*\|gradients[a-z ]*\) of micro-batch.*/\1/p' "$1"; }
command -v xmllint >/dev/null || skipped "drawings read by another program" "no xmllint (package libxml2-utils)"
for method in $("$forerun" methods | sed -n '/^parallel.method/,/^parallel.weights/s/^  \([^ ]*\) .*/\1/p'); do
    "$forerun" schedule "$method" --micro 4 --format svg >one.svg || fail "$method cannot be drawn"
    if command -v xmllint >/dev/null; then xmllint --noout one.svg || fail "$method: no XML"; fi
    "$forerun" schedule "$method" --micro 4 --format json >one.json
    same "$(passes one.svg | grep -c '^forward$')" "$(grep -oE '"[0-9]+F[0-9]+"' one.json | wc -l)" \
        "$method: forwards drawn and in the lists"
    same "$(passes one.svg | grep -c '^backward')" "$(grep -oE '"[0-9]+[BI][0-9]+"' one.json | wc -l)" \
        "$method: backwards drawn and in the lists"
    grep -q 'class="u"' one.svg || fail "$method: no update is drawn"
done

# deep.yaml: enough nodes for four stages; one segment, as in the drawing.
sed 's/depth: 2/depth: 8/; s/batch: 8, micro: 2/batch: 8/' net.yaml >deep.yaml
n=0
for method in vanilla-async pipedream pipedream-2bw spectrain spectrain-v2 xpipe pipeoptim \
    decay-aware pipemare forerun paci timeprest; do
    for micro in 1 2 4; do
        [ $method != pipedream-2bw ] || [ $micro = 4 ] || continue
        "$forerun" schedule $method --micro $micro --batches 6 --format svg >one.svg
        sed -n 's/.*<title>\([fb]\)[a-z]* of micro-batch \([0-9]*\), stage \([0-9]*\),.*weights \([0-9]*\)\([+-]\([0-9]*\)\)\{0,1\}<.*/\3 \2 \1 \4 \6/p' \
            one.svg | awk '{ print $1, $2, toupper($3), $4, $5 + 0 }' | sort >drawn
        run 0 train deep.yaml --out "run-$method-$micro" --quiet --ledger ledger.csv --set train.steps=6 \
            --set train.micro=$micro --set parallel.method=$method --set parallel.stages=4 --set run.eval_every=-1 \
            --set run.predict=false
        tail -n +2 ledger.csv | awk -F, '{ print $1, $3, $4, $5, $6 < 0 ? -$6 : $6 + 0 }' | sort >ran
        same "$(wc -l <drawn)" $((4 * 6 * micro * 2)) "$method: passes with a note"
        diff drawn ran >differs || fail "$method, $micro micro-batches: drawn (<) and run (>): $(head -3 differs)"
        n=$((n + 1))
    done
done
same $n 34 "layouts compared"

# One method in numbers.
run 0 methods pipedream --micro 1
awk '/^[0-9] +[0-9]/ { print $3, $4 }' out | paste -sd, >got
same "$(cat got)" "4 4,3 3,2 2,1 1" "copies and activation sets of pipedream"
run 0 methods 1f1b
grep -q 'takes 33, workers are idle for 27.3 %' out || fail "1f1b by numbers"
run 2 methods nosuch
says "no method is called 'nosuch'"
run 2 methods pipedream-2bw --micro 2
says "raise train.micro"
run 2 schedule 1f1b --format png
grep -q 'svg' err || fail "formats"
echo ok
