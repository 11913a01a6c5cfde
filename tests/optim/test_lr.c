/* test_lr.c -- learning rate schedules at points known by hand, by formulas, and by PyTorch. */
#include <forerun/optim.h>

#include "support/fixture.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

static void near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12)) fail_msg("%.17g, expected %.17g", found, expected);
}

static void known_points(void **unused)
{
    (void)unused;
    const struct {
        fr_lr_options o;
        int64_t t;
        double lr; /* at base 2 */
    } rows[] = {
        {{.name = "constant"}, 0, 2},
        {{.name = "constant"}, 1000000, 2},
        {{.name = "step", .every = 10, .gamma = 0.5}, 9, 2},
        {{.name = "step", .every = 10, .gamma = 0.5}, 10, 1},
        {{.name = "step", .every = 10, .gamma = 0.5}, 25, 0.5},
        {{.name = "cosine", .total = 100}, 0, 2},
        {{.name = "cosine", .total = 100}, 50, 1},
        {{.name = "cosine", .total = 90}, 30, 1.5},
        {{.name = "cosine", .total = 100, .min_ratio = 0.1}, 100, 0.2},
        {{.name = "cosine", .total = 100, .min_ratio = 0.1}, 5000, 0.2},
        {{.name = "polynomial", .total = 10, .power = 2}, 5, 0.5},
        {{.name = "polynomial", .total = 10, .power = 1, .min_ratio = 0.5}, 5, 1.5},
        {{.name = "polynomial", .total = 10, .power = 1, .min_ratio = 0.5}, 10, 1},
        {{.name = "constant", .warmup = 4}, 0, 0.5},
        {{.name = "constant", .warmup = 4}, 2, 1.5},
        {{.name = "constant", .warmup = 4}, 3, 2},
        {{.name = "constant", .warmup = 4}, 4, 2},
        /* the schedule starts where the warm-up ends, and still ends with the run */
        {{.name = "cosine", .warmup = 20, .total = 120}, 20, 2},
        {{.name = "cosine", .warmup = 20, .total = 120}, 70, 1},
        {{.name = "step", .warmup = 5, .every = 10, .gamma = 0.5}, 14, 2},
        {{.name = "step", .warmup = 5, .every = 10, .gamma = 0.5}, 15, 1},
        /* the decay is a share of the whole run, warm-up included */
        {{.name = "wsd", .total = 100, .decay = 0.2}, 0, 2},
        {{.name = "wsd", .total = 100, .decay = 0.2}, 80, 2},
        {{.name = "wsd", .total = 100, .decay = 0.2}, 90, 1},
        {{.name = "wsd", .total = 100, .decay = 0.2}, 99, 0.1},
        {{.name = "wsd", .total = 100, .decay = 0.2, .min_ratio = 0.1}, 500, 0.2},
        {{.name = "wsd", .total = 100}, 95, 1},
        {{.name = "wsd", .total = 100, .warmup = 10, .decay = 0.2}, 4, 1},
        {{.name = "wsd", .total = 100, .warmup = 10, .decay = 0.2}, 85, 1.5},
        {{.name = "wsd", .total = 100, .decay = 0.2, .shape = "sqrt"}, 85, 1},
        {{.name = "wsd", .total = 90, .decay = 1. / 3, .shape = "cosine"}, 70, 1.5},
        {{.name = "wsd", .total = 100, .warmup = 90, .decay = 0.2}, 90, 1},
        {{.name = "one-cycle", .total = 101, .rise = 0.5, .shape = "linear"}, 0, 0.08},
        {{.name = "one-cycle", .total = 102, .rise = 0.5, .shape = "linear"}, 50, 2},
        {{.name = "one-cycle", .total = 101}, 100, 0},
        {{.name = "one-cycle", .total = 101, .min_ratio = 0.5}, 5000, 1},
        {{.name = "inverse-sqrt", .warmup = 100}, 49, 1},
        {{.name = "inverse-sqrt", .warmup = 100}, 100, 2},
        {{.name = "inverse-sqrt", .warmup = 100}, 400, 1},
        {{.name = "inverse-sqrt", .timescale = 8}, 24, 1},
        {{.name = "inverse-sqrt"}, 30000, 1},
        /* a run that ends inside its warm-up */
        {{.name = "cosine", .warmup = 20, .total = 10}, 9, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        near(fr_lr_at(&rows[i].o, 2, rows[i].t), rows[i].lr);
}

static void one_cycle_follows_torch(void **unused)
{
    (void)unused;
    fixture f;
    fixture_load(&f, "lr_one_cycle");
    assert_true(f.n_cases == 9);
    for (int i = 0; i < f.n_cases; i++) {
        const fixture_case *c = &f.cases[i];
        const fixture_tensor *lr = fixture_need(c, "lr");
        const fr_lr_options o = {.name = "one-cycle",
                                 .total = (int64_t)lr->count,
                                 .rise = fixture_number(c, "rise", 0),
                                 .start_ratio = fixture_number(c, "start_ratio", 0),
                                 .min_ratio = fixture_number(c, "min_ratio", 0),
                                 .shape = fixture_number(c, "linear", 0) > 0 ? "linear" : "cosine"};
        assert_null(fr_lr_check(&o));
        for (int t = 0; t < (int)lr->count; t++)
            if (!(fabs(fr_lr_at(&o, 0.5, t) - (double)lr->f[t]) <= 1e-7 * (double)lr->f[t]))
                fail_msg("%s, update %d: %.9g, PyTorch %.9g", c->name, t, fr_lr_at(&o, 0.5, t),
                         (double)lr->f[t]);
    }
    fixture_free(&f);
}

/* A run of any length, even of one update, has finite rates between 0 and lr. */
static void short_runs(void **unused)
{
    (void)unused;
    for (const fr_lr_schedule *const *s = fr_lr_list(); *s; s++)
        for (int64_t total = 0; total < 20; total++)
            for (int64_t t = 0; t < 25; t++) {
                const double lr =
                    fr_lr_at(&(fr_lr_options){.name = (*s)->name, .total = total}, 2, t);
                if (!(lr >= 0 && lr <= 2))
                    fail_msg("%s, %lld updates, update %lld: %g", (*s)->name, (long long)total,
                             (long long)t, lr);
            }
}

static void defaults_are_fine_and_bad_ones_refused(void **unused)
{
    (void)unused;
    for (const fr_lr_schedule *const *s = fr_lr_list(); *s; s++) {
        fr_lr_options o;
        fr_lr_defaults(&o);
        o.name = (*s)->name;
        assert_null(fr_lr_check(&o));
        assert_ptr_equal(fr_lr_find(o.name), *s);
        fr_lr_options zeros = {.name = (*s)->name, .total = 5000};
        o.total = zeros.total;
        assert_null(fr_lr_check(&zeros));
        for (int64_t t = 0; t < 5000; t += 499)
            assert_true(fr_lr_at(&zeros, 2, t) == fr_lr_at(&o, 2, t));
    }
    near(fr_lr_at(&(fr_lr_options){.name = "step"}, 2, 999), 2);
    near(fr_lr_at(&(fr_lr_options){.name = "step"}, 2, 1000), 0.2);
    near(fr_lr_at(&(fr_lr_options){.name = "polynomial", .total = 4}, 2, 1), 1.5);
    assert_null(fr_lr_check(&(fr_lr_options){0}));
    assert_true(fr_lr_at(&(fr_lr_options){0}, 0.5, 7) == 0.5);
#define REFUSED(word, ...)                              \
    do {                                                \
        fr_lr_options o;                                \
        fr_lr_defaults(&o);                             \
        __VA_ARGS__;                                    \
        assert_non_null(fr_lr_check(&o));               \
        assert_non_null(strstr(fr_lr_check(&o), word)); \
    } while (0)
    REFUSED("name", o.name = "sine");
    REFUSED("warmup", o.warmup = -1);
    REFUSED("every", o.every = -1);
    REFUSED("gamma", o.gamma = -0.1);
    REFUSED("gamma", o.gamma = NAN);
    REFUSED("power", o.power = -1);
    REFUSED("min_ratio", o.min_ratio = 1.5);
    REFUSED("decay", o.decay = 1.5);
    REFUSED("rise", o.rise = 1);
    REFUSED("start_ratio", o.start_ratio = -1);
    REFUSED("timescale", o.timescale = -1);
    REFUSED("shape", o.shape = "round");
    REFUSED("warmup", o.name = "one-cycle", o.warmup = 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_points),
        cmocka_unit_test(one_cycle_follows_torch),
        cmocka_unit_test(short_runs),
        cmocka_unit_test(defaults_are_fine_and_bad_ones_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
