/* peak.c -- the rate of matrix products on this machine: that of the fastest kernel of a network of
 * square linear layers, measured in the same way as a model. */
#include <forerun/probe.h>

#include <math.h>

/* A layer's weights and values fit into the caches next to a core. */
enum { WIDTH = 512, SAMPLES = 256, LAYERS = 3 };
/* The best of some rounds: other processes may take the cores for a while. The first has a few
 * samples, and so have the others on a backend that is too slow for more. */
enum { ROUNDS = 5, FEW_SAMPLES = 8 };
#define ROUND_S 0.1

static fr_status build(fr_ctx *ctx, fr_dtype precision, fr_graph **out)
{
    const fr_attrs row = {.input.shape = FR_SHAPE(WIDTH)}, target = {.input.dtype = FR_I32};
    const fr_attrs layer = {.linear = {.out = WIDTH, .no_bias = true}};
    FR_TRY(fr_graph_create(ctx, "products", out));
    fr_graph_set_precision(*out, precision); /* a failure is that of fr_graph_finish, too */
    int node = fr_graph_add(*out, FR_OP_INPUT, "input", &row, 0, NULL);
    char name[16] = "fc.0";
    for (int i = 0; i < LAYERS; i++, name[3]++)
        node = fr_graph_add(*out, FR_OP_LINEAR, name, &layer, 1, &node);
    int last[2] = {node, fr_graph_add(*out, FR_OP_INPUT, "target", &target, 0, NULL)};
    fr_graph_add(*out, FR_OP_CROSS_ENTROPY, "loss", NULL, 2, last);
    fr_status status = fr_graph_finish(*out);
    if (status == FR_OK) return FR_OK;
    fr_graph_free(*out);
    *out = NULL;
    return status;
}

static double flops_of(const fr_node *n)
{
    return n->flops_forward + n->flops_back_input + n->flops_back_weight;
}

static int samples_at(double flops_per_s, const fr_graph *g)
{
    double flops = 0;
    for (int i = 0; i < fr_graph_n_nodes(g); i++) flops += flops_of(fr_graph_node(g, i));
    return flops * SAMPLES < flops_per_s * 2 * ROUND_S ? SAMPLES : FEW_SAMPLES;
}

static double best_rate(const fr_graph *g, const fr_profile *p)
{
    double best = 0;
    for (int i = 0; i < p->n_nodes; i++) {
        const fr_profile_node *n = &p->nodes[i];
        const fr_node *node = fr_graph_node(g, i);
        if (node->op != FR_OP_LINEAR) continue;
        const double flops[] = {node->flops_forward, node->flops_back_input,
                                node->flops_back_weight};
        const double seconds[] = {n->forward_s, n->back_input_s, n->back_weight_s};
        for (int k = 0; k < 3; k++)
            if (flops[k] > 0 && seconds[k] > 0) best = fmax(best, flops[k] * p->batch / seconds[k]);
    }
    return best;
}

fr_status fr_probe_peak(fr_ctx *ctx, int n, const fr_probe_desc *desc, fr_dtype precision,
                        double *flops_per_s)
{
    fr_graph *g;
    const fr_profile *p;
    *flops_per_s = 0;
    FR_TRY(build(ctx, precision, &g));
    fr_probe_desc d = {.graph = g,
                       .backend = desc->backend,
                       .n_threads = desc->n_threads,
                       .pin = desc->pin,
                       .first_cpu = desc->first_cpu,
                       .batch = FEW_SAMPLES,
                       .n_micro = 1,
                       .optimizer = desc->optimizer,
                       .options = desc->options,
                       .seconds = ROUND_S,
                       .for_batches = INT32_MAX};
    fr_status status = FR_OK;
    for (int i = 0; i < ROUNDS && status == FR_OK; i++) {
        status = fr_probe_copies(ctx, n, &d, &p);
        if (status == FR_OK) *flops_per_s = fmax(*flops_per_s, best_rate(g, p));
        fr_profile_free(p);
        d.batch = samples_at(*flops_per_s, g);
    }
    fr_graph_free(g);
    return status;
}
