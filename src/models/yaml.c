/* yaml.c -- a model as a list of nodes.
 *
 *     nodes:
 *       - {name: input, op: input, shape: [1, 28, 28]}
 *       - {name: conv, op: conv2d, out: 32, kernel: 3, pad: 1}
 *       - {name: relu, op: relu, inputs: [conv]}
 *     ties:
 *       - {param: head.weight, owner: embed.weight}
 *
 * A node without inputs reads the node before it. Without a cross_entropy node, "target" and "loss"
 * are added at the end. A table lists the settings of each operator. The graph checks sizes, and
 * its message is prefixed with the position in the file. */
#include "models/build.h"

#include <stdio.h>
#include <string.h>

typedef enum attr_kind {
    SIZE,   /* int64_t */
    COUNT,  /* int */
    PAIR,   /* int[2]; one number counts for both */
    REAL,   /* float */
    FLAG,   /* bool */
    UNLESS, /* bool that means the contrary of its key, which is true by default */
} attr_kind;

typedef struct attr {
    fr_operator op;
    const char *key;
    attr_kind kind;
    size_t offset; /* in fr_attrs */
    double min, max;
    bool is_required;
} attr;

/* clang-format off */
#define AT(member) offsetof(fr_attrs, member)
static const attr attrs[] = {
    {FR_OP_LINEAR, "out", SIZE, AT(linear.out), 1, INT32_MAX, true},
    {FR_OP_LINEAR, "bias", UNLESS, AT(linear.no_bias), 0, 1, false},
    {FR_OP_CONV2D, "out", SIZE, AT(conv2d.out), 1, INT32_MAX, true},
    {FR_OP_CONV2D, "kernel", PAIR, AT(conv2d.kernel), 1, INT32_MAX, true},
    {FR_OP_CONV2D, "stride", PAIR, AT(conv2d.stride), 1, INT32_MAX, false},
    {FR_OP_CONV2D, "pad", PAIR, AT(conv2d.pad), 0, INT32_MAX, false},
    {FR_OP_CONV2D, "groups", COUNT, AT(conv2d.groups), 1, INT32_MAX, false},
    {FR_OP_CONV2D, "bias", UNLESS, AT(conv2d.no_bias), 0, 1, false},
    {FR_OP_BATCH_NORM, "eps", REAL, AT(norm.eps), 1e-12, 1, false},
    {FR_OP_BATCH_NORM, "momentum", REAL, AT(norm.momentum), 1e-6, 1, false},
    {FR_OP_LAYER_NORM, "eps", REAL, AT(norm.eps), 1e-12, 1, false},
    {FR_OP_DROPOUT, "p", REAL, AT(dropout.p), 0, 0.99, true},
    {FR_OP_ALPHA_DROPOUT, "p", REAL, AT(dropout.p), 0, 0.99, true},
    {FR_OP_MAX_POOL, "kernel", PAIR, AT(pool.kernel), 1, INT32_MAX, true},
    {FR_OP_MAX_POOL, "stride", PAIR, AT(pool.stride), 1, INT32_MAX, false},
    {FR_OP_MAX_POOL, "pad", PAIR, AT(pool.pad), 0, INT32_MAX, false},
    {FR_OP_AVG_POOL, "kernel", PAIR, AT(pool.kernel), 1, INT32_MAX, true},
    {FR_OP_AVG_POOL, "stride", PAIR, AT(pool.stride), 1, INT32_MAX, false},
    {FR_OP_AVG_POOL, "pad", PAIR, AT(pool.pad), 0, INT32_MAX, false},
    {FR_OP_AVG_POOL, "count_valid", FLAG, AT(pool.count_valid), 0, 1, false},
    {FR_OP_EMBEDDING, "vocab", SIZE, AT(embedding.vocab), 1, INT32_MAX, true},
    {FR_OP_EMBEDDING, "width", SIZE, AT(embedding.width), 1, INT32_MAX, true},
    {FR_OP_EMBEDDING, "positions", SIZE, AT(embedding.positions), 1, INT32_MAX, false},
    {FR_OP_ATTENTION, "heads", COUNT, AT(attention.heads), 1, INT32_MAX, true},
    {FR_OP_ATTENTION, "causal", FLAG, AT(attention.causal), 0, 1, false},
    {FR_OP_CROSS_ATTENTION, "heads", COUNT, AT(attention.heads), 1, INT32_MAX, true},
    {FR_OP_LSTM, "hidden", SIZE, AT(lstm.hidden), 1, INT32_MAX, true},
    {FR_OP_LSTM, "projection", SIZE, AT(lstm.projection), 1, INT32_MAX, false},
    {FR_OP_CONCAT, "axis", COUNT, AT(concat.axis), 0, FR_MAX_DIMS - 1, false},
    {FR_OP_SLICE, "from", SIZE, AT(slice.from), 0, INT32_MAX, false},
    {FR_OP_SLICE, "to", SIZE, AT(slice.to), 1, INT32_MAX, true},
    {FR_OP_CROSS_ENTROPY, "label_smoothing", REAL, AT(loss.label_smoothing), 0, 0.99, false},
};
/* clang-format on */

static fr_status read_pair(fr_conf *c, const attr *k, int to[2])
{
    int64_t v[2];
    int n;
    FR_TRY(fr_conf_ints(c, k->key, 2, v, &n));
    if (n == 0) return FR_OK;
    if (n == 1) v[1] = v[0];
    for (int i = 0; i < 2; i++) {
        if (v[i] < (int64_t)k->min || v[i] > (int64_t)k->max)
            return fr_conf_fail(c, k->key, "%s is %lld; it must be between %g and %g", k->key,
                                (long long)v[i], k->min, k->max);
        to[i] = (int)v[i];
    }
    return FR_OK;
}

/* Presets are outside the range where there is one: "not given" leaves the attribute zero. */
static fr_status read_attr(fr_conf *c, const attr *k, fr_attrs *to)
{
    void *at = (char *)to + k->offset;
    int64_t size;
    double real;
    bool flag;
    switch (k->kind) {
    case PAIR: return read_pair(c, k, at);
    case SIZE:
    case COUNT:
        FR_TRY(fr_conf_int(c, k->key, 0, (int64_t)k->min, (int64_t)k->max, &size));
        if (k->kind == SIZE)
            *(int64_t *)at = size;
        else
            *(int *)at = (int)size;
        return FR_OK;
    case REAL:
        FR_TRY(fr_conf_real(c, k->key, -1, k->min, k->max, &real));
        if (real >= 0) *(float *)at = (float)real;
        return FR_OK;
    case FLAG:
    case UNLESS:
        FR_TRY(fr_conf_bool(c, k->key, k->kind == UNLESS, &flag));
        *(bool *)at = k->kind == UNLESS ? !flag : flag;
        return FR_OK;
    }
    return FR_OK;
}

static fr_status read_shape(fr_conf *c, fr_attrs *a)
{
    const char *dtype;
    FR_TRY(fr_conf_ints(c, "shape", FR_MAX_DIMS, a->input.shape.dim, &a->input.shape.n_dims));
    FR_TRY(fr_conf_text(c, "dtype", "float", &dtype));
    if (strcmp(dtype, "int") == 0)
        a->input.dtype = FR_I32;
    else if (strcmp(dtype, "float") != 0)
        return fr_conf_fail(c, "dtype", "dtype is '%s'; it must be float or int", dtype);
    return FR_OK;
}

static fr_status read_init(fr_conf *c, fr_attrs *a)
{
    static const char *const kinds[] = {
        [FR_INIT_DEFAULT] = "default", [FR_INIT_ZEROS] = "zeros",     [FR_INIT_ONES] = "ones",
        [FR_INIT_NORMAL] = "normal",   [FR_INIT_UNIFORM] = "uniform", [FR_INIT_HE_OUT] = "he_out",
        [FR_INIT_LECUN] = "lecun"};
    const char *kind;
    double scale;
    FR_TRY(fr_conf_text(c, "init", "default", &kind));
    int i = FR_INIT_LECUN;
    while (i >= 0 && strcmp(kinds[i], kind) != 0) i--;
    if (i < 0)
        return fr_conf_fail(c, "init",
                            "init is '%s'; it must be default, zeros, ones, normal, uniform, "
                            "he_out or lecun",
                            kind);
    a->weight_init.kind = (fr_init_kind)i;
    if (i != FR_INIT_NORMAL && i != FR_INIT_UNIFORM) return FR_OK;
    FR_TRY(fr_conf_real(c, "init_scale", -1, 0, 1e6, &scale));
    if (scale < 0) return fr_conf_fail(c, "init", "init: %s needs an init_scale", kind);
    a->weight_init.scale = (float)scale;
    return FR_OK;
}

static fr_status read_attrs(fr_conf *c, const char *name, fr_operator op, fr_attrs *to)
{
    for (size_t i = 0; i < sizeof attrs / sizeof *attrs; i++) {
        if (attrs[i].op != op) continue;
        if (attrs[i].is_required && !fr_conf_has(c, attrs[i].key))
            return fr_conf_fail(c, NULL, "node %s (%s): %s is missing", name, fr_operator_name(op),
                                attrs[i].key);
        FR_TRY(read_attr(c, &attrs[i], to));
    }
    if (op == FR_OP_INPUT) return read_shape(c, to);
    if (op == FR_OP_LINEAR || op == FR_OP_CONV2D || op == FR_OP_EMBEDDING || op == FR_OP_LSTM)
        return read_init(c, to);
    if (op == FR_OP_CROSS_ENTROPY && fr_conf_has(c, "ignore_index")) {
        int64_t index;
        to->loss.has_ignore = true;
        FR_TRY(fr_conf_int(c, "ignore_index", 0, INT32_MIN, INT32_MAX, &index));
        to->loss.ignore_index = (int32_t)index;
    }
    return FR_OK;
}

static fr_status read_inputs(fr_conf *c, const fr_graph *g, fr_operator op, int *n, int *inputs)
{
    const char *names[FR_MAX_INPUTS];
    *n = 0;
    if (op == FR_OP_INPUT)
        return fr_conf_has(c, "inputs") ? fr_conf_fail(c, "inputs", "an input node reads no other")
                                        : FR_OK;
    FR_TRY(fr_conf_texts(c, "inputs", FR_MAX_INPUTS, names, n));
    for (int i = 0; i < *n; i++) {
        inputs[i] = fr_graph_find(g, names[i]);
        if (inputs[i] < 0)
            return fr_conf_fail(c, "inputs", "input '%s' is not an earlier node", names[i]);
    }
    if (!fr_conf_has(c, "inputs") && fr_graph_n_nodes(g) > 0)
        inputs[(*n)++] = fr_graph_n_nodes(g) - 1;
    return FR_OK;
}

static fr_status add_node(fr_ctx *ctx, fr_conf *c, fr_graph *g)
{
    const char *name, *op_name;
    fr_operator op;
    fr_attrs a;
    memset(&a, 0, sizeof a);
    int n, inputs[FR_MAX_INPUTS];
    FR_TRY(fr_conf_text(c, "name", NULL, &name));
    FR_TRY(fr_conf_text(c, "op", NULL, &op_name));
    if (!fr_operator_parse(op_name, &op))
        return fr_conf_fail(c, "op", "node %s: there is no operator '%s'", name, op_name);
    FR_TRY(read_attrs(c, name, op, &a));
    FR_TRY(read_inputs(c, g, op, &n, inputs));
    if (fr_graph_add(g, op, name, &a, n, inputs) >= 0) return FR_OK;
    return fr__at_place(ctx, c, fr_ctx_status(ctx));
}

static fr_status add_ties(fr_ctx *ctx, fr_conf *c, fr_graph *g)
{
    if (!fr_conf_has(c, "ties")) return FR_OK;
    int n = fr_conf_list_length(c, "ties");
    if (n < 0) return fr_conf_fail(c, "ties", "ties must be a list of {param: ..., owner: ...}");
    for (int i = 0; i < n; i++) {
        fr_conf *item;
        const char *param, *owner;
        FR_TRY(fr_conf_list_item(c, "ties", i, &item));
        FR_TRY(fr_conf_text(item, "param", NULL, &param));
        FR_TRY(fr_conf_text(item, "owner", NULL, &owner));
        FR_TRY(fr__at_place(ctx, item, fr_graph_tie(g, param, owner)));
    }
    return FR_OK;
}

fr_status fr__yaml_build(fr_ctx *ctx, fr_conf *c, fr_graph *g)
{
    int n = fr_conf_list_length(c, "nodes");
    if (n < 1) return fr_conf_fail(c, "nodes", "nodes must be a list of {name: ..., op: ..., ...}");
    for (int i = 0; i < n; i++) {
        fr_conf *item;
        FR_TRY(fr_conf_list_item(c, "nodes", i, &item));
        FR_TRY(add_node(ctx, item, g));
    }
    if (fr_graph_find_op(g, FR_OP_CROSS_ENTROPY) < 0) fr__add_loss(g, fr_graph_n_nodes(g) - 1, 0);
    FR_TRY(add_ties(ctx, c, g));
    return fr__at_place(ctx, c, fr_graph_finish(g));
}
