/* test_memory.c -- memory of a spread, estimated from a measured profile, against the engine's
 * forecast from the compiled programs of the stages. */
#include "sim/rig.h"

#include <forerun/engine.h>
#include <forerun/models.h>
#include <forerun/probe.h>

enum { MOST_NODES = 1024 };
enum again { NONE, ALL, PARTS }; /* PARTS: the cheapest nodes that free half of what ALL does */

typedef struct layout {
    const char *generator, *policy;
    int n_stages, n_replicas;
    enum again again;
    int lead;
} layout;

static const layout layouts[] = {
    {"1f1b", "live", 1, 1, NONE, 1},        {"1f1b", "live", 2, 1, NONE, 1},
    {"1f1b", "live", 1, 2, NONE, 1},        {"gpipe", "live", 3, 1, NONE, 1},
    {"gpipe", "live", 3, 1, ALL, 1},        {"zb-h1", "live", 2, 1, ALL, 1},
    {"1f1b-async", "stash", 3, 1, NONE, 1}, {"1f1b-async", "spectrain", 4, 1, NONE, 1},
    {"1f1b", "live", 2, 2, NONE, 1},        {"zb-h2", "live", 3, 1, NONE, 1},
    {"zbv", "live", 4, 1, NONE, 1},         {"dualpipev", "live", 4, 1, ALL, 1},
    {"gpipe", "live", 2, 1, PARTS, 1},      {"1f1b", "live", 3, 1, PARTS, 1},
    {"zb-h1", "live", 2, 1, PARTS, 1},      {"zbv", "live", 4, 1, PARTS, 1},
    {"1f1b", "live", 3, 1, NONE, 2},        {"1f1b-async", "stash", 3, 1, NONE, 2},
};

typedef struct model {
    fr_graph *graph;
    const fr_profile *profile;
} model;

static model measure(rig *r, const char *name, const fr_backend *backend)
{
    const fr_model_options o = {.depth = 6,
                                .width = 256,
                                .layers = 3,
                                .heads = 4,
                                .context = 32,
                                .vocab = 200,
                                .classes = 10,
                                .image = 32,
                                .width_factor = 0.5};
    model m;
    rig_check(r, fr_model_build(r->ctx, fr_model_find(name), &o, &m.graph));
    fr_probe_desc d = {.graph = m.graph,
                       .backend = backend,
                       .n_threads = 1,
                       .batch = 8,
                       .n_micro = 1,
                       .optimizer = fr_optim_find("sgd"),
                       .seconds = 0.01};
    d.optimizer->defaults(&d.options);
    d.options.lr = 0.1, d.options.momentum = 0.9;
    rig_check(r, fr_probe_nodes(r->ctx, 1, &d, &m.profile));
    return m;
}

/* Of workers for which it is worth it. */
static void choose_nodes(rig *r, fr_spread_desc *d, bool *again)
{
    size_t limits[RIG_WORKERS] = {0};
    bool fits;
    fr_spread plain, least;
    rig_check(r, fr_spread_make(r->ctx, d, &plain));
    memset(again, true, MOST_NODES);
    d->recompute = again;
    rig_check(r, fr_spread_make(r->ctx, d, &least));
    for (int w = 0; w < plain.schedule->n_workers; w++)
        if (least.memory[w] < plain.memory[w])
            limits[w] = plain.memory[w] - (plain.memory[w] - least.memory[w]) / 2;
    rig_check(r, fr_spread_fit(r->ctx, d, &plain, limits, again, &fits));
    assert_true(fits);
    fr_spread_free(&plain), fr_spread_free(&least);
}

static fr_status forecast(rig *r, const model *m, const layout *l, const fr_spread *s,
                          const int *cuts, const bool *recompute, fr_memory_use *out)
{
    fr_stage stages[RIG_STAGES];
    FR_TRY(fr_graph_cut(m->graph, l->n_stages - 1, cuts, stages));
    fr_engine_desc d = {.graph = m->graph,
                        .n_stages = l->n_stages,
                        .stages = stages,
                        .schedule = s->schedule,
                        .policy = fr_policy_find(l->policy),
                        .recompute = recompute,
                        .backend = fr_backend_list()[0],
                        .n_threads = 1,
                        .micro_batch = 8,
                        .n_micro = s->schedule->n_micro,
                        .optimizer = fr_optim_find("sgd")};
    d.optimizer->defaults(&d.options);
    d.options.lr = 0.1, d.options.momentum = 0.9;
    return fr_engine_forecast(r->ctx, &d, out);
}

static void is_near_the_forecast(void **state)
{
    (void)state;
    /* One pair of limits for every instruction set (sse4.1 to avx512+bf16). Convolutions: copies at
     * the cuts are counted once, kernels may need more or fewer of them, and a profile does not
     * contain the caches of kernels for evaluation. */
    static const struct {
        const char *name;
        double low, high;
    } models[] = {
        {"mlp", 0.99, 1.02}, {"gpt", 0.99, 1.02}, {"vgg16", 0.90, 1.14}, {"resnet50", 0.91, 1.17}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        rig r;
        rig_init(&r, 1);
        model m = measure(&r, models[i].name, fr_backend_list()[0]);
        for (size_t j = 0; j < sizeof layouts / sizeof *layouts; j++) {
            const layout *l = &layouts[j];
            int cuts[RIG_STAGES], replicas[RIG_STAGES];
            static bool again[MOST_NODES];
            fr_spread s;
            fr_memory_use use[RIG_WORKERS] = {0};
            assert_true(fr_graph_n_nodes(m.graph) <= MOST_NODES);
            for (int k = 0; k < l->n_stages; k++) replicas[k] = l->n_replicas;
            memset(again, l->again == ALL, sizeof again);
            rig_check(&r, fr_graph_balance(m.graph, l->n_stages, cuts));
            fr_spread_desc d = {.profile = m.profile,
                                .n_stages = l->n_stages,
                                .cuts = cuts,
                                .replicas = replicas,
                                .generator = fr_generator_find(l->generator),
                                .n_micro = 4,
                                .n_batches = 4,
                                .lead = l->lead,
                                .policy = fr_policy_find(l->policy)};
            if (l->again == PARTS) choose_nodes(&r, &d, again);
            d.recompute = again;
            rig_check(&r, fr_spread_make(r.ctx, &d, &s));
            rig_check(&r, forecast(&r, &m, l, &s, cuts, again, use));
            for (int w = 0; w < s.schedule->n_workers; w++) {
                double ratio = (double)s.memory[w] / (double)use[w].total;
                if (!(ratio >= models[i].low && ratio <= models[i].high))
                    fail_msg("%s, %s, %d stages x %d, recompute %d, worker %d: estimated %zu, "
                             "forecast %zu",
                             models[i].name, l->generator, l->n_stages, l->n_replicas, l->again, w,
                             s.memory[w], use[w].total);
            }
            fr_spread_free(&s);
        }
        fr_profile_free(m.profile);
        fr_graph_free(m.graph);
        rig_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_near_the_forecast)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
