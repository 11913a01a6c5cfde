/* common.h -- a graph under construction with a context, and short forms for adding nodes. */
#ifndef TESTS_GRAPH_COMMON_H
#define TESTS_GRAPH_COMMON_H

#include "support/test.h"
#include <forerun/graph.h>

#include <string.h>

typedef struct world {
    fr_ctx *ctx;
    fr_graph *g;
} world;

static inline world world_create(void)
{
    world w = {.ctx = fr_ctx_create()};
    assert_non_null(w.ctx);
    assert_int_equal(fr_graph_create(w.ctx, "test", &w.g), FR_OK);
    return w;
}

static inline void world_free(world *w)
{
    fr_graph_free(w->g);
    fr_ctx_free(w->ctx);
}

static inline int add_input(fr_graph *g, const char *name, fr_shape shape, fr_dtype dtype)
{
    fr_attrs a = {.input = {shape, dtype}};
    return fr_graph_add(g, FR_OP_INPUT, name, &a, 0, NULL);
}

#define ADD(g, op, name, attrs, ...)                                                            \
    fr_graph_add((g), (op), (name), (attrs), (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), \
                 (int[]){__VA_ARGS__})

static inline int add_linear(fr_graph *g, const char *name, int64_t out, int in)
{
    fr_attrs a = {.linear = {.out = out}};
    return ADD(g, FR_OP_LINEAR, name, &a, in);
}

/* Does the error text contain all of these parts? */
static inline void assert_says(fr_ctx *ctx, const char *a, const char *b)
{
    const char *text = fr_ctx_error(ctx);
    if (!strstr(text, a) || !strstr(text, b)) fail_msg("'%s' lacks '%s' or '%s'", text, a, b);
}

#endif
