/* random.h -- random models for planners: a limited number of nodes, a chain with skips and
 * branches, on a limited number of devices. A pure function of seed and number. */
#ifndef TESTS_PLAN_RANDOM_H
#define TESTS_PLAN_RANDOM_H

#include "base/philox.h"
#include "support/test.h"

#include <forerun/plan.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

enum { RANDOM_NODES = 16, RANDOM_DEVICES = 8 };

struct random_model {
    fr_profile profile;
    fr_profile_node nodes[RANDOM_NODES];
    int inputs[RANDOM_NODES][2];
    char names[RANDOM_NODES][16];
    fr_cluster cluster;
    fr_cluster_device devices[RANDOM_DEVICES];
    fr_cluster_group group;
    fr_plan_problem problem;
    uint64_t seed, number;
    uint32_t drawn;
};

static inline double draw(struct random_model *m) /* [0, 1) */
{
    uint32_t out[4];
    fr__random4(m->seed, FR_STREAM_SAMPLE, 7, m->number, m->drawn++, out);
    return fr__unit_float(out[0]);
}

static inline int draw_int(struct random_model *m, int least, int most)
{
    return least + (int)(draw(m) * (most - least + 1));
}

/* The first node is data with odds of a half. Times about a second, transfers from nothing to
 * several seconds, memory that is often too small. */
static inline void random_model(struct random_model *m, uint64_t seed, uint64_t number,
                                int most_nodes, int most_devices)
{
    *m = (struct random_model){.seed = seed, .number = number};
    int n = draw_int(m, 1, most_nodes), d = draw_int(m, 1, most_devices);
    bool has_input = draw(m) < 0.5, are_alike = draw(m) < 0.6;
    if (has_input) n++;
    for (int i = 0; i < n; i++) {
        fr_profile_node *node = &m->nodes[i];
        snprintf(m->names[i], sizeof m->names[i], "node%d", i + 1);
        *node = (fr_profile_node){.name = m->names[i],
                                  .about = "",
                                  .inputs = m->inputs[i],
                                  .is_input = has_input && i == 0};
        if (i > 0) m->inputs[i][node->n_inputs++] = i - 1;
        if (i > 1 && draw(m) < 0.3) m->inputs[i][node->n_inputs++] = draw_int(m, 0, i - 2);
        node->output_bytes = draw_int(m, 0, 2000);
        if (node->is_input) continue;
        node->forward_s = draw(m), node->backward_s = 2 * draw(m), node->update_s = 0.1 * draw(m);
        node->param_bytes = draw(m) < 0.7 ? draw_int(m, 0, 3000) : 0;
        node->kept_bytes = draw_int(m, 0, 1500);
    }
    m->profile = (fr_profile){.model = "random",
                              .batch = 1,
                              .n_nodes = n,
                              .nodes = m->nodes,
                              .workspace_bytes = 100,
                              .state_per_weight = draw_int(m, 0, 2)};
    m->group = (fr_cluster_group){.name = "all", .bandwidth = 200 + 5000 * draw(m), .parent = -1};
    double speed = 0.5 + draw(m);
    for (int i = 0; i < d; i++)
        m->devices[i] = (fr_cluster_device){
            .name = "d", .speed = are_alike ? speed : 0.5 + draw(m), .memory = 0};
    m->cluster = (fr_cluster){.name = "random",
                              .n_devices = d,
                              .n_groups = 1,
                              .devices = m->devices,
                              .groups = &m->group};
    m->problem = (fr_plan_problem){.profile = &m->profile,
                                   .cluster = &m->cluster,
                                   .n_micro = draw_int(m, 1, 8),
                                   .memory = 2000 + (int64_t)(draw(m) * 40000)};
}

/* Each node reads one or two of the four before it: branches that run side by side. */
static inline void random_branches(struct random_model *m)
{
    for (int i = 1; i < m->profile.n_nodes; i++) {
        fr_profile_node *node = &m->nodes[i];
        node->n_inputs = draw_int(m, 1, 2);
        for (int k = 0; k < node->n_inputs; k++)
            m->inputs[i][k] = draw_int(m, i > 4 ? i - 4 : 0, i - 1);
        if (node->n_inputs == 2 && m->inputs[i][0] == m->inputs[i][1]) node->n_inputs = 1;
    }
}

/* The plan of a planner; NULL: it refuses the problem. */
static inline fr_plan *plan_by(const char *planner, const fr_plan_problem *p)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_plan *out = NULL;
    fr_status status = fr_planner_find(planner)->plan(ctx, p, &out);
    assert_true(status == FR_OK || status == FR_INVALID);
    fr_ctx_free(ctx);
    return out;
}

#endif
