# The reference matches the code, and is complete.
. "$(dirname "$0")/lib.bash"

"$forerun" info >info || fail "info"
if ! grep -q '^  mpi ' info; then
    skip_all "built without MPI: the reference lists more than this build has"
fi
"$source_dir/scripts/make-reference.sh" --check "$forerun" || fail "documentation is old"

# Every verb has its section, every option its row.
reference=$source_dir/docs/reference.md
"$forerun" help | sed -n '/^  [a-z]/s/^  \([a-z]*\) .*/\1/p' | grep -v '^help$' >verbs
while read -r verb; do
    sed -n "/^### forerun $verb\$/,/^##/p" "$reference" >section
    [ -s section ] || fail "no section on $verb"
    for word in $("$forerun" help "$verb" | sed -n 's/^  \(--*[a-z][a-z-]*\)\( .*\)*$/\1/p'); do
        grep -qE "^\| \`$word[ \`]" section || fail "$verb $word is not in the reference"
    done
done <verbs

# The table of files lists exactly the files of a run with all options.
run 0 train net.yaml --out files --quiet --dump-step 2
(cd files && find . -type f -printf '%P\n') |
    sed -E 's/step-[0-9]+\.safetensors/step-K.safetensors/; s/step-[0-9]+/step-N/
            s/events\.out\.tfevents\..*/events.out.tfevents.*/' | sort -u >found
sed -n '/^## Files of a run/,/^## Exit/s/^| `\([^`]*\)` |.*| train |.*/\1/p' "$reference" | sort -u >listed
diff found listed || fail "files of a run (<) and of the reference (>) differ"

# Environment variables that the code reads.
grep -rhoE 'getenv\("[A-Z_]+"\)' "$source_dir/cli" | sed 's/.*"\(.*\)".*/\1/' | sort -u >asked
sed -n '/^## Environment/,$s/^| `\([^`]*\)` |.*/\1/p' "$reference" | sort -u >told
diff asked told || fail "variables that are asked for (<) and told of (>) differ"

# The man page, as man renders it.
if command -v man >/dev/null; then
    MANWIDTH=80 man --warnings -l "$source_dir/docs/forerun.1" >page 2>warned || fail "man"
    [ ! -s warned ] || fail "man has warnings: $(head -3 warned)"
    grep -q 'parallel.method' page || fail "the man page lacks keys"
else
    skipped "the man page read by man" "no man (package man-db)"
fi
if command -v mandoc >/dev/null; then
    mandoc -Tlint -W error "$source_dir/docs/forerun.1" || fail "mandoc finds errors"
else
    skipped "the man page read by mandoc" "no mandoc"
fi

# Measurements quoted on method pages equal those on the pages of measurements.
n=0
for page in "$source_dir"/docs/methods/*.md; do
    name=$(basename "$page" .md)
    sed -e ':a' -e '$!N; s/\n  */ /; ta' -e 'P; D' "$page" >joined # one line per item
    row=$(sed -n 's/.*speed.md)): mlp \([0-9.]*\), vgg16 \([0-9.]*\), gpt \([0-9.]*\);.*/| \1 | \2 | \3 |/p' joined)
    [ -z "$row" ] || grep -qE "^\| $name[,a-z0-9 ]* ${row//|/\\|}" "$source_dir/docs/speed.md" || fail "$name: speed.md has no '$row'"
    for number in $(sed -n 's/.*accuracy.md)): \([0-9.]*\) % with 4 stages (\([^ ]*\) .*), \([0-9.]*\) % with 8 stages (\([^)]*\)).*/\1 \2 \3 \4/p' joined); do
        grep -E "^\| $name \| [0-9]" "$source_dir/docs/accuracy.md" | grep -cF -- "$number" >/dev/null ||
            fail "$name: accuracy.md has no $number"
        n=$((n + 1))
    done
    [ -z "$row" ] || n=$((n + 1))
done
[ $n -ge 30 ] || fail "only $n measured numbers were compared"

# Code in the guide to the C API is part of the programs that it names, and it names every header.
api=$source_dir/docs/api.md
for program in examples/train.c examples/run.c; do
    sed -n "\|^<!-- $program -->|,/^<!-- end/s/^    *//p" "$api" | grep -v '^\.\.\.$' >shown
    [ -s shown ] || fail "$api shows nothing of $program"
    while IFS= read -r line; do
        grep -qF -- "$line" "$source_dir/$program" || fail "$program has no line '$line', $api says so"
    done <shown
    [ "$(wc -l <"$source_dir/$program")" -lt 100 ] || fail "$program has 100 lines or more"
done
for header in "$source_dir"/include/forerun/*.h; do
    grep -qF "\`$(basename "$header")\`" "$api" || fail "$api does not name $(basename "$header")"
done

# Links between pages have targets.
anchors() { sed -n 's/^##* //p' "$1" | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g'; }
(cd "$source_dir" && grep -oE '\]\([^):]+\)' ./*.md docs/*.md docs/methods/*.md) |
    sed 's/:](/ /; s/)$//' | sort -u >links
while read -r page link; do
    file=${link%%#*}
    to=$source_dir/$(dirname "$page")/$file
    [ -n "$file" ] || to=$source_dir/$page
    [ -e "$to" ] || fail "$page: no $file"
    [ "$link" = "$file" ] || anchors "$to" | grep -cxF -- "${link#*#}" >/dev/null || fail "$page: nothing at $link"
done <links
[ "$(wc -l <links)" -gt 60 ] || fail "too few links"

# The check can fail.
cp -r "$source_dir/scripts" .
cp -r "$source_dir/docs" .
sed 's/--resume/--resum/' "$source_dir/docs/reference.md" >docs/reference.md
sed -i 's/| 0 | 0 | 2 |/| 0 | 0 | 3 |/' docs/methods/spectrain.md
if scripts/make-reference.sh --check "$forerun" >said 2>&1; then fail "an old page was not seen"; fi
grep -q 'docs/reference.md differs .* update it by scripts/make-reference.sh' said || fail "how to update it"
grep -q 'docs/methods/spectrain.md differs' said || fail "an old number of a method was not seen"

# The config of every method's page trains.
for page in "$source_dir"/docs/methods/*.md; do
    { printf 'model: {name: mlp, inputs: 8, depth: 9, width: 8, classes: 4}\ndata: {name: synthetic, n: 256, n_eval: 8}\n'
        sed -n '/^## Config/,/^[#[]/s/^    //p' "$page"
    } >page.yaml
    grep -q '^parallel:' page.yaml || fail "$page has no config"
    run 0 train page.yaml --out "page-$(basename "$page" .md)" --quiet --set train.steps=2 --set train.epochs=1 \
        --set run.eval_every=-1 --set run.predict=false --set parallel.threads=1
done
echo ok
