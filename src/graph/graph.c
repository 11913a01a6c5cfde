/* graph.c -- builds a graph and answers queries about it.
 *
 * The first failure marks the graph as failed: later additions do nothing and return -1. So a
 * builder is a plain list of layers with one check, at fr_graph_finish. */
#include "graph/internal.h"
#include "graph/op.h"

#include <string.h>

enum { MAX_NAME = 200 };

fr_status fr_graph_create(fr_ctx *ctx, const char *name, fr_graph **out)
{
    *out = NULL;
    fr_graph *g = FR_NEW(fr_graph);
    if (!g) return fr__no_memory(ctx, sizeof *g, "a graph");
    g->ctx = ctx;
    g->name = fr__arena_strdup(&g->arena, name);
    if (!g->name) {
        fr_graph_free(g);
        return fr__no_memory(ctx, strlen(name) + 1, "the name of a graph");
    }
    *out = g;
    return FR_OK;
}

void fr_graph_free(fr_graph *g)
{
    if (!g) return;
    fr__cutter_free(g->cutter);
    fr__names_fini(&g->node_names);
    fr__names_fini(&g->param_names);
    fr__vec_fini(&g->nodes);
    fr__vec_fini(&g->params);
    fr__arena_fini(&g->arena);
    fr__free(g);
}

/* Names go into files and messages: no spaces, no control characters. */
static bool is_good_name(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] > '~') return false;
    return n >= 1 && n <= MAX_NAME;
}

static fr_status check_tensor(const fr__infer *t, const char *what, const fr_shape *s)
{
    int64_t room = FR_MAX_COUNT;
    char text[96];
    fr_shape_text(s, text, sizeof text);
    for (int i = 0; i < s->n_dims; i++) {
        if (s->dim[i] < 1 || s->dim[i] > FR_MAX_SIZE)
            return fr__op_fail(t, "%s would be %s; each dimension must be between 1 and %d", what,
                               text, FR_MAX_SIZE);
        room /= s->dim[i];
    }
    if (room < 1)
        return fr__op_fail(t, "%s would be %s, more than %lld numbers", what, text,
                           (long long)FR_MAX_COUNT);
    return FR_OK;
}

static fr_status check_request(fr_graph *g, fr_operator op, const char *name, int n_inputs,
                               const int *inputs)
{
    if (!is_good_name(name))
        return fr_fail(g->ctx, FR_INVALID,
                       "graph %s, node %zu: the name must have 1 to %d visible ASCII characters",
                       g->name, g->nodes.n, MAX_NAME);
    if (g->is_finished)
        return fr_fail(g->ctx, FR_INVALID, "node %s: graph %s is finished, nothing can be added",
                       name, g->name);
    if ((unsigned)op >= FR_OPERATOR_COUNT)
        return fr_fail(g->ctx, FR_INVALID, "node %s: there is no operator %d", name, (int)op);
    if (fr__names_find(&g->node_names, name) >= 0)
        return fr_fail(g->ctx, FR_INVALID, "node %s: graph %s already has a node of this name",
                       name, g->name);
    if (g->nodes.n >= FR_MAX_NODES)
        return fr_fail(g->ctx, FR_INVALID, "node %s: graph %s has %d nodes, which is the limit",
                       name, g->name, FR_MAX_NODES);
    const fr__op_rule *rule = fr__op_rule_of(op);
    if (n_inputs < rule->min_inputs || n_inputs > rule->max_inputs)
        return fr_fail(g->ctx, FR_INVALID, "node %s (%s): %d inputs given; it takes %d to %d: %s",
                       name, fr_operator_name(op), n_inputs, rule->min_inputs, rule->max_inputs,
                       fr__op_about(op));
    for (int i = 0; i < n_inputs; i++)
        if (inputs[i] < 0 || (size_t)inputs[i] >= g->nodes.n)
            return fr_fail(g->ctx, FR_INVALID,
                           "node %s (%s): input %d is node %d, but only nodes 0 to %d exist", name,
                           fr_operator_name(op), i, inputs[i], (int)g->nodes.n - 1);
    return FR_OK;
}

/* Infer and check shape, parameters and work of t->node. */
static fr_status infer(fr__infer *t)
{
    fr_node *node = t->node;
    FR_TRY(fr__op_rule_of(node->op)->infer(t));
    FR_TRY(check_tensor(t, "the output", &node->shape));
    bool has_trained = false, input_has_grad = false;
    for (int i = 0; i < t->n_params; i++) {
        FR_TRY(check_tensor(t, t->params[i].suffix, &t->params[i].shape));
        has_trained |= !t->params[i].is_buffer;
    }
    for (int i = 0; i < node->n_inputs; i++) input_has_grad |= t->in[i]->needs_grad;
    node->needs_grad = has_trained || input_has_grad;
    if (!input_has_grad) node->flops_back_input = 0;
    return FR_OK;
}

/* Add a parameter of a node that is about to be added. */
static fr_status add_param(fr_graph *g, const char *node, const fr__param_rule *rule)
{
    fr_param *p = fr__arena_pack(&g->arena, sizeof *p);
    int index = (int)g->params.n;
    if (!p) return fr__no_memory(g->ctx, sizeof *p, "a parameter");
    *p = (fr_param){
        .name = fr__arena_printf(&g->arena, "%s.%s", node, rule->suffix),
        .shape = rule->shape,
        .init = rule->init,
        .node = (int)g->nodes.n,
        .tied_to = -1,
        .is_buffer = rule->is_buffer,
    };
    if (!p->name || !fr__vec_push(&g->params, p) || !fr__names_add(&g->param_names, p->name, index))
        return fr__no_memory(g->ctx, sizeof *p, "a parameter");
    return FR_OK;
}

/* Data and loss are what they are. */
static bool has_fixed_type(const fr_node *n)
{
    return n->op == FR_OP_INPUT || fr_operator_is_loss(n->op) || n->dtype == FR_I32;
}

/* The node that was inferred, its lists behind it, and its parameters. */
static fr_status keep_node(fr_graph *g, const fr__infer *t)
{
    size_t n_inputs = (size_t)t->node->n_inputs, n_params = (size_t)t->n_params;
    size_t bytes = sizeof(fr_node) + (n_inputs + n_params) * sizeof(int);
    fr_node *node = fr__arena_pack(&g->arena, bytes);
    if (!node) return fr__no_memory(g->ctx, bytes, "a node");
    int *inputs = (int *)(node + 1), *params = inputs + n_inputs;
    *node = *t->node;
    node->name = fr__arena_strdup(&g->arena, t->node->name);
    if (!node->name) return fr__no_memory(g->ctx, strlen(t->node->name) + 1, "the name of a node");
    if (n_inputs > 0) memcpy(inputs, t->node->inputs, n_inputs * sizeof *inputs);
    for (int i = 0; i < t->n_params; i++) {
        params[i] = (int)g->params.n;
        FR_TRY(add_param(g, node->name, &t->params[i]));
    }
    node->inputs = inputs;
    node->params = params;
    node->n_params = t->n_params;
    if (!has_fixed_type(node)) node->dtype = g->precision;
    if (!fr__names_add(&g->node_names, node->name, (int)g->nodes.n) ||
        !fr__vec_push(&g->nodes, node))
        return fr__no_memory(g->ctx, sizeof *node, "a node");
    return FR_OK;
}

static fr_status add_node(fr_graph *g, fr_operator op, const char *name, const fr_attrs *attrs,
                          int n_inputs, const int *inputs)
{
    FR_TRY(check_request(g, op, name, n_inputs, inputs));
    fr_node node = {.name = name, .op = op, .n_inputs = n_inputs, .inputs = inputs};
    if (attrs) node.attrs = *attrs;
    fr__infer t = {.ctx = g->ctx, .node = &node};
    for (int i = 0; i < n_inputs; i++) t.in[i] = g->nodes.at[inputs[i]];
    FR_TRY(infer(&t));
    return keep_node(g, &t);
}

int fr_graph_add(fr_graph *g, fr_operator op, const char *name, const fr_attrs *attrs, int n_inputs,
                 const int *inputs)
{
    if (g->status != FR_OK) return -1;
    fr_status status = add_node(g, op, name, attrs, n_inputs, inputs);
    /* A finished graph may be in use elsewhere: a late addition fails and changes nothing. */
    if (!g->is_finished) g->status = status;
    return status == FR_OK ? (int)g->nodes.n - 1 : -1;
}

static fr_status tie(fr_graph *g, const char *name, const char *owner)
{
    int from = fr__names_find(&g->param_names, name), to = fr__names_find(&g->param_names, owner);
    if (g->is_finished)
        return fr_fail(g->ctx, FR_INVALID, "tie of %s: graph %s is finished", name, g->name);
    if (from < 0 || to < 0)
        return fr_fail(g->ctx, FR_INVALID, "tie of %s to %s: graph %s has no parameter %s", name,
                       owner, g->name, from < 0 ? name : owner);
    fr_param *p = g->params.at[from];
    const fr_param *o = g->params.at[to];
    if (p->node <= o->node)
        return fr_fail(g->ctx, FR_INVALID, "tie of %s to %s: the owner must be of an earlier node",
                       name, owner);
    if (p->is_buffer || o->is_buffer)
        return fr_fail(g->ctx, FR_INVALID, "tie of %s to %s: running statistics cannot be tied",
                       name, owner);
    char a[96], b[96];
    if (!fr_shape_equal(&p->shape, &o->shape))
        return fr_fail(g->ctx, FR_INVALID, "tie of %s to %s: shapes %s and %s differ", name, owner,
                       fr_shape_text(&p->shape, a, sizeof a),
                       fr_shape_text(&o->shape, b, sizeof b));
    /* Followers of p would otherwise point at a parameter without values. */
    int root = o->tied_to >= 0 ? o->tied_to : to;
    for (size_t i = 0; i < g->params.n; i++)
        if (g->params.at[i]->tied_to == from) g->params.at[i]->tied_to = root;
    p->tied_to = root;
    p->has_ties = false;
    g->params.at[root]->has_ties = true;
    return FR_OK;
}

fr_status fr_graph_tie(fr_graph *g, const char *name, const char *owner)
{
    if (g->status != FR_OK) return g->status;
    fr_status status = tie(g, name, owner);
    if (!g->is_finished) g->status = status;
    return status;
}

static fr_status store(fr_graph *g, int node, fr_dtype type)
{
    if (node < 0 || (size_t)node >= g->nodes.n)
        return fr_fail(g->ctx, FR_INVALID, "graph %s has no node %d", g->name, node);
    fr_node *n = g->nodes.at[node];
    if (g->is_finished)
        return fr_fail(g->ctx, FR_INVALID, "type of %s: graph %s is finished", n->name, g->name);
    if (has_fixed_type(n) || (type != FR_F32 && type != FR_BF16))
        return fr_fail(g->ctx, FR_INVALID, "node %s (%s) cannot be stored as type %d", n->name,
                       fr_operator_name(n->op), (int)type);
    n->dtype = type;
    return FR_OK;
}

fr_status fr_graph_store(fr_graph *g, int node, fr_dtype type)
{
    if (g->status != FR_OK) return g->status;
    fr_status status = store(g, node, type);
    if (!g->is_finished) g->status = status;
    return status;
}

static fr_status set_precision(fr_graph *g, fr_dtype type)
{
    if (g->is_finished)
        return fr_fail(g->ctx, FR_INVALID, "precision: graph %s is finished", g->name);
    if (type != FR_F32 && type != FR_BF16)
        return fr_fail(g->ctx, FR_INVALID, "graph %s: precision cannot be type %d", g->name,
                       (int)type);
    g->precision = type;
    for (size_t i = 0; i < g->nodes.n; i++)
        if (!has_fixed_type(g->nodes.at[i])) g->nodes.at[i]->dtype = type;
    return FR_OK;
}

fr_status fr_graph_set_precision(fr_graph *g, fr_dtype type)
{
    if (g->status != FR_OK) return g->status;
    fr_status status = set_precision(g, type);
    if (!g->is_finished) g->status = status;
    return status;
}

fr_dtype fr_graph_precision(const fr_graph *g) { return g->precision; }

fr_status fr_graph_finish(fr_graph *g)
{
    if (g->status != FR_OK || g->is_finished) return g->status;
    if (g->nodes.n == 0)
        g->status = fr_fail(g->ctx, FR_INVALID, "graph %s has no nodes", g->name);
    else
        g->status = fr__cutter_create(g);
    g->is_finished = g->status == FR_OK;
    return g->status;
}

const char *fr_graph_name(const fr_graph *g) { return g->name; }

int fr_graph_n_nodes(const fr_graph *g) { return (int)g->nodes.n; }

const fr_node *fr_graph_node(const fr_graph *g, int node) { return g->nodes.at[node]; }

int fr_graph_find(const fr_graph *g, const char *name)
{
    return fr__names_find(&g->node_names, name);
}

int fr_graph_n_params(const fr_graph *g) { return (int)g->params.n; }

const fr_param *fr_graph_param(const fr_graph *g, int param) { return g->params.at[param]; }

int fr_graph_find_param(const fr_graph *g, const char *name)
{
    return fr__names_find(&g->param_names, name);
}

int fr_graph_find_op(const fr_graph *g, fr_operator op)
{
    int i = (int)g->nodes.n - 1;
    while (i >= 0 && g->nodes.at[i]->op != op) i--;
    return i;
}

int fr_graph_find_loss(const fr_graph *g)
{
    int i = (int)g->nodes.n - 1;
    while (i >= 0 && !fr_operator_is_loss(g->nodes.at[i]->op)) i--;
    return i;
}

int64_t fr_graph_param_count(const fr_graph *g)
{
    int64_t n = 0;
    for (size_t i = 0; i < g->params.n; i++) {
        const fr_param *p = g->params.at[i];
        if (!p->is_buffer && p->tied_to < 0) n += fr_shape_count(&p->shape);
    }
    return n;
}
