/* binary.c -- mul and subtract of two inputs, of which the second may be repeated.
 *
 * Dimensions, batch and blocks of channels included, are merged where the second input is repeated
 * along all of them or along none. What is left at the end is (outer, mid, run): `run` numbers of
 * the second input meet mid * run consecutive ones of the first.
 *
 *     (C, H, W) by (C, 1, 1):  outer N C,    mid H W, run 1
 *     the same in blocks:      outer N C/16, mid H W, run 16
 *     (T, C) by (C):           outer N,      mid T,   run C
 *
 * The gradient of a repeated input is a sum over mid in the order of FR_SUM, in parts of FR_PIECE,
 * then over the outer dimensions along which it is repeated. So its bits depend neither on threads
 * nor on blocks of channels, which a cut may remove. */
#include "backend/cpu/cpu.h"
#include "base/simd.h"

enum { MAX_DIMS = FR_MAX_DIMS + 2, COLUMNS = 32 };

typedef struct binary {
    fr__kernel k;
    bool is_mul, is_equal; /* is_equal: nothing is repeated */
    int64_t outer, mid, run;
    int n_dims;                              /* of outer */
    int64_t dim[MAX_DIMS], b_step[MAX_DIMS]; /* b_step: runs from item to item; 0: repeated */
    int64_t n_b, n_repeats; /* outer: runs of b, times how often each of them is met */
} binary;

typedef enum kind { MULTIPLY, SUBTRACT, NEGATE } kind;

typedef struct job {
    const binary *m;
    kind how;
    fr__source a, b; /* of the shape of input 0; of input 1 */
    fr__sink out;
    bool add; /* to a gradient */
} job;

/* Which run of b outer item i meets. */
static int64_t run_of(const binary *m, int64_t i)
{
    int64_t at = 0;
    for (int d = m->n_dims - 1; d >= 0; d--) {
        at += i % m->dim[d] * m->b_step[d];
        i /= m->dim[d];
    }
    return at;
}

/* The outer item number `repeat` of those that meet run i of b. */
static int64_t outer_of(const binary *m, int64_t i, int64_t repeat)
{
    int64_t at = 0, step = 1;
    for (int d = m->n_dims - 1; d >= 0; d--) {
        int64_t *left = m->b_step[d] ? &i : &repeat;
        at += *left % m->dim[d] * step;
        *left /= m->dim[d];
        step *= m->dim[d];
    }
    return at;
}

/* ---- Sweeps without sums: the forward, and gradients of what is not repeated ---- */

FR_INLINE void combine(kind how, const float *a, const float *b, float *out, size_t n, bool add)
{
    /* out is a or does not overlap it */
    if (how == NEGATE) {
#pragma omp simd
        for (size_t j = 0; j < n; j++) out[j] = add ? out[j] - a[j] : -a[j];
    } else if (how == SUBTRACT) {
#pragma omp simd
        for (size_t j = 0; j < n; j++) out[j] = a[j] - b[j];
    } else if (add) {
#pragma omp simd
        for (size_t j = 0; j < n; j++) out[j] = out[j] + a[j] * b[j];
    } else {
#pragma omp simd
        for (size_t j = 0; j < n; j++) out[j] = a[j] * b[j];
    }
}

FR_INLINE void combine_one(kind how, const float *a, float b, float *out, size_t n, bool add)
{
    if (how == SUBTRACT) {
#pragma omp simd
        for (size_t j = 0; j < n; j++) out[j] = a[j] - b;
    } else if (add) {
#pragma omp simd
        for (size_t j = 0; j < n; j++) out[j] = out[j] + a[j] * b;
    } else {
#pragma omp simd
        for (size_t j = 0; j < n; j++) out[j] = a[j] * b;
    }
}

/* Elements at .. at + n - 1 with those of b from b_at on, or with the one there. */
FR_INLINE void combine_piece(const job *j, size_t at, size_t b_at, size_t n)
{
    float a_room[FR_PIECE], b_room[FR_PIECE], out_room[FR_PIECE];
    const bool adds_here = j->add && j->out.type != FR_BF16;
    const float *a = fr__read(j->a, at, n, a_room);
    float *out = fr__place(j->out, at, out_room);
    if (j->how == NEGATE)
        combine(NEGATE, a, a, out, n, adds_here);
    else if (j->m->run == 1)
        combine_one(j->how, a, *fr__read(j->b, b_at, 1, b_room), out, n, adds_here);
    else
        combine(j->how, a, fr__read(j->b, b_at, n, b_room), out, n, adds_here);
    if (j->add)
        fr__store_sum(j->out, at, n, out);
    else
        fr__store(j->out, at, n, out);
}

/* Elements of lines of `length`, whose pieces meet the same run of b, or the same number of it. */
FR_SIMD_RANGE(combine_elements)
{
    const job *j = arg;
    const bool is_one = j->m->run == 1;
    const size_t length = (size_t)(is_one ? j->m->mid : j->m->run);
    const size_t lines = is_one ? 1 : (size_t)j->m->mid; /* that meet one run */
    size_t line = begin / length, from = begin % length, of_run = line % lines;
    size_t b_at = (size_t)(run_of(j->m, (int64_t)(line / lines)) * j->m->run);
    for (size_t at = begin, n; at < end; at += n) {
        const size_t left = length - from < end - at ? length - from : end - at;
        n = left < FR_PIECE ? left : FR_PIECE;
        combine_piece(j, at, is_one ? b_at : b_at + from, n);
        from += n;
        if (from < length) continue;
        from = 0, line++, of_run++;
        if (of_run < lines) continue;
        of_run = 0;
        b_at = (size_t)(run_of(j->m, (int64_t)(line / lines)) * j->m->run);
    }
}

/* ---- Sums: the gradient of what is repeated ---- */

/* Numbers i to i + n - 1 of b get their gradient; those of one run, n <= COLUMNS of them. a: dy; b:
 * input 0. */
FR_INLINE void sum_columns(const job *j, int64_t run, int64_t first, int64_t n, float *sums)
{
    const binary *m = j->m;
    float lanes[FR_SUM_LANES][COLUMNS], dy_room[COLUMNS], x_room[COLUMNS];
    for (int64_t c = 0; c < n; c++) sums[c] = 0.0f;
    for (int64_t r = 0; r < m->n_repeats; r++) {
        const int64_t line = outer_of(m, run, r) * m->mid;
        for (int64_t p = 0; p < m->mid; p += FR_PIECE) {
            const int64_t last = m->mid - p < FR_PIECE ? m->mid : p + FR_PIECE;
            for (int l = 0; l < FR_SUM_LANES; l++)
                for (int64_t c = 0; c < n; c++) lanes[l][c] = 0.0f;
            for (int64_t i = p; i < last; i++) {
                const size_t at = (size_t)((line + i) * m->run + first);
                const float *dy = fr__read(j->a, at, (size_t)n, dy_room);
                float *restrict to = lanes[(i - p) % FR_SUM_LANES];
                if (m->is_mul) {
                    const float *x = fr__read(j->b, at, (size_t)n, x_room);
                    for (int64_t c = 0; c < n; c++) to[c] += dy[c] * x[c];
                } else {
                    for (int64_t c = 0; c < n; c++) to[c] -= dy[c];
                }
            }
            for (int half = FR_SUM_LANES / 2; half > 0; half /= 2)
                for (int l = 0; l < half; l++)
                    for (int64_t c = 0; c < n; c++) lanes[l][c] += lanes[l + half][c];
            for (int64_t c = 0; c < n; c++) sums[c] += lanes[0][c];
        }
    }
}

/* The same for a run of one number. */
FR_INLINE float sum_one(const job *j, int64_t run)
{
    const binary *m = j->m;
    float dy_room[FR_PIECE], x_room[FR_PIECE], total = 0.0f, sum;
    for (int64_t r = 0; r < m->n_repeats; r++) {
        const size_t begin = (size_t)(outer_of(m, run, r) * m->mid), end = begin + (size_t)m->mid;
        for (size_t at = begin, n; at < end; at += n) {
            n = fr__piece(at, end);
            const float *dy = fr__read(j->a, at, n, dy_room);
            if (m->is_mul) {
                const float *x = fr__read(j->b, at, n, x_room);
                FR_SUM(sum, i, (int64_t)n, dy[i] * x[i]);
            } else {
                FR_SUM(sum, i, (int64_t)n, -dy[i]);
            }
            total += sum;
        }
    }
    return total;
}

/* Groups of up to COLUMNS numbers of b, all of one run. */
FR_SIMD_RANGE(sum_groups)
{
    const job *j = arg;
    const binary *m = j->m;
    const int64_t per_run = (m->run + COLUMNS - 1) / COLUMNS;
    float sums[COLUMNS], out_room[COLUMNS];
    for (size_t g = begin; g < end; g++) {
        const int64_t run = (int64_t)g / per_run, first = (int64_t)g % per_run * COLUMNS;
        const int64_t n = m->run - first < COLUMNS ? m->run - first : COLUMNS;
        const size_t at = (size_t)(run * m->run + first);
        if (m->run == 1)
            sums[0] = sum_one(j, run);
        else if (n == COLUMNS)
            sum_columns(j, run, first, COLUMNS, sums);
        else
            sum_columns(j, run, first, n, sums);
        float *out = fr__place(j->out, at, out_room);
        const bool adds_here = j->add && j->out.type != FR_BF16;
        for (int64_t c = 0; c < n; c++) out[c] = adds_here ? out[c] + sums[c] : sums[c];
        if (j->add)
            fr__store_sum(j->out, at, (size_t)n, out);
        else
            fr__store(j->out, at, (size_t)n, out);
    }
}

/* ---- The kernel ---- */

static void run_elements(fr__kernel *k, job *j)
{
    const binary *m = (const binary *)k;
    fr__cpu_parallel(k->dev, (size_t)(m->outer * m->mid * m->run), 1024, combine_elements, j);
}

static fr_status binary_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const fr_dtype type = k->y.dtype;
    const binary *m = (const binary *)k;
    run_elements(k, &(job){.m = m,
                           .how = m->is_mul ? MULTIPLY : SUBTRACT,
                           .a = {a->x[0], type},
                           .b = {a->x[1], type},
                           .out = {a->y, type}});
    return FR_OK;
}

/* Input 0 first: if both are one tensor, the second gradient is added to the first. */
static fr_status binary_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const binary *m = (const binary *)k;
    const fr_dtype type = k->y.dtype;
    const fr__source dy = {a->dy, type};
    if (m->is_mul && a->dx[0])
        run_elements(k, &(job){.m = m,
                               .how = MULTIPLY,
                               .a = dy,
                               .b = {a->x[1], type},
                               .out = {a->dx[0], type},
                               .add = a->add_dx[0]});
    if (!a->dx[1]) return FR_OK;
    job j = {.m = m,
             .how = m->is_mul ? MULTIPLY : NEGATE,
             .a = dy,
             .b = {a->x[0], type},
             .out = {a->dx[1], type},
             .add = a->add_dx[1]};
    if (m->is_equal)
        run_elements(k, &j);
    else
        fr__cpu_parallel(k->dev, (size_t)(m->n_b * ((m->run + COLUMNS - 1) / COLUMNS)), 1,
                         sum_groups, &j);
    return FR_OK;
}

/* Of input 0 as it is in memory, from the outermost; is_repeated: input 1 has one item of it. */
typedef struct dims {
    int n;
    int64_t size[MAX_DIMS];
    bool is_repeated[MAX_DIMS];
} dims;

static void push_dim(dims *to, int64_t size, bool is_repeated)
{
    if (size == 1) return;
    if (to->n > 0 && to->is_repeated[to->n - 1] == is_repeated) {
        to->size[to->n - 1] *= size;
        return;
    }
    to->size[to->n] = size;
    to->is_repeated[to->n++] = is_repeated;
}

/* lanes: channels of a block, 1 if tensors are row-major. */
static dims dims_of(const fr__kernel_spec *spec, int lanes)
{
    const fr_shape *a = &fr_graph_node(spec->graph, spec->inputs[0])->shape;
    const fr_shape *b = &fr_graph_node(spec->graph, spec->inputs[1])->shape;
    const int n_new = a->n_dims - b->n_dims;
    dims d = {0};
    push_dim(&d, spec->batch, false);
    for (int i = 0; i < a->n_dims; i++) {
        const bool is_repeated = i < n_new || b->dim[i - n_new] != a->dim[i];
        push_dim(&d, i == 0 ? (a->dim[i] + lanes - 1) / lanes : a->dim[i], is_repeated);
    }
    push_dim(&d, lanes, false);
    return d;
}

/* After merging, repeated dimensions and others alternate. */
static void split(binary *m, dims d)
{
    m->run = m->mid = m->outer = m->n_b = m->n_repeats = 1;
    if (d.n > 0 && !d.is_repeated[d.n - 1]) m->run = d.size[--d.n];
    if (d.n > 0) m->mid = d.size[--d.n];
    m->is_equal = m->mid == 1;
    m->n_dims = d.n;
    for (int i = d.n - 1; i >= 0; i--) {
        m->dim[i] = d.size[i];
        m->b_step[i] = d.is_repeated[i] ? 0 : m->n_b;
        *(d.is_repeated[i] ? &m->n_repeats : &m->n_b) *= d.size[i];
        m->outer *= d.size[i];
    }
}

/* Channels of a block in which both tensors are; 0: they must be row-major. */
static int common_lanes(const fr__kernel_spec *spec)
{
    const fr_shape *b = &fr_graph_node(spec->graph, spec->inputs[1])->shape;
    const fr_shape *a = &fr_graph_node(spec->graph, spec->inputs[0])->shape;
    if (!spec->x[0]->desc && !spec->x[1]->desc) return 1;
    const int lanes = fr__layout_lanes(spec->x[0]);
    if (spec->plain_output || lanes < 2 || b->n_dims != 3 || b->dim[0] != a->dim[0]) return 0;
    /* One pixel in whole blocks is row-major, too. */
    const bool is_pixel =
        !spec->x[1]->desc && b->dim[1] == 1 && b->dim[2] == 1 && b->dim[0] % lanes == 0;
    return is_pixel || fr__layout_lanes(spec->x[1]) == lanes ? lanes : 0;
}

static bool has_one_type(const fr__kernel_spec *spec)
{
    return spec->x[0]->dtype == spec->y_type && spec->x[1]->dtype == spec->y_type;
}

static const fr__kernel_ops binary_ops = {.forward = binary_forward,
                                          .backward_input = binary_backward_input};

fr_status fr__cpu_binary(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    if (!has_one_type(spec)) return fr__kernel_in_floats(spec, arena, fr__cpu_binary, out);
    const int lanes = common_lanes(spec);
    if (lanes == 0) return fr__cpu_wrap_plain(spec, arena, fr__cpu_binary, out);
    binary *m = (binary *)fr__kernel_new(spec, arena, sizeof *m, &binary_ops);
    if (!m) return FR_NO_MEMORY;
    fr__kernel *k = &m->k;
    m->is_mul = k->node->op == FR_OP_MUL;
    split(m, dims_of(spec, lanes));
    k->y = *spec->x[0];
    k->can_overwrite_x0 = true;
    k->can_add_dx = 3;
    if (m->is_mul) {
        k->needs_x = (uint8_t)((spec->need_dx[1] ? 1 : 0) | (spec->need_dx[0] ? 2 : 0));
        k->can_overwrite_dy = !spec->need_dx[1];
    } else {
        k->pass_dx = 1;
    }
    *out = k;
    return FR_OK;
}
