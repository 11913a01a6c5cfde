/* small_nets.h -- small graphs and a few mini-batches for each, for tests of the engine. */
#ifndef TESTS_ENGINE_SMALL_NETS_H
#define TESTS_ENGINE_SMALL_NETS_H

#include <forerun/state.h>

#include "base/bf16.h"
#include "base/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { BATCH = 8, TIME = 5, MAX_INPUT = 72, MAX_PARAM = 1024, N_DATA = 3 };

typedef struct net {
    const char *name;
    void (*build)(fr_graph *g);
    int n_input;    /* numbers a sample */
    int n_target;   /* targets a sample */
    int n_classes;  /* also the vocabulary, where the input is tokens */
    bool is_tokens; /* int32 input */
    bool has_length;
    bool has_buffers; /* batch norm: micro-batches have other statistics than the whole */
} net;

static int put(fr_graph *g, fr_operator op, const char *name, const fr_attrs *attrs, int a, int b)
{
    int inputs[2] = {a, b};
    return fr_graph_add(g, op, name, attrs, (a >= 0) + (b >= 0), inputs);
}

static int feed_node(fr_graph *g, const char *name, fr_shape shape, fr_dtype dtype)
{
    fr_attrs at = {.input = {.shape = shape, .dtype = dtype}};
    return put(g, FR_OP_INPUT, name, &at, -1, -1);
}

static int linear(fr_graph *g, const char *name, int x, int64_t out)
{
    return put(g, FR_OP_LINEAR, name, &(fr_attrs){.linear = {.out = out}}, x, -1);
}

static void build_mlp(fr_graph *g)
{
    int x = feed_node(g, "x", FR_SHAPE(6), FR_F32);
    x = put(g, FR_OP_TANH, "tanh", NULL, linear(g, "a", x, 19), -1);
    x = put(g, FR_OP_DROPOUT, "drop", &(fr_attrs){.dropout = {.p = 0.25f}}, x, -1);
    x = put(g, FR_OP_RELU, "relu", NULL, linear(g, "b", x, 33), -1);
    x = linear(g, "logits", x, 5);
    put(g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, feed_node(g, "y", (fr_shape){0}, FR_I32));
}

/* The same without random operators: for a reference in plain C. */
static void build_chain(fr_graph *g)
{
    int x = feed_node(g, "x", FR_SHAPE(6), FR_F32);
    x = put(g, FR_OP_TANH, "tanh", NULL, linear(g, "a", x, 9), -1);
    x = put(g, FR_OP_RELU, "relu", NULL, linear(g, "b", x, 8), -1);
    x = linear(g, "logits", x, 5);
    put(g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, feed_node(g, "y", (fr_shape){0}, FR_I32));
}

/* Eight linear layers, for pipelines of up to eight stages. */
static void build_deep(fr_graph *g)
{
    int x = feed_node(g, "x", FR_SHAPE(6), FR_F32);
    for (int i = 0; i < 7; i++) {
        char name[2][16];
        snprintf(name[0], sizeof name[0], "l%d", i);
        snprintf(name[1], sizeof name[1], "tanh%d", i);
        x = put(g, FR_OP_TANH, name[1], NULL, linear(g, name[0], x, 6), -1);
    }
    x = linear(g, "logits", x, 5);
    put(g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, feed_node(g, "y", (fr_shape){0}, FR_I32));
}

/* The same with one matrix in three of its layers. */
static void build_shared(fr_graph *g)
{
    build_deep(g);
    fr_graph_tie(g, "l3.weight", "l0.weight");
    fr_graph_tie(g, "l6.weight", "l0.weight");
}

static void build_cnn(fr_graph *g)
{
    int x = feed_node(g, "x", FR_SHAPE(2, 6, 6), FR_F32);
    fr_attrs conv = {.conv2d = {.out = 6, .kernel = {3, 3}, .pad = {1, 1}}};
    x = put(g, FR_OP_CONV2D, "conv", &conv, x, -1);
    x = put(g, FR_OP_BATCH_NORM, "norm", NULL, x, -1);
    x = put(g, FR_OP_RELU, "relu", NULL, x, -1);
    conv.conv2d.out = 8;
    x = put(g, FR_OP_CONV2D, "conv2", &conv, x, -1); /* its backward may keep derived weights */
    x = put(g, FR_OP_BATCH_NORM, "norm2", NULL, x, -1);
    x = put(g, FR_OP_GLOBAL_POOL, "pool", NULL, x, -1);
    x = linear(g, "logits", x, 3);
    put(g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, feed_node(g, "y", (fr_shape){0}, FR_I32));
}

/* Next-token prediction with one matrix for embedding and output. */
static void build_tied(fr_graph *g)
{
    int x = feed_node(g, "x", FR_SHAPE(TIME), FR_I32);
    fr_attrs table = {.embedding = {.vocab = 7, .width = 12, .positions = TIME},
                      .weight_init = {.kind = FR_INIT_NORMAL, .scale = 0.5f}};
    x = put(g, FR_OP_EMBEDDING, "embed", &table, x, -1);
    x = put(g, FR_OP_TANH, "tanh", NULL, linear(g, "mix", x, 12), -1);
    fr_attrs head = {.linear = {.out = 7, .no_bias = true}};
    x = put(g, FR_OP_LINEAR, "logits", &head, x, -1);
    put(g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, feed_node(g, "y", FR_SHAPE(TIME), FR_I32));
    fr_graph_tie(g, "logits.weight", "embed.weight");
}

static void build_masked(fr_graph *g)
{
    int x = feed_node(g, "x", FR_SHAPE(TIME), FR_I32);
    int length = feed_node(g, "n", (fr_shape){0}, FR_I32);
    fr_attrs table = {.embedding = {.vocab = 7, .width = 8},
                      .weight_init = {.kind = FR_INIT_NORMAL, .scale = 0.5f}};
    x = put(g, FR_OP_EMBEDDING, "embed", &table, x, -1);
    x = put(g, FR_OP_MEAN_TIME, "mean", NULL, x, length);
    x = linear(g, "logits", x, 7);
    put(g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, feed_node(g, "y", (fr_shape){0}, FR_I32));
}

/* One value with many readers, and long skips: at any cut, stages exchange values past other
 * stages. */
static void build_branches(fr_graph *g)
{
    int x = feed_node(g, "x", FR_SHAPE(6), FR_F32);
    int a = put(g, FR_OP_TANH, "t", NULL, linear(g, "a", x, 10), -1);
    int b = linear(g, "b", a, 10);
    int c = put(g, FR_OP_TANH, "u", NULL, linear(g, "c", a, 10), -1);
    int d = put(g, FR_OP_ADD, "bc", NULL, b, c);
    int e = linear(g, "e", put(g, FR_OP_RELU, "r", NULL, d, -1), 10);
    int f = put(g, FR_OP_ADD, "ea", NULL, e, a);
    int h = put(g, FR_OP_ADD, "fb", NULL, linear(g, "f", f, 10), b);
    int i = put(g, FR_OP_ADD, "ha", NULL, put(g, FR_OP_TANH, "v", NULL, h, -1), a);
    x = linear(g, "logits", i, 5);
    put(g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, feed_node(g, "y", (fr_shape){0}, FR_I32));
}

/* Only later stages have parameters: gradients end before the first stages, which wait for no
 * other. */
static void build_late(fr_graph *g)
{
    int x = feed_node(g, "x", FR_SHAPE(6), FR_F32);
    x = put(g, FR_OP_TANH, "t", NULL, x, -1);
    x = put(g, FR_OP_RELU, "r", NULL, x, -1);
    x = put(g, FR_OP_TANH, "u", NULL, linear(g, "a", x, 9), -1);
    x = linear(g, "logits", x, 5);
    put(g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, feed_node(g, "y", (fr_shape){0}, FR_I32));
}

static const net nets[] = {
    {.name = "mlp", .build = build_mlp, .n_input = 6, .n_target = 1, .n_classes = 5},
    {.name = "cnn",
     .build = build_cnn,
     .n_input = 72,
     .n_target = 1,
     .n_classes = 3,
     .has_buffers = true},
    {.name = "tied",
     .build = build_tied,
     .n_input = TIME,
     .n_target = TIME,
     .n_classes = 7,
     .is_tokens = true},
    {.name = "masked",
     .build = build_masked,
     .n_input = TIME,
     .n_target = 1,
     .n_classes = 7,
     .is_tokens = true,
     .has_length = true},
    {.name = "branches", .build = build_branches, .n_input = 6, .n_target = 1, .n_classes = 5},
    {.name = "chain", .build = build_chain, .n_input = 6, .n_target = 1, .n_classes = 5},
    {.name = "late", .build = build_late, .n_input = 6, .n_target = 1, .n_classes = 5},
    {.name = "deep", .build = build_deep, .n_input = 6, .n_target = 1, .n_classes = 5},
    {.name = "shared", .build = build_shared, .n_input = 6, .n_target = 1, .n_classes = 5},
};
/* DEEP and SHARED have tests of their own and are not of the N_NETS that others go through. */
enum { MLP, CNN, TIED, MASKED, BRANCHES, CHAIN, LATE, N_NETS, DEEP = N_NETS, SHARED };

/* One mini-batch. */
typedef struct minibatch {
    union {
        float f32[BATCH * MAX_INPUT];
        int32_t i32[BATCH * MAX_INPUT];
    } input;
    int32_t target[BATCH * TIME], length[BATCH];
    int64_t n_targets; /* that count */
} minibatch;

/* A graph, its mini-batches, and the context that all errors go to. */
typedef struct bench {
    const net *net;
    fr_ctx *ctx;
    fr_graph *graph;
    minibatch data[N_DATA];
} bench;

static inline uint32_t draw(uint32_t stream, int i)
{
    uint32_t r[4];
    fr__random4(11, FR_STREAM_SYNTHETIC, stream, (uint64_t)i, 0, r);
    return r[0];
}

static inline void fill_minibatch(const net *n, int nth, minibatch *m)
{
    uint32_t stream = 3 * (uint32_t)nth;
    for (int i = 0; i < BATCH * n->n_input; i++) {
        if (n->is_tokens)
            m->input.i32[i] = (int32_t)(draw(stream, i) % (uint32_t)n->n_classes);
        else
            m->input.f32[i] = 2 * fr__unit_float(draw(stream, i)) - 1;
    }
    int n_targets = BATCH * n->n_target;
    for (int i = 0; i < n_targets; i++)
        m->target[i] = (int32_t)(draw(stream + 1, i) % (uint32_t)n->n_classes);
    for (int i = 0; i < BATCH; i++) m->length[i] = 1 + (int32_t)(draw(stream + 2, i) % TIME);
    m->n_targets = n_targets - nth - 1;
    for (int i = 0; i <= nth; i++) m->target[n_targets - 1 - 2 * i] = FR_TARGET_IGNORE;
}

static inline fr_feed feed_of(const net *n, const minibatch *m)
{
    return (fr_feed){.input = &m->input,
                     .target = m->target,
                     .length = n->has_length ? m->length : NULL,
                     .n_targets = m->n_targets};
}

/* A node that bench_init stores as bf16; NULL: none. The backend must be able to (test_bf16.c). */
static const char *bf16_node;

/* Of all nets: FR_PRECISION=bf16 chooses. */
static inline bool is_bf16(void)
{
    const char *precision = getenv("FR_PRECISION");
    return precision && strcmp(precision, "bf16") == 0;
}

/* A value as its tensor, or the weights of a pass, have it: for references in plain C. */
static inline double stored(double value)
{
    return is_bf16() ? (double)fr__bf16_value(fr__bf16_of((float)value)) : value;
}

static inline void bench_init(bench *b, int which)
{
    memset(b, 0, sizeof *b);
    b->net = &nets[which];
    b->ctx = fr_ctx_create();
    assert_non_null(b->ctx);
    assert_int_equal(fr_graph_create(b->ctx, b->net->name, &b->graph), FR_OK);
    if (is_bf16()) assert_int_equal(fr_graph_set_precision(b->graph, FR_BF16), FR_OK);
    b->net->build(b->graph);
    if (bf16_node) fr_graph_store(b->graph, fr_graph_find(b->graph, bf16_node), FR_BF16);
    if (fr_graph_finish(b->graph) != FR_OK) fail_msg("%s", fr_ctx_error(b->ctx));
    for (int i = 0; i < N_DATA; i++) fill_minibatch(b->net, i, &b->data[i]);
}

static inline void bench_fini(bench *b)
{
    fr_graph_free(b->graph);
    fr_ctx_free(b->ctx);
}

static inline size_t count_of(const bench *b, int param)
{
    return (size_t)fr_shape_count(&fr_graph_param(b->graph, param)->shape);
}

/* How many stages a net can be cut into. */
static inline int most_stages(int which)
{
    bench b;
    bench_init(&b, which);
    int cuts[64], n = 1;
    while (n < 16 && fr_graph_balance(b.graph, n + 1, cuts) == FR_OK) n++;
    bench_fini(&b);
    return n;
}

#endif
