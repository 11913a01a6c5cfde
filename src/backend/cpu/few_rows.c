/* few_rows.c -- products of rows with weights W (out, in); few rows read W in its stored layout.
 *
 * oneDNN's sgemm first copies W to another layout; with few rows this takes longer than the
 * product. Storing W in another layout does not help: each one that suits y = x W^T makes dx = dy W
 * slow, and the reverse (oneDNN's blocks, AVX-512, 16 rows of 2048 x 2048: 82 and 32 GF/s).
 * Here W is read once and never copied:
 *     y = x W^T   vectors along a row of W; a tile of y is a set of dot products
 *     dx = dy W   vectors along columns of dx; rows of W times numbers of dy are added up
 *     dW = dy^T x the same sums: rows of x, which stay in the second cache, times columns of dy
 * The sums of a tile stay in registers. Meanwhile the weights of the next tile are prefetched to
 * the second cache, because a product with few rows uses each weight only briefly.
 *
 * No sum depends on the number of rows or threads. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "base/simd.h"

#if defined(__x86_64__)

#include <immintrin.h>

enum {
    ROWS = 4, /* of a tile */
    /* Columns of y in a tile, or registers of columns of dx. */
    NARROW = 3, /* AVX2: 12 sums in 16 registers */
    WIDE = 6,   /* AVX-512: 24 in 32 */
    LINE = 16,  /* floats of a cache line */
    DEPTH = 256 /* rows of W for one tile of dx after the other, before the next ones */
};
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f")))

typedef struct tile {
    int64_t row, column;
    int rows, columns;   /* columns: the kind's, or 1 for the remainder */
    int64_t first, last; /* rows of W, for dx */
    const float *ahead;  /* weights to fetch: n of them at each step, for y W's rows apart ... */
    int n_ahead;         /* ... for dx a line apart */
    int step_from;       /* floats from one number of a row of `from` to the next; 1 but for dW */
} tile;

typedef struct kind {
    void (*make)(const fr__product *p, const tile *t);
    int columns, lanes; /* of a tile; to a register: 1 for y */
} kind;

typedef struct job {
    const fr__product *p;
    const kind *kind;
    const fr__weight_grad_args *grad; /* instead of p */
} job;

/* ---- Tiles; `rows` and `columns` are constants ---- */

#define BY_SIZE(make_tile, full)                               \
    switch (t->columns == (full) ? t->rows + ROWS : t->rows) { \
    case 1: make_tile(p, t, 1, 1); break;                      \
    case 2: make_tile(p, t, 2, 1); break;                      \
    case 3: make_tile(p, t, 3, 1); break;                      \
    case 4: make_tile(p, t, 4, 1); break;                      \
    case ROWS + 1: make_tile(p, t, 1, full); break;            \
    case ROWS + 2: make_tile(p, t, 2, full); break;            \
    case ROWS + 3: make_tile(p, t, 3, full); break;            \
    default: make_tile(p, t, 4, full); break;                  \
    }

FR_INLINE void fetch(const float *from, int n, int64_t apart)
{
    for (int i = 0; i < n; i++) __builtin_prefetch(from + i * apart, 0, 2);
}

FR_INLINE void put_y(const fr__product *p, const tile *t, int rows, int columns, const float *sums)
{
    for (int r = 0; r < rows; r++) {
        float *y = p->to + (t->row + r) * p->ld_to + t->column;
        for (int c = 0; c < columns; c++, sums++) y[c] = p->add ? y[c] + *sums : *sums;
    }
}

AVX512 FR_INLINE void make_wide_y(const fr__product *p, const tile *t, int rows, int columns)
{
    const float *x = p->from + t->row * p->ld_from, *w = p->w.at + t->column * p->w.ld;
    __m512 sum[ROWS * WIDE + 3];
    for (int i = 0; i < rows * columns + 3; i++) sum[i] = _mm512_setzero_ps();
    for (int64_t i = 0; i < p->w.in; i += 16) {
        __m512 b[WIDE];
        for (int c = 0; c < columns; c++) b[c] = _mm512_loadu_ps(w + c * p->w.ld + i);
        fetch(t->ahead + i, t->n_ahead, p->w.ld);
        for (int r = 0; r < rows; r++) {
            const __m512 a = _mm512_loadu_ps(x + r * p->ld_from + i);
            for (int c = 0; c < columns; c++)
                sum[r * columns + c] = _mm512_fmadd_ps(a, b[c], sum[r * columns + c]);
        }
    }
    float total[ROWS * WIDE + 3];
    for (int i = 0; i < rows * columns; i += 4) { /* 16 lanes of four sums to one of each */
        const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(sum[i], sum[i + 1], 0x44),
                                        _mm512_shuffle_f32x4(sum[i], sum[i + 1], 0xee));
        const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(sum[i + 2], sum[i + 3], 0x44),
                                        _mm512_shuffle_f32x4(sum[i + 2], sum[i + 3], 0xee));
        __m512 all =
            _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
        all = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4e));
        all = _mm512_add_ps(all, _mm512_permute_ps(all, 0xb1));
        const __m512i first = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
        _mm_storeu_ps(total + i, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, all)));
    }
    put_y(p, t, rows, columns, total);
}

AVX2 FR_INLINE void make_narrow_y(const fr__product *p, const tile *t, int rows, int columns)
{
    const float *x = p->from + t->row * p->ld_from, *w = p->w.at + t->column * p->w.ld;
    __m256 sum[ROWS * NARROW + 3];
    for (int i = 0; i < rows * columns + 3; i++) sum[i] = _mm256_setzero_ps();
    for (int64_t i = 0; i < p->w.in; i += 8) {
        __m256 b[NARROW];
        for (int c = 0; c < columns; c++) b[c] = _mm256_loadu_ps(w + c * p->w.ld + i);
        fetch(t->ahead + i, t->n_ahead, p->w.ld);
        for (int r = 0; r < rows; r++) {
            const __m256 a = _mm256_loadu_ps(x + r * p->ld_from + i);
            for (int c = 0; c < columns; c++)
                sum[r * columns + c] = _mm256_fmadd_ps(a, b[c], sum[r * columns + c]);
        }
    }
    float total[ROWS * NARROW + 3];
    for (int i = 0; i < rows * columns; i += 4) {
        const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(sum[i], sum[i + 1]),
                                          _mm256_hadd_ps(sum[i + 2], sum[i + 3]));
        _mm_storeu_ps(total + i,
                      _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
    }
    put_y(p, t, rows, columns, total);
}

AVX512 FR_INLINE void make_wide_dx(const fr__product *p, const tile *t, int rows, int columns)
{
    const float *dy = p->from + t->row * p->ld_from, *w = p->w.at + t->column;
    float *dx = p->to + t->row * p->ld_to + t->column;
    const bool add = p->add || t->first > 0;
    __m512 sum[ROWS][WIDE];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            sum[r][c] = add ? _mm512_loadu_ps(dx + r * p->ld_to + 16 * c) : _mm512_setzero_ps();
    for (int64_t o = t->first; o < t->last; o++) {
        __m512 b[WIDE];
        for (int c = 0; c < columns; c++) b[c] = _mm512_loadu_ps(w + o * p->w.ld + 16 * c);
        fetch(t->ahead + o * p->w.ld, t->n_ahead, LINE);
        for (int r = 0; r < rows; r++) {
            const __m512 a = _mm512_set1_ps(dy[r * p->ld_from + o * t->step_from]);
            for (int c = 0; c < columns; c++) sum[r][c] = _mm512_fmadd_ps(a, b[c], sum[r][c]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) _mm512_storeu_ps(dx + r * p->ld_to + 16 * c, sum[r][c]);
}

AVX2 FR_INLINE void make_narrow_dx(const fr__product *p, const tile *t, int rows, int columns)
{
    const float *dy = p->from + t->row * p->ld_from, *w = p->w.at + t->column;
    float *dx = p->to + t->row * p->ld_to + t->column;
    const bool add = p->add || t->first > 0;
    __m256 sum[ROWS][NARROW];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            sum[r][c] = add ? _mm256_loadu_ps(dx + r * p->ld_to + 8 * c) : _mm256_setzero_ps();
    for (int64_t o = t->first; o < t->last; o++) {
        __m256 b[NARROW];
        for (int c = 0; c < columns; c++) b[c] = _mm256_loadu_ps(w + o * p->w.ld + 8 * c);
        fetch(t->ahead + o * p->w.ld, t->n_ahead, LINE);
        for (int r = 0; r < rows; r++) {
            const __m256 a = _mm256_set1_ps(dy[r * p->ld_from + o]);
            for (int c = 0; c < columns; c++) sum[r][c] = _mm256_fmadd_ps(a, b[c], sum[r][c]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) _mm256_storeu_ps(dx + r * p->ld_to + 8 * c, sum[r][c]);
}

/* clang-format off: it takes the macros for initializers */
static AVX512 void wide_y(const fr__product *p, const tile *t) { BY_SIZE(make_wide_y, WIDE) }
static AVX512 void wide_dx(const fr__product *p, const tile *t) { BY_SIZE(make_wide_dx, WIDE) }
static AVX2 void narrow_y(const fr__product *p, const tile *t) { BY_SIZE(make_narrow_y, NARROW) }
static AVX2 void narrow_dx(const fr__product *p, const tile *t) { BY_SIZE(make_narrow_dx, NARROW) }
/* clang-format on */

/* Conditions for these kernels instead of oneDNN. Measured on one and two Zen 4 cores, oneDNN 2.6
 * (3.7: AVX-512 only), for 1 to 512 rows, `in` 64 to 9216, `out` 10 to 4096 (build/bench_gemm).
 * With short rows of W adding up the lanes takes too long; with a narrow dx there is too little to
 * prefetch. oneDNN computes dW on AVX2 (16 rows: 82 GF/s, here 54), these kernels on AVX-512 (63
 * and 67; added to dW, 48 and 62). The choice depends on shapes and instruction set alone, because
 * the numbers must not depend on the cut of a network. */
enum { LEAST_IN_Y = 256, LEAST_IN_DX = 1024, LEAST_IN_DW = 768, LONG_IN = 1024 };
enum { MOST_ROWS = 32, MOST_ROWS_AVX512 = 64, MOST_ROWS_LONG = 256 };

/* ---- Sweeps ---- */

/* All rows, in tiles of nearly equal height, each of which prefetches its part of the n_next pieces
 * of weights. */
static void make_rows(const job *j, tile *t, const float *next, int64_t n_next, int64_t apart)
{
    const fr__product *p = j->p;
    const int64_t n_tiles = (p->rows + ROWS - 1) / ROWS;
    for (int64_t i = 0; i < n_tiles; i++) {
        const int64_t piece = n_next * i / n_tiles;
        t->row = p->rows * i / n_tiles;
        t->rows = (int)(p->rows * (i + 1) / n_tiles - t->row);
        t->ahead = next + piece * apart;
        t->n_ahead = (int)(n_next * (i + 1) / n_tiles - piece);
        j->kind->make(p, t);
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Columns of y. */
static void make_y(void *arg, size_t begin, size_t end)
{
    const job *j = arg;
    const fr__product *p = j->p;
    const int64_t full = j->kind->columns, last = (int64_t)end;
    tile t = {.column = (int64_t)begin};
    for (; t.column < last; t.column += t.columns) {
        t.columns = last - t.column < full ? 1 : (int)full;
        const int64_t next = t.column + t.columns;
        make_rows(j, &t, p->w.at + next * p->w.ld, least(last - next, full), p->w.ld);
    }
}

/* Columns of dx. */
static void make_dx(void *arg, size_t begin, size_t end)
{
    const job *j = arg;
    const fr__product *p = j->p;
    const int64_t lanes = j->kind->lanes, full = j->kind->columns, last = (int64_t)end;
    tile t = {.step_from = 1};
    for (; t.first < p->w.out; t.first = t.last) {
        t.last = least(t.first + DEPTH, p->w.out);
        for (t.column = (int64_t)begin; t.column < last; t.column += t.columns * lanes) {
            t.columns = last - t.column < full * lanes ? 1 : (int)full;
            const int64_t next = t.column + t.columns * lanes;
            const int64_t ahead = least(last - next, full * lanes);
            make_rows(j, &t, p->w.at + next, (ahead + LINE - 1) / LINE, LINE);
        }
    }
}

/* Rows of dW, a few at a time from one end to the other, so that memory is read and written in
 * order. The product is dx with x for weights and columns of dy for rows. The columns are copied to
 * contiguous memory first: rows of dy that are a multiple of 4 KB apart would share the sets of the
 * first cache. */
static void make_dw(void *arg, size_t begin, size_t end)
{
    const job *j = arg;
    const fr__weight_grad_args *g = j->grad;
    const int64_t width = j->kind->lanes * j->kind->columns, last = (int64_t)end;
    float columns[MOST_ROWS][ROWS];
    for (int64_t first = (int64_t)begin; first < last; first += ROWS) {
        tile t = {.rows = (int)least(last - first, ROWS),
                  .last = g->rows,
                  .ahead = g->x,
                  .step_from = ROWS};
        for (int64_t r = 0; r < g->rows; r++)
            for (int i = 0; i < t.rows; i++) columns[r][i] = g->dy[r * g->ld_dy + first + i];
        const fr__product p = {.w = {g->x, g->rows, g->in, g->in},
                               .add = g->add,
                               .from = columns[0],
                               .ld_from = 1,
                               .to = g->dw + first * g->ld_dw,
                               .ld_to = g->ld_dw};
        for (; t.column < g->in; t.column += t.columns * j->kind->lanes) {
            t.columns = g->in - t.column < width ? 1 : j->kind->columns;
            const float *next = p.to + t.column + t.columns * j->kind->lanes;
            for (int r = 0; r < t.rows; r++)
                for (int64_t c = 0; c < width; c += LINE)
                    __builtin_prefetch(next + r * g->ld_dw + c, 1, 3);
            j->kind->make(&p, &t);
        }
    }
}

static const kind wide[] = {{wide_y, WIDE, 1}, {wide_dx, WIDE, 16}};
static const kind narrow[] = {{narrow_y, NARROW, 1}, {narrow_dx, NARROW, 8}};

static bool has(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

static const kind *find_kind(const fr__product *p)
{
    const bool is_wide = has(dnnl_cpu_isa_avx512_core);
    if (p->w.in % LINE != 0 || (!is_wide && !has(dnnl_cpu_isa_avx2))) return NULL;
    if (p->w.in < (p->is_dx ? LEAST_IN_DX : LEAST_IN_Y)) return NULL;
    int64_t most = MOST_ROWS;
    if (is_wide && !p->is_dx) most = p->w.in < LONG_IN ? MOST_ROWS_AVX512 : MOST_ROWS_LONG;
    if (p->rows > most) return NULL;
    return is_wide ? &wide[p->is_dx] : &narrow[p->is_dx];
}

bool fr__multiply_few(fr_device *dev, const fr__product *p)
{
    job j = {.p = p, .kind = find_kind(p)};
    if (!j.kind) return false;
    if (p->is_dx)
        fr__cpu_parallel(dev, (size_t)p->w.in, LINE * WIDE, make_dx, &j);
    else
        fr__cpu_parallel(dev, (size_t)p->w.out, (size_t)j.kind->columns, make_y, &j);
    return true;
}

bool fr__weight_grad_few(fr_device *dev, const fr__weight_grad_args *g)
{
    if (!has(dnnl_cpu_isa_avx512_core) || g->in % LINE != 0) return false;
    if (g->in < LEAST_IN_DW || g->rows > MOST_ROWS) return false;
    job j = {.kind = &wide[1], .grad = g};
    fr__cpu_parallel(dev, (size_t)g->out, ROWS, make_dw, &j);
    return true;
}

#else

bool fr__weight_grad_few(fr_device *dev, const fr__weight_grad_args *g)
{
    (void)dev, (void)g;
    return false;
}

bool fr__multiply_few(fr_device *dev, const fr__product *p)
{
    (void)dev, (void)p;
    return false;
}

#endif
