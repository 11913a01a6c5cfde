/* attention.c -- multi-head attention: over packed q|k|v (attention), with q in one tensor and k|v
 * in another of its own length (cross_attention), or of separate q, k and v (sdpa).
 *
 * One thread computes one head of one sample: queries in blocks, scores of a block in scratch,
 * softmax over whole rows. Forward saves only log(sum(exp)) of each query; the backward recomputes
 * the scores (as in FlashAttention, Dao et al. 2022), so memory grows with T and not with T^2.
 * Blocks read only keys that one of their queries may attend to. Heads of q may share a head of k
 * and v; one thread computes the backward of all of them, in order, so that the sums of dk and dv
 * have one order. Heads of tensors of bf16 are computed by attention_bf16.c, or, if the processor
 * cannot multiply them or there is a mask, widened into scratch and rounded on the way out. Scores
 * and softmax are floats. */
#include "backend/cpu/attention.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"

#include <math.h>
#include <string.h>

enum { Q, K, V };
enum { BLOCK = FR_QUERY_BLOCK };

/* Where q, k or v is: input, and its first number in a row of it. */
typedef struct place {
    int input;
    int64_t first;
    fr_dtype type;
} place;

typedef struct attention {
    fr__kernel k;
    int64_t time, keys;         /* T queries, S keys */
    int64_t depth;              /* d */
    int64_t ld_q, ld_kv, width; /* rows of q apart, rows of k and of v, rows of y */
    int heads, group;           /* of q; that share a head of k and v */
    place at[3];                /* Q, K, V */
    int length, mask;           /* inputs; -1: none */
    int64_t mask_count;         /* numbers of the mask of a sample */
    int64_t mask_head, ld_mask; /* from head to head, from query to query; 0: the same */
    fr_dtype mask_type;
    bool is_causal, multiplies_bf16;
    int64_t window;
    float scale;
    int64_t room; /* scratch of a thread, in floats */
} attention;

typedef struct head_job {
    const attention *at;
    fr__source x[3];       /* (batch, T or S, ld): q, k, v at the first number */
    fr__sink dx[3];        /* as x; NULL: not needed */
    fr__source mask;       /* (batch, ...) or NULL */
    fr__sink mask_grad;    /* (batch, heads, T, S); NULL: not needed */
    const int32_t *length; /* (batch) or NULL */
    float *lse;            /* (batch, heads, T) or NULL */
    fr__sink y;            /* (batch, T, D) */
    fr__source dy;
    float *scratch; /* per thread: 2 * BLOCK * S floats and rooms for bf16, or attention_bf16.c's */
} head_job;

/* A head of k and v of one sample, and one of q that it serves; all pointers at its first row. */
typedef struct head {
    const float *q;      /* (T, d), rows ld_q apart */
    const float *k, *v;  /* (S, d), rows ld_k and ld_v apart */
    float *y;            /* (T, d), rows ld_y apart, or NULL */
    const float *dy;     /* likewise */
    float *dq, *dk, *dv; /* as q, k, v; NULL: not needed */
    int64_t ld_q, ld_k, ld_v, ld_y;
    int64_t sample, index;     /* index of the head of q */
    int64_t q_at, kv_at, y_at; /* of its first elements in the tensors */
    fr__sight sight;
    float *rest; /* rooms that are not taken */
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
static float *place_rows(head *hd, fr__sink t, int64_t rows, int64_t depth)
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

static fr__sight find_sight(const head_job *job, int64_t sample)
{
    const attention *at = job->at;
    const int64_t all = at->keys, length = job->length ? job->length[sample] : all;
    return (fr__sight){.keys = length < 0     ? 0
                               : length > all ? all
                                              : length,
                       .is_causal = at->is_causal,
                       .window = at->window};
}

/* Of the head of k and v that serves head h of q. */
static head find_keys(const head_job *job, int64_t sample, int64_t h, float *rooms)
{
    const attention *at = job->at;
    const int64_t d = at->depth, kv = h / at->group;
    head out = {.kv_at = sample * at->keys * at->ld_kv + kv * d,
                .ld_q = job->x[Q].type == FR_BF16 ? d : at->ld_q,
                .ld_k = job->x[K].type == FR_BF16 ? d : at->ld_kv,
                .ld_v = job->x[V].type == FR_BF16 ? d : at->ld_kv,
                .ld_y = at->k.y.dtype == FR_BF16 ? d : at->width,
                .sample = sample,
                .sight = find_sight(job, sample),
                .rest = rooms};
    out.k = enter(&out, fr__source_at(job->x[K], out.kv_at), at->ld_kv, at->keys, d);
    out.v = enter(&out, fr__source_at(job->x[V], out.kv_at), at->ld_kv, at->keys, d);
    out.dk = place_rows(&out, part(job->dx[K], out.kv_at), at->keys, d);
    out.dv = place_rows(&out, part(job->dx[V], out.kv_at), at->keys, d);
    return out;
}

static void find_queries(const head_job *job, int64_t h, head *hd)
{
    const attention *at = job->at;
    const int64_t d = at->depth;
    hd->index = h;
    hd->q_at = hd->sample * at->time * at->ld_q + h * d;
    hd->y_at = hd->sample * at->time * at->width + h * d;
    hd->q = enter(hd, fr__source_at(job->x[Q], hd->q_at), at->ld_q, at->time, d);
    if (job->dy.at) hd->dy = enter(hd, fr__source_at(job->dy, hd->y_at), at->width, at->time, d);
    hd->y = place_rows(hd, part(job->y, hd->y_at), at->time, d);
    hd->dq = place_rows(hd, part(job->dx[Q], hd->q_at), at->time, d);
}

static void leave_queries(const head_job *job, const head *hd)
{
    const attention *at = job->at;
    leave(part(job->y, hd->y_at), hd->y, at->width, at->time, at->depth);
    leave(part(job->dx[Q], hd->q_at), hd->dq, at->ld_q, at->time, at->depth);
}

static void leave_keys(const head_job *job, const head *hd)
{
    const attention *at = job->at;
    leave(part(job->dx[K], hd->kv_at), hd->dk, at->ld_kv, at->keys, at->depth);
    leave(part(job->dx[V], hd->kv_at), hd->dv, at->ld_kv, at->keys, at->depth);
}

static void clear_rows(float *at, int64_t ld, int64_t first, int64_t last, int64_t n)
{
    for (int64_t r = first; at && r < last; r++) memset(at + r * ld, 0, (size_t)n * sizeof(float));
}

/* A block of queries of a head, its scores at `scratch`. */
static fr__scores find_scores(const head_job *job, const head *hd, int64_t first, float *scratch)
{
    const attention *at = job->at;
    const int64_t lse = (hd->sample * at->heads + hd->index) * at->time + first;
    fr__scores s = {.block = fr__find_block(&hd->sight, first, at->time),
                    .sight = hd->sight,
                    .at = scratch,
                    .grads = scratch + BLOCK * at->keys,
                    .scale = at->scale,
                    .lse = job->lse ? job->lse + lse : NULL,
                    .ld_mask = at->ld_mask,
                    .n_mask = at->keys};
    const int64_t mask =
        hd->sample * at->mask_count + hd->index * at->mask_head + first * at->ld_mask;
    if (job->mask.at) s.mask = fr__source_at(job->mask, mask + s.block.low);
    s.mask_grad = part(job->mask_grad, mask);
    return s;
}

static void forward_head(const head_job *job, int64_t sample, int64_t h, float *scratch)
{
    const attention *at = job->at;
    const int64_t d = at->depth;
    head hd = find_keys(job, sample, h, scratch + 2 * BLOCK * at->keys);
    find_queries(job, h, &hd);
    for (int64_t first = 0; first < at->time; first += BLOCK) {
        const fr__scores s = find_scores(job, &hd, first, scratch);
        const int64_t n = s.block.n, keys = s.block.keys, low = s.block.low;
        if (keys == 0) { /* no keys: the output is zero */
            clear_rows(hd.y, hd.ld_y, first, first + n, d);
            continue;
        }
        fr__gemm(n, keys, d, (fr__matrix){hd.q + first * hd.ld_q, hd.ld_q, false},
                 (fr__matrix){hd.k + low * hd.ld_k, hd.ld_k, true}, s.at, keys, false);
        fr__weigh_scores(&s);
        fr__gemm(n, d, keys, (fr__matrix){s.at, keys, false},
                 (fr__matrix){hd.v + low * hd.ld_v, hd.ld_v, false}, hd.y + first * hd.ld_y,
                 hd.ld_y, false);
    }
    leave_queries(job, &hd);
}

/* Gradients of a block of queries; those of the keys are added to dk and dv, or set. */
static void backward_block(const attention *at, const head *hd, const fr__scores *s, bool add)
{
    const int64_t d = at->depth, first = s->block.first, n = s->block.n, keys = s->block.keys,
                  low = s->block.low;
    const fr__matrix q = {hd->q + first * hd->ld_q, hd->ld_q, false},
                     dout = {hd->dy + first * hd->ld_y, hd->ld_y, false};
    const float *k = hd->k + low * hd->ld_k, *v = hd->v + low * hd->ld_v;
    fr__gemm(n, keys, d, q, (fr__matrix){k, hd->ld_k, true}, s->at, keys, false);
    fr__gemm(n, keys, d, dout, (fr__matrix){v, hd->ld_v, true}, s->grads, keys, false);
    fr__slope_scores(s);
    if (hd->dv)
        fr__gemm(keys, d, n, (fr__matrix){s->at, keys, true}, dout, hd->dv + low * hd->ld_v,
                 hd->ld_v, add);
    if (hd->dk)
        fr__gemm(keys, d, n, (fr__matrix){s->grads, keys, true}, q, hd->dk + low * hd->ld_k,
                 hd->ld_k, add);
    if (hd->dq)
        fr__gemm(n, d, keys, (fr__matrix){s->grads, keys, false}, (fr__matrix){k, hd->ld_k, false},
                 hd->dq + first * hd->ld_q, hd->ld_q, false);
}

static void clear_mask_grad(const fr__scores *s)
{
    const size_t row = (size_t)s->n_mask * fr_dtype_bytes(s->mask_grad.type);
    if (s->mask_grad.at) memset(s->mask_grad.at, 0, (size_t)s->block.n * row);
}

/* Heads of q from h on that share a head of k and v. From the last block, which has the most keys,
 * to the first: the first write of dk and dv sets them. With a window no block has all keys: they
 * start as zeros. */
static void backward_heads(const head_job *job, int64_t sample, int64_t h, float *scratch)
{
    const attention *at = job->at;
    const int64_t d = at->depth;
    head hd = find_keys(job, sample, h, scratch + 2 * BLOCK * at->keys);
    float *rest = hd.rest;
    bool add = at->window > 0;
    clear_rows(hd.dk, hd.ld_k, add ? 0 : hd.sight.keys, at->keys, d);
    clear_rows(hd.dv, hd.ld_v, add ? 0 : hd.sight.keys, at->keys, d);
    for (int64_t i = h; i < h + at->group; i++) {
        hd.rest = rest;
        find_queries(job, i, &hd);
        for (int64_t first = (at->time - 1) / BLOCK * BLOCK; first >= 0; first -= BLOCK) {
            const fr__scores s = find_scores(job, &hd, first, scratch);
            if (s.block.keys == 0) {
                clear_rows(hd.dq, hd.ld_q, first, first + s.block.n, d);
                clear_mask_grad(&s);
                continue;
            }
            backward_block(at, &hd, &s, add);
            add = true;
        }
        leave_queries(job, &hd);
    }
    leave_keys(job, &hd);
}

/* Of heads of q from h on. */
static fr__head_bf16 find_heads_bf16(const head_job *job, int64_t sample, int64_t h, int group)
{
    const attention *at = job->at;
    const int64_t d = at->depth, q = sample * at->time * at->ld_q + h * d,
                  kv = sample * at->keys * at->ld_kv + h / at->group * d,
                  y = sample * at->time * at->width + h * d;
    return (fr__head_bf16){
        .q = fr__source_at(job->x[Q], q).at,
        .k = fr__source_at(job->x[K], kv).at,
        .v = fr__source_at(job->x[V], kv).at,
        .dy = job->dy.at ? fr__source_at(job->dy, y).at : NULL,
        .y = part(job->y, y).at,
        .dq = part(job->dx[Q], q).at,
        .dk = part(job->dx[K], kv).at,
        .dv = part(job->dx[V], kv).at,
        .lse = job->lse ? job->lse + (sample * at->heads + h) * at->time : NULL,
        .time = at->time,
        .keys = at->keys,
        .depth = d,
        .group = group,
        .ld_q = at->ld_q,
        .ld_kv = at->ld_kv,
        .ld_y = at->width,
        .sight = find_sight(job, sample),
        .scale = at->scale,
    };
}

/* Heads, in backward groups of them, are dealt to threads in contiguous runs; each run has its own
 * scratch. */
static void run_heads(void *arg, size_t begin, size_t end)
{
    const head_job *job = arg;
    const attention *at = job->at;
    const bool is_forward = job->y.at;
    const int group = is_forward ? 1 : at->group;
    float *scratch = job->scratch + fr__cpu_thread() * at->room;
    for (size_t i = begin; i < end; i++) {
        const int64_t first = (int64_t)i * group, sample = first / at->heads, h = first % at->heads;
        if (at->multiplies_bf16) {
            const fr__head_bf16 hd = find_heads_bf16(job, sample, h, group);
            (is_forward ? fr__attend_bf16 : fr__attend_back_bf16)(&hd, scratch);
        } else {
            (is_forward ? forward_head : backward_heads)(job, sample, h, scratch);
        }
    }
}

/* Common part of forward and backward. */
static head_job find_job(const attention *at, const fr__kernel_args *a)
{
    head_job job = {.at = at, .scratch = a->scratch};
    for (int i = Q; i <= V; i++)
        job.x[i] =
            fr__source_at((fr__source){a->x[at->at[i].input], at->at[i].type}, at->at[i].first);
    if (at->length >= 0) job.length = a->x[at->length];
    if (at->mask >= 0) job.mask = (fr__source){a->x[at->mask], at->mask_type};
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
    for (int i = Q; i <= V; i++)
        job.dx[i] = part((fr__sink){a->dx[at->at[i].input], at->at[i].type}, at->at[i].first);
    if (at->mask >= 0) job.mask_grad = (fr__sink){a->dx[at->mask], at->mask_type};
    fr__cpu_parallel(k->dev, (size_t)(k->batch * at->heads / at->group), 1, run_heads, &job);
    return FR_OK;
}

static const fr__kernel_ops attention_ops = {.forward = attention_forward,
                                             .backward_input = attention_backward_input};

/* Where q, k and v are; width is that of q, without the others. */
static void find_places(attention *at, const fr__kernel_spec *spec)
{
    const fr_node *node = at->k.node;
    const int64_t width = at->width = fr__cols(node);
    at->group = 1;
    at->ld_q = width;
    switch (node->op) {
    case FR_OP_ATTENTION:
        at->at[K].first = width, at->at[V].first = 2 * width;
        at->ld_q = at->ld_kv = 3 * width;
        break;
    case FR_OP_CROSS_ATTENTION:
        at->at[K].input = at->at[V].input = 1;
        at->at[V].first = width;
        at->ld_kv = 2 * width;
        break;
    default:
        at->at[K].input = 1, at->at[V].input = 2;
        at->group = at->heads / node->attrs.attention.kv_heads;
        at->ld_kv = width / at->group;
    }
    for (int i = Q; i <= V; i++) at->at[i].type = spec->x[at->at[i].input]->dtype;
    at->time = fr_shape_count(&node->shape) / width;
    at->keys = fr_graph_node(spec->graph, spec->inputs[at->at[K].input])->shape.dim[0];
    at->depth = width / at->heads;
}

static void find_mask(attention *at, const fr__kernel_spec *spec)
{
    const fr_node *node = at->k.node;
    const fr_attrs *a = &node->attrs;
    at->length = fr_graph_length_input(spec->graph, node);
    at->is_causal = a->attention.causal;
    at->window = a->attention.window;
    at->scale = node->op == FR_OP_SDPA ? a->attention.scale : 1.0f / sqrtf((float)at->depth);
    at->mask = node->op == FR_OP_SDPA && spec->n_inputs > 3 && at->length != 3 ? 3 : -1;
    if (at->mask < 0) return;
    const fr_shape *m = &fr_graph_node(spec->graph, spec->inputs[3])->shape;
    at->mask_type = spec->x[3]->dtype;
    at->mask_count = fr_shape_count(m);
    if (m->n_dims > 1) at->ld_mask = at->keys;
    if (m->n_dims > 2) at->mask_head = at->time * at->keys;
}

fr_status fr__cpu_attention(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    attention *at = (attention *)fr__kernel_new(spec, arena, sizeof *at, &attention_ops);
    if (!at) return FR_NO_MEMORY;
    fr__kernel *k = &at->k;
    at->heads = k->node->attrs.attention.heads;
    find_places(at, spec);
    find_mask(at, spec);
    bool is_bf16 = spec->y_type == FR_BF16;
    for (int i = Q; i <= V; i++) is_bf16 = is_bf16 && at->at[i].type == FR_BF16;
    at->multiplies_bf16 = is_bf16 && at->mask < 0 && fr__attends_bf16(spec->dev, at->depth);
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
