/* choose_options.c -- the layouts worth a try: methods x stages x replicas x micro-batches x
 * devices.
 *
 * Every stage has as many replicas as the others, or (on small clusters) as many as pipedream,
 * dapple or exact say. Replicas divide the micro-batches, and those divide the mini-batch. Of the
 * places of choose_devices.c those with the best estimates are kept; each has cuts of its own.
 * Methods with one schedule take one time: the first of them stands for all. */
#include "plan/choose.h"

#include <forerun/exec_plan.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- one option ------------------------------------------------------------------------------- */

bool fr__choose_can(const struct fr__chooser *c, int method, const struct fr__option *o)
{
    const fr_plan_method *m = &c->d->methods[method];
    const int n_micro = o->size->n_micro;
    fr_schedule_desc d = {.n_stages = o->n_stages,
                          .chunks = o->chunks,
                          .n_micro = n_micro / o->replicas[0],
                          .n_batches = m->generator->is_flush ? 1 : 4,
                          .lead = o->lead,
                          .replicas = o->replicas};
    if (m->generator->check && m->generator->check(&d)) return false;
    d.n_micro = n_micro;
    for (int s = 0; s < o->n_stages; s++) {
        if (n_micro % o->replicas[s] != 0) return false;
        if (o->replicas[s] != o->replicas[0] && !m->generator->any_replicas) return false;
    }
    return !m->policy || fr_exec_takes_policy(m->generator, &d, m->policy);
}

static enum fr__class class_of(const struct fr__chooser *c, const struct fr__option *o)
{
    if (o->n_workers == 1) return FR__ALONE;
    if (o->n_stages == 1) return FR__DATA;
    return c->d->methods[o->method].is_allowed_async ? FR__ASYNC : FR__FLUSH;
}

static bool may_add(const struct fr__chooser *c, const struct fr__option *o)
{
    return o->n_workers <= c->n_devices && (!c->d->all_devices || o->n_workers == c->n_devices) &&
           fr__choose_can(c, o->method, o);
}

static bool has_limits(const struct fr__chooser *c)
{
    for (int d = 0; d < c->d->cluster->n_devices; d++)
        if (c->d->cluster->devices[d].memory > 0) return true;
    return false;
}

static fr_status add(struct fr__chooser *c, struct fr__option o)
{
    o.class = class_of(c, &o);
    FR_TRY(fr__choose_weigh(c, &o));
    return fr__vec_push(&c->options, o) ? FR_OK : fr__no_memory(c->ctx, sizeof o, "options");
}

/* Options of one method, size and shape, on their places. */
typedef FR_VEC(struct fr__option) options;

static int by_estimate(const void *a, const void *b)
{
    const struct fr__option *x = a, *y = b;
    return x->estimate < y->estimate ? -1 : x->estimate > y->estimate;
}

/* A place with all of its balanced cuts. */
static fr_status weigh_place(struct fr__chooser *c, struct fr__option o, options *to)
{
    const int first = c->has_choice ? FR__BY_WORK : FR__BY_LINKS;
    const int last = c->has_choice && has_limits(c) ? FR__BY_AMPLE_MEMORY : FR__BY_LINKS;
    for (int aim = first; aim <= last; aim++) {
        FR_TRY(fr__choose_cuts(c, &o, (enum fr__aim)aim, &o.cuts));
        if (!o.cuts) continue;
        FR_TRY(fr__choose_weigh(c, &o));
        if ((aim <= FR__BY_LINKS || !o.is_too_large) && !fr__vec_push(to, o))
            return fr__no_memory(c->ctx, sizeof o, "options");
    }
    return FR_OK;
}

/* The first places: with cuts that have better estimates, as long as the budget lasts. Estimates
 * say less of several chunks on a worker: their balanced cuts stay, too. */
static fr_status move_all(struct fr__chooser *c, options *of)
{
    const size_t n = of->n;
    double budget = c->has_choice && c->n_devices <= 16 ? 2e5 : 0; /* nodes looked at */
    qsort(of->at, n, sizeof *of->at, by_estimate);
    for (size_t i = 0; i < n && budget > 0; i++) {
        const struct fr__option balanced = of->at[i];
        FR_TRY(fr__choose_climb(c, &of->at[i], &budget));
        if (balanced.chunks > 1 && !fr__vec_push(of, balanced))
            return fr__no_memory(c->ctx, sizeof balanced, "options");
    }
    if (c->has_choice) qsort(of->at, of->n, sizeof *of->at, by_estimate);
    return FR_OK;
}

static bool is_same(const struct fr__option *a, const struct fr__option *b)
{
    return a->device_of == b->device_of &&
           memcmp(a->cuts, b->cuts, (size_t)(a->n_stages - 1) * sizeof *a->cuts) == 0;
}

/* The best, and the best of those that seem to fit, are added. */
static fr_status add_best(struct fr__chooser *c, const options *of)
{
    enum { MOST = 12 };
    int n_any = 0, n_fitting = 0;
    for (size_t i = 0; i < of->n; i++) {
        struct fr__option o = of->at[i];
        bool is_new = true, fits = !o.is_too_large;
        for (size_t k = 0; k < i && is_new; k++) is_new = !is_same(&o, &of->at[k]);
        if (!is_new || (n_any >= MOST && (!fits || n_fitting >= MOST))) continue;
        o.is_variant = n_any > 0 && (!fits || n_fitting > 0);
        n_any++, n_fitting += fits;
        FR_TRY(add(c, o));
    }
    return FR_OK;
}

/* An option on all of its places: the best are added. */
static fr_status add_uniform(struct fr__chooser *c, struct fr__option o, int r)
{
    int *replicas = FR_ARENA_ARRAY(c->arena, int, o.n_stages);
    const struct fr__shape *shape;
    const double units = o.size->task.n;
    options of = {0};
    if (!replicas) return fr__no_memory(c->ctx, sizeof(int), "options");
    for (int s = 0; s < o.n_stages; s++) replicas[s] = r;
    o.replicas = replicas, o.n_workers = o.n_stages / o.chunks * r;
    if (!may_add(c, &o)) return FR_OK;
    FR_TRY(fr__choose_shape(c, o.n_stages / o.chunks, r, &shape));
    size_t most = (size_t)fmax(1, 2e7 / (units * units)); /* cuts of a place take units^2 */
    fr_status status = FR_OK;
    for (size_t i = 0; status == FR_OK && i < shape->places.n && i < most; i++) {
        o.device_of = shape->places.at[i].device_of;
        o.is_across = shape->places.at[i].is_across;
        status = weigh_place(c, o, &of);
    }
    if (status == FR_OK && of.n) status = move_all(c, &of);
    if (status == FR_OK) status = add_best(c, &of);
    fr__vec_fini(&of);
    return status;
}

/* --- layouts with equal replicas -------------------------------------------------------------- */

/* Numbers worth a try up to n: all of the first 8, then 2^k, 3 * 2^k, and n; and those of the
 * devices of one speed, `each` of them together. */
static int next_number(const struct fr__chooser *c, int i, int n, int each)
{
    if (i >= n) return n + 1;
    for (i++; i > 8 && i < n; i++) {
        int odd = i;
        while (odd % 2 == 0) odd /= 2;
        if (odd == 1 || odd == 3) break;
        for (int k = 0; k < c->n_steps; k++)
            if (i * each == c->steps[k]) return i;
    }
    return i;
}

/* Micro-batches of a pipeline: as few as possible, then about twice as many each time. */
static fr_status add_sizes(struct fr__chooser *c, struct fr__option o, int r)
{
    const int batch = c->d->batch, most = o.n_stages == 1 && !has_limits(c) ? 8 : 64;
    for (int share = 1, last = 0; share <= batch / r && share <= most; share++) {
        if (batch % (share * r) != 0 || (last && share < 2 * last && share != o.n_stages)) continue;
        last = share;
        FR_TRY(fr__choose_size(c, share * r, &o.size));
        FR_TRY(fr__choose_devices(c, &o.size->task));
        if (o.n_stages > o.size->task.n) return FR_OK;
        FR_TRY(add_uniform(c, o, r));
    }
    return FR_OK;
}

bool fr__choose_is_twin(const struct fr__chooser *c, int a, int b)
{
    const fr_plan_method *x = &c->d->methods[a], *y = &c->d->methods[b];
    return x->generator == y->generator && x->chunks == y->chunks && x->max_lead == y->max_lead &&
           x->max_stages == y->max_stages && x->wants_replicas == y->wants_replicas;
}

/* Is it the first of those with its schedule? */
static bool stands_for_itself(const struct fr__chooser *c, int method)
{
    for (int i = 0; i < method; i++)
        if (fr__choose_is_twin(c, i, method)) return false;
    return true;
}

static fr_status add_method(struct fr__chooser *c, int method, bool from_one)
{
    const fr_plan_method *m = &c->d->methods[method];
    int chunks = m->chunks > 1 ? m->chunks : 1, n = c->n_devices;
    bool is_whole = m->max_stages == 1;
    for (int w = is_whole || from_one ? 1 : 2; w <= (is_whole ? 1 : n);
         w = next_number(c, w, is_whole ? 1 : n, 1)) {
        int most = is_whole && !m->wants_replicas ? 1 : n / w;
        for (int r = m->wants_replicas ? 2 : 1; r <= most; r = next_number(c, r, most, w))
            if (c->d->batch % r == 0 && (m->max_stages == 0 || w * chunks <= m->max_stages))
                FR_TRY(add_sizes(c,
                                 (struct fr__option){.method = method,
                                                     .n_stages = w * chunks,
                                                     .chunks = chunks,
                                                     .from = "balanced cuts"},
                                 r));
    }
    return FR_OK;
}

/* --- layouts of planners ---------------------------------------------------------------------- */

static fr_status add_plan(struct fr__chooser *c, struct fr__size *size, const fr_plan *plan,
                          const char *from)
{
    int *replicas = FR_ARENA_ARRAY(c->arena, int, plan->n_stages), n = plan->n_stages;
    int *cuts = FR_ARENA_ARRAY(c->arena, int, n), *at = NULL, n_workers = 0;
    if (!replicas || !cuts) return fr__no_memory(c->ctx, sizeof(int), "options");
    for (int s = 0; s < n; s++) {
        n_workers += replicas[s] = plan->stages[s].replicas;
        if (s) cuts[s - 1] = plan->stages[s].first;
    }
    if (!(at = FR_ARENA_ARRAY(c->arena, int, n_workers)))
        return fr__no_memory(c->ctx, sizeof(int), "options");
    for (int s = 0, w = 0; s < n; s++)
        for (int r = 0; r < replicas[s]; r++) at[w++] = plan->stages[s].devices[r];
    for (int m = 0; m < c->d->n_methods; m++) {
        const fr_plan_method *method = &c->d->methods[m];
        struct fr__option o = {.size = size,
                               .method = m,
                               .n_stages = n,
                               .chunks = 1,
                               .n_workers = n_workers,
                               .cuts = cuts,
                               .replicas = replicas,
                               .device_of = at,
                               .from = from};
        if (method->max_stages || method->chunks > 1 || !stands_for_itself(c, m) || n < 2) continue;
        if (may_add(c, &o)) FR_TRY(add(c, o));
    }
    return FR_OK;
}

/* A planner's proposal for so many devices; one that finds nothing proposes nothing. */
static fr_status ask(struct fr__chooser *c, struct fr__size *size, int n_devices, const char *name,
                     const char *from)
{
    fr_plan *plan = NULL;
    fr_plan_problem p = size->problem;
    p.n_devices = n_devices, p.seconds = 0.1;
    fr_status status = fr_planner_find(name)->plan(c->ctx, &p, &plan);
    if (status != FR_NO_MEMORY) status = FR_OK;
    if (plan) status = add_plan(c, size, plan, from);
    fr_plan_free(plan);
    return status;
}

/* On small clusters. Pipedream and dapple count all devices as the slowest one: they are asked
 * about the fast ones alone, too. */
static fr_status add_planners(struct fr__chooser *c)
{
    static const char *const names[] = {"pipedream", "dapple", "exact", "adapipe"};
    static const char *const from[] = {"cuts by pipedream", "cuts by dapple", "cuts by exact",
                                       "cuts by adapipe"};
    size_t n_sizes = c->sizes.n, n_names = sizeof names / sizeof *names;
    if (!c->d->may_recompute || !has_limits(c)) n_names--; /* adapipe is then exact without links */
    if (c->n_devices > 16 || c->n_devices < 2) return FR_OK;
    for (size_t i = 0; i < n_sizes; i++)
        for (size_t k = 0; k < n_names; k++) {
            FR_TRY(ask(c, c->sizes.at[i], c->n_devices, names[k], from[k]));
            for (int s = 0; s < c->n_steps && k < 2 && !c->d->all_devices; s++)
                if (c->steps[s] > 1 && c->steps[s] < c->n_devices)
                    FR_TRY(ask(c, c->sizes.at[i], c->steps[s], names[k], from[k]));
        }
    return FR_OK;
}

fr_status fr__choose_options(struct fr__chooser *c)
{
    bool has_whole = false;
    for (int m = 0; m < c->d->n_methods; m++)
        has_whole =
            has_whole || (c->d->methods[m].max_stages == 1 && !c->d->methods[m].wants_replicas);
    for (int m = 0; m < c->d->n_methods; m++)
        if (stands_for_itself(c, m)) FR_TRY(add_method(c, m, !has_whole));
    return add_planners(c);
}
