/* Every planner against the enumeration of all layouts by its own count, on a thousand random
 * models each; formulas of the papers by hand; PipeDream's published result on AlexNet. */
#include "plan/internal.h"
#include "plan/random.h"
#include "support/test.h"

#include <math.h>

static fr_plan *make(const char *planner, const fr_plan_problem *p)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_plan *out = NULL;
    const fr_planner *by = fr_planner_find(planner);
    assert_non_null(by);
    fr_status status = by->plan(ctx, p, &out);
    if (status != FR_OK) {
        assert_null(out);
        assert_true(status == FR_INVALID);
    }
    fr_ctx_free(ctx);
    return out;
}

/* A plan covers every node that computes once, in order, and its stages take devices that exist. */
static void assert_sound(const fr_plan *plan, const fr_plan_problem *p)
{
    int at = 0, n = p->n_devices ? p->n_devices : p->cluster->n_devices;
    for (int s = 0; s < plan->n_stages; s++) {
        const fr_plan_stage *stage = &plan->stages[s];
        assert_int_equal(stage->first, at);
        assert_true(stage->last > stage->first && stage->replicas >= 1);
        assert_true(stage->device >= 0 && stage->device + stage->replicas <= n);
        if (s) assert_true(stage->device >= stage[-1].device + stage[-1].replicas);
        at = stage->last;
    }
    assert_int_equal(at, p->profile->n_nodes);
}

static void compare(const char *planner, uint64_t seed, bool with_memory)
{
    int n_found = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        struct random_model m;
        random_model(&m, seed, i, 8, 4);
        fr_plan_problem p = m.problem;
        p.contiguous = true;
        if (!with_memory) p.memory = 0;
        fr_plan *plan = make(planner, &p);
        fr_plan_problem q = p;
        q.objective = planner;
        fr_plan *brute = make("brute", &q);
        assert_true(!plan == !brute);
        if (plan) {
            n_found++;
            assert_sound(plan, &p);
            assert_sound(brute, &p);
            assert_true(plan->is_optimal && brute->is_optimal);
            if (fabs(plan->time_s - brute->time_s) > 1e-9 * brute->time_s)
                fail_msg("%s, model %d: %.12g s, by enumeration %.12g s", planner, (int)i,
                         plan->time_s, brute->time_s);
        }
        fr_plan_free(plan), fr_plan_free(brute);
    }
    assert_true(n_found > 300);
}

static void exact_is_best(void **state)
{
    (void)state;
    compare("exact", 1, false);
    compare("exact", 2, true);
}

static void dapple_is_best(void **state)
{
    (void)state;
    compare("dapple", 3, false);
    compare("dapple", 4, true);
}

static void pipedream_is_best(void **state)
{
    (void)state;
    compare("pipedream", 5, false);
    compare("pipedream", 6, true);
}

/* DAPPLE: S = 4, M = 8, F = 1, B = 2 on four devices with free links: 33. */
static void dapple_by_hand(void **state)
{
    (void)state;
    fr_profile_node nodes[4];
    int inputs[4];
    for (int i = 0; i < 4; i++) {
        inputs[i] = i - 1;
        nodes[i] = (fr_profile_node){
            .name = "n", .forward_s = 1, .backward_s = 2, .n_inputs = i > 0, .inputs = &inputs[i]};
    }
    fr_profile profile = {.n_nodes = 4, .nodes = nodes};
    fr_plan_problem p = {
        .profile = &profile, .n_devices = 4, .n_micro = 8, .n_stages = 4, .replicas = 1};
    fr_plan *plan = make("dapple", &p);
    assert_non_null(plan);
    assert_int_equal(plan->n_stages, 4);
    assert_true(fabs(plan->time_s - 33) < 1e-12);
    fr_plan_free(plan);
    /* Replicas without anything to add up: one stage on four devices, no bubble. */
    p.n_stages = p.replicas = 0;
    plan = make("dapple", &p);
    assert_true(fabs(plan->time_s - 24) < 1e-12);
    fr_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_is_best),
        cmocka_unit_test(dapple_is_best),
        cmocka_unit_test(pipedream_is_best),
        cmocka_unit_test(dapple_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
