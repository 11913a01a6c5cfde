/* list.c -- list scheduling (in the style of Tavarageri, Sridharan and Kaul, 2019, of whose paper
 * only the abstract is known to us): operators of one replica on several devices, in the order of
 * their longest way to the end, each where it ends first; then moved one by one while the
 * mini-batch gets shorter. The start solution of dlplacer, in a fraction of its time. */
#include "plan/place.h"

#include <math.h>
#include <stdio.h>

enum { MOST_DEVICES = 64, MOST_OPERATORS = 1000 };

static fr_status make(struct fr__task *t, fr_plan **out)
{
    struct fr__jobs jobs;
    struct fr__placing best;
    double one = 0;
    if (t->n_devices > MOST_DEVICES || t->n > MOST_OPERATORS)
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "list: %d operators on %d devices; it places at most %d on %d; planners "
                       "exact and pipedream cut models of any size",
                       t->n, t->n_devices, MOST_OPERATORS, MOST_DEVICES);
    FR_TRY(fr__jobs_make(t, &jobs));
    FR_TRY(fr__placing_make(t->ctx, &t->arena, &jobs, &best));
    double *tail = FR_ARENA_ARRAY(&t->arena, double, t->n + 1);
    if (!tail) return fr__no_memory(t->ctx, sizeof *tail, "a placing");
    FR_TRY(fr__place_list(t->ctx, &jobs, &best));
    if (!isfinite(best.makespan))
        return fr_fail(t->ctx, FR_INVALID,
                       "list: found no placement of %d operators that fits %d devices of %.3g MB; "
                       "allow more devices or memory",
                       t->n, t->n_devices, t->least / 1e6);
    fr__place_tails(&jobs, tail);
    double bound = fr__place_bound(&jobs, tail);
    for (int i = 0; i < t->n; i++) one += jobs.time[i] / t->slowest;
    FR_TRY(fr__plan_place(t, "list", &jobs, &best, out));
    (*out)->is_optimal = best.makespan <= bound * (1 + 1e-9);
    snprintf((*out)->why, sizeof(*out)->why,
             "%d operators on %d devices: %.6g s, on one %.6g s; at most %.2f %% above the least",
             t->n, t->n_devices, best.makespan, one, 100 * (best.makespan / bound - 1));
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, 0, make, out);
}

const fr_planner fr__planner_list = {
    .name = "list",
    .summary = "operators of one replica on devices, each where it ends first, then moved",
    .method = "1f1b",
    .plan = plan,
};
