/* test_sweep.c -- every kind of optimizer pass: in place or not, with predictions and drift, alone
 * or fused; all give the bits of the plain step and of the plain prediction. */
#include "optim/optim.h"

#include "base/bf16.h"
#include "base/philox.h"
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
    {"sgd", {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01}},
    {"sgd", {.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}},
    {"adam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1}},
    {"adamw", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-4, .weight_decay = 0.1}},
    {"nadam", {.lr = 0.02, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 0.004}},
    {"lion", {.lr = 0.02, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}},
};
#define N_VARIANTS ((int)(sizeof variants / sizeof *variants))
#define LAST 7 /* number of the update */

static const double rates[] = {0.3, 0.2, 0.15, 0.1, 0.05};

enum { FROM, TO, GRAD, STATE_0, STATE_1, DRIFT, AHEAD_0, AHEAD_1, N_PARTS };
typedef float blocks[N_PARTS][N];

static blocks start;

static int fill(void **unused)
{
    (void)unused;
    for (int b = 0; b < N_PARTS; b++)
        for (int i = 0; i < N; i++) {
            uint32_t r[4];
            fr__random4(9, FR_STREAM_SYNTHETIC, (uint32_t)b, (uint64_t)i, 0, r);
            start[b][i] = 2 * fr__unit_float(r[0]) - 1;
            if (b == STATE_1) start[b][i] = fabsf(start[b][i]); /* a mean of squares */
        }
    return 0;
}

static fr_sweep sweep_of(blocks b, bool in_place, bool has_drift, int n_ahead)
{
    return (fr_sweep){.n = N,
                      .from = in_place ? b[TO] : b[FROM],
                      .to = b[TO],
                      .grad = b[GRAD],
                      .state = {b[STATE_0], b[STATE_1]},
                      .drift = has_drift ? b[DRIFT] : NULL,
                      .n_ahead = n_ahead,
                      .ahead = {b[AHEAD_0], b[AHEAD_1]},
                      .ahead_coef = {.keep = 0.7f}};
}

static void prepare_prediction(const struct variant *x, fr_extrapolation extrapolation, fr_sweep *s)
{
    const int n_updates[FR_MAX_AHEAD] = {2, 5};
    for (int j = 0; j < FR_MAX_AHEAD; j++)
        fr_optim_prepare_prediction(fr_optim_find(x->name), &x->o, extrapolation, LAST,
                                    n_updates[j], rates, j, &s->ahead_coef);
}

static void every_kind_same_bits(void **unused)
{
    (void)unused;
    static blocks plain, found, alone;
    for (int k = 0; k < N_VARIANTS; k++)
        for (int kind = 0; kind < 36; kind++) {
            const struct variant *x = &variants[k];
            const fr_optimizer *opt = fr_optim_find(x->name);
            bool in_place = kind % 2, has_drift = kind / 2 % 2;
            int n_ahead = kind / 4 % 3;
            fr_extrapolation extrapolation =
                has_drift ? FR_EXTRAPOLATE_DRIFT : (fr_extrapolation)(kind / 12);
            fr_optim_coef c;
            fr_optim_prepare(opt, &x->o, LAST, x->o.lr, 0.7, &c);

            memcpy(plain, start, sizeof plain);
            memcpy(plain[TO], start[FROM], sizeof plain[TO]);
            fr_sweep s = sweep_of(plain, true, false, 0);
            opt->step(&c, &s);

            memcpy(found, start, sizeof found);
            if (in_place) memcpy(found[TO], start[FROM], sizeof found[TO]);
            s = sweep_of(found, in_place, has_drift, n_ahead);
            prepare_prediction(x, extrapolation, &s);
            opt->step(&c, &s);
            for (int b = TO; b <= STATE_1; b++)
                assert_memory_equal(found[b], plain[b], sizeof plain[b]);
            assert_memory_equal(found[FROM], start[FROM], sizeof start[FROM]);
            if (!has_drift) assert_memory_equal(found[DRIFT], start[DRIFT], sizeof start[DRIFT]);
            for (int j = n_ahead; j < FR_MAX_AHEAD; j++)
                assert_memory_equal(found[AHEAD_0 + j], start[AHEAD_0 + j], sizeof start[0]);
            for (int i = 0; i < N && has_drift; i++) {
                double moved = (double)plain[TO][i] - (double)start[FROM][i];
                double drift = 0.7 * (double)start[DRIFT][i] + 0.3 * moved;
                assert_true(fabs((double)found[DRIFT][i] - drift) < 1e-6);
            }

            memcpy(alone, found, sizeof alone);
            for (int j = 0; j < n_ahead; j++) memset(alone[AHEAD_0 + j], 0, sizeof alone[0]);
            s.from = alone[TO], s.to = NULL, s.grad = NULL;
            s.state[0] = alone[STATE_0], s.state[1] = alone[STATE_1];
            s.drift = has_drift ? alone[DRIFT] : NULL;
            s.ahead[0] = alone[AHEAD_0], s.ahead[1] = alone[AHEAD_1];
            opt->predict(&s);
            assert_memory_equal(alone, found, sizeof found);
        }
}

/* With everything on, any cut of the range gives the bits of one sweep. */
static void any_cut_same_bits(void **unused)
{
    (void)unused;
    static blocks whole, parts;
    for (int k = 0; k < N_VARIANTS; k++)
        for (int has_drift = 0; has_drift < 2; has_drift++) {
            const struct variant *x = &variants[k];
            const fr_optimizer *opt = fr_optim_find(x->name);
            fr_optim_coef c;
            fr_optim_prepare(opt, &x->o, LAST, x->o.lr, 0.7, &c);
            memcpy(whole, start, sizeof whole);
            fr_sweep s = sweep_of(whole, false, has_drift, 2);
            prepare_prediction(x, has_drift ? FR_EXTRAPOLATE_DRIFT : FR_EXTRAPOLATE_APPLIED, &s);
            opt->step(&c, &s);
            for (size_t grain = 1; grain < 40; grain += 6) {
                memcpy(parts, start, sizeof parts);
                for (size_t at = 0; at < N; at += grain) {
                    fr_sweep p = sweep_of(parts, false, has_drift, 2);
                    p.ahead_coef = s.ahead_coef;
                    p.n = N - at < grain ? N - at : grain;
                    p.from += at, p.to += at, p.grad += at;
                    p.state[0] += at, p.state[1] += at;
                    for (int j = 0; j < 2; j++) p.ahead[j] = (float *)p.ahead[j] + at;
                    if (p.drift) p.drift += at;
                    opt->step(&c, &p);
                }
                assert_memory_equal(parts, whole, sizeof whole);
            }
        }
}

/* Frozen weights: an update and its predictions are copies, as floats and as bf16; nothing else is
 * written. */
static void hold_copies(void **unused)
{
    (void)unused;
    static blocks b;
    const fr_optim_coef none = {0};
    for (int kind = 0; kind < 8; kind++) {
        bool in_place = kind % 2, is_bf16 = kind / 2 % 2, alone = kind / 4;
        memcpy(b, start, sizeof b);
        fr_sweep s = sweep_of(b, in_place || is_bf16, true, 2);
        s.ahead_is_bf16 = is_bf16;
        prepare_prediction(&variants[0], FR_EXTRAPOLATE_APPLIED, &s);
        if (alone)
            fr__optim_hold.predict(&s);
        else
            fr__optim_hold.step(&none, &s);
        for (int i = 0; i < N; i++) {
            if (!alone) assert_true(s.to[i] == s.from[i]);
            for (int j = 0; j < 2; j++)
                assert_true(is_bf16 ? ((uint16_t *)s.ahead[j])[i] == fr__bf16_of(s.from[i])
                                    : ((float *)s.ahead[j])[i] == s.from[i]);
        }
        for (int part = GRAD; part <= DRIFT; part++)
            assert_memory_equal(b[part], start[part], sizeof b[part]);
    }
}

static void near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * (1 + fabs(expected))))
        fail_msg("%.17g, expected %.17g", found, expected);
}

static double distance(const fr_optimizer *opt, const fr_optim_options *o, fr_extrapolation c,
                       int t, int n, const double *lr)
{
    return opt->distance(o, c, t, n, lr);
}

/* Distances of predictions, by the formulas of the papers. */
static void distances(void **unused)
{
    (void)unused;
    const double same[] = {0.1, 0.1, 0.1, 0.1};
    const fr_optim_options sgd = {.momentum = 0.9}, plain = {.momentum = 0};
    fr_optim_options nesterov = sgd;
    nesterov.nesterov = true;
    for (int s = 0; s <= 4; s++) {
        double sum = 0, dying = 0;
        for (int i = 0; i < s; i++) sum += rates[i], dying += rates[i] * pow(0.9, i + 1);
        near(distance(&fr__optim_sgd, &sgd, FR_EXTRAPOLATE_APPLIED, 3, s, same), 0.1 * s);
        near(distance(&fr__optim_sgd, &sgd, FR_EXTRAPOLATE_APPLIED, 3, s, rates), sum);
        near(distance(&fr__optim_sgd, &sgd, FR_EXTRAPOLATE_CONSTANT, 3, s, rates), sum);
        near(distance(&fr__optim_sgd, &nesterov, FR_EXTRAPOLATE_APPLIED, 3, s, rates), sum);
        near(distance(&fr__optim_sgd, &sgd, FR_EXTRAPOLATE_DECAY, 3, s, rates), dying);
        near(distance(&fr__optim_sgd, &nesterov, FR_EXTRAPOLATE_DECAY, 3, s, rates), 0.9 * dying);
        near(distance(&fr__optim_sgd, &sgd, FR_EXTRAPOLATE_DECAY, 3, s, same),
             0.1 * (0.9 - pow(0.9, s + 1)) / (1 - 0.9));
        near(distance(&fr__optim_sgd, &plain, FR_EXTRAPOLATE_DECAY, 3, s, same), 0);

        const fr_optim_options adam = {.beta1 = 0.8, .beta2 = 0.99, .eps = 1e-8};
        dying = 0;
        for (int i = 1; i <= s; i++) dying += rates[i - 1] * pow(0.8, i) / (1 - pow(0.8, 3 + i));
        const fr_optimizer *both[] = {&fr__optim_adam, &fr__optim_adamw};
        for (int b = 0; b < 2; b++) {
            near(distance(both[b], &adam, FR_EXTRAPOLATE_APPLIED, 3, s, rates),
                 sum / (1 - pow(0.8, 3)));
            near(distance(both[b], &adam, FR_EXTRAPOLATE_CONSTANT, 3, s, rates), sum / (1 - 0.8));
            near(distance(both[b], &adam, FR_EXTRAPOLATE_DECAY, 3, s, rates), dying);
        }
        for (int kind = FR_EXTRAPOLATE_APPLIED; kind <= FR_EXTRAPOLATE_DECAY; kind++)
            near(distance(&fr__optim_lion, &adam, (fr_extrapolation)kind, 3, s, rates), sum);
        near(distance(&fr__optim_nadam, &adam, FR_EXTRAPOLATE_CONSTANT, 3, s, rates),
             sum / (1 - 0.8));
    }
}

/* The denominator depends on the extrapolation; before the first update nothing moves. */
static void prediction_coefs(void **unused)
{
    (void)unused;
    const fr_optim_options o = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-5};
    fr_prediction_coef a = {.keep = 3};
    fr_optim_prepare_prediction(&fr__optim_adam, &o, FR_EXTRAPOLATE_APPLIED, 4, 2, rates, 1, &a);
    assert_true(a.unbias2 == (float)(1 / sqrt(1 - pow(0.99, 4))) && a.eps == 1e-5f);
    assert_true(a.by[1] == (float)(0.5 / (1 - pow(0.9, 4))) && a.by[0] == 0 && a.keep == 3);
    fr_optim_prepare_prediction(&fr__optim_adam, &o, FR_EXTRAPOLATE_CONSTANT, 4, 2, rates, 0, &a);
    assert_true(a.unbias2 == (float)(1 / sqrt(1 - 0.99)));
    fr_optim_prepare_prediction(&fr__optim_adam, &o, FR_EXTRAPOLATE_DRIFT, 4, 2, rates, 0, &a);
    assert_true(a.by[0] == 2);
    for (int kind = FR_EXTRAPOLATE_APPLIED; kind <= FR_EXTRAPOLATE_DECAY; kind++)
        for (const fr_optimizer *const *opt = fr_optim_list(); *opt; opt++) {
            static blocks b;
            memset(b, 0, sizeof b);
            memcpy(b[FROM], start[FROM], sizeof b[FROM]);
            fr_sweep s = sweep_of(b, false, false, 2);
            for (int j = 0; j < 2; j++)
                fr_optim_prepare_prediction(*opt, &o, (fr_extrapolation)kind, 0, 2 + j, rates, j,
                                            &s.ahead_coef);
            (*opt)->predict(&s);
            assert_memory_equal(b[AHEAD_0], start[FROM], sizeof b[0]);
            assert_memory_equal(b[AHEAD_1], start[FROM], sizeof b[0]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_same_bits), cmocka_unit_test(any_cut_same_bits),
        cmocka_unit_test(hold_copies),          cmocka_unit_test(distances),
        cmocka_unit_test(prediction_coefs),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
