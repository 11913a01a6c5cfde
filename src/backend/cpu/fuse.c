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

int fr__cpu_fuse(const fr_graph *g, const fr_stage *stage, bool training, int node,
                 int nodes[FR_MAX_GROUP])
{
    (void)training;
    nodes[0] = node;
    int next = fr__sole_consumer(g, stage, node);
    if (next < 0) return 1;
    fr_operator first = fr_graph_node(g, node)->op, second = fr_graph_node(g, next)->op;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (patterns[i].first != first || patterns[i].second != second) continue;
        nodes[1] = next;
        return 2;
    }
    return 1;
}
