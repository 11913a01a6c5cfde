/* judge.c -- wrapped kernels: forced layouts, poisoned memory, checked padding. */
#include "support/judge.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"

const char *const judge_layout_names[JUDGE_LAYOUT_COUNT] = {
    "layouts of this processor", "row-major", "blocks of 8", "blocks of 16", "mixed layouts"};

static judge_layout forced;
static fr_backend judged;

typedef struct judge {
    fr__kernel base;
    fr__kernel_ops ops;
    fr__kernel *inner;
    int n_inputs;
    uint64_t moved; /* bit i: the inner kernel gets input i in another layout than the program's */
    fr__layout given[FR_MAX_INPUTS], seen[FR_MAX_INPUTS];
    size_t x_at[FR_MAX_INPUTS], dx_at[FR_MAX_INPUTS]; /* in scratch, behind that of the inner one */
} judge;

static bool is_moved(const judge *j, int i) { return j->moved >> i & 1; }

static void poison(void *at, size_t bytes)
{
    if (at) memset(at, 0xff, bytes);
}

static fr_status move(judge *j, const fr__layout *from, const void *src, const fr__layout *to,
                      void *dst)
{
    return j->base.dev->backend->relayout(j->base.dev, from, src, to, dst);
}

/* Numbers of a tensor beyond its padding and gaps. */
static size_t plain_bytes(const fr__layout *layout)
{
    const fr__md_view v = fr__md_view_of(layout->desc);
    size_t n = sizeof(float);
    for (int i = 0; i < v.n_dims; i++) n *= (size_t)v.dims[i];
    return n;
}

/* Writes the tensor twice, over ones and over NaN: bytes that agree are its numbers and its
 * padding, which must be zero; bytes that differ are gaps that are never read. */
static fr_status check_padding(judge *j, const char *when, const char *what, const fr__layout *l,
                               const void *at)
{
    if (!l->desc || !at) return FR_OK;
    const fr__layout plain = {.bytes = plain_bytes(l)};
    float *numbers = malloc(plain.bytes);
    uint32_t *one = malloc(l->bytes), *other = malloc(l->bytes);
    if (!numbers || !one || !other) abort();
    memset(one, 0xff, l->bytes);
    memset(other, 0x3f, l->bytes);
    fr_status status = move(j, l, at, &plain, numbers);
    if (status == FR_OK) status = move(j, &plain, numbers, l, one);
    if (status == FR_OK) status = move(j, &plain, numbers, l, other);
    const uint32_t *now = at;
    for (size_t i = 0; i < l->bytes / sizeof *now && status == FR_OK; i++) {
        bool is_zero = one[i] == 0 && now[i] << 1 == 0; /* of either sign */
        if (one[i] != other[i] || one[i] == now[i] || is_zero) continue;
        float found;
        memcpy(&found, &now[i], sizeof found);
        status = fr_fail(j->base.ctx, FR_INTERNAL,
                         "node %s, %s: padding of %s is %g, not zero (float %zu of %zu; %s)",
                         j->base.node->name, when, what, (double)found, i, l->bytes / sizeof *now,
                         judge_layout_names[forced]);
    }
    free(numbers), free(one), free(other);
    return status;
}

/* Arguments of the inner kernel: inputs in its layouts, scratch and gradients poisoned. */
static fr_status enter(judge *j, const fr__kernel_args *a, uint64_t needed, fr__kernel_args *inner)
{
    *inner = *a;
    poison(a->scratch, j->inner->scratch_bytes);
    for (int i = 0; i < j->n_inputs; i++) {
        if (is_moved(j, i)) {
            char *x = (char *)a->scratch + j->x_at[i], *dx = (char *)a->scratch + j->dx_at[i];
            poison(x, j->seen[i].bytes);
            if (needed >> i & 1) FR_TRY(move(j, &j->given[i], a->x[i], &j->seen[i], x));
            inner->x[i] = x;
            inner->dx[i] = a->dx[i] ? dx : NULL;
            if (a->dx[i] && a->add_dx[i]) FR_TRY(move(j, &j->given[i], a->dx[i], &j->seen[i], dx));
        }
    }
    return FR_OK;
}

static fr_status judge_forward(fr__kernel *k, const fr__kernel_args *a)
{
    judge *j = (judge *)k;
    fr__kernel_args inner;
    if (a->y != a->x[0]) poison(a->y, k->y.bytes);
    if (j->inner->y_is_x0) return move(j, &j->given[0], a->x[0], &k->y, a->y);
    poison(a->saved, k->saved_bytes);
    FR_TRY(enter(j, a, UINT64_MAX, &inner));
    FR_TRY(j->inner->ops->forward(j->inner, &inner));
    return check_padding(j, "forward", "the output", &k->y, a->y);
}

static fr_status judge_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    judge *j = (judge *)k;
    fr__kernel_args inner;
    FR_TRY(enter(j, a, k->needs_x, &inner));
    if (dz != a->dy) poison(dz, k->y.bytes);
    FR_TRY(j->inner->ops->prepare_dy(j->inner, &inner, dz));
    return check_padding(j, "gradient of the activation", "the gradient", &k->y, dz);
}

static fr_status judge_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    judge *j = (judge *)k;
    fr__kernel_args inner;
    FR_TRY(enter(j, a, k->needs_x, &inner));
    if (!a->cache_valid) poison(a->cache, k->cache_bytes);
    for (int i = 0; i < j->n_inputs; i++) {
        bool is_fresh = inner.dx[i] && !a->add_dx[i] && inner.dx[i] != a->dy;
        if (is_fresh) poison(inner.dx[i], j->seen[i].bytes);
    }
    if (j->inner->ops->backward_input) FR_TRY(j->inner->ops->backward_input(j->inner, &inner));
    for (int i = 0; i < j->n_inputs; i++) {
        const bool is_passed = j->inner->pass_dx >> i & 1;
        if (!a->dx[i]) continue;
        if (!is_passed)
            FR_TRY(check_padding(j, "backward", "the input's gradient", &j->seen[i], inner.dx[i]));
        if (!is_moved(j, i)) continue;
        FR_TRY(is_passed ? move(j, &k->y, a->dy, &j->given[i], a->dx[i])
                         : move(j, &j->seen[i], inner.dx[i], &j->given[i], a->dx[i]));
    }
    return FR_OK;
}

static fr_status judge_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    judge *j = (judge *)k;
    fr__kernel_args inner;
    FR_TRY(enter(j, a, k->needs_x, &inner));
    FR_TRY(j->inner->ops->backward_weight(j->inner, &inner));
    const bool is_transient = a->pass->transient_grads && !a->add_dw;
    for (int i = 0; i < FR_MAX_PARAMS; i++) {
        if (!a->dw[i] || (is_transient && k->reports_ready >> i & 1)) continue;
        FR_TRY(check_padding(j, "backward", "a weight's gradient", &k->w[i], a->dw[i]));
    }
    return FR_OK;
}

static void judge_destroy(fr__kernel *k)
{
    judge *j = (judge *)k;
    if (j->inner && j->inner->ops->destroy) j->inner->ops->destroy(j->inner);
}

/* The inner kernel's fields, without its options on reordered inputs. */
static void take_over(judge *j)
{
    fr__kernel *k = &j->base;
    const fr__kernel *in = j->inner;
    const fr__kernel_ops *ops = in->ops;
    const bool is_first_moved = is_moved(j, 0);
    k->y = in->y;
    k->w = in->w;
    k->saved_bytes = in->saved_bytes;
    k->cache_bytes = in->cache_bytes;
    k->needs_x = in->needs_x;
    k->needs_y = in->needs_y;
    k->reports_ready = in->reports_ready;
    k->can_add_dx = in->can_add_dx;
    k->pass_dx = in->pass_dx & ~j->moved;
    k->y_is_x0 = in->y_is_x0 && !is_first_moved;
    k->can_overwrite_x0 = in->can_overwrite_x0 && !is_first_moved;
    k->can_overwrite_dy = in->can_overwrite_dy && !is_first_moved;
    k->scratch_bytes = fr__align_up(in->scratch_bytes);
    for (int i = 0; i < j->n_inputs; i++) {
        if (!is_moved(j, i)) continue;
        j->x_at[i] = k->scratch_bytes;
        j->dx_at[i] = j->x_at[i] + fr__align_up(j->seen[i].bytes);
        k->scratch_bytes = j->dx_at[i] + fr__align_up(j->seen[i].bytes);
    }
    bool has_moves = (in->pass_dx & j->moved) != 0;
    j->ops = (fr__kernel_ops){
        .forward = judge_forward,
        .prepare_dy = ops->prepare_dy ? judge_prepare_dy : NULL,
        .backward_input = ops->backward_input || has_moves ? judge_backward_input : NULL,
        .backward_weight = ops->backward_weight ? judge_backward_weight : NULL,
        .destroy = judge_destroy};
}

static int lanes_of_input(const fr__kernel_spec *spec, int i)
{
    static const int lanes[JUDGE_LAYOUT_COUNT] = {0, 1, 8, 16, 0}, mixed[] = {16, 1, 8};
    return forced == JUDGE_MIXED ? mixed[(spec->nodes[0] + i) % 3] : lanes[forced];
}

static fr_status make(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    judge *j = (judge *)fr__kernel_new(spec, arena, sizeof(judge), NULL);
    if (!j) return FR_NO_MEMORY;
    fr__kernel_spec inner = *spec;
    j->n_inputs = spec->n_inputs;
    j->base.ops = &j->ops;
    j->ops.destroy = judge_destroy;
    *out = &j->base;
    for (int i = 0; i < spec->n_inputs; i++) {
        const fr_node *node = fr_graph_node(spec->graph, spec->inputs[i]);
        j->given[i] = j->seen[i] = *spec->x[i];
        inner.x[i] = &j->seen[i];
        if (forced == JUDGE_OWN || node->shape.n_dims != 3 || node->dtype != FR_F32) continue;
        FR_TRY(fr__layout_with_lanes(&j->base, node, lanes_of_input(spec, i), &j->seen[i]));
        if (j->seen[i].desc != j->given[i].desc) j->moved |= UINT64_C(1) << i;
    }
    fr_operator op = fr_graph_node(spec->graph, spec->nodes[0])->op;
    FR_TRY(fr__backend_cpu.makers[op](&inner, arena, &j->inner));
    take_over(j);
    return FR_OK;
}

static fr_status open_forced(fr_device *dev, const fr_device_desc *desc)
{
    static const int lanes[JUDGE_LAYOUT_COUNT] = {0, 1, 8, 16, 16};
    FR_TRY(fr__backend_cpu.open(dev, desc));
    fr__cpu_device *cpu = fr__cpu(dev);
    if (forced == JUDGE_OWN) return FR_OK;
    cpu->lanes = lanes[forced];
    cpu->forces_lanes = true;
    return FR_OK;
}

const fr_backend *judge_cpu(judge_layout layout)
{
    static fr__kernel_maker makers[FR_OPERATOR_COUNT];
    for (int i = 0; i < FR_OPERATOR_COUNT; i++) makers[i] = fr__backend_cpu.makers[i] ? make : NULL;
    forced = layout;
    judged = fr__backend_cpu;
    judged.makers = makers;
    judged.open = open_forced;
    return &judged;
}
