/* keep.h -- which nodes of a stage to compute again in the backward, so that its activations fit.
 */
#ifndef FR_COST_KEEP_H
#define FR_COST_KEEP_H

#include <forerun/cost.h>

/* A node that may be recomputed; inputs: numbers of nodes before it, or less than 0 for values that
 * are there anyway. */
typedef struct fr__keep_node {
    double seconds; /* of its forward */
    double freed;   /* bytes that are needed less if it is recomputed; may be negative */
    double output;  /* bytes that are needed more if it is kept and a recomputed node reads it */
    int n_inputs;
    const int *inputs;
    bool is_joined; /* computed by the kernel of the node before it: recomputed with it or not */
} fr__keep_node;

/* A set of nodes. */
typedef struct fr__keep_set {
    bool *recompute; /* [n] */
    double seconds;  /* of all of it; INFINITY: no set frees so much */
    bool is_least;   /* proved; else the search was given up */
} fr__keep_set;

/* The set of least seconds that frees so many bytes. The caller has the memory of the set. */
fr_status fr__keep_least(fr_ctx *ctx, int n, const fr__keep_node *nodes, double to_free,
                         fr__keep_set *out);

/* Nodes first .. last - 1 of a profile as a stage. n_sets: activation sets that it holds at once;
 * n_areas: areas into which backwards recompute, shared by the sets; is_split: backwards in two
 * parts, so that gradients of outputs are kept from the first to the second. */
typedef struct fr__keep_stage {
    const fr_profile *profile;
    int first, last;
    int n_sets, n_areas;
    bool is_split;
} fr__keep_stage;

/* Bytes of its activations with the nodes that are recomputed ([node of the profile], NULL: none),
 * as the engine allocates them: values of kept nodes, outputs of the stage, and outputs of kept
 * nodes that recomputed ones read are in every set, values of recomputed nodes in every area; the
 * gradients of split backwards are in the sets, or in the areas where there are any. */
double fr__keep_bytes(const fr__keep_stage *s, const bool *recompute);
/* fr__keep_least for all stages of a worker: their bytes are no more than room. out->recompute is
 * [node of the profile]; entries of other nodes are left as they are. */
fr_status fr__keep_in_stages(fr_ctx *ctx, int n, const fr__keep_stage *stages, double room,
                             fr__keep_set *out);

#endif
