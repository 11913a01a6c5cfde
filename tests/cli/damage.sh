# forerun checkpoint: refusals. Then forty damaged checkpoints; tests/torture/damage.sh tries
# hundreds.
# shellcheck shell=bash disable=SC1091,SC2154
. "$(dirname "$0")/lib.bash"
for words in "" "verfiy run" verify "verify nowhere" "verify a b"; do
    # shellcheck disable=SC2086
    run 2 checkpoint $words
    says "forerun"
done
run 2 checkpoint verify nowhere
says nowhere "no checkpoint there"
run 0 train net.yaml --quiet
run 0 checkpoint verify run --quiet
[ ! -s out ] || fail "--quiet, and a checkpoint that is whole is listed"
run 0 checkpoint verify run/checkpoint/step-40/
same "$(cat out)" "whole    run/checkpoint/step-40/" "one checkpoint"
rm run/checkpoint/step-40/state.json
run 2 eval net.yaml
says step-40/state.json
run 1 checkpoint verify run --quiet
grep -q "^damaged .*step-40/state.json" out || fail "no word of a state.json that is missing"

bash "$source_dir/tests/torture/damage.sh" "$forerun" 5
