/* test_reference.c -- asynchronous training against a second implementation: plain loops, one
 * thread, double precision, all versions of all weights kept. Which weights a pass uses comes from
 * closed formulas, not from any schedule:
 *
 *     w = N - 1 - k                   forwards that stage k is ahead
 *     forward of micro-batch m        sees floor(max(0, m - w) / T) updates
 *     backward of mini-batch b        sees b updates
 *     SpecTrain                       s_b = ceil(floor(k/2) / T), s_f = s_b + ceil((w - j) / T)
 *
 * where micro-batch m is number j of its mini-batch. A layer that is recomputed computes its
 * activations again with the weights of the backward, from those of the layer before as the
 * backward sees them, or from the inputs of its stage's forward.
 *
 * With FR_PRECISION=bf16 the reference rounds weights as a pass reads them, and the output and the
 * gradient of each node. */
#include "engine/rig.h"

enum { N_LAYERS = 3, WIDEST = 9, STEPS = 14, FEATURES = 6, CLASSES = 5 };
static const int sizes[N_LAYERS + 1] = {FEATURES, 9, 8, CLASSES};
static const char *const names[N_LAYERS] = {"a", "b", "logits"};
static const double lr = 0.05, momentum = 0.9;

/* y = W x + b, with W (out, in). */
typedef struct layer {
    double w[WIDEST][WIDEST], b[WIDEST];
} layer;

typedef struct model {
    int n, t;                                                  /* stages, micro-batches */
    int stage_of[N_LAYERS];                                    /* of a layer */
    bool recomputes[N_LAYERS];                                 /* [layer] */
    layer at[STEPS + 1][N_LAYERS], speed[STEPS + 1][N_LAYERS]; /* [version] */
    layer grad[N_LAYERS];
} model;

/* Which weights: a version, and updates predicted on top of it. */
typedef struct use {
    int version, ahead;
} use;
typedef use (*rule)(const model *m, int k, int batch, int micro, bool is_forward);

static int ceil_div(int a, int b) { return a > 0 ? (a + b - 1) / b : 0; }
static int seen_by_forward(const model *m, int k, int batch, int micro)
{
    int before = batch * m->t + micro - (m->n - 1 - k);
    return before > 0 ? before / m->t : 0;
}

static use vanilla(const model *m, int k, int batch, int micro, bool is_forward)
{
    return (use){is_forward ? seen_by_forward(m, k, batch, micro) : batch, 0};
}

static use pipedream(const model *m, int k, int batch, int micro, bool is_forward)
{
    (void)is_forward;
    return (use){seen_by_forward(m, k, batch, micro), 0};
}

static use spectrain(const model *m, int k, int batch, int micro, bool is_forward)
{
    int s_b = ceil_div(k / 2, m->t), s_f = s_b + ceil_div(m->n - 1 - k - micro, m->t);
    return is_forward ? (use){seen_by_forward(m, k, batch, micro), s_f} : (use){batch, s_b};
}

static use two_buffers(const model *m, int k, int batch, int micro, bool is_forward)
{
    (void)k, (void)micro, (void)is_forward;
    return (use){m->n == 1 || batch == 0 ? batch : batch - 1, 0};
}

static use pipeoptim(const model *m, int k, int batch, int micro, bool is_forward)
{
    if (!is_forward) return (use){batch, 0};
    return (use){seen_by_forward(m, k, batch, micro), ceil_div(m->n - 1 - k - micro, m->t)};
}

static void fetch(const model *m, rule which, int i, int batch, int micro, bool is_forward,
                  layer *out)
{
    use u = which(m, m->stage_of[i], batch, micro, is_forward);
    const layer *w = &m->at[u.version][i], *v = &m->speed[u.version][i];
    for (int o = 0; o < WIDEST; o++) {
        out->b[o] = stored(w->b[o] - u.ahead * lr * v->b[o]);
        for (int k = 0; k < WIDEST; k++)
            out->w[o][k] = stored(w->w[o][k] - u.ahead * lr * v->w[o][k]);
    }
}

static double squash(int layer_index, double x)
{
    return layer_index == 0 ? tanh(x) : layer_index == 1 ? fmax(x, 0) : x;
}
static double slope(int layer_index, double y)
{
    return layer_index == 0 ? 1 - y * y : layer_index == 1 ? y > 0 : 1;
}

/* Gradient of the loss by the logits y; 0 where the target does not count. */
static void loss_slope(const double *y, int32_t target, int64_t n_targets, double *dy)
{
    double sum = 0;
    for (int c = 0; c < CLASSES; c++) sum += exp(y[c]);
    for (int c = 0; c < CLASSES; c++)
        dy[c] = target == FR_TARGET_IGNORE
                    ? 0
                    : stored((exp(y[c]) / sum - (c == target)) / (double)n_targets);
}

static void pass_layer(int i, const layer *l, const double *x, double *y)
{
    for (int o = 0; o < sizes[i + 1]; o++) {
        double sum = l->b[o];
        for (int k = 0; k < sizes[i]; k++) sum += l->w[o][k] * x[k];
        y[o] = stored(squash(i, stored(sum)));
    }
}

/* Forward and backward of one sample; gradients are added up. x, z: input and output of a layer in
 * its backward. */
static void pass_sample(model *m, const layer *forward, const layer *backward, const float *data,
                        int32_t target, int64_t n_targets)
{
    double y[N_LAYERS + 1][WIDEST] = {{0}}, dy[WIDEST] = {0}, dx[WIDEST];
    double z[N_LAYERS][WIDEST] = {{0}};
    const double *x[N_LAYERS];
    for (int k = 0; k < FEATURES; k++) y[0][k] = (double)data[k];
    for (int i = 0; i < N_LAYERS; i++) {
        bool is_inside = i > 0 && m->stage_of[i] == m->stage_of[i - 1];
        pass_layer(i, &forward[i], y[i], y[i + 1]);
        x[i] = is_inside ? z[i - 1] : y[i];
        if (m->recomputes[i])
            pass_layer(i, &backward[i], x[i], z[i]);
        else
            memcpy(z[i], y[i + 1], sizeof z[i]);
    }
    loss_slope(z[N_LAYERS - 1], target, n_targets, dy);
    for (int i = N_LAYERS - 1; i >= 0; i--) {
        memset(dx, 0, sizeof dx);
        for (int o = 0; o < sizes[i + 1]; o++) {
            double d = stored(dy[o] * slope(i, z[i][o]));
            m->grad[i].b[o] += d;
            for (int k = 0; k < sizes[i]; k++) {
                m->grad[i].w[o][k] += d * x[i][k];
                dx[k] += d * backward[i].w[o][k];
            }
        }
        for (int k = 0; k < WIDEST; k++) dy[k] = stored(dx[k]);
    }
}

static void step(model *m, int batch)
{
    for (int i = 0; i < N_LAYERS; i++)
        for (int o = 0; o < WIDEST; o++) {
            layer *v = &m->speed[batch + 1][i], *w = &m->at[batch + 1][i];
            v->b[o] = momentum * m->speed[batch][i].b[o] + m->grad[i].b[o];
            w->b[o] = m->at[batch][i].b[o] - lr * v->b[o];
            for (int k = 0; k < WIDEST; k++) {
                v->w[o][k] = momentum * m->speed[batch][i].w[o][k] + m->grad[i].w[o][k];
                w->w[o][k] = m->at[batch][i].w[o][k] - lr * v->w[o][k];
            }
        }
}

static void train(model *m, rule which, const bench *b)
{
    for (int batch = 0; batch < STEPS; batch++) {
        const minibatch *data = &b->data[batch % N_DATA];
        memset(m->grad, 0, sizeof m->grad);
        for (int s = 0; s < BATCH; s++) {
            layer forward[N_LAYERS], backward[N_LAYERS];
            int micro = s / (BATCH / m->t);
            for (int i = 0; i < N_LAYERS; i++) {
                fetch(m, which, i, batch, micro, true, &forward[i]);
                fetch(m, which, i, batch, micro, false, &backward[i]);
            }
            pass_sample(m, forward, backward, &data->input.f32[s * FEATURES], data->target[s],
                        data->n_targets);
        }
        step(m, batch);
    }
}

/* --- against the engine --------------------------------------------------------------------- */

static void read_layers(rig *r, layer *out)
{
    static float plain[MAX_PARAM];
    memset(out, 0, sizeof *out * N_LAYERS);
    for (int i = 0; i < N_LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.weight", names[i]);
        assert_ok(r->b.ctx,
                  fr_engine_get_param(r->engine, fr_graph_find_param(r->b.graph, name), plain));
        for (int o = 0; o < sizes[i + 1]; o++)
            for (int k = 0; k < sizes[i]; k++) out[i].w[o][k] = (double)plain[o * sizes[i] + k];
        snprintf(name, sizeof name, "%s.bias", names[i]);
        assert_ok(r->b.ctx,
                  fr_engine_get_param(r->engine, fr_graph_find_param(r->b.graph, name), plain));
        for (int o = 0; o < sizes[i + 1]; o++) out[i].b[o] = (double)plain[o];
    }
}

static double distance(const layer *a, const layer *b)
{
    double most = 0;
    for (int i = 0; i < N_LAYERS; i++)
        for (int o = 0; o < WIDEST; o++) {
            most = fmax(most, fabs(a[i].b[o] - b[i].b[o]));
            for (int k = 0; k < WIDEST; k++) most = fmax(most, fabs(a[i].w[o][k] - b[i].w[o][k]));
        }
    return most;
}

static const struct method {
    const char *policy;
    rule which;
} methods[] = {{"live", vanilla},
               {"stash", pipedream},
               {"spectrain", spectrain},
               {"double-buffer", two_buffers},
               {"pipeoptim", pipeoptim}};
enum { N_METHODS = sizeof methods / sizeof *methods };

/* Cut before the layers named. */
static const struct cut {
    int n_stages;
    const char *before[2];
    int stage_of[N_LAYERS];
} cuts[] = {{1, {NULL}, {0, 0, 0}},
            {2, {"b"}, {0, 1, 1}},
            {2, {"logits"}, {0, 0, 1}},
            {3, {"b", "logits"}, {0, 1, 2}}};

/* The nodes of the layers in `again`, bit i for layer i; the loss belongs to the last one. */
static void recompute_layers(rig *r, unsigned again)
{
    int layer_index = -1;
    r->desc.recompute = r->recompute;
    for (int i = 0; i < fr_graph_n_nodes(r->b.graph); i++) {
        for (int k = 0; k < N_LAYERS; k++)
            if (strcmp(fr_graph_node(r->b.graph, i)->name, names[k]) == 0) layer_index = k;
        r->recompute[i] = layer_index >= 0 && (again >> layer_index & 1);
    }
}

/* again: bit i for layer i, which is recomputed. */
static void compare(const struct method *method, const struct cut *cut, int t, unsigned again)
{
    static model m; /* large */
    rig r;
    bench b;
    int at[2];
    layer got[N_LAYERS];
    bench_init(&b, CHAIN);
    assert_ok(b.ctx, fr_graph_find_cuts(b.graph, cut->n_stages - 1, cut->before, at));
    bench_fini(&b);
    rig_options o = {.generator = "1f1b-async",
                     .policy = method->policy,
                     .n_stages = cut->n_stages,
                     .cuts = at,
                     .n_micro = t,
                     .n_batches = STEPS,
                     .lr = lr};
    memset(&m, 0, sizeof m);
    for (int i = 0; i < N_LAYERS; i++) m.recomputes[i] = again >> i & 1;
    if (rig_prepare(&r, CHAIN, &o) != FR_OK) fail_msg("%s", rig_about(&r, &o));
    recompute_layers(&r, again);
    assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
    m.n = cut->n_stages, m.t = t;
    memcpy(m.stage_of, cut->stage_of, sizeof m.stage_of);
    read_layers(&r, m.at[0]);
    train(&m, method->which, &r.b);
    rig_steps(&r, 0, STEPS);
    read_layers(&r, got);
    double moved = distance(m.at[0], m.at[STEPS]), off = distance(got, m.at[STEPS]);
    if (!(moved > 0.05 && off < 1e-5))
        fail_msg("%s (recompute %u): %g away from the reference, which moved by %g",
                 rig_about(&r, &o), again, off, moved);
    rig_close(&r);
}

static void same_weights(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_METHODS; i++)
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
            for (int t = 1; t <= 4; t *= 2) {
                if (methods[i].which == two_buffers && t < cuts[c].n_stages) continue;
                for (unsigned again = 0; again < 1u << N_LAYERS; again++)
                    compare(&methods[i], &cuts[c], t, again);
            }
}

/* The reference distinguishes rules: the wrong one is far off. */
static void other_rules_are_seen(void **unused)
{
    (void)unused;
    static model a, b;
    bench data;
    rig r;
    bench_init(&data, CHAIN);
    assert_ok(data.ctx, rig_open(&r, CHAIN, &(rig_options){0}));
    for (int i = 1; i < N_METHODS; i++) {
        memset(&a, 0, sizeof a);
        a.n = 3, a.t = 1;
        memcpy(a.stage_of, cuts[3].stage_of, sizeof a.stage_of);
        read_layers(&r, a.at[0]);
        b = a;
        train(&a, methods[0].which, &data);
        train(&b, methods[i].which, &data);
        assert_true(distance(a.at[STEPS], b.at[STEPS]) > 1e-3);
    }
    b = a;
    b.recomputes[0] = true;
    train(&b, methods[0].which, &data);
    assert_true(distance(a.at[STEPS], b.at[STEPS]) > 5e-4);
    rig_close(&r);
    bench_fini(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_weights),
                                       cmocka_unit_test(other_rules_are_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
