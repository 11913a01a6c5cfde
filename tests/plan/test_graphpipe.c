/* test_graphpipe.c -- planner graphpipe: against the enumeration on random series-parallel and
 * other models, and by hand on towers, where schedules made from its plans hold what it counted. */
#include "plan/internal.h"
#include "plan/random.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

/* --- random models ---------------------------------------------------------------------------- */

/* n nodes from `at` on between a source and the node that is returned: one behind the other, or two
 * branches, one after the other in the order of nodes, and a node that joins them. */
static int grow(struct random_model *m, int *at, int n, int source)
{
    if (n >= 3 && draw(m) < 0.6) {
        const int left = draw_int(m, 1, n - 2);
        const int a = grow(m, at, left, source), b = grow(m, at, n - 1 - left, source);
        fr_profile_node *join = &m->nodes[*at];
        join->n_inputs = 2, m->inputs[*at][0] = a, m->inputs[*at][1] = b;
        return (*at)++;
    }
    if (n >= 2) {
        const int front = draw_int(m, 1, n - 1), middle = grow(m, at, front, source);
        return grow(m, at, n - front, middle);
    }
    m->nodes[*at].n_inputs = source >= 0, m->inputs[*at][0] = source;
    return (*at)++;
}

static void compare(uint64_t seed, bool is_series_parallel, bool with_memory)
{
    int n_found = 0, n_branched = 0;
    for (uint64_t i = 0; i < 500; i++) {
        struct random_model m;
        random_model(&m, seed, i, 8, 4);
        if (is_series_parallel) {
            int at = m.nodes[0].is_input; /* data is read by nodes without another input */
            grow(&m, &at, m.profile.n_nodes - at, at - 1);
        } else {
            random_branches(&m);
        }
        for (int k = 1; k < m.profile.n_nodes; k++) n_branched += m.nodes[k].n_inputs > 1;
        fr_plan_problem p = m.problem, q;
        if (!with_memory) p.memory = 0;
        if (i % 3 == 0) p.n_stages = draw_int(&m, 1, 4);
        if (i % 5 == 0) p.deals_evenly = true;
        q = p, q.objective = "graphpipe";
        fr_plan *plan = plan_by("graphpipe", &p), *brute = plan_by("brute", &q);
        assert_true(!plan == !brute);
        if (plan) {
            n_found++;
            assert_true(plan->is_optimal && (!p.n_stages || plan->n_stages == p.n_stages));
            if (fabs(plan->time_s - brute->time_s) > 1e-9 * brute->time_s)
                fail_msg("model %d: %.12g s, by enumeration %.12g s", (int)i, plan->time_s,
                         brute->time_s);
        }
        fr_plan_free(plan), fr_plan_free(brute);
    }
    assert_true(n_found > 150 && n_branched > 300);
}

static void series_parallel_is_best(void **state)
{
    (void)state;
    compare(31, true, false);
    compare(32, true, true);
}

static void any_graph_is_best(void **state)
{
    (void)state;
    compare(33, false, true);
}

/* --- by hand ---------------------------------------------------------------------------------- */

enum { MOST = 8, KEPT = 1000 };

struct towers {
    fr_profile profile;
    fr_profile_node nodes[MOST];
    int inputs[MOST][MOST];
};

/* Nodes of 1 s forward, 2 s backward, KEPT bytes; readers by {from, to}, ended by {0, 0}. */
static void towers_init(struct towers *t, int n, const int (*links)[2])
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < n; i++)
        t->nodes[i] = (fr_profile_node){.name = NULL, /* "node<index>" */
                                        .about = "",
                                        .forward_s = 1,
                                        .backward_s = 2,
                                        .back_input_s = NAN,
                                        .back_weight_s = NAN,
                                        .kept_bytes = KEPT,
                                        .param_bytes = 4,
                                        .inputs = t->inputs[i]};
    for (int l = 0; links[l][1] > 0; l++) {
        fr_profile_node *to = &t->nodes[links[l][1]];
        t->inputs[links[l][1]][to->n_inputs++] = links[l][0];
    }
    t->profile = (fr_profile){.model = "towers", .batch = 1, .n_nodes = n, .nodes = t->nodes};
}

/* The slots of 1f1b with the plan's cuts, and the makespan on free links. */
static void assert_runs(const fr_plan *plan, const struct towers *t, const int *sets, double time)
{
    fr_ctx *ctx = fr_ctx_create();
    int cuts[MOST];
    fr_spread s;
    fr_sim_result r;
    const fr_profile *profile;
    if (fr_profile_copy(ctx, &t->profile, &profile) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    for (int k = 1; k < plan->n_stages; k++) cuts[k - 1] = plan->stages[k].first;
    const fr_spread_desc d = {.profile = profile,
                              .n_stages = plan->n_stages,
                              .cuts = cuts,
                              .generator = fr_generator_find("1f1b"),
                              .chunks = 1,
                              .n_micro = 8};
    if (fr_spread_make(ctx, &d, &s) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    const fr_sim_desc sim = {.schedule = s.schedule, .timing = s.timing, .n_batches = 1};
    assert_int_equal(fr_simulate(ctx, &sim, &r), FR_OK);
    if (fabs(r.makespan - time) > 1e-9) fail_msg("%g s, expected %g", r.makespan, time);
    for (int k = 0; k < plan->n_stages; k++) {
        assert_int_equal(r.workers[k].peak_live, sets[k]);
        /* without a gradient nothing holds the first stage back: its slots are those of readers */
        if (t->nodes[0].param_bytes > 0) assert_int_equal(s.schedule->n_slots[k], sets[k]);
    }
    fr_sim_free(&r);
    fr_spread_free(&s);
    fr_profile_free(profile);
    fr_ctx_free(ctx);
}

/* Memory for the sets of the deepest way, of which a chain would need more: exact, which counts all
 * stages behind one, finds no such cut. A stem and two branches of 2: if the stem has parameters,
 * the gradient of its value goes from the second branch through the first, which holds one set
 * more. */
static void towers(void **state)
{
    (void)state;
    static const struct {
        int n;
        bool has_params; /* of the first node */
        double time;
        int sets[MOST], links[12][2];
        const char *said;
    } rows[] = {
        {6,
         false,
         31, /* no backward of the first stage ends it */
         {4, 3, 2, 3, 2, 1},
         {{0, 1}, {1, 2}, {0, 3}, {3, 4}, {2, 5}, {4, 5}},
         "stages: 4 3 2 3 2 1"},
        {6,
         true,
         35,
         {5, 4, 2, 3, 2, 1},
         {{0, 1}, {1, 2}, {0, 3}, {3, 4}, {2, 5}, {4, 5}},
         "stages: 5 4 2 3 2 1"},
        {8,
         true,
         27,
         {2, 2, 2, 2, 2, 2, 2, 1},
         {{0, 7}, {1, 7}, {2, 7}, {3, 7}, {4, 7}, {5, 7}, {6, 7}},
         "stages: 2 2 2 2 2 2 2 1"},
        {8,
         true,
         36,
         {5, 4, 3, 2, 4, 3, 2, 1},
         {{0, 1}, {1, 2}, {2, 3}, {3, 7}, {4, 5}, {5, 6}, {6, 7}},
         "stages: 5 4 3 2 4 3 2 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct towers t;
        towers_init(&t, rows[i].n, rows[i].links);
        if (!rows[i].has_params) t.nodes[0].param_bytes = 0;
        fr_plan_problem p = {.profile = &t.profile,
                             .n_devices = rows[i].n,
                             .n_micro = 8,
                             .n_stages = rows[i].n,
                             .replicas = 1,
                             .memory = rows[i].sets[0] * KEPT + 100};
        fr_plan *plan = plan_by("graphpipe", &p);
        assert_non_null(plan);
        assert_true(fabs(plan->time_s - 3) < 1e-9);
        assert_non_null(strstr(plan->why, rows[i].said));
        assert_runs(plan, &t, rows[i].sets, rows[i].time);
        fr_plan_free(plan);
        assert_null(plan_by("exact", &p));
        p.memory -= KEPT; /* one set less: the first stage does not fit */
        assert_null(plan_by("graphpipe", &p));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(series_parallel_is_best),
        cmocka_unit_test(any_graph_is_best),
        cmocka_unit_test(towers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
