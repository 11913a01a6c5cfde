/* retype.c -- a finished graph once more, with other element types or frozen parameters. */
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

/* What follows for a node from the parameters that are frozen, at it and above it. */
static void follow_frozen(const fr_graph *g, fr_node *n)
{
    bool is_trained = false, input_has_grad = false;
    for (int i = 0; i < n->n_params; i++) {
        const fr_param *p = g->params.at[n->params[i]];
        is_trained |= !p->is_buffer && !p->is_frozen;
    }
    for (int i = 0; i < n->n_inputs; i++) input_has_grad |= g->nodes.at[n->inputs[i]]->needs_grad;
    n->needs_grad = is_trained || input_has_grad;
    if (!input_has_grad) n->flops_back_input = 0;
    if (!is_trained) n->flops_back_weight = 0;
}

static void freeze(const fr_graph *from, const bool *frozen, fr_graph *to)
{
    bool any = false;
    for (size_t i = 0; i < to->params.n; i++) {
        fr_param *p = to->params.at[i];
        const size_t owner = p->tied_to >= 0 ? (size_t)p->tied_to : i;
        p->is_frozen =
            !p->is_buffer && (frozen ? frozen[owner] : from->params.at[owner]->is_frozen);
        any |= p->is_frozen;
    }
    for (size_t i = 0; any && i < to->nodes.n; i++) follow_frozen(to, to->nodes.at[i]);
}

/* types, frozen: NULL: as they are. */
static fr_status copy(const fr_graph *g, fr_dtype precision, const fr_dtype *types,
                      const bool *frozen, fr_graph *to)
{
    FR_TRY(fr_graph_set_precision(to, precision));
    FR_TRY(add_nodes(g, to));
    for (int i = 0; types && i < (int)to->nodes.n; i++)
        if (types[i] != to->nodes.at[i]->dtype) FR_TRY(fr_graph_store(to, i, types[i]));
    if (frozen) /* not a change of types: every node keeps its own */
        for (int i = 0; i < (int)to->nodes.n; i++)
            if (g->nodes.at[i]->dtype != to->nodes.at[i]->dtype)
                FR_TRY(fr_graph_store(to, i, g->nodes.at[i]->dtype));
    freeze(g, frozen, to);
    return fr_graph_finish(to);
}

static fr_status copy_graph(fr_ctx *ctx, const fr_graph *g, fr_dtype precision,
                            const fr_dtype *types, const bool *frozen, fr_graph **out)
{
    *out = NULL;
    fr_graph *to;
    FR_TRY(fr_graph_create(ctx, g->name, &to));
    fr_status status = copy(g, precision, types, frozen, to);
    if (status == FR_OK)
        *out = to;
    else
        fr_graph_free(to);
    return status;
}

fr_status fr_graph_retype(fr_ctx *ctx, const fr_graph *g, fr_dtype precision, const fr_dtype *types,
                          fr_graph **out)
{
    return copy_graph(ctx, g, precision, types, NULL, out);
}

fr_status fr_graph_freeze(fr_ctx *ctx, const fr_graph *g, const bool *frozen, fr_graph **out)
{
    return copy_graph(ctx, g, g->precision, NULL, frozen, out);
}
