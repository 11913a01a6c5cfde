/* batch_norm.c -- batch normalisation (Ioffe and Szegedy, 2015), with the relu behind it fused.
 *
 * Parameters: weight, bias (trained), running_mean, running_var (buffers). oneDNN computes all
 * gradients in one go, so backward_input does that and leaves the two parameter gradients in
 * `saved` for backward_weight; where no input gradient is wanted, backward_weight does it all. */
#include "backend/cpu/cpu.h"

#include <string.h>

typedef struct bn {
    fr_kernel base;
    bool has_relu;
    size_t channels;
    dnnl_memory_desc_t x_given, y_given, data; /* as the program has them; as they are computed */
    fr_prim forward, back;
    size_t relu_at; /* of oneDNN's relu mask in saved, behind the vectors below */
    size_t dx_at;   /* in scratch, where nobody wants dx */
} bn;

/* Vectors of `channels` floats at the front of `saved`. */
enum { MEAN, VARIANCE, D_WEIGHT, D_BIAS, N_VECTORS };

static float *vector(const bn *b, const fr_kernel_args *a, int which)
{
    return (float *)((char *)a->saved + (size_t)which * fr__align_up(b->channels * sizeof(float)));
}

static void *relu_mask(const bn *b, const fr_kernel_args *a)
{
    return (char *)a->saved + b->relu_at;
}

/* PyTorch's rule: momentum is the weight of the new value; the variance kept is the unbiased one.
 */
static void update_running(const bn *b, const fr_kernel_args *a)
{
    const float *mean = vector(b, a, MEAN), *variance = vector(b, a, VARIANCE);
    float *running_mean = a->buffers[2], *running_var = a->buffers[3];
    const float m = b->base.node->attrs.norm.momentum;
    double n = (double)fr_shape_count(&b->base.node->shape) * b->base.batch / (double)b->channels;
    const float unbias = (float)(n / (n - 1));
    for (size_t c = 0; c < b->channels; c++) {
        running_mean[c] = (1 - m) * running_mean[c] + m * mean[c];
        running_var[c] = (1 - m) * running_var[c] + m * (variance[c] * unbias);
    }
}

static fr_status bn_forward_training(fr_kernel *k, const fr_kernel_args *a)
{
    bn *b = (bn *)k;
    FR_TRY(fr__prim_run(k, &b->forward, a->scratch,
                        FR_TENSORS(a->x[0], a->w[0], a->w[1], vector(b, a, MEAN),
                                   vector(b, a, VARIANCE), a->y, relu_mask(b, a))));
    update_running(b, a);
    return FR_OK;
}

static fr_status bn_forward(fr_kernel *k, const fr_kernel_args *a)
{
    return fr__prim_run(k, &((bn *)k)->forward, a->scratch,
                        FR_TENSORS(a->x[0], a->w[0], a->w[1], a->w[2], a->w[3], a->y));
}

static fr_status back(bn *b, const fr_kernel_args *a, void *dx)
{
    return fr__prim_run(&b->base, &b->back, a->scratch,
                        FR_TENSORS(a->x[0], a->w[0], a->w[1], vector(b, a, MEAN),
                                   vector(b, a, VARIANCE), a->dy, dx, vector(b, a, D_WEIGHT),
                                   vector(b, a, D_BIAS), relu_mask(b, a)));
}

static fr_status bn_backward_input(fr_kernel *k, const fr_kernel_args *a)
{
    return back((bn *)k, a, a->dx[0]);
}

static fr_status bn_backward_weight(fr_kernel *k, const fr_kernel_args *a)
{
    bn *b = (bn *)k;
    if (!k->ops->backward_input) FR_TRY(back(b, a, (char *)a->scratch + b->dx_at));
    for (int i = 0; i < 2; i++) {
        const float *fresh = vector(b, a, D_WEIGHT + i);
        if (a->add_dw)
            fr__cpu_add(k->dev, a->dw[i], fresh, b->channels);
        else
            memcpy(a->dw[i], fresh, b->channels * sizeof(float));
    }
    return FR_OK;
}

static void bn_destroy(fr_kernel *k)
{
    bn *b = (bn *)k;
    fr__prim_fini(&b->forward);
    fr__prim_fini(&b->back);
}

static fr_status describe(bn *b, const fr_kernel_spec *spec, fr_arena *arena)
{
    fr_kernel *k = &b->base;
    b->has_relu = fr__group_has(spec, FR_OP_RELU);
    b->channels = (size_t)k->node->shape.dim[0];
    FR_TRY(fr__md_of_layout(k, spec->x[0], k->node, &b->x_given));
    FR_TRY(fr__md_blocked(k, k->node, &b->data));
    b->y_given = b->data;
    if (spec->plain_output) FR_TRY(fr__md_plain(k, k->node, &b->y_given));
    int64_t n = fr_shape_count(&k->node->shape) / k->node->shape.dim[0] * k->batch;
    if (k->training && n < 2)
        return fr_fail(k->ctx, FR_INVALID,
                       "node %s: batch_norm cannot train on one value a channel; use a batch or "
                       "micro-batch of at least 2",
                       k->node->name);
    return fr__layout_of_md(k, arena, &b->y_given, &k->y);
}

static unsigned flags_of(const bn *b)
{
    return dnnl_use_scale | dnnl_use_shift | (b->has_relu ? dnnl_fuse_norm_relu : 0u) |
           (b->base.training ? 0u : dnnl_use_global_stats);
}

static fr_status make_forward(bn *b, fr_arena *arena)
{
    fr_kernel *k = &b->base;
    const char *what = "forward batch norm";
    dnnl_batch_normalization_desc_t op;
    FR_TRY_DNNL(k, what,
                dnnl_batch_normalization_forward_desc_init(
                    &op, k->training ? dnnl_forward_training : dnnl_forward_inference, &b->data,
                    k->node->attrs.norm.eps, flags_of(b)));
    dnnl_primitive_desc_t desc;
    FR_TRY(fr__prim_desc(k, what, &op, NULL, NULL, &desc));
    const fr_arg args[] = {{.id = DNNL_ARG_SRC, .md = &b->x_given},
                           {.id = DNNL_ARG_SCALE},
                           {.id = DNNL_ARG_SHIFT},
                           {.id = DNNL_ARG_MEAN},
                           {.id = DNNL_ARG_VARIANCE},
                           {.id = DNNL_ARG_DST, .md = &b->y_given, .is_output = true},
                           {.id = DNNL_ARG_WORKSPACE}};
    int n_args = b->has_relu && k->training ? 7 : 6;
    FR_TRY(fr__prim_init(k, arena, what, desc, n_args, args, &b->forward));
    k->scratch_bytes = b->forward.scratch_bytes;
    return FR_OK;
}

static fr_status make_back(bn *b, fr_arena *arena)
{
    fr_kernel *k = &b->base;
    const char *what = "gradient of batch norm";
    dnnl_batch_normalization_desc_t op;
    FR_TRY_DNNL(k, what,
                dnnl_batch_normalization_backward_desc_init(&op, dnnl_backward, &b->data, &b->data,
                                                            k->node->attrs.norm.eps, flags_of(b)));
    dnnl_primitive_desc_t desc;
    FR_TRY(fr__prim_desc(k, what, &op, NULL, b->forward.desc, &desc));
    const fr_arg args[] = {{.id = DNNL_ARG_SRC, .md = &b->x_given},
                           {.id = DNNL_ARG_SCALE},
                           {.id = DNNL_ARG_SHIFT},
                           {.id = DNNL_ARG_MEAN},
                           {.id = DNNL_ARG_VARIANCE},
                           {.id = DNNL_ARG_DIFF_DST, .md = &b->y_given},
                           {.id = DNNL_ARG_DIFF_SRC, .md = &b->x_given, .is_output = true},
                           {.id = DNNL_ARG_DIFF_SCALE, .is_output = true},
                           {.id = DNNL_ARG_DIFF_SHIFT, .is_output = true},
                           {.id = DNNL_ARG_WORKSPACE}};
    FR_TRY(fr__prim_init(k, arena, what, desc, b->has_relu ? 10 : 9, args, &b->back));
    b->dx_at = fr__align_up(b->back.scratch_bytes);
    size_t bytes = b->dx_at;
    if (!k->ops->backward_input) bytes += fr__align_up(dnnl_memory_desc_get_size(&b->x_given));
    if (bytes > k->scratch_bytes) k->scratch_bytes = bytes;
    b->relu_at = N_VECTORS * fr__align_up(b->channels * sizeof(float));
    k->saved_bytes = b->relu_at;
    if (b->has_relu)
        k->saved_bytes += dnnl_memory_desc_get_size(fr__prim_md(&b->forward, DNNL_ARG_WORKSPACE));
    return FR_OK;
}

static const fr_kernel_ops evaluating = {.forward = bn_forward, .destroy = bn_destroy};
static const fr_kernel_ops training = {.forward = bn_forward_training,
                                       .backward_input = bn_backward_input,
                                       .backward_weight = bn_backward_weight,
                                       .destroy = bn_destroy};
static const fr_kernel_ops training_first = {
    .forward = bn_forward_training, .backward_weight = bn_backward_weight, .destroy = bn_destroy};

fr_status fr__cpu_batch_norm(const fr_kernel_spec *spec, fr_arena *arena, fr_kernel **out)
{
    const fr_kernel_ops *ops = !spec->training    ? &evaluating
                               : spec->need_dx[0] ? &training
                                                  : &training_first;
    fr_kernel *k = fr__kernel_new(spec, arena, sizeof(bn), ops);
    if (!k) return FR_NO_MEMORY;
    *out = k; /* from here on `destroy` cleans up */
    bn *b = (bn *)k;
    FR_TRY(describe(b, spec, arena));
    FR_TRY(make_forward(b, arena));
    k->can_overwrite_x0 = true;
    if (!spec->training) return FR_OK;
    k->needs_x = 1;
    return make_back(b, arena);
}
