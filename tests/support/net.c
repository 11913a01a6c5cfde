/* net.c -- from one line to a graph and the stage in its middle. */
#include "support/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

typedef enum attr_type { ATTR_I64, ATTR_INT, ATTR_FLOAT, ATTR_BOOL, ATTR_SHAPE } attr_type;

/* KEY=V1,V2 of an operator goes to up to `count` numbers at `offset` of its attributes. */
typedef struct attr_key {
    fr_operator op;
    const char *key;
    attr_type type;
    int count;
    size_t offset;
} attr_key;

#define KEY(op, key, type, count, field)                               \
    {                                                                  \
        FR_OP_##op, key, ATTR_##type, count, offsetof(fr_attrs, field) \
    }
static const attr_key keys[] = {
    KEY(LINEAR, "out", I64, 1, linear.out),
    KEY(LINEAR, "no_bias", BOOL, 1, linear.no_bias),
    KEY(CONV2D, "out", I64, 1, conv2d.out),
    KEY(CONV2D, "kernel", INT, 2, conv2d.kernel),
    KEY(CONV2D, "stride", INT, 2, conv2d.stride),
    KEY(CONV2D, "pad", INT, 2, conv2d.pad),
    KEY(CONV2D, "groups", INT, 1, conv2d.groups),
    KEY(CONV2D, "no_bias", BOOL, 1, conv2d.no_bias),
    KEY(BATCH_NORM, "eps", FLOAT, 1, norm.eps),
    KEY(BATCH_NORM, "momentum", FLOAT, 1, norm.momentum),
    KEY(LAYER_NORM, "eps", FLOAT, 1, norm.eps),
    KEY(LEAKY_RELU, "slope", FLOAT, 1, activation.alpha),
    KEY(ELU, "alpha", FLOAT, 1, activation.alpha),
    KEY(RMS_NORM, "eps", FLOAT, 1, norm.eps),
    KEY(GROUP_NORM, "eps", FLOAT, 1, norm.eps),
    KEY(GROUP_NORM, "groups", INT, 1, norm.groups),
    KEY(ROPE, "heads", INT, 1, rope.heads),
    KEY(ROPE, "rotated_heads", INT, 1, rope.rotated_heads),
    KEY(ROPE, "rotated_width", INT, 1, rope.rotated_width),
    KEY(ROPE, "base", FLOAT, 1, rope.base),
    KEY(STOCHASTIC_DEPTH, "p", FLOAT, 1, dropout.p),
    KEY(DROPOUT, "p", FLOAT, 1, dropout.p),
    KEY(ALPHA_DROPOUT, "p", FLOAT, 1, dropout.p),
    KEY(MAX_POOL, "kernel", INT, 2, pool.kernel),
    KEY(MAX_POOL, "stride", INT, 2, pool.stride),
    KEY(MAX_POOL, "pad", INT, 2, pool.pad),
    KEY(AVG_POOL, "kernel", INT, 2, pool.kernel),
    KEY(AVG_POOL, "stride", INT, 2, pool.stride),
    KEY(AVG_POOL, "pad", INT, 2, pool.pad),
    KEY(AVG_POOL, "count_valid", BOOL, 1, pool.count_valid),
    KEY(EMBEDDING, "vocab", I64, 1, embedding.vocab),
    KEY(EMBEDDING, "width", I64, 1, embedding.width),
    KEY(EMBEDDING, "positions", I64, 1, embedding.positions),
    KEY(ATTENTION, "heads", INT, 1, attention.heads),
    KEY(ATTENTION, "causal", BOOL, 1, attention.causal),
    KEY(CROSS_ATTENTION, "heads", INT, 1, attention.heads),
    KEY(SDPA, "heads", INT, 1, attention.heads),
    KEY(SDPA, "kv_heads", INT, 1, attention.kv_heads),
    KEY(SDPA, "causal", BOOL, 1, attention.causal),
    KEY(SDPA, "window", INT, 1, attention.window),
    KEY(SDPA, "scale", FLOAT, 1, attention.scale),
    KEY(LSTM, "hidden", I64, 1, lstm.hidden),
    KEY(LSTM, "projection", I64, 1, lstm.projection),
    KEY(CONCAT, "axis", INT, 1, concat.axis),
    KEY(SLICE, "axis", INT, 1, slice.axis),
    KEY(SLICE, "from", I64, 1, slice.from),
    KEY(SLICE, "to", I64, 1, slice.to),
    KEY(SELECT, "axis", INT, 1, select.axis),
    KEY(SELECT, "index", I64, 1, select.index),
    KEY(TRANSPOSE, "order", INT, FR_MAX_DIMS, transpose.order),
    KEY(RESHAPE, "shape", SHAPE, FR_MAX_DIMS, reshape.shape),
    KEY(PAD, "before", I64, FR_MAX_DIMS, pad.before),
    KEY(PAD, "after", I64, FR_MAX_DIMS, pad.after),
    KEY(PAD, "value", FLOAT, 1, pad.value),
    KEY(CROSS_ENTROPY, "label_smoothing", FLOAT, 1, loss.label_smoothing),
    KEY(CROSS_ENTROPY, "has_ignore", BOOL, 1, loss.has_ignore),
    KEY(CROSS_ENTROPY, "ignore_index", INT, 1, loss.ignore_index),
    KEY(SMOOTH_L1, "beta", FLOAT, 1, loss.beta),
};

static void set_attr(fr_attrs *attrs, fr_operator op, const char *key, const char *values)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const attr_key *k = &keys[i];
        if (k->op != op || strcmp(k->key, key) != 0) continue;
        char *at = (char *)attrs + k->offset;
        const char *text = values;
        for (int n = 0; n < k->count; n++) {
            char *end;
            double v = strtod(text, &end);
            if (end == text && n > 0) break;
            if (end == text) fail_msg("%s=%s: expected %d numbers", key, values, k->count);
            text = *end == ',' ? end + 1 : end;
            switch (k->type) {
            case ATTR_I64: ((int64_t *)(void *)at)[n] = (int64_t)v; break;
            case ATTR_INT: ((int *)(void *)at)[n] = (int)v; break;
            case ATTR_FLOAT: ((float *)(void *)at)[n] = (float)v; break;
            case ATTR_BOOL: ((bool *)(void *)at)[n] = v != 0; break;
            case ATTR_SHAPE:
                ((fr_shape *)(void *)at)->dim[n] = (int64_t)v;
                ((fr_shape *)(void *)at)->n_dims = n + 1;
                break;
            }
        }
        return;
    }
    fail_msg("%s has no attribute %s", fr_operator_name(op), key);
}

static fr_shape parse_shape(const char *text)
{
    fr_shape s = {0};
    while (text && *text && *text != '-' && s.n_dims < FR_MAX_DIMS) {
        char *end;
        s.dim[s.n_dims++] = strtoll(text, &end, 10);
        text = *end == ',' ? end + 1 : NULL;
    }
    return s;
}

/* Nodes by name: a source's name refers to the node that the stage reads. */
typedef struct builder {
    net *n;
    int count;
    struct {
        char name[24];
        int node;
    } names[NET_MAX_NODES];
    int kept[NET_MAX_NODES], n_kept;
} builder;

static int look_up(const builder *b, const char *name)
{
    for (int i = 0; i < b->count; i++)
        if (strcmp(b->names[i].name, name) == 0) return b->names[i].node;
    fail_msg("no node %s", name);
    return -1;
}

static void define(builder *b, const char *name, int node)
{
    if (node < 0) fail_msg("%s: %s", name, fr_ctx_error(b->n->ctx));
    if (b->count == NET_MAX_NODES || node >= NET_MAX_NODES) fail_msg("too many nodes");
    snprintf(b->names[b->count].name, sizeof b->names[0].name, "%s", name);
    b->names[b->count++].node = node;
}

/* A source; one with a gradient gets a parameter above it, outside the stage. */
static bool add_source(builder *b, const char *name, const char *kind, char **words)
{
    bool is_int = strcmp(kind, "ids") == 0, wants_grad = strcmp(kind, "x") == 0;
    bool is_share = strcmp(kind, "share") == 0;
    if (!is_int && !wants_grad && !is_share && strcmp(kind, "data") != 0) return false;
    char inner[32];
    snprintf(inner, sizeof inner, "%s.in", name);
    fr_attrs attrs = {.input = {.shape = parse_shape(strtok_r(NULL, " ", words)),
                                .dtype = is_int ? FR_I32 : FR_F32}};
    int node = fr_graph_add(b->n->graph, FR_OP_INPUT, wants_grad ? inner : name, &attrs, 0, NULL);
    if (is_int && node >= 0) {
        const char *low = strtok_r(NULL, " ", words), *high = strtok_r(NULL, " ", words);
        if (!low || !high) fail_msg("%s: ids SHAPE LOW HIGH", name);
        b->n->low[node] = atoi(low ? low : "0");
        b->n->high[node] = atoi(high ? high : "0");
    }
    if (node >= 0) b->n->is_share[node] = is_share;
    if (wants_grad) node = fr_graph_add(b->n->graph, FR_OP_LAYER_NORM, name, NULL, 1, &node);
    define(b, name, node);
    b->n->stage.first = node + 1;
    return true;
}

static void add_operator(builder *b, const char *name, const char *op_name, char **words)
{
    fr_operator op;
    fr_attrs attrs = {0};
    int inputs[FR_MAX_INPUTS], n_inputs = 0;
    if (!fr_operator_parse(op_name, &op)) fail_msg("no operator %s", op_name);
    for (char *word; (word = strtok_r(NULL, " ", words));) {
        char *equals = strchr(word, '=');
        if (equals) {
            *equals = 0;
            set_attr(&attrs, op, word, equals + 1);
        } else {
            if (n_inputs == FR_MAX_INPUTS) fail_msg("%s: too many inputs", name);
            inputs[n_inputs++] = look_up(b, word);
        }
    }
    define(b, name, fr_graph_add(b->n->graph, op, name, &attrs, n_inputs, inputs));
}

static void add_statement(builder *b, char *text)
{
    char *words = NULL, *name = strtok_r(text, " ", &words);
    if (!name) return;
    char *second = strtok_r(NULL, " ", &words);
    if (second && strcmp(name, "keep") == 0) {
        b->kept[b->n_kept++] = look_up(b, second);
        return;
    }
    char *op = strtok_r(NULL, " ", &words);
    if (second && op && strcmp(name, "tie") == 0) {
        if (fr_graph_tie(b->n->graph, second, op) != FR_OK) fail_msg("%s", fr_ctx_error(b->n->ctx));
        return;
    }
    if (!second || strcmp(second, "=") != 0 || !op) fail_msg("%s: expected NAME = OPERATOR", name);
    if (!add_source(b, name, op, &words)) add_operator(b, name, op, &words);
}

void net_build(net *n, const char *line)
{
    *n = (net){.ctx = fr_ctx_create()};
    assert_non_null(n->ctx);
    assert_int_equal(fr_graph_create(n->ctx, "net", &n->graph), FR_OK);
    builder b = {.n = n};
    char *copy = strdup(line), *rest = NULL;
    assert_non_null(copy);
    for (char *s = strtok_r(copy, ";", &rest); s; s = strtok_r(NULL, ";", &rest))
        add_statement(&b, s);
    free(copy);
    assert_true(b.count > 0);
    int last = b.names[b.count - 1].node;
    n->stage.last = last + 1;
    if (!fr_operator_is_loss(fr_graph_node(n->graph, last)->op)) b.kept[b.n_kept++] = last;
    for (int i = 0; i < b.n_kept; i++) {
        char name[32];
        snprintf(name, sizeof name, "sink%d", i);
        assert_true(fr_graph_add(n->graph, FR_OP_TANH, name, NULL, 1, &b.kept[i]) >= 0);
    }
    if (fr_graph_finish(n->graph) != FR_OK) fail_msg("%s: %s", line, fr_ctx_error(n->ctx));
}

void net_set_types(net *n, fr_dtype precision, uint64_t others)
{
    fr_dtype types[2 * NET_MAX_NODES];
    const fr_dtype other = precision == FR_F32 ? FR_BF16 : FR_F32;
    fr_graph *old = n->graph;
    assert_true(fr_graph_n_nodes(old) <= 2 * NET_MAX_NODES);
    for (int i = 0; i < fr_graph_n_nodes(old); i++) {
        const fr_node *node = fr_graph_node(old, i);
        const bool is_fixed =
            node->op == FR_OP_INPUT || fr_operator_is_loss(node->op) || node->dtype == FR_I32;
        types[i] = is_fixed ? node->dtype : others >> i % 64 & 1 ? other : precision;
    }
    if (fr_graph_retype(n->ctx, old, precision, types, &n->graph) != FR_OK)
        fail_msg("%s", fr_ctx_error(n->ctx));
    fr_graph_free(old);
}

void net_free(net *n)
{
    fr_graph_free(n->graph);
    fr_ctx_free(n->ctx);
    *n = (net){0};
}
