/* fuzz_model.c -- any text as the `model:` section of a config, by name or node by node: refused
 * with a text, or a graph in topological order whose numbers are in range and that can be cut. */
#include "io/conf.h"

#include <forerun/models.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

static void look_at(const fr_graph *g)
{
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        const fr_node *n = fr_graph_node(g, i);
        must(fr_graph_find(g, n->name) == i);
        must(fr_shape_count(&n->shape) >= 1);
        must(isfinite(n->flops_forward) && n->flops_forward >= 0);
        for (int k = 0; k < n->n_inputs; k++) must(n->inputs[k] >= 0 && n->inputs[k] < i);
    }
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        const fr_param *p = fr_graph_param(g, i);
        must(fr_graph_find_param(g, p->name) == i && p->tied_to < i);
        must(fr_shape_count(&p->shape) >= 1);
    }
    must(fr_graph_param_count(g) >= 0 && fr_model_activation_bytes(g) >= 0);
}

static void cut(fr_ctx *ctx, fr_graph *g)
{
    fr_stage stages[2];
    int at = fr_graph_n_nodes(g) / 2;
    must(fr_graph_cut_bytes(g, at) >= 0);
    if (fr_graph_cut(g, 1, &at, stages) != FR_OK) fr_ctx_clear(ctx); /* a half of inputs only */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_conf *c;
    fr_graph *g = NULL;
    if (fr_conf_parse(ctx, (const char *)data, size, "fuzz", &c) == FR_OK) {
        fr__conf_drop(c, "file"); /* what other files hold is not of this input */
        if (fr_model_from_conf(ctx, c, NULL, &g) == FR_OK) {
            look_at(g);
            cut(ctx, g);
        } else {
            must(!g && *fr_ctx_error(ctx));
        }
    }
    fr_graph_free(g);
    fr_conf_free(c);
    fr_ctx_free(ctx);
    return 0;
}
