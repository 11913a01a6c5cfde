/* test_lookahead.c -- the method forerun against a second implementation: plain loops, one thread,
 * double precision, all versions of all weights kept, the rule written out as in
 * docs/methods/forerun.md:
 *
 *     d_k = ceil((N - 1 - k) / T), D = d_0
 *     beta1_k = 1 - (1 - beta1) / (1 + d_k), lr_k = lr / sqrt(1 + d_k)
 *     forward of the i-th mini-batch since the pipeline was empty: min(i, D) + 1 updates ahead
 *     with adamw, min(i, d_k) + 1 with sgd
 *     each stage clips by the norm of its own gradient, or, if it is larger, by that of the whole
 *     model D updates ago, which the first D updates after the pipeline was empty do not know */
#include "engine/rig.h"

enum { LAYERS = 8, WIDTH = 6, ROW = WIDTH + 1, STEPS = 40, DRAIN = 17 };

/* [layer][out]: weights by input, then the bias. */
typedef struct weights {
    double at[LAYERS][WIDTH][ROW];
} weights;

typedef struct model {
    int n, t;
    fr_optim_options o;
    bool is_adam, is_late;
    double clip;
    double own_sq[LAYERS], whole_sq[STEPS];                   /* [stage], [update] */
    weights w[STEPS + 1], mean[STEPS + 1], square[STEPS + 1]; /* [version] */
    weights grad;
} model;

static int n_out(int layer) { return layer == LAYERS - 1 ? 5 : WIDTH; }
static int stage_of(const model *m, int layer) { return layer * m->n / LAYERS; }
static int delay(const model *m, int k) { return (m->n - 1 - k + m->t - 1) / m->t; }
static double rate(const model *m, int k) { return m->o.lr / sqrt(1 + delay(m, k)); }
static double slow(const model *m, int k, double beta)
{
    return 1 - (1 - beta) / (1 + delay(m, k));
}

/* One layer predicted `ahead` updates past a version. */
static void predict(const model *m, int layer, int version, int ahead, double to[WIDTH][ROW])
{
    int k = stage_of(m, layer);
    double unbias1 = 1 - pow(slow(m, k, m->o.beta1), version);
    double unbias2 = 1 - pow(m->o.beta2, version);
    for (int o = 0; o < WIDTH; o++)
        for (int i = 0; i < ROW; i++) {
            double toward = m->mean[version].at[layer][o][i];
            if (m->is_adam && version > 0)
                toward = toward / unbias1 /
                         (sqrt(m->square[version].at[layer][o][i] / unbias2) + m->o.eps);
            to[o][i] = stored(m->w[version].at[layer][o][i] - ahead * rate(m, k) * toward);
        }
}

static void pass_sample(model *m, int batch, int first, int micro, const float *data,
                        int32_t target, int64_t n_targets)
{
    double y[LAYERS + 1][WIDTH] = {{0}}, dy[WIDTH] = {0}, sum = 0;
    for (int i = 0; i < WIDTH; i++) y[0][i] = (double)data[i];
    for (int l = 0; l < LAYERS; l++) {
        double w[WIDTH][ROW];
        int seen = batch * m->t + micro - (m->n - 1 - stage_of(m, l)) - first * m->t;
        int since = batch - first, most = delay(m, m->is_adam ? 0 : stage_of(m, l));
        predict(m, l, first + (seen > 0 ? seen / m->t : 0),
                m->n > 1 ? (since < most ? since : most) + 1 : 0, w);
        for (int o = 0; o < n_out(l); o++) {
            double x = w[o][WIDTH];
            for (int i = 0; i < WIDTH; i++) x += w[o][i] * y[l][i];
            y[l + 1][o] = l == LAYERS - 1 ? stored(x) : stored(tanh(stored(x)));
        }
    }
    for (int c = 0; c < 5; c++) sum += exp(y[LAYERS][c]);
    for (int c = 0; c < 5 && target != FR_TARGET_IGNORE; c++)
        dy[c] = stored((exp(y[LAYERS][c]) / sum - (c == target)) / (double)n_targets);
    for (int l = LAYERS - 1; l >= 0; l--) {
        double dx[WIDTH] = {0};
        for (int o = 0; o < n_out(l); o++) {
            double d = l == LAYERS - 1 ? dy[o] : stored(dy[o] * (1 - y[l + 1][o] * y[l + 1][o]));
            m->grad.at[l][o][WIDTH] += d;
            for (int i = 0; i < WIDTH; i++) {
                m->grad.at[l][o][i] += d * y[l][i];
                dx[i] += d * stored(m->w[batch].at[l][o][i]);
            }
        }
        for (int i = 0; i < WIDTH; i++) dy[i] = stored(dx[i]);
    }
}

static void find_norms(model *m, int batch)
{
    memset(m->own_sq, 0, sizeof m->own_sq);
    for (int l = 0; l < LAYERS; l++)
        for (int o = 0; o < WIDTH; o++)
            for (int i = 0; i < ROW; i++)
                m->own_sq[stage_of(m, l)] += m->grad.at[l][o][i] * m->grad.at[l][o][i];
    for (int k = 0; k < m->n; k++) m->whole_sq[batch] += m->own_sq[k];
}

static double scale_of(const model *m, int k, int batch, int first)
{
    double sq = m->own_sq[k];
    int known = batch - delay(m, 0);
    if (m->is_late && known >= first) sq = fmax(sq, m->whole_sq[known]);
    return m->clip > 0 ? fmin(1, m->clip / (sqrt(sq) + 1e-6)) : 1;
}

static void step_value(const model *m, int k, double g, int version, const double *from, double *to,
                       double *mean, double *square)
{
    const fr_optim_options *o = &m->o;
    double lr = rate(m, k), keep = 1 - lr * o->weight_decay, fresh, u;
    int t = version + 1;
    if (m->is_adam) {
        double b1 = slow(m, k, o->beta1);
        *mean = b1 * *mean + (1 - b1) * g;
        *square = o->beta2 * *square + (1 - o->beta2) * g * g;
        u = *mean / (1 - pow(b1, t)) / (sqrt(*square / (1 - pow(o->beta2, t))) + o->eps);
        *to = keep * *from - lr * u;
        return;
    }
    fresh = (1 - o->dampening) / (1 + delay(m, k));
    if (t == 1 && delay(m, k) == 0) fresh = 1; /* PyTorch's rule for the first update */
    *mean = slow(m, k, o->momentum) * *mean + fresh * g;
    u = o->nesterov ? fresh * g + slow(m, k, o->momentum) * *mean : *mean;
    *to = *from - lr * u;
}

static void train(model *m, const bench *b)
{
    for (int batch = 0, first = 0; batch < STEPS; batch++) {
        const minibatch *data = &b->data[batch % N_DATA];
        if (batch == DRAIN) first = DRAIN;
        memset(&m->grad, 0, sizeof m->grad);
        for (int s = 0; s < BATCH; s++)
            pass_sample(m, batch, first, s / (BATCH / m->t), &data->input.f32[s * WIDTH],
                        data->target[s], data->n_targets);
        find_norms(m, batch);
        m->mean[batch + 1] = m->mean[batch], m->square[batch + 1] = m->square[batch];
        for (int l = 0; l < LAYERS; l++) {
            int k = stage_of(m, l);
            double scale = scale_of(m, k, batch, first);
            for (int o = 0; o < WIDTH; o++)
                for (int i = 0; i < ROW; i++)
                    step_value(m, k, scale * m->grad.at[l][o][i], batch, &m->w[batch].at[l][o][i],
                               &m->w[batch + 1].at[l][o][i], &m->mean[batch + 1].at[l][o][i],
                               &m->square[batch + 1].at[l][o][i]);
        }
    }
}

/* --- against the engine --------------------------------------------------------------------- */

static void read_param(rig *r, int layer, const char *what, float *plain)
{
    char name[32];
    if (layer == LAYERS - 1)
        snprintf(name, sizeof name, "logits.%s", what);
    else
        snprintf(name, sizeof name, "l%d.%s", layer, what);
    assert_ok(r->b.ctx,
              fr_engine_get_param(r->engine, fr_graph_find_param(r->b.graph, name), plain));
}

static void read_weights(rig *r, weights *out)
{
    memset(out, 0, sizeof *out);
    for (int l = 0; l < LAYERS; l++) {
        float w[WIDTH * WIDTH], bias[WIDTH];
        read_param(r, l, "weight", w);
        read_param(r, l, "bias", bias);
        for (int o = 0; o < n_out(l); o++) {
            for (int i = 0; i < WIDTH; i++) out->at[l][o][i] = (double)w[o * WIDTH + i];
            out->at[l][o][WIDTH] = (double)bias[o];
        }
    }
}

static double distance(const weights *a, const weights *b)
{
    double most = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int o = 0; o < WIDTH; o++)
            for (int i = 0; i < ROW; i++) most = fmax(most, fabs(a->at[l][o][i] - b->at[l][o][i]));
    return most;
}

static const struct setting {
    const char *optimizer;
    double lr, momentum, dampening, clip;
    bool nesterov, late;
} settings[] = {{"sgd", 0.02, 0.9, 0, 0, false, false},
                {"sgd", 0.2, 0.9, 0.9, 0, false, false}, /* the other convention */
                {"sgd", 0.02, 0.9, 0, 0, true, false},
                {"sgd", 0.1, 0.9, 0, 0.02, false, false},
                {"sgd", 0.2, 0.9, 0, 0.04, false, true},
                {"adamw", 0.005, 0, 0, 0, false, false},
                {"adamw", 0.005, 0, 0, 0.01, false, false}};

/* Of comparisons; and those in which a value fell to the other side when it was rounded to bf16. */
static int n_cases, n_far;

static void compare(const struct setting *s, int n, int t)
{
    static model m; /* large */
    rig r;
    weights got;
    bench b;
    int at[LAYERS];
    const char *before[] = {"l1", "l2", "l3", "l4", "l5", "l6", "logits"}, *cuts[LAYERS];
    for (int k = 1; k < n; k++) cuts[k - 1] = before[k * LAYERS / n - 1];
    bench_init(&b, DEEP);
    assert_ok(b.ctx, fr_graph_find_cuts(b.graph, n - 1, cuts, at));
    bench_fini(&b);
    rig_options o = {.generator = "1f1b-async",
                     .policy = "lookahead",
                     .optimizer = s->optimizer,
                     .n_stages = n,
                     .cuts = at,
                     .n_micro = t,
                     .n_batches = STEPS,
                     .clip_norm = s->clip,
                     .lr = s->lr};
    if (rig_prepare(&r, DEEP, &o) != FR_OK) fail_msg("%s", rig_about(&r, &o));
    r.desc.options.momentum = s->momentum, r.desc.options.dampening = s->dampening;
    r.desc.options.nesterov = s->nesterov, r.desc.clip_late = s->late;
    assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
    memset(&m, 0, sizeof m);
    m.n = n, m.t = t, m.o = r.desc.options, m.clip = s->clip;
    m.is_late = s->late && n > 1;
    m.is_adam = strcmp(s->optimizer, "adamw") == 0;
    read_weights(&r, &m.w[0]);
    train(&m, &r.b);
    rig_steps(&r, 0, DRAIN); /* the pipeline drains here, and fills again */
    rig_steps(&r, DRAIN, STEPS - DRAIN);
    read_weights(&r, &got);
    double moved = distance(&m.w[0], &m.w[STEPS]), off = distance(&got, &m.w[STEPS]);
    n_cases++, n_far += off > 1e-5;
    if (!(moved > 0.05 && off < (is_bf16() ? 2e-3 : 1e-4)))
        fail_msg("%s momentum %g, dampening %g, nesterov %d, clip %g, late %d: %g away from the "
                 "reference, "
                 "which moved by %g",
                 rig_about(&r, &o), s->momentum, s->dampening, s->nesterov, s->clip, s->late, off,
                 moved);
    rig_close(&r);
}

static void same_weights(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (int n = 1; n <= 8; n *= 2)
            for (int t = 1; t <= 4; t *= 2) compare(&settings[i], n, t);
    assert_true(n_far <= n_cases / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
