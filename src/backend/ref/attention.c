/* attention.c -- the core of multi-head attention (Vaswani et al., 2017), without projections, over
 * one sequence (attention) or from one to another (cross_attention).
 *
 * Rows of attention's input are q|k|v, 3D wide, each D = heads x d; cross_attention has q (T, D) in
 * one input and k|v (S, 2D) in the other. For each head, with s = 1/sqrt(d),
 *     P = softmax(s q k') over the keys a query may see,   y = P v.
 * A query sees the keys before the sample's length and, if causal, not after itself; one that sees
 * none gives zeros. Backward, row by row: dP = dy v', dS = P (dP - sum(P dP)), dq = s dS k,
 * dk = s dS' q, dv = P' dy. Nothing is saved: P is computed again. */
#include <math.h>

#include "backend/ref/ref.h"

enum { Q, K, V };

/* Location of the rows of q, k or v: input, first number of a row, numbers of a row. */
typedef struct place {
    int input;
    int64_t first, row;
} place;

typedef struct attention {
    fr__kernel base;
    int64_t n_queries, n_keys; /* T, S */
    int64_t width;             /* D */
    int64_t heads, depth;      /* D = heads x depth */
    place at[3];               /* Q, K, V */
    double scale;
} attention;

static int64_t n_rows(const attention *at, int which)
{
    return which == Q ? at->n_queries : at->n_keys;
}

/* Flat index of row t of q, k or v of a sample, at a head, in the input that holds it. */
static int64_t index_of(const attention *at, int which, int64_t sample, int64_t head, int64_t t)
{
    const place *p = &at->at[which];
    return (sample * n_rows(at, which) + t) * p->row + p->first + head * at->depth;
}

/* One head of one sample: its rows, and those of its gradients. */
typedef struct view {
    const attention *at;
    const fr__kernel_args *a;
    int64_t sample, head;
    int64_t length; /* keys that are not padding */
    double *g[3];   /* (T or S, D): gradients of q, k, v of the sample */
} view;

static const float *row_of(const view *v, int which, int64_t t)
{
    return (const float *)v->a->x[v->at->at[which].input] +
           index_of(v->at, which, v->sample, v->head, t);
}

static double *grad_of(const view *v, int which, int64_t t)
{
    return v->g[which] + t * v->at->width + v->head * v->at->depth;
}

static int64_t keys_seen(const view *v, int64_t query)
{
    bool causal = v->at->base.node->attrs.attention.causal;
    return causal && query + 1 < v->length ? query + 1 : v->length;
}

/* p[0..n): softmax of a query's scores over its keys. */
static void weigh_keys(const view *v, int64_t query, int64_t n, double *p)
{
    const float *q = row_of(v, Q, query);
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        const float *key = row_of(v, K, j);
        p[j] = 0;
        for (int64_t i = 0; i < v->at->depth; i++) p[j] += (double)q[i] * (double)key[i];
        p[j] *= v->at->scale;
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - max);
    for (int64_t j = 0; j < n; j++) p[j] /= sum;
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
            int64_t n = keys_seen(&v, query);
            float *y = (float *)a->y + output_of(&v, query);
            weigh_keys(&v, query, n, p);
            for (int64_t i = 0; i < at->depth; i++) {
                double sum = 0;
                for (int64_t j = 0; j < n; j++) sum += p[j] * (double)row_of(&v, V, j)[i];
                y[i] = (float)sum;
            }
        }
    }
    return FR_OK;
}

/* Adds the contribution of one query to the gradients of its sample. */
static void query_backward(const view *v, const float *dy, int64_t query, double *p, double *dp)
{
    const float *q = row_of(v, Q, query);
    double mean = 0, *dq = grad_of(v, Q, query);
    int64_t n = keys_seen(v, query), depth = v->at->depth;
    weigh_keys(v, query, n, p);
    for (int64_t j = 0; j < n; j++) {
        dp[j] = 0;
        for (int64_t i = 0; i < depth; i++) dp[j] += (double)dy[i] * (double)row_of(v, V, j)[i];
        mean += p[j] * dp[j];
    }
    for (int64_t j = 0; j < n; j++) {
        const float *key = row_of(v, K, j);
        double ds = v->at->scale * p[j] * (dp[j] - mean);
        double *dk = grad_of(v, K, j), *dv = grad_of(v, V, j);
        for (int64_t i = 0; i < depth; i++) {
            dq[i] += ds * (double)key[i];
            dk[i] += ds * (double)q[i];
            dv[i] += p[j] * (double)dy[i];
        }
    }
}

/* Copy the gradients of a sample, with heads contiguous, into the layout of its inputs. */
static void put_grads(const view *v, int which)
{
    const attention *at = v->at;
    int input = at->at[which].input;
    float *dx = v->a->dx[input];
    for (int64_t t = 0; dx && t < n_rows(at, which); t++)
        for (int64_t i = 0; i < at->width; i++)
            fr__ref_put(&dx[index_of(at, which, v->sample, 0, t) + i],
                        v->g[which][t * at->width + i], v->a->add_dx[input]);
}

static fr_status attention_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const attention *at = (const attention *)k;
    double *p = a->scratch, *dp = p + at->n_keys;
    view v = {.at = at, .a = a, .g = {[Q] = dp + at->n_keys}};
    v.g[K] = v.g[Q] + at->n_queries * at->width;
    v.g[V] = v.g[K] + at->n_keys * at->width;
    for (v.sample = 0; v.sample < k->batch; v.sample++) {
        int64_t n_grads = (at->n_queries + 2 * at->n_keys) * at->width;
        for (int64_t i = 0; i < n_grads; i++) v.g[Q][i] = 0;
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
    int64_t d = node->shape.dim[1];
    bool is_cross = node->op == FR_OP_CROSS_ATTENTION;
    at->n_queries = node->shape.dim[0], at->width = d;
    at->n_keys = is_cross ? fr__ref_input(*out, 1)->shape.dim[0] : at->n_queries;
    at->heads = node->attrs.attention.heads, at->depth = d / at->heads;
    at->at[Q] = is_cross ? (place){0, 0, d} : (place){0, 0, 3 * d};
    at->at[K] = is_cross ? (place){1, 0, 2 * d} : (place){0, d, 3 * d};
    at->at[V] = is_cross ? (place){1, d, 2 * d} : (place){0, 2 * d, 3 * d};
    at->scale = 1 / sqrt((double)at->depth);
    at->base.needs_x = (uint8_t)((1u << node->n_inputs) - 1);
    at->base.scratch_bytes =
        (size_t)(2 * at->n_keys + (at->n_queries + 2 * at->n_keys) * d) * sizeof(double);
    return FR_OK;
}
