/* concat.c -- concat, and flatten: operators that only move data.
 *
 * In a row-major tensor, and in one whose channels are blocked without padding, the channels of
 * one sample are contiguous. So a concat is one copy per sample and input:
 *
 *     x0  [s0: aaaa][s1: aaaa]          y  [s0: aaaabb][s1: aaaabb]
 *     x1  [s0: bb][s1: bb]
 *
 * Along a later dimension of row-major tensors rows take the place of samples. */
#include "backend/cpu/cpu.h"

#include <string.h>

typedef struct concat {
    fr__kernel base;
    int n_inputs;
    size_t n_rows;                      /* samples; along a later axis, rows before it */
    size_t piece[FR_MAX_INPUTS], whole; /* bytes of a row */
} concat;

typedef struct call {
    const concat *c;
    const fr__kernel_args *a;
} call;

static void join_rows(void *arg, size_t begin, size_t end)
{
    const concat *c = ((call *)arg)->c;
    const fr__kernel_args *a = ((call *)arg)->a;
    for (size_t s = begin; s < end; s++) {
        char *y = (char *)a->y + s * c->whole;
        for (int i = 0; i < c->n_inputs; y += c->piece[i++])
            memcpy(y, (const char *)a->x[i] + s * c->piece[i], c->piece[i]);
    }
}

static void add_floats(float *restrict to, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] += x[i];
}

static void part_rows(void *arg, size_t begin, size_t end)
{
    const concat *c = ((call *)arg)->c;
    const fr__kernel_args *a = ((call *)arg)->a;
    for (size_t s = begin; s < end; s++) {
        const char *dy = (const char *)a->dy + s * c->whole;
        for (int i = 0; i < c->n_inputs; dy += c->piece[i++]) {
            if (!a->dx[i]) continue;
            char *dx = (char *)a->dx[i] + s * c->piece[i];
            if (a->add_dx[i])
                add_floats((float *)(void *)dx, (const float *)(const void *)dy, c->piece[i] / 4);
            else
                memcpy(dx, dy, c->piece[i]);
        }
    }
}

static fr_status concat_forward(fr__kernel *k, const fr__kernel_args *a)
{
    fr__cpu_parallel(k->dev, ((concat *)k)->n_rows, 1, join_rows, &(call){(concat *)k, a});
    return FR_OK;
}

static fr_status concat_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    fr__cpu_parallel(k->dev, ((concat *)k)->n_rows, 1, part_rows, &(call){(concat *)k, a});
    return FR_OK;
}

static const fr__kernel_ops concat_ops = {.forward = concat_forward,
                                          .backward_input = concat_backward_input};

/* Whether all inputs have blocks of channels without padding: then the output can have them too. */
static fr_status find_blocked(const fr__kernel *k, const fr__kernel_spec *spec, bool *are_blocked,
                              fr__md *y)
{
    *are_blocked = !spec->plain_output && k->node->attrs.concat.axis == 0;
    for (int i = 0; i < spec->n_inputs && *are_blocked; i++) {
        fr__md blocked;
        FR_TRY(fr__md_blocked(k, fr_graph_node(spec->graph, spec->inputs[i]), &blocked));
        *are_blocked = spec->x[i]->desc && dnnl_memory_desc_equal(spec->x[i]->desc, blocked);
    }
    return fr__md_blocked(k, k->node, y);
}

fr_status fr__cpu_concat(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    for (int i = 0; i < spec->n_inputs; i++)
        if (spec->x[i]->dtype != spec->y_type)
            return fr__kernel_in_floats(spec, arena, fr__cpu_concat, out);
    fr__kernel *k = fr__kernel_new(spec, arena, sizeof(concat), &concat_ops);
    if (!k) return FR_NO_MEMORY;
    bool are_blocked, are_plain = true;
    fr__md y;
    FR_TRY(find_blocked(k, spec, &are_blocked, &y));
    for (int i = 0; i < spec->n_inputs; i++) are_plain = are_plain && !spec->x[i]->desc;
    if (!are_blocked && !are_plain) return fr__cpu_wrap_plain(spec, arena, fr__cpu_concat, out);
    *out = k;
    concat *c = (concat *)k;
    c->n_inputs = spec->n_inputs;
    c->n_rows = (size_t)k->batch;
    int axis = k->node->attrs.concat.axis;
    for (int i = 0; i < axis; i++) c->n_rows *= (size_t)k->node->shape.dim[i];
    for (int i = 0; i < spec->n_inputs; i++) {
        const fr_shape *in = &fr_graph_node(spec->graph, spec->inputs[i])->shape;
        c->piece[i] = fr_dtype_bytes(k->y.dtype);
        for (int d = axis; d < in->n_dims; d++) c->piece[i] *= (size_t)in->dim[d];
        c->whole += c->piece[i];
        if (k->y.dtype == FR_F32) k->can_add_dx |= UINT64_C(1) << i;
    }
    return are_blocked ? fr__layout_of_md(k, y, &k->y) : FR_OK;
}

static const fr__kernel_ops flatten_ops = {0};

/* A flattened row-major tensor has the same bytes. */
fr_status fr__cpu_flatten(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    *out = fr__kernel_new(spec, arena, sizeof(fr__kernel), &flatten_ops);
    if (!*out) return FR_NO_MEMORY;
    (*out)->y_is_x0 = true;
    (*out)->pass_dx = 1;
    return FR_OK;
}
