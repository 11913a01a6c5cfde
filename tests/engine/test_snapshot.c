/* test_snapshot.c -- the content of a checkpoint: the same values whether they are copied or read
 * in place, of one version while training waits to continue; and engines that are planned first and
 * allocate later. */
#include "engine/rig.h"

#include <forerun/state.h>

enum { STEPS = 3, MOST_VALUES = 1 << 20 };

typedef struct values {
    size_t n;
    float *at; /* (MOST_VALUES) */
} values;

static void open_values(values *v)
{
    v->n = 0;
    v->at = calloc(MOST_VALUES, sizeof *v->at);
    assert_non_null(v->at);
}

/* All items, one after the other, with their kinds. */
static void read_all(rig *r, fr_snapshot *s, values *v)
{
    const fr_graph *g = r->b.graph;
    for (;;) {
        fr_item item;
        assert_ok(r->b.ctx, fr_snapshot_next(s, &item, v->at + v->n + 3));
        v->at[v->n] = (float)item.kind, v->at[v->n + 1] = (float)item.which;
        v->at[v->n + 2] = (float)item.param;
        if (item.param < 0) return;
        v->n += 3 + (size_t)fr_shape_count(&fr_graph_param(g, item.param)->shape);
        assert_true(v->n < MOST_VALUES / 2);
    }
}

static rig_options options_of(int which, const char *policy)
{
    bool is_async = policy != NULL;
    return (rig_options){.generator = is_async ? "1f1b-async" : "1f1b",
                         .policy = policy,
                         .optimizer = "adam",
                         .n_stages = which == TIED && is_async ? 1 : 2,
                         .n_micro = 2,
                         .n_batches = is_async ? STEPS : 0,
                         .lr = 0.001};
}

static void open_rig(rig *r, int which, const rig_options *o, size_t snapshot_bytes)
{
    assert_int_equal(rig_prepare(r, which, o), FR_OK);
    r->desc.snapshot_bytes = snapshot_bytes;
    if (fr_engine_create(r->b.ctx, &r->desc, &r->engine) != FR_OK) fail_msg("%s", rig_about(r, o));
    assert_true(fr_engine_copies_snapshots(r->engine) == (snapshot_bytes == 0));
    rig_steps(r, 0, STEPS);
}

static void in_place_as_copied(void **unused)
{
    (void)unused;
    static const char *const policies[] = {NULL, "pipemare", "double-buffer"};
    for (int which = 0; which < N_NETS; which++)
        for (int k = 0; k < 3; k++) {
            rig_options o = options_of(which, policies[k]);
            values found[2];
            for (int in_place = 0; in_place < 2; in_place++) {
                rig r;
                fr_snapshot *s;
                open_values(&found[in_place]);
                open_rig(&r, which, &o, in_place ? 1 : 0);
                assert_ok(r.b.ctx, fr_engine_snapshot(r.engine, &s));
                assert_true((fr_engine_snapshot_bytes(r.engine) == 0) == in_place);
                read_all(&r, s, &found[in_place]);
                fr_snapshot_wait(s); /* read to its end: no call waits */
                rig_close(&r);
            }
            assert_true(found[0].n > 0 && found[0].n == found[1].n);
            assert_memory_equal(found[0].at, found[1].at, found[0].n * sizeof(float));
            free(found[0].at), free(found[1].at);
        }
}

typedef struct trainer {
    rig *r;
    fr_snapshot *snapshot;
    atomic_bool has_trained;
} trainer;

static void *train_on(void *arg)
{
    trainer *t = arg;
    fr_snapshot_wait(t->snapshot);
    rig_steps(t->r, STEPS, STEPS);
    atomic_store(&t->has_trained, true);
    return NULL;
}

/* Training could have continued in the meantime; the values read are those of the moment of the
 * snapshot. */
static void training_waits(void **unused)
{
    (void)unused;
    for (int which = 0; which < N_NETS; which++) {
        rig_options o = options_of(which, NULL);
        rig r;
        values before, read;
        trainer t = {.r = &r};
        pthread_t thread;
        open_values(&before), open_values(&read);
        open_rig(&r, which, &o, 1);
        assert_ok(r.b.ctx, fr_engine_snapshot(r.engine, &t.snapshot));
        read_all(&r, t.snapshot, &before);
        assert_ok(r.b.ctx, fr_engine_snapshot(r.engine, &t.snapshot));
        assert_int_equal(pthread_create(&thread, NULL, train_on, &t), 0);
        for (int i = 0; i < 100 && !atomic_load(&t.has_trained); i++) fr__sleep_ns(1000000);
        assert_false(atomic_load(&t.has_trained));
        read_all(&r, t.snapshot, &read);
        pthread_join(thread, NULL);
        assert_int_equal(before.n, read.n);
        assert_memory_equal(before.at, read.at, read.n * sizeof(float));
        free(before.at), free(read.at);
        rig_close(&r);
    }
}

/* A reader that gives up in the middle (a full disk) does not delay training. */
static void a_reader_may_give_up(void **unused)
{
    (void)unused;
    rig_options o = options_of(MLP, NULL);
    rig r;
    trainer t = {.r = &r};
    fr_item item;
    values v;
    open_values(&v);
    open_rig(&r, MLP, &o, 1);
    assert_ok(r.b.ctx, fr_engine_snapshot(r.engine, &t.snapshot));
    assert_ok(r.b.ctx, fr_snapshot_next(t.snapshot, &item, v.at));
    fr_snapshot_end(t.snapshot);
    train_on(&t);
    free(v.at);
    rig_close(&r);
}

/* A plan has all sizes and no memory; allocating it gives these sizes, and the bits of
 * fr_engine_create. */
static void planned_then_taken(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++) {
        rig_options o = options_of(which, NULL);
        o.backend = fr_backend_name(*backend);
        rig r;
        values found[2];
        fr_snapshot *s;
        for (int planned = 0; planned < 2; planned++) {
            open_values(&found[planned]);
            assert_int_equal(rig_prepare(&r, which, &o), FR_OK);
            if (planned) {
                assert_ok(r.b.ctx, fr_engine_plan(r.b.ctx, &r.desc, &r.engine));
                for (int w = 0; w < fr_engine_n_workers(r.engine); w++)
                    assert_int_equal(fr_engine_peak_bytes(r.engine, w), 0);
                assert_true(fr_engine_host_bytes(r.engine) > 0);
                assert_ok(r.b.ctx, fr_engine_take(r.engine, NULL, 0));
            } else {
                assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
            }
            for (int w = 0; w < fr_engine_n_workers(r.engine); w++)
                assert_int_equal(fr_engine_peak_bytes(r.engine, w),
                                 fr_engine_predicted(r.engine, w)->total);
            rig_steps(&r, 0, STEPS);
            assert_ok(r.b.ctx, fr_engine_snapshot(r.engine, &s));
            read_all(&r, s, &found[planned]);
            rig_close(&r);
        }
        assert_int_equal(found[0].n, found[1].n);
        assert_memory_equal(found[0].at, found[1].at, found[0].n * sizeof(float));
        free(found[0].at), free(found[1].at);
    }
}

/* Out of memory at every allocation (sanitizers detect leaks): an error, and the plan can be freed.
 */
static void failures_are_told(void **unused)
{
    (void)unused;
    rig_options o = options_of(CNN, NULL);
    o.want_snapshots = true;
    rig r;
    assert_int_equal(rig_prepare(&r, CNN, &o), FR_OK);
    fr_status status = FR_NO_MEMORY;
    int n_failed = -1;
    for (int64_t n = 0; status != FR_OK; n += 1 + n / 8, n_failed++) {
        fr_ctx_clear(r.b.ctx);
        assert_ok(r.b.ctx, fr_engine_plan(r.b.ctx, &r.desc, &r.engine));
        fr__alloc_fail_after(n);
        status = fr_engine_take(r.engine, NULL, 0);
        fr__alloc_fail_after(-1);
        assert_true(status == FR_OK || status == FR_NO_MEMORY);
        if (status != FR_OK) fr_engine_free(r.engine);
    }
    assert_true(n_failed > 5);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_place_as_copied),   cmocka_unit_test(training_waits),
        cmocka_unit_test(a_reader_may_give_up), cmocka_unit_test(planned_then_taken),
        cmocka_unit_test(failures_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
