/* pool.c -- avg_pool and global_pool on oneDNN. The global pool is an average over the whole map,
 * its output a row-major (C). */
#include "backend/cpu/cpu.h"

typedef struct pool {
    fr__kernel base;
    dnnl_alg_kind_t kind;
    fr__window window;
    fr__md x_given, y_given; /* as in the program; y with H and W even if 1 x 1 */
    fr__md x, y;             /* as they are computed */
    fr__prim forward, back;
} pool;

static fr_status pool_forward(fr__kernel *k, const fr__kernel_args *a)
{
    return fr__prim_run(k, &((pool *)k)->forward, a->scratch, FR_TENSORS(a->x[0], a->y));
}

static fr_status pool_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    return fr__prim_run(k, &((pool *)k)->back, a->scratch, FR_TENSORS(a->dy, a->dx[0]));
}

static void pool_destroy(fr__kernel *k)
{
    pool *p = (pool *)k;
    fr__prim_fini(&p->forward);
    fr__prim_fini(&p->back);
}

static void choose_window(pool *p, const fr_node *in)
{
    const fr_node *node = p->base.node;
    if (node->op == FR_OP_GLOBAL_POOL) {
        const int size[2] = {(int)in->shape.dim[1], (int)in->shape.dim[2]};
        const fr_shape one = FR_SHAPE(in->shape.dim[0], 1, 1);
        p->window = fr__window_of(&in->shape, &one, size, size, (const int[2]){0, 0});
        p->kind = dnnl_pooling_avg_exclude_padding;
        return;
    }
    p->window = fr__window_of(&in->shape, &node->shape, node->attrs.pool.kernel,
                              node->attrs.pool.stride, node->attrs.pool.pad);
    p->kind = node->attrs.pool.count_valid ? dnnl_pooling_avg_exclude_padding
                                           : dnnl_pooling_avg_include_padding;
}

/* The output in the layout family of the input: what `blocked` gives for the output's shape. */
static fr_status describe(pool *p, const fr__kernel_spec *spec)
{
    fr__kernel *k = &p->base;
    const fr_node *in = fr_graph_node(spec->graph, spec->inputs[0]);
    bool is_global = k->node->op == FR_OP_GLOBAL_POOL;
    fr_node flat = *k->node; /* of the global pool, as (C, 1, 1) */
    if (is_global) flat.shape = FR_SHAPE(in->shape.dim[0], 1, 1);
    choose_window(p, in);
    FR_TRY(fr__md_of_layout(k, spec->x[0], in, &p->x_given));
    FR_TRY(fr__md_blocked(k, in, &p->x));
    FR_TRY(fr__md_blocked(k, &flat, &p->y));
    p->y_given = p->y;
    if (is_global || spec->plain_output) FR_TRY(fr__md_plain(k, &flat, &p->y_given));
    return fr__layout_of_md(k, p->y_given, &k->y);
}

static fr_status make_forward(pool *p, fr_arena *arena)
{
    fr__kernel *k = &p->base;
    const char *what = "forward pool";
    const fr__pool_op op = {.pass = k->training ? dnnl_forward_training : dnnl_forward_inference,
                            .kind = p->kind,
                            .x = p->x,
                            .y = p->y,
                            .window = &p->window};
    dnnl_primitive_desc_t desc;
    FR_TRY_DNNL(k, what, fr__pool_desc(fr__cpu(k->dev), &op, NULL, &desc));
    const fr__arg args[] = {{.id = DNNL_ARG_SRC, .md = p->x_given},
                            {.id = DNNL_ARG_DST, .md = p->y_given, .is_output = true}};
    FR_TRY(fr__prim_init(k, arena, what, desc, 2, args, &p->forward));
    k->scratch_bytes = p->forward.scratch_bytes;
    return FR_OK;
}

static fr_status make_back(pool *p, fr_arena *arena)
{
    fr__kernel *k = &p->base;
    const char *what = "gradient of the pool";
    const fr__pool_op op = {
        .pass = dnnl_backward_data, .kind = p->kind, .x = p->x, .y = p->y, .window = &p->window};
    dnnl_primitive_desc_t desc;
    FR_TRY_DNNL(k, what, fr__pool_desc(fr__cpu(k->dev), &op, p->forward.desc, &desc));
    const fr__arg args[] = {{.id = DNNL_ARG_DIFF_DST, .md = p->y_given},
                            {.id = DNNL_ARG_DIFF_SRC, .md = p->x_given, .is_output = true}};
    FR_TRY(fr__prim_init(k, arena, what, desc, 2, args, &p->back));
    if (p->back.scratch_bytes > k->scratch_bytes) k->scratch_bytes = p->back.scratch_bytes;
    return FR_OK;
}

static const fr__kernel_ops pool_ops = {
    .forward = pool_forward, .backward_input = pool_backward_input, .destroy = pool_destroy};

fr_status fr__cpu_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    fr__kernel *k = fr__kernel_new(spec, arena, sizeof(pool), &pool_ops);
    if (!k) return FR_NO_MEMORY;
    *out = k; /* from here on `destroy` cleans up */
    pool *p = (pool *)k;
    FR_TRY(describe(p, spec));
    FR_TRY(make_forward(p, arena));
    return spec->need_dx[0] ? make_back(p, arena) : FR_OK;
}
