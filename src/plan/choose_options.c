/* choose_options.c -- the layouts worth a try: methods x stages x replicas x micro-batches x order
 * of devices.
 *
 * Every stage has as many replicas as the others, or (on small clusters) as many as pipedream,
 * dapple or exact say. Replicas divide the micro-batches, and those divide the mini-batch. Where a
 * cluster has several groups, the replicas of a stage sit side by side (sums stay inside a group)
 * or the stages of a pipeline do (activations do). Methods with one schedule take one time: the
 * first of them stands for all. */
#include "plan/choose.h"

#include <math.h>
#include <string.h>

/* --- one option ------------------------------------------------------------------------------- */

bool fr__choose_can(const struct fr__chooser *c, int method, const struct fr__option *o)
{
    const fr_plan_method *m = &c->d->methods[method];
    const int n_micro = o->size->n_micro;
    fr_schedule_desc d = {.n_stages = o->n_stages,
                          .chunks = o->chunks,
                          .n_micro = n_micro,
                          .n_batches = m->generator->is_flush ? 1 : 4,
                          .replicas = o->replicas};
    if (m->generator->check && m->generator->check(&d)) return false;
    for (int s = 0; s < o->n_stages; s++) {
        fr_seat seat = {.stage = s,
                        .n_stages = o->n_stages,
                        .n_micro = n_micro / o->replicas[s],
                        .n_slots = o->n_stages - s};
        if (n_micro % o->replicas[s] != 0) return false;
        if (o->replicas[s] != o->replicas[0] && !m->generator->any_replicas) return false;
        if (m->policy && m->policy->check && m->policy->check(&seat)) return false;
    }
    return true;
}

static enum fr__class class_of(const struct fr__chooser *c, const struct fr__option *o)
{
    if (o->n_workers == 1) return FR__ALONE;
    if (o->n_stages == 1) return FR__DATA;
    return c->d->methods[o->method].is_allowed_async ? FR__ASYNC : FR__FLUSH;
}

static fr_status add(struct fr__chooser *c, struct fr__option o)
{
    o.n_workers = 0;
    for (int s = 0; s < o.n_stages / o.chunks; s++) o.n_workers += o.replicas[s];
    if (o.n_workers > c->n_devices || (c->d->all_devices && o.n_workers != c->n_devices) ||
        !fr__choose_can(c, o.method, &o))
        return FR_OK;
    o.class = class_of(c, &o);
    FR_TRY(fr__choose_weigh(c, &o));
    return fr__vec_push(&c->options, o) ? FR_OK : fr__no_memory(c->ctx, sizeof o, "options");
}

/* Both orders of devices, where they differ. */
static fr_status add_uniform(struct fr__chooser *c, struct fr__option o, int r)
{
    int *replicas = FR_ARENA_ARRAY(c->arena, int, o.n_stages), workers = o.n_stages / o.chunks;
    if (!replicas) return fr__no_memory(c->ctx, sizeof(int), "options");
    for (int s = 0; s < o.n_stages; s++) replicas[s] = r;
    o.replicas = replicas;
    FR_TRY(add(c, o));
    if (r == 1 || workers == 1 || (!c->has_levels && c->are_alike)) return FR_OK;
    int *at = FR_ARENA_ARRAY(c->arena, int, workers *r);
    if (!at) return fr__no_memory(c->ctx, sizeof(int), "options");
    for (int w = 0; w < workers; w++)
        for (int i = 0; i < r; i++) at[w * r + i] = i * workers + w;
    o.device_of = at, o.is_across = true;
    return add(c, o);
}

/* --- layouts with equal replicas -------------------------------------------------------------- */

/* Numbers worth a try up to n: all of the first 8, then 2^k, 3 * 2^k, and n. */
static int next_number(int i, int n)
{
    if (i >= n) return n + 1;
    for (i++; i > 8 && i < n; i++) {
        int odd = i;
        while (odd % 2 == 0) odd /= 2;
        if (odd == 1 || odd == 3) break;
    }
    return i;
}

/* Micro-batches of a pipeline: as few as possible, then about twice as many each time. */
static fr_status add_sizes(struct fr__chooser *c, struct fr__option o, int r)
{
    const int batch = c->d->batch, most = o.n_stages == 1 ? 8 : 64;
    for (int share = 1, last = 0; share <= batch / r && share <= most; share++) {
        if (batch % (share * r) != 0 || (last && share < 2 * last && share != o.n_stages)) continue;
        last = share;
        FR_TRY(fr__choose_size(c, share * r, &o.size));
        if (o.n_stages > o.size->task.n) return FR_OK;
        FR_TRY(fr__choose_cuts(c, o.size, o.n_stages, r, o.chunks > 1, &o.cuts));
        if (o.cuts) FR_TRY(add_uniform(c, o, r));
    }
    return FR_OK;
}

/* Is it the first of those with its schedule? */
static bool stands_for_itself(const struct fr__chooser *c, int method)
{
    const fr_plan_method *m = &c->d->methods[method];
    for (int i = 0; i < method; i++) {
        const fr_plan_method *o = &c->d->methods[i];
        if (o->generator == m->generator && o->chunks == m->chunks &&
            o->max_stages == m->max_stages && o->wants_replicas == m->wants_replicas)
            return false;
    }
    return true;
}

static fr_status add_method(struct fr__chooser *c, int method, bool from_one)
{
    const fr_plan_method *m = &c->d->methods[method];
    int chunks = m->chunks > 1 ? m->chunks : 1, n = c->n_devices;
    bool is_whole = m->max_stages == 1;
    for (int w = is_whole || from_one ? 1 : 2; w <= (is_whole ? 1 : n);
         w = next_number(w, is_whole ? 1 : n)) {
        int most = is_whole && !m->wants_replicas ? 1 : n / w;
        for (int r = m->wants_replicas ? 2 : 1; r <= most; r = next_number(r, most))
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
        for (int r = 0; r < replicas[s]; r++) at[w++] = plan->stages[s].device + r;
    for (int m = 0; m < c->d->n_methods; m++) {
        const fr_plan_method *method = &c->d->methods[m];
        if (method->max_stages || method->chunks > 1 || !stands_for_itself(c, m) || n < 2) continue;
        FR_TRY(add(c, (struct fr__option){.size = size,
                                          .method = m,
                                          .n_stages = n,
                                          .chunks = 1,
                                          .cuts = cuts,
                                          .replicas = replicas,
                                          .device_of = at,
                                          .from = from}));
    }
    return FR_OK;
}

/* On small clusters; a planner that finds nothing proposes nothing. */
static fr_status add_planners(struct fr__chooser *c)
{
    static const char *const names[] = {"pipedream", "dapple", "exact"};
    static const char *const from[] = {"cuts by pipedream", "cuts by dapple", "cuts by exact"};
    size_t n_sizes = c->sizes.n;
    if (c->n_devices > 16 || c->n_devices < 2) return FR_OK;
    for (size_t i = 0; i < n_sizes; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            fr_ctx *own = fr_ctx_create();
            fr_plan *plan = NULL;
            if (!own) return fr__no_memory(c->ctx, 1, "a context");
            fr_status status =
                fr_planner_find(names[k])->plan(own, &c->sizes.at[i]->problem, &plan);
            if (status == FR_NO_MEMORY)
                fr_fail(c->ctx, status, "%s", fr_ctx_error(own));
            else
                status = FR_OK;
            if (plan) status = add_plan(c, c->sizes.at[i], plan, from[k]);
            fr_plan_free(plan);
            fr_ctx_free(own);
            FR_TRY(status);
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
