/* pase.h -- splits of layers inside themselves (PaSE): the problem, and its exact solution. */
#ifndef FR_PLAN_PASE_H
#define FR_PLAN_PASE_H

#include "plan/internal.h"

/* Dimensions of a layer, a product of (m, k) and (k, n): rows, that is samples and what a sample
 * has of them; columns of the output; columns of the input. */
enum { FR__ROWS, FR__OUT, FR__IN };

typedef struct fr__layer {
    const char *name;
    double size[3];   /* m, n, k */
    int64_t parts[3]; /* what a split must divide: samples, outputs, inputs; 1: cannot be cut */
    double products;  /* operations: 3 m n k */
    double points;    /* of pointwise operators: 3 pw m n; all parts of k do them */
    double sum[3]; /* words that devices add up if the dimension is cut; k: m n, n: m k, m: n k */
    int reads;     /* dimension of its input's columns: FR__IN, or FR__OUT where outputs need the
                      same columns of the input */
} fr__layer;

/* `to` reads what `from` writes: `words` for the whole mini-batch. */
typedef struct fr__layer_edge {
    int from, to;
    double words;
} fr__layer_edge;

typedef struct fr__layers {
    fr_ctx *ctx;
    fr_arena *arena;
    int n, n_edges;
    fr__layer *at;
    fr__layer_edge *edges;
    int n_devices;
    double ratio;
} fr__layers;

/* Layers of a graph with so many samples in a mini-batch (pase_layers.c). */
fr_status fr__layers_of(fr_ctx *ctx, fr_arena *a, const fr_graph *g, int batch, fr__layers *out);

/* Ways to cut a layer: (n, 3) numbers in `at`, the first is 1 1 1. */
typedef struct fr__cuttings {
    int n;
    int (*at)[3];
} fr__cuttings;
fr_status fr__layer_cuttings(const fr__layers *l, int layer, fr__cuttings *out);
/* Costs of one device, in operations. */
double fr__layer_cost(const fr__layers *l, int layer, const int split[3]);
double fr__edge_cost(const fr__layers *l, const fr__layer_edge *e, const int from[3],
                     const int to[3]);
double fr__layers_cost(const fr__layers *l, int (*split)[3]);

/* split: (n, 3), the cheapest. FR_UNSUPPORTED: too many combinations. */
fr_status fr__layers_solve(const fr__layers *l, int (*split)[3], double *cost);

struct fr__json;
/* The plan of pase as JSON (pase_plan.c). */
void fr__write_splits(struct fr__json *j, const fr_plan *p);

#endif
