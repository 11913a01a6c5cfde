# Text to tokens and back, and what is refused.
. "$(dirname "$0")/lib.bash"

gpt2=$source_dir/tests/fixtures/tokens_gpt2.json
mkdir hf
cp "$source_dir/tests/fixtures/tokens_qwen2.json" hf/tokenizer.json
printf 'The quick brown fox.\n' >a.txt
printf "it's the lazy dog" | gzip >b.txt.gz

run 0 tokenize --tokenizer "$gpt2" a.txt b.txt.gz --out both.bin --end '<|end|>'
says "38 bytes"
[ -e both.bin ] || fail "no output"
run 0 tokenize --tokenizer "$gpt2" both.bin --out back.txt --decode
[ "$(cat back.txt)" = "$(printf "The quick brown fox.\n<|end|>it's the lazy dog<|end|>")" ] || fail "decoded text"
# two files one after the other are two texts; ids are little-endian, 16 bits
run 0 tokenize --tokenizer "$gpt2" a.txt --out a.bin
run 0 tokenize --tokenizer "$gpt2" b.txt.gz --out b.bin
end=$(od -An -v -tu2 -w2 both.bin | tail -n 1)
{ od -An -v -tu2 -w2 a.bin; echo "$end"; od -An -v -tu2 -w2 b.bin; echo "$end"; } >wanted
od -An -v -tu2 -w2 both.bin >got
cmp -s got wanted || fail "two files are not two texts"
run 0 tokenize --tokenizer hf a.txt --out q.bin --quiet
run 0 tokenize --tokenizer hf --decode q.bin --out q.txt --quiet
cmp -s q.txt a.txt || fail "decoded by a folder's tokenizer"
# a text larger than the pieces it is read in, without a blank in it
for _ in $(seq 9000); do printf 'абв。где\n敏捷的棕色狐狸%s' "$RANDOM"; done >big.txt
run 0 tokenize --tokenizer hf big.txt --out big.bin
run 0 tokenize --tokenizer hf big.bin --out big.back --decode
cmp -s big.txt big.back || fail "a large text"

# refused: one line, exit code 2, and what was there stays
cp a.bin before
run 2 tokenize --tokenizer "$gpt2" nosuch.txt --out a.bin
says "nosuch.txt"
head -c 30 b.txt.gz >cut.gz
run 2 tokenize --tokenizer "$gpt2" a.txt cut.gz --out a.bin
says "cut.gz"
printf 'abc' >odd.bin
run 2 tokenize --tokenizer "$gpt2" odd.bin --out a.bin --decode
says "odd.bin" "whole token"
printf '\377\377' >large.bin
run 2 tokenize --tokenizer "$gpt2" large.bin --out a.bin --decode
says "token 0 is 65535"
run 2 tokenize --tokenizer "$gpt2" a.txt --out a.bin --end '<|no|>'
says "<|no|>"
run 2 tokenize --tokenizer . a.txt --out a.bin
says "neither tokenizer.json nor"
head -c 5000 "$gpt2" >cut.json
run 2 tokenize --tokenizer cut.json a.txt --out a.bin
says "cut.json:1" "not JSON"
run 2 tokenize a.txt --out a.bin
says "--tokenizer"
run 2 tokenize --tokenizer "$gpt2" --out a.bin
says "no input"
run 2 tokenize --tokenizer "$gpt2" a.txt
says "--out"
run 2 tokenize --tokenizer "$gpt2" a.txt --out hf
says "hf"
cmp -s a.bin before || fail "a failure changed the output"
ls ./*.tmp 2>/dev/null && fail "a part of an output is left"
echo ok
