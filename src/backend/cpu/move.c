/* move.c -- slice, select, transpose, pad: operators that copy a box of numbers, or of ids.
 *
 * The box has up to four dimensions in a sample, with a stride of input and of output for each:
 *
 *     slice, select   the whole output, a part of the input
 *     transpose       all of both, strides in another order
 *     pad             the whole input, a part of the output, which is filled before
 *
 * Dimensions that are contiguous in both become one. A plane of the last two is copied in tiles, or
 * row by row where rows are contiguous. */
#include "backend/cpu/cpu.h"

#include <string.h>

enum { TILE = 16 };

typedef struct box_dim {
    int64_t n, x, y; /* size, and strides in elements */
} box_dim;

typedef struct move {
    fr__kernel k;
    box_dim dim[FR_MAX_DIMS]; /* outermost first; unused ones in front have size 1 */
    int64_t x_at, y_at;       /* of the first number of the box in a sample */
    int64_t n_x, n_y;         /* numbers of a sample */
    int64_t n_planes;         /* of a sample */
    bool fills_x, fills_y;    /* the box is all of it */
    size_t element_bytes;
    float value; /* around it */
} move;

typedef struct job {
    const move *m;
    const char *from;
    char *to;
    bool is_back, add;
} job;

/* (rows, n) with a stride of each. */
typedef struct plane {
    int64_t rows, n;
    int64_t from_row, from_step, to_row, to_step;
} plane;

#define COPY_TILES(type, from, to, p, assign)                          \
    for (int64_t r0 = 0; r0 < (p)->rows; r0 += TILE)                   \
        for (int64_t i0 = 0; i0 < (p)->n; i0 += TILE)                  \
            for (int64_t r = r0; r < r0 + TILE && r < (p)->rows; r++)  \
                for (int64_t i = i0; i < i0 + TILE && i < (p)->n; i++) \
    ((type *)(void *)(to))[r * (p)->to_row + i * (p)->to_step] assign( \
        (const type *)(const void *)(from))[r * (p)->from_row + i * (p)->from_step]

static void copy_plane(const job *j, const char *from, char *to, const plane *p)
{
    const size_t bytes = j->m->element_bytes;
    if (j->add)
        COPY_TILES(float, from, to, p, +=);
    else if (p->from_step == 1 && p->to_step == 1)
        for (int64_t r = 0; r < p->rows; r++)
            memcpy(to + (size_t)(r * p->to_row) * bytes, from + (size_t)(r * p->from_row) * bytes,
                   (size_t)p->n * bytes);
    else if (bytes == sizeof(uint16_t))
        COPY_TILES(uint16_t, from, to, p, =);
    else
        COPY_TILES(uint32_t, from, to, p, =);
}

static void copy_planes(void *arg, size_t begin, size_t end)
{
    const job *j = arg;
    const move *m = j->m;
    const box_dim *d = m->dim, *row = &d[FR_MAX_DIMS - 2], *step = &d[FR_MAX_DIMS - 1];
    const plane forward = {row->n, step->n, row->x, step->x, row->y, step->y},
                back = {row->n, step->n, row->y, step->y, row->x, step->x};
    for (size_t i = begin; i < end; i++) {
        const int64_t sample = (int64_t)i / m->n_planes, p = (int64_t)i % m->n_planes,
                      outer = p / d[1].n, inner = p % d[1].n;
        const size_t x = (size_t)(sample * m->n_x + m->x_at + outer * d[0].x + inner * d[1].x),
                     y = (size_t)(sample * m->n_y + m->y_at + outer * d[0].y + inner * d[1].y);
        copy_plane(j, j->from + (j->is_back ? y : x) * m->element_bytes,
                   j->to + (j->is_back ? x : y) * m->element_bytes, j->is_back ? &back : &forward);
    }
}

static void fill_values(void *arg, size_t begin, size_t end)
{
    const job *j = arg;
    if (j->is_back) {
        memset(j->to + begin * j->m->element_bytes, 0, (end - begin) * j->m->element_bytes);
    } else if (j->m->element_bytes == sizeof(uint16_t)) {
        const uint16_t value = fr__bf16_of(j->m->value);
        for (size_t i = begin; i < end; i++) ((uint16_t *)(void *)j->to)[i] = value;
    } else {
        for (size_t i = begin; i < end; i++) ((float *)(void *)j->to)[i] = j->m->value;
    }
}

static fr_status run(const fr__kernel *k, job *j, size_t n_to, bool is_whole)
{
    const move *m = j->m;
    if (!is_whole && !j->add) fr__cpu_parallel(k->dev, n_to, 4096, fill_values, j);
    fr__cpu_parallel(k->dev, (size_t)(k->batch * m->n_planes), 1, copy_planes, j);
    return FR_OK;
}

static fr_status move_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const move *m = (const move *)k;
    job j = {.m = m, .from = a->x[0], .to = a->y};
    return run(k, &j, (size_t)(k->batch * m->n_y), m->fills_y);
}

static fr_status move_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const move *m = (const move *)k;
    job j = {.m = m, .from = a->dy, .to = a->dx[0], .is_back = true, .add = a->add_dx[0]};
    return run(k, &j, (size_t)(k->batch * m->n_x), m->fills_x);
}

static const fr__kernel_ops move_ops = {.forward = move_forward,
                                        .backward_input = move_backward_input};

/* Numbers from one item of dimension d to the next. */
static int64_t stride_of(const fr_shape *s, int d)
{
    int64_t n = 1;
    for (int i = d + 1; i < s->n_dims; i++) n *= s->dim[i];
    return n;
}

/* The box, in order of the output's dimensions (of pad: the same as the input's). */
static int find_box(move *m, const fr_shape *in, box_dim *box)
{
    const fr_node *node = m->k.node;
    const fr_attrs *a = &node->attrs;
    const fr_shape *out = &node->shape;
    for (int d = 0; d < out->n_dims; d++) {
        int from = d;
        if (node->op == FR_OP_TRANSPOSE) from = a->transpose.order[d];
        if (node->op == FR_OP_SELECT) from = d + (d >= a->select.axis);
        box[d] = (box_dim){node->op == FR_OP_PAD ? in->dim[d] : out->dim[d], stride_of(in, from),
                           stride_of(out, d)};
        if (node->op == FR_OP_PAD) m->y_at += a->pad.before[d] * box[d].y;
    }
    if (node->op == FR_OP_SLICE) m->x_at = a->slice.from * stride_of(in, a->slice.axis);
    if (node->op == FR_OP_SELECT) m->x_at = a->select.index * stride_of(in, a->select.axis);
    if (node->op == FR_OP_PAD) m->value = a->pad.value;
    return out->n_dims;
}

/* Joins dimensions that are contiguous in both, and puts them last. */
static void join_dims(move *m, const box_dim *box, int n)
{
    int last = FR_MAX_DIMS;
    for (int d = n - 1; d >= 0; d--) {
        box_dim *inner = last < FR_MAX_DIMS ? &m->dim[last] : NULL;
        if (box[d].n == 1) continue;
        if (inner && box[d].x == inner->n * inner->x && box[d].y == inner->n * inner->y)
            inner->n *= box[d].n;
        else
            m->dim[--last] = box[d];
    }
    while (last > 0) m->dim[--last] = (box_dim){1, 1, 1};
}

fr_status fr__cpu_move(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    if (spec->x[0]->dtype != spec->y_type)
        return fr__kernel_in_floats(spec, arena, fr__cpu_move, out);
    move *m = (move *)fr__kernel_new(spec, arena, sizeof *m, &move_ops);
    if (!m) return FR_NO_MEMORY;
    const fr_shape *in = &fr_graph_node(spec->graph, spec->inputs[0])->shape;
    box_dim box[FR_MAX_DIMS];
    join_dims(m, box, find_box(m, in, box));
    m->n_planes = m->dim[0].n * m->dim[1].n;
    m->n_x = fr_shape_count(in), m->n_y = fr_shape_count(&m->k.node->shape);
    const int64_t n = m->n_planes * m->dim[2].n * m->dim[3].n;
    m->fills_x = n == m->n_x, m->fills_y = n == m->n_y;
    m->element_bytes = fr_dtype_bytes(m->k.y.dtype);
    m->k.can_add_dx = m->k.y.dtype == FR_F32;
    *out = &m->k;
    return FR_OK;
}
