/* conv.c -- conv2d, with a following relu fused, on oneDNN; conv_small.c computes small maps.
 *
 * Layouts: oneDNN chooses those of input, weights and output from the shapes alone, never from
 * the layout of the actual input, so a network keeps its bits when it is cut. An input in another
 * layout is reordered. Weights, gradients and optimizer state have the forward's layout. Backward
 * data needs the weights in another layout: the cache holds a copy.
 *
 * A backward pass takes the layouts of the forward, unless oneDNN has only slow code for them and
 * faster code for its own choice (on AVX2: weight gradients of 3x3 kernels on 2x2 maps, 500 times
 * faster by GEMM in a plain layout). */
#include "backend/cpu/cpu.h"

typedef struct conv {
    fr__kernel base;
    bool has_bias, has_relu;
    fr__window window;
    fr__md x_given, y_given; /* as the program holds them */
    fr__md x, w, y;          /* as the forward primitive requires them */
    fr__md w_any, b, x_any, y_any;
    fr__prim forward, back_input, back_weight;
    fr__prim turn_weights; /* to the layout of back_input; absent if it is the same */
    size_t dw_at, db_at;   /* in scratch: gradients of one micro-batch, where dw must be added to */
} conv;

static const float *bias_of(const conv *c, const fr__kernel_args *a)
{
    return c->has_bias ? a->w[1] : NULL;
}

static fr_status conv_forward(fr__kernel *k, const fr__kernel_args *a)
{
    conv *c = (conv *)k;
    FR_TRY(fr__prim_run(k, &c->forward, a->scratch,
                        FR_TENSORS(a->x[0], a->w[0], a->y, bias_of(c, a))));
    if (c->has_relu) fr__cpu_relu(k->dev, a->y, fr__layout_count(&k->y));
    return FR_OK;
}

static fr_status conv_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    fr__cpu_relu_back(k->dev, dz, a->dy, a->y, fr__layout_count(&k->y));
    return FR_OK;
}

static fr_status conv_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    conv *c = (conv *)k;
    const void *w = a->w[0];
    if (c->turn_weights.handle) {
        w = a->cache;
        if (!a->cache_valid)
            FR_TRY(fr__prim_run(k, &c->turn_weights, a->scratch, FR_TENSORS(a->w[0], w)));
    }
    return fr__prim_run(k, &c->back_input, a->scratch, FR_TENSORS(a->dy, w, a->dx[0]));
}

static fr_status conv_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    conv *c = (conv *)k;
    float *dw = a->dw[0], *db = c->has_bias ? a->dw[1] : NULL;
    if (a->add_dw) {
        dw = (float *)((char *)a->scratch + c->dw_at);
        db = (float *)((char *)a->scratch + c->db_at);
    }
    FR_TRY(fr__prim_run(k, &c->back_weight, a->scratch, FR_TENSORS(a->x[0], a->dy, dw, db)));
    if (!a->add_dw) return FR_OK;
    fr__host_add(k->dev, FR_F32, a->dw[0], dw, fr__layout_count(&k->w[0]));
    if (c->has_bias) fr__host_add(k->dev, FR_F32, a->dw[1], db, fr__layout_count(&k->w[1]));
    return FR_OK;
}

static void conv_destroy(fr__kernel *k)
{
    conv *c = (conv *)k;
    fr__prim_fini(&c->forward);
    fr__prim_fini(&c->back_input);
    fr__prim_fini(&c->back_weight);
    fr__prim_fini(&c->turn_weights);
}

/* The best implementation among several ways to lay out the tensors; the first of equals. */
static fr_status choose(const fr__kernel *k, const char *what, int n, const fr__conv_op *ways,
                        const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    const fr__cpu_device *cpu = fr__cpu(k->dev);
    int best = FR_IMPL_NONE;
    dnnl_status_t failure = dnnl_unimplemented;
    for (int i = 0; i < n && best != FR_IMPL_JIT; i++) {
        dnnl_primitive_desc_t desc;
        dnnl_status_t status = fr__conv_desc(cpu, &ways[i], 0, hint, &desc);
        if (status != dnnl_success) {
            failure = status;
            continue;
        }
        int rank = fr__impl_rank(desc);
        if (rank < best) {
            if (best != FR_IMPL_NONE) dnnl_primitive_desc_destroy(*out);
            *out = desc;
            best = rank;
        } else {
            dnnl_primitive_desc_destroy(desc);
        }
    }
    return best == FR_IMPL_NONE ? fr__dnnl_fail(k, what, failure) : FR_OK;
}

/* Row-major weights are (out, in / groups, height, width); oneDNN splits `out` by groups. */
static fr_status describe(conv *c, const fr__kernel_spec *spec)
{
    fr__kernel *k = &c->base;
    const fr_node *in = fr_graph_node(spec->graph, spec->inputs[0]), *node = k->node;
    const dnnl_dim_t g = node->attrs.conv2d.groups, out = node->shape.dim[0];
    const dnnl_dim_t from = in->shape.dim[0] / g;
    const dnnl_dim_t height = node->attrs.conv2d.kernel[0], width = node->attrs.conv2d.kernel[1];
    const dnnl_dims_t whole = {out, from, height, width};
    const dnnl_dims_t split = {g, out / g, from, height, width};
    const dnnl_dims_t channels = {out};
    c->has_bias = !node->attrs.conv2d.no_bias;
    c->has_relu = fr__group_has(spec, FR_OP_RELU);
    c->window = fr__window_of(&in->shape, &node->shape, node->attrs.conv2d.kernel,
                              node->attrs.conv2d.stride, node->attrs.conv2d.pad);
    FR_TRY(fr__md_of_layout(k, spec->x[0], in, &c->x_given));
    FR_TRY(fr__md_any(k, in, &c->x_any));
    FR_TRY(fr__md_any(k, node, &c->y_any));
    if (c->has_bias) FR_TRY(fr__md_row_major(k, 1, channels, &c->b));
    return fr__md_any_weights(k, g > 1 ? 5 : 4, g > 1 ? split : whole, &c->w_any);
}

/* The output in the primitive's layout; but row-major if it leaves the program, and blocked for the
 * following nodes if the primitive supports only row-major. */
static fr_status choose_output(conv *c, const fr__kernel_spec *spec)
{
    fr__md plain;
    FR_TRY(fr__md_plain(&c->base, c->base.node, &plain));
    c->y_given = c->y;
    if (spec->plain_output)
        c->y_given = plain;
    else if (dnnl_memory_desc_equal(c->y, plain))
        FR_TRY(fr__md_blocked(&c->base, c->base.node, &c->y_given));
    return FR_OK;
}

/* Always the primitive for training, so that programs for training and evaluation have the same
 * layout of their shared weights. */
static fr_status make_forward(conv *c, const fr__kernel_spec *spec, fr_arena *arena)
{
    fr__kernel *k = &c->base;
    const char *what = "forward convolution";
    const fr__conv_op op = {.pass = dnnl_forward_training,
                            .x = c->x_any,
                            .w = c->w_any,
                            .b = c->b,
                            .y = c->y_any,
                            .window = &c->window};
    dnnl_primitive_desc_t desc;
    FR_TRY_DNNL(k, what, fr__conv_desc(fr__cpu(k->dev), &op, 0, NULL, &desc));
    fr_status status =
        fr__md_keep(k, dnnl_primitive_desc_query_md(desc, dnnl_query_dst_md, 0), &c->y);
    if (status == FR_OK) status = choose_output(c, spec);
    if (status != FR_OK) {
        dnnl_primitive_desc_destroy(desc);
        return status;
    }
    const fr__arg args[] = {{.id = DNNL_ARG_SRC, .md = c->x_given},
                            {.id = DNNL_ARG_WEIGHTS},
                            {.id = DNNL_ARG_DST, .md = c->y_given, .is_output = true},
                            {.id = DNNL_ARG_BIAS}};
    FR_TRY(fr__prim_init(k, arena, what, desc, c->has_bias ? 4 : 3, args, &c->forward));
    FR_TRY(fr__md_keep(k, fr__prim_md(&c->forward, DNNL_ARG_SRC), &c->x));
    FR_TRY(fr__md_keep(k, fr__prim_md(&c->forward, DNNL_ARG_WEIGHTS), &c->w));
    FR_TRY(fr__layout_of_md(k, c->y_given, &k->y));
    FR_TRY(fr__layout_of_md(k, c->w, &k->w[0]));
    k->scratch_bytes = c->forward.scratch_bytes;
    return FR_OK;
}

static fr_status make_back_input(conv *c, fr_arena *arena)
{
    fr__kernel *k = &c->base;
    const char *what = "input gradient of the convolution";
    const fr__conv_op ways[] = {
        {dnnl_backward_data, c->x, c->w_any, NULL, c->y, &c->window},
        {dnnl_backward_data, c->x_any, c->w_any, NULL, c->y_any, &c->window}};
    dnnl_primitive_desc_t desc;
    FR_TRY(choose(k, what, 2, ways, c->forward.desc, &desc));
    const fr__arg args[] = {{.id = DNNL_ARG_DIFF_DST, .md = c->y_given},
                            {.id = DNNL_ARG_WEIGHTS},
                            {.id = DNNL_ARG_DIFF_SRC, .md = c->x_given, .is_output = true}};
    FR_TRY(fr__prim_init(k, arena, what, desc, 3, args, &c->back_input));
    fr__md w = fr__prim_md(&c->back_input, DNNL_ARG_WEIGHTS);
    size_t turn_bytes = 0;
    if (!dnnl_memory_desc_equal(w, c->w)) {
        FR_TRY(fr__reorder_init(k, arena, c->w, w, &c->turn_weights));
        k->cache_bytes = dnnl_memory_desc_get_size(w);
        turn_bytes = c->turn_weights.scratch_bytes;
    }
    size_t most =
        turn_bytes > c->back_input.scratch_bytes ? turn_bytes : c->back_input.scratch_bytes;
    if (most > k->scratch_bytes) k->scratch_bytes = most;
    return FR_OK;
}

static fr_status make_back_weight(conv *c, fr_arena *arena)
{
    fr__kernel *k = &c->base;
    const char *what = "weight gradient of the convolution";
    const fr__conv_op ways[] = {
        {dnnl_backward_weights, c->x, c->w, c->b, c->y, &c->window},
        {dnnl_backward_weights, c->x_any, c->w_any, c->b, c->y_any, &c->window}};
    dnnl_primitive_desc_t desc;
    FR_TRY(choose(k, what, 2, ways, c->forward.desc, &desc));
    const fr__arg args[] = {{.id = DNNL_ARG_SRC, .md = c->x_given},
                            {.id = DNNL_ARG_DIFF_DST, .md = c->y_given},
                            {.id = DNNL_ARG_DIFF_WEIGHTS, .md = c->w, .is_output = true},
                            {.id = DNNL_ARG_DIFF_BIAS, .is_output = true}};
    FR_TRY(fr__prim_init(k, arena, what, desc, c->has_bias ? 4 : 3, args, &c->back_weight));
    c->dw_at = fr__align_up(c->back_weight.scratch_bytes);
    c->db_at = c->dw_at + fr__align_up(k->w[0].bytes);
    size_t bytes = c->db_at + (c->has_bias ? fr__align_up(k->w[1].bytes) : 0);
    if (bytes > k->scratch_bytes) k->scratch_bytes = bytes;
    return FR_OK;
}

/* [a relu is fused][the input needs a gradient] */
static const fr__kernel_ops conv_ops[2][2] = {
    {{conv_forward, NULL, NULL, conv_backward_weight, conv_destroy},
     {conv_forward, NULL, conv_backward_input, conv_backward_weight, conv_destroy}},
    {{conv_forward, conv_prepare_dy, NULL, conv_backward_weight, conv_destroy},
     {conv_forward, conv_prepare_dy, conv_backward_input, conv_backward_weight, conv_destroy}}};

fr_status fr__cpu_conv2d(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    if (fr__cpu_conv2d_is_small(spec)) return fr__cpu_conv2d_small(spec, arena, out);
    const fr__kernel_ops *ops = &conv_ops[fr__group_has(spec, FR_OP_RELU)][spec->need_dx[0]];
    fr__kernel *k = fr__kernel_new(spec, arena, sizeof(conv), ops);
    if (!k) return FR_NO_MEMORY;
    *out = k; /* from here on `destroy` cleans up */
    conv *c = (conv *)k;
    FR_TRY(describe(c, spec));
    FR_TRY(make_forward(c, spec, arena));
    if (!spec->training) return FR_OK;
    k->needs_x = 1;
    k->needs_y = c->has_relu;
    if (spec->need_dx[0]) FR_TRY(make_back_input(c, arena));
    return make_back_weight(c, arena);
}
