# forerun schedule: the oracle tables through the command, all formats, valid and invalid files.
. "$(dirname "$0")/lib.bash"

# number KEY, list KEY: from the JSON of the last run
number() { sed -n "s/.*\"$1\": \([0-9.]*\)[,}].*/\1/p" out; }
list() { sed -n "s/.*\"$1\": \[\([0-9, ]*\)\].*/\1/p" out | tr -d ,; }

# --- tables: F = I = W = 1, B = 2, free transfers ---
table() { # METHOD STAGES MICRO MAKESPAN [ARGUMENT...]
    run 0 schedule "$1" --stages "$2" --micro "$3" --format json "${@:5}"
    same "$(number makespan)" "$4" "$1, $2 stages, $3 micro-batches: makespan"
    same "$(number stages)" "$2" "stages"
    same "$(number micro)" "$3" "micro"
}
for p in 1 2 3 4 8 16 64; do
    for m in 1 2 5 8 32; do
        table gpipe $p $m $((3 * (m + p - 1)))
        table 1f1b $p $m $((3 * (m + p - 1)))
        live=
        for ((r = 0; r < p; r++)); do live+=" $((m < p - r ? m : p - r))"; done
        same " $(list peak_live)" "$live" "1f1b, $p stages, $m micro-batches: live sets"
        [ $m -lt $p ] || table zb-h1 $p $m $((3 * m + p - 1))
    done
done
for p in 2 4 8; do
    for v in 1 2 4; do
        table interleaved $((p * v)) $((2 * p)) $((3 * (2 * p * v + p - 1))) --chunks $v
        [ "$(list peak_live | cut -d' ' -f1)" = $((2 * (p - 1) + (v - 1) * p + 1)) ] || [ $v = 1 ] ||
            fail "interleaved, $p workers, $v chunks: live sets of worker 0"
    done
done
# --- without a bubble, and in a V: the period is that of a run ---
period() { # METHOD WORKERS MICRO MAKESPAN PERIOD LIVE [ARGUMENT...]
    local stages=$2
    [ "$1" = zb-h1 ] || [ "$1" = zb-h2 ] || stages=$((2 * $2))
    table "$1" $stages "$3" "$4" "${@:7}"
    same "$(number period)" "$5" "$1, $2 workers, $3 micro-batches: period"
    same "$(list peak_live | cut -d' ' -f1)" "$6" "$1, $2 workers, $3 micro-batches: live sets"
}
for p in 2 4 8; do
    m=$((2 * p))
    period zb-h1 $p $m $((3 * m + p - 1)) $((3 * m + p - 1)) $p
    period zb-h2 $p $m $((3 * m + p - 1)) $((3 * m)) $((2 * p - 1))
    period zbv $p $m $((6 * m + p - 1)) $((6 * m)) $((2 * p))
    period dualpipev $p $m $((6 * m + p - 1)) $((6 * m + p - 1)) $((2 * p + 1))
done
period v-half 4 8 60 60 6
period v-min 4 8 59 59 4
period v-half 4 8 53 53 6 --reorder
period v-half 8 16 113 113 10 --reorder
period v-min 4 8 59 59 4 --reorder
run 2 schedule 1f1b --reorder
says "reorder is for v-half and v-min"
period zbv 4 8 102 96 8 --costs F=2,I=2,W=2
period dualpipev 2 8 42 42 5 --costs B=1.5
run 0 schedule 1f1b --stages 3 --micro 8 --costs F=2,1,2,B=3,2,4 --link 1 --format json
same "$(number makespan)" 64 "costs for each stage, and links"
run 0 schedule 1f1b --stages 4 --micro 8 --link 1.5 --format json
same "$(number makespan)" 57 "half-duplex links"
makespans() { # EXPECTED OPTION...: of leads 1 to 4
    local all="" c expected=$1
    shift
    for c in 1 2 3 4; do
        run 0 schedule 1f1b --micro 8 --lead $c "$@" --format json
        all="$all $(number makespan)"
    done
    same "$all" "$expected" "leads of 1 to 4: $*"
}
makespans " 33 33 33 33" --stages 4
makespans " 57 51 42 42" --stages 4 --link 1.5
uneven=(--stages 3 --costs F=2,1,2,B=3,2,4 --link 4,1)
makespans " 87 74 70 69" "${uneven[@]}"
makespans " 80 66 66 66" "${uneven[@]}" --full-duplex
run 2 schedule 1f1b --stages 3 --link 4,1,1
says "--link 4,1,1 has 3 numbers" "2 links"
run 2 schedule 1f1b --full-duplex
says "--full-duplex: only with --link"
for wrong in F F= F=x F=1,2 =1 X=1 F=1,F=2 F=-1 F=1, F=nan F=inf f=1 F=1e; do
    run 2 schedule 1f1b --stages 4 --costs "$wrong"
    says "--costs $wrong"
done
run 2 schedule 1f1b --costs ""
says "--costs"
for wrong in -1 nan x 1,, 1,x , 1e; do
    run 2 schedule 1f1b --link $wrong
    says "--link $wrong"
done
run 2 schedule zbv --stages 7
says "zbv" "even, not 7" "6 or 8"
run 2 schedule zbv --stages 8 --chunks 4
says "zbv" "two stages"
run 2 schedule dualpipev --stages 8 --micro 7
says "dualpipev" "7 micro-batches on 4 workers" "at least 8"
run 2 schedule interleaved --stages 8 --chunks 2 --micro 6
says "multiple"
run 2 schedule interleaved --stages 8 --chunks 3 --micro 6
says "8 stages" "3"

# --- the four formats; text and csv can be read back ---
run 0 schedule 1f1b --stages 2 --micro 2
grep -q '^w0  F0 F1 \.  \.  B0--- \.  B1---|$' out || fail "grid"
! grep -q "$(printf '\033')" out || fail "colour without a terminal"
run 0 schedule 1f1b --stages 2 --micro 2 --color always
grep -q "$(printf '\033')" out || fail "--color always"
run 0 schedule gpipe --stages 8 --micro 32 --columns 80
[ "$(grep '^w' out | awk '{ if (length > n) n = length } END { print n }')" -le 80 ] || fail "--columns"
grep -q 'B31----|$' out || fail "the end of a long grid is not there"
run 0 schedule gpipe --stages 60 --micro 32 --columns 80
grep -q 'of 273 columns' out || fail "no note on what was cut"
for method in sequential gpipe 1f1b zb-h1 zb-h2 1f1b-async nf1b forward; do
    for form in text csv; do
        run 0 schedule $method --stages 3 --micro 4 --batches "$(case $method in 1f1b-async | nf1b) echo 3 ;; *) echo 1 ;; esac)" --format $form
        cp out file
        run 0 schedule --check file --micro 4
        grep -q '^file: valid: 3 workers, 3 stages, 4 micro-batches' out || fail "verdict on $method"
        run 0 schedule --check file --micro 4 --format $form
        sed -i 's/^name .*/name file/' file out
        cmp -s file out || fail "$method: $form is not what was read"
    done
done
run 0 schedule 1f1b --stages 2 --micro 1 --format csv
same "$(cat out)" "$(printf '0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0')" "csv"

# --- replicas: pipelines side by side, or more workers for some stages ---
for p in 1 2 4; do
    for r in 1 2 3; do
        table 1f1b $p $((4 * r)) $((3 * (4 + p - 1))) --replicas $r
        table gpipe $p $((4 * r)) $((3 * (4 + p - 1))) --replicas $r
        table zb-h1 $p $((4 * r)) $((3 * 4 + p - 1)) --replicas $r
        table interleaved $((2 * p)) $((4 * r)) $((3 * (2 * 4 + p - 1))) --chunks 2 --replicas $r
    done
done
run 0 schedule 1f1b --replicas 3,1 --micro 6 --format json
same "$(list replicas)" "3 1" "replicas in JSON"
same "$(number stages)" 2 "stages of a list of replicas"
same "$(list peak_live)" "2 2 2 1" "1F1B-RR: ceil(4 / 3) in flight on each of three, 1 on the last"
for method in sequential gpipe 1f1b 1f1b-async forward; do
    for form in text csv; do
        run 0 schedule $method --replicas 3,1,2 --micro 6 --format $form
        cp out file
        run 0 schedule --check file --micro 6 --replicas 3,1,2
        grep -q '^file: valid: 6 workers, 3 stages, 6 micro-batches' out || fail "verdict on $method"
        run 0 schedule --check file --micro 6 --replicas 3,1,2 --format $form
        sed -i 's/^name .*/name file/' file out
        cmp -s file out || fail "$method with replicas: $form is not what was read"
    done
done
run 0 schedule 1f1b --stages 2 --micro 2 --format csv
cp out one.csv
run 0 schedule --check one.csv --replicas 3
same "$(cat out)" "one.csv: valid: 6 workers, 2 stages, 6 micro-batches, makespan 9, period 9, peak live 2 2 2 1 1 1" "three of one"
run 2 schedule --check one.csv --replicas 3,1
says one.csv "one pipeline"
run 2 schedule --check one.csv --replicas 3 --micro 5
says one.csv "do not divide among 3 replicas"
run 2 schedule 1f1b --micro 8 --replicas 3
says "stage 0 has 3 replicas for 8 micro-batches" "must be a multiple"
run 2 schedule zb-h1 --replicas 2,1
says "same number of replicas"
run 2 schedule 1f1b --stages 3 --replicas 2,1
says "2 numbers for 3 stages"
for wrong in 0 -1 2, ,2 2,,1 x 2x 1000001 99999999999999999999; do
    run 2 schedule 1f1b --replicas $wrong
    says "--replicas"
done

# --- methods are generators with another name; "method" is the name as given ---
run 0 schedule single --format json
grep -q '"method": "single", "stages": 1, ' out || fail "single"

# --- written by hand ---
printf '# idle slots are empty\r\n0F0,0F1,,0B0,0B1\r\n,1F0,1B0,1F1,1B1\r\n' >hand.csv
run 0 schedule --check hand.csv
same "$(cat out)" "hand.csv: valid: 2 workers, 2 stages, 2 micro-batches, makespan 9, period 9, peak live 2 1" "verdict"
wrong() { # FILE TEXT...
    printf "$1" >wrong.csv
    shift
    run 2 schedule --check wrong.csv
    says wrong.csv "$@"
    [ ! -s out ] || fail "printed a schedule that is wrong"
}
wrong '0F0,0F1,0B1,0B0\n' "worker 0, step 3 (0B0)" "micro-batch order"
wrong '0F0,0B0\n1B0,1F0\n' "worker" "step" "1F0"
wrong '0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0\n' "worker 0, step 2 (0B0)" "never sent"
wrong '0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n' \
    "deadlock: worker" "waits at step" "0SEND_F1"
wrong '0F0,0B0\n1F0,zwei\n' "wrong.csv:2: entry 2" "zwei"
wrong '' "no instructions"
run 2 schedule --check hand.csv --micro 3
says hand.csv "2 in all"
run 2 schedule --check nosuch.csv
says nosuch.csv
run 2 schedule --check .
head -c 100000 /dev/urandom >noise.csv
run 2 schedule --check noise.csv
says noise.csv

# --- output shown in the documentation ---
documented() { # TEXT: a line of docs/schedules.md
    grep -qxF -- "    $1" "$source_dir/docs/schedules.md" || fail "docs/schedules.md does not show '$1'"
}
while read -r arguments; do
    # shellcheck disable=SC2086
    run 0 schedule $arguments --columns 110
    while IFS= read -r row; do documented "$row"; done < <(grep '^w' out)
done <<LIST
sequential --stages 3 --micro 2
gpipe --stages 4 --micro 4
1f1b --stages 4 --micro 4
interleaved --stages 4 --chunks 2 --micro 4
zb-h1 --stages 4 --micro 4
zb-h2 --stages 2 --micro 3
zbv --stages 4 --micro 4
v-min --stages 4 --micro 3
dualpipev --stages 4 --micro 4
1f1b-async --stages 3 --micro 1 --batches 6
nf1b --stages 3 --micro 2 --batches 3
1f1b --replicas 3,1 --micro 6
LIST
run 0 schedule 1f1b --stages 2 --micro 2 --format text
while IFS= read -r row; do documented "$row"; done <out
sed -n '/^    # v.csv/,/^$/s/^    //p' "$source_dir/docs/schedules.md" >v.csv
run 0 schedule --check v.csv
documented "$(cat out)"
sed -i 's/^0F0,/0B0,/; s/,0B0,0B1$/,0F0,0B1/' v.csv
run 2 schedule --check v.csv
documented "$(cat err)"

# --- usage ---
run 2 schedule
says "no method given"
run 2 schedule 1f2b
says "no method is called '1f2b'" "1f1b" "gpipe" "single"
run 2 schedule 1f1b --check hand.csv
says "not both"
run 2 schedule 1f1b --stages 0
says "expected 1 to 1000000"
run 2 schedule 1f1b --format xml
says "grid, text, csv, json or svg"
run 2 schedule 1f1b --stages -3
says "--stages"
run 2 schedule 1f1b --stages 1000000 --micro 1000000
says "1000000"
run 2 schedule 1f1b --batches 4
says "1"
run 2 schedule single --stages 2
says "single" "at most 1 stage"
echo ok
