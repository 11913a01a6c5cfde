/* test_recompute.c -- activations that are recomputed instead of kept: the same bits if a backward
 * reads the weights of its forward, and less memory, exactly as forecast, for stages and for sets
 * of nodes; a stage recomputes before it waits for its gradient. test_reference.c tests the case of
 * different weights, conformance/test_recompute.c other models. */
#include "engine/rig.h"

#include "backend/kernel.h"

enum { N_STEPS = 5, MOST = 4 };

typedef struct layout {
    const char *generator, *policy;
    int n_stages, replicas[MOST], chunks;
    int n_micro; /* 0: 4 */
} layout;

static const layout layouts[] = {
    {"sequential", NULL, 1, {1}, 0, 0},
    {"sequential", NULL, 1, {4}, 0, 0},
    {"gpipe", NULL, 3, {1, 1, 1}, 0, 0},
    {"gpipe", NULL, 4, {1, 1, 1, 1}, 0, BATCH},
    {"1f1b", NULL, 3, {1, 1, 1}, 0, 0},
    {"1f1b", NULL, 2, {2, 2}, 0, 0},
    {"1f1b", NULL, 2, {1, 2}, 0, 0},
    {"zb-h1", NULL, 2, {1, 1}, 0, 0},
    {"zb-h1", NULL, 4, {1, 1, 1, 1}, 0, BATCH},
    {"zb-h1", NULL, 2, {2, 2}, 0, 0},
    {"interleaved", NULL, 4, {1, 1, 1, 1}, 2, 0},
    {"zb-h2", NULL, 3, {1, 1, 1}, 0, BATCH},
    {"zbv", NULL, 4, {1, 1, 1, 1}, 2, 0},
    {"dualpipev", NULL, 4, {1, 1, 1, 1}, 2, BATCH},
    {"1f1b-async", "stash", 4, {1, 1, 1, 1}, 0, 1},
    {"1f1b-async", "stash", 2, {2, 1}, 0, 0},
    {"1f1b-async", "double-buffer", 3, {1, 1, 1}, 0, 0},
    {"1f1b-async", "xpipe", 3, {1, 1, 1}, 0, 0},
    {"1f1b-async", "spectrain", 3, {1, 1, 1}, 0, 0},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* The compared results of a run. */
typedef struct result {
    char sha[65]; /* weights, optimizer, running statistics */
    double losses[N_STEPS];
    fr_tally eval;
    bool is_same; /* every backward read the weights of its forward */
    size_t slots[16], buffers[16];
} result;

static bool see_ledger(rig *p, const fr_batch_report *r)
{
    bool *is_same = p->user;
    for (size_t i = 0; i < r->n_ledger; i++)
        for (size_t k = 0; k < r->n_ledger; k++) {
            const fr_ledger_row *a = &r->ledger[i], *b = &r->ledger[k];
            if (a->stage != b->stage || a->micro != b->micro) continue;
            *is_same &= a->version == b->version && a->ahead == b->ahead;
        }
    return true;
}

static rig_options options_of(const layout *l)
{
    bool is_flush = fr_generator_find(l->generator)->is_flush;
    return (rig_options){.generator = l->generator,
                         .policy = l->policy,
                         .n_stages = l->n_stages,
                         .replicas = l->replicas,
                         .chunks = l->chunks,
                         .n_micro = l->n_micro ? l->n_micro : 4,
                         .n_batches = is_flush ? 0 : N_STEPS,
                         .want_ledger = true,
                         .lr = 0.02};
}

static void assert_predicted(const rig *r, const rig_options *o)
{
    fr_memory_use forecast[16];
    assert_ok(r->b.ctx, fr_engine_forecast(r->b.ctx, &r->desc, forecast));
    for (int w = 0; w < fr_engine_n_workers(r->engine); w++) {
        size_t said = fr_engine_predicted(r->engine, w)->total;
        if (said != fr_engine_peak_bytes(r->engine, w) || said != forecast[w].total)
            fail_msg("%s: worker %d: %zu bytes predicted, %zu forecast, %zu taken", rig_about(r, o),
                     w, said, forecast[w].total, fr_engine_peak_bytes(r->engine, w));
    }
}

/* Sets of nodes: bits for stages, or a number from SOME on for random nodes. */
enum { ALL = 15, SOME = 16 };

static void choose(rig *r, unsigned set)
{
    if (set >= SOME)
        rig_recompute_some(r, set);
    else
        rig_recompute_stages(r, set);
}

static void run(int which, const rig_options *o, unsigned set, result *out)
{
    rig r;
    memset(out, 0, sizeof *out);
    out->is_same = true;
    if (rig_prepare(&r, which, o) != FR_OK) fail_msg("%s", rig_about(&r, o));
    choose(&r, set);
    r.on_report = see_ledger;
    r.user = &out->is_same;
    if (fr_engine_create(r.b.ctx, &r.desc, &r.engine) != FR_OK) fail_msg("%s", rig_about(&r, o));
    rig_steps(&r, 0, 3);
    assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &out->eval, NULL));
    rig_steps(&r, 3, N_STEPS - 3);
    for (int i = 0; i < N_STEPS; i++) out->losses[i] = r.tally[i].loss;
    rig_sha(&r, out->sha);
    assert_predicted(&r, o);
    for (int w = 0; w < fr_engine_n_workers(r.engine); w++) {
        out->slots[w] = fr_engine_predicted(r.engine, w)->slots;
        out->buffers[w] = fr_engine_predicted(r.engine, w)->buffers;
    }
    rig_close(&r);
}

static void the_same_bits(void **unused)
{
    (void)unused;
    int n_compared = 0;
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++)
        for (int i = 0; i < N_LAYOUTS; i += STRIDE) {
            rig_options o = options_of(&layouts[i]);
            o.backend = fr_backend_name(*backend);
            o.fault = (i + which) % 6 == 1 ? "jitter:ms=0.5,seed=5" : NULL;
            if (which == TIED && o.n_batches) continue;
            result plain, again;
            run(which, &o, 0, &plain);
            const unsigned sets[] = {ALL, 5, SOME + (unsigned)(N_NETS * i + which)};
            for (int k = 0; k < 3; k++) {
                run(which, &o, sets[k], &again);
                if (!plain.is_same) continue;
                n_compared++;
                if (strcmp(plain.sha, again.sha) != 0 ||
                    memcmp(plain.losses, again.losses, sizeof plain.losses) != 0 ||
                    plain.eval.loss != again.eval.loss)
                    fail_msg("net %s, layout %d (%s, %d stages), set %u: other results",
                             nets[which].name, i, o.generator, o.n_stages, sets[k]);
            }
        }
    assert_true(n_compared > N_NETS * N_LAYOUTS / STRIDE);
}

/* GPipe holds all micro-batches, so with recompute one area and their outputs are left. */
static void memory_is_less(void **unused)
{
    (void)unused;
    rig_options o = options_of(&layouts[2]);
    result plain, again;
    o.n_micro = BATCH;
    run(CNN, &o, 0, &plain);
    run(CNN, &o, ALL, &again);
    for (int w = 0; w < 2; w++) {
        /* The last stage keeps hardly more than its outputs: nothing to gain there. */
        if (w == 0 && !(again.slots[w] < plain.slots[w]))
            fail_msg("worker %d: %zu bytes of slots, %zu with recompute", w, plain.slots[w],
                     again.slots[w]);
        /* statistics that a forward which runs again may change: one copy to two */
        assert_int_equal(2 * again.buffers[w], 3 * plain.buffers[w]);
    }
}

/* A slot = kept + outputs; n slots become one slot and n times the outputs. */
static void one_area_is_left(void **unused)
{
    (void)unused;
    size_t slots[2][3];
    for (int n = 0; n < 3; n++)
        for (int again = 0; again < 2; again++) {
            rig_options o = {.generator = "gpipe", .n_stages = 2, .n_micro = 1 << n};
            rig r;
            assert_int_equal(rig_prepare(&r, MLP, &o), FR_OK);
            r.desc.micro_batch = 16; /* the same whatever their number */
            rig_recompute_stages(&r, again ? ALL : 0);
            assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
            slots[again][n] = fr_engine_predicted(r.engine, 0)->slots;
            rig_close(&r);
        }
    size_t outputs = slots[1][0] - slots[0][0];
    assert_true(outputs > 0 && slots[0][0] > outputs);
    for (size_t n = 0; n < 3; n++) {
        assert_int_equal(slots[0][n], slots[0][0] << n);
        assert_int_equal(slots[1][n], slots[0][0] + (outputs << n));
    }
}

/* In the middle: the values of `a` and `tanh` are shared, those of `b` and the following are kept
 * for each micro-batch. With one slot more, memory grows by the kept values and outputs only. */
static void memory_of_a_set(void **unused)
{
    (void)unused;
    size_t slots[3][3];
    for (int n = 0; n < 3; n++)
        for (int set = 0; set < 3; set++) { /* none, a and tanh, all */
            rig_options o = {.generator = "gpipe", .n_micro = 1 << n, .backend = "ref"};
            rig r;
            assert_int_equal(rig_prepare(&r, CHAIN, &o), FR_OK);
            r.desc.micro_batch = 16;
            rig_recompute_stages(&r, set == 2 ? ALL : 0);
            const fr_graph *g = r.b.graph;
            if (set == 1) r.recompute[fr_graph_find(g, "a")] = true;
            if (set == 1) r.recompute[fr_graph_find(g, "tanh")] = true;
            assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
            slots[set][n] = fr_engine_predicted(r.engine, 0)->slots;
            assert_int_equal(fr_engine_predicted(r.engine, 0)->total,
                             fr_engine_peak_bytes(r.engine, 0));
            rig_close(&r);
        }
    const size_t tanh_bytes = fr__align_up(16 * 9 * (is_bf16() ? 2 : 4));
    for (int n = 0; n < 3; n++)
        assert_int_equal(slots[1][n], slots[0][n] - (((size_t)1 << n) - 1) * tanh_bytes);
    assert_true(slots[2][2] < slots[1][2]);
}

/* --- recompute ahead ------------------------------------------------------------------------- */

/* Stage 0 of two computes linear `a` in each forward and each recompute. Stage 1 does not send the
 * gradient of mini-batch k before `a` has been computed 2 k + 2 times: if a recompute waited for
 * the gradient, none would come. */
static struct {
    _Atomic int n_done;   /* computations of `a` */
    int n_sent, n_missed; /* gradients; those sent without a recompute */
    fr_status (*forward)(fr__kernel *k, const fr__kernel_args *a);
    fr__kernel_ops ops;
    fr__kernel_maker makers[FR_OPERATOR_COUNT];
    const fr_transport *transport;
} watch;
static _Thread_local bool is_last_stage;

static fr_status watched_forward(fr__kernel *k, const fr__kernel_args *a)
{
    FR_TRY(watch.forward(k, a));
    if (strcmp(k->node->name, "a") == 0) atomic_fetch_add(&watch.n_done, 1);
    if (strcmp(k->node->name, "logits") == 0) is_last_stage = true;
    return FR_OK;
}

static fr_status make_watched(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    FR_TRY(fr__backend_ref.makers[FR_OP_LINEAR](spec, arena, out));
    watch.ops = *(*out)->ops;
    watch.forward = watch.ops.forward;
    watch.ops.forward = watched_forward;
    (*out)->ops = &watch.ops;
    return FR_OK;
}

static void send_late(fr_channel *c, int b, size_t bytes)
{
    int due = is_last_stage ? 2 * watch.n_sent++ + 2 : 0;
    for (int i = 0; i < 20000 && atomic_load(&watch.n_done) < due; i++) fr__sleep_ns(1000000);
    watch.n_missed += atomic_load(&watch.n_done) < due; /* a worker's thread: no assertion here */
    watch.transport->send(c, b, bytes);
}

static void recompute_does_not_wait_for_the_gradient(void **unused)
{
    (void)unused;
    int cut;
    rig r;
    rig_options o = {.generator = "1f1b", .n_stages = 2, .cuts = &cut, .n_micro = 1};
    bench b;
    bench_init(&b, CHAIN);
    cut = fr_graph_find(b.graph, "b");
    bench_fini(&b);
    assert_int_equal(rig_prepare(&r, CHAIN, &o), FR_OK);
    memcpy(watch.makers, fr__backend_ref.makers, sizeof watch.makers);
    watch.makers[FR_OP_LINEAR] = make_watched;
    watch.transport = fr_transport_find("threads");
    fr_backend backend = fr__backend_ref;
    fr_transport transport = *watch.transport;
    backend.makers = watch.makers;
    transport.send = send_late;
    r.desc.backend = &backend;
    r.desc.transport = &transport;
    rig_recompute_stages(&r, 1);
    assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
    rig_steps(&r, 0, 3);
    assert_int_equal(watch.n_sent, 3);
    assert_int_equal(watch.n_missed, 0);
    assert_int_equal(atomic_load(&watch.n_done), 6);
    rig_close(&r);
}

/* A mini-batch that diverges has no effect here either. */
static void divergence_is_undone(void **unused)
{
    (void)unused;
    static const char *const generators[] = {"gpipe", "zb-h1"};
    for (int g = 0; g < 2; g++) {
        rig_options o = {.generator = generators[g],
                         .n_stages = 3,
                         .n_micro = 4,
                         .fault = "nan:worker=1,step=2"};
        char shas[2][65];
        for (int again = 0; again < 2; again++) {
            rig r;
            int64_t n_done;
            assert_int_equal(rig_prepare(&r, CNN, &o), FR_OK);
            rig_recompute_stages(&r, again ? ALL : 0);
            assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
            assert_int_equal(rig_train(&r, 0, N_STEPS, &n_done), FR_DIVERGED);
            assert_int_equal(n_done, 2);
            rig_sha(&r, shas[again]);
            rig_close(&r);
        }
        assert_string_equal(shas[0], shas[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(memory_is_less),
        cmocka_unit_test(one_area_is_left),
        cmocka_unit_test(memory_of_a_set),
        cmocka_unit_test(recompute_does_not_wait_for_the_gradient),
        cmocka_unit_test(divergence_is_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
