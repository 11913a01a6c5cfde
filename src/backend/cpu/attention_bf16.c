/* attention_bf16.c -- attention of heads that share k and v, with products of bf16 (AVX-512).
 *
 * The instruction multiplies pairs: a lane of the sum gets a0 b0 + a1 b1. A product
 * C (m, n) = A (m, k) B (k, n) therefore reads A as pairs along k, which rows of bf16 are as they
 * are stored, and B as rows of pairs: either two rows of a matrix, interleaved, or the transposed
 * rows of another one.
 *
 * Scores are computed transposed, (keys, queries): then softmax is a sweep over rows with a lane to
 * each query, and of all operands only q and dy have to be transposed, a block of queries at a
 * time:
 *
 *     forward     s = k q^T,   y = p v
 *     backward    s = k q^T,   g = v dy^T,   dv += p^T dy,   dk += ds^T q,   dq = ds k
 *
 * Scores, softmax and sums are floats; p and ds are rounded to bf16 for the next product, which the
 * reference does not do: its attention differs by these roundings. */
#include "backend/cpu/attention.h"

#include "backend/cpu/vmath.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

enum {
    BLOCK = FR_QUERY_BLOCK,
    LANES = 16,
    ROWS = 4, /* of a tile */
    WIDE = 4  /* registers of columns */
};

/* Numbers of bf16 in pairs, the first one in the lower half. */
typedef struct pairs {
    const void *at;
    int64_t row, step; /* pairs from row to row, and along k */
} pairs;

typedef struct product {
    pairs a;           /* (m, k) */
    const uint32_t *b; /* (k, n) pairs, rows ld_b apart */
    float *c;          /* (m, n), rows ld_c apart; n is a multiple of LANES */
    int64_t m, n, k, ld_b, ld_c;
    bool add;
} product;

/* Scratch of a thread. d is padded to LANES. */
typedef struct rooms {
    uint32_t *qt, *dyt; /* (d / 2, BLOCK) transposed */
    uint32_t *q2, *dy2; /* (BLOCK / 2, d) two rows interleaved */
    uint32_t *kv2;      /* (S / 2, d) k or v, likewise */
    uint32_t *p2;       /* (S / 2, BLOCK) p^T, in backward ds^T, likewise */
    uint16_t *p, *ds;   /* (S, BLOCK) transposed */
    float *s, *g;       /* (S, BLOCK) transposed */
    float *out;         /* (BLOCK, d): y or dq */
    float *dk, *dv;     /* (S, d) */
    int64_t ld;         /* d, padded */
} rooms;

/* --- products ----------------------------------------------------------------------------- */

#define BF16_SET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

FR_INLINE int32_t pair_at(const void *from, int64_t i)
{
    int32_t pair;
    memcpy(&pair, (const char *)from + i * (int64_t)sizeof pair, sizeof pair);
    return pair;
}

/* rows and columns are constants. */
BF16_SET FR_INLINE void make_tile(const product *p, int64_t row, int64_t column, int rows,
                                  int columns)
{
    __m512 sum[ROWS][WIDE];
    float *c = p->c + row * p->ld_c + column;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < columns; i++)
            sum[r][i] = p->add ? _mm512_loadu_ps(c + r * p->ld_c + LANES * i) : _mm512_setzero_ps();
    for (int64_t k = 0; k < p->k; k++) {
        __m512i b[WIDE];
        for (int i = 0; i < columns; i++)
            b[i] = _mm512_loadu_si512(p->b + k * p->ld_b + column + LANES * i);
        for (int r = 0; r < rows; r++) {
            const int64_t at = (row + r) * p->a.row + k * p->a.step;
            const __m512i a = _mm512_set1_epi32(pair_at(p->a.at, at));
            for (int i = 0; i < columns; i++)
                sum[r][i] = _mm512_dpbf16_ps(sum[r][i], (__m512bh)a, (__m512bh)b[i]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < columns; i++) _mm512_storeu_ps(c + r * p->ld_c + LANES * i, sum[r][i]);
}

BF16_SET static void multiply(const product *p)
{
    int64_t row = 0, column;
    for (; row + ROWS <= p->m; row += ROWS) {
        for (column = 0; column + WIDE * LANES <= p->n; column += WIDE * LANES)
            make_tile(p, row, column, ROWS, WIDE);
        for (; column < p->n; column += LANES) make_tile(p, row, column, ROWS, 1);
    }
    for (; row < p->m; row++) {
        for (column = 0; column + WIDE * LANES <= p->n; column += WIDE * LANES)
            make_tile(p, row, column, 1, WIDE);
        for (; column < p->n; column += LANES) make_tile(p, row, column, 1, 1);
    }
}

/* --- operands ----------------------------------------------------------------------------- */

static int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* Rows of bf16 as pairs. */
static pairs rows_of(const uint16_t *at, int64_t ld) { return (pairs){at, ld / 2, 1}; }
/* The transpose of interleaved rows, `ld` apart. */
static pairs columns_of(const uint32_t *at, int64_t ld) { return (pairs){at, 1, ld}; }

/* to (d / 2, BLOCK): pairs of the rows, transposed; zeros behind n. */
static void transpose(const uint16_t *from, int64_t ld, int64_t n, int64_t depth, uint32_t *to)
{
    for (int64_t k = 0; k < depth / 2; k++, to += BLOCK) {
        for (int64_t r = 0; r < n; r++) to[r] = (uint32_t)pair_at(from + r * ld, k);
        for (int64_t r = n; r < padded(n); r++) to[r] = 0;
    }
}

/* to (rows / 2, d): two rows in one; zeros behind the last one and behind d. */
FR_SIMD(static, interleave,
        (const uint16_t *from, int64_t ld, int64_t rows, int64_t depth, uint32_t *to),
        (from, ld, rows, depth, to))
{
    for (int64_t r = 0; r < rows; r += 2, to += padded(depth)) {
        const uint16_t *restrict low = from + r * ld, *restrict high = low + ld;
        uint32_t *restrict both = to;
        if (r + 1 < rows)
            for (int64_t i = 0; i < depth; i++) both[i] = low[i] | (uint32_t)high[i] << 16;
        else
            for (int64_t i = 0; i < depth; i++) both[i] = low[i];
        for (int64_t i = depth; i < padded(depth); i++) both[i] = 0;
    }
}

FR_SIMD(static, round_rows,
        (const float *from, int64_t ld_from, int64_t rows, int64_t depth, uint16_t *to, int64_t ld),
        (from, ld_from, rows, depth, to, ld))
{
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict row = from + r * ld_from;
        uint16_t *restrict rounded = to + r * ld;
        for (int64_t i = 0; i < depth; i++) rounded[i] = fr__bf16_of(row[i]);
    }
}

static void clear_rows(uint16_t *at, int64_t ld, int64_t first, int64_t last, int64_t depth)
{
    for (int64_t r = first; r < last; r++) memset(at + r * ld, 0, (size_t)depth * sizeof(uint16_t));
}

/* --- softmax ------------------------------------------------------------------------------ */

/* The queries of the block that may attend to a key, counted from its first: from .. until - 1.
 * has_window is a constant. */
FR_INLINE int32_t first_query(const fr__sight *sight, const fr__block *b, int64_t key)
{
    const int64_t from = b->low + key - b->first;
    return sight->is_causal && from > 0 ? (int32_t)from : 0;
}

FR_INLINE int32_t end_query(const fr__sight *sight, const fr__block *b, int64_t key)
{
    const int64_t until = b->low + key - b->first + sight->window;
    return until < BLOCK ? (int32_t)until : BLOCK;
}

/* Queries i of the block, by key. */
#define SEES(i) ((i) >= from && (!has_window || (i) < until))

/* p2 becomes the probabilities of the scores s, which are overwritten and have room for an even
 * number of keys; lse (n) kept if not NULL. A query that sees none has zeros. */
FR_INLINE void weigh(const fr__head_bf16 *h, const fr__block *b, float *s, uint32_t *p2, float *lse,
                     bool has_window)
{
    float top[BLOCK], sum[BLOCK];
    const float scale = h->scale;
    for (int i = 0; i < BLOCK; i++) top[i] = has_window ? -INFINITY : s[i], sum[i] = 0.0f;
    for (int64_t key = !has_window; key < b->keys; key++) {
        const float *restrict row = s + key * BLOCK;
        const int32_t from = first_query(&h->sight, b, key), until = end_query(&h->sight, b, key);
        for (int32_t i = 0; i < BLOCK; i++) top[i] = SEES(i) && row[i] > top[i] ? row[i] : top[i];
    }
    for (int i = 0; i < BLOCK; i++) top[i] *= scale;
    for (int64_t key = 0; key < b->keys; key++) {
        float *restrict row = s + key * BLOCK;
        const int32_t from = first_query(&h->sight, b, key), until = end_query(&h->sight, b, key);
        for (int32_t i = 0; i < BLOCK; i++) {
            const float p = fr__exp(row[i] * scale - top[i]);
            row[i] = SEES(i) ? p : 0.0f;
            sum[i] += row[i];
        }
    }
    for (int64_t i = 0; lse && i < b->n; i++) lse[i] = top[i] + logf(sum[i]);
    for (int i = 0; i < BLOCK; i++) sum[i] = has_window && sum[i] == 0 ? 0.0f : 1.0f / sum[i];
    for (int i = 0; b->keys % 2 && i < BLOCK; i++) s[b->keys * BLOCK + i] = 0.0f;
    for (int64_t key = 0; key < b->keys; key += 2) {
        const float *restrict low = s + key * BLOCK, *restrict high = low + BLOCK;
        uint32_t *restrict both = p2 + key / 2 * BLOCK;
        for (int i = 0; i < BLOCK; i++)
            both[i] = fr__bf16_of(low[i] * sum[i]) | (uint32_t)fr__bf16_of(high[i] * sum[i]) << 16;
    }
}

FR_SIMD(static, softmax,
        (const fr__head_bf16 *h, const fr__block *b, float *s, uint32_t *p2, float *lse),
        (h, b, s, p2, lse))
{
    if (h->sight.window > 0)
        weigh(h, b, s, p2, lse, true);
    else
        weigh(h, b, s, p2, lse, false);
}

/* p becomes the probabilities of the scores s, which are overwritten; ds the gradients of the
 * scores, from those of p, g. */
FR_INLINE void slope(const fr__head_bf16 *h, const fr__block *b, const float *lse, const rooms *m,
                     bool has_window)
{
    float shift[BLOCK], sum[BLOCK];
    const float scale = h->scale;
    const int32_t n = (int32_t)b->n;
    for (int i = 0; i < BLOCK; i++) sum[i] = 0.0f, shift[i] = i < n ? lse[i] : 0;
    for (int64_t key = 0; key < b->keys; key++) {
        float *restrict row = m->s + key * BLOCK;
        const float *restrict g = m->g + key * BLOCK;
        uint16_t *restrict p = m->p + key * BLOCK;
        const int32_t from = first_query(&h->sight, b, key), until = end_query(&h->sight, b, key);
        for (int32_t i = 0; i < BLOCK; i++) {
            const float value = fr__exp(row[i] * scale - shift[i]);
            row[i] = SEES(i) && i < n ? value : 0.0f;
            sum[i] += SEES(i) && i < n ? row[i] * g[i] : 0.0f;
            p[i] = fr__bf16_of(row[i]);
        }
    }
    for (int64_t key = 0; key < b->keys; key++) {
        const float *restrict row = m->s + key * BLOCK, *restrict g = m->g + key * BLOCK;
        uint16_t *restrict ds = m->ds + key * BLOCK;
        const int32_t from = first_query(&h->sight, b, key), until = end_query(&h->sight, b, key);
        for (int32_t i = 0; i < BLOCK; i++)
            ds[i] = fr__bf16_of(SEES(i) && i < n ? row[i] * (g[i] - sum[i]) * scale : 0.0f);
    }
}

FR_SIMD(static, softmax_back,
        (const fr__head_bf16 *h, const fr__block *b, const float *lse, const rooms *m),
        (h, b, lse, m))
{
    if (h->sight.window > 0)
        slope(h, b, lse, m, true);
    else
        slope(h, b, lse, m, false);
}

/* --- the two passes ----------------------------------------------------------------------- */

/* Without memory this counts bytes. */
static void *take(char *scratch, size_t *at, int64_t n, size_t element_bytes)
{
    void *room = scratch ? scratch + *at : NULL;
    *at += fr__align_up((size_t)n * element_bytes);
    return room;
}

static size_t place(char *scratch, int64_t keys, int64_t depth, rooms *m)
{
    const int64_t ld = padded(depth), even = (keys + 1) / 2 * 2;
    size_t at = 0;
    m->ld = ld;
    m->qt = take(scratch, &at, ld / 2 * BLOCK, sizeof(uint32_t));
    m->dyt = take(scratch, &at, ld / 2 * BLOCK, sizeof(uint32_t));
    m->q2 = take(scratch, &at, BLOCK / 2 * ld, sizeof(uint32_t));
    m->dy2 = take(scratch, &at, BLOCK / 2 * ld, sizeof(uint32_t));
    m->kv2 = take(scratch, &at, even / 2 * ld, sizeof(uint32_t));
    m->p2 = take(scratch, &at, even / 2 * BLOCK, sizeof(uint32_t));
    m->p = take(scratch, &at, keys * BLOCK, sizeof(uint16_t));
    m->ds = take(scratch, &at, keys * BLOCK, sizeof(uint16_t));
    m->s = take(scratch, &at, even * BLOCK, sizeof(float));
    m->g = take(scratch, &at, keys * BLOCK, sizeof(float));
    m->out = take(scratch, &at, BLOCK * ld, sizeof(float));
    m->dk = take(scratch, &at, keys * ld, sizeof(float));
    m->dv = take(scratch, &at, keys * ld, sizeof(float));
    return at;
}

size_t fr__attend_bf16_bytes(int64_t keys, int64_t depth)
{
    rooms m;
    return place(NULL, keys, depth, &m);
}

bool fr__attends_bf16(const fr_device *dev, int64_t depth)
{
    return fr__cpu(dev)->multiplies_bf16 && depth % 2 == 0;
}

/* (keys, queries) = rows of the block's keys times the transposed rows of its queries. */
static void multiply_scores(const fr__head_bf16 *h, const fr__block *b, const uint16_t *rows,
                            const uint32_t *transposed, float *to)
{
    multiply(&(product){.a = rows_of(rows + b->low * h->ld_kv, h->ld_kv),
                        .b = transposed,
                        .c = to,
                        .m = b->keys,
                        .n = padded(b->n),
                        .k = h->depth / 2,
                        .ld_b = BLOCK,
                        .ld_c = BLOCK});
}

/* m->out (queries, d) = p2^T kv2 */
static void multiply_back(const fr__block *b, const rooms *m)
{
    multiply(&(product){.a = columns_of(m->p2, BLOCK),
                        .b = m->kv2 + b->low / 2 * m->ld,
                        .c = m->out,
                        .m = b->n,
                        .n = m->ld,
                        .k = (b->keys + 1) / 2,
                        .ld_b = m->ld,
                        .ld_c = m->ld});
}

/* to (keys, d) = p or ds times rows of the block in pairs. */
static void multiply_queries(const fr__block *b, const rooms *m, const uint16_t *p,
                             const uint32_t *rows, float *to, bool add)
{
    multiply(&(product){.a = rows_of(p, BLOCK),
                        .b = rows,
                        .c = to + b->low * m->ld,
                        .m = b->keys,
                        .n = m->ld,
                        .k = (b->n + 1) / 2,
                        .ld_b = m->ld,
                        .ld_c = m->ld,
                        .add = add});
}

static void attend(const fr__head_bf16 *h, int head, const rooms *m)
{
    for (int64_t first = 0; first < h->time; first += BLOCK) {
        const fr__block b = fr__find_block(&h->sight, first, h->time);
        const int64_t column = head * h->depth;
        uint16_t *y = h->y + first * h->ld_y + column;
        if (b.keys == 0) { /* no keys: the output is zero */
            clear_rows(y, h->ld_y, 0, b.n, h->depth);
            continue;
        }
        transpose(h->q + first * h->ld_q + column, h->ld_q, b.n, h->depth, m->qt);
        multiply_scores(h, &b, h->k, m->qt, m->s);
        softmax(h, &b, m->s, m->p2, h->lse ? h->lse + head * h->time + first : NULL);
        multiply_back(&b, m);
        round_rows(m->out, m->ld, b.n, h->depth, y, h->ld_y);
    }
}

void fr__attend_bf16(const fr__head_bf16 *h, void *scratch)
{
    rooms m;
    place(scratch, h->keys, h->depth, &m);
    interleave(h->v, h->ld_kv, h->sight.keys, h->depth, m.kv2);
    for (int head = 0; head < h->group; head++) attend(h, head, &m);
}

/* Gradients of one head. From the last block, which has the most keys, to the first; *add becomes
 * true once dk and dv have been set. */
static void attend_back(const fr__head_bf16 *h, int head, const rooms *m, bool *add)
{
    for (int64_t first = (h->time - 1) / BLOCK * BLOCK; first >= 0; first -= BLOCK) {
        const fr__block b = fr__find_block(&h->sight, first, h->time);
        const int64_t column = head * h->depth;
        const uint16_t *q = h->q + first * h->ld_q + column, *dy = h->dy + first * h->ld_y + column;
        uint16_t *dq = h->dq ? h->dq + first * h->ld_q + column : NULL;
        if (b.keys == 0) {
            if (dq) clear_rows(dq, h->ld_q, 0, b.n, h->depth);
            continue;
        }
        transpose(q, h->ld_q, b.n, h->depth, m->qt);
        transpose(dy, h->ld_y, b.n, h->depth, m->dyt);
        multiply_scores(h, &b, h->k, m->qt, m->s);
        multiply_scores(h, &b, h->v, m->dyt, m->g);
        softmax_back(h, &b, h->lse + head * h->time + first, m);
        interleave(m->ds, BLOCK, b.keys, BLOCK, m->p2);
        if (h->dv) {
            interleave(dy, h->ld_y, b.n, h->depth, m->dy2);
            multiply_queries(&b, m, m->p, m->dy2, m->dv, *add);
        }
        if (h->dk) {
            interleave(q, h->ld_q, b.n, h->depth, m->q2);
            multiply_queries(&b, m, m->ds, m->q2, m->dk, *add);
        }
        if (dq) {
            multiply_back(&b, m);
            round_rows(m->out, m->ld, b.n, h->depth, dq, h->ld_q);
        }
        *add = true;
    }
}

/* Rounded sums of the valid keys, zeros for the others. */
static void put_keys(const fr__head_bf16 *h, const float *from, int64_t ld, uint16_t *to)
{
    if (!to) return;
    round_rows(from, ld, h->sight.keys, h->depth, to, h->ld_kv);
    clear_rows(to, h->ld_kv, h->sight.keys, h->keys, h->depth);
}

/* With a window no block has all keys: their gradients start as zeros. */
void fr__attend_back_bf16(const fr__head_bf16 *h, void *scratch)
{
    rooms m;
    bool add = h->sight.window > 0;
    place(scratch, h->keys, h->depth, &m);
    if (h->dq) interleave(h->k, h->ld_kv, h->sight.keys, h->depth, m.kv2);
    if (add) {
        memset(m.dk, 0, (size_t)(h->keys * m.ld) * sizeof(float));
        memset(m.dv, 0, (size_t)(h->keys * m.ld) * sizeof(float));
    }
    for (int head = 0; head < h->group; head++) attend_back(h, head, &m, &add);
    put_keys(h, m.dk, m.ld, h->dk);
    put_keys(h, m.dv, m.ld, h->dv);
}

#else

bool fr__attends_bf16(const fr_device *dev, int64_t depth)
{
    (void)dev, (void)depth;
    return false;
}

size_t fr__attend_bf16_bytes(int64_t keys, int64_t depth)
{
    (void)keys, (void)depth;
    return 0;
}

void fr__attend_bf16(const fr__head_bf16 *h, void *scratch) { (void)h, (void)scratch; }
void fr__attend_back_bf16(const fr__head_bf16 *h, void *scratch) { (void)h, (void)scratch; }

#endif
