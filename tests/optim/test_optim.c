/* test_optim.c -- optimizers against PyTorch's numbers and a plain double-precision oracle; the
 * sweep gives the same bits for any cut; the direction is the update applied. */
#include "optim/optim.h"

#include "base/philox.h"
#include "support/fixture.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define N 1003 /* no multiple of any vector */

static const struct variant {
    const char *name;
    fr_optim_options o;
} variants[] = {
    {"sgd", {.lr = 0.1}},
    {"sgd", {.lr = 0.1, .momentum = 0.9}},
    {"sgd", {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01}},
    {"sgd", {.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}},
    {"adam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    {"adam", {.lr = 0.02, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3}},
    {"adam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1}},
    {"adamw", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1}},
    {"nadam", {.lr = 0.02, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 0.004}},
    {"nadam",
     {.lr = 0.02,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .weight_decay = 0.1,
      .momentum_decay = 0.5}},
    {"lion", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99}},
    {"lion", {.lr = 0.01, .beta1 = 0.7, .beta2 = 0.9, .weight_decay = 0.3}},
};
#define N_VARIANTS ((int)(sizeof variants / sizeof *variants))

static void step(const fr_optimizer *opt, const fr_optim_coef *c, size_t n, float *w,
                 const float *g, float *m, float *v)
{
    opt->step(c, &(fr_sweep){.n = n, .from = w, .to = w, .grad = g, .state = {m, v}});
}

/* The direction of predictions after update t: minus the weights predicted from zero at rate 1. */
static void direction(const fr_optimizer *opt, const fr_optim_options *o, int64_t t, size_t n,
                      float *m, float *v, float *u)
{
    static const float zero[N];
    const double rate = 1;
    fr_sweep s = {.n = n, .from = zero, .state = {m, v}, .n_ahead = 1, .ahead = {u}};
    fr_optim_prepare_prediction(opt, o, FR_EXTRAPOLATE_APPLIED, t, 1, &rate, 0, &s.ahead_coef);
    opt->predict(&s);
    for (size_t i = 0; i < n; i++) u[i] = -u[i];
}

static float noise(uint32_t stream, uint64_t i)
{
    uint32_t r[4];
    fr__random4(7, FR_STREAM_SYNTHETIC, stream, i, 0, r);
    return 2 * fr__unit_float(r[0]) - 1;
}

/* One number trained in double precision by the textbook formulas, with its state. */
struct oracle {
    double w, m, v, product;
    int64_t t;
};

static void oracle_step(const struct variant *x, double lr, double g, struct oracle *s)
{
    const fr_optim_options *o = &x->o;
    s->t++;
    if (strcmp(x->name, "adamw") == 0 || strcmp(x->name, "lion") == 0)
        s->w *= 1 - lr * o->weight_decay;
    else
        g += o->weight_decay * s->w;
    if (strcmp(x->name, "sgd") == 0) {
        s->m = s->t == 1 ? g : o->momentum * s->m + (1 - o->dampening) * g;
        if (o->momentum <= 0) s->m = g;
        s->w -= lr * (o->nesterov ? g + o->momentum * s->m : s->m);
        return;
    }
    if (strcmp(x->name, "lion") == 0) {
        double c = o->beta1 * s->m + (1 - o->beta1) * g;
        s->w -= lr * (c > 0 ? 1 : c < 0 ? -1 : 0);
        s->m = o->beta2 * s->m + (1 - o->beta2) * g;
        return;
    }
    double t = (double)s->t;
    s->m = o->beta1 * s->m + (1 - o->beta1) * g;
    s->v = o->beta2 * s->v + (1 - o->beta2) * g * g;
    double below = sqrt(s->v / (1 - pow(o->beta2, t))) + o->eps;
    if (strcmp(x->name, "nadam") != 0) {
        s->w -= lr * s->m / (1 - pow(o->beta1, t)) / below;
        return;
    }
    double mu = o->beta1 * (1 - 0.5 * pow(0.96, t * o->momentum_decay));
    double mu_next = o->beta1 * (1 - 0.5 * pow(0.96, (t + 1) * o->momentum_decay));
    s->product *= mu;
    s->w -= lr * (1 - mu) * g / (1 - s->product) / below;
    s->w -= lr * mu_next * s->m / (1 - s->product * mu_next) / below;
}

static void near_row(const fr_optimizer *opt, const fixture_case *c, const char *what, int step,
                     const float *found, const float *expected, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs((double)found[i] - (double)expected[i]) <=
              2e-6 * (0.1 + fabs((double)expected[i]))))
            fail_msg("%s %s, step %d, %s %d: %.9g, PyTorch %.9g", opt->name, c->name, step, what, i,
                     (double)found[i], (double)expected[i]);
}

static void follow_case(const fr_optimizer *opt, const fixture_case *c)
{
    const fixture_tensor *lr = fixture_need(c, "lr"), *grads = fixture_need(c, "grads");
    const fixture_tensor *weights = fixture_need(c, "weights"); /* (steps + 1, n) */
    fr_optim_options o = {.weight_decay = fixture_number(c, "weight_decay", 0),
                          .momentum = fixture_number(c, "momentum", 0),
                          .dampening = fixture_number(c, "dampening", 0),
                          .nesterov = fixture_number(c, "nesterov", 0) > 0,
                          .beta1 = fixture_number(c, "beta1", 0),
                          .beta2 = fixture_number(c, "beta2", 0),
                          .eps = fixture_number(c, "eps", 0),
                          .momentum_decay = fixture_number(c, "momentum_decay", 0)};
    int steps = (int)lr->count, n = (int)weights->dim[1];
    float w[64], state[FR_MAX_OPTIM_STATE][64] = {{0}};
    assert_true(steps > 3 && n <= 64);
    memcpy(w, weights->f, (size_t)n * sizeof *w);
    for (int t = 0; t < steps; t++) {
        fr_optim_coef k;
        fr_optim_prepare(opt, &o, t + 1, (double)lr->f[t], 1, &k);
        step(opt, &k, (size_t)n, w, grads->f + t * n, state[0], state[1]);
        near_row(opt, c, "weight", t, w, weights->f + (t + 1) * n, n);
        for (int s = 0; s < opt->n_state; s++) {
            const fixture_tensor *kept = fixture_find(c, opt->state_names[s]);
            if (kept) near_row(opt, c, opt->state_names[s], t, state[s], kept->f + t * n, n);
        }
    }
}

static void follows_torch(void **unused)
{
    (void)unused;
    for (const fr_optimizer *const *opt = fr_optim_list(); *opt; opt++) {
        char name[40];
        fixture f;
        if ((*opt)->matrices) continue; /* tests/weights/test_matrices.c */
        snprintf(name, sizeof name, "optim_%s", (*opt)->name);
        fixture_load(&f, name);
        assert_true(f.n_cases > 1);
        for (int i = 0; i < f.n_cases; i++) follow_case(*opt, &f.cases[i]);
        fixture_free(&f);
    }
}

/* 30 updates at changing rates, with gradients clipped to half. */
static void follows_oracle(void **unused)
{
    (void)unused;
    static float w[N], g[N], m[N], v[N];
    static struct oracle s[N];
    for (int k = 0; k < N_VARIANTS; k++) {
        const struct variant *x = &variants[k];
        const fr_optimizer *opt = fr_optim_find(x->name);
        for (int i = 0; i < N; i++) {
            w[i] = noise(1, (uint64_t)i), m[i] = v[i] = 0;
            s[i] = (struct oracle){.w = w[i], .product = 1};
        }
        for (int t = 0; t < 30; t++) {
            double lr = x->o.lr / (1 + 0.1 * t);
            for (int i = 0; i < N; i++) {
                g[i] = noise(2, (uint64_t)(t * N + i));
                oracle_step(x, lr, 0.5 * g[i], &s[i]);
            }
            fr_optim_coef c;
            fr_optim_prepare(opt, &x->o, t + 1, lr, 0.5, &c);
            step(opt, &c, N, w, g, m, v);
        }
        for (int i = 0; i < N; i++)
            if (!(fabs(w[i] - s[i].w) <= 3e-6 * (1 + fabs(s[i].w))))
                fail_msg("%s, row %d, weight %d: %.9g, expected %.9g", x->name, k, i, (double)w[i],
                         s[i].w);
    }
}

/* Sixty updates with gradients of eight orders of magnitude: adam and adamw stay within a few units
 * in the last place of double precision. Differences between runs on different machines come from
 * the gradients: an error of 1e-9 in a gradient of 1e-8 stays small with sgd, but is a tenth of a
 * step with adam, even in double precision, because its steps do not depend on the size of the
 * gradient. */
static void adam_keeps_precision(void **unused)
{
    (void)unused;
    enum { STEPS = 60 };
    static float w[N], g[N], m[N], v[N];
    static struct oracle s[N], rounded[N];
    const struct variant rows[] = {
        {"adam", {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
        {"adamw", {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01}},
        {"sgd", {.lr = 0.05, .momentum = 0.9}},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const struct variant *x = &rows[k];
        const fr_optimizer *opt = fr_optim_find(x->name);
        double worst = 0, spread = 0;
        for (int i = 0; i < N; i++) {
            w[i] = 0.1f * noise(1, (uint64_t)i), m[i] = v[i] = 0;
            s[i] = rounded[i] = (struct oracle){.w = w[i], .product = 1};
        }
        for (int t = 0; t < STEPS; t++) {
            for (int i = 0; i < N; i++) {
                g[i] = (float)pow(10, -i % 9) * noise(2, (uint64_t)(t * N + i));
                oracle_step(x, x->o.lr, g[i], &s[i]);
                oracle_step(x, x->o.lr, g[i] + 1e-9 * noise(3, (uint64_t)(t * N + i)), &rounded[i]);
            }
            fr_optim_coef c;
            fr_optim_prepare(opt, &x->o, t + 1, x->o.lr, 1, &c);
            step(opt, &c, N, w, g, m, v);
        }
        for (int i = 0; i < N; i++) {
            if (strcmp(x->name, "sgd") != 0) worst = fmax(worst, fabs(w[i] - s[i].w));
            spread = fmax(spread, fabs(rounded[i].w - s[i].w));
        }
        if (!(worst <= 3e-7)) fail_msg("%s: %g away from double precision", x->name, worst);
        if ((spread > 1e-6) != (strcmp(x->name, "sgd") != 0))
            fail_msg("%s: 1e-9 in the gradients makes %g in the weights", x->name, spread);
    }
}

/* SpecTrain's rule, v = gamma v + (1 - gamma) g from v = 0, equals momentum gamma with rate lr (1 -
 * gamma). Dampening gamma does not: its first velocity is the full gradient, as in PyTorch. */
static void spectrains_rule_is_momentum(void **unused)
{
    (void)unused;
    const double gamma = 0.9, lr = 0.1;
    const fr_optimizer *opt = fr_optim_find("sgd");
    const fr_optim_options by_rate = {.lr = lr * (1 - gamma), .momentum = gamma};
    const fr_optim_options by_dampening = {.lr = lr, .momentum = gamma, .dampening = gamma};
    float w[2] = {1, 1}, m[2] = {0, 0};
    double v = 0, expected = 1;
    for (int t = 0; t < 20; t++) {
        float g = noise(5, (uint64_t)t);
        fr_optim_coef c;
        v = gamma * v + (1 - gamma) * (double)g, expected -= lr * v;
        fr_optim_prepare(opt, &by_rate, t + 1, by_rate.lr, 1, &c);
        step(opt, &c, 1, &w[0], &g, &m[0], NULL);
        fr_optim_prepare(opt, &by_dampening, t + 1, by_dampening.lr, 1, &c);
        step(opt, &c, 1, &w[1], &g, &m[1], NULL);
        assert_true(fabs((double)w[0] - expected) < 1e-6);
        if (t == 0) assert_true(fabs(1 - lr * (double)g - (double)w[1]) < 1e-7);
    }
    assert_true(fabs((double)w[1] - expected) > 1e-3);
}

/* Any cut of the range, aligned or not, gives the bits of one sweep. */
static void any_cut_same_bits(void **unused)
{
    (void)unused;
    static float start[4][N], whole[4][N], parts[4][N];
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < N; i++) start[b][i] = noise((uint32_t)b, (uint64_t)i);
    for (int i = 0; i < N; i++) start[3][i] = fabsf(start[3][i]);
    for (int k = 0; k < N_VARIANTS; k++) {
        const fr_optimizer *opt = fr_optim_find(variants[k].name);
        fr_optim_coef c;
        fr_optim_prepare(opt, &variants[k].o, 3, variants[k].o.lr, 0.7, &c);
        memcpy(whole, start, sizeof whole);
        step(opt, &c, N, whole[0], whole[1], whole[2], whole[3]);
        for (size_t grain = 1; grain < 40; grain += 3) {
            memcpy(parts, start, sizeof parts);
            for (size_t at = 0; at < N; at += grain) {
                size_t n = N - at < grain ? N - at : grain;
                step(opt, &c, n, parts[0] + at, parts[1] + at, parts[2] + at, parts[3] + at);
            }
            assert_memory_equal(parts, whole, sizeof whole);
        }
        static float u[N], u_parts[N];
        direction(opt, &variants[k].o, 3, N, whole[2], whole[3], u);
        for (size_t at = 0; at < N; at += 13)
            direction(opt, &variants[k].o, 3, N - at < 13 ? N - at : 13, whole[2] + at,
                      whole[3] + at, u_parts + at);
        assert_memory_equal(u, u_parts, sizeof u);
    }
}

/* Under a steady gradient the direction is (w before - w after) / lr of the last update. */
static void direction_is_what_is_applied(void **unused)
{
    (void)unused;
    enum { STEPS = 300, W = 7 };
    for (int k = 0; k < N_VARIANTS; k++) {
        const struct variant *x = &variants[k];
        const fr_optimizer *opt = fr_optim_find(x->name);
        fr_optim_options o = x->o;
        o.weight_decay = 0;
        float w[W], g[W], m[W] = {0}, v[W] = {0}, before[W], u[W];
        for (int i = 0; i < W; i++) w[i] = noise(5, (uint64_t)i), g[i] = noise(6, (uint64_t)i);
        fr_optim_coef c;
        for (int t = 1; t <= STEPS; t++) {
            for (int i = 0; i < W; i++) before[i] = w[i] = noise(5, (uint64_t)i);
            fr_optim_prepare(opt, &o, t, o.lr, 1, &c);
            step(opt, &c, W, w, g, m, v);
        }
        direction(opt, &o, STEPS, W, m, v, u);
        for (int i = 0; i < W; i++) {
            double applied = ((double)before[i] - (double)w[i]) / o.lr;
            if (!(fabs(applied - (double)u[i]) <= 2e-5 * (1 + fabs(applied))))
                fail_msg("%s, row %d: applied %.9g, direction %.9g", x->name, k, applied,
                         (double)u[i]);
        }
    }
}

/* Decoupled weight decay is not part of the direction. */
static void direction_leaves_decay_out(void **unused)
{
    (void)unused;
    fr_optim_options o;
    fr__optim_adamw.defaults(&o);
    assert_true(o.weight_decay > 0);
    float m = 0.5f, v = 0.25f, u[2];
    direction(&fr__optim_adamw, &o, 9, 1, &m, &v, &u[0]);
    o.weight_decay = 0;
    direction(&fr__optim_adamw, &o, 9, 1, &m, &v, &u[1]);
    assert_true(u[0] == u[1]);
    double expected = 0.5 / (1 - pow(0.9, 9)) / (0.5 / sqrt(1 - pow(0.999, 9)) + 1e-8);
    assert_true(fabs((double)u[0] - expected) < 1e-6 * expected);
}

/* nadam's truncated product of momenta equals the full one. */
static void nadam_needs_only_t(void **unused)
{
    (void)unused;
    const double decays[] = {0, 0.004, 1, 100};
    const double betas[] = {0.5, 0.9, 0.99};
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 3; b++) {
            fr_optim_options o;
            fr__optim_nadam.defaults(&o);
            o.momentum_decay = decays[a], o.beta1 = betas[b];
            double product = 1;
            for (int t = 1; t <= 5000; t++) {
                double now = o.beta1 * (1 - 0.5 * pow(0.96, t * o.momentum_decay));
                double next = o.beta1 * (1 - 0.5 * pow(0.96, (t + 1) * o.momentum_decay));
                product *= now;
                if (t > 100 && t % 97) continue;
                fr_optim_coef c;
                fr_optim_prepare(&fr__optim_nadam, &o, t, 1, 1, &c);
                assert_true(c.rate_grad == (float)((1 - now) / (1 - product)));
                assert_true(c.rate_mean == (float)(next / (1 - product * next)));
            }
        }
}

static void bad_settings_refused(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        size_t field; /* a double of fr_optim_options */
        double bad[3];
        const char *says;
    } rows[] = {
        {"sgd", offsetof(fr_optim_options, lr), {-1, NAN, INFINITY}, "lr"},
        {"sgd", offsetof(fr_optim_options, weight_decay), {-1, NAN, INFINITY}, "weight_decay"},
        {"sgd", offsetof(fr_optim_options, momentum), {-0.1, 1, NAN}, "momentum"},
        {"sgd", offsetof(fr_optim_options, dampening), {-0.1, 1, NAN}, "dampening"},
        {"adam", offsetof(fr_optim_options, beta1), {-0.1, 1, NAN}, "beta1"},
        {"adamw", offsetof(fr_optim_options, beta2), {-0.1, 1, NAN}, "beta2"},
        {"adam", offsetof(fr_optim_options, eps), {0, -1, 1e-60}, "eps"},
        {"nadam", offsetof(fr_optim_options, momentum_decay), {-1, NAN, INFINITY}, "decay"},
        {"lion", offsetof(fr_optim_options, beta1), {-0.1, 1, NAN}, "beta1"},
        {"lion", offsetof(fr_optim_options, beta2), {-0.1, 1, NAN}, "beta2"},
        {"muon", offsetof(fr_optim_options, momentum), {-0.1, 1, NAN}, "momentum"},
        {"muon", offsetof(fr_optim_options, adamw_factor), {-1, NAN, INFINITY}, "adamw_factor"},
        {"muon", offsetof(fr_optim_options, beta2), {-0.1, 1, NAN}, "beta2"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int b = 0; b < 3; b++) {
            const fr_optimizer *opt = fr_optim_find(rows[r].name);
            fr_optim_options o;
            opt->defaults(&o);
            assert_null(opt->check(&o));
            memcpy((char *)&o + rows[r].field, &rows[r].bad[b], sizeof(double));
            const char *wrong = opt->check(&o);
            assert_non_null(wrong);
            assert_non_null(strstr(wrong, rows[r].says));
        }
    fr_optim_options o = {.lr = 0.1, .nesterov = true};
    assert_non_null(strstr(fr__optim_sgd.check(&o), "nesterov"));
    assert_null(fr_optim_find("sophia"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_torch),
        cmocka_unit_test(follows_oracle),
        cmocka_unit_test(adam_keeps_precision),
        cmocka_unit_test(spectrains_rule_is_momentum),
        cmocka_unit_test(any_cut_same_bits),
        cmocka_unit_test(direction_is_what_is_applied),
        cmocka_unit_test(direction_leaves_decay_out),
        cmocka_unit_test(nadam_needs_only_t),
        cmocka_unit_test(bad_settings_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
