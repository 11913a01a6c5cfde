/* attention.c -- the core of multi-head attention (Vaswani et al., 2017), without projections.
 *
 * Input rows are q|k|v, 3D wide, each D = heads x d. Of each head, with s = 1/sqrt(d),
 *     P = softmax(s q k') over the keys a query may see,   y = P v.
 * A query sees the keys before the sample's length and, if causal, not after itself; one that sees
 * none gives zeros. Backward, row by row: dP = dy v', dS = P (dP - sum(P dP)), dq = s dS k,
 * dk = s dS' q, dv = P' dy. Nothing is saved: P is computed again. */
#include <math.h>

#include "backend/ref/ref.h"

typedef struct attention {
    fr_kernel base;
    int64_t n_steps, width; /* T, D */
    int64_t heads, depth;   /* D = heads x depth */
    double scale;
} attention;

/* Where q, k, v of a head lie in row t of one sample's (T, 3D) input; which = 0, 1, 2. */
static int64_t place(const attention *at, int which, int64_t head, int64_t t)
{
    return (3 * t + which) * at->width + head * at->depth;
}

static int64_t keys_seen(const attention *at, int64_t length, int64_t query)
{
    bool causal = at->base.node->attrs.attention.causal;
    return causal && query + 1 < length ? query + 1 : length;
}

/* p[0..n): softmax of a query's scores over its keys. */
static void weigh_keys(const attention *at, const float *x, int64_t head, int64_t query, int64_t n,
                       double *p)
{
    const float *q = x + place(at, 0, head, query);
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        const float *key = x + place(at, 1, head, j);
        p[j] = 0;
        for (int64_t i = 0; i < at->depth; i++) p[j] += (double)q[i] * (double)key[i];
        p[j] *= at->scale;
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - max);
    for (int64_t j = 0; j < n; j++) p[j] /= sum;
}

static fr_status attention_forward(fr_kernel *k, const fr_kernel_args *a)
{
    const attention *at = (const attention *)k;
    double *p = a->scratch;
    for (int64_t s = 0; s < k->batch; s++) {
        const float *x = (const float *)a->x[0] + s * at->n_steps * 3 * at->width;
        int64_t length = fr__ref_length(k, a, s, at->n_steps);
        for (int64_t row = 0; row < at->n_steps * at->heads; row++) {
            int64_t query = row / at->heads, head = row % at->heads;
            int64_t n = keys_seen(at, length, query);
            float *y = (float *)a->y + (s * at->n_steps * at->heads + row) * at->depth;
            weigh_keys(at, x, head, query, n, p);
            for (int64_t i = 0; i < at->depth; i++) {
                double sum = 0;
                for (int64_t j = 0; j < n; j++) sum += p[j] * (double)x[place(at, 2, head, j) + i];
                y[i] = (float)sum;
            }
        }
    }
    return FR_OK;
}

/* Adds what one query gives to the gradient g (T, 3D) of its sample. */
static void query_backward(const attention *at, const float *x, const float *dy, int64_t head,
                           int64_t query, int64_t n, double *p, double *dp, double *g)
{
    double mean = 0;
    int64_t q = place(at, 0, head, query);
    weigh_keys(at, x, head, query, n, p);
    for (int64_t j = 0; j < n; j++) {
        dp[j] = 0;
        for (int64_t i = 0; i < at->depth; i++)
            dp[j] += (double)dy[i] * (double)x[place(at, 2, head, j) + i];
        mean += p[j] * dp[j];
    }
    for (int64_t j = 0; j < n; j++) {
        int64_t key = place(at, 1, head, j), value = place(at, 2, head, j);
        double ds = at->scale * p[j] * (dp[j] - mean);
        for (int64_t i = 0; i < at->depth; i++) {
            g[q + i] += ds * (double)x[key + i];
            g[key + i] += ds * (double)x[q + i];
            g[value + i] += p[j] * (double)dy[i];
        }
    }
}

static fr_status attention_backward(fr_kernel *k, const fr_kernel_args *a)
{
    const attention *at = (const attention *)k;
    int64_t n_x = at->n_steps * 3 * at->width;
    double *p = a->scratch, *dp = p + at->n_steps, *g = dp + at->n_steps;
    for (int64_t s = 0; s < k->batch; s++) {
        const float *x = (const float *)a->x[0] + s * n_x;
        int64_t length = fr__ref_length(k, a, s, at->n_steps);
        for (int64_t i = 0; i < n_x; i++) g[i] = 0;
        for (int64_t row = 0; row < at->n_steps * at->heads; row++) {
            int64_t query = row / at->heads;
            const float *dy =
                (const float *)a->dy + (s * at->n_steps * at->heads + row) * at->depth;
            query_backward(at, x, dy, row % at->heads, query, keys_seen(at, length, query), p, dp,
                           g);
        }
        float *dx = (float *)a->dx[0] + s * n_x;
        for (int64_t i = 0; i < n_x; i++) fr__ref_put(&dx[i], g[i], a->add_dx[0]);
    }
    return FR_OK;
}

fr_status fr__ref_attention(const fr_kernel_spec *spec, fr_arena *arena, fr_kernel **out)
{
    static const fr_kernel_ops ops = {.forward = attention_forward,
                                      .backward_input = attention_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(attention), &ops, out));
    attention *at = (attention *)*out;
    const fr_node *node = at->base.node;
    at->n_steps = node->shape.dim[0], at->width = node->shape.dim[1];
    at->heads = node->attrs.attention.heads, at->depth = at->width / at->heads;
    at->scale = 1 / sqrt((double)at->depth);
    at->base.needs_x = node->n_inputs > 1 ? 3 : 1;
    at->base.scratch_bytes = (size_t)(at->n_steps * (2 + 3 * at->width)) * sizeof(double);
    return FR_OK;
}
