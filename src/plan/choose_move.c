/* choose_move.c -- the best layouts, changed while the simulator says that it helps: a cut by one
 * node, a worker to an idle device, two workers or stages to each other's devices.
 *
 * A layout that is too large is first cut otherwise until it fits.
 *
 * Exchanges between devices of one class change nothing and are left out. The others are weighed,
 * with the cuts as they are and with cuts balanced anew, and simulated in the order of their
 * estimates. */
#include "plan/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Weighed in a round; simulated of them; found to be too large. */
enum { MOST_EXCHANGES = 400, MOST_TRIES = 12, MOST_TOO_LARGE = 48 };

/* --- cuts ------------------------------------------------------------------------------------- */

/* The cut moved to the next unit; false: there is none between its neighbours. */
static bool move_cut(const struct fr__option *o, int *cuts, int k, int by)
{
    const struct fr__task *t = &o->size->task;
    const int low = k ? fr__task_unit(t, cuts[k - 1]) : 0;
    const int high = k < o->n_stages - 2 ? fr__task_unit(t, cuts[k + 1]) : t->n;
    const int at = fr__task_unit(t, cuts[k]) + by;
    if (at <= low || at >= high) return false;
    cuts[k] = t->node[at];
    return true;
}

/* The option with these cuts, if it fits and *o does not, or its estimate is better: *o, whose cuts
 * are then in `best`. */
static fr_status weigh_cuts(struct fr__chooser *c, struct fr__option *o, const int *cuts, int *best,
                            double *budget, bool *has_gained)
{
    struct fr__option next = *o;
    next.cuts = cuts;
    *budget -= o->size->task.n;
    FR_TRY(fr__choose_weigh(c, &next));
    if (next.is_too_large != o->is_too_large ? next.is_too_large
                                             : !(next.estimate < o->estimate * (1 - 1e-9)))
        return FR_OK;
    memcpy(best, cuts, (size_t)(o->n_stages - 1) * sizeof *best);
    next.cuts = best;
    *o = next;
    *has_gained = true;
    return FR_OK;
}

/* Ways to cut n units so many times, up to a number that is too large. */
static double n_ways(int n, int n_cuts)
{
    double ways = 1;
    for (int k = 0; k < n_cuts && ways < 1e6; k++) ways = ways * (n - 1 - k) / (k + 1);
    return ways;
}

/* Cut k, and all behind it, at every unit from u on. */
static fr_status weigh_all(struct fr__chooser *c, struct fr__option *o, int k, int u, int *cuts,
                           int *best, double *budget)
{
    const struct fr__task *t = &o->size->task;
    const int n = o->n_stages - 1;
    bool has_gained;
    if (k == n) return weigh_cuts(c, o, cuts, best, budget, &has_gained);
    for (; u < t->n - (n - 1 - k); u++) {
        cuts[k] = t->node[u];
        FR_TRY(weigh_all(c, o, k + 1, u + 1, cuts, best, budget));
    }
    return FR_OK;
}

/* Cuts moved by one node while that helps. */
static fr_status climb(struct fr__chooser *c, struct fr__option *o, int *cuts, int *best,
                       double *budget)
{
    const int n = o->n_stages - 1;
    for (bool has_gained = true; has_gained && *budget > 0;) {
        has_gained = false;
        for (int i = 0; i<2 * n && * budget> 0; i++) {
            memcpy(cuts, o->cuts, (size_t)n * sizeof *cuts);
            if (move_cut(o, cuts, i / 2, i % 2 ? 1 : -1))
                FR_TRY(weigh_cuts(c, o, cuts, best, budget, &has_gained));
        }
    }
    return FR_OK;
}

fr_status fr__choose_climb(struct fr__chooser *c, struct fr__option *o, double *budget)
{
    const int n = o->n_stages - 1;
    const double few = 400;
    if (n == 0) return FR_OK;
    int *cuts = FR_NEW_ARRAY(int, n), *best = FR_ARENA_ARRAY(c->arena, int, n);
    fr_status status = FR_NO_MEMORY;
    if (!cuts || !best)
        fr__no_memory(c->ctx, (size_t)n * sizeof *cuts, "cuts");
    else if (n_ways(o->size->task.n, n) <= few)
        status = weigh_all(c, o, 0, 1, cuts, best, budget);
    else
        status = climb(c, o, cuts, best, budget);
    fr__free(cuts);
    return status;
}

/* *next is better than *at, which becomes it. */
static bool take(struct fr__outcome *at, const struct fr__outcome *next)
{
    if (!next->fits || next->method != at->method ||
        !(next->s_per_batch < at->s_per_batch * (1 - 1e-9)))
        return false;
    int n_moves = at->n_moves + 1;
    *at = *next;
    at->n_moves = n_moves;
    return true;
}

static fr_status move_cuts(struct fr__chooser *c, struct fr__outcome *at, int *tries,
                           bool *has_gained)
{
    const struct fr__option *o = at->option;
    const int n = o->n_stages - 1;
    for (int i = 0; i<2 * n && * tries> 0; i++) {
        int *cuts = FR_ARENA_ARRAY(c->arena, int, n);
        struct fr__outcome next;
        if (!cuts) return fr__no_memory(c->ctx, sizeof(int), "cuts");
        memcpy(cuts, at->cuts, (size_t)n * sizeof *cuts);
        if (!move_cut(o, cuts, i / 2, i % 2 ? 1 : -1)) continue;
        --*tries;
        FR_TRY(fr__choose_try(c, o, at->method, cuts, &next));
        if (take(at, &next)) *has_gained = true;
    }
    return FR_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Bytes that a stage's worst replica has left, as a share of what it may use; below 0: too few. */
static double room_of(const struct fr__chooser *c, const struct fr__outcome *at, int stage)
{
    const struct fr__option *o = at->option;
    const int first = fr__choose_first(c, o, stage);
    double least = 1;
    for (int w = first; w < first + o->replicas[stage]; w++) {
        double limit = (double)c->d->cluster->devices[fr__choose_device(o, w)].memory;
        if (limit > 0) least = fmin(least, 1 - (double)at->memory[w] / limit);
    }
    return least;
}

/* A node of a stage on the worker that has the least room goes to the neighbour with the most.
 * False: none has any, or no node is left to give. */
static bool make_room(const struct fr__chooser *c, const struct fr__outcome *at, int *cuts,
                      int *moved)
{
    const struct fr__option *o = at->option;
    const int n = o->n_stages;
    double least = INFINITY, most = 0;
    for (int s = 0; s < n; s++) least = fmin(least, room_of(c, at, s));
    bool is_found = false;
    for (int i = 0; i < 2 * (n - 1); i++) { /* before a cut, behind it */
        const int k = i / 2, from = k + i % 2, to = k + 1 - i % 2;
        memcpy(moved, at->cuts, (size_t)(n - 1) * sizeof *moved);
        if (room_of(c, at, from) > least || room_of(c, at, to) <= most ||
            !move_cut(o, moved, k, i % 2 ? 1 : -1))
            continue;
        most = room_of(c, at, to), is_found = true;
        memcpy(cuts, moved, (size_t)(n - 1) * sizeof *cuts);
    }
    return is_found;
}

/* Devices without room for their workers change places with equally fast ones, in use or idle, if
 * both then have room. False: none can. */
static bool swap_devices(const struct fr__chooser *c, const struct fr__outcome *at, int *device_of,
                         int *worker_of)
{
    const struct fr__option *o = at->option;
    const double *speed = o->size->task.speed;
    const int n_all = c->d->cluster->n_devices;
    bool is_found = false;
    for (int d = 0; d < n_all; d++) worker_of[d] = -1;
    for (int w = 0; w < o->n_workers; w++) worker_of[device_of[w] = fr__choose_device(o, w)] = w;
    for (int w = 0; w < o->n_workers; w++) {
        const int own = device_of[w];
        for (int d = 0; d < n_all && !fr__choose_has_room(c, device_of[w], at->memory[w]); d++) {
            const int other = worker_of[d];
            if (speed[d] != speed[own] || !fr__choose_has_room(c, d, at->memory[w]) ||
                (other >= 0 && !fr__choose_has_room(c, own, at->memory[other])))
                continue;
            if (other >= 0) device_of[other] = own;
            worker_of[own] = other, worker_of[d] = w, device_of[w] = d;
            is_found = true;
        }
    }
    return is_found;
}

static fr_status fit_devices(struct fr__chooser *c, struct fr__outcome *at)
{
    struct fr__option *o = FR_ARENA_NEW(c->arena, struct fr__option);
    const int n = at->option->n_workers;
    int *device_of = FR_ARENA_ARRAY(c->arena, int, n + c->d->cluster->n_devices);
    struct fr__outcome next;
    if (!o || !device_of) return fr__no_memory(c->ctx, sizeof *o, "devices");
    if (!swap_devices(c, at, device_of, device_of + n)) return FR_OK;
    *o = *at->option;
    o->device_of = device_of, o->is_across = false;
    FR_TRY(fr__choose_try(c, o, at->method, at->cuts, &next));
    next.n_moves = at->n_moves + 1;
    *at = next;
    return FR_OK;
}

fr_status fr__choose_fit(struct fr__chooser *c, struct fr__outcome *at)
{
    FR_TRY(fit_devices(c, at));
    const struct fr__option *o = at->option;
    const int n = o->n_stages, most = o->size->task.n;
    for (int tries = 0; !at->fits && tries < most && n > 1; tries++) {
        int *cuts = FR_ARENA_ARRAY(c->arena, int, 2 * n);
        struct fr__outcome next;
        if (!cuts) return fr__no_memory(c->ctx, sizeof(int), "cuts");
        if (!make_room(c, at, cuts, cuts + n)) return FR_OK;
        FR_TRY(fr__choose_try(c, o, at->method, cuts, &next));
        next.n_moves = at->n_moves + 1;
        *at = next;
    }
    return FR_OK;
}

/* --- devices ---------------------------------------------------------------------------------- */

typedef FR_VEC(struct fr__option) exchanges;

static int by_estimate(const void *a, const void *b)
{
    const struct fr__option *x = a, *y = b;
    return x->estimate < y->estimate ? -1 : x->estimate > y->estimate;
}

/* The layout with n workers from a on and n from b on on each other's devices; b -1: a on the idle
 * device. */
static fr_status add_exchange(struct fr__chooser *c, const struct fr__outcome *at, int a, int b,
                              int n, int idle, exchanges *to)
{
    struct fr__option moved = *at->option;
    int *device_of = FR_ARENA_ARRAY(c->arena, int, moved.n_workers);
    if (!device_of) return fr__no_memory(c->ctx, sizeof(int), "devices");
    for (int w = 0; w < moved.n_workers; w++) device_of[w] = fr__choose_device(at->option, w);
    for (int i = 0; i < n && b >= 0; i++) {
        device_of[a + i] = fr__choose_device(at->option, b + i);
        device_of[b + i] = fr__choose_device(at->option, a + i);
    }
    if (b < 0) device_of[a] = idle;
    moved.device_of = device_of, moved.is_across = false, moved.cuts = at->cuts;
    FR_TRY(fr__choose_weigh(c, &moved));
    for (int aim = FR__BY_WORK; aim <= FR__BY_LINKS; aim++) {
        struct fr__option anew = moved;
        FR_TRY(fr__choose_balance(c, &anew, (enum fr__aim)aim, &anew.cuts));
        if (anew.cuts) FR_TRY(fr__choose_weigh(c, &anew));
        if (anew.cuts && anew.estimate < moved.estimate) moved = anew;
    }
    return fr__vec_push(to, moved) ? FR_OK : fr__no_memory(c->ctx, sizeof moved, "devices");
}

/* Exchanges of worker a, which is of a stage with n replicas up to `end`: with those of stages
 * behind it, and with one idle device of each class. */
static fr_status add_exchanges_of(struct fr__chooser *c, const struct fr__outcome *at, int a,
                                  int end, const bool *is_used, bool *is_seen, exchanges *to)
{
    const struct fr__option *o = at->option;
    const int own = c->class_of[fr__choose_device(o, a)];
    for (int b = end; b < o->n_workers && to->n < MOST_EXCHANGES; b++)
        if (c->class_of[fr__choose_device(o, b)] != own)
            FR_TRY(add_exchange(c, at, a, b, 1, -1, to));
    memset(is_seen, 0, (size_t)c->n_classes * sizeof *is_seen);
    is_seen[own] = true;
    for (int d = 0; d < c->d->cluster->n_devices && to->n < MOST_EXCHANGES; d++) {
        if (is_used[d] || is_seen[c->class_of[d]]) continue;
        is_seen[c->class_of[d]] = true;
        FR_TRY(add_exchange(c, at, a, -1, 1, d, to));
    }
    return FR_OK;
}

/* All replicas of a stage with all of one behind it. */
static fr_status add_exchanges_of_stage(struct fr__chooser *c, const struct fr__outcome *at,
                                        int stage, int first, exchanges *to)
{
    const struct fr__option *o = at->option;
    const int r = o->replicas[stage];
    int b = first + r;
    for (int s = stage + 1; r > 1 && b < o->n_workers && to->n < MOST_EXCHANGES; s++) {
        if (o->replicas[s] == r) FR_TRY(add_exchange(c, at, first, b, r, -1, to));
        b += o->replicas[s];
    }
    return FR_OK;
}

static fr_status find_exchanges(struct fr__chooser *c, const struct fr__outcome *at, exchanges *to)
{
    const struct fr__option *o = at->option;
    const int n_all = c->d->cluster->n_devices;
    bool *is_used = FR_NEW_ARRAY(bool, n_all), *is_seen = FR_NEW_ARRAY(bool, c->n_classes);
    fr_status status = is_used && is_seen ? FR_OK : fr__no_memory(c->ctx, (size_t)n_all, "devices");
    for (int w = 0; status == FR_OK && w < o->n_workers; w++)
        is_used[fr__choose_device(o, w)] = true;
    for (int s = 0, w = 0; status == FR_OK && w < o->n_workers; s++) {
        const int end = w + o->replicas[s];
        status = add_exchanges_of_stage(c, at, s, w, to);
        for (; status == FR_OK && w < end; w++)
            if (to->n < MOST_EXCHANGES)
                status = add_exchanges_of(c, at, w, end, is_used, is_seen, to);
    }
    fr__free(is_used), fr__free(is_seen);
    return status;
}

/* The exchange in the simulator; one that is too large is cut otherwise, if that makes it fit. */
static fr_status try_exchange(struct fr__chooser *c, const struct fr__option *of, int method,
                              struct fr__outcome *out)
{
    struct fr__option *o = FR_ARENA_NEW(c->arena, struct fr__option);
    if (!o) return fr__no_memory(c->ctx, sizeof *o, "devices");
    *o = *of;
    FR_TRY(fr__choose_try(c, o, method, o->cuts, out));
    return out->fits ? FR_OK : fr__choose_fit(c, out);
}

static fr_status try_exchanges(struct fr__chooser *c, struct fr__outcome *at, exchanges *of,
                               int *tries, bool *has_gained)
{
    struct fr__outcome best = *at;
    int n_simulated = 0, n_too_large = 0; /* those take no simulation */
    if (of->n) qsort(of->at, of->n, sizeof *of->at, by_estimate);
    for (size_t i = 0; i < of->n && n_simulated < MOST_TRIES && n_too_large < MOST_TOO_LARGE; i++) {
        struct fr__outcome next;
        if (*tries <= 0) break;
        if (of->at[i].bound >= best.s_per_batch) continue;
        FR_TRY(try_exchange(c, &of->at[i], at->method, &next));
        n_simulated += next.fits, n_too_large += !next.fits, *tries -= next.fits;
        if (take(&best, &next)) *has_gained = true;
    }
    int n_moves = at->n_moves + (best.option != at->option);
    *at = best;
    at->n_moves = n_moves;
    return FR_OK;
}

static fr_status move_devices(struct fr__chooser *c, struct fr__outcome *at, int *tries,
                              bool *has_gained)
{
    exchanges of = {0};
    fr_status status = find_exchanges(c, at, &of);
    if (status == FR_OK) status = try_exchanges(c, at, &of, tries, has_gained);
    fr__vec_fini(&of);
    return status;
}

fr_status fr__choose_refine(struct fr__chooser *c, struct fr__outcome *at, int tries)
{
    for (bool has_gained = true; has_gained && tries > 0;) {
        has_gained = false;
        if (c->has_choice && !c->is_even) FR_TRY(move_devices(c, at, &tries, &has_gained));
        FR_TRY(move_cuts(c, at, &tries, &has_gained));
    }
    return FR_OK;
}
