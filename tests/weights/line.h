/* line.h -- a single stage of a pipeline: a store driven through 1F1B without flush, beside a plain
 * model of it that keeps every version.
 *
 * The model keeps weights and optimizer state of every version, made by plain steps in place, and
 * computes the expected weights of a pass from the policy and textbook formulas in double. */
#ifndef FR_TEST_WEIGHTS_LINE_H
#define FR_TEST_WEIGHTS_LINE_H

#include <forerun/weights.h>

#include "base/alloc.h"
#include "base/bf16.h"
#include "base/philox.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/backend.h"

enum {
    SIZE = 53, /* weights; no multiple of any vector */
    STRIDE = 64,
    MAX_VERSIONS = 64,
    MAX_MICRO = 256,
    MAX_BLOCKS = 16,
    MAX_IDS = 1024,
    ROOM = (MAX_BLOCKS + 1) * STRIDE /* the last row is a guard */
};

typedef struct recipe {
    const char *policy, *optimizer;
    const fr_policy *custom; /* NULL: the one of that name */
    fr_optim_options options;
    fr_lr_options lr;
    int n_stages, stage, n_micro, n_batches;
    int lead;               /* 0: N - 1 - k */
    int n_blocks;           /* 0: as counted */
    bool exact, on_the_fly; /* ranges submitted while the last backward reads */
    bool no_fusing;         /* updates write no predictions */
    int64_t lr_warmup;
    int n_samples;
    bool is_bf16; /* passes read bf16 */
} recipe;

static inline int line_lead(const recipe *r)
{
    return r->lead > 0 ? r->lead : r->n_stages - 1 - r->stage;
}

typedef struct seen {
    int64_t version;
    int ahead;
} seen;

typedef struct line {
    recipe r;
    fr_ctx *ctx;
    fr_device *dev;
    fr_store *store;
    fr_policy policy;
    fr_store_desc d;
    /* On the device: */
    float *room; /* (ROOM), or as many bf16 */
    /* (SIZE) each; given: the gradient; master: with bf16 */
    float *state[FR_MAX_OPTIM_STATE], *drift, *given, *master;
    float copy[SIZE]; /* of the last line_read */

    int64_t now;    /* version */
    int64_t filled; /* mini-batch that began to fill the pipeline */
    float w[MAX_VERSIONS][SIZE], m[MAX_VERSIONS][SIZE], v[MAX_VERSIONS][SIZE];
    double delta[MAX_VERSIONS][SIZE];
    float grad[SIZE];
    seen of_forward[MAX_MICRO], first[2]; /* first: of the current mini-batch, by pass */
    int64_t first_batch[2];
    float by_id[MAX_IDS][SIZE]; /* content that an id stood for */
    bool id_used[MAX_IDS];
    uint64_t newest_id;
    uint64_t digest; /* of everything seen */
    int64_t n_views, n_ahead;
    float views[2 * MAX_MICRO][SIZE]; /* the first of them, by n_views */
} line;

static inline float line_noise(uint32_t stream, uint64_t i)
{
    uint32_t r[4];
    fr__random4(11, FR_STREAM_SYNTHETIC, stream, i, 0, r);
    return 2 * fr__unit_float(r[0]) - 1;
}

static inline int line_delay(const recipe *r) /* in updates */
{
    return (line_lead(r) + r->n_micro - 1) / r->n_micro;
}

static inline int line_after_nothing(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    (void)context, (void)ahead;
    return 0;
}

/* Blocks that the passes of a line need, counted by a store without weights. */
static inline int line_count_blocks(fr_ctx *ctx, const fr_store_desc *d)
{
    fr_store *s;
    fr_view view;
    int t = d->context.n_micro, lead = d->context.lead, n;
    const fr_store_desc counting = {.policy = d->policy, .context = d->context, .type = d->type};
    assert_int_equal(fr_store_create(ctx, &counting, &s), FR_OK);
    for (int j = 0; j < (2 * ((lead + t - 1) / t) + 3) * t; j++) {
        int i = j - lead;
        assert_int_equal(fr_store_forward(s, j / t, j % t, &view), FR_OK);
        if (i < 0) continue;
        assert_int_equal(fr_store_backward(s, i / t, i % t, &view), FR_OK);
        fr_store_done(s, i / t, i % t);
        if (i % t != t - 1) continue;
        fr_store_begin(s, i / t, 1);
        assert_int_equal(fr_store_end(s, 0), FR_OK);
    }
    n = fr_store_n_blocks(s);
    fr_store_free(s);
    return n;
}

/* SIZE floats of the device, until the next call. */
static inline const float *line_read(line *l, const float *from)
{
    device_get(l->dev, l->copy, from, SIZE);
    return l->copy;
}

/* Weights that a pass reads, as floats. */
static inline const float *line_read_view(line *l, const void *from)
{
    uint16_t bf16[SIZE];
    if (!l->r.is_bf16) return line_read(l, from);
    assert_int_equal(fr_device_download(l->dev, bf16, from, sizeof bf16), FR_OK);
    for (int i = 0; i < SIZE; i++) l->copy[i] = fr__bf16_value(bf16[i]);
    return l->copy;
}

static inline float line_round(const line *l, float value)
{
    return l->r.is_bf16 ? fr__bf16_value(fr__bf16_of(value)) : value;
}

static inline void line_open(line *l, const recipe *r)
{
    float room[ROOM];
    uint16_t *bf16 = (uint16_t *)room;
    memset(l, 0, sizeof *l);
    l->r = *r;
    l->ctx = fr_ctx_create();
    assert_non_null(l->ctx);
    assert_int_equal(
        fr_device_open(l->ctx, test_backend("ref"), &(fr_device_desc){.n_threads = 1}, &l->dev),
        FR_OK);
    l->room = device_floats(l->dev, ROOM);
    for (int i = 0; i < FR_MAX_OPTIM_STATE; i++) l->state[i] = device_floats(l->dev, SIZE);
    l->drift = device_floats(l->dev, SIZE);
    l->given = device_floats(l->dev, SIZE);
    l->master = device_floats(l->dev, SIZE);
    l->policy = r->custom ? *r->custom : *fr_policy_find(r->policy);
    if (r->no_fusing) l->policy.after = line_after_nothing;
    l->d = (fr_store_desc){.policy = &l->policy,
                           .context = {.stage = r->stage,
                                       .n_stages = r->n_stages,
                                       .lead = line_lead(r),
                                       .n_micro = r->n_micro,
                                       .max_delay = line_delay(r) + r->stage,
                                       .exact = r->exact,
                                       .lr_warmup = r->lr_warmup,
                                       .n_slots = line_lead(r) + 1},
                           .device = l->dev,
                           .optimizer = fr_optim_find(r->optimizer),
                           .options = r->options,
                           .lr = r->lr,
                           .type = r->is_bf16 ? FR_BF16 : FR_F32,
                           .n = SIZE,
                           .blocks = l->room,
                           .master = l->master,
                           .stride = STRIDE,
                           .state = {l->state[0], l->state[1]},
                           .drift = l->drift,
                           .n_samples = r->n_samples};
    if (strcmp(r->policy, "lookahead") == 0 && line_delay(r) > 0) {
        fr_optim_options *o = &l->r.options;
        int slower = 1 + line_delay(r);
        o->momentum = 1 - (1 - o->momentum) / slower, o->beta1 = 1 - (1 - o->beta1) / slower;
        o->dampening = 1 - (1 - o->dampening) / slower, o->dampens_first = true;
    }
    l->d.n_blocks = r->n_blocks ? r->n_blocks : line_count_blocks(l->ctx, &l->d);
    assert_true(l->d.n_blocks <= MAX_BLOCKS);
    for (int i = 0; i < ROOM; i++) room[i] = 77;
    for (int i = 0; i < ROOM && r->is_bf16; i++) bf16[i] = 77;
    for (int i = 0; i < SIZE; i++) l->w[0][i] = line_noise(1, (uint64_t)i);
    if (!r->is_bf16) memcpy(room, l->w[0], sizeof l->w[0]);
    device_put(l->dev, l->room, room, ROOM);
    device_put(l->dev, l->master, l->w[0], SIZE);
    if (fr_store_create(l->ctx, &l->d, &l->store) != FR_OK) fail_msg("%s", fr_ctx_error(l->ctx));
}

static inline void line_close(line *l)
{
    int n_blocks = l->d.n_blocks;
    float room[ROOM];
    const uint16_t *bf16 = (const uint16_t *)room;
    device_get(l->dev, room, l->room, ROOM);
    for (int b = 0; b <= MAX_BLOCKS; b++) /* the space between and behind the blocks is unchanged */
        for (int i = b < n_blocks ? SIZE : 0; i < STRIDE; i++)
            assert_true((l->r.is_bf16 ? bf16[b * STRIDE + i] : room[b * STRIDE + i]) == 77);
    fr_store_free(l->store);
    fr_device_release(l->dev, l->room, sizeof room);
    for (int i = 0; i < FR_MAX_OPTIM_STATE; i++)
        fr_device_release(l->dev, l->state[i], SIZE * sizeof(float));
    fr_device_release(l->dev, l->drift, SIZE * sizeof(float));
    fr_device_release(l->dev, l->given, SIZE * sizeof(float));
    fr_device_release(l->dev, l->master, SIZE * sizeof(float));
    fr_device_close(l->dev);
    fr_ctx_free(l->ctx);
}

static inline double line_lr(const line *l, int64_t batch)
{
    double lr = fr_lr_at(&l->r.lr, l->r.options.lr, batch);
    int tau = line_delay(&l->r);
    if (strcmp(l->r.policy, "lookahead") == 0) return lr / sqrt(1 + tau);
    if (strcmp(l->r.policy, "pipemare") || tau < 2 || batch >= l->r.lr_warmup) return lr;
    return lr / pow(tau, 1 - (double)batch / (double)l->r.lr_warmup);
}

/* Weight i, `ahead` updates past version t, by the book. */
static inline double line_predict(const line *l, int64_t t, int ahead, int i)
{
    const fr_optim_options *o = &l->r.options;
    double w = l->w[t][i], m = l->m[t][i], v = l->v[t][i], n = (double)t;
    if (l->policy.extrapolation == FR_EXTRAPOLATE_DRIFT) return w - ahead * l->delta[t][i];
    if (t == 0) return w;
    bool is_sgd = strcmp(l->r.optimizer, "sgd") == 0, is_nadam = !strcmp(l->r.optimizer, "nadam");
    double below = sqrt(v / (1 - pow(o->beta2, n))) + o->eps;
    for (int s = 1; s <= ahead; s++) {
        double lr = line_lr(l, t + s - 1), at = n + s;
        if (l->policy.extrapolation == FR_EXTRAPOLATE_DECAY) {
            m *= is_sgd ? o->momentum : o->beta1;
        } else {
            at = n;
        }
        if (is_sgd) {
            double extra =
                l->policy.extrapolation == FR_EXTRAPOLATE_DECAY && o->nesterov ? o->momentum : 1;
            w -= lr * extra * m;
        } else if (l->policy.extrapolation == FR_EXTRAPOLATE_CONSTANT) {
            w -= lr * (m / (1 - o->beta1)) / (sqrt(v / (1 - o->beta2)) + o->eps);
        } else if (!is_nadam) {
            w -= lr * m / (1 - pow(o->beta1, at)) / below;
        } else {
            double product = 1, mu = 0;
            for (int k = 1; k <= (int)at; k++)
                product *= mu = o->beta1 * (1 - 0.5 * pow(0.96, k * o->momentum_decay));
            double next = o->beta1 * (1 - 0.5 * pow(0.96, (at + 1) * o->momentum_decay));
            double grad =
                l->policy.extrapolation == FR_EXTRAPOLATE_DECAY ? 0 : m / (1 - pow(o->beta1, at));
            w -= lr * ((1 - mu) / (1 - product) * grad + next / (1 - product * next) * m) / below;
        }
    }
    return w;
}

/* The weights that a pass must read. which: 0 forward, 1 backward. */
static inline seen line_expect(line *l, int which, int64_t batch, int micro)
{
    fr_want want;
    int j = (int)batch * l->r.n_micro + micro;
    (which ? l->policy.backward : l->policy.forward)(&l->d.context, micro, &want);
    seen x = {l->now, want.ahead};
    if (want.grows && batch - l->filled < want.ahead) x.ahead = (int)(batch - l->filled) + 1;
    if (want.base == FR_AS_FORWARD) x = l->of_forward[j];
    if (want.base == FR_PREVIOUS) x.version = batch > 0 ? batch - 1 : 0;
    if (want.base == FR_AS_FIRST) {
        if (micro == 0) l->first[which] = x, l->first_batch[which] = batch;
        assert_int_equal(l->first_batch[which], batch);
        x = l->first[which];
    }
    if (!which) l->of_forward[j] = x;
    return x;
}

static inline void line_fold(line *l, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) l->digest = (l->digest ^ b[i]) * 1099511628211u;
}

static inline void line_check(line *l, seen x, const fr_view *view, const char *where)
{
    if (view->version != x.version || view->ahead != x.ahead)
        fail_msg("%s, %s N %d k %d T %d: version %lld ahead %d, expected %lld ahead %d",
                 l->r.policy, where, l->r.n_stages, l->r.stage, l->r.n_micro,
                 (long long)view->version, view->ahead, (long long)x.version, x.ahead);
    const float *weights = line_read_view(l, view->weights);
    for (int i = 0; i < SIZE; i++) {
        double expected = x.ahead ? line_predict(l, x.version, x.ahead, i)
                                  : (double)line_round(l, l->w[x.version][i]);
        double off = fabs((double)weights[i] - expected), part = l->r.is_bf16 ? 5e-3 : 2e-6;
        if (!(off <= (x.ahead ? part * (0.1 + fabs(expected)) : 0)))
            fail_msg("%s %s, %s N %d k %d T %d, version %lld ahead %d, weight %d: %.9g, expected "
                     "%.9g",
                     l->r.policy, l->r.optimizer, where, l->r.n_stages, l->r.stage, l->r.n_micro,
                     (long long)x.version, x.ahead, i, (double)weights[i], expected);
    }
    /* Equal ids, equal weights. */
    assert_true(view->id > 0 && view->id < MAX_IDS);
    if (l->id_used[view->id]) assert_memory_equal(l->by_id[view->id], weights, sizeof l->by_id[0]);
    l->id_used[view->id] = true;
    memcpy(l->by_id[view->id], weights, sizeof l->by_id[0]);
    line_fold(l, weights, SIZE * sizeof(float));
    if (l->n_views < 2 * MAX_MICRO) memcpy(l->views[l->n_views], weights, sizeof l->views[0]);
    l->n_views++;
    l->n_ahead += x.ahead > 0;
}

static inline void line_forward(line *l, int64_t batch, int micro)
{
    fr_view view;
    if (fr_store_forward(l->store, batch, micro, &view) != FR_OK)
        fail_msg("%s N %d k %d T %d: %s", l->r.policy, l->r.n_stages, l->r.stage, l->r.n_micro,
                 fr_ctx_error(l->ctx));
    line_check(l, line_expect(l, 0, batch, micro), &view, "forward");
}

/* The same update in place on the model's next row. */
static inline void line_model_step(line *l, int64_t batch, double scale)
{
    const fr_optimizer *opt = l->d.optimizer;
    int64_t t = l->now++;
    assert_true(l->now < MAX_VERSIONS && t == batch);
    memcpy(l->w[t + 1], l->w[t], sizeof l->w[0]);
    memcpy(l->m[t + 1], l->m[t], sizeof l->m[0]);
    memcpy(l->v[t + 1], l->v[t], sizeof l->v[0]);
    fr_optim_coef c;
    fr_optim_prepare(opt, &l->r.options, t + 1, line_lr(l, batch), scale, &c);
    opt->step(&c, &(fr_sweep){.n = SIZE,
                              .from = l->w[t + 1],
                              .to = l->w[t + 1],
                              .grad = l->grad,
                              .state = {l->m[t + 1], l->v[t + 1]}});
    int tau = line_delay(&l->r);
    double keep = tau ? pow(0.135, 1.0 / tau) : 0;
    for (int i = 0; i < SIZE; i++)
        l->delta[t + 1][i] =
            keep * l->delta[t][i] + (1 - keep) * ((double)l->w[t + 1][i] - (double)l->w[t][i]);
}

/* Ranges in a random order; ranges not yet submitted are unchanged since the backward. */
static inline void line_update(line *l, int64_t batch, const fr_view *reading)
{
    enum { CHUNK = 10, N_CHUNKS = (SIZE + CHUNK - 1) / CHUNK };
    float before[SIZE];
    if (reading) memcpy(before, line_read_view(l, reading->weights), sizeof before);
    for (int i = 0; i < SIZE; i++)
        l->grad[i] =
            0.3f * line_noise(2, (uint64_t)i) + line_noise(3, (uint64_t)(batch * SIZE + i));
    device_put(l->dev, l->given, l->grad, SIZE);
    fr_store_begin(l->store, batch, 0.5);
    for (int c = 0; c < N_CHUNKS; c++) {
        size_t at = (size_t)((c * 5 + (int)batch) % N_CHUNKS) * CHUNK;
        size_t n = SIZE - at < CHUNK ? SIZE - at : CHUNK;
        if (reading)
            assert_memory_equal(line_read_view(l, reading->weights) + at, before + at,
                                n * sizeof(float));
        fr_store_range(l->store, at, n, l->given + at);
    }
    if (fr_store_end(l->store, SIZE) != FR_OK)
        fail_msg("%s N %d k %d T %d: %s", l->r.policy, l->r.n_stages, l->r.stage, l->r.n_micro,
                 fr_ctx_error(l->ctx));
    line_model_step(l, batch, 0.5);
    assert_int_equal(fr_store_version(l->store), l->now);
    assert_memory_equal(line_read(l, fr_store_newest(l->store)), l->w[l->now], sizeof l->w[0]);
    for (int s = 0; s < l->d.optimizer->n_state; s++)
        assert_memory_equal(line_read(l, l->state[s]), s ? l->v[l->now] : l->m[l->now],
                            sizeof l->m[0]);
    if (l->r.is_bf16) return;
    fr_view view;
    assert_int_equal(fr_store_look(l->store, &view), FR_OK);
    assert_true(view.id > l->newest_id && view.version == l->now && view.ahead == 0);
    l->newest_id = view.id;
}

static inline void line_backward(line *l, int64_t batch, int micro)
{
    fr_view view;
    if (fr_store_backward(l->store, batch, micro, &view) != FR_OK)
        fail_msg("%s N %d k %d T %d: %s", l->r.policy, l->r.n_stages, l->r.stage, l->r.n_micro,
                 fr_ctx_error(l->ctx));
    line_check(l, line_expect(l, 1, batch, micro), &view, "backward");
    bool is_last = micro == l->r.n_micro - 1;
    if (is_last && l->r.on_the_fly) line_update(l, batch, &view);
    fr_store_done(l->store, batch, micro);
    if (is_last && !l->r.on_the_fly) line_update(l, batch, NULL);
}

/* A segment of n_batches: the lead, one of each, the drain. */
static inline void line_segment(line *l, int64_t first_batch, int n_batches)
{
    int t = l->r.n_micro, total = n_batches * t, lead = line_lead(&l->r);
    fr_store_drained(l->store);
    l->filled = first_batch;
    for (int j = 0; j < total + lead; j++) {
        if (j < total) line_forward(l, first_batch + j / t, j % t);
        if (j >= lead) line_backward(l, first_batch + (j - lead) / t, (j - lead) % t);
    }
}

static inline void line_run(line *l, const recipe *r)
{
    line_open(l, r);
    line_segment(l, 0, r->n_batches);
    line_close(l);
}

#endif
