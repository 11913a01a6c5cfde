/* fuse.c -- the chains of nodes that become one kernel.
 *
 * A row means: `first`, whose value only `second` reads, is computed together with it. The kernel
 * of `first` must support this and give the bits of the two nodes run one by one. */
#include "backend/cpu/cpu.h"

typedef struct pattern {
    fr_operator first, second;
} pattern;

static const pattern patterns[] = {
    {FR_OP_CONV2D, FR_OP_RELU}, {FR_OP_BATCH_NORM, FR_OP_RELU}, {FR_OP_ADD, FR_OP_RELU},
    {FR_OP_LINEAR, FR_OP_RELU}, {FR_OP_LINEAR, FR_OP_GELU},     {FR_OP_LINEAR, FR_OP_ADD},
};

/* The value between two nodes of bf16 is rounded: linear does this. A relu gives the same before
 * and after, so that others need not. Images may be blocked, and then no kernel for bf16 runs. */
static bool keeps_types(const fr_graph *g, int node, int next)
{
    const fr_node *first = fr_graph_node(g, node), *second = fr_graph_node(g, next);
    bool is_one = first->dtype == second->dtype;
    for (int i = 0; i < second->n_inputs; i++)
        is_one &= fr_graph_node(g, second->inputs[i])->dtype == first->dtype;
    if (first->dtype == FR_F32 || !is_one) return is_one;
    return second->op == FR_OP_RELU || (first->op == FR_OP_LINEAR && first->shape.n_dims < 3);
}

int fr__cpu_fuse(const fr_graph *g, const fr_stage *stage, bool training, int node,
                 int nodes[FR_MAX_GROUP])
{
    (void)training;
    nodes[0] = node;
    int next = fr__sole_consumer(g, stage, node);
    if (next < 0 || !keeps_types(g, node, next)) return 1;
    fr_operator first = fr_graph_node(g, node)->op, second = fr_graph_node(g, next)->op;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (patterns[i].first != first || patterns[i].second != second) continue;
        nodes[1] = next;
        return 2;
    }
    return 1;
}
