/* test_spp.c -- planner spp: layouts by hand, devices in groups against the enumeration, and the
 * order of devices against all cuts of small graphs. */
#include "plan/internal.h"
#include "plan/random.h"
#include "support/test.h"

#include <math.h>

/* --- by hand ---------------------------------------------------------------------------------- */

static void by_hand(void **state)
{
    (void)state;
    static const double layers[5][4] = {
        {4, 8, 6, 2}, {3, 6, 2, 2}, {5, 9, 4, 20}, {2, 3, 1, 40}, {1, 2, 1, 60}};
    static const struct {
        int n_devices, n_micro, n_stages, cut, replicas[2];
        double bandwidth, total;
    } rows[] = {
        {4, 2, 2, 3, {3, 1}, 1, 102}, {4, 8, 2, 3, {3, 1}, 0.5, 256}, {2, 8, 1, 5, {2, 0}, 4, 203}};
    fr_profile_node nodes[5];
    int inputs[5];
    for (int i = 0; i < 5; i++) {
        inputs[i] = i - 1;
        nodes[i] = (fr_profile_node){.name = "layer",
                                     .about = "",
                                     .forward_s = layers[i][0],
                                     .backward_s = layers[i][1],
                                     .output_bytes = (int64_t)layers[i][2],
                                     .param_bytes = (int64_t)layers[i][3],
                                     .n_inputs = i > 0,
                                     .inputs = &inputs[i]};
    }
    fr_profile profile = {.n_nodes = 5, .nodes = nodes};
    assert_int_equal(fr_planner_find("spp")->lead, 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_plan_problem p = {.profile = &profile,
                             .n_devices = rows[i].n_devices,
                             .n_micro = rows[i].n_micro,
                             .bandwidth = rows[i].bandwidth};
        fr_plan *plan = plan_by("spp", &p);
        assert_non_null(plan);
        assert_true(fabs(plan->time_s - rows[i].total) < 1e-9);
        assert_int_equal(plan->n_stages, rows[i].n_stages);
        assert_int_equal(plan->stages[0].last, rows[i].cut);
        for (int s = 0; s < plan->n_stages; s++)
            assert_int_equal(plan->stages[s].replicas, rows[i].replicas[s]);
        fr_plan_free(plan);
    }
}

/* --- devices in groups ------------------------------------------------------------------------ */

/* Two or three groups with links of their own: stages take devices in the order of the cuts, and
 * each pair of devices has its bandwidth. */
static void groups_are_best(void **state)
{
    (void)state;
    int n_found = 0, n_moved = 0;
    for (uint64_t i = 0; i < 300; i++) {
        struct random_model m;
        fr_cluster_group groups[4];
        random_model(&m, 21, i, 7, 5);
        const int n_groups = draw_int(&m, 2, 3);
        for (int g = 0; g <= n_groups; g++)
            groups[g] = (fr_cluster_group){.name = "group",
                                           .bandwidth = (g ? 1000 : 100) * (1 + 5 * draw(&m)),
                                           .latency = draw(&m),
                                           .parent = g ? 0 : -1};
        for (int d = 0; d < m.cluster.n_devices; d++)
            m.devices[d].group = draw_int(&m, 1, n_groups);
        m.cluster.groups = groups, m.cluster.n_groups = n_groups + 1;
        fr_plan_problem p = m.problem, q;
        if (i % 2) p.memory = 0;
        q = p, q.objective = "spp";
        fr_plan *plan = plan_by("spp", &p), *brute = plan_by("brute", &q);
        assert_true(!plan == !brute);
        if (plan) {
            int last = -1;
            bool is_moved = false;
            for (int s = 0; s < plan->n_stages; s++)
                for (int r = 0; r < plan->stages[s].replicas; r++) {
                    is_moved = is_moved || plan->stages[s].devices[r] < last;
                    last = plan->stages[s].devices[r];
                }
            n_found++, n_moved += is_moved;
            if (fabs(plan->time_s - brute->time_s) > 1e-9 * brute->time_s)
                fail_msg("model %d: %.12g s, by enumeration %.12g s", (int)i, plan->time_s,
                         brute->time_s);
        }
        fr_plan_free(plan), fr_plan_free(brute);
    }
    assert_true(n_found > 100 && n_moved > 30);
}

/* --- the order -------------------------------------------------------------------------------- */

enum { VERTICES = 9 };

static double across(int n, const double *weight, const int *of, int m, unsigned side)
{
    double sum = 0;
    for (int i = 0; i < m; i++)
        for (int k = 0; k < m; k++)
            if ((side >> i & 1) && !(side >> k & 1)) sum += weight[of[i] * n + of[k]];
    return sum;
}

/* Can the m vertices be split into a front and the rest by a least cut, and both likewise? */
static bool is_by_cuts(int n, const double *weight, const int *order, int m)
{
    double least = INFINITY;
    if (m <= 2) return true;
    for (unsigned side = 1; side < (1u << m) - 1; side++)
        least = fmin(least, across(n, weight, order, m, side));
    for (int front = 1; front < m; front++)
        if (across(n, weight, order, m, (1u << front) - 1) <= least &&
            is_by_cuts(n, weight, order, front) && is_by_cuts(n, weight, order + front, m - front))
            return true;
    return false;
}

static void order_is_by_least_cuts(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    int n_wrong_otherwise = 0;
    for (uint64_t i = 0; i < 300; i++) {
        struct random_model m = {.seed = 22, .number = i};
        double weight[VERTICES * VERTICES];
        int order[VERTICES], n = draw_int(&m, 1, VERTICES);
        bool is_used[VERTICES] = {false};
        for (int a = 0; a < n; a++) {
            order[a] = a, weight[a * n + a] = 0;
            for (int b = 0; b < a; b++) /* whole numbers: sums are exact */
                weight[a * n + b] = weight[b * n + a] = draw(&m) < 0.3 ? 0 : draw_int(&m, 1, 30);
        }
        n_wrong_otherwise += !is_by_cuts(n, weight, order, n);
        assert_int_equal(fr__cut_order(ctx, n, weight, order), FR_OK);
        if (!is_by_cuts(n, weight, order, n))
            fail_msg("graph %d: the order is not by cuts", (int)i);
        for (int a = 0; a < n; a++) {
            assert_true(order[a] >= 0 && order[a] < n && !is_used[order[a]]);
            is_used[order[a]] = true;
        }
    }
    assert_true(n_wrong_otherwise > 100);
    fr_ctx_free(ctx);
}

/* Two boxes whose devices take turns in the file: each box becomes neighbours. */
static void boxes_are_neighbours(void **state)
{
    (void)state;
    struct random_model m;
    fr_cluster_group groups[3] = {{.name = "all", .bandwidth = 10, .parent = -1},
                                  {.name = "box", .bandwidth = 1000},
                                  {.name = "box", .bandwidth = 1000}};
    uint64_t number = 0;
    do random_model(&m, 23, number++, 8, 4);
    while (m.profile.n_nodes < 7);
    for (int i = 0; i < m.profile.n_nodes; i++)
        m.nodes[i].param_bytes = 1000000, m.nodes[i].output_bytes = 1; /* no replicas */
    for (int d = 0; d < 6; d++)
        m.devices[d] = (fr_cluster_device){.name = "d", .speed = 1, .group = 1 + d % 2};
    m.cluster.n_devices = 6, m.cluster.n_groups = 3, m.cluster.groups = groups;
    m.problem.memory = 0, m.problem.n_devices = 6;
    fr_plan *plan = plan_by("spp", &m.problem);
    assert_non_null(plan);
    assert_int_equal(plan->n_stages, 6);
    for (int s = 0; s < 6; s++) assert_int_equal(plan->stages[s].device, s < 3 ? 2 * s : 2 * s - 5);
    fr_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(groups_are_best),
        cmocka_unit_test(order_is_by_least_cuts),
        cmocka_unit_test(boxes_are_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
