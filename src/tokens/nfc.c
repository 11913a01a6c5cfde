/* nfc.c -- the normal form NFC: canonical decomposition, order of marks, composition.
 *
 * Nearly all text is in this form. The text is copied up to the first character of the set of
 * marks; from the character before it to the next one outside the set, it is decomposed, sorted and
 * composed. Time is linear in the text, for any number of marks on one letter. */
#include "tokens/unicode.h"

#include <string.h>

enum {
    S_BASE = 0xAC00, /* Hangul is computed: a syllable is base + (L * 21 + V) * 28 + T */
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11A7,
    N_L = 19,
    N_V = 21,
    N_T = 28,
    N_S = N_L * N_V * N_T
};

static uint32_t combining(int32_t c)
{
    int low = 0, high = fr__n_combining_runs;
    while (low < high) {
        int mid = (low + high) / 2;
        if (fr__combining_runs[mid].last < c)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == fr__n_combining_runs || fr__combining_runs[low].first > c) return 0;
    return (uint32_t)fr__combining_runs[low].kind;
}

static const fr__decomposition *decomposition(int32_t c)
{
    int low = 0, high = fr__n_decompositions;
    while (low < high) {
        int mid = (low + high) / 2;
        if (fr__decompositions[mid].whole < c)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == fr__n_decompositions || fr__decompositions[low].whole != c) return NULL;
    return &fr__decompositions[low];
}

static bool put(fr__nfc *n, int32_t c)
{
    return fr__vec_push(&n->run, (uint32_t)c | combining(c) << 24);
}

static bool decompose(fr__nfc *n, int32_t c)
{
    int32_t s = c - S_BASE;
    if (s >= 0 && s < N_S) {
        return put(n, L_BASE + s / (N_V * N_T)) && put(n, V_BASE + s / N_T % N_V) &&
               (s % N_T == 0 || put(n, T_BASE + s % N_T));
    }
    const fr__decomposition *d = decomposition(c); /* at most four deep */
    if (!d) return put(n, c);
    return decompose(n, d->first) && (d->second < 2 || decompose(n, d->second >> 1));
}

/* The character that two compose to; -1: none. */
static int32_t composition(int32_t a, int32_t b)
{
    if (a >= L_BASE && a < L_BASE + N_L && b >= V_BASE && b < V_BASE + N_V)
        return S_BASE + ((a - L_BASE) * N_V + (b - V_BASE)) * N_T;
    int32_t s = a - S_BASE;
    if (s >= 0 && s < N_S && s % N_T == 0 && b > T_BASE && b < T_BASE + N_T) return a + b - T_BASE;
    int low = 0, high = fr__n_compositions;
    while (low < high) {
        int mid = (low + high) / 2;
        const fr__decomposition *d = &fr__decompositions[fr__compositions[mid]];
        int32_t second = d->second >> 1;
        if (d->first == a && second == b) return d->whole;
        if (d->first < a || (d->first == a && second < b))
            low = mid + 1;
        else
            high = mid;
    }
    return -1;
}

/* Sort marks by their combining class; equal ones keep their order. */
static bool sort_marks(fr__nfc *n, uint32_t *at, size_t count)
{
    size_t begin[257] = {0};
    if (count <= 16) {
        for (size_t i = 1; i < count; i++) {
            uint32_t c = at[i];
            size_t to = i;
            for (; to > 0 && at[to - 1] >> 24 > c >> 24; to--) at[to] = at[to - 1];
            at[to] = c;
        }
        return true;
    }
    if (n->sorted.room < count && !fr__vec_fit(&n->sorted, count)) return false;
    for (size_t i = 0; i < count; i++) begin[(at[i] >> 24) + 1]++;
    for (int k = 0; k < 256; k++) begin[k + 1] += begin[k];
    for (size_t i = 0; i < count; i++) n->sorted.at[begin[at[i] >> 24]++] = at[i];
    memcpy(at, n->sorted.at, count * sizeof *at);
    return true;
}

static bool sort_run(fr__nfc *n)
{
    for (size_t i = 0, begin; i < n->run.n; i++) {
        for (begin = i; i < n->run.n && n->run.at[i] >> 24;) i++;
        if (i - begin > 1 && !sort_marks(n, n->run.at + begin, i - begin)) return false;
    }
    return true;
}

/* A mark composes with the last starter, unless one of its class or a higher one is between. */
static void compose_run(fr__nfc *n)
{
    uint32_t *at = n->run.at;
    size_t starter = 0, n_out = 1;
    uint32_t last = at[0] >> 24 ? 256 : 0; /* class of the last one kept after the starter */
    for (size_t i = 1; i < n->run.n; i++) {
        uint32_t kind = at[i] >> 24;
        int32_t c = (int32_t)(at[i] & 0xFFFFFF), whole = -1;
        if (last < kind || last == 0) whole = composition((int32_t)(at[starter] & 0xFFFFFF), c);
        if (whole >= 0) {
            at[starter] = (uint32_t)whole;
            continue;
        }
        if (kind == 0) starter = n_out;
        last = kind;
        at[n_out++] = at[i];
    }
    n->run.n = n_out;
}

static bool put_char(fr__bytes *out, int32_t c)
{
    unsigned char b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; c >>= 6) b[i] = (unsigned char)(0x80 | (c & 0x3F));
    b[0] = (unsigned char)(lead[n] | c);
    return fr__bytes_put(out, b, n);
}

static bool put_normal(fr__nfc *n, const unsigned char *p, const unsigned char *end, fr__bytes *out)
{
    int length;
    n->run.n = 0;
    for (; p < end; p += length) {
        int32_t c = fr__char_at(p, end, &length);
        if (c >= 0) {
            if (!decompose(n, c)) return false;
        } else { /* a byte that is no character can only be the first */
            if (!fr__bytes_put(out, p, 1)) return false;
        }
    }
    if (n->run.n == 0) return true;
    if (!sort_run(n)) return false;
    compose_run(n);
    for (size_t i = 0; i < n->run.n; i++)
        if (!put_char(out, (int32_t)(n->run.at[i] & 0xFFFFFF))) return false;
    return true;
}

static bool is_mark(const fr__nfc *n, int32_t c)
{
    return c >= 0 && n->marks[c >> 3] >> (c & 7) & 1;
}

/* The end of the last whole character. */
static const unsigned char *whole_end(const unsigned char *text, const unsigned char *end)
{
    for (int back = 1; back <= 3 && end - text >= back; back++) {
        unsigned char c = end[-back];
        if (c >= 0xC0) return (c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2) > back ? end - back : end;
        if (c < 0x80) break;
    }
    return end;
}

bool fr__nfc_append(fr__nfc *n, const unsigned char *text, size_t bytes, bool is_end,
                    fr__bytes *out, size_t *taken)
{
    const unsigned char *p = text, *end = text + bytes, *copied = text;
    const unsigned char *stable = text; /* the last character before p that is no mark */
    int length;
    *taken = 0;
    if (!is_end) end = whole_end(text, end);
    while (p < end) {
        if (p[0] < 0x80 || !is_mark(n, fr__char_at(p, end, &length))) {
            if (p[0] < 0x80) length = 1;
            stable = p;
            p += length;
            continue;
        }
        while (p < end && is_mark(n, fr__char_at(p, end, &length))) p += length;
        if (p == end && !is_end) break;
        if (!fr__bytes_put(out, copied, (size_t)(stable - copied))) return false;
        if (!put_normal(n, stable, p, out)) return false;
        copied = stable = p;
    }
    const unsigned char *to = is_end ? end : stable;
    if (!fr__bytes_put(out, copied, (size_t)(to - copied))) return false;
    *taken = (size_t)(to - text);
    return true;
}

void fr__nfc_fini(fr__nfc *n)
{
    fr__vec_fini(&n->run);
    fr__vec_fini(&n->sorted);
}
