/* attention.c -- the core of multi-head attention (Vaswani et al., 2017), without projections, over
 * one sequence (attention), from one to another (cross_attention), or of separate q, k and v
 * (sdpa).
 *
 * Rows of attention's input are q|k|v, 3D wide, each D = heads x d; cross_attention has q (T, D) in
 * one input and k|v (S, 2D) in the other; sdpa has q (T, D), k (S, E) and v (S, E), where a head of
 * k and v serves D / E heads of q. For each head, with s = 1/sqrt(d) and a mask M, if any,
 *     P = softmax(s q k' + M) over the keys a query may see,   y = P v.
 * A query sees the keys before the sample's length and, if causal, not after itself, nor more than
 * `window`; one that sees none gives zeros. A mask of integers hides the keys where it is 0.
 * Backward, row by row: dP = dy v', dM = dS = P (dP - sum(P dP)), dq = s dS k, dk = s dS' q,
 * dv = P' dy. Nothing is saved: P is computed again. */
#include <math.h>

#include "backend/ref/ref.h"

enum { Q, K, V };

/* Location of the rows of q, k or v: input, first number of a row, numbers of a row, heads. */
typedef struct place {
    int input;
    int64_t first, row, heads;
} place;

typedef struct attention {
    fr__kernel base;
    int64_t n_queries, n_keys; /* T, S */
    int64_t heads, depth;      /* D = heads x depth */
    place at[3];               /* Q, K, V */
    int mask;                  /* input; -1: none */
    fr_shape mask_shape;
    double scale;
} attention;

static int64_t n_rows(const attention *at, int which)
{
    return which == Q ? at->n_queries : at->n_keys;
}

static int64_t width_of(const attention *at, int which) { return at->at[which].heads * at->depth; }

/* Flat index of row t of q, k or v of a sample in the input that holds it. */
static int64_t index_of(const attention *at, int which, int64_t sample, int64_t t)
{
    const place *p = &at->at[which];
    return (sample * n_rows(at, which) + t) * p->row + p->first;
}

/* One head of one sample: its rows, and those of its gradients. */
typedef struct view {
    const attention *at;
    const fr__kernel_args *a;
    int64_t sample, head;
    int64_t length; /* keys that are not padding */
    double *g[3];   /* (T or S, D or E): gradients of q, k, v of the sample */
} view;

/* The first column of the head, or of the one of k and v that serves it. */
static int64_t column_of(const view *v, int which)
{
    return v->head * v->at->at[which].heads / v->at->heads * v->at->depth;
}

static const float *row_of(const view *v, int which, int64_t t)
{
    return (const float *)v->a->x[v->at->at[which].input] + index_of(v->at, which, v->sample, t) +
           column_of(v, which);
}

static double *grad_of(const view *v, int which, int64_t t)
{
    return v->g[which] + t * width_of(v->at, which) + column_of(v, which);
}

/* Flat index of a row of the mask: (S), (T, S) or (heads, T, S) a sample. */
static int64_t mask_row(const view *v, int64_t query)
{
    const fr_shape *m = &v->at->mask_shape;
    int64_t row = m->n_dims > 2 ? v->head : 0;
    if (m->n_dims > 1) row = row * v->at->n_queries + query;
    return v->sample * fr_shape_count(m) + row * v->at->n_keys;
}

/* Keys first .. end - 1. */
typedef struct range {
    int64_t first, end;
} range;

static range keys_seen(const view *v, int64_t query)
{
    const fr_attrs *a = &v->at->base.node->attrs;
    range r = {0, v->length};
    if (a->attention.causal && query + 1 < r.end) r.end = query + 1;
    if (a->attention.window > 0 && query >= a->attention.window)
        r.first = query + 1 - a->attention.window;
    if (r.first > r.end) r.first = r.end;
    return r;
}

/* The score of a key after the mask. */
static double masked(const view *v, int64_t query, int64_t key, double score)
{
    int input = v->at->mask;
    if (input < 0) return score;
    int64_t at = mask_row(v, query) + key;
    if (fr__ref_input(&v->at->base, input)->dtype == FR_I32)
        return ((const int32_t *)v->a->x[input])[at] ? score : -INFINITY;
    return score + (double)((const float *)v->a->x[input])[at];
}

/* p[key]: softmax of a query's scores over its keys. */
static void weigh_keys(const view *v, int64_t query, range r, double *p)
{
    const float *q = row_of(v, Q, query);
    double max = -INFINITY, sum = 0;
    bool sees_none = true;
    for (int64_t j = r.first; j < r.end; j++) {
        const float *key = row_of(v, K, j);
        p[j] = 0;
        for (int64_t i = 0; i < v->at->depth; i++) p[j] += (double)q[i] * (double)key[i];
        p[j] = masked(v, query, j, p[j] * v->at->scale);
        max = p[j] > max ? p[j] : max;
        sees_none = sees_none && p[j] == -INFINITY;
    }
    for (int64_t j = r.first; j < r.end; j++) sum += p[j] = sees_none ? 0 : exp(p[j] - max);
    for (int64_t j = r.first; j < r.end && !sees_none; j++) p[j] /= sum;
}

/* Where the output of a query begins: rows are (heads, d). */
static int64_t output_of(const view *v, int64_t query)
{
    return ((v->sample * v->at->n_queries + query) * v->at->heads + v->head) * v->at->depth;
}

static fr_status attention_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const attention *at = (const attention *)k;
    double *p = a->scratch;
    for (int64_t h = 0; h < k->batch * at->heads; h++) {
        view v = {.at = at, .a = a, .sample = h / at->heads, .head = h % at->heads};
        v.length = fr__ref_length(k, a, v.sample, at->n_keys);
        for (int64_t query = 0; query < at->n_queries; query++) {
            range r = keys_seen(&v, query);
            float *y = (float *)a->y + output_of(&v, query);
            weigh_keys(&v, query, r, p);
            for (int64_t i = 0; i < at->depth; i++) {
                double sum = 0;
                for (int64_t j = r.first; j < r.end; j++) sum += p[j] * (double)row_of(&v, V, j)[i];
                y[i] = (float)sum;
            }
        }
    }
    return FR_OK;
}

/* Gradient of a mask of floats, which has a row of its own for each head and query. */
static void put_mask_grads(const view *v, int64_t query, range r, const double *ds)
{
    int input = v->at->mask;
    if (input < 0 || !v->a->dx[input]) return;
    float *dm = (float *)v->a->dx[input] + mask_row(v, query);
    for (int64_t j = 0; j < v->at->n_keys; j++)
        fr__ref_put(&dm[j], j >= r.first && j < r.end ? ds[j] : 0, v->a->add_dx[input]);
}

/* Adds the contribution of one query to the gradients of its sample. */
static void query_backward(const view *v, const float *dy, int64_t query, double *p, double *dp)
{
    const float *q = row_of(v, Q, query);
    double mean = 0, *dq = grad_of(v, Q, query);
    range r = keys_seen(v, query);
    int64_t depth = v->at->depth;
    weigh_keys(v, query, r, p);
    for (int64_t j = r.first; j < r.end; j++) {
        dp[j] = 0;
        for (int64_t i = 0; i < depth; i++) dp[j] += (double)dy[i] * (double)row_of(v, V, j)[i];
        mean += p[j] * dp[j];
    }
    for (int64_t j = r.first; j < r.end; j++) {
        const float *key = row_of(v, K, j);
        double ds = p[j] * (dp[j] - mean), *dk = grad_of(v, K, j), *dv = grad_of(v, V, j);
        dp[j] = ds;
        ds *= v->at->scale;
        for (int64_t i = 0; i < depth; i++) {
            dq[i] += ds * (double)key[i];
            dk[i] += ds * (double)q[i];
            dv[i] += p[j] * (double)dy[i];
        }
    }
    put_mask_grads(v, query, r, dp);
}

/* Copy the gradients of a sample, with heads contiguous, into the layout of its inputs. */
static void put_grads(const view *v, int which)
{
    const attention *at = v->at;
    int input = at->at[which].input;
    int64_t width = width_of(at, which);
    float *dx = v->a->dx[input];
    for (int64_t t = 0; dx && t < n_rows(at, which); t++)
        for (int64_t i = 0; i < width; i++)
            fr__ref_put(&dx[index_of(at, which, v->sample, t) + i], v->g[which][t * width + i],
                        v->a->add_dx[input]);
}

static int64_t n_grads(const attention *at)
{
    int64_t n = 0;
    for (int which = Q; which <= V; which++) n += n_rows(at, which) * width_of(at, which);
    return n;
}

static fr_status attention_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const attention *at = (const attention *)k;
    double *p = a->scratch, *dp = p + at->n_keys;
    view v = {.at = at, .a = a, .g = {[Q] = dp + at->n_keys}};
    v.g[K] = v.g[Q] + at->n_queries * width_of(at, Q);
    v.g[V] = v.g[K] + at->n_keys * width_of(at, K);
    for (v.sample = 0; v.sample < k->batch; v.sample++) {
        for (int64_t i = 0; i < n_grads(at); i++) v.g[Q][i] = 0;
        v.length = fr__ref_length(k, a, v.sample, at->n_keys);
        for (v.head = 0; v.head < at->heads; v.head++)
            for (int64_t query = 0; query < at->n_queries; query++)
                query_backward(&v, (const float *)a->dy + output_of(&v, query), query, p, dp);
        for (int which = Q; which <= V; which++) put_grads(&v, which);
    }
    return FR_OK;
}

fr_status fr__ref_attention(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = attention_forward,
                                       .backward_input = attention_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(attention), &ops, out));
    attention *at = (attention *)*out;
    const fr_node *node = at->base.node;
    int64_t d = node->shape.dim[1], h = at->heads = node->attrs.attention.heads;
    bool is_sdpa = node->op == FR_OP_SDPA, is_packed = node->op == FR_OP_ATTENTION;
    at->n_queries = node->shape.dim[0], at->depth = d / h;
    at->n_keys = is_packed ? at->n_queries : fr__ref_input(*out, 1)->shape.dim[0];
    at->at[Q] = (place){0, 0, is_packed ? 3 * d : d, h};
    at->at[K] = is_packed ? (place){0, d, 3 * d, h} : (place){1, 0, 2 * d, h};
    at->at[V] = is_packed ? (place){0, 2 * d, 3 * d, h} : (place){1, d, 2 * d, h};
    at->scale = 1 / sqrt((double)at->depth);
    at->mask = -1;
    if (is_sdpa) {
        int64_t kv_heads = node->attrs.attention.kv_heads;
        at->at[K] = at->at[V] = (place){1, 0, kv_heads * at->depth, kv_heads};
        at->at[V].input = 2;
        at->scale = (double)node->attrs.attention.scale;
        at->mask = node->n_inputs > 3 && fr_graph_length_input(spec->graph, node) != 3 ? 3 : -1;
        if (at->mask >= 0) at->mask_shape = fr__ref_input(*out, 3)->shape;
    }
    at->base.needs_x = (uint8_t)((1u << node->n_inputs) - 1);
    at->base.scratch_bytes = (size_t)(2 * at->n_keys + n_grads(at)) * sizeof(double);
    return FR_OK;
}
