/* test_emulated.c -- emulation and simulation are two walks by the same rules: an emulated run
 * takes the simulated time, including contention of links, sums over replicas and recompute. Runs
 * are timed on a virtual clock, which other processes cannot delay. */
#include "engine/clocks.h"
#include "engine/rig.h"
#include "exec/stage.h"

#include <forerun/sim.h>

enum { MOST = 4, MOST_LINKS = 16, N_TIMED = 9, TENTH = 3 };

typedef struct layout {
    const char *generator, *policy;
    int n_stages, replicas[MOST], n_micro;
    double message_ms, sum_ms;    /* of a micro-batch; of the block of stage 0 */
    bool is_uneven, is_bus, norm; /* even ones have no overhead: messages and sums are ready at the
                                     same moment */
    int sync_every;
} layout;

static const layout layouts[] = {
    {"gpipe", NULL, 3, {1, 1, 1}, 4, 6, 0, false, false, false, 0},
    {"gpipe", NULL, 4, {1, 1, 1, 1}, 4, 3, 0, true, true, true, 0},
    {"1f1b", NULL, 3, {1, 1, 1}, 4, 6, 0, true, false, false, 0},
    {"zb-h1", NULL, 3, {1, 1, 1}, 4, 2, 0, false, false, false, 0},
    {"1f1b-async", "stash", 3, {1, 1, 1}, 2, 7, 0, false, false, false, 0},
    {"1f1b-async", "live", 4, {1, 1, 1, 1}, 1, 4, 0, true, true, false, 0},
    {"sequential", NULL, 1, {2}, 4, 1, 25, false, false, false, 0},
    {"sequential", NULL, 1, {4}, 4, 1, 25, true, true, true, 0},
    {"sequential", NULL, 1, {4}, 4, 1, 25, true, false, false, 2},
    {"1f1b", NULL, 2, {2, 2}, 4, 6, 15, true, false, false, 0},
    {"1f1b", NULL, 2, {2, 2}, 4, 2, 15, false, false, false, 0},
    {"1f1b", NULL, 2, {1, 2}, 4, 4, 15, false, true, true, 0},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* Common parameters of both. */
typedef struct model {
    fr_stage_cost cost[MOST];
    double speed[2 * MOST];
    size_t forward[MOST_LINKS], backward[MOST_LINKS];
    fr_cluster *cluster;
    fr_timing timing;
} model;

static rig_options options_of(const layout *l)
{
    bool is_flush = fr_generator_find(l->generator)->is_flush;
    return (rig_options){.generator = l->generator,
                         .policy = l->policy,
                         .n_stages = l->n_stages,
                         .replicas = l->replicas,
                         .n_micro = l->n_micro,
                         .n_batches = is_flush ? 0 : N_TIMED,
                         .want_norm = l->norm,
                         .sync = {.name = l->sync_every ? "average" : NULL, .every = l->sync_every},
                         .lr = 0.001};
}

static void fill_model(const layout *l, const rig *r, model *m)
{
    const fr_engine *e = r->engine;
    memset(m, 0, sizeof *m);
    for (int k = 0; k < l->n_stages; k++) {
        double ms = l->is_uneven ? 1e-3 * (k % 2 ? 1.3 : 0.8) : 1e-3;
        m->cost[k] =
            (fr_stage_cost){.forward = 5 * ms,
                            .backward = 11 * ms,
                            .back_input = 5 * ms,
                            .back_weight = 6 * ms,
                            .step = 3 * ms,
                            .param_bytes = (int64_t)(fr__part_at(e, k, 0)->exec->n_grads * 4)};
        if (!fr__exec_recomputes(fr__part_at(e, k, 0)->exec)) continue;
        m->cost[k].recompute = 4 * ms;
        m->cost[k].backward += 4 * ms;
        m->cost[k].back_input += 4 * ms;
    }
    for (int w = 0; w < 2 * MOST; w++) m->speed[w] = l->is_uneven && w % 3 == 2 ? 0.7 : 1;
    for (int i = 0; i < r->schedule->n_forward; i++)
        m->forward[i] = e->forward[FR_MODE_TRAIN][i].bytes;
    for (int i = 0; i < r->schedule->n_backward; i++) m->backward[i] = e->backward[i].bytes;
    double bytes = l->n_stages > 1 ? (double)m->forward[0] : (double)m->cost[0].param_bytes;
    double ms = l->n_stages > 1 ? l->message_ms : l->sum_ms;
    assert_ok(r->b.ctx,
              fr_cluster_flat(r->b.ctx, 2 * MOST, bytes / (ms * 1e-3), 0.3e-3, &m->cluster));
    m->cluster->groups[0].is_shared = l->is_bus;
    m->timing = (fr_timing){.cost = m->cost,
                            .speed = m->speed,
                            .cluster = m->cluster,
                            .overhead_s = l->is_uneven ? 50e-6 : 0,
                            .forward_bytes = m->forward,
                            .backward_bytes = m->backward};
}

static double simulate(const layout *l, const rig *r, const model *m)
{
    fr_sim_result result;
    fr_sim_desc d = {.schedule = r->schedule,
                     .timing = m->timing,
                     .n_batches = N_TIMED,
                     .sync_every = l->sync_every,
                     .overlaps = true,
                     .steps_together = l->norm && l->n_stages > 1};
    assert_ok(r->b.ctx, fr_simulate(r->b.ctx, &d, &result));
    double ms = (result.done[N_TIMED - 1] - result.done[TENTH - 1]) / (N_TIMED - TENTH) * 1e3;
    fr_sim_free(&result);
    return ms;
}

static bool note_done(rig *r, const fr_batch_report *report)
{
    ((uint64_t *)r->user)[report->step] = report->done_ns;
    return true;
}

static double emulate(rig *r, const model *m)
{
    uint64_t done[N_TIMED];
    virtual_clock clock;
    r->desc.timing = &m->timing;
    r->desc.scale = 1;
    assert_ok(r->b.ctx, fr_engine_create(r->b.ctx, &r->desc, &r->engine));
    use_virtual_clock(r->engine, &clock);
    r->on_report = note_done;
    r->user = done;
    rig_steps(r, 0, N_TIMED);
    assert_true(fr_engine_overrun(r->engine).late_s == 0);
    return (double)(done[N_TIMED - 1] - done[TENTH - 1]) / (N_TIMED - TENTH) * 1e-6;
}

static void as_simulated(void **unused)
{
    (void)unused;
    for (int i = 0; i < 2 * N_LAYOUTS; i++) {
        const layout *l = &layouts[i / 2];
        rig_options o = options_of(l);
        rig r;
        model m;
        if (rig_prepare(&r, MLP, &o) != FR_OK) fail_msg("%s", rig_about(&r, &o));
        rig_recompute_stages(&r, i % 2 ? 15 : 0);
        assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
        fill_model(l, &r, &m);
        double expected = simulate(l, &r, &m);
        fr_engine_free(r.engine);
        double ms = emulate(&r, &m);
        rig_close(&r);
        fr_cluster_free(m.cluster);
        if (!(fabs(ms - expected) < 1e-5 * expected))
            fail_msg(
                "layout %d (%s, %d stages), recompute %d: %.4f ms a mini-batch, simulated %.4f",
                i / 2, l->generator, l->n_stages, i % 2, ms, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_simulated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
