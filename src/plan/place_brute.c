/* place_brute.c -- every placement of operators in every order that can matter.
 *
 * For each placement the orders are searched depth first: of all jobs and transfers that may come
 * next, the one that would end first decides on a device or link, and each that could begin there
 * before that end is tried in its turn (Giffler and Thompson, 1960: the best schedule is among
 * these). A branch whose longest remaining way is no better than the best schedule is left. */
#include "plan/place.h"

#include <math.h>
#include <string.h>

struct search {
    const struct fr__jobs *j;
    struct fr__placing *now, *best;
    double *end;  /* (n + arcs); negative: not yet */
    double *free; /* (devices + devices^2) */
    double *tail; /* (n + arcs): from its begin to the end of all, in this placement */
    int left;
};

static bool is_moved(const struct search *o, int k)
{
    const struct fr__arc *a = &o->j->arcs[k];
    return o->now->device[a->from] != o->now->device[a->to] && a->time > 0;
}

static int resource(const struct search *o, int i)
{
    const struct fr__jobs *j = o->j;
    if (i < j->n) return o->now->device[i];
    const struct fr__arc *a = &j->arcs[i - j->n];
    return j->n_devices * (1 + o->now->device[a->from]) + o->now->device[a->to];
}

static double length(const struct search *o, int i)
{
    return i < o->j->n ? o->j->time[i] / o->j->speed[o->now->device[i]]
                       : o->j->arcs[i - o->j->n].time;
}

/* When it can begin; negative: not yet, or done, or nothing to do. */
static double ready(const struct search *o, int i)
{
    const struct fr__jobs *j = o->j;
    double at = o->free[resource(o, i)];
    if (o->end[i] >= 0) return -1;
    if (i >= j->n) {
        double made = o->end[j->arcs[i - j->n].from];
        return made < 0 || !is_moved(o, i - j->n) ? -1 : fmax(at, made);
    }
    for (int k = j->first_in[i]; k < j->first_in[i + 1]; k++) {
        double come = o->end[is_moved(o, k) ? j->n + k : j->arcs[k].from];
        if (come < 0) return -1;
        at = fmax(at, come);
    }
    return at;
}

static void order(struct search *o, double makespan)
{
    const struct fr__jobs *j = o->j;
    int total = j->n + j->n_arcs, first = -1;
    double first_end = INFINITY;
    if (o->left == 0) {
        o->now->makespan = makespan;
        if (makespan < o->best->makespan) fr__placing_copy(j, o->now, o->best);
        return;
    }
    for (int i = 0; i < total; i++) {
        double at = ready(o, i);
        if (at < 0) continue;
        if (at + o->tail[i] >= o->best->makespan) return;
        if (at + length(o, i) < first_end) first = i, first_end = at + length(o, i);
    }
    int where = resource(o, first);
    for (int i = 0; i < total; i++) {
        double at = ready(o, i), was = o->free[where];
        if (at < 0 || resource(o, i) != where || (i != first && at >= first_end)) continue;
        o->end[i] = o->free[where] = at + length(o, i);
        *(i < j->n ? &o->now->start[i] : &o->now->sent[i - j->n]) = at;
        o->left--;
        order(o, fmax(makespan, o->end[i]));
        o->left++;
        o->end[i] = -1, o->free[where] = was;
    }
}

static void try_placement(struct search *o)
{
    const struct fr__jobs *j = o->j;
    int total = j->n + j->n_arcs;
    if (!fr__place_fits(j, o->now->device)) return;
    o->left = j->n;
    for (int i = 0; i < total; i++) o->end[i] = -1, o->tail[i] = 0;
    for (int i = j->n - 1; i >= 0; i--) {
        o->tail[i] += length(o, i); /* so far: the longest of what follows */
        for (int k = j->first_in[i]; k < j->first_in[i + 1]; k++) {
            double way = o->tail[i];
            if (is_moved(o, k)) way = o->tail[j->n + k] = way + j->arcs[k].time, o->left++;
            o->tail[j->arcs[k].from] = fmax(o->tail[j->arcs[k].from], way);
        }
    }
    for (int i = 0; i < j->n; i++)
        if (o->tail[i] >= o->best->makespan) return;
    memset(o->free, 0, (size_t)(j->n_devices * (1 + j->n_devices)) * sizeof *o->free);
    order(o, 0);
}

static void place(struct search *o, int i)
{
    const struct fr__jobs *j = o->j;
    if (i == j->n) {
        try_placement(o);
        return;
    }
    for (int d = 0; d < j->n_devices; d++) {
        if (j->fixed && j->fixed[i] >= 0 && j->fixed[i] != d) continue;
        o->now->device[i] = d;
        place(o, i + 1);
    }
}

fr_status fr__place_brute(fr_ctx *ctx, const struct fr__jobs *j, struct fr__placing *best)
{
    fr_arena scratch = {0};
    struct fr__placing now;
    int total = j->n + j->n_arcs;
    fr_status status = fr__placing_make(ctx, &scratch, j, &now);
    struct search o = {.j = j, .now = &now, .best = best};
    o.end = FR_ARENA_ARRAY(&scratch, double, total);
    o.tail = FR_ARENA_ARRAY(&scratch, double, total);
    o.free = FR_ARENA_ARRAY(&scratch, double, j->n_devices *(1 + j->n_devices));
    best->makespan = INFINITY;
    if (status == FR_OK && o.end && o.tail && o.free)
        place(&o, 0);
    else
        status = fr__no_memory(ctx, (size_t)total * sizeof(double), "a placing");
    fr__arena_fini(&scratch);
    if (status == FR_OK && !isfinite(best->makespan))
        status =
            fr_fail(ctx, FR_INVALID, "no placement of %d operators fits the memory of %d devices",
                    j->n, j->n_devices);
    return status;
}
