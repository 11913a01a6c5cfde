/* test_ties.c -- parameters tied across asynchronous stages, against a second implementation: plain
 * loops, one thread, double precision, all versions of all weights kept. Which weights a pass uses
 * comes from closed formulas (see test_reference.c). A tied layer in another stage than its owner
 * uses, in both passes, what the owner's stage uses in the forward of the mini-batch's first
 * micro-batch. All gradients of a mini-batch are added for its own update; the stage of the owner
 * clips by the norm of the sum.
 *
 * Then what the engine promises: evaluation on the newest weights, the same bits after a drain and
 * from another engine, with replicas, with sleeps; versions in the ledger; it learns. */
#include "engine/rig.h"

enum { LAYERS = 8, WIDTH = 6, CLASSES = 5, STEPS = 20, DRAIN = 9 };
static const double rate = 0.05, momentum = 0.9;

/* [out]: weights by input, then the bias. */
typedef struct layer {
    double at[WIDTH][WIDTH + 1];
} layer;

typedef struct model {
    int n, t;
    double clip;
    layer w[STEPS + 1][LAYERS], v[STEPS + 1][LAYERS], grad[LAYERS]; /* [version][layer] */
} model;

static bool is_copy(int i) { return i == 3 || i == 6; }
static int n_out(int i) { return i == LAYERS - 1 ? CLASSES : WIDTH; }
static int stage_of(const model *m, int i) { return i * m->n / LAYERS; }
static int ceil_div(int a, int b) { return a > 0 ? (a + b - 1) / b : 0; }

/* Which weights: a version, and updates predicted on top of it. */
typedef struct use {
    int version, ahead;
} use;
/* first: the mini-batch that began to fill the pipeline. */
typedef use (*rule)(const model *m, int k, int first, int batch, int micro, bool is_forward);

static int seen(const model *m, int k, int first, int batch, int micro)
{
    int before = (batch - first) * m->t + micro - (m->n - 1 - k);
    return first + (before > 0 ? before / m->t : 0);
}

static use vanilla(const model *m, int k, int first, int batch, int micro, bool is_forward)
{
    return (use){is_forward ? seen(m, k, first, batch, micro) : batch, 0};
}

static use pipedream(const model *m, int k, int first, int batch, int micro, bool is_forward)
{
    (void)is_forward;
    return (use){seen(m, k, first, batch, micro), 0};
}

static use two_buffers(const model *m, int k, int first, int batch, int micro, bool is_forward)
{
    (void)k, (void)first, (void)micro, (void)is_forward;
    return (use){m->n == 1 || batch == 0 ? batch : batch - 1, 0};
}

static use pipeoptim(const model *m, int k, int first, int batch, int micro, bool is_forward)
{
    if (!is_forward) return (use){batch, 0};
    return (use){seen(m, k, first, batch, micro), ceil_div(m->n - 1 - k - micro, m->t)};
}

static void fetch(const model *m, rule which, int i, int first, int batch, int micro,
                  bool is_forward, layer *out)
{
    int k = stage_of(m, i);
    use own = which(m, k, first, batch, micro, is_forward), tied = own;
    if (k > 0) tied = which(m, 0, first, batch, 0, true);
    for (int o = 0; o < WIDTH; o++)
        for (int c = 0; c <= WIDTH; c++) {
            bool is_tied = is_copy(i) && c < WIDTH; /* biases are not */
            int of = is_tied ? 0 : i;
            use u = is_tied ? tied : own;
            out->at[o][c] = stored(m->w[u.version][of].at[o][c] -
                                   u.ahead * rate * m->v[u.version][of].at[o][c]);
        }
}

static void pass_sample(model *m, const layer *forward, const layer *backward, const float *data,
                        int32_t target, int64_t n_targets)
{
    double y[LAYERS + 1][WIDTH] = {{0}}, dy[WIDTH] = {0}, sum = 0;
    for (int i = 0; i < WIDTH; i++) y[0][i] = (double)data[i];
    for (int i = 0; i < LAYERS; i++)
        for (int o = 0; o < n_out(i); o++) {
            double x = forward[i].at[o][WIDTH];
            for (int c = 0; c < WIDTH; c++) x += forward[i].at[o][c] * y[i][c];
            y[i + 1][o] = i == LAYERS - 1 ? stored(x) : stored(tanh(stored(x)));
        }
    for (int c = 0; c < CLASSES; c++) sum += exp(y[LAYERS][c]);
    for (int c = 0; c < CLASSES && target != FR_TARGET_IGNORE; c++)
        dy[c] = stored((exp(y[LAYERS][c]) / sum - (c == target)) / (double)n_targets);
    for (int i = LAYERS - 1; i >= 0; i--) {
        double dx[WIDTH] = {0};
        for (int o = 0; o < n_out(i); o++) {
            double d = i == LAYERS - 1 ? dy[o] : stored(dy[o] * (1 - y[i + 1][o] * y[i + 1][o]));
            m->grad[i].at[o][WIDTH] += d;
            for (int c = 0; c < WIDTH; c++) {
                m->grad[is_copy(i) ? 0 : i].at[o][c] += d * y[i][c];
                dx[c] += d * backward[i].at[o][c];
            }
        }
        for (int c = 0; c < WIDTH; c++) dy[c] = stored(dx[c]);
    }
}

static void step(model *m, int batch)
{
    double square[LAYERS] = {0}; /* [stage] */
    for (int i = 0; i < LAYERS; i++)
        for (int o = 0; o < WIDTH; o++)
            for (int c = 0; c <= WIDTH; c++)
                square[stage_of(m, i)] += m->grad[i].at[o][c] * m->grad[i].at[o][c];
    for (int i = 0; i < LAYERS; i++) {
        double scale = fmin(1, m->clip / (sqrt(square[stage_of(m, i)]) + 1e-6));
        if (!(m->clip > 0)) scale = 1;
        for (int o = 0; o < WIDTH; o++)
            for (int c = 0; c <= WIDTH; c++) {
                double *v = &m->v[batch + 1][i].at[o][c];
                *v = momentum * m->v[batch][i].at[o][c] + scale * m->grad[i].at[o][c];
                m->w[batch + 1][i].at[o][c] = m->w[batch][i].at[o][c] - rate * *v;
            }
    }
}

static void train(model *m, rule which, const bench *b)
{
    for (int batch = 0; batch < STEPS; batch++) {
        const minibatch *data = &b->data[batch % N_DATA];
        int first = batch < DRAIN ? 0 : DRAIN;
        memset(m->grad, 0, sizeof m->grad);
        for (int s = 0; s < BATCH; s++) {
            layer forward[LAYERS], backward[LAYERS];
            int micro = s / (BATCH / m->t);
            for (int i = 0; i < LAYERS; i++) {
                fetch(m, which, i, first, batch, micro, true, &forward[i]);
                fetch(m, which, i, first, batch, micro, false, &backward[i]);
            }
            pass_sample(m, forward, backward, &data->input.f32[s * WIDTH], data->target[s],
                        data->n_targets);
        }
        step(m, batch);
    }
}

/* --- against the engine --------------------------------------------------------------------- */

static void get(rig *r, int layer_index, const char *what, float *plain)
{
    char name[32];
    snprintf(name, sizeof name, "l%d.%s", layer_index, what);
    if (layer_index == LAYERS - 1) snprintf(name, sizeof name, "logits.%s", what);
    assert_ok(r->b.ctx,
              fr_engine_get_param(r->engine, fr_graph_find_param(r->b.graph, name), plain));
}

static void read_layers(rig *r, layer *out)
{
    static float plain[MAX_PARAM];
    memset(out, 0, sizeof *out * LAYERS);
    for (int i = 0; i < LAYERS; i++) {
        get(r, i, "weight", plain);
        for (int o = 0; o < n_out(i) && !is_copy(i); o++)
            for (int c = 0; c < WIDTH; c++) out[i].at[o][c] = (double)plain[o * WIDTH + c];
        get(r, i, "bias", plain);
        for (int o = 0; o < n_out(i); o++) out[i].at[o][WIDTH] = (double)plain[o];
    }
}

static double distance(const layer *a, const layer *b)
{
    double most = 0;
    for (int i = 0; i < LAYERS; i++)
        for (int o = 0; o < WIDTH; o++)
            for (int c = 0; c <= WIDTH; c++) {
                double d = fabs(a[i].at[o][c] - b[i].at[o][c]);
                if (!(d <= most)) most = d;
            }
    return most;
}

/* Stages of equal numbers of layers. */
static void prepare_even(rig *r, rig_options *o, int *at)
{
    const char *before[] = {"l1", "l2", "l3", "l4", "l5", "l6", "logits"}, *cuts[LAYERS];
    bench b;
    for (int k = 1; k < o->n_stages; k++) cuts[k - 1] = before[k * LAYERS / o->n_stages - 1];
    bench_init(&b, SHARED);
    assert_ok(b.ctx, fr_graph_find_cuts(b.graph, o->n_stages - 1, cuts, at));
    bench_fini(&b);
    o->generator = "1f1b-async", o->cuts = at;
    if (!o->n_batches) o->n_batches = STEPS;
    if (rig_prepare(r, SHARED, o) != FR_OK) fail_msg("%s", rig_about(r, o));
}

static void open_even(rig *r, rig_options *o, int *at)
{
    prepare_even(r, o, at);
    if (fr_engine_create(r->b.ctx, &r->desc, &r->engine) != FR_OK) fail_msg("%s", rig_about(r, o));
}

/* Of comparisons; and those in which a value fell to the other side when it was rounded to bf16. */
static int n_cases, n_far;

static void compare(const char *policy, rule which, int n, int t, double clip)
{
    static model m; /* large */
    rig r;
    int at[LAYERS];
    layer got[LAYERS];
    rig_options o = {.policy = policy, .n_stages = n, .n_micro = t, .clip_norm = clip, .lr = rate};
    open_even(&r, &o, at);
    memset(&m, 0, sizeof m);
    m.n = n, m.t = t, m.clip = clip;
    read_layers(&r, m.w[0]);
    train(&m, which, &r.b);
    rig_steps(&r, 0, DRAIN); /* the pipeline drains here, and fills again */
    rig_steps(&r, DRAIN, STEPS - DRAIN);
    read_layers(&r, got);
    double moved = distance(m.w[0], m.w[STEPS]), off = distance(got, m.w[STEPS]);
    n_cases++, n_far += off > 1e-5;
    if (!(moved > 0.05 && off < (is_bf16() ? 2e-3 : 1e-4)))
        fail_msg("%s clip %g: %g away from the reference, which moved by %g", rig_about(&r, &o),
                 clip, off, moved);
    rig_close(&r);
}

static void same_weights(void **unused)
{
    (void)unused;
    static const struct {
        const char *policy;
        rule which;
        bool needs_micro;
    } cases[] = {{"live", vanilla, false},
                 {"stash", pipedream, false},
                 {"pipeoptim", pipeoptim, false},
                 {"double-buffer", two_buffers, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int n = 1; n <= 8; n *= 2)
            for (int t = 1; t <= 8; t *= 2)
                if (!cases[i].needs_micro || t >= n)
                    compare(cases[i].policy, cases[i].which, n, t, n == 4 ? 0.1 : 0);
    assert_true(n_far <= n_cases / 10);
}

/* --- promises ------------------------------------------------------------------------------- */

/* Copy parameters and optimizer state. */
static void hand_over(rig *from, rig *to)
{
    static float plain[MAX_PARAM];
    for (int i = 0; i < fr_graph_n_params(from->b.graph); i++) {
        assert_ok(from->b.ctx, fr_engine_get_param(from->engine, i, plain));
        assert_ok(to->b.ctx, fr_engine_set_param(to->engine, i, plain));
        for (int s = 0; to->desc.schedule && s < to->desc.optimizer->n_state; s++) {
            assert_ok(from->b.ctx, fr_engine_get_state(from->engine, s, i, plain));
            assert_ok(to->b.ctx, fr_engine_set_state(to->engine, s, i, plain));
        }
    }
}

/* Evaluation reads the owner's newest weights in all stages: one worker with them agrees. */
static void evaluates_the_newest(rig *r)
{
    rig one;
    fr_tally mine, its;
    rig_options o = {.evaluates_only = true, .n_micro = r->desc.n_micro};
    assert_int_equal(rig_open(&one, SHARED, &o), FR_OK);
    hand_over(r, &one);
    assert_ok(r->b.ctx, rig_eval(r, N_DATA, &mine, NULL));
    assert_ok(one.b.ctx, rig_eval(&one, N_DATA, &its, NULL));
    assert_true(mine.loss == its.loss && mine.targets == its.targets);
    rig_close(&one);
}

static void drain_and_resume(const char *policy, const char *optimizer)
{
    rig r, other;
    int at[LAYERS], at2[LAYERS];
    char whole[65], resumed[65];
    rig_options o = {.policy = policy,
                     .optimizer = optimizer,
                     .n_stages = 4,
                     .n_micro = 2,
                     .n_batches = 3, /* segments: the lists begin anew */
                     .weight_decay = 0.1,
                     .clip_norm = 0.2,
                     .clip_late = true,
                     .lr = 0.01};
    open_even(&r, &o, at);
    rig_steps(&r, 0, 7);
    evaluates_the_newest(&r);
    o.fault = "jitter:ms=0.3,seed=5"; /* sleeps do not change the numbers */
    open_even(&other, &o, at2);
    hand_over(&r, &other);
    rig_steps(&r, 7, 6);
    rig_steps(&other, 7, 6);
    rig_sha(&r, whole), rig_sha(&other, resumed);
    if (strcmp(whole, resumed) != 0) fail_msg("%s other weights", rig_about(&r, &o));
    rig_close(&r), rig_close(&other);
}

/* Policies with a memory are resumed from checkpoints in tests/cli/resume.sh. */
static void drains_leave_no_state(void **unused)
{
    (void)unused;
    drain_and_resume("live", NULL);
    drain_and_resume("stash", "nadam");
    drain_and_resume("spectrain", "adam");
    drain_and_resume("spectrain-v2", NULL);
    drain_and_resume("xpipe", "adamw");
    drain_and_resume("pipeoptim", "muon");
    drain_and_resume("decay-aware", NULL);
    drain_and_resume("lookahead", "adamw");
}

static void replicas_agree(void **unused)
{
    (void)unused;
    static const int layouts[][4] = {{2, 2, 2, 2}, {1, 2, 1, 2}, {2, 1, 4, 1}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        rig r[2];
        int at[LAYERS];
        char sha[2][65];
        rig_options o = {.policy = "lookahead",
                         .optimizer = "adamw",
                         .n_stages = 4,
                         .n_micro = 4,
                         .replicas = layouts[i],
                         .lr = 0.01};
        for (int k = 0; k < 2; k++) {
            o.fault = k ? "jitter:ms=0.3,seed=3" : NULL;
            open_even(&r[k], &o, at);
            rig_steps(&r[k], 0, 5);
            evaluates_the_newest(&r[k]);
            rig_steps(&r[k], 5, 4);
            rig_sha(&r[k], sha[k]);
        }
        assert_string_equal(sha[0], sha[1]);
        rig_close(&r[0]), rig_close(&r[1]);
    }
}

/* A forward that runs again reads the weights of the backward, which are those of the forward. */
static void recomputes(void **unused)
{
    (void)unused;
    for (int t = 1; t <= 4; t *= 2) {
        char sha[2][65];
        for (int again = 0; again < 2; again++) {
            rig r;
            int at[LAYERS];
            rig_options o = {.policy = "stash", .n_stages = 4, .n_micro = t};
            prepare_even(&r, &o, at);
            rig_recompute_stages(&r, again ? ~0U : 0);
            assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
            rig_steps(&r, 0, 9);
            rig_sha(&r, sha[again]);
            rig_close(&r);
        }
        assert_string_equal(sha[0], sha[1]);
    }
}

/* Stages 1 and 3 have copies, and read the versions of stage 0. */
static bool check_rows(rig *r, const fr_batch_report *report)
{
    const fr_ledger_row *owner = &report->ledger[0];
    assert_true(owner->stage == 0 && owner->pass == 'F' && owner->tied == -1);
    for (size_t i = 0; i < report->n_ledger; i++) {
        const fr_ledger_row *row = &report->ledger[i];
        bool borrows = row->stage == 1 || row->stage == 3;
        assert_int_equal(row->tied, borrows ? owner->version : -1);
        assert_int_equal(row->tied_ahead, borrows ? owner->ahead : 0);
        if (borrows && report->step >= 3) ++*(int *)r->user;
    }
    if (report->step >= 3) {
        assert_int_equal(owner->version, report->step - 3);
        assert_int_equal(owner->ahead, 3);
    }
    return true;
}

static void versions_in_the_ledger(void **unused)
{
    (void)unused;
    rig r;
    int at[LAYERS], n_seen = 0;
    rig_options o = {.policy = "pipeoptim", .n_stages = 4, .n_micro = 1, .want_ledger = true};
    open_even(&r, &o, at);
    r.on_report = check_rows, r.user = &n_seen;
    rig_steps(&r, 0, 8);
    assert_int_equal(n_seen, 5 * 2 * 2);
    rig_close(&r);
}

static void learns(void **unused)
{
    (void)unused;
    static const char *const policies[] = {"live", "stash", "spectrain", "pipeoptim", "lookahead"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        rig r;
        rig_options o = {.generator = "1f1b-async",
                         .policy = policies[i],
                         .optimizer = "adamw",
                         .n_stages = 3,
                         .n_micro = 1,
                         .n_batches = 50,
                         .lr = 0.03};
        assert_int_equal(rig_open(&r, TIED, &o), FR_OK);
        double loss = rig_steps(&r, 0, 150);
        if (!(loss < 1.5)) fail_msg("%s loss %g", rig_about(&r, &o), loss);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_weights),   cmocka_unit_test(drains_leave_no_state),
        cmocka_unit_test(replicas_agree), cmocka_unit_test(versions_in_the_ledger),
        cmocka_unit_test(recomputes),     cmocka_unit_test(learns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
