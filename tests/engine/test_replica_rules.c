/* test_replica_rules.c -- replicas that step on their own, in the engine: data parallelism if they
 * exchange after every update, the same bits whichever is late, equal after every call however it
 * ended, memory as forecast, HetPipe's bound on staleness in a pipeline. */
#include "engine/rig.h"

#include "engine/engine.h"
#include "exec/stage.h"

enum { N_STEPS = 7, MOST = 4 };

typedef struct layout {
    const char *generator, *policy;
    int n_stages, replicas[MOST];
} layout;

static const layout layouts[] = {
    {"sequential", NULL, 1, {2}},
    {"sequential", NULL, 1, {4}},
    {"gpipe", NULL, 2, {2, 2}},
    {"1f1b", NULL, 2, {2, 1}},
    {"1f1b", NULL, 3, {1, 2, 2}},
    {"zb-h1", NULL, 2, {2, 2}},
    {"1f1b-async", "live", 2, {2, 2}},
    {"1f1b-async", "stash", 3, {2, 2, 2}},
    {"1f1b-async", "pipemare", 2, {2, 2}},
    {"1f1b-async", "double-buffer", 2, {2, 2}},
    {"1f1b-async", "stash", 2, {2, 1}},
    {"1f1b-async", "spectrain", 2, {2, 2}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static const fr_sync_options rules[] = {
    {"average", 1, 0}, {"average", 3, 0}, {"wsp", 1, 0},
    {"wsp", 2, 1},     {"wsp", 1, 2},     {"wsp", 3, 0},
};
enum { N_RULES = sizeof rules / sizeof *rules };

static rig_options options_of(const layout *l, const fr_sync_options *sync)
{
    bool is_flush = fr_generator_find(l->generator)->is_flush;
    return (rig_options){.generator = l->generator,
                         .policy = l->policy,
                         .n_stages = l->n_stages,
                         .replicas = l->replicas,
                         .n_micro = 4,
                         .n_batches = is_flush ? 0 : N_STEPS,
                         .sync = sync ? *sync : (fr_sync_options){0}};
}

static void open_rig(rig *p, int which, const rig_options *o)
{
    if (rig_open(p, which, o) != FR_OK) fail_msg("%s", rig_about(p, o));
}

/* To the bit: weights, optimizer state, running statistics, policy state. */
static void assert_alike(rig *p)
{
    fr_engine *e = p->engine;
    for (int k = 0; k < fr_engine_n_stages(e); k++) {
        const fr__part *first = fr__part_at(e, k, 0);
        for (int q = 1; q < first->n_replicas; q++) {
            const fr__part *x = fr__part_at(e, k, q);
            fr_device *own = x->exec->dev, *other = first->exec->dev;
            size_t n = x->exec->n_weights;
            assert_int_equal(fr_store_version(x->exec->store),
                             fr_store_version(first->exec->store));
            assert_true(device_same(own, fr_store_newest(x->exec->store), other,
                                    fr_store_newest(first->exec->store), n));
            for (int i = 0; i < p->desc.optimizer->n_state; i++)
                assert_true(device_same(own, x->exec->state[i], other, first->exec->state[i], n));
            assert_true(device_same(own, x->exec->buffers, other, first->exec->buffers,
                                    x->exec->n_buffers));
            const fr_policy_state a = fr_store_policy_state(x->exec->store),
                                  b = fr_store_policy_state(first->exec->store);
            assert_int_equal(a.is_valid, b.is_valid);
            if (a.is_valid)
                assert_true(device_same(own, a.at, other, b.at,
                                        n * fr_dtype_bytes(a.type) / sizeof(float)));
        }
    }
}

/* --- exchanges after every update ------------------------------------------------------------- */

/* one_by_one: no mean is due, but each call has one update, and its drain takes the mean. */
static double distance_from_dp(int which, const layout *l, const fr_sync_options *sync,
                               bool one_by_one)
{
    rig dp, own;
    rig_options o = options_of(l, NULL);
    o.optimizer = "sgd"; /* plain */
    o.lr = 0.2;
    open_rig(&dp, which, &o);
    o.sync = *sync;
    open_rig(&own, which, &o);
    rig_steps(&dp, 0, N_STEPS);
    for (int i = 0; i < N_STEPS && one_by_one; i++) rig_steps(&own, i, 1);
    if (!one_by_one) rig_steps(&own, 0, N_STEPS);
    assert_alike(&own);
    double distance = rig_distance(&dp, &own);
    rig_close(&dp);
    rig_close(&own);
    return distance;
}

static void every_update_is_data_parallelism(void **unused)
{
    (void)unused;
    const fr_sync_options each[] = {{"average", 1, 0}, {"wsp", 1, 0}};
    const fr_sync_options never[] = {{"average", 1000, 0}, {"wsp", 1000, 1}};
    for (int which = 0; which < N_NETS; which++)
        for (int i = 0; i < N_LAYOUTS; i++) {
            const layout *l = &layouts[i];
            if (which == TIED && l->n_stages > 1) continue;
            /* A prediction is made before the others' steps are known. */
            if (l->policy && strcmp(l->policy, "live") && strcmp(l->policy, "stash")) continue;
            double d = distance_from_dp(which, l, &each[i % 2], false);
            if (!(d < 2e-6))
                fail_msg("%s, layout %d, %s: %g from dp", nets[which].name, i, each[i % 2].name, d);
            if (!fr_generator_find(l->generator)->is_flush) continue;
            d = distance_from_dp(which, l, &never[i % 2], true);
            if (!(d < 2e-6))
                fail_msg("%s, layout %d, %s: %g from dp", nets[which].name, i, never[i % 2].name,
                         d);
            /* and with fewer means the weights differ */
            if (which == CNN && i < 2)
                assert_true(distance_from_dp(which, l, &never[0], false) > 1e-5);
        }
}

/* --- timing ----------------------------------------------------------------------------------- */

static void run_two_calls(int which, const rig_options *o, char sha[65])
{
    rig p;
    open_rig(&p, which, o);
    rig_steps(&p, 0, N_STEPS);
    assert_alike(&p);
    rig_steps(&p, N_STEPS, 4);
    assert_alike(&p);
    rig_sha(&p, sha);
    rig_close(&p);
}

static void nobody_cares_who_is_late(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_LAYOUTS; i += STRIDE)
        for (int k = 0; k < N_RULES; k++) {
            char calm[65], hasty[65];
            rig_options o = options_of(&layouts[i], &rules[k]);
            if ((i + k) % 2) continue;
            o.optimizer = i % 4 < 2 ? "adam" : NULL;
            run_two_calls(CNN, &o, calm);
            o.fault = k % 3 ? "jitter:ms=1,seed=5" : "slow:worker=1,step=2,ms=1";
            run_two_calls(CNN, &o, hasty);
            if (strcmp(calm, hasty) != 0)
                fail_msg("layout %d, rule %d: delays changed the weights", i, k);
        }
}

/* --- ends ------------------------------------------------------------------------------------- */

static bool stop_at_three(rig *p, const fr_batch_report *r)
{
    (void)p;
    return r->step < 3;
}

/* After an early stop all replicas have made the same updates, and the run continues from there. */
static void stops_alike(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_LAYOUTS; i++)
        for (int k = 0; k < N_RULES; k++) {
            rig p;
            rig_options o = options_of(&layouts[i], &rules[k]);
            int64_t n_done;
            if (!fr_generator_find(layouts[i].generator)->is_flush) o.n_batches = 4;
            open_rig(&p, CNN, &o);
            p.on_report = stop_at_three;
            assert_ok(p.b.ctx, rig_train(&p, 0, 200, &n_done));
            assert_true(n_done >= 4 && n_done < 200);
            assert_alike(&p);
            assert_int_equal(fr_store_version(fr__part_at(p.engine, 0, 0)->exec->store), n_done);
            p.on_report = NULL;
            rig_steps(&p, n_done, 3);
            assert_alike(&p);
            rig_close(&p);
        }
}

/* One replica's loss is NaN: all replicas stop at the same update and can continue. */
static void diverges_alike(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_LAYOUTS; i++)
        for (int k = 0; k < N_RULES; k++)
            for (int step = 1; step < N_STEPS; step += 3) {
                rig p;
                rig_options o = options_of(&layouts[i], &rules[k]);
                char fault[64];
                int64_t n_done;
                int n = 0;
                for (int stage = 0; stage < o.n_stages; stage++) n += o.replicas[stage];
                snprintf(fault, sizeof fault, "nan:worker=%d,step=%d", (i + k) % n, step);
                o.fault = fault;
                open_rig(&p, CNN, &o);
                fr_status status = rig_train(&p, 0, N_STEPS, &n_done);
                if (status != FR_DIVERGED || n_done != step)
                    fail_msg("layout %d, rule %d, %s: %d, %d done: %s", i, k, fault, status,
                             (int)n_done, rig_about(&p, &o));
                assert_alike(&p);
                for (int stage = 0; stage < o.n_stages; stage++) {
                    const fr__part *part = fr__part_at(p.engine, stage, 0);
                    float *weights = device_copy(
                        part->exec->dev, fr_store_newest(part->exec->store), part->exec->n_weights);
                    for (size_t w = 0; w < part->exec->n_weights; w++)
                        assert_true(isfinite(weights[w]));
                    free(weights);
                    assert_int_equal(fr_store_version(part->exec->store), step);
                }
                rig_close(&p);
            }
}

/* --- memory ----------------------------------------------------------------------------------- */

static void memory_is_predicted(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_LAYOUTS; i++)
        for (int k = 0; k < N_RULES; k++) {
            rig p, dp;
            rig_options o = options_of(&layouts[i], &rules[k]);
            open_rig(&p, CNN, &o);
            rig_steps(&p, 0, 3);
            uint64_t before = fr__alloc_count();
            rig_steps(&p, 3, 3);
            assert_true(fr__alloc_count() == before);
            o.sync = (fr_sync_options){0};
            open_rig(&dp, CNN, &o);
            for (int w = 0; w < fr_engine_n_workers(p.engine); w++) {
                const fr_memory_use *use = fr_engine_predicted(p.engine, w);
                assert_int_equal(use->total, fr_engine_peak_bytes(p.engine, w));
                const fr__part *part = p.engine->workers[w].parts[0];
                if (part->n_replicas > 1)
                    assert_true(use->io - fr_engine_predicted(dp.engine, w)->io +
                                    part->exec->n_weights * sizeof(float) >=
                                part->exec->sync.bytes);
            }
            rig_close(&p);
            rig_close(&dp);
        }
}

/* --- staleness -------------------------------------------------------------------------------- */

typedef struct bound {
    int every, distance, s_local;
    int64_t most;
} bound;

/* A version v of a replica has the first (v / E - D) E updates of the others. */
static bool note_staleness(rig *p, const fr_batch_report *r)
{
    bound *b = p->user;
    for (size_t i = 0; i < r->n_ledger; i++) {
        const fr_ledger_row *row = &r->ledger[i];
        if (row->pass != 'F' || row->stage != 0) continue;
        int64_t known = (row->version / b->every - b->distance) * b->every;
        int64_t lacking = r->step - (known > 0 ? known : 0);
        if (lacking > b->most) b->most = lacking;
    }
    return true;
}

/* HetPipe: waves of s_local + 1 mini-batches, as many as are in flight; a mini-batch lacks at most
 * (D + 1)(s_local + 1) + s_local - 1 of another replica's updates. */
static void staleness_is_bounded(void **unused)
{
    (void)unused;
    const int replicas[] = {2, 2, 2};
    for (int n = 2; n <= 3; n++)
        for (int distance = 0; distance <= 2; distance++) {
            bound b = {.every = n, .distance = distance, .s_local = n - 1};
            rig p;
            rig_options o = {.generator = "1f1b-async",
                             .policy = "live",
                             .n_stages = n,
                             .replicas = replicas,
                             .n_micro = 2, /* one for each replica */
                             .n_batches = 30,
                             .lr = 0.001,
                             .want_ledger = true,
                             .sync = {"wsp", b.every, distance}};
            open_rig(&p, CNN, &o);
            p.on_report = note_staleness;
            p.user = &b;
            rig_steps(&p, 0, 30);
            int64_t limit = (distance + 1) * (b.s_local + 1) + b.s_local - 1;
            assert_true(b.most <= limit);
            assert_int_equal(b.most, limit); /* and the bound is reached */
            rig_close(&p);
        }
}

/* --- refusals --------------------------------------------------------------------------------- */

static void refuse(int which, const rig_options *o, fr_status expected, const char *word)
{
    rig p;
    assert_int_equal(rig_open(&p, which, o), expected);
    if (!strstr(fr_ctx_error(p.b.ctx), word)) fail_msg("no '%s' in: %s", word, rig_about(&p, o));
    rig_close(&p);
}

static void refusals(void **unused)
{
    (void)unused;
    rig_options o = options_of(&layouts[0], &(fr_sync_options){"gossip", 1, 0});
    refuse(CNN, &o, FR_INVALID, "allreduce, average, wsp");
    o.sync = (fr_sync_options){"average", 0, 0};
    refuse(CNN, &o, FR_INVALID, "at least 1");
    o.sync = (fr_sync_options){"wsp", 1, -1};
    refuse(CNN, &o, FR_INVALID, "distance");
    o = options_of(&layouts[2], &rules[0]);
    o.clip_norm = 1;
    refuse(CNN, &o, FR_UNSUPPORTED, "clip_norm");
    o.clip_norm = 0;
    refuse(TIED, &o, FR_UNSUPPORTED, "tied");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_update_is_data_parallelism),
        cmocka_unit_test(nobody_cares_who_is_late),
        cmocka_unit_test(stops_alike),
        cmocka_unit_test(diverges_alike),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(staleness_is_bounded),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
