/* attention.c -- multi-head attention over packed q|k|v, causal or not, with padding; and cross
 * attention, whose q is one tensor and k|v another of its own length.
 *
 * One thread computes one head of one sample: queries in blocks, scores of a block in scratch,
 * softmax over whole rows. Forward saves only log(sum(exp)) of each query; the backward recomputes
 * the scores (as in FlashAttention, Dao et al. 2022), so memory grows with T and not with T^2.
 * Causal blocks read only keys up to their last query. Heads of tensors of bf16 are computed by
 * attention_bf16.c, or, if the processor cannot multiply them, widened into scratch and rounded on
 * the way out. Scores and softmax are floats. */
#include "backend/cpu/attention.h"
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
    bool multiplies_bf16;
    float scale;
    fr_dtype q_type, kv_type;
    int64_t room; /* scratch of a thread, in floats */
} attention;

typedef struct head_job {
    const attention *at;
    fr__source q;          /* (batch, T, ld_q) */
    fr__source kv;         /* (batch, S, ld_kv), of which 2D are k|v; in q|k|v: at the first k */
    const int32_t *length; /* (batch) or NULL */
    float *lse;            /* (batch, heads, T) or NULL */
    fr__sink y;            /* (batch, T, D) */
    fr__source dy;
    fr__sink dq, dkv; /* as q and kv; NULL: not needed */
    float *scratch; /* per thread: 2 * BLOCK * S floats and rooms for bf16, or attention_bf16.c's */
} head_job;

/* One head of one sample; all pointers at its first row. */
typedef struct head {
    const float *q;      /* (T, d), rows ld_q apart */
    const float *k, *v;  /* (S, d), rows ld_kv apart */
    float *y;            /* (T, d), rows ld_y apart, or NULL */
    const float *dy;     /* likewise */
    float *dq, *dk, *dv; /* as q, k, v; NULL: not needed */
    int64_t ld_q, ld_kv, ld_y;
    int64_t keys;              /* valid ones */
    int64_t q_at, kv_at, y_at; /* of its first elements in the tensors */
    float *rest;               /* rooms that are not taken */
} head;

FR_SIMD(static, widen_rows, (const uint16_t *from, int64_t ld, int64_t rows, int64_t n, float *to),
        (from, ld, rows, n, to))
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) to[r * n + i] = fr__bf16_value(from[r * ld + i]);
}

FR_SIMD(static, round_rows, (const float *from, int64_t ld, int64_t rows, int64_t n, uint16_t *to),
        (from, ld, rows, n, to))
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) to[r * ld + i] = fr__bf16_of(from[r * n + i]);
}

/* Rows of a head, `ld` apart, as floats: in place, or in a room. */
static const float *enter(head *hd, fr__source t, int64_t ld, int64_t rows, int64_t depth)
{
    if (!t.at || t.type != FR_BF16) return t.at;
    float *room = hd->rest;
    hd->rest += rows * depth;
    widen_rows(t.at, ld, rows, depth, room);
    return room;
}

/* Where to compute them; then leave. */
static float *place(head *hd, fr__sink t, int64_t rows, int64_t depth)
{
    if (!t.at || t.type != FR_BF16) return t.at;
    float *room = hd->rest;
    hd->rest += rows * depth;
    return room;
}

static void leave(fr__sink t, const float *from, int64_t ld, int64_t rows, int64_t depth)
{
    if (t.at && t.type == FR_BF16) round_rows(from, ld, rows, depth, t.at);
}

static fr__sink part(fr__sink t, int64_t at) { return t.at ? fr__sink_at(t, at) : t; }

static int64_t valid_keys(const head_job *job, int64_t sample)
{
    const int64_t all = job->at->keys, length = job->length ? job->length[sample] : all;
    return length < 0 ? 0 : length > all ? all : length;
}

static head find_head(const head_job *job, int64_t sample, int64_t h, float *rooms)
{
    const attention *at = job->at;
    const int64_t d = at->depth;
    head out = {.q_at = sample * at->time * at->ld_q + h * d,
                .kv_at = sample * at->keys * at->ld_kv + h * d,
                .y_at = sample * at->time * at->width + h * d,
                .ld_q = job->q.type == FR_BF16 ? d : at->ld_q,
                .ld_kv = job->kv.type == FR_BF16 ? d : at->ld_kv,
                .ld_y = at->k.y.dtype == FR_BF16 ? d : at->width,
                .rest = rooms};
    const fr__source k = fr__source_at(job->kv, out.kv_at);
    out.q = enter(&out, fr__source_at(job->q, out.q_at), at->ld_q, at->time, d);
    out.k = enter(&out, k, at->ld_kv, at->keys, d);
    out.v = enter(&out, fr__source_at(k, at->width), at->ld_kv, at->keys, d);
    if (job->dy.at) out.dy = enter(&out, fr__source_at(job->dy, out.y_at), at->width, at->time, d);
    out.y = place(&out, part(job->y, out.y_at), at->time, d);
    out.dq = place(&out, part(job->dq, out.q_at), at->time, d);
    out.dk = place(&out, part(job->dkv, out.kv_at), at->keys, d);
    out.dv = place(&out, part(job->dkv, out.kv_at + at->width), at->keys, d);
    out.keys = valid_keys(job, sample);
    return out;
}

static void leave_head(const head_job *job, const head *hd)
{
    const attention *at = job->at;
    leave(part(job->y, hd->y_at), hd->y, at->width, at->time, at->depth);
    leave(part(job->dq, hd->q_at), hd->dq, at->ld_q, at->time, at->depth);
    leave(part(job->dkv, hd->kv_at), hd->dk, at->ld_kv, at->keys, at->depth);
    leave(part(job->dkv, hd->kv_at + at->width), hd->dv, at->ld_kv, at->keys, at->depth);
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
    head hd = find_head(job, sample, h, scores + 2 * BLOCK * at->keys);
    float *lse = job->lse ? job->lse + (sample * at->heads + h) * at->time : NULL;
    for (int64_t first = 0; first < at->time; first += BLOCK) {
        int64_t n = at->time - first < BLOCK ? at->time - first : BLOCK;
        int64_t keys = keys_seen(at, &hd, first, n);
        if (keys == 0) { /* no keys: the output is zero */
            for (int64_t r = first; r < first + n; r++)
                memset(hd.y + r * hd.ld_y, 0, (size_t)at->depth * sizeof(float));
            continue;
        }
        fr__gemm(n, keys, at->depth, (fr__matrix){hd.q + first * hd.ld_q, hd.ld_q, false},
                 (fr__matrix){hd.k, hd.ld_kv, true}, scores, keys, false);
        softmax_block(at, scores, first, n, keys, lse ? lse + first : NULL);
        fr__gemm(n, at->depth, keys, (fr__matrix){scores, keys, false},
                 (fr__matrix){hd.v, hd.ld_kv, false}, hd.y + first * hd.ld_y, hd.ld_y, false);
    }
    leave_head(job, &hd);
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
    head hd = find_head(job, sample, h, scores + 2 * BLOCK * at->keys);
    int64_t d = at->depth, ld_q = hd.ld_q, ld_kv = hd.ld_kv;
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
                   dout = {hd.dy + first * hd.ld_y, hd.ld_y, false};
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
    leave_head(job, &hd);
}

static fr__head_bf16 find_head_bf16(const head_job *job, int64_t sample, int64_t h)
{
    const attention *at = job->at;
    const int64_t d = at->depth, q = sample * at->time * at->ld_q + h * d,
                  k = sample * at->keys * at->ld_kv + h * d, v = k + at->width,
                  y = sample * at->time * at->width + h * d;
    return (fr__head_bf16){
        .q = fr__source_at(job->q, q).at,
        .k = fr__source_at(job->kv, k).at,
        .v = fr__source_at(job->kv, v).at,
        .dy = job->dy.at ? fr__source_at(job->dy, y).at : NULL,
        .y = part(job->y, y).at,
        .dq = part(job->dq, q).at,
        .dk = part(job->dkv, k).at,
        .dv = part(job->dkv, v).at,
        .lse = job->lse ? job->lse + (sample * at->heads + h) * at->time : NULL,
        .time = at->time,
        .keys = at->keys,
        .depth = d,
        .seen = valid_keys(job, sample),
        .ld_q = at->ld_q,
        .ld_kv = at->ld_kv,
        .ld_y = at->width,
        .is_causal = at->is_causal,
        .scale = at->scale,
    };
}

/* Heads are dealt to threads in contiguous runs; each run has its own scratch. */
static void run_heads(void *arg, size_t begin, size_t end)
{
    const head_job *job = arg;
    const attention *at = job->at;
    const bool is_forward = job->y.at;
    float *scratch = job->scratch + fr__cpu_thread() * at->room;
    for (size_t i = begin; i < end; i++) {
        const int64_t sample = (int64_t)i / at->heads, h = (int64_t)i % at->heads;
        if (at->multiplies_bf16) {
            const fr__head_bf16 hd = find_head_bf16(job, sample, h);
            (is_forward ? fr__attend_bf16 : fr__attend_back_bf16)(&hd, scratch);
        } else {
            (is_forward ? forward_head : backward_head)(job, sample, h, scratch);
        }
    }
}

/* Common part of forward and backward. */
static head_job find_job(const attention *at, const fr__kernel_args *a)
{
    head_job job = {.at = at, .q = {a->x[0], at->q_type}, .scratch = a->scratch};
    job.kv = at->is_cross ? (fr__source){a->x[1], at->kv_type} : fr__source_at(job.q, at->width);
    if (at->has_length) job.length = a->x[at->is_cross ? 2 : 1];
    return job;
}

static fr_status attention_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const attention *at = (const attention *)k;
    head_job job = find_job(at, a);
    job.lse = k->training ? a->saved : NULL;
    job.y = (fr__sink){a->y, k->y.dtype};
    fr__cpu_parallel(k->dev, (size_t)(k->batch * at->heads), 1, run_heads, &job);
    return FR_OK;
}

static fr_status attention_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const attention *at = (const attention *)k;
    head_job job = find_job(at, a);
    job.lse = a->saved;
    job.dy = (fr__source){a->dy, k->y.dtype};
    job.dq = (fr__sink){a->dx[0], at->q_type};
    job.dkv = at->is_cross ? (fr__sink){a->dx[1], at->kv_type} : part(job.dq, at->width);
    fr__cpu_parallel(k->dev, (size_t)(k->batch * at->heads), 1, run_heads, &job);
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
    at->q_type = spec->x[0]->dtype;
    at->kv_type = at->is_cross ? spec->x[1]->dtype : at->q_type;
    at->multiplies_bf16 = at->q_type == FR_BF16 && at->kv_type == FR_BF16 &&
                          spec->y_type == FR_BF16 && fr__attends_bf16(spec->dev, at->depth);
    at->room = 2 * BLOCK * at->keys;
    if (at->multiplies_bf16)
        at->room = (int64_t)(fr__attend_bf16_bytes(at->keys, at->depth) / sizeof(float));
    else if (fr__spec_has_bf16(spec))
        at->room += (3 * at->time + 4 * at->keys) * at->depth;
    k->scratch_bytes = (size_t)at->room * sizeof(float) * (size_t)fr_device_n_threads(spec->dev);
    if (spec->training)
        k->saved_bytes = (size_t)(spec->batch * at->heads * at->time) * sizeof(float);
    k->needs_x = (uint8_t)((1u << spec->n_inputs) - 1);
    *out = k;
    return FR_OK;
}
