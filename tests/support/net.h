/* net.h -- small graphs written as one line, for tests.
 *
 *     "a = x 3,8,8; b = conv2d a out=5 kernel=3,3 pad=1,1 no_bias=1; c = relu b"
 *
 * Statements are NAME = OPERATOR INPUT... KEY=VALUE... with the keys of fr_attrs. Sources:
 *     x SHAPE            a float tensor with a gradient
 *     data SHAPE         a float tensor without a gradient
 *     share SHAPE        likewise, of numbers in 0..1
 *     ids SHAPE LOW HIGH integers in LOW..HIGH; shape - is one number per sample
 * Sources come first. The operators form one stage, cut out of a graph that has more on both sides:
 * a program of the stage gets any values at its inputs, any gradient at its output (its last node),
 * and gives gradients of inputs and parameters. `keep NAME` makes another node an output too,
 * `tie PARAMETER OWNER` lets one parameter share the values of another. */
#ifndef FR_TEST_SUPPORT_NET_H
#define FR_TEST_SUPPORT_NET_H

#include <forerun/graph.h>

#define NET_MAX_NODES 64

typedef struct net {
    fr_ctx *ctx;
    fr_graph *graph;
    fr_stage stage;                              /* first and last only */
    int low[NET_MAX_NODES], high[NET_MAX_NODES]; /* by node: range of integer inputs */
    bool is_share[NET_MAX_NODES];                /* by node: floats in 0..1 */
} net;

/* A line that cannot be built fails the running test. */
void net_build(net *n, const char *line);
/* The same graph in other types: weights and nodes of `precision`, and every node i with bit i % 64
 * of `others` set, if it has a choice, in the other type. */
void net_set_types(net *n, fr_dtype precision, uint64_t others);
void net_free(net *n);

#endif
