# The report: by train, of several runs, of a killed run; refusals.
. "$(dirname "$0")/lib.bash"

# has PATTERN FILE: and the page is one file without external links.
has() { grep -qF -- "$1" "$2" || fail "$2 does not hold '$1'"; }

run 0 train net.yaml --out a
has 'a/report.html' out
has '"name": "a"' a/report.html
has '"status":"done"' a/report.html
has '<title>a: mlp on synthetic</title>' a/report.html
! grep -qE '(src|href)="?https?:' a/report.html || fail "the page has links"
same "$(grep -c 'id="data"' a/report.html)" 1 "scripts with data"
for key in started processor cores usable_cores memory_bytes system kernel compiler; do
    grep -q "\"$key\": [\"0-9]" a/summary.json || fail "the environment has no $key"
done
! grep -qF "$(uname -n)" a/summary.json a/report.html || fail "a host is named"

# No report if it is switched off; a stopped or diverged run has one, too.
run 0 train net.yaml --out b --set run.report=false
[ ! -e b/report.html ] || fail "run.report: false leaves a report"
run 4 train net.yaml --out c --set train.optimizer.lr=1e30
[ ! -s c/summary.json ] || has '"status":"diverged"' c/report.html
[ -s c/report.html ] || fail "a run that diverged leaves no report"
begin train net.yaml --out d "${endless[@]}"
lines() { [ -f d/metrics.jsonl ] && [ "$(wc -l <d/metrics.jsonl)" -gt 5 ]; }
wait_while $pid lines
run 0 report d --out while.html # the run is not over
has '"summary": null' while.html
kill -INT $pid
ends 130 "of a run that was stopped"
has '"status":"interrupted"' d/report.html

# A report that cannot be written is a warning: the run itself succeeded.
mkdir -p e/report.html
run 0 train net.yaml --out e --quiet
has 'warning: no report: ' err
has 'report.html' err

# Written again, of several runs, to another file, to stdout, as data.
rm a/report.html
run 0 report a
same "$(cat out)" a/report.html "where it is"
run 0 report a/ --quiet
[ ! -s out ] && [ ! -s err ] || fail "--quiet speaks"
run 0 report a b c --out many.html --title 'All <three>'
has '<title>All &lt;three&gt;</title>' many.html
for name in a b c; do has "\"name\": \"$name\"" many.html; done
run 0 report a b c --out - --title 'All <three>'
cmp out many.html || fail "--out - is another page"
run 0 report b --data
has '"format": 1' out
has '"n_steps": 40' out
[ ! -e b/report.html ] || fail "--data writes a page"

# A run killed in the middle of a line, with metrics only.
mkdir f
head -c 300 a/metrics.jsonl >f/metrics.jsonl
run 0 report f --data
has '"n_steps": 2' out
has '"summary": null' out

# The plan of a run, with its reason.
{
    echo '# A plan by `forerun plan`, in simulated time'
    echo '# because </script> of "that"'
    cat net.yaml
} >plan.yaml
run 0 train plan.yaml --out g --quiet
same "$(sed -n 2p g/config.yaml)" '# because </script> of "that"' "the plan's comment"
run 0 report g --data
has '"plan": "A plan by `forerun plan`, in simulated time\nbecause \u003c/script> of \"that\""' out
run 0 train g/config.yaml --out h --quiet
cmp <(head -2 g/config.yaml) <(head -2 h/config.yaml) || fail "the comment does not stay"
(echo '# just words' && cat net.yaml) >words.yaml
run 0 train words.yaml --out i --quiet
! grep -q words i/config.yaml || fail "other comments stay"

# A full disk: an error, and the previous page stays.
if [ -w /dev/full ]; then
    code=0
    "$forerun" report a --out - >/dev/full 2>err || code=$?
    same $code 1 "exit code with a full disk"
    says 'No space left'
fi
cp a/report.html before.html
code=0
(ulimit -f 8 && "$forerun" report a >out 2>err) || code=$?
same $code 1 "exit code of a page that does not fit"
says 'cannot write' 'free some space'
cmp a/report.html before.html || fail "the page before is gone"
ls a | grep tmp && fail "left beside the page"

# Refusals.
run 2 report
says 'no run given'
run 2 report nowhere
says 'nowhere' 'No such file'
mkdir runs && cp -r a runs/a
run 2 report runs
says 'runs: not a run' 'in its subfolders'
run 2 report a --data --out x
says '--data'
run 2 report a --tilte x
says 'did you mean --title'
echo '{"step": 1}
{"step": 2, "loss"
{"step": 3}' >f/metrics.jsonl
run 2 report f
says 'f/metrics.jsonl:2: '

# The build joins the page from its files, in the order of their names, without closing a tag early.
command -v cmake >/dev/null || { skipped "a build without the report's page" "no cmake" && exit 0; }
join() { cmake -D PAGE=page -D OUT=page.c -P "$source_dir/src/report/page/embed.cmake" >out 2>err; }
mkdir page
printf '%s\n' '<title>T</title>' '<!-- style -->' '<!-- data -->' '<!-- script -->' >page/page.html
echo 'b;[1] \\ "é"' >page/2.js
echo 'a' >page/1.js
echo 'c{}' >page/x.css
join || fail "the page is not joined"
cat >want <<'HTML'
<title>T</title>
<style>
c{}
</style>
<script type="application/json" id="data">null</script>
<script>
a
b;[1] \\ "é"
</script>
HTML
cmp want page.c.html || fail "the page is joined in another way"
same "$(grep -o '\.[a-z_]* = [0-9][0-9]*' page.c | tr -d '\n')" \
    ".bytes = $(wc -c <want).title = 7.title_end = 8.data = 80.data_end = 84" "places"
echo 'x = "</SCRIPT>"' >page/3.js
! join || fail "a script that ends itself"
grep -q 'page/3.js: </script would end' err || fail "the script is not named"
rm page/3.js
sed -i '/data/d' page/page.html
! join || fail "a page without data"
grep -q 'page.html: <!-- data --> is there 0 times' err || fail "what is missing is not said"
