/* planners.c -- the list of planners, and plans for others to read. A new planner is one file and
 * one line here. */
#include "base/names.h"
#include "io/json.h"
#include "plan/pase.h"

#include <string.h>

static const fr_planner *const planners[] = {
    &fr__planner_pipedream, &fr__planner_dapple, &fr__planner_exact,     &fr__planner_adapipe,
    &fr__planner_bapipe,    &fr__planner_spp,    &fr__planner_graphpipe, &fr__planner_dlplacer,
    &fr__planner_list,      &fr__planner_pase,   &fr__planner_brute,     NULL,
};

FR_REGISTRY(fr_planner, planners, fr_planner_list, fr_planner_find)

void fr_plan_free(fr_plan *p)
{
    if (p) fr__arena_free(p->arena); /* which holds the plan itself */
}

static void write_plan(fr__json *j, const fr_plan *p, const fr_profile *profile)
{
    fr__json_object(j, NULL);
    fr__json_text(j, "planner", p->planner);
    fr__json_list(j, "stages");
    for (int s = 0; s < p->n_stages; s++) {
        fr__json_object(j, NULL);
        fr__json_list(j, "nodes");
        for (int i = 0; i < profile->n_nodes; i++)
            if (p->stage_of[i] == s) fr__json_text(j, NULL, profile->nodes[i].name);
        fr__json_end(j);
        fr__json_int(j, "replicas", p->stages[s].replicas);
        fr__json_real(j, "time_s", p->stages[s].time_s);
        if (p->device_of) {
            fr__json_int(j, "device", p->stages[s].device);
        } else {
            fr__json_list(j, "devices");
            for (int r = 0; r < p->stages[s].replicas; r++)
                fr__json_int(j, NULL, p->stages[s].devices[r]);
            fr__json_end(j);
        }
        if (p->recompute) {
            fr__json_list(j, "recompute");
            for (int i = 0; i < profile->n_nodes; i++)
                if (p->stage_of[i] == s && p->recompute[i])
                    fr__json_text(j, NULL, profile->nodes[i].name);
            fr__json_end(j);
        }
        fr__json_end(j);
    }
    fr__json_end(j);
    fr__json_real(j, "time_s", p->time_s);
    fr__json_bool(j, "is_optimal", p->is_optimal);
    fr__json_text(j, "why", p->why);
    fr__json_end(j);
}

char *fr_plan_to_json(const fr_plan *p, const fr_profile *profile)
{
    fr__json j;
    fr__json_to_text(&j, 0);
    if (p->splits)
        fr__write_splits(&j, p);
    else
        write_plan(&j, p, profile);
    return fr__json_take(&j, "");
}
