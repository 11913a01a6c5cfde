/* yaml.c -- a model as a list of nodes.
 *
 *     nodes:
 *       - {name: input, op: input, shape: [1, 28, 28]}
 *       - {name: conv, op: conv2d, out: 32, kernel: 3, pad: 1}
 *       - {name: relu, op: relu, inputs: [conv]}
 *     ties:
 *       - {param: head.weight, owner: embed.weight}
 *
 * A node without inputs reads the node before it. Without a loss among the nodes, "target" and
 * "loss" are added at the end. A table lists the settings of each operator. The graph checks sizes,
 * and its message is prefixed with the position in the file. */
#include "models/build.h"

#include "io/key.h"

#include <stdio.h>
#include <string.h>

static const char section[] = "model.nodes[].";

static fr_status read_key(fr_conf *c, const char *key, void *to)
{
    return fr__key_read(c, fr__key_find(fr_model_keys(), section, key, NULL), to);
}

/* One row serves two operators: their attributes are at the same place, or a fixed distance apart.
 */
#define AT(member) offsetof(fr_attrs, member)
static const size_t pool_before_conv = AT(conv2d.kernel) - AT(pool.kernel);
_Static_assert(AT(linear.out) == AT(conv2d.out), "one row for both");
_Static_assert(AT(conv2d.stride) - AT(pool.stride) == AT(conv2d.kernel) - AT(pool.kernel) &&
                   AT(conv2d.pad) - AT(pool.pad) == AT(conv2d.kernel) - AT(pool.kernel),
               "windows of convolutions and pools are alike");
_Static_assert(AT(concat.axis) == AT(slice.axis) && AT(concat.axis) == AT(select.axis),
               "one row for all");

/* One number counts for both. */
static fr_status read_pair(fr_conf *c, const fr_key *k, int to[2])
{
    const char *key = fr__key_name(k);
    int64_t v[2];
    int n;
    FR_TRY(fr_conf_ints(c, key, 2, v, &n));
    if (n == 0) return FR_OK;
    if (n == 1) v[1] = v[0];
    for (int i = 0; i < 2; i++) {
        if (v[i] < (int64_t)k->min || v[i] > (int64_t)k->max)
            return fr_conf_fail(c, key, "%s is %lld; it must be between %g and %g", key,
                                (long long)v[i], k->min, k->max);
        to[i] = (int)v[i];
    }
    return FR_OK;
}

static fr_status read_attr(fr_conf *c, fr_operator op, const fr_key *k, fr_attrs *to)
{
    char *at = (char *)to + k->offset;
    if (k->kind == FR_KEY_INTS)
        return read_pair(c, k, (int *)(void *)(op == FR_OP_CONV2D ? at : at - pool_before_conv));
    if (strcmp(fr__key_name(k), "bias") != 0) return fr__key_read(c, k, at);
    bool bias = false, *no_bias = op == FR_OP_CONV2D ? &to->conv2d.no_bias : &to->linear.no_bias;
    FR_TRY(fr__key_read(c, k, &bias));
    *no_bias = !bias;
    return FR_OK;
}

static fr_status read_shape(fr_conf *c, fr_attrs *a)
{
    const char *dtype = NULL;
    FR_TRY(fr_conf_ints(c, "shape", FR_MAX_DIMS, a->input.shape.dim, &a->input.shape.n_dims));
    FR_TRY(read_key(c, "dtype", &dtype));
    if (strcmp(dtype, "int") == 0) a->input.dtype = FR_I32;
    return FR_OK;
}

static fr_status read_order(fr_conf *c, fr_attrs *a)
{
    int64_t order[FR_MAX_DIMS];
    int n;
    FR_TRY(fr_conf_ints(c, "order", FR_MAX_DIMS, order, &n));
    for (int i = 0; i < FR_MAX_DIMS; i++) {
        bool is_dim = i < n && order[i] >= 0 && order[i] < FR_MAX_DIMS;
        a->transpose.order[i] = is_dim ? (int)order[i] : -1;
    }
    return FR_OK;
}

/* Settings that are lists. */
static fr_status read_lists(fr_conf *c, fr_operator op, fr_attrs *a)
{
    int n;
    switch (op) {
    case FR_OP_INPUT: return read_shape(c, a);
    case FR_OP_RESHAPE:
        return fr_conf_ints(c, "shape", FR_MAX_DIMS, a->reshape.shape.dim,
                            &a->reshape.shape.n_dims);
    case FR_OP_TRANSPOSE: return read_order(c, a);
    case FR_OP_PAD:
        FR_TRY(fr_conf_ints(c, "before", FR_MAX_DIMS, a->pad.before, &n));
        return fr_conf_ints(c, "after", FR_MAX_DIMS, a->pad.after, &n);
    default: return FR_OK;
    }
}

static fr_status read_init(fr_conf *c, fr_attrs *a)
{
    const fr_key *k = fr__key_find(fr_model_keys(), section, "init", NULL);
    const char *name = NULL;
    double scale = -1;
    FR_TRY(fr__key_read(c, k, &name));
    fr_init_kind kind = a->weight_init.kind = (fr_init_kind)fr__key_choice(k, name);
    if (kind != FR_INIT_NORMAL && kind != FR_INIT_UNIFORM) return FR_OK;
    FR_TRY(read_key(c, "init_scale", &scale));
    if (scale < 0) return fr_conf_fail(c, "init", "init: %s needs an init_scale", name);
    a->weight_init.scale = (float)scale;
    return FR_OK;
}

static fr_status read_attrs(fr_conf *c, const char *name, fr_operator op, fr_attrs *to)
{
    const char *op_name = fr_operator_name(op);
    for (const fr_key *k = fr_model_keys(); (k = fr__key_next(k, section, op_name)); k++) {
        if (!k->size) continue;
        if (!k->preset || k->preset[0] || fr_conf_has(c, fr__key_name(k)))
            FR_TRY(read_attr(c, op, k, to));
        else
            return fr_conf_fail(c, NULL, "node %s (%s): %s is missing", name, op_name,
                                fr__key_name(k));
    }
    FR_TRY(read_lists(c, op, to));
    if (op == FR_OP_LINEAR || op == FR_OP_CONV2D || op == FR_OP_EMBEDDING || op == FR_OP_LSTM)
        return read_init(c, to);
    if (op == FR_OP_CROSS_ENTROPY && fr_conf_has(c, "ignore_index")) {
        int64_t index = 0;
        to->loss.has_ignore = true;
        FR_TRY(read_key(c, "ignore_index", &index));
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

fr_status fr__yaml_build(fr_ctx *ctx, fr_conf *c, const fr_model_options *o, fr_graph *g)
{
    int n = fr_conf_list_length(c, "nodes");
    if (n < 1) return fr_conf_fail(c, "nodes", "nodes must be a list of {name: ..., op: ..., ...}");
    for (int i = 0; i < n; i++) {
        fr_conf *item;
        FR_TRY(fr_conf_list_item(c, "nodes", i, &item));
        FR_TRY(add_node(ctx, item, g));
    }
    const int loss = fr_graph_find_loss(g);
    if (loss >= 0 && o->loss)
        return fr_conf_fail(
            c, NULL, "the nodes have a loss, '%s' (%s): leave model.loss out, or the node",
            fr_graph_node(g, loss)->name, fr_operator_name(fr_graph_node(g, loss)->op));
    if (loss < 0) fr__add_loss(g, fr_graph_n_nodes(g) - 1, o);
    FR_TRY(add_ties(ctx, c, g));
    return fr__at_place(ctx, c, fr_graph_finish(g));
}
