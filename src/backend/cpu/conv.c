/* conv.c -- conv2d, with a following relu fused, on oneDNN; conv_small.c computes small maps.
 *
 * Layouts: oneDNN chooses those of input, weights and output from the shapes alone, never from
 * the layout of the actual input, so a network keeps its bits when it is cut. An input in another
 * layout is reordered. Weights, gradients and optimizer state have the forward's layout. Backward
 * data needs the weights in another layout: the cache holds a copy.
 *
 * With bf16 the weights have the layout of their gradients instead, which are floats: oneDNN turns
 * weights of bf16 ten times as fast into the layout of the forward (8i16o2i) as gradients out of
 * their own (16i16o). Where it has no fast bf16 code for one of the passes it computes floats, in
 * evaluation too, since programs share the weights; also where the input is not bf16, such as data,
 * which would have to be rounded. On processors without instructions for bf16 in_floats.c converts
 * the operands.
 *
 * oneDNN's weight gradients of small maps are slow in bf16 too: conv_small.c has those, in floats.
 *
 * A backward pass takes the layouts of the forward, unless oneDNN has only slow code for them and
 * faster code for its own choice (on AVX2: weight gradients of 3x3 kernels on 2x2 maps, 500 times
 * faster by GEMM in a plain layout). */
#include "backend/cpu/cpu.h"

typedef struct conv {
    fr__kernel base;
    bool has_bias, has_relu;
    fr_dtype type; /* of what oneDNN computes with; the program's operands are converted to it */
    fr__window window;
    fr__md x_given, y_given; /* as the program holds them */
    fr__md x, y;             /* as the forward primitive requires them */
    fr__md w, dw;            /* as blocks of weights and of gradients hold them */
    fr__md w_any, dw_any, b, db, x_any, y_any;
    fr__prim forward, back_input, back_weight;
    fr__prim turn_weights; /* to the layout of back_input; absent if it is the same */
    fr__kernel *small;     /* for the weight gradient in place of back_weight, or NULL */
    size_t dw_at, db_at;   /* in scratch: gradients of one micro-batch, where dw must be added to */
} conv;

static fr_status conv_forward(fr__kernel *k, const fr__kernel_args *a)
{
    conv *c = (conv *)k;
    FR_TRY(fr__prim_run(k, &c->forward, a->scratch,
                        FR_TENSORS(a->x[0], a->w[0], a->y, c->has_bias ? a->w[1] : NULL)));
    if (c->has_relu) fr__cpu_relu(k->dev, k->y.dtype, a->y, fr__layout_count(&k->y));
    return FR_OK;
}

static fr_status conv_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    fr__cpu_relu_back(k->dev, k->y.dtype, dz, a->dy, a->y, fr__layout_count(&k->y));
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
    if (c->small) return c->small->ops->backward_weight(c->small, a);
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
    FR_TRY(fr__md_any_weights(k, g > 1 ? 5 : 4, g > 1 ? split : whole, &c->dw_any));
    FR_TRY(fr__md_row_major(k, 1, channels, &c->db));
    c->w_any = c->dw_any;
    c->b = c->db;
    fr__md *const typed[] = {&c->x_any, &c->y_any, &c->w_any, &c->b};
    for (int i = 0; i < 4; i++) FR_TRY(fr__md_as(k, c->type, typed[i]));
    if (!c->has_bias) c->b = c->db = NULL;
    return FR_OK;
}

/* Whether oneDNN has fast bf16 code for all passes; and the layout of the weights, which is that of
 * their gradients. */
static fr_status find_bf16_code(conv *c, bool *is_found)
{
    const fr__kernel *k = &c->base;
    const fr__conv_op passes[] = {
        {dnnl_forward_training, c->x_any, c->w_any, c->b, c->y_any, &c->window},
        {dnnl_backward_data, c->x_any, c->w_any, NULL, c->y_any, &c->window},
        {dnnl_backward_weights, c->x_any, c->dw_any, c->db, c->y_any, &c->window}};
    dnnl_primitive_desc_t descs[3];
    fr_status status = FR_OK;
    int n = 0;
    *is_found = true;
    while (n < 3 && *is_found) {
        const_dnnl_primitive_desc_t hint = n > 0 ? descs[0] : NULL;
        *is_found = fr__conv_desc(fr__cpu(k->dev), &passes[n], 0, hint, &descs[n]) == dnnl_success;
        if (*is_found) *is_found = fr__impl_rank(descs[n++]) < FR_IMPL_REF;
    }
    if (*is_found)
        status = fr__md_keep(
            k, dnnl_primitive_desc_query_md(descs[2], dnnl_query_diff_weights_md, 0), &c->dw);
    while (n > 0) dnnl_primitive_desc_destroy(descs[--n]);
    return status;
}

/* The output in the primitive's layout; but row-major if it leaves the program, and blocked for the
 * following nodes if the primitive supports only row-major. */
static fr_status choose_output(conv *c, const fr__kernel_spec *spec)
{
    fr__md plain;
    FR_TRY(fr__md_plain(&c->base, c->base.node, &plain));
    c->y_given = c->y;
    FR_TRY(fr__md_as(&c->base, FR_F32, &c->y_given));
    if (spec->plain_output)
        c->y_given = plain;
    else if (dnnl_memory_desc_equal(c->y_given, plain))
        FR_TRY(fr__md_blocked(&c->base, c->base.node, &c->y_given));
    return fr__md_as(&c->base, c->base.y.dtype, &c->y_given);
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
    if (status == FR_OK && !c->dw)
        status =
            fr__md_keep(k, dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0), &c->dw);
    fr__md b = c->b;
    c->w = c->dw;
    if (status == FR_OK) status = fr__md_as(k, k->w_type, &c->w);
    if (status == FR_OK && b) status = fr__md_as(k, k->w_type, &b);
    if (status != FR_OK) {
        dnnl_primitive_desc_destroy(desc);
        return status;
    }
    const fr__arg args[] = {{.id = DNNL_ARG_SRC, .md = c->x_given},
                            {.id = DNNL_ARG_WEIGHTS, .md = c->w},
                            {.id = DNNL_ARG_DST, .md = c->y_given, .is_output = true},
                            {.id = DNNL_ARG_BIAS, .md = b}};
    FR_TRY(fr__prim_init(k, arena, what, desc, c->has_bias ? 4 : 3, args, &c->forward));
    FR_TRY(fr__md_keep(k, fr__prim_md(&c->forward, DNNL_ARG_SRC), &c->x));
    FR_TRY(fr__layout_of_md(k, c->y_given, &k->y));
    FR_TRY(fr__layout_of_md(k, c->dw, &k->w[0]));
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

/* conv_small.c has its own idea of layouts, which must be the ones in use. */
static fr_status make_small(conv *c, const fr__kernel_spec *spec, fr_arena *arena)
{
    fr__kernel *k = &c->base, *small;
    if (!fr__cpu_conv2d_is_small(spec) || !fr__layout_lanes(spec->x[0])) return FR_OK;
    FR_TRY(fr__cpu_conv2d_small(spec, arena, &small));
    if (small->w[0].desc != k->w[0].desc || small->y.desc != k->y.desc) return FR_OK;
    c->small = small;
    if (small->scratch_bytes > k->scratch_bytes) k->scratch_bytes = small->scratch_bytes;
    return FR_OK;
}

static fr_status make_back_weight(conv *c, fr_arena *arena)
{
    fr__kernel *k = &c->base;
    const char *what = "weight gradient of the convolution";
    const fr__conv_op ways[] = {
        {dnnl_backward_weights, c->x, c->dw, c->db, c->y, &c->window},
        {dnnl_backward_weights, c->x_any, c->dw_any, c->db, c->y_any, &c->window}};
    dnnl_primitive_desc_t desc;
    FR_TRY(choose(k, what, 2, ways, c->forward.desc, &desc));
    const fr__arg args[] = {{.id = DNNL_ARG_SRC, .md = c->x_given},
                            {.id = DNNL_ARG_DIFF_DST, .md = c->y_given},
                            {.id = DNNL_ARG_DIFF_WEIGHTS, .md = c->dw, .is_output = true},
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
    const bool has_bf16 = fr__spec_has_bf16(spec);
    bool is_found =
        spec->x[0]->dtype == FR_BF16 && spec->y_type == FR_BF16 && spec->w_type == FR_BF16;
    if (has_bf16 && !fr__cpu(spec->dev)->multiplies_bf16)
        return fr__kernel_in_floats(spec, arena, fr__cpu_conv2d, out);
    if (!has_bf16 && fr__cpu_conv2d_is_small(spec)) return fr__cpu_conv2d_small(spec, arena, out);
    const fr__kernel_ops *ops = &conv_ops[fr__group_has(spec, FR_OP_RELU)][spec->need_dx[0]];
    fr__kernel *k = fr__kernel_new(spec, arena, sizeof(conv), ops);
    if (!k) return FR_NO_MEMORY;
    *out = k; /* from here on `destroy` cleans up */
    conv *c = (conv *)k;
    c->type = is_found ? FR_BF16 : FR_F32;
    FR_TRY(describe(c, spec));
    if (is_found) FR_TRY(find_bf16_code(c, &is_found));
    if (c->type == FR_BF16 && !is_found) {
        c->type = FR_F32;
        FR_TRY(describe(c, spec));
    }
    FR_TRY(make_forward(c, spec, arena));
    if (!spec->training) return FR_OK;
    k->needs_x = 1;
    k->needs_y = c->has_relu;
    if (spec->need_dx[0]) FR_TRY(make_back_input(c, arena));
    if (c->type == FR_BF16) FR_TRY(make_small(c, spec, arena));
    return c->small ? FR_OK : make_back_weight(c, arena);
}
