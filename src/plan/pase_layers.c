/* pase_layers.c -- a graph as layers that can be cut: products of matrices, and what joins them.
 *
 * A linear layer is the product (m, k) x (k, n): m rows of all samples, n outputs, k inputs. A
 * convolution is (b h w, n, c r s); only samples, output and input channels are cut. An lstm is the
 * product of its gates, cut by samples and hidden units, and that of its projection. Attention is
 * cut by samples and heads and adds nothing up. An embedding is a product whose table is read
 * instead of multiplied. Sums and concatenations are layers of their own, cut by samples and
 * features. All other operators have one input: they are pointwise operators of the layer that
 * writes it, and flatten is none at all. The loss is not counted, and data is wherever it is read.
 */
#include "plan/pase.h"

typedef struct maker {
    fr__layers *to;
    const fr_graph *g;
    double batch;
    int *layer_of; /* (nodes) that writes it; -1: data */
} maker;

static const fr_shape *shape_of(const maker *m, int node)
{
    return &fr_graph_node(m->g, node)->shape;
}

static int64_t last_dim(const fr_shape *s) { return s->n_dims ? s->dim[s->n_dims - 1] : 1; }

/* Features of a tensor: channels of an image, else the last dimension. */
static int64_t features(const fr_shape *s) { return s->n_dims == 3 ? s->dim[0] : last_dim(s); }

static double words(const maker *m, int node)
{
    return m->batch * (double)fr_shape_count(shape_of(m, node));
}

static fr__layer *add(maker *m, const fr_node *node, double rows, double out, double in)
{
    fr__layer *l = &m->to->at[m->to->n++];
    *l = (fr__layer){.name = node->name,
                     .size = {rows, out, in},
                     .parts = {(int64_t)m->batch, 1, 1},
                     .reads = FR__OUT};
    return l;
}

static fr__layer *add_product(maker *m, const fr_node *node, double rows, double out, double in)
{
    fr__layer *l = add(m, node, rows, out, in);
    l->products = 3 * rows * out * in;
    l->sum[FR__ROWS] = out * in, l->sum[FR__OUT] = rows * in, l->sum[FR__IN] = rows * out;
    l->parts[FR__OUT] = (int64_t)out, l->parts[FR__IN] = (int64_t)in;
    l->reads = FR__IN;
    return l;
}

static void add_edge(maker *m, int from, int to, double n)
{
    if (from >= 0) m->to->edges[m->to->n_edges++] = (fr__layer_edge){from, to, n};
}

static void add_linear(maker *m, const fr_node *node)
{
    double in = (double)last_dim(shape_of(m, node->inputs[0]));
    add_product(m, node, words(m, node->inputs[0]) / in, (double)last_dim(&node->shape), in);
}

static void add_conv(maker *m, const fr_node *node)
{
    const fr_shape *in = shape_of(m, node->inputs[0]);
    int groups = node->attrs.conv2d.groups > 1 ? node->attrs.conv2d.groups : 1;
    double each = (double)(in->dim[0] / groups);
    double k = each * node->attrs.conv2d.kernel[0] * node->attrs.conv2d.kernel[1];
    double rows = m->batch * (double)(node->shape.dim[1] * node->shape.dim[2]);
    fr__layer *l = add_product(m, node, rows, (double)node->shape.dim[0], k);
    l->parts[FR__IN] = groups > 1 ? 1 : in->dim[0];
}

/* Hidden units of both halves of k belong together, so k is cut as the input is. */
static bool add_lstm(maker *m, const fr_node *node)
{
    const fr_shape *in = shape_of(m, node->inputs[0]);
    double hidden = (double)node->attrs.lstm.hidden, fed = (double)last_dim(&node->shape);
    double width = (double)last_dim(in), rows = words(m, node->inputs[0]) / width;
    fr__layer *l = add_product(m, node, rows, 4 * hidden, width + fed);
    l->parts[FR__OUT] = (int64_t)hidden, l->parts[FR__IN] = last_dim(in);
    if (!node->attrs.lstm.projection) return true;
    l = add_product(m, node, rows, fed, hidden);
    l->name = fr__arena_printf(m->to->arena, "%s.projection", node->name);
    add_edge(m, m->to->n - 2, m->to->n - 1, rows * hidden);
    return l->name != NULL;
}

static void add_embedding(maker *m, const fr_node *node)
{
    double width = (double)last_dim(&node->shape), rows = words(m, node->inputs[0]);
    fr__layer *l = add_product(m, node, rows, width, (double)node->attrs.embedding.vocab);
    l->products = 0, l->sum[FR__OUT] = 0; /* ids have no gradient */
    l->points = 3 * rows * width;
}

/* Scores and values: two products for each head. */
static void add_attention(maker *m, const fr_node *node)
{
    const fr_shape *out = &node->shape;
    const fr_shape *keys = shape_of(m, node->inputs[node->op != FR_OP_ATTENTION]);
    double rows = m->batch * (double)out->dim[0], width = (double)last_dim(out);
    fr__layer *l = add(m, node, rows, width, 2 * (double)keys->dim[0]);
    l->products = 3 * rows * width * l->size[FR__IN];
    l->parts[FR__OUT] = node->attrs.attention.heads;
}

/* The second input takes the place of weights, but has as many copies as the first one. */
static void add_matmul(maker *m, int i, const fr_node *node)
{
    double n = (double)last_dim(&node->shape), k = (double)last_dim(shape_of(m, node->inputs[0]));
    fr__layer *l = add(m, node, words(m, i) / n, n, k);
    l->products = 3 * words(m, i) * k;
}

static void add_joint(maker *m, int i, const fr_node *node)
{
    double n = (double)features(&node->shape);
    fr__layer *l = add(m, node, words(m, i) / n, n, 1);
    l->parts[FR__OUT] = (int64_t)n;
    l->points = 3 * words(m, i);
}

/* Not a layer of its own. */
static void fold(maker *m, int i, const fr_node *node)
{
    int layer = node->n_inputs ? m->layer_of[node->inputs[0]] : -1;
    bool counts =
        node->op != FR_OP_FLATTEN && node->op != FR_OP_RESHAPE && !fr_operator_is_loss(node->op);
    m->layer_of[i] = layer;
    if (layer >= 0 && counts) m->to->at[layer].points += 3 * words(m, i);
}

static bool take(maker *m, int i)
{
    const fr_node *node = fr_graph_node(m->g, i);
    int first = m->to->n;
    bool is_made = true;
    switch (node->op) {
    case FR_OP_LINEAR: add_linear(m, node); break;
    case FR_OP_CONV2D: add_conv(m, node); break;
    case FR_OP_LSTM: is_made = add_lstm(m, node); break;
    case FR_OP_EMBEDDING: add_embedding(m, node); break;
    case FR_OP_ATTENTION:
    case FR_OP_CROSS_ATTENTION:
    case FR_OP_SDPA: add_attention(m, node); break;
    case FR_OP_MATMUL: add_matmul(m, i, node); break;
    case FR_OP_ADD:
    case FR_OP_MUL:
    case FR_OP_SUBTRACT:
    case FR_OP_CONCAT: add_joint(m, i, node); break;
    default: fold(m, i, node); return true;
    }
    m->layer_of[i] = m->to->n - 1;
    for (int k = 0; k < node->n_inputs; k++)
        add_edge(m, m->layer_of[node->inputs[k]], first, words(m, node->inputs[k]));
    return is_made;
}

fr_status fr__layers_of(fr_ctx *ctx, fr_arena *a, const fr_graph *g, int batch, fr__layers *out)
{
    int n = fr_graph_n_nodes(g), n_edges = 0;
    for (int i = 0; i < n; i++) n_edges += fr_graph_node(g, i)->n_inputs + 1;
    *out = (fr__layers){.ctx = ctx,
                        .arena = a,
                        .at = FR_ARENA_ARRAY(a, fr__layer, 2 * n),
                        .edges = FR_ARENA_ARRAY(a, fr__layer_edge, n_edges)};
    maker m = {.to = out, .g = g, .batch = batch, .layer_of = FR_ARENA_ARRAY(a, int, n)};
    bool is_made = out->at && out->edges && m.layer_of;
    for (int i = 0; is_made && i < n; i++) {
        m.layer_of[i] = -1;
        is_made = take(&m, i);
    }
    if (!is_made) return fr__no_memory(ctx, (size_t)n * sizeof(fr__layer), "layers");
    if (out->n == 0)
        return fr_fail(ctx, FR_UNSUPPORTED, "pase: model %s has no layer that multiplies matrices",
                       fr_graph_name(g));
    return FR_OK;
}
