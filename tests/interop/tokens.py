#!/usr/bin/env python3
"""tokens.py -- Python's `tokenizers` judges the tokens of Forerun, one by one.

    tests/interop/tokens.py LIBFORERUN.so [TEXT...] [--megabytes N] [--strings N]

Trains byte-level BPE vocabularies with the patterns of GPT-2, Llama 3 and Qwen 2 (with NFC), and
compares both encoders on text of 18 scripts, on the given files (gzip or plain), on random
characters of all of Unicode, and on random byte strings. Needs the package tokenizers.
"""
import argparse
import ctypes
import gzip
import json
import os
import random
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
          r"|\s*[\r\n]|\s+(?!\S)|\s+")
CL100K_2 = CL100K.replace("'(?i:[sdmt]|ll|ve|re)", "(?i:'s|'t|'re|'ve|'m|'ll|'d)")
GPT2_2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# first and last letter, digits, what is between words
SCRIPTS = {
    "latin": (0x61, 0x7A), "latin-1": (0xC0, 0x17F), "greek": (0x391, 0x3C9), "cyrillic": (0x410, 0x44F),
    "armenian": (0x561, 0x586), "hebrew": (0x5D0, 0x5EA), "arabic": (0x620, 0x64A),
    "devanagari": (0x904, 0x94D), "bengali": (0x985, 0x9CD), "tamil": (0xB85, 0xBCD),
    "thai": (0xE01, 0xE4E), "georgian": (0x10D0, 0x10FA), "hangul jamo": (0x1100, 0x11C2),
    "ethiopic": (0x1200, 0x135F), "hiragana": (0x3041, 0x3096), "katakana": (0x30A1, 0x30FA),
    "han": (0x4E00, 0x52FF), "hangul": (0xAC00, 0xAFFF), "gothic": (0x10330, 0x1034A),
    "marks": (0x300, 0x345), "emoji": (0x1F300, 0x1F64F),
}
BETWEEN = [" "] * 30 + ["\n", "\n\n", "  ", "\t", " \n", "\r\n", ", ", ". ", "。", "、", "-", "'s ", "'LL ", "'ſ",
                        "\u00a0", "\u3000", " 12345 ", "٣٤٥", "½", "<|endoftext|>", "<|", "\u200d", "   \n  "]


def script_text(rng, size):
    """About that many characters of words of all scripts, which repeat as words do."""
    words = {}
    for name, (first, last) in SCRIPTS.items():
        words[name] = ["".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 9)))
                       for _ in range(600)]
    parts, n = [], 0
    names = list(words)
    while n < size:
        pool = words[rng.choice(names)]
        for _ in range(rng.randint(1, 40)):
            parts.append(pool[int(len(pool) * rng.random() ** 3)])
            parts.append(rng.choice(BETWEEN))
            n += len(parts[-1]) + len(parts[-2])
    return "".join(parts)


def any_text(rng, size):
    """Characters of all of Unicode."""
    parts = []
    while len(parts) < size:
        first = rng.choice([0, 0, 0x300, 0x1100, 0x2000, 0x3000, 0xAC00, 0xF900, 0x10000, 0x1D100,
                            0x1F000, 0x20000, rng.randrange(0x110000)])
        for _ in range(rng.randint(1, 12)):
            c = first + rng.randrange(0x100)
            if c < 0x110000 and not 0xD800 <= c < 0xE000:
                parts.append(chr(c))
    return "".join(parts)


class Ours:
    """The encoder of the library, by ctypes."""

    def __init__(self, library, path):
        self.lib = lib = ctypes.CDLL(library)
        for name in ("fr_ctx_create", "fr_ctx_error", "fr_encoder_take", "fr_tokenizer_text"):
            getattr(lib, name).restype = ctypes.c_void_p
        ctx = ctypes.c_void_p(lib.fr_ctx_create())
        self.t, self.e = ctypes.c_void_p(), ctypes.c_void_p()
        if lib.fr_tokenizer_open(ctx, path.encode(), ctypes.byref(self.t)) or \
                lib.fr_encoder_create(self.t, ctypes.byref(self.e)):
            sys.exit("tokens.py: " + ctypes.string_at(lib.fr_ctx_error(ctx)).decode())

    def encode(self, data, pieces=None):
        ids, n = [], ctypes.c_int64()
        at = 0
        while at < len(data):
            size = pieces() if pieces else len(data)
            assert self.lib.fr_encoder_feed(self.e, data[at:at + size], ctypes.c_size_t(len(data[at:at + size]))) == 0
            at += size
            ids += self.take(n)
        assert self.lib.fr_encoder_end(self.e) == 0
        return ids + self.take(n)

    def take(self, n):
        at = self.lib.fr_encoder_take(self.e, ctypes.byref(n))
        return list((ctypes.c_int32 * n.value).from_address(at)) if n.value else []

    def decode(self, ids):
        n, parts = ctypes.c_size_t(), []
        for i in ids:
            at = self.lib.fr_tokenizer_text(self.t, ctypes.c_int32(i), ctypes.byref(n))
            parts.append(ctypes.string_at(at, n.value))
        return b"".join(parts)


def train(kind, corpus, size):
    t = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    regex = {"llama3": LLAMA3, "qwen2": QWEN2}.get(kind)
    if regex:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(regex), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=kind == "gpt2-prefix")
    if kind == "qwen2":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|end|>"])
    t.add_tokens(["<|end|>>", "ab\u0301c"])
    return t


def same(ours, theirs, text, pieces, what):
    data = text.encode()
    mine, judge = ours.encode(data, pieces), theirs.encode(text, add_special_tokens=False).ids
    if mine == judge:
        return len(mine)
    at = next((i for i, (a, b) in enumerate(zip(mine, judge)) if a != b), min(len(mine), len(judge)))
    sys.exit("tokens.py: %s: token %d of %d: %s, tokenizers has %s; after %r, at %r and %r" % (
        what, at, len(judge), mine[at:at + 4], judge[at:at + 4], ours.decode(judge[max(0, at - 8):at]),
        ours.decode(mine[at:at + 6]), ours.decode(judge[at:at + 6])))


def lines(text, size):
    """Pieces of about that many characters, cut at line ends where there are any."""
    at = 0
    while at < len(text):
        cut = text.rfind("\n", at + 1, at + size) + 1 if at + size < len(text) else len(text)
        cut = cut if cut > at else at + size
        yield text[at:cut]
        at = cut


def read(path):
    data = open(path, "rb").read()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")


def judge(kind, theirs, library, texts, args, folder):
    rng = random.Random(kind)
    path = os.path.join(folder, kind + ".json")
    theirs.save(path)
    ours = Ours(library, path)
    n_tokens = n_bytes = 0
    for name, text in texts:
        for part in lines(text, 200000):
            n_tokens += same(ours, theirs, part, lambda: rng.choice([1 << 20, 1 << 20, 70000, 100]), kind + " " + name)
            n_bytes += len(part.encode())
    for i in range(args.strings):
        data = bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
        text = data.decode("latin-1") if i % 2 else data.decode("utf-8", "replace")
        same(ours, theirs, text, lambda: rng.randint(1, 50), "%s string %d" % (kind, i))
        if theirs.normalizer is None:
            back = ours.decode(ours.encode(data, lambda: rng.randint(1, 50)))
            assert back == data or back == b" " + data, (kind, data)
    print("%-12s vocabulary %d: %d bytes, %d tokens, %d strings: equal" % (
        kind, theirs.get_vocab_size(), n_bytes, n_tokens, args.strings), flush=True)
    return path


def variants(path, library, text):
    """The same vocabulary under other spellings of the patterns, and merges as texts."""
    for name, regex in ("cl100k", CL100K), ("cl100k-2", CL100K_2), ("gpt2-2", GPT2_2):
        t = json.load(open(path))
        t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex
        t["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m for m in t["model"]["merges"]]
        other = path + "." + name
        json.dump(t, open(other, "w"))
        print("%-12s %d tokens: equal" % (name, same(Ours(library, other), Tokenizer.from_file(other), text, None, name)))


def vocab_and_merges(path, library, text):
    """vocab.json and merges.txt of GPT-2."""
    folder = path + ".files"
    os.mkdir(folder)
    t = json.load(open(path))
    t["added_tokens"] = t["added_tokens"][:1]
    json.dump(t, open(path + ".plain", "w"))
    theirs = Tokenizer.from_file(path + ".plain")
    theirs.model.save(folder)
    print("%-12s %d tokens: equal" % ("vocab+merges", same(Ours(library, folder), theirs, text, None, "files")))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--megabytes", type=float, default=8, help="of generated text, beside the files")
    parser.add_argument("--strings", type=int, default=10000)
    args = parser.parse_args()
    rng = random.Random(7)
    texts = [(os.path.basename(p), read(p)) for p in args.texts]
    size = int(args.megabytes * 1e6)
    texts.append(("scripts", script_text(rng, size // 3)))
    texts.append(("unicode", any_text(rng, size // 12)))
    texts.append(("every character", "".join(chr(c) + "ax"[c % 2] for c in range(0x110000) if not 0xD800 <= c < 0xE000)))
    texts.append(("long words", "ab" * 60000 + " " + "é\u0301\u0323" * 3000 + " " * 70000 + "\n" * 1000 + "x" + "9" * 5000))
    print("%d bytes of text of %d scripts" % (sum(len(t.encode()) for _, t in texts), len(SCRIPTS)))
    corpus = [part for _, t in texts[:-3] for part in lines(t[:1500000], 2000)]
    corpus += list(lines(texts[-4][1][:800000], 2000))
    sample = texts[-4][1][:300000]
    with tempfile.TemporaryDirectory() as folder:
        for kind in "gpt2", "llama3", "qwen2":
            path = judge(kind, train(kind, corpus, 16000), args.library, texts, args, folder)
            if kind == "llama3":
                variants(path, args.library, sample)
            if kind == "gpt2":
                vocab_and_merges(path, args.library, sample)
        args.strings = min(args.strings, 1000)
        judge("gpt2-prefix", train("gpt2-prefix", corpus[::10], 3000), args.library, texts[-3:], args, folder)
    print("every token agrees with tokenizers")


main()
