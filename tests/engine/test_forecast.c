/* test_forecast.c -- the memory of workers is forecast without allocating it: the same numbers as
 * those of a real engine, for every method. */
#include "engine/rig.h"

enum { MOST_WORKERS = 16 };

typedef struct layout {
    const char *generator, *policy;
    int n_stages, replicas[4], chunks;
} layout;

static const layout layouts[] = {
    {"sequential", NULL, 1, {1}, 0},
    {"sequential", NULL, 1, {4}, 0},
    {"gpipe", NULL, 3, {1, 1, 1}, 0},
    {"1f1b", NULL, 2, {2, 1}, 0},
    {"1f1b", NULL, 2, {2, 2}, 0},
    {"zb-h1", NULL, 3, {1, 1, 1}, 0},
    {"interleaved", NULL, 4, {1, 1, 1, 1}, 2},
    {"1f1b-async", "stash", 4, {1, 1, 1, 1}, 0},
    {"1f1b-async", "spectrain", 3, {1, 1, 1}, 0},
    {"1f1b-async", "pipemare", 3, {1, 1, 1}, 0},
    {"1f1b-async", "stash", 2, {2, 1}, 0},
    {"1f1b-async", "double-buffer", 2, {1, 1}, 0},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static rig_options options_of(const layout *l, bool exact_sum)
{
    bool is_flush = fr_generator_find(l->generator)->is_flush;
    return (rig_options){.generator = l->generator,
                         .policy = l->policy,
                         .n_stages = l->n_stages,
                         .replicas = l->replicas,
                         .chunks = l->chunks,
                         .n_micro = 4,
                         .n_batches = is_flush ? 0 : 4,
                         .exact_sum = exact_sum,
                         .optimizer = exact_sum ? "adam" : NULL};
}

static void assert_same(const rig *r, const rig_options *o, const fr_memory_use *forecast, int w)
{
    const fr_memory_use *a = forecast, *b = fr_engine_predicted(r->engine, w);
    bool is_same = a->weights == b->weights && a->grads == b->grads &&
                   a->optimizer == b->optimizer && a->buffers == b->buffers &&
                   a->slots == b->slots && a->workspace == b->workspace && a->cache == b->cache &&
                   a->io == b->io && a->total == b->total && a->weight_copies == b->weight_copies;
    if (!is_same)
        fail_msg("%s: worker %d: %zu bytes forecast, %zu predicted", rig_about(r, o), w, a->total,
                 b->total);
    assert_int_equal(fr_engine_peak_bytes(r->engine, w), a->total);
}

static void equal_to_an_engine(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++)
        for (int i = 0; i < N_LAYOUTS; i++) {
            rig_options o = options_of(&layouts[i], i % 2);
            o.backend = fr_backend_name(*backend);
            if (which == TIED && o.n_batches) continue;
            rig r;
            fr_memory_use forecast[MOST_WORKERS];
            if (rig_prepare(&r, which, &o) != FR_OK) fail_msg("%s", rig_about(&r, &o));
            assert_ok(r.b.ctx, fr_engine_forecast(r.b.ctx, &r.desc, forecast));
            assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
            for (int w = 0; w < fr_engine_n_workers(r.engine); w++)
                assert_same(&r, &o, &forecast[w], w);
            rig_close(&r);
        }
}

/* Out of memory at every allocation (sanitizers detect leaks), and wrong descriptions: an error is
 * returned. */
static void failures_are_told(void **unused)
{
    (void)unused;
    rig_options o = options_of(&layouts[4], false);
    rig r;
    fr_memory_use forecast[MOST_WORKERS];
    fr_status status = FR_NO_MEMORY;
    assert_int_equal(rig_prepare(&r, CNN, &o), FR_OK);
    int n_failed = -1;
    for (int64_t n = 0; status != FR_OK; n += 1 + n / 8, n_failed++) {
        fr_ctx_clear(r.b.ctx);
        fr__alloc_fail_after(n);
        status = fr_engine_forecast(r.b.ctx, &r.desc, forecast);
        fr__alloc_fail_after(-1);
        assert_true(status == FR_OK || status == FR_NO_MEMORY);
    }
    assert_true(n_failed > 10);
    r.desc.sync.name = "nobody";
    assert_int_equal(fr_engine_forecast(r.b.ctx, &r.desc, forecast), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(r.b.ctx), "nobody"));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_to_an_engine),
        cmocka_unit_test(failures_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
