/* test_pipedream.c -- PipeDream's planner: its published result, graphs with branches, levels
 * against a plain implementation of the recurrence. */
#include "plan/internal.h"
#include "plan/random.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static fr_plan *make(const fr_plan_problem *p)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_plan *out = NULL;
    if (fr_planner_find("pipedream")->plan(ctx, p, &out) != FR_OK)
        fail_msg("%s", fr_ctx_error(ctx));
    fr_ctx_free(ctx);
    return out;
}

/* AlexNet on four machines, 1e9 bytes/s: two stages with 3 and 1 replicas, 0.03421714 s. */
static void published(void **state)
{
    (void)state;
    const char *dir = getenv("FR_DATA_DIR");
    char path[4096];
    const fr_profile *profile = NULL;
    fr_ctx *ctx = fr_ctx_create();
    snprintf(path, sizeof path, "%s/pipedream-profiles/alexnet.txt", dir ? dir : "");
    if (!dir || fr_profile_read(ctx, path, &profile) != FR_OK) {
        fr_ctx_free(ctx);
        skip_because("a published plan of PipeDream", NO_DATA);
    }
    fr_plan_problem p = {.profile = profile, .n_devices = 4, .bandwidth = 1e9};
    fr_plan *plan = make(&p);
    assert_int_equal(plan->n_stages, 2);
    assert_int_equal(plan->stages[0].replicas, 3);
    assert_int_equal(plan->stages[1].replicas, 1);
    assert_true(fabs(plan->time_s - 0.03421714) < 5e-9);
    fr_plan_free(plan);
    fr_profile_free(profile);
    fr_ctx_free(ctx);
}

/* A fork: 0 -> 1 and 2, both -> 3. Either branch may come first, so there are five states. */
static void fork_by_hand(void **state)
{
    (void)state;
    static const int in[4][2] = {{0}, {0}, {0}, {1, 2}};
    static const int n_in[4] = {0, 1, 1, 2};
    fr_profile_node nodes[4];
    for (int i = 0; i < 4; i++)
        nodes[i] = (fr_profile_node){.name = "n",
                                     .about = "",
                                     .forward_s = 1,
                                     .output_bytes = 10,
                                     .n_inputs = n_in[i],
                                     .inputs = in[i]};
    fr_profile profile = {.n_nodes = 4, .nodes = nodes};
    fr_plan_problem p = {.profile = &profile, .n_devices = 2, .bandwidth = 1e9, .replicas = 1};
    struct fr__task t;
    struct fr__states s;
    fr_ctx *ctx = fr_ctx_create();
    assert_int_equal(fr__task_init(ctx, &p, 0, &t), FR_OK);
    assert_int_equal(fr__states_make(&t, 100, &s), FR_OK);
    assert_int_equal(s.n, 5);
    static const double work[] = {1, 2, 2, 3, 4};
    /* Behind the fork its output still counts, even when both branches have begun. */
    static const double out[] = {10, 20, 20, 30, 10};
    for (int i = 0; i < 5; i++) {
        assert_true(s.work[i] == work[i]);
        assert_true(s.out[i] == out[i]);
    }
    assert_false(fr__bit(s.before + 2 * s.state_words, 1)); /* neither branch before the other */
    fr__task_fini(&t);
    fr_ctx_free(ctx);
    fr_plan *plan = make(&p);
    assert_int_equal(plan->n_stages, 2);
    assert_true(fabs(plan->time_s - 2) < 1e-12);
    fr_plan_free(plan);
    /* The second branch is the long one: cut between the branches, 0 and 2 in front. No range of
     * nodes is as good. */
    nodes[2].forward_s = 3, nodes[1].forward_s = 2, nodes[3].forward_s = 2;
    plan = make(&p);
    assert_true(fabs(plan->time_s - 4) < 1e-12);
    assert_int_equal(plan->stage_of[0], 0);
    assert_int_equal(plan->stage_of[2], 0);
    assert_int_equal(plan->stage_of[1], 1);
    assert_int_equal(plan->stage_of[3], 1);
    fr_plan_free(plan);
    p.contiguous = true;
    plan = make(&p);
    assert_true(fabs(plan->time_s - 5) < 1e-12);
    fr_plan_free(plan);
}

/* Unread outputs add no cut and no work; they are placed with their inputs. */
static void loose_ends(void **state)
{
    (void)state;
    static const int in[4][1] = {{0}, {0}, {0}, {2}};
    fr_profile_node nodes[4];
    for (int i = 0; i < 4; i++)
        nodes[i] = (fr_profile_node){.name = "n",
                                     .about = i == 1 ? "__getitem__(1)" : "LSTM",
                                     .forward_s = 1,
                                     .n_inputs = i > 0,
                                     .inputs = in[i]};
    fr_profile profile = {.n_nodes = 4, .nodes = nodes};
    fr_plan_problem p = {.profile = &profile, .n_devices = 3, .bandwidth = 1e9, .replicas = 1};
    fr_plan *plan = make(&p);
    assert_int_equal(plan->n_stages, 3);
    assert_true(fabs(plan->time_s - 1) < 1e-12);
    assert_int_equal(plan->stage_of[1], 0);
    fr_plan_free(plan);
}

/* --- levels ----------------------------------------------------------------------------------- */

struct plain {
    const struct fr__task *t;
    int n[2];
    double bandwidth[2];
};

/* Units u .. v - 1 on m machines of a level; `is_last`: nothing leaves. */
static double plain_s(const struct plain *o, int level, int u, int v, int m)
{
    const struct fr__task *t = o->t;
    double b = o->bandwidth[level], params = t->params[v] - t->params[u];
    double one = level ? plain_s(o, 0, u, v, o->n[0]) : fr__task_work(t, u, v) / t->slowest;
    double best = (one + 4.0 * (m - 1) * params / (b * m) / (level ? o->n[0] : 1)) / m;
    for (int k = u + 1; k < v; k++)
        for (int r = 1; r < m; r++) {
            double p = t->params[v] - t->params[k];
            double last =
                level ? plain_s(o, 0, k, v, o->n[0]) : fr__task_work(t, k, v) / t->slowest;
            last = (last + 4.0 * (r - 1) * p / (b * r)) / r;
            double time = fmax(fmax(plain_s(o, level, u, k, m - r), last),
                               fmax(2 * t->cut[k], v < t->n ? 2 * t->cut[v] : 0) / (b * r));
            best = fmin(best, time);
        }
    return best;
}

static void levels(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        struct random_model m;
        random_model(&m, 11, i, 5, 1);
        int n[2] = {draw_int(&m, 1, 3), draw_int(&m, 1, 3)};
        double bandwidth[2] = {5000 * (1 + draw(&m)), 300 * (1 + draw(&m))};
        fr_plan_problem p = {.profile = &m.profile,
                             .n_devices = n[0] * n[1],
                             .contiguous = true,
                             .n_levels = 2,
                             .level_n = n,
                             .level_bandwidth = bandwidth};
        struct plain o = {.n = {n[0], n[1]}, .bandwidth = {bandwidth[0], bandwidth[1]}};
        struct fr__task t;
        fr_ctx *ctx = fr_ctx_create();
        assert_int_equal(fr__task_init(ctx, &p, 0, &t), FR_OK);
        o.t = &t;
        fr_plan *plan = make(&p);
        double wanted = plain_s(&o, 1, 0, t.n, n[1]);
        assert_true(fabs(plan->time_s - wanted) <= 1e-9 * wanted);
        int used = 0;
        for (int s = 0; s < plan->n_stages; s++) used += plan->stages[s].replicas;
        assert_int_equal(used, p.n_devices);
        fr_plan_free(plan);
        fr__task_fini(&t);
        fr_ctx_free(ctx);
    }
}

/* Boxes of four, two boxes: levels of a cluster file; boxes that differ are no levels. */
static void levels_of_a_cluster(void **state)
{
    (void)state;
    fr_cluster_device devices[8];
    fr_cluster_group groups[3] = {{.name = "all", .bandwidth = 1e9, .parent = -1},
                                  {.name = "a", .bandwidth = 1e10, .parent = 0},
                                  {.name = "b", .bandwidth = 1e10, .parent = 0}};
    for (int i = 0; i < 8; i++)
        devices[i] = (fr_cluster_device){.name = "d", .speed = 1, .group = 1 + i / 4};
    fr_cluster c = {.n_devices = 8, .n_groups = 3, .devices = devices, .groups = groups};
    int n[FR__MAX_LEVELS];
    double bandwidth[FR__MAX_LEVELS];
    assert_int_equal(fr__levels_of(&c, n, bandwidth), 2);
    assert_true(n[0] == 4 && n[1] == 2 && bandwidth[0] == 1e10 && bandwidth[1] == 1e9);
    groups[1].is_shared = groups[2].is_shared = true; /* four share a bus */
    assert_int_equal(fr__levels_of(&c, n, bandwidth), 2);
    assert_true(bandwidth[0] == 2.5e9);
    devices[3].group = 2;
    assert_int_equal(fr__levels_of(&c, n, bandwidth), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published),           cmocka_unit_test(fork_by_hand),
        cmocka_unit_test(loose_ends),          cmocka_unit_test(levels),
        cmocka_unit_test(levels_of_a_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
