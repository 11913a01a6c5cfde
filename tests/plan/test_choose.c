/* test_choose.c -- the choice of a plan on models with an obvious answer, by work, weights, links
 * or memory; and against every layout tried directly in the simulator. */
#include "support/test.h"

#include <forerun/plan.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NODES = 24 };

/* A chain after one input; all sizes of micro-batches in proportion, as it is made from one. */
struct model {
    fr_ctx *ctx;
    const fr_profile *one;
    const fr_profile *scaled[64];
    int n_scaled;
};

static fr_status profile_of(void *user, int batch, const fr_profile **out)
{
    struct model *m = user;
    for (int i = 0; i < m->n_scaled; i++)
        if ((*out = m->scaled[i])->batch == batch) return FR_OK;
    assert_true(m->n_scaled < 64);
    assert_int_equal(fr_profile_scaled(m->ctx, m->one, batch, &m->scaled[m->n_scaled]), FR_OK);
    *out = m->scaled[m->n_scaled++];
    return FR_OK;
}

static fr_profile_node nodes[NODES];
static int inputs[NODES];
static fr_profile base;

/* Each node: seconds per sample, bytes of output per sample, bytes of weights. */
static void model_init(struct model *m, fr_ctx *ctx, double seconds, int64_t output, int64_t params)
{
    static char names[NODES][16];
    *m = (struct model){.ctx = ctx};
    for (int i = 0; i < NODES; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        inputs[i] = i - 1;
        nodes[i] = (fr_profile_node){.name = names[i],
                                     .about = "",
                                     .n_inputs = i > 0,
                                     .inputs = &inputs[i],
                                     .output_bytes = output,
                                     .is_input = i == 0};
        if (i == 0) continue;
        nodes[i].forward_s = seconds / 3, nodes[i].backward_s = seconds * 2 / 3;
        nodes[i].back_input_s = nodes[i].back_weight_s = NAN;
        nodes[i].kept_bytes = output, nodes[i].param_bytes = params;
        nodes[i].update_s = (double)params * 1e-11;
    }
    base = (fr_profile){.model = "chain",
                        .machine = "none",
                        .batch = 1,
                        .n_nodes = NODES,
                        .nodes = nodes,
                        .state_per_weight = 1};
    m->one = &base;
}

static void model_fini(struct model *m)
{
    for (int i = 0; i < m->n_scaled; i++) fr_profile_free(m->scaled[i]);
}

static int add_method(fr_plan_method *to, int n, const char *name, const char *generator,
                      const char *policy, int chunks, int max_stages, bool replicas, bool async)
{
    to[n] = (fr_plan_method){.name = name,
                             .generator = fr_generator_find(generator),
                             .policy = fr_policy_find(policy),
                             .chunks = chunks,
                             .max_stages = max_stages,
                             .wants_replicas = replicas,
                             .is_allowed_async = async};
    assert_non_null(to[n].generator);
    assert_non_null(to[n].policy);
    return n + 1;
}

static int methods(fr_plan_method *to, bool with_async)
{
    int n = add_method(to, 0, "single", "sequential", "live", 1, 1, false, false);
    n = add_method(to, n, "dp", "sequential", "live", 1, 1, true, false);
    n = add_method(to, n, "naive-mp", "sequential", "live", 1, 0, false, false);
    n = add_method(to, n, "gpipe", "gpipe", "live", 1, 0, false, false);
    n = add_method(to, n, "1f1b", "1f1b", "live", 1, 0, false, false);
    n = add_method(to, n, "interleaved", "interleaved", "live", 2, 0, false, false);
    n = add_method(to, n, "zb-h1", "zb-h1", "live", 1, 0, false, false);
    if (!with_async) return n;
    n = add_method(to, n, "spectrain", "1f1b-async", "spectrain", 1, 0, false, true);
    return add_method(to, n, "pipedream", "1f1b-async", "stash", 1, 0, false, true);
}

static fr_choice *choose(fr_ctx *ctx, struct model *m, const fr_cluster *cluster, int batch,
                         bool with_async, fr_status wanted)
{
    fr_plan_method list[16];
    fr_choice *c = NULL;
    fr_choice_desc d = {.profile = profile_of,
                        .user = m,
                        .cluster = cluster,
                        .batch = batch,
                        .methods = list,
                        .n_methods = methods(list, with_async),
                        .may_recompute = true};
    fr_status status = fr_plan_choose(ctx, &d, &c);
    if (status != wanted) fail_msg("status %d: %s", status, fr_ctx_error(ctx));
    return c;
}

static fr_cluster *flat(fr_ctx *ctx, int n, double bandwidth, int64_t memory)
{
    fr_cluster *c;
    assert_int_equal(fr_cluster_flat(ctx, n, bandwidth, 1e-6, &c), FR_OK);
    for (int i = 0; i < n; i++) c->devices[i].memory = memory;
    return c;
}

/* Much work, few weights: replicas, and four devices are nearly four times as fast. */
static void work_wants_replicas(void **state)
{
    fr_ctx *ctx = *state;
    struct model m;
    model_init(&m, ctx, 1e-3, 1 << 20, 1000);
    fr_cluster *cluster = flat(ctx, 4, 1e9, 0);
    fr_choice *c = choose(ctx, &m, cluster, 64, true, FR_OK);
    assert_string_equal(c->at[0].method, "dp");
    assert_int_equal(c->at[0].n_workers, 4);
    double alone = 64 * (NODES - 1) * 1e-3;
    assert_true(c->at[0].s_per_batch < alone / 3.9 && c->at[0].s_per_batch > alone / 4.001);
    for (int i = 1; i < c->n; i++)
        assert_true(!c->at[i].fits ||
                    c->at[i].s_per_batch >= c->at[i - 1].s_per_batch * (1 - 1e-9));
    assert_non_null(strstr(c->why, "best: dp"));
    assert_non_null(strstr(c->why, "runner-up: "));
    fr_choice_free(c);
    fr_cluster_free(cluster);
    model_fini(&m);
}

/* Many weights, small outputs, slow links: a pipeline; without a flush if that is allowed. */
static void weights_want_stages(void **state)
{
    fr_ctx *ctx = *state;
    struct model m;
    model_init(&m, ctx, 1e-3, 1000, 20 << 20);
    fr_cluster *cluster = flat(ctx, 4, 1e8, 0);
    fr_choice *c = choose(ctx, &m, cluster, 64, true, FR_OK);
    assert_true(c->at[0].is_async);
    assert_int_equal(c->at[0].n_stages, 4);
    assert_string_equal(c->at[0].method, "spectrain");
    double async = c->at[0].s_per_batch;
    fr_choice_free(c);
    c = choose(ctx, &m, cluster, 64, false, FR_OK);
    assert_false(c->at[0].is_async);
    assert_int_equal(c->at[0].n_stages / c->at[0].chunks, 4);
    assert_true(c->at[0].s_per_batch > async);
    assert_true(c->at[0].s_per_batch >= c->at[0].bound_s);
    fr_choice_free(c);
    fr_cluster_free(cluster);
    model_fini(&m);
}

/* All nodes of the stages whose workers need more than their devices have. False: it fits. */
static bool recompute_stages(const fr_spread_desc *d, const fr_spread *s, bool again[NODES])
{
    bool is_new = false;
    for (int k = 0; k < d->n_stages; k++) {
        const int w = s->schedule->worker_of[k], last = k < d->n_stages - 1 ? d->cuts[k] : NODES;
        const int64_t memory = d->cluster->devices[w].memory;
        if (memory == 0 || s->memory[w] <= (size_t)memory) continue;
        is_new = true;
        for (int i = k ? d->cuts[k - 1] : 0; i < last; i++) again[i] = true;
    }
    return is_new;
}

/* Within memory: as it is, or with whole stages that recompute. False: impossible. */
static bool make_by_hand(fr_ctx *ctx, fr_spread_desc *d, bool again[NODES], fr_spread *out)
{
    if (fr_spread_make(ctx, d, out) != FR_OK) return false;
    if (!recompute_stages(d, out, again)) return true;
    fr_spread_free(out);
    d->recompute = again;
    assert_int_equal(fr_spread_make(ctx, d, out), FR_OK);
    if (!recompute_stages(d, out, again)) return true;
    fr_spread_free(out);
    return false;
}

/* The time of a layout, computed directly: balanced cuts, all devices side by side. INFINITY:
 * impossible. */
static double by_hand(fr_ctx *ctx, struct model *m, const fr_cluster *cluster,
                      const fr_plan_method *method, int n_stages, int replicas, int n_micro,
                      int batch)
{
    int cuts[NODES], each[NODES];
    fr_spread spread;
    fr_sim_result r;
    fr_plan *plan = NULL;
    fr_plan_problem p = {.n_devices = n_stages * replicas,
                         .n_micro = n_micro,
                         .n_stages = n_stages,
                         .replicas = replicas,
                         .bandwidth = 1e9,
                         .contiguous = true};
    double s_per_batch = INFINITY;
    assert_int_equal(profile_of(m, batch / n_micro, &p.profile), FR_OK);
    assert_int_equal(fr_planner_find("exact")->plan(ctx, &p, &plan), FR_OK);
    for (int s = 0; s < n_stages; s++) {
        each[s] = replicas;
        if (s) cuts[s - 1] = plan->stages[s].first;
    }
    fr_plan_free(plan);
    bool again[NODES] = {false};
    fr_spread_desc d = {.profile = p.profile,
                        .n_stages = n_stages,
                        .cuts = cuts,
                        .replicas = each,
                        .generator = method->generator,
                        .chunks = method->chunks,
                        .n_micro = n_micro,
                        .n_batches = method->generator->is_flush ? 1 : 60,
                        .policy = method->policy,
                        .cluster = cluster};
    if (make_by_hand(ctx, &d, again, &spread)) {
        const fr_sim_desc sim = {.schedule = spread.schedule,
                                 .timing = spread.timing,
                                 .n_batches = method->generator->is_flush ? 4 : 60,
                                 .overlaps = true};
        assert_int_equal(fr_simulate(ctx, &sim, &r), FR_OK);
        s_per_batch = method->generator->is_flush ? (r.done[3] - r.done[0]) / 3
                                                  : (r.done[49] - r.done[9]) / 40;
        fr_sim_free(&r);
        fr_spread_free(&spread);
    }
    fr_ctx_clear(ctx);
    return s_per_batch;
}

/* Every method on all stages, replicas and micro-batches of four devices: none is faster than what
 * was chosen, for work that is uneven, links fast and slow, outputs and weights small and large;
 * nor with whole stages recomputed where memory is short. */
static void nothing_by_hand_is_faster(void **state)
{
    fr_ctx *ctx = *state;
    static const struct {
        double bandwidth;
        int64_t output, params;
        bool with_async;
        int64_t memory;
    } cases[] = {
        {1e8, 1 << 14, 1 << 20, true, 0},          {1e9, 1 << 18, 4 << 20, false, 0},
        {1e9, 1 << 14, 8 << 20, true, 0},          {1e10, 1 << 20, 1 << 16, false, 0},
        {1e10, 1 << 20, 1 << 16, false, 16 << 20}, {1e9, 1 << 20, 1 << 20, false, 36 << 20}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int batch = 32;
        struct model m;
        fr_plan_method list[16];
        int n = methods(list, cases[k].with_async);
        model_init(&m, ctx, 1e-3, cases[k].output, cases[k].params);
        for (int i = 1; i < NODES; i++) {
            nodes[i].forward_s *= 1 + (i * 7 % 5), nodes[i].backward_s *= 1 + (i * 7 % 5);
            nodes[i].param_bytes = nodes[i].param_bytes * (i * i % 11) / 5;
        }
        fr_cluster *cluster = flat(ctx, 4, cases[k].bandwidth, cases[k].memory);
        fr_choice *c = choose(ctx, &m, cluster, batch, cases[k].with_async, FR_OK);
        assert_int_equal(cases[k].memory > 0, c->at[0].recompute != NULL);
        for (int i = 0; i < n; i++)
            for (int w = 1; w <= (list[i].max_stages ? list[i].max_stages : 4); w++)
                for (int r = 1; r * w <= 4; r++)
                    for (int t = r; t <= batch; t *= 2) {
                        if (batch % t || t % r || w * list[i].chunks >= NODES) continue;
                        double time =
                            by_hand(ctx, &m, cluster, &list[i], w * list[i].chunks, r, t, batch);
                        if (time < 0.995 * c->at[0].s_per_batch)
                            fail_msg("case %d: %s, %d workers x %d, %d micro-batches: %g s, chosen "
                                     "%s: %g s",
                                     (int)k, list[i].name, w, r, t, time, c->at[0].method,
                                     c->at[0].s_per_batch);
                    }
        fr_choice_free(c);
        fr_cluster_free(cluster);
        model_fini(&m);
    }
}

/* Memory for a third of the weights: stages. For hardly any activations: recompute. For nothing:
 * refused. */
static void memory_decides(void **state)
{
    fr_ctx *ctx = *state;
    struct model m;
    model_init(&m, ctx, 1e-3, 1 << 10, 10 << 20); /* 230 MB of weights, three blocks of each */
    fr_cluster *cluster = flat(ctx, 4, 1e12, 300 << 20);
    fr_choice *c = choose(ctx, &m, cluster, 64, false, FR_OK);
    assert_true(c->at[0].n_stages > 1 && c->at[0].peak <= 300u << 20);
    assert_true(c->n_too_large > 0);
    fr_choice_free(c);
    fr_cluster_free(cluster);

    model_fini(&m);
    model_init(&m, ctx, 1e-3, 16 << 20, 1000); /* 16 MB of activations per node and sample */
    cluster = flat(ctx, 2, 1e12, 300 << 20);
    c = choose(ctx, &m, cluster, 16, false, FR_OK);
    bool any = false;
    for (int i = 0; i < NODES; i++) any = any || c->at[0].recompute[i];
    assert_true(any);
    assert_true(c->at[0].peak <= 300u << 20);
    fr_choice_free(c);
    fr_cluster_free(cluster);

    cluster = flat(ctx, 2, 1e12, 1 << 20);
    c = choose(ctx, &m, cluster, 16, false, FR_INVALID);
    assert_null(c);
    assert_non_null(strstr(fr_ctx_error(ctx), "fits"));
    fr_ctx_clear(ctx);
    fr_cluster_free(cluster);
    model_fini(&m);
}

/* 1f1b on all of four devices with leads up to so many. */
static fr_choice *choose_lead(fr_ctx *ctx, struct model *m, const fr_cluster *cluster, int most)
{
    fr_plan_method one;
    fr_choice *c = NULL;
    add_method(&one, 0, "1f1b", "1f1b", "live", 1, 0, false, false);
    one.max_lead = most;
    const fr_choice_desc d = {.profile = profile_of,
                              .user = m,
                              .cluster = cluster,
                              .batch = 32,
                              .methods = &one,
                              .n_methods = 1,
                              .all_devices = true};
    assert_int_equal(fr_plan_choose(ctx, &d, &c), FR_OK);
    return c;
}

/* The time and memory of a candidate are those of its lead. */
static void assert_lead(fr_ctx *ctx, struct model *m, const fr_cluster *cluster,
                        const fr_candidate *at)
{
    fr_spread s;
    const fr_profile *profile;
    assert_int_equal(profile_of(m, 32 / at->n_micro, &profile), FR_OK);
    const fr_spread_desc d = {.profile = profile,
                              .n_stages = at->n_stages,
                              .cuts = at->cuts,
                              .replicas = at->replicas,
                              .generator = fr_generator_find(at->method),
                              .chunks = 1,
                              .n_micro = at->n_micro,
                              .lead = at->lead,
                              .cluster = cluster,
                              .device_of = at->device_of};
    assert_int_equal(fr_spread_make(ctx, &d, &s), FR_OK);
    for (int w = 0; w < at->n_workers; w++) assert_int_equal(s.memory[w], at->memory[w]);
    fr_spread_free(&s);
}

/* Links that take half as long as a stage computes: more micro-batches in flight hide them, as long
 * as there is memory for them. On links that are free a lead gains nothing. */
static void slow_links_want_a_lead(void **state)
{
    fr_ctx *ctx = *state;
    struct model m;
    model_init(&m, ctx, 1e-3, 3000, 15000);
    fr_cluster *slow = flat(ctx, 4, 1e6, 0), *fast = flat(ctx, 4, 0, 0);
    fr_choice *one = choose_lead(ctx, &m, slow, 0), *any = choose_lead(ctx, &m, slow, 4);
    assert_int_equal(one->at[0].lead, 1);
    assert_true(any->at[0].lead > 1);
    assert_true(any->at[0].s_per_batch < 0.95 * one->at[0].s_per_batch);
    assert_non_null(strstr(any->why, ", lead "));
    assert_lead(ctx, &m, slow, &any->at[0]);
    const int64_t limit = (int64_t)(0.7 * (double)any->at[0].peak);
    for (int i = 0; i < 4; i++) slow->devices[i].memory = limit;
    fr_choice *less = choose_lead(ctx, &m, slow, 4), *free_links = choose_lead(ctx, &m, fast, 4);
    assert_true((int64_t)less->at[0].peak <= limit);
    assert_true(less->at[0].s_per_batch > 1.01 * any->at[0].s_per_batch);
    assert_int_equal(free_links->at[0].lead, 1);
    fr_choice_free(one), fr_choice_free(any), fr_choice_free(less), fr_choice_free(free_links);
    fr_cluster_free(slow), fr_cluster_free(fast);
    model_fini(&m);
}

static const char *loss(const fr_choice *c, const fr_plan_method *list, const char *name)
{
    int i = 0;
    while (strcmp(list[i].name, name) != 0) i++;
    return c->lost[i] ? c->lost[i] : "";
}

/* Every method but the best has a line: by how much it is slower, or why it cannot be. */
static void methods_lose_for_reasons(void **state)
{
    fr_ctx *ctx = *state;
    struct model m;
    fr_plan_method list[16];
    const int batch = 64, n = methods(list, true);
    model_init(&m, ctx, 1e-3, 1000, 20 << 20);
    fr_cluster *cluster = flat(ctx, 4, 1e8, 0);
    fr_choice *c = choose(ctx, &m, cluster, batch, true, FR_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(c->lost[i] == NULL, strcmp(list[i].name, c->at[0].method) == 0);
    assert_string_equal(loss(c, list, "pipedream"), "as fast as spectrain, which comes first");
    for (int i = 0; i < n; i++) {
        double said;
        if (c->lost[i] && sscanf(c->lost[i], "slower by %lf %%", &said) == 1)
            assert_true(said > 0);
        else
            assert_true(list[i].is_allowed_async);
    }
    double alone = by_hand(ctx, &m, cluster, &list[0], 1, 1, 1, batch), said;
    assert_int_equal(sscanf(loss(c, list, "single"), "slower by %lf %%: 1 stage, 1 device", &said),
                     1);
    assert_true(fabs(said - 100 * (alone / c->at[0].s_per_batch - 1)) <= 0.01 * said);
    fr_choice_free(c);
    fr_cluster_free(cluster);

    cluster = flat(ctx, 4, 1e8, 500 << 20); /* 483 MB of weights, three blocks of each */
    c = choose(ctx, &m, cluster, batch, true, FR_OK);
    assert_string_equal(loss(c, list, "single"), "does not fit in memory");
    assert_string_equal(loss(c, list, "dp"), "does not fit in memory");
    assert_non_null(strstr(loss(c, list, "gpipe"), "slower by "));
    fr_choice_free(c);
    fr_cluster_free(cluster);

    cluster = flat(ctx, 1, 1e8, 0);
    c = choose(ctx, &m, cluster, batch, true, FR_OK);
    assert_string_equal(c->at[0].method, "single");
    assert_non_null(strstr(loss(c, list, "dp"), "cannot run "));
    assert_non_null(strstr(loss(c, list, "spectrain"), "cannot run "));
    fr_choice_free(c);
    fr_cluster_free(cluster);
    model_fini(&m);
}

/* Boxes of 8 with fast links, slow ones between: 64 devices, and 256. */
static void grows(void **state)
{
    fr_ctx *ctx = *state;
    const int boxes[] = {8, 32};
    for (int k = 0; k < 2; k++) {
        int n = boxes[k] * 8;
        struct model m;
        model_init(&m, ctx, 1e-3, 1 << 16, 4 << 20);
        fr_cluster *cluster = flat(ctx, n, 1e9, 0);
        fr_cluster_group *groups = calloc((size_t)boxes[k] + 1, sizeof *groups), *own;
        assert_non_null(groups);
        groups[0] =
            (fr_cluster_group){.name = "all", .bandwidth = 1e9, .latency = 1e-5, .parent = -1};
        for (int g = 0; g < boxes[k]; g++)
            groups[g + 1] =
                (fr_cluster_group){.name = "box", .bandwidth = 1e11, .latency = 1e-6, .parent = 0};
        for (int d = 0; d < n; d++) cluster->devices[d].group = 1 + d / 8;
        own = cluster->groups, cluster->groups = groups;
        int n_own = cluster->n_groups;
        cluster->n_groups = boxes[k] + 1;
        clock_t begin = clock();
        fr_choice *c = choose(ctx, &m, cluster, 1024, true, FR_OK);
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        print_message("%d devices: %.2f s, %d tried\n%s\n", n, seconds, c->n_tried, c->why);
        assert_true(c->at[0].n_workers > n / 2);
        fr_choice_free(c);
        cluster->groups = own, cluster->n_groups = n_own;
        fr_cluster_free(cluster);
        free(groups);
        model_fini(&m);
    }
}

static int setup(void **state) { return (*state = fr_ctx_create()) ? 0 : -1; }
static int teardown(void **state)
{
    fr_ctx_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(work_wants_replicas, setup, teardown),
        cmocka_unit_test_setup_teardown(weights_want_stages, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_by_hand_is_faster, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_decides, setup, teardown),
        cmocka_unit_test_setup_teardown(slow_links_want_a_lead, setup, teardown),
        cmocka_unit_test_setup_teardown(methods_lose_for_reasons, setup, teardown),
        cmocka_unit_test_setup_teardown(grows, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
