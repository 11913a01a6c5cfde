#!/usr/bin/env python3
"""make-unicode.py -- the Unicode tables of src/tokens, as C.

    scripts/make-unicode.py classes > src/tokens/class_table.c   # Unicode 16.0
    scripts/make-unicode.py normal > src/tokens/normal_table.c   # Unicode 9.0

The versions are those of the Python package `tokenizers` 0.23, whose tokens the tests compare:
Oniguruma 6.9.10 splits text by the classes of 16.0, and its normaliser has the tables of 9.0. The
standard library has one version of Unicode per version of Python (9.0: Python 3.6); the package
unicodedata2 has others. The script stops if the version at hand is another one.
"""
import sys

VERSIONS = {"classes": "16.0.0", "normal": "9.0.0"}


def database(version):
    """The module unicodedata of that version."""
    import unicodedata
    found = [unicodedata]
    try:
        import unicodedata2
        found.append(unicodedata2)
    except ImportError:
        pass
    for module in found:
        if module.unidata_version == version:
            return module
    sys.exit("make-unicode.py: Unicode %s is needed, this Python has %s; install unicodedata2==%s" %
             (version, ", ".join(m.unidata_version for m in found), version))


def characters():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def rows(items):
    """Items with commas, in lines of at most 100 columns."""
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            print(line)
            line = "   "
        line += " " + item + ","
    print(line)


def head(name, purpose, version):
    print("/* %s -- %s of Unicode %s.\n * Made by scripts/make-unicode.py; do not edit. */" %
          (name, purpose, version))
    print('#include "tokens/unicode.h"\n\n/* clang-format off */')


def classes(ucd):
    """Where the class of characters changes: the first character, and its class in two bits."""
    spaces = set(range(0x09, 0x0E)) | {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
    spaces |= set(range(0x2000, 0x200B))
    changes, last = [], -1
    for c in range(0x110000):
        kind = {"L": 1, "N": 2}.get(ucd.category(chr(c))[0], 0) if not 0xD800 <= c < 0xE000 else 0
        kind = 3 if c in spaces else kind
        if kind != last:
            changes.append("0x%x" % (c << 2 | kind))
            last = kind
    head("class_table.c", "letters, numbers and white space", ucd.unidata_version)
    print("const uint32_t fr__class_changes[] = {")
    rows(changes)
    print("};\nconst int fr__n_class_changes = %d;" % len(changes))


def normal(ucd):
    """Canonical decompositions, and combining classes."""
    pairs, order = [], []
    for c in characters():
        text = ucd.decomposition(chr(c))
        if not text or text[0] == "<":
            continue
        parts = [int(part, 16) for part in text.split()]
        composes = len(parts) == 2 and ucd.normalize("NFC", "".join(map(chr, parts))) == chr(c)
        if composes:
            order.append((parts, len(pairs)))
        pairs.append("{0x%x,0x%x,0x%x}" % (c, parts[0], (parts[1] if len(parts) == 2 else 0) << 1 | composes))
    runs = []  # [first, last, class]
    for c in characters():
        kind = ucd.combining(chr(c))
        if kind and runs and runs[-1][1] == c - 1 and runs[-1][2] == kind:
            runs[-1][1] = c
        elif kind:
            runs.append([c, c, kind])
    head("normal_table.c", "canonical decompositions and combining classes", ucd.unidata_version)
    print("const fr__decomposition fr__decompositions[] = {")
    rows(pairs)
    print("};\nconst int fr__n_decompositions = %d;" % len(pairs))
    print("\nconst uint16_t fr__compositions[] = {")
    rows("%d" % place for _, place in sorted(order))
    print("};\nconst int fr__n_compositions = %d;" % len(order))
    print("\nconst fr__combining_run fr__combining_runs[] = {")
    rows("{0x%x,0x%x,%d}" % tuple(run) for run in runs)
    print("};\nconst int fr__n_combining_runs = %d;" % len(runs))


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in VERSIONS:
        sys.exit("usage: make-unicode.py classes|normal")
    {"classes": classes, "normal": normal}[sys.argv[1]](database(VERSIONS[sys.argv[1]]))


main()
