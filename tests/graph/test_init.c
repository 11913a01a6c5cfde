/* test_init.c -- initial values: their distribution, and their independence of all else. */
#include "base/alloc.h"
#include "graph/common.h"

#include <math.h>

typedef struct stats {
    double mean, deviation, least, most, kurtosis;
} stats;

static stats stats_of(const float *x, int64_t n)
{
    stats s = {.least = INFINITY, .most = -INFINITY};
    double second = 0, fourth = 0;
    for (int64_t i = 0; i < n; i++) {
        s.mean += x[i] / (double)n;
        s.least = fmin(s.least, x[i]);
        s.most = fmax(s.most, x[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double d = x[i] - s.mean;
        second += d * d / (double)n;
        fourth += d * d * d * d / (double)n;
    }
    s.deviation = sqrt(second);
    s.kurtosis = fourth / (second * second);
    return s;
}

static float *values_of(world *w, const char *name, uint64_t seed, int64_t *n)
{
    int p = fr_graph_find_param(w->g, name);
    assert_true(p >= 0);
    *n = fr_shape_count(&fr_graph_param(w->g, p)->shape);
    float *v = FR_NEW_ARRAY(float, *n);
    assert_non_null(v);
    fr_graph_init_param(w->g, p, seed, v);
    return v;
}

static world init_world(void)
{
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(8, 30, 30), FR_F32);
    fr_attrs conv = {.weight_init = {FR_INIT_HE_OUT, 0},
                     .conv2d = {.out = 300, .kernel = {5, 5}, .groups = 2}};
    fr_attrs small = {.weight_init = {FR_INIT_NORMAL, 0.01f}, .linear = {.out = 333}};
    fr_attrs lecun = {.weight_init = {FR_INIT_LECUN, 0}, .linear = {.out = 501, .no_bias = true}};
    fr_attrs flat = {.weight_init = {FR_INIT_UNIFORM, 0.25f}, .linear = {.out = 301}};
    fr_attrs embed = {.embedding = {500, 100, 20}}, lstm = {.lstm = {.hidden = 64}};
    int f = ADD(w.g, FR_OP_GLOBAL_POOL, "f", NULL, ADD(w.g, FR_OP_CONV2D, "conv", &conv, x));
    f = add_linear(w.g, "plain", 400, f);
    f = ADD(w.g, FR_OP_LINEAR, "small", &small, f);
    f = ADD(w.g, FR_OP_LINEAR, "lecun", &lecun, f);
    f = ADD(w.g, FR_OP_LINEAR, "flat", &flat, f);
    ADD(w.g, FR_OP_BATCH_NORM, "norm", NULL, f);
    int t = add_input(w.g, "t", FR_SHAPE(20), FR_I32);
    t = ADD(w.g, FR_OP_EMBEDDING, "wte", &embed, t);
    t = ADD(w.g, FR_OP_LSTM, "lstm", &lstm, t);
    t = add_linear(w.g, "wide", 100, t);
    fr_attrs head = {.linear = {500, true}};
    ADD(w.g, FR_OP_LINEAR, "head", &head, t);
    assert_int_equal(fr_graph_tie(w.g, "head.weight", "wte.weight"), FR_OK);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    return w;
}

/* Several threads produce the same numbers as one. */
static void ranges_are_parts_of_the_whole(void **state)
{
    (void)state;
    world w = init_world();
    for (int p = 0; p < fr_graph_n_params(w.g); p++) {
        int64_t n = fr_shape_count(&fr_graph_param(w.g, p)->shape), step = 4 + n / 12 * 4;
        float *whole = FR_NEW_ARRAY(float, n), *parts = FR_NEW_ARRAY(float, n);
        assert_true(whole && parts);
        fr_graph_init_param(w.g, p, 5, whole);
        for (int64_t at = 0; at < n; at += step)
            fr_graph_init_range(w.g, p, 5, at, n - at < step ? n - at : step, parts + at);
        assert_memory_equal(whole, parts, (size_t)n * sizeof(float));
        fr__free(whole), fr__free(parts);
    }
    world_free(&w);
}

static void distributions(void **state)
{
    (void)state;
    const struct {
        const char *name;
        fr_init_kind kind;
        double scale;
    } cases[] = {
        {"conv.weight", FR_INIT_NORMAL, sqrt(2. / (300 * 25))},
        {"conv.bias", FR_INIT_ZEROS, 0},
        {"plain.weight", FR_INIT_UNIFORM, 1 / sqrt(300)},
        {"plain.bias", FR_INIT_UNIFORM, 1 / sqrt(300)},
        {"small.weight", FR_INIT_NORMAL, 0.01},
        {"small.bias", FR_INIT_ZEROS, 0},
        {"lecun.weight", FR_INIT_NORMAL, 1 / sqrt(333)},
        {"flat.weight", FR_INIT_UNIFORM, 0.25},
        {"norm.weight", FR_INIT_ONES, 0},
        {"norm.bias", FR_INIT_ZEROS, 0},
        {"norm.running_mean", FR_INIT_ZEROS, 0},
        {"norm.running_var", FR_INIT_ONES, 0},
        {"wte.weight", FR_INIT_NORMAL, 0.02},
        {"wte.position", FR_INIT_NORMAL, 0.02},
        {"lstm.weight_ih", FR_INIT_UNIFORM, 1. / 8},
        {"lstm.weight_hh", FR_INIT_UNIFORM, 1. / 8},
        {"lstm.bias_hh", FR_INIT_UNIFORM, 1. / 8},
    };
    world w = init_world();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n;
        float *v = values_of(&w, cases[i].name, 7, &n);
        stats s = stats_of(v, n);
        bool is_uniform = cases[i].kind == FR_INIT_UNIFORM,
             is_normal = cases[i].kind == FR_INIT_NORMAL;
        double sd = is_uniform ? cases[i].scale / sqrt(3) : is_normal ? cases[i].scale : 0;
        double slack = 5 / sqrt((double)n); /* five standard errors */
        const fr_param *p = fr_graph_param(w.g, fr_graph_find_param(w.g, cases[i].name));
        assert_int_equal(p->init.kind, cases[i].kind);
        if (fabs(s.mean - (cases[i].kind == FR_INIT_ONES)) > slack * sd + 1e-9 ||
            fabs(s.deviation - sd) > slack * sd + 1e-9)
            fail_msg("%s: mean %g, deviation %g", cases[i].name, s.mean, s.deviation);
        if (is_uniform) assert_true(s.most < cases[i].scale && s.least > -cases[i].scale);
        if (n > 10000 && sd > 0) assert_true(fabs(s.kurtosis - (is_uniform ? 1.8 : 3)) < 0.1);
        fr__free(v);
    }
    world_free(&w);
}

static void seeds_and_ties(void **state)
{
    (void)state;
    world w = init_world(), other = init_world();
    int64_t n, n2;
    float *a = values_of(&w, "wte.weight", 1, &n), *same = values_of(&other, "wte.weight", 1, &n2);
    float *tied = values_of(&w, "head.weight", 1, &n2), *b = values_of(&w, "wte.weight", 2, &n2);
    float *small = values_of(&w, "small.weight", 1, &n2);
    assert_memory_equal(a, same, (size_t)n * sizeof *a);
    assert_memory_equal(a, tied, (size_t)n * sizeof *a);
    int n_equal = 0, n_alike = 0;
    for (int64_t i = 0; i < n; i++) {
        n_equal += a[i] == b[i];
        n_alike += fabsf(a[i] - 2 * small[i]) < 1e-9f; /* same stream, other scale? */
    }
    assert_true(n_equal < 10 && n_alike < 10);
    fr__free(a), fr__free(b), fr__free(same), fr__free(tied), fr__free(small);
    world_free(&w);
    world_free(&other);
}

/* Values are part of the format: a run must be repeatable with a later version. */
static void values_are_fixed(void **state)
{
    (void)state;
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(4), FR_F32);
    fr_attrs normal = {.weight_init = {FR_INIT_NORMAL, 1}, .linear = {.out = 2}};
    ADD(w.g, FR_OP_LINEAR, "n", &normal, add_linear(w.g, "u", 4, x));
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    int64_t n;
    float *u = values_of(&w, "u.weight", 1, &n), *v = values_of(&w, "n.weight", 1, &n);
    const float want_u[] = {0.122058421f, 0.0479588211f,  -0.00570556521f,
                            0.480377346f, 0.00075802207f, -0.128196388f},
                want_v[] = {0.0780383713f, 0.791573406f, 1.44332104f,
                            -0.438095819f, 0.295962887f, 1.23115457f};
    for (int i = 0; i < 6; i++) {
        if (fabsf(u[i] - want_u[i]) > 1e-7f) fail_msg("u[%d] = %.9g", i, (double)u[i]);
        if (fabsf(v[i] - want_v[i]) > 1e-6f) fail_msg("v[%d] = %.9g", i, (double)v[i]);
    }
    fr__free(u), fr__free(v);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions),
        cmocka_unit_test(ranges_are_parts_of_the_whole),
        cmocka_unit_test(seeds_and_ties),
        cmocka_unit_test(values_are_fixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
