/* internal.h -- the graph object, for graph.c and cut.c. */
#ifndef FR_GRAPH_INTERNAL_H
#define FR_GRAPH_INTERNAL_H

#include <forerun/graph.h>
#include <pthread.h>

#include "base/arena.h"
#include "base/names.h"
#include "base/vec.h"

struct fr_graph {
    fr_ctx *ctx;
    const char *name;
    fr_arena arena; /* nodes, parameters, names; their addresses are stable */
    FR_VEC(fr_node *) nodes;
    FR_VEC(fr_param *) params;
    fr__names node_names, param_names;
    fr_status status; /* status of the first failure while building */
    bool is_finished;
    fr_dtype precision; /* of weights in passes, and of nodes as they are added */
    /* made by finish: */
    int *last_use;             /* (n_nodes) last consumer, -1: none */
    int *n_uses;               /* (n_nodes) number of uses as an input */
    int64_t *cut_bytes;        /* (n_nodes + 1) as fr_graph_cut_bytes */
    struct fr__cutter *cutter; /* the mutable part of a finished graph */
};

/* After finish, any thread may request cuts. */
struct fr__cutter {
    pthread_mutex_t lock; /* guards all members below */
    fr_arena lists;       /* inputs and outputs of stages */
    int *scratch;         /* (6 n_nodes + 1) for the convexity check */
};

/* The computing nodes, in order. Sums have a leading 0, so the part j .. k-1 has sum[k] -
 * sum[j]. */
struct fr__chain {
    int n;
    int *node;      /* (n) */
    int *n_trained; /* (n + 1) sum: nodes with trained parameters */
    double *work;   /* (n + 1) sum */
    double *bytes;  /* (n) bytes across a cut before it */
    bool *is_tail;  /* (n) it is an activation of the node before it */
};
/* Of a finished graph; false: out of memory. */
bool fr__chain_create(const fr_graph *g, fr_arena *arena, struct fr__chain *out);

/* Create cutter and the tables of uses and cuts. */
fr_status fr__cutter_create(fr_graph *g);
void fr__cutter_free(struct fr__cutter *c);

#endif
