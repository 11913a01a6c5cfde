/* retype.c -- a finished graph once more, with other element types. */
#include "graph/internal.h"

static fr_status add_nodes(const fr_graph *g, fr_graph *to)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        const fr_node *n = g->nodes.at[i];
        if (fr_graph_add(to, n->op, n->name, &n->attrs, n->n_inputs, n->inputs) < 0)
            return to->status;
    }
    for (size_t i = 0; i < g->params.n; i++) {
        const fr_param *p = g->params.at[i];
        if (p->tied_to >= 0) FR_TRY(fr_graph_tie(to, p->name, g->params.at[p->tied_to]->name));
    }
    return FR_OK;
}

static fr_status retype(const fr_graph *g, fr_dtype precision, const fr_dtype *types, fr_graph *to)
{
    FR_TRY(fr_graph_set_precision(to, precision));
    FR_TRY(add_nodes(g, to));
    for (int i = 0; types && i < (int)to->nodes.n; i++)
        if (types[i] != to->nodes.at[i]->dtype) FR_TRY(fr_graph_store(to, i, types[i]));
    return fr_graph_finish(to);
}

fr_status fr_graph_retype(fr_ctx *ctx, const fr_graph *g, fr_dtype precision, const fr_dtype *types,
                          fr_graph **out)
{
    *out = NULL;
    fr_graph *to;
    FR_TRY(fr_graph_create(ctx, g->name, &to));
    fr_status status = retype(g, precision, types, to);
    if (status == FR_OK)
        *out = to;
    else
        fr_graph_free(to);
    return status;
}
