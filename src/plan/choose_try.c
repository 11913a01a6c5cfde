/* choose_try.c -- a layout in the simulator, within the memory of its devices. */
#include "plan/choose.h"

#include <math.h>

static bool has_flush(const struct fr__chooser *c, const struct fr__option *o)
{
    return c->d->methods[o->method].generator->is_flush;
}

/* Mini-batches under way at once. */
static int depth(const struct fr__chooser *c, const struct fr__option *o, int lead)
{
    int most = 1;
    if (has_flush(c, o)) return 1;
    for (int s = 0; s < o->n_stages; s++)
        if (o->replicas[s] > most) most = o->replicas[s];
    int share = o->size->n_micro / most;
    bool has_batches = c->d->methods[o->method].generator->ahead == FR_AHEAD_BATCHES;
    return has_batches ? 1 + o->n_stages : 1 + (lead * o->n_stages + share - 1) / share;
}

/* Mini-batches to walk: filling, the steady state, draining. */
static int n_batches(const struct fr__chooser *c, const struct fr__option *o, int lead)
{
    double many = 8000.0 / (o->size->n_micro * o->n_stages);
    if (has_flush(c, o)) return 4;
    return 2 * depth(c, o, lead) + (int)fmin(fmax(many, 4), 40);
}

enum { AHEAD = 4 }; /* mini-batches until all that can run ahead do */

/* A stage that sends no gradient does not hold up those before it: they run ahead through a flush,
 * and mini-batches take one time in the mean only. */
static bool runs_ahead(const fr_schedule *s)
{
    int n_joined = 0; /* links are sorted by the stage that they leave */
    for (int l = 0; l < s->n_backward; l++)
        n_joined += l == 0 || s->backward[l].from != s->backward[l - 1].from;
    return s->is_flush && n_joined < s->n_stages - 1;
}

double fr__choose_cost(const struct fr__chooser *c, const struct fr__option *o)
{
    int n = has_flush(c, o) && o->runs_ahead ? 11 * AHEAD : n_batches(c, o, 1);
    return 6.0 * o->size->n_micro * o->n_stages * n;
}

static fr_spread_desc layout_of(const struct fr__chooser *c, const struct fr__outcome *at)
{
    const struct fr__option *o = at->option;
    const fr_plan_method *m = &c->d->methods[at->method];
    return (fr_spread_desc){.profile = o->size->problem.profile,
                            .n_stages = o->n_stages,
                            .cuts = at->cuts,
                            .replicas = o->replicas,
                            .generator = m->generator,
                            .chunks = o->chunks,
                            .n_micro = o->size->n_micro,
                            .n_batches = has_flush(c, o) ? 1 : n_batches(c, o, at->lead),
                            .lead = at->lead,
                            .recompute = at->recompute,
                            .policy = m->policy,
                            .cluster = c->d->cluster,
                            .device_of = o->device_of,
                            .overhead_s = c->d->overhead_s};
}

static void look_at_memory(const struct fr__chooser *c, const fr_spread *s, struct fr__outcome *at)
{
    at->fits = true, at->peak = 0;
    for (int w = 0; w < at->option->n_workers; w++) {
        at->memory[w] = s->memory[w];
        if (at->memory[w] > at->peak) at->peak = at->memory[w];
        at->fits =
            at->fits && fr__choose_has_room(c, fr__choose_device(at->option, w), at->memory[w]);
    }
}

/* *out is made where the layout fits: the caller frees it. */
static fr_status make(struct fr__chooser *c, struct fr__outcome *at, fr_spread *out)
{
    const fr_spread_desc d = layout_of(c, at);
    FR_TRY(fr_spread_make(c->ctx, &d, out));
    look_at_memory(c, out, at);
    if (!at->fits) fr_spread_free(out);
    return FR_OK;
}

/* The cheapest nodes that make room; if none do, all of them, so that the memory of a layout that
 * is too large is the least that it takes. */
static fr_status choose_nodes(struct fr__chooser *c, struct fr__outcome *at, const fr_spread *plain)
{
    const fr_spread_desc d = layout_of(c, at);
    bool *recompute = FR_ARENA_ARRAY(c->arena, bool, d.profile->n_nodes), fits;
    size_t *limits = FR_NEW_ARRAY(size_t, at->option->n_workers);
    fr_status status =
        recompute && limits ? FR_OK : fr__no_memory(c->ctx, sizeof *limits, "a layout");
    for (int w = 0; status == FR_OK && w < at->option->n_workers; w++) {
        int64_t memory = c->d->cluster->devices[fr__choose_device(at->option, w)].memory;
        limits[w] = memory > 0 ? (size_t)memory : 0;
    }
    if (status == FR_OK) status = fr_spread_fit(c->ctx, &d, plain, limits, recompute, &fits);
    fr__free(limits);
    FR_TRY(status);
    for (int i = 0; !fits && i < d.profile->n_nodes; i++) recompute[i] = true;
    at->recompute = recompute;
    return FR_OK;
}

/* As above, first without recompute. */
static fr_status make_fit(struct fr__chooser *c, struct fr__outcome *at, bool more, fr_spread *out)
{
    at->recompute = NULL;
    const fr_spread_desc d = layout_of(c, at);
    FR_TRY(fr_spread_make(c->ctx, &d, out));
    look_at_memory(c, out, at);
    if (at->fits) return FR_OK;
    fr_status status = more ? choose_nodes(c, at, out) : FR_OK;
    fr_spread_free(out);
    return status == FR_OK && more ? make(c, at, out) : status;
}

/* The steady state only: a run has many more mini-batches than are walked here. */
static fr_status simulate(struct fr__chooser *c, const fr_spread *s, struct fr__outcome *at)
{
    fr_sim_result r;
    const int n_deep = depth(c, at->option, at->lead);
    int n = n_batches(c, at->option, at->lead), first = n_deep - 1, last = n - 1;
    if (!has_flush(c, at->option)) last -= n_deep;
    if (runs_ahead(s->schedule)) first = AHEAD, last = 10 * AHEAD, n = last + AHEAD;
    fr_sim_desc d = {
        .schedule = s->schedule, .timing = s->timing, .n_batches = n, .overlaps = true};
    double mean = 0;
    FR_TRY(fr_simulate(c->ctx, &d, &r));
    at->s_per_batch = (r.done[last] - r.done[first]) / (last - first);
    at->sum_bytes = r.sum_bytes, at->message_bytes = r.message_bytes;
    at->busy = 0;
    for (int w = 0; w < r.n_workers; w++) {
        double busy = r.workers[w].busy / (double)d.n_batches;
        at->busy = fmax(at->busy, busy), mean += busy / r.n_workers;
    }
    at->bubble = fmax(0, 1 - mean / at->s_per_batch);
    fr_sim_free(&r);
    return FR_OK;
}

/* The method itself, then others with the same schedule; first as it is, then with recompute. */
static fr_status try_methods(struct fr__chooser *c, struct fr__outcome *at, fr_spread *s)
{
    const int asked = at->method;
    for (int more = 0; more <= (c->d->may_recompute ? 1 : 0); more++)
        for (int i = 0; i < c->d->n_methods; i++) {
            int method = (asked + i) % c->d->n_methods;
            if (!fr__choose_is_twin(c, asked, method) || !fr__choose_can(c, method, at->option))
                continue;
            at->method = method;
            FR_TRY(make_fit(c, at, more, s));
            if (at->fits) return FR_OK;
        }
    at->method = asked;
    return FR_OK;
}

static fr_status make_room_for(struct fr__chooser *c, struct fr__outcome *at)
{
    at->memory = FR_ARENA_ARRAY(c->arena, size_t, at->option->n_workers);
    return at->memory ? FR_OK : fr__no_memory(c->ctx, sizeof *at, "a layout");
}

/* The outcome with another lead; s_per_batch INFINITY: it does not fit, or cannot be. */
static fr_status with_lead(struct fr__chooser *c, const struct fr__outcome *at, int lead,
                           struct fr__outcome *out)
{
    struct fr__option asked = *at->option;
    fr_spread s = {0};
    *out = *at;
    out->lead = asked.lead = lead, out->s_per_batch = INFINITY, out->fits = false;
    if (!fr__choose_can(c, at->method, &asked)) return FR_OK;
    FR_TRY(make_room_for(c, out));
    FR_TRY(make_fit(c, out, c->d->may_recompute, &s));
    if (!out->fits) return FR_OK;
    fr_status status = simulate(c, &s, out);
    fr_spread_free(&s);
    return status;
}

/* Leads of 4 and 2. A lead of 4 has the most micro-batches in flight: where it fits and gains
 * nothing, 2 does not either. Of equally fast ones the least is taken, which holds the least. */
static fr_status try_leads(struct fr__chooser *c, struct fr__outcome *at)
{
    const double alone = at->s_per_batch;
    struct fr__outcome best = *at;
    if (at->option->n_stages == 1) return FR_OK;
    for (int lead = fr__choose_lead(c, at->method); lead > 1; lead /= 2) {
        struct fr__outcome next;
        fr_status status = with_lead(c, at, lead, &next);
        if (status == FR_UNSUPPORTED || status == FR_INVALID) continue; /* no such schedule */
        if (status != FR_OK) return status;
        if (next.fits && !(next.s_per_batch < alone * (1 - 1e-9))) break;
        if (next.s_per_batch <= best.s_per_batch * (1 + 1e-9)) best = next;
    }
    *at = best;
    return FR_OK;
}

static fr_status try_new(struct fr__chooser *c, const struct fr__option *o, int method,
                         const int *cuts, struct fr__outcome *out)
{
    *out = (struct fr__outcome){
        .option = o, .method = method, .lead = 1, .cuts = cuts, .s_per_batch = INFINITY};
    FR_TRY(make_room_for(c, out));
    fr_spread s = {0};
    fr_status status = try_methods(c, out, &s);
    if (status == FR_OK && out->fits) {
        status = simulate(c, &s, out);
        fr_spread_free(&s);
        if (status == FR_OK) status = try_leads(c, out);
    }
    c->n_tried++;
    c->n_too_large += status == FR_OK && !out->fits;
    if (status != FR_UNSUPPORTED && status != FR_INVALID) return status;
    /* A layout that cannot be is no error of the choice. */
    fr_log(c->ctx, FR_LOG_DEBUG, "plan: %s on %d stages: %s", c->d->methods[method].name,
           o->n_stages, fr_ctx_error(c->ctx));
    out->fits = false;
    return FR_OK;
}

/* --- tried before ----------------------------------------------------------------------------- */

static uint64_t mix(uint64_t key, int n, const int *values)
{
    for (int i = 0; i < n; i++) key = (key ^ (uint32_t)values[i]) * 0x100000001b3; /* FNV-1a */
    return key;
}

static uint64_t key_of(const struct fr__option *o, int method, const int *cuts)
{
    const int first[] = {method, o->size->n_micro, o->n_stages, o->chunks, o->n_workers};
    uint64_t key = mix(0xcbf29ce484222325, 5, first);
    key = mix(mix(key, o->n_stages, o->replicas), o->n_stages - 1, cuts);
    for (int w = 0; w < o->n_workers; w++) key = mix(key, 1, &(int){fr__choose_device(o, w)});
    return key;
}

static bool is_known(const struct fr__known *k, const struct fr__option *o, int method,
                     const int *cuts)
{
    const struct fr__option *x = k->out.option;
    if (k->asked != method || x->size != o->size || x->n_stages != o->n_stages ||
        x->chunks != o->chunks || x->n_workers != o->n_workers)
        return false;
    for (int s = 0; s < o->n_stages; s++)
        if (x->replicas[s] != o->replicas[s] || (s && k->out.cuts[s - 1] != cuts[s - 1]))
            return false;
    for (int w = 0; w < o->n_workers; w++)
        if (fr__choose_device(x, w) != fr__choose_device(o, w)) return false;
    return true;
}

fr_status fr__choose_try(struct fr__chooser *c, const struct fr__option *o, int method,
                         const int *cuts, struct fr__outcome *out)
{
    struct fr__known new = {.key = key_of(o, method, cuts), .asked = method};
    for (size_t i = 0; i < c->known.n; i++) {
        const struct fr__known *k = &c->known.at[i];
        if (k->key != new.key || !is_known(k, o, method, cuts)) continue;
        *out = k->out;
        out->option = o, out->cuts = cuts;
        return FR_OK;
    }
    FR_TRY(try_new(c, o, method, cuts, out));
    new.out = *out;
    return fr__vec_push(&c->known, new) ? FR_OK : fr__no_memory(c->ctx, sizeof new, "layouts");
}
