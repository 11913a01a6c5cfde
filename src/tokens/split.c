/* split.c -- the split patterns of GPT-2 and of cl100k (GPT-4, Llama 3, Qwen) as scanners.
 *
 * GPT-2:   's|'t|'re|'ve|'m|'ll|'d | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ |\s+(?!\S) |\s+
 * cl100k:  (?i:'s|'t|'re|'ve|'m|'ll|'d) |[^\r\n\p{L}\p{N}]?\p{L}+ |\p{N}{1,3}
 *          | ?[^\s\p{L}\p{N}]+[\r\n]* |\s*[\r\n]+ |\s+(?!\S) |\s+
 *
 * The first alternative that matches counts, and each repetition takes as much as it can. Every
 * character begins some match, so the words are the whole text. A byte that is no character counts
 * as one outside all classes. A run of white space is read at most three times, anything else once,
 * so a scan is linear in the text. */
#include "tokens/split.h"

#include <string.h>

const fr__split fr__split_gpt2 = {.is_gpt2 = true};
const fr__split fr__split_llama3 = {.max_digits = 3};
const fr__split fr__split_qwen2 = {.max_digits = 1};

/* Equal expressions in different words. In cl100k, \s*[\r\n] ends at the last line end of a run of
 * white space, and so does \s*[\r\n]+; ?+ and ++ repeat what cannot be given back anyway. */
static const struct {
    const char *regex;
    const fr__split *split;
} known[] = {
#define REST "\\s+(?!\\S)|\\s+"
#define GPT2 " ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" REST
    {"'s|'t|'re|'ve|'m|'ll|'d|" GPT2, &fr__split_gpt2},
    {"'(?:[sdmt]|ll|ve|re)|" GPT2, &fr__split_gpt2},
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" REST
    {ENDINGS WORD "\\p{N}{1,3}" SIGNS, &fr__split_llama3},
    {ENDINGS WORD "\\p{N}" SIGNS, &fr__split_qwen2},
#define WORD_AT_ONCE "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|"
#define SIGNS_AT_ONCE "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|" REST
    {ENDINGS WORD_AT_ONCE "\\p{N}{1,3}" SIGNS_AT_ONCE, &fr__split_llama3},
    {"'(?i:[sdmt]|ll|ve|re)|" WORD_AT_ONCE "\\p{N}{1,3}" SIGNS_AT_ONCE, &fr__split_llama3},
};

const fr__split *fr__split_find(const char *regex)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].regex, regex) == 0) return known[i].split;
    return NULL;
}

typedef struct scan {
    const unsigned char *classes, *end;
} scan;

static inline fr__char_class class_at(const scan *s, const unsigned char *p, int *n)
{
    return fr__class_of(s->classes, fr__char_at(p, s->end, n));
}

/* The end of a run of characters of one class. */
static const unsigned char *run_of(const scan *s, const unsigned char *p, fr__char_class kind)
{
    int n;
    for (; p < s->end && class_at(s, p, &n) == kind; p += n) continue;
    return p;
}

/* Length of 's, 't, 're, 've, 'm, 'll, 'd at p; 0: none. With is_caseless also in capitals, and
 * with the long s, whose capital is S too. */
static size_t ending_at(const scan *s, const unsigned char *p, bool is_caseless)
{
    if (p[0] != '\'' || s->end - p < 2) return 0;
    unsigned char a = p[1], b = s->end - p > 2 ? p[2] : 0;
    if (is_caseless) {
        if (a == 0xC5 && b == 0xBF) return 3;
        if (a >= 'A' && a <= 'Z') a = (unsigned char)(a + 32);
        if (b >= 'A' && b <= 'Z') b = (unsigned char)(b + 32);
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* A run of white space that ends at `run`: without its last character, if another one follows. */
static const unsigned char *spaces_end(const scan *s, const unsigned char *p,
                                       const unsigned char *run)
{
    if (run == s->end) return run;
    const unsigned char *last = run - 1;
    while (last > p && (*last & 0xC0) == 0x80) last--;
    return last > p ? last : run;
}

static const unsigned char *scan_gpt2(const scan *s, const unsigned char *p,
                                      const unsigned char **seen)
{
    size_t ending = ending_at(s, p, false);
    if (ending) return p + ending;
    int n = 1;
    fr__char_class kind = class_at(s, p, &n);
    if (p[0] == ' ' && p + 1 < s->end) {
        int next_n;
        fr__char_class next = class_at(s, p + 1, &next_n);
        if (next != FR_CHAR_SPACE) return run_of(s, p + 1 + next_n, next);
    }
    const unsigned char *run = run_of(s, p + n, kind);
    if (kind != FR_CHAR_SPACE) return run;
    *seen = run;
    return spaces_end(s, p, run);
}

static const unsigned char *scan_number(const scan *s, const unsigned char *p, int most)
{
    int n;
    for (int i = 0; i < most && p < s->end && class_at(s, p, &n) == FR_CHAR_NUMBER; i++) p += n;
    return p;
}

static const unsigned char *scan_spaces(const scan *s, const unsigned char *p,
                                        const unsigned char **seen)
{
    const unsigned char *run = run_of(s, p, FR_CHAR_SPACE);
    *seen = run;
    for (const unsigned char *q = run; q > p; q--)
        if (q[-1] == '\n' || q[-1] == '\r') return q;
    return spaces_end(s, p, run);
}

static const unsigned char *scan_cl100k(const scan *s, int max_digits, const unsigned char *p,
                                        const unsigned char **seen)
{
    size_t ending = ending_at(s, p, true);
    if (ending) return p + ending;
    int n, next_n = 1;
    fr__char_class kind = class_at(s, p, &n), next = FR_CHAR_SPACE;
    if (kind == FR_CHAR_LETTER) return run_of(s, p + n, kind);
    if (kind == FR_CHAR_NUMBER) return scan_number(s, p, max_digits);
    if (p + n < s->end) next = class_at(s, p + n, &next_n);
    if (next == FR_CHAR_LETTER && p[0] != '\r' && p[0] != '\n')
        return run_of(s, p + n + next_n, next);
    if (kind == FR_CHAR_SPACE && !(p[0] == ' ' && next == FR_CHAR_OTHER))
        return scan_spaces(s, p, seen);
    p = run_of(s, p + n, FR_CHAR_OTHER);
    while (p < s->end && (*p == '\r' || *p == '\n')) p++;
    return p;
}

size_t fr__split_next(const fr__split *split, const unsigned char *classes, const unsigned char *p,
                      const unsigned char *end, bool is_end)
{
    enum { AHEAD = 16 }; /* bytes: more than any scanner reads beyond the word or the run */
    const scan s = {.classes = classes, .end = end};
    const unsigned char *seen = p;
    const unsigned char *to =
        split->is_gpt2 ? scan_gpt2(&s, p, &seen) : scan_cl100k(&s, split->max_digits, p, &seen);
    if (seen < to) seen = to;
    return !is_end && end - seen < AHEAD ? 0 : (size_t)(to - p);
}
