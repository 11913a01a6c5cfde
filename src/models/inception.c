/* inception.c -- Inception-V3 (Szegedy et al., Rethinking the Inception Architecture, 2016) with
 * torchvision's names, without the auxiliary head.
 *
 * Small images: all 3 x 3 convolutions of the stem are padded and have stride 1, its first pool
 * halves the size, and the second is omitted. So 32 x 32 reaches the blocks as 16 x 16, then 7 x 7,
 * 3 x 3. */
#include "models/build.h"

#include <stdio.h>

#define ONE FR_SQUARE(1, 1, 0)
#define SAME3 FR_SQUARE(3, 1, 1)
#define HALVE3 FR_SQUARE(3, 2, 0)
#define ROW(n) ((fr__layer_window){1, (n), 1, 0, (n) / 2})
#define COLUMN(n) ((fr__layer_window){(n), 1, 1, (n) / 2, 0})

/* A graph under construction and its current block. */
typedef struct net {
    fr_graph *g;
    const fr_model_options *o;
    const char *mixed; /* name of the block with a dot, or "" */
} net;

static int unit(const net *n, int x, int64_t out, fr__layer_window w, const char *name)
{
    const fr_attrs norm = {.norm = {.eps = 1e-3f}};
    x = fr__conv(n->g, x, fr__channels(n->o, out), w, false, "%s%s.conv", n->mixed, name);
    x = fr__layer(n->g, FR_OP_BATCH_NORM, x, &norm, "%s%s.bn", n->mixed, name);
    return fr__layer(n->g, FR_OP_RELU, x, NULL, "%s%s.relu", n->mixed, name);
}

static int pooled(const net *n, int x, int64_t out)
{
    x = fr__pool(n->g, FR_OP_AVG_POOL, x, SAME3, "%sbranch_pool.pool", n->mixed);
    return unit(n, x, out, ONE, "branch_pool");
}

static int concat(const net *n, int n_branches, const int *branches)
{
    char name[64];
    snprintf(name, sizeof name, "%sconcat", n->mixed);
    return fr_graph_add(n->g, FR_OP_CONCAT, name, NULL, n_branches, branches);
}

/* 35 x 35: 1x1, 5x5, twice 3x3, pool. */
static int block_a(net *n, int x, const char *mixed, int64_t pool)
{
    int b[4];
    n->mixed = mixed;
    b[0] = unit(n, x, 64, ONE, "branch1x1");
    b[1] = unit(n, x, 48, ONE, "branch5x5_1");
    b[1] = unit(n, b[1], 64, FR_SQUARE(5, 1, 2), "branch5x5_2");
    b[2] = unit(n, x, 64, ONE, "branch3x3dbl_1");
    b[2] = unit(n, b[2], 96, SAME3, "branch3x3dbl_2");
    b[2] = unit(n, b[2], 96, SAME3, "branch3x3dbl_3");
    b[3] = pooled(n, x, pool);
    return concat(n, 4, b);
}

/* 35 x 35 to 17 x 17. */
static int block_b(net *n, int x, const char *mixed)
{
    int b[3];
    n->mixed = mixed;
    b[0] = unit(n, x, 384, HALVE3, "branch3x3");
    b[1] = unit(n, x, 64, ONE, "branch3x3dbl_1");
    b[1] = unit(n, b[1], 96, SAME3, "branch3x3dbl_2");
    b[1] = unit(n, b[1], 96, HALVE3, "branch3x3dbl_3");
    b[2] = fr__pool(n->g, FR_OP_MAX_POOL, x, HALVE3, "%sbranch_pool", mixed);
    return concat(n, 3, b);
}

/* 17 x 17: 7x7 convolutions as rows and columns, `inner` channels wide. */
static int block_c(net *n, int x, const char *mixed, int64_t inner)
{
    int b[4];
    n->mixed = mixed;
    b[0] = unit(n, x, 192, ONE, "branch1x1");
    b[1] = unit(n, x, inner, ONE, "branch7x7_1");
    b[1] = unit(n, b[1], inner, ROW(7), "branch7x7_2");
    b[1] = unit(n, b[1], 192, COLUMN(7), "branch7x7_3");
    b[2] = unit(n, x, inner, ONE, "branch7x7dbl_1");
    b[2] = unit(n, b[2], inner, COLUMN(7), "branch7x7dbl_2");
    b[2] = unit(n, b[2], inner, ROW(7), "branch7x7dbl_3");
    b[2] = unit(n, b[2], inner, COLUMN(7), "branch7x7dbl_4");
    b[2] = unit(n, b[2], 192, ROW(7), "branch7x7dbl_5");
    b[3] = pooled(n, x, 192);
    return concat(n, 4, b);
}

/* 17 x 17 to 8 x 8. */
static int block_d(net *n, int x, const char *mixed)
{
    int b[3];
    n->mixed = mixed;
    b[0] = unit(n, x, 192, ONE, "branch3x3_1");
    b[0] = unit(n, b[0], 320, HALVE3, "branch3x3_2");
    b[1] = unit(n, x, 192, ONE, "branch7x7x3_1");
    b[1] = unit(n, b[1], 192, ROW(7), "branch7x7x3_2");
    b[1] = unit(n, b[1], 192, COLUMN(7), "branch7x7x3_3");
    b[1] = unit(n, b[1], 192, HALVE3, "branch7x7x3_4");
    b[2] = fr__pool(n->g, FR_OP_MAX_POOL, x, HALVE3, "%sbranch_pool", mixed);
    return concat(n, 3, b);
}

/* 8 x 8: rows and columns side by side. */
static int block_e(net *n, int x, const char *mixed)
{
    int b[6], y;
    n->mixed = mixed;
    b[0] = unit(n, x, 320, ONE, "branch1x1");
    y = unit(n, x, 384, ONE, "branch3x3_1");
    b[1] = unit(n, y, 384, ROW(3), "branch3x3_2a");
    b[2] = unit(n, y, 384, COLUMN(3), "branch3x3_2b");
    y = unit(n, x, 448, ONE, "branch3x3dbl_1");
    y = unit(n, y, 384, SAME3, "branch3x3dbl_2");
    b[3] = unit(n, y, 384, ROW(3), "branch3x3dbl_3a");
    b[4] = unit(n, y, 384, COLUMN(3), "branch3x3dbl_3b");
    b[5] = pooled(n, x, 192);
    return concat(n, 6, b);
}

static int stem(net *n, int x)
{
    bool is_large = fr__is_large(n->o);
    fr__layer_window inner = is_large ? FR_SQUARE(3, 1, 0) : SAME3;
    n->mixed = "";
    x = unit(n, x, 32, is_large ? HALVE3 : SAME3, "Conv2d_1a_3x3");
    x = unit(n, x, 32, inner, "Conv2d_2a_3x3");
    x = unit(n, x, 64, SAME3, "Conv2d_2b_3x3");
    x = fr__pool(n->g, FR_OP_MAX_POOL, x, is_large ? HALVE3 : FR_SQUARE(3, 2, 1), "maxpool1");
    x = unit(n, x, 80, ONE, "Conv2d_3b_1x1");
    x = unit(n, x, 192, inner, "Conv2d_4a_3x3");
    return is_large ? fr__pool(n->g, FR_OP_MAX_POOL, x, HALVE3, "maxpool2") : x;
}

static fr_status inception3_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    net n = {.g = g, .o = o};
    int x = stem(&n, fr__input(g));
    x = block_a(&n, x, "Mixed_5b.", 32);
    x = block_a(&n, x, "Mixed_5c.", 64);
    x = block_a(&n, x, "Mixed_5d.", 64);
    x = block_b(&n, x, "Mixed_6a.");
    x = block_c(&n, x, "Mixed_6b.", 128);
    x = block_c(&n, x, "Mixed_6c.", 160);
    x = block_c(&n, x, "Mixed_6d.", 160);
    x = block_c(&n, x, "Mixed_6e.", 192);
    x = block_d(&n, x, "Mixed_7a.");
    x = block_e(&n, x, "Mixed_7b.");
    x = block_e(&n, x, "Mixed_7c.");
    x = fr__layer(g, FR_OP_GLOBAL_POOL, x, NULL, "avgpool");
    x = fr__dropout(g, x, o->dropout, "dropout");
    fr__linear(g, x, o->classes, FR_INIT_NONE, "fc");
    return FR_OK;
}

static const char *const keys[] = {"classes",      "image",           "channels", "dropout",
                                   "width_factor", "label_smoothing", NULL};

const fr_model fr__model_inception3 = {
    .name = "inception3",
    .summary = "Inception-V3 without the auxiliary head",
    .input = FR_MODEL_IMAGE,
    .keys = keys,
    .defaults = &(fr_model_options){.classes = 1000, .image = 299, .channels = 3, .dropout = 0.5},
    .build = inception3_build,
};
