/* attention.c -- multi-head attention over packed q|k|v, causal or not, with padding; and cross
 * attention, whose q is one tensor and k|v another of its own length.
 *
 * One thread computes one head of one sample: queries in blocks, scores of a block in scratch,
 * softmax over whole rows. Forward saves only log(sum(exp)) of each query; the backward recomputes
 * the scores (as in FlashAttention, Dao et al. 2022), so memory grows with T and not with T^2.
 * Causal blocks read only keys up to their last query. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/vmath.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64 }; /* queries */

typedef struct attention {
    fr__kernel k;
    int64_t time, keys;   /* T queries, S keys */
    int64_t width, depth; /* D, d = D / heads */
    int64_t ld_q, ld_kv;  /* rows of q apart, rows of k and of v */
    int heads;
    bool is_causal, is_cross, has_length;
    float scale;
} attention;

typedef struct head_job {
    const attention *at;
    const float *q;  /* (batch, T, ld_q) */
    const float *kv; /* (batch, S, ld_kv), of which 2D are k|v; within q|k|v: at the first k */
    const int32_t *length; /* (batch) or NULL */
    float *lse;            /* (batch, heads, T) or NULL */
    float *y;              /* (batch, T, D) */
    const float *dy;
    float *dq, *dkv; /* as q and kv; NULL: not needed */
    float *scratch;  /* 2 * BLOCK * S floats per thread */
} head_job;

/* One head of one sample; all pointers at its first row. */
typedef struct head {
    const float *q;      /* (T, d), rows ld_q apart */
    const float *k, *v;  /* (S, d), rows ld_kv apart */
    float *dq, *dk, *dv; /* NULL: not needed */
    int64_t keys;        /* valid ones */
} head;

static head find_head(const head_job *job, int64_t sample, int64_t h)
{
    const attention *at = job->at;
    int64_t q = sample * at->time * at->ld_q + h * at->depth;
    int64_t kv = sample * at->keys * at->ld_kv + h * at->depth;
    head out = {.q = job->q + q, .k = job->kv + kv, .keys = at->keys};
    out.v = out.k + at->width;
    if (job->dq) out.dq = job->dq + q;
    if (job->dkv) {
        out.dk = job->dkv + kv;
        out.dv = out.dk + at->width;
    }
    if (job->length) {
        int64_t length = job->length[sample];
        out.keys = length < 0 ? 0 : length > at->keys ? at->keys : length;
    }
    return out;
}

/* Keys that queries first .. first + n - 1 may attend to. */
static int64_t keys_seen(const attention *at, const head *hd, int64_t first, int64_t n)
{
    int64_t last = at->is_causal ? first + n : at->keys;
    return last < hd->keys ? last : hd->keys;
}

/* Rows of scores to probabilities in place; lse (n) kept if not NULL. */
FR_SIMD(static, softmax_block,
        (const attention *at, float *scores, int64_t first, int64_t n, int64_t keys, float *lse),
        (at, scores, first, n, keys, lse))
{
    for (int64_t r = 0; r < n; r++) {
        float *restrict s = scores + r * keys;
        int64_t seen = at->is_causal && first + r + 1 < keys ? first + r + 1 : keys;
        float top = s[0], sum, scale = at->scale;
#pragma omp simd reduction(max : top)
        for (int64_t i = 0; i < seen; i++) top = s[i] > top ? s[i] : top;
        top *= scale;
        for (int64_t i = 0; i < seen; i++) s[i] = fr__exp(s[i] * scale - top);
        FR_SUM(sum, i, seen, s[i]);
        float inv = 1.0f / sum;
        for (int64_t i = 0; i < seen; i++) s[i] *= inv;
        for (int64_t i = seen; i < keys; i++) s[i] = 0.0f;
        if (lse) lse[r] = top + logf(sum);
    }
}

/* scores to probabilities p; dp (gradients of p) to gradients of the scores, scaled. */
FR_SIMD(static, slope_block,
        (const attention *at, float *scores, float *grads, int64_t first, int64_t n, int64_t keys,
         const float *lse),
        (at, scores, grads, first, n, keys, lse))
{
    for (int64_t r = 0; r < n; r++) {
        float *restrict p = scores + r * keys, *restrict g = grads + r * keys;
        int64_t seen = at->is_causal && first + r + 1 < keys ? first + r + 1 : keys;
        float sum, scale = at->scale, shift = lse[r];
        for (int64_t i = 0; i < seen; i++) p[i] = fr__exp(p[i] * scale - shift);
        FR_SUM(sum, i, seen, p[i] * g[i]);
        for (int64_t i = 0; i < seen; i++) g[i] = p[i] * (g[i] - sum) * scale;
        for (int64_t i = seen; i < keys; i++) p[i] = g[i] = 0.0f;
    }
}

static void forward_head(const head_job *job, int64_t sample, int64_t h, float *scores)
{
    const attention *at = job->at;
    head hd = find_head(job, sample, h);
    float *y = job->y + sample * at->time * at->width + h * at->depth;
    float *lse = job->lse ? job->lse + (sample * at->heads + h) * at->time : NULL;
    for (int64_t first = 0; first < at->time; first += BLOCK) {
        int64_t n = at->time - first < BLOCK ? at->time - first : BLOCK;
        int64_t keys = keys_seen(at, &hd, first, n);
        if (keys == 0) { /* no keys: the output is zero */
            for (int64_t r = first; r < first + n; r++)
                memset(y + r * at->width, 0, (size_t)at->depth * sizeof(float));
            continue;
        }
        fr__gemm(n, keys, at->depth, (fr__matrix){hd.q + first * at->ld_q, at->ld_q, false},
                 (fr__matrix){hd.k, at->ld_kv, true}, scores, keys, false);
        softmax_block(at, scores, first, n, keys, lse ? lse + first : NULL);
        fr__gemm(n, at->depth, keys, (fr__matrix){scores, keys, false},
                 (fr__matrix){hd.v, at->ld_kv, false}, y + first * at->width, at->width, false);
    }
}

static void clear_rows(float *at, int64_t ld, int64_t first, int64_t last, int64_t n)
{
    for (int64_t r = first; at && r < last; r++) memset(at + r * ld, 0, (size_t)n * sizeof(float));
}

/* From the last block, which has the most keys, to the first: the first write of dk and dv sets
 * them. */
static void backward_head(const head_job *job, int64_t sample, int64_t h, float *scores)
{
    const attention *at = job->at;
    int64_t d = at->depth, width = at->width, ld_q = at->ld_q, ld_kv = at->ld_kv;
    head hd = find_head(job, sample, h);
    const float *dy = job->dy + sample * at->time * width + h * d;
    const float *lse = job->lse + (sample * at->heads + h) * at->time;
    float *grads = scores + BLOCK * at->keys;
    clear_rows(hd.dk, ld_kv, hd.keys, at->keys, d);
    clear_rows(hd.dv, ld_kv, hd.keys, at->keys, d);
    bool is_first = true;
    for (int64_t first = (at->time - 1) / BLOCK * BLOCK; first >= 0; first -= BLOCK) {
        int64_t n = at->time - first < BLOCK ? at->time - first : BLOCK;
        int64_t keys = keys_seen(at, &hd, first, n);
        if (keys == 0) {
            clear_rows(hd.dq, ld_q, first, first + n, d);
            continue;
        }
        fr__matrix q = {hd.q + first * ld_q, ld_q, false},
                   dout = {dy + first * width, width, false};
        fr__gemm(n, keys, d, q, (fr__matrix){hd.k, ld_kv, true}, scores, keys, false);
        fr__gemm(n, keys, d, dout, (fr__matrix){hd.v, ld_kv, true}, grads, keys, false);
        slope_block(at, scores, grads, first, n, keys, lse + first);
        if (hd.dk) {
            fr__gemm(keys, d, n, (fr__matrix){scores, keys, true}, dout, hd.dv, ld_kv, !is_first);
            fr__gemm(keys, d, n, (fr__matrix){grads, keys, true}, q, hd.dk, ld_kv, !is_first);
        }
        if (hd.dq)
            fr__gemm(n, d, keys, (fr__matrix){grads, keys, false}, (fr__matrix){hd.k, ld_kv, false},
                     hd.dq + first * ld_q, ld_q, false);
        is_first = false;
    }
}

/* Heads are dealt to threads in contiguous runs; each run has its own scratch. */
static void forward_heads(void *arg, size_t begin, size_t end)
{
    const head_job *job = arg;
    float *scratch = job->scratch + fr__cpu_thread() * 2 * BLOCK * job->at->keys;
    for (size_t i = begin; i < end; i++)
        forward_head(job, (int64_t)i / job->at->heads, (int64_t)i % job->at->heads, scratch);
}

static void backward_heads(void *arg, size_t begin, size_t end)
{
    const head_job *job = arg;
    float *scratch = job->scratch + fr__cpu_thread() * 2 * BLOCK * job->at->keys;
    for (size_t i = begin; i < end; i++)
        backward_head(job, (int64_t)i / job->at->heads, (int64_t)i % job->at->heads, scratch);
}

/* Common part of forward and backward. */
static head_job find_job(const attention *at, const fr__kernel_args *a)
{
    head_job job = {.at = at, .q = a->x[0], .scratch = a->scratch};
    job.kv = at->is_cross ? a->x[1] : job.q + at->width;
    if (at->has_length) job.length = a->x[at->is_cross ? 2 : 1];
    return job;
}

static fr_status attention_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const attention *at = (const attention *)k;
    head_job job = find_job(at, a);
    job.lse = k->training ? a->saved : NULL;
    job.y = a->y;
    fr__cpu_parallel(k->dev, (size_t)(k->batch * at->heads), 1, forward_heads, &job);
    return FR_OK;
}

static fr_status attention_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const attention *at = (const attention *)k;
    head_job job = find_job(at, a);
    job.lse = a->saved;
    job.dy = a->dy;
    job.dq = a->dx[0];
    job.dkv = at->is_cross ? a->dx[1] : job.dq + at->width;
    fr__cpu_parallel(k->dev, (size_t)(k->batch * at->heads), 1, backward_heads, &job);
    return FR_OK;
}

static const fr__kernel_ops attention_ops = {.forward = attention_forward,
                                             .backward_input = attention_backward_input};

fr_status fr__cpu_attention(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    attention *at = (attention *)fr__kernel_new(spec, arena, sizeof *at, &attention_ops);
    if (!at) return FR_NO_MEMORY;
    fr__kernel *k = &at->k;
    at->heads = k->node->attrs.attention.heads;
    at->is_causal = k->node->attrs.attention.causal;
    at->is_cross = k->node->op == FR_OP_CROSS_ATTENTION;
    at->has_length = spec->n_inputs > (at->is_cross ? 2 : 1);
    at->width = fr__cols(k->node);
    at->time = fr_shape_count(&k->node->shape) / at->width;
    at->keys = at->is_cross ? fr_graph_node(spec->graph, spec->inputs[1])->shape.dim[0] : at->time;
    at->ld_q = at->is_cross ? at->width : 3 * at->width;
    at->ld_kv = at->is_cross ? 2 * at->width : 3 * at->width;
    at->depth = at->width / at->heads;
    at->scale = 1.0f / sqrtf((float)at->depth);
    k->scratch_bytes =
        (size_t)(2 * BLOCK * at->keys) * sizeof(float) * (size_t)fr_device_n_threads(spec->dev);
    if (spec->training)
        k->saved_bytes = (size_t)(spec->batch * at->heads * at->time) * sizeof(float);
    k->needs_x = (uint8_t)((1u << spec->n_inputs) - 1);
    *out = k;
    return FR_OK;
}
