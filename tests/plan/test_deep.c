/* A model of 10,000 layers, 100,000 nodes, on four devices: every planner makes a good plan of it
 * or names its limit, and the whole process needs little memory. */
#include "support/test.h"

#include <forerun/plan.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { LAYERS = 10000, EACH = 10, NODES = LAYERS * EACH + 1, DEVICES = 4 };
#define MOST_BYTES 200e6

static fr_profile_node nodes[NODES];
static int inputs[NODES][2];
static char names[NODES][8];
static fr_profile profile = {.model = "deep",
                             .machine = "none",
                             .batch = 1,
                             .n_nodes = NODES,
                             .nodes = nodes,
                             .state_per_weight = 1};
static double total_s;

/* Layers with a residual: one value passes from a layer to the next, two or more inside. Later
 * layers take longer. */
static void make_model(void)
{
    for (int i = 0; i < NODES; i++) {
        const int place = (i - 1) % EACH;
        fr_profile_node *n = &nodes[i];
        snprintf(names[i], sizeof names[i], "n%d", i);
        *n = (fr_profile_node){
            .name = names[i], .about = "", .inputs = inputs[i], .is_input = i == 0};
        n->output_bytes = 1000, n->back_input_s = n->back_weight_s = NAN;
        if (i == 0) continue;
        inputs[i][n->n_inputs++] = i - 1;
        if (place == EACH - 1) inputs[i][n->n_inputs++] = i - EACH;
        n->forward_s = 1e-6 * (1 + (double)i / NODES), n->backward_s = 2 * n->forward_s;
        n->kept_bytes = 1000, n->values_bytes = 2000, n->param_bytes = 100;
        total_s += n->forward_s + n->backward_s;
    }
}

static double peak_bytes(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return 1024.0 * (double)usage.ru_maxrss;
}

static void check_memory(void)
{
#ifdef FR_SANITIZED
    skip_because("peak memory of a deep model", "sanitizers hold memory of their own");
#endif
    print_message("%.1f MB\n", peak_bytes() * 1e-6);
    assert_true(peak_bytes() < MOST_BYTES);
}

/* A cut between layers: the residual alone crosses it. */
static bool is_between_layers(int node) { return node % EACH == 1; }

static void check_plan(const fr_plan *p)
{
    double worst = 0;
    int node = 1;
    assert_false(p->is_optimal);
    assert_non_null(strstr(p->why, "runs of nodes"));
    assert_int_equal(p->stage_of[0], -1);
    for (int s = 0; s < p->n_stages; s++) {
        double own = 0;
        if (s) assert_true(is_between_layers(p->stages[s].first));
        for (; node < NODES && p->stage_of[node] == s; node++)
            own += nodes[node].forward_s + nodes[node].backward_s;
        worst = fmax(worst, own / p->stages[s].replicas);
    }
    assert_int_equal(node, NODES);
    assert_true(worst < 1.01 * total_s / DEVICES);
}

static void planners(void **state)
{
    fr_ctx *ctx = *state;
    for (const fr_planner *const *at = fr_planner_list(); *at; at++) {
        if ((*at)->splits_layers) continue; /* by a graph, not by a profile */
        const bool is_of_nodes = strcmp((*at)->name, "brute") == 0 ||
                                 strcmp((*at)->name, "dlplacer") == 0 ||
                                 strcmp((*at)->name, "list") == 0;
        fr_plan_problem p = {
            .profile = &profile, .n_devices = DEVICES, .bandwidth = 1e9, .n_micro = 8};
        fr_plan *plan = NULL;
        fr_status status = (*at)->plan(ctx, &p, &plan);
        print_message("%s: %s\n", (*at)->name, plan ? plan->why : fr_ctx_error(ctx));
        assert_int_equal(status, is_of_nodes ? FR_UNSUPPORTED : FR_OK);
        if (is_of_nodes)
            assert_non_null(strstr(fr_ctx_error(ctx), "100000"));
        else
            check_plan(plan);
        fr_plan_free(plan);
    }
    check_memory();
}

static fr_status profile_of(void *user, int batch, const fr_profile **out)
{
    assert_int_equal(batch, 1);
    *out = *(const fr_profile **)user;
    return FR_OK;
}

static void choice(void **state)
{
    const fr_plan_method methods[] = {
        {.name = "pipedream",
         .generator = fr_generator_find("1f1b-async"),
         .policy = fr_policy_find("stash"),
         .chunks = 1,
         .is_allowed_async = true},
    };
    fr_cluster *cluster;
    const fr_profile *copy;
    assert_int_equal(fr_profile_copy(*state, &profile, &copy), FR_OK);
    assert_int_equal(fr_cluster_flat(*state, DEVICES, 1e9, 1e-6, &cluster), FR_OK);
    const fr_choice_desc d = {.profile = profile_of,
                              .user = &copy,
                              .cluster = cluster,
                              .batch = 1,
                              .n_methods = 1,
                              .methods = methods};
    fr_choice *c = NULL;
    if (fr_plan_choose(*state, &d, &c) != FR_OK) fail_msg("%s", fr_ctx_error(*state));
    const fr_candidate *best = &c->at[0];
    print_message("%s\n", c->why);
    assert_int_equal(best->n_stages, DEVICES);
    assert_true(best->s_per_batch < 1.01 * total_s / DEVICES);
    for (int s = 0; s < DEVICES - 1; s++) assert_true(is_between_layers(best->cuts[s]));
    fr_choice_free(c);
    fr_cluster_free(cluster);
    fr_profile_free(copy);
    check_memory();
}

static int setup(void **state)
{
    make_model();
    *state = fr_ctx_create();
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    fr_ctx_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(planners), cmocka_unit_test(choice)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
