/* choose.c -- the whole choice: which method, on how many stages, replicas and micro-batches, cut
 * where, on which devices, with recompute or not, is the fastest that fits.
 *
 * Options are tried in the simulator, the most promising first by a quick estimate; one whose bound
 * is above the best of its kind is left out, and a kind (data parallel, pipelines with a flush,
 * pipelines without) is given up after so many tries without gain, or instructions walked. The cuts
 * and devices of the best of each kind are then changed while the simulator says that it helps. */
#include "plan/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MISSES = 40, MOST_MOVES = 60 };
enum { N_FIRST = 3, MOST_STARTS = 12, FEW_DEVICES = 16, MANY_DEVICES = 256 };

/* --- setting up ------------------------------------------------------------------------------- */

static fr_status check(fr_ctx *ctx, const fr_choice_desc *d)
{
    if (!d->profile || !d->cluster || d->batch < 1 || d->n_methods < 1)
        return fr_fail(ctx, FR_INVALID,
                       "a choice needs a profile, a cluster, a mini-batch and methods");
    if (d->n_devices < 0 || d->n_devices > d->cluster->n_devices)
        return fr_fail(ctx, FR_INVALID, "cannot use %d devices; cluster %s has %d", d->n_devices,
                       d->cluster->name, d->cluster->n_devices);
    return FR_OK;
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* Numbers of devices of the same speed or faster; those that tell their flops alone come last. */
static fr_status find_steps(struct fr__chooser *c)
{
    const fr_cluster *k = c->d->cluster;
    const int n = k->n_devices;
    double *speed = FR_NEW_ARRAY(double, n);
    if (!speed) return fr__no_memory(c->ctx, (size_t)n * sizeof *speed, "the speeds of devices");
    for (int d = 0; d < n; d++)
        speed[d] = k->devices[d].speed > 0 ? k->devices[d].speed : k->devices[d].flops * 1e-30;
    qsort(speed, (size_t)n, sizeof *speed, descending);
    for (int i = 1; i < n && i < c->n_devices && c->n_steps < 8; i++)
        if (speed[i] != speed[i - 1]) c->steps[c->n_steps++] = i;
    fr__free(speed);
    return FR_OK;
}

static void fini(struct fr__chooser *c)
{
    for (size_t i = 0; i < c->sizes.n; i++) {
        fr__task_fini(&c->sizes.at[i]->task);
        fr__vec_fini(&c->sizes.at[i]->cuts);
    }
    for (size_t i = 0; i < c->shapes.n; i++) fr__vec_fini(&c->shapes.at[i]->places);
    fr__vec_fini(&c->shapes);
    fr__vec_fini(&c->sizes), fr__vec_fini(&c->options);
    fr__vec_fini(&c->outcomes), fr__vec_fini(&c->known);
    fr_links_free(c->links);
}

/* --- trying ----------------------------------------------------------------------------------- */

static int by_estimate(const void *a, const void *b)
{
    const struct fr__option *x = a, *y = b;
    if (x->is_variant != y->is_variant) return x->is_variant ? 1 : -1;
    if (x->estimate != y->estimate) return x->estimate < y->estimate ? -1 : 1;
    if (x->n_workers != y->n_workers) return x->n_workers - y->n_workers;
    return x->method - y->method;
}

struct kind {
    int best; /* outcome; -1: none that fits yet */
    int n_misses, n_too_large;
    double walked;
};

static fr_status try_option(struct fr__chooser *c, const struct fr__option *o, struct kind *k)
{
    struct fr__outcome out;
    const struct fr__outcome *best = k->best < 0 ? NULL : &c->outcomes.at[k->best];
    const bool is_quick = c->n_devices <= FEW_DEVICES;
    const int most_misses = o->is_variant && is_quick ? 5 * MOST_MISSES : MOST_MISSES;
    if (best && (o->bound >= best->s_per_batch || k->n_misses >= most_misses ||
                 k->walked > c->most_instructions))
        return FR_OK;
    k->walked += fr__choose_cost(c, o);
    FR_TRY(fr__choose_try(c, o, o->method, o->cuts, &out));
    if (!out.fits && (c->has_choice || !best) && k->n_too_large < MOST_MISSES)
        FR_TRY(fr__choose_fit(c, &out));
    bool is_better = out.fits && (!best || out.s_per_batch < best->s_per_batch);
    k->n_too_large += !out.fits; /* which takes no simulation */
    k->n_misses = is_better ? 0 : k->n_misses + (out.fits || k->n_too_large % 8 == 0);
    if (!fr__vec_push(&c->outcomes, out)) return fr__no_memory(c->ctx, sizeof out, "layouts");
    if (is_better) k->best = (int)c->outcomes.n - 1;
    return FR_OK;
}

/* Each layout on its best devices first; then on others. */
static fr_status try_options(struct fr__chooser *c, struct kind *kinds)
{
    if (c->options.n) /* nothing to sort otherwise, and no array */
        qsort(c->options.at, c->options.n, sizeof *c->options.at, by_estimate);
    for (size_t i = 0; i < c->options.n; i++) {
        const struct fr__option *o = &c->options.at[i];
        for (int k = 0; k < FR__N_CLASSES && i > 0 && o->is_variant != o[-1].is_variant; k++)
            kinds[k] = (struct kind){.best = kinds[k].best};
        FR_TRY(try_option(c, o, &kinds[o->class]));
    }
    return FR_OK;
}

/* Same method on the same numbers of devices: only the better one is told. */
static bool is_like(const struct fr__outcome *a, const struct fr__outcome *b)
{
    const struct fr__option *x = a->option, *y = b->option;
    return a->method == b->method && x->n_stages == y->n_stages &&
           memcmp(x->replicas, y->replicas, (size_t)x->n_stages * sizeof *x->replicas) == 0;
}

/* The best outcome of a class that does not count the same devices, stages and micro-batches as one
 * of `taken`, or (is_other) differs in method, stages or replicas; NULL: none. */
static const struct fr__outcome *next_best(const struct fr__chooser *c, int class, bool is_other,
                                           const struct fr__outcome *taken, int n_taken)
{
    const struct fr__outcome *best = NULL;
    for (size_t i = 0; i < c->outcomes.n; i++) {
        const struct fr__outcome *at = &c->outcomes.at[i];
        if (!at->fits || (int)at->option->class != class ||
            (best && at->s_per_batch >= best->s_per_batch))
            continue;
        bool is_new = true;
        for (int k = 0; k < n_taken && is_new; k++)
            is_new = is_other ? !is_like(&taken[k], at)
                              : taken[k].option->device_of != at->option->device_of ||
                                    taken[k].option->n_stages != at->option->n_stages ||
                                    taken[k].option->size != at->option->size;
        if (is_new) best = at;
    }
    return best;
}

/* Cuts and devices of the best, changed. Where devices differ, one that is behind now may well come
 * out ahead: several are tried. */
static fr_status improve(struct fr__chooser *c)
{
    struct fr__outcome taken[MOST_STARTS];
    const int n_starts = !c->has_choice || c->n_devices > MANY_DEVICES ? 1
                         : c->n_devices > FEW_DEVICES                  ? N_FIRST
                                                                       : MOST_STARTS;
    for (int class = c->has_choice ? FR__DATA : FR__FLUSH; class <= FR__ASYNC; class ++) {
        double walked = 0;
        for (int n = 0; n < n_starts; n++) {
            const struct fr__outcome *start = NULL;
            if (n < N_FIRST) start = next_best(c, class, true, taken, n);
            if (!start) start = next_best(c, class, false, taken, n);
            if (!start || walked > c->most_instructions) break;
            taken[n] = *start;
            struct fr__outcome best = *start;
            const double each = fr__choose_cost(c, best.option);
            const int before = c->n_tried;
            FR_TRY(fr__choose_refine(c, &best, (int)fmin(MOST_MOVES, c->most_instructions / each)));
            walked += each * (c->n_tried - before);
            if (!fr__vec_push(&c->outcomes, best))
                return fr__no_memory(c->ctx, sizeof best, "layouts");
        }
    }
    return FR_OK;
}

/* --- the result ------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const struct fr__outcome *x = a, *y = b;
    if (x->fits != y->fits) return x->fits ? -1 : 1;
    if (fabs(x->s_per_batch - y->s_per_batch) > 1e-9 * fmin(x->s_per_batch, y->s_per_batch))
        return x->s_per_batch < y->s_per_batch ? -1 : 1;
    if (x->option->n_workers != y->option->n_workers)
        return x->option->n_workers - y->option->n_workers;
    return x->method - y->method;
}

static bool fill_candidate(struct fr__chooser *c, const struct fr__outcome *at, fr_candidate *out)
{
    const struct fr__option *o = at->option;
    struct fr__option moved = *o;
    fr_arena *a = c->arena;
    moved.cuts = at->cuts;
    if (fr__choose_weigh(c, &moved) != FR_OK) return false;
    *out = (fr_candidate){.method = c->d->methods[at->method].name,
                          .n_stages = o->n_stages,
                          .n_workers = o->n_workers,
                          .n_micro = o->size->n_micro,
                          .chunks = o->chunks,
                          .lead = at->lead,
                          .recompute = at->recompute,
                          .is_async = o->class == FR__ASYNC,
                          .s_per_batch = at->s_per_batch,
                          .samples_per_s = c->d->batch / at->s_per_batch,
                          .bubble = at->bubble,
                          .memory = at->memory,
                          .peak = at->peak,
                          .fits = at->fits,
                          .bound_s = moved.bound,
                          .why = fr__choose_reason(c, at)};
    out->cuts = FR_ARENA_ARRAY(a, int, o->n_stages);
    out->replicas = FR_ARENA_ARRAY(a, int, o->n_stages);
    out->device_of = FR_ARENA_ARRAY(a, int, o->n_workers);
    if (!out->cuts || !out->replicas || !out->device_of || !out->why) return false;
    for (int s = 0; s < o->n_stages; s++) {
        out->replicas[s] = o->replicas[s];
        if (s) out->cuts[s - 1] = at->cuts[s - 1];
    }
    for (int w = 0; w < o->n_workers; w++) out->device_of[w] = o->device_of ? o->device_of[w] : w;
    return true;
}

static fr_status fill_losses(struct fr__chooser *c, fr_choice *choice)
{
    choice->lost = FR_ARENA_ARRAY(c->arena, const char *, c->d->n_methods);
    if (!choice->lost) return fr__no_memory(c->ctx, sizeof(char *), "candidates");
    for (int m = 0; m < c->d->n_methods; m++) {
        if (m == c->outcomes.at[0].method) continue;
        choice->lost[m] = fr__choose_loss(c, m);
        if (!choice->lost[m]) return fr__no_memory(c->ctx, sizeof(char *), "candidates");
    }
    return FR_OK;
}

static fr_status fill_choice(struct fr__chooser *c, fr_choice *choice)
{
    int room = c->d->n_kept > 0 ? c->d->n_kept : 10;
    const struct fr__outcome *best[FR__N_CLASSES] = {NULL}, **kept;
    choice->at = FR_ARENA_ARRAY(c->arena, fr_candidate, room);
    kept = FR_ARENA_ARRAY(c->arena, const struct fr__outcome *, room);
    if (!choice->at || !kept) return fr__no_memory(c->ctx, sizeof(fr_candidate), "candidates");
    if (c->outcomes.n) qsort(c->outcomes.at, c->outcomes.n, sizeof *c->outcomes.at, by_time);
    for (size_t i = 0; i < c->outcomes.n; i++) {
        const struct fr__outcome *at = &c->outcomes.at[i];
        bool is_new = true;
        if (at->fits && !best[at->option->class]) best[at->option->class] = at;
        for (int k = 0; k < choice->n; k++) is_new = is_new && !is_like(kept[k], at);
        if (!is_new || choice->n == room || (at->is_extra && choice->n > 0)) continue;
        kept[choice->n] = at;
        if (!fill_candidate(c, at, &choice->at[choice->n++]))
            return fr__no_memory(c->ctx, sizeof(fr_candidate), "candidates");
    }
    choice->n_tried = c->n_tried, choice->n_too_large = c->n_too_large;
    if (!choice->n || !choice->at[0].fits)
        return fr_fail(c->ctx, FR_INVALID,
                       "none of %d layouts on up to %d devices of cluster %s fits%s; allow more "
                       "devices, more memory, a smaller mini-batch%s or more methods",
                       c->n_tried, c->n_devices, c->d->cluster->name,
                       c->n_too_large ? " in memory" : "",
                       c->d->may_recompute ? "" : ", recompute");
    FR_TRY(fill_losses(c, choice));
    fr__choose_explain(c, best, kept[0], choice->n > 1 && kept[1]->fits ? kept[1] : NULL,
                       choice->why, sizeof choice->why);
    return FR_OK;
}

fr_status fr_plan_choose(fr_ctx *ctx, const fr_choice_desc *d, fr_choice **out)
{
    struct kind kinds[FR__N_CLASSES];
    *out = NULL;
    FR_TRY(check(ctx, d));
    fr_arena *arena = FR_NEW(fr_arena);
    fr_choice *choice = arena ? FR_ARENA_NEW(arena, fr_choice) : NULL;
    if (!choice) {
        fr__arena_free(arena);
        return fr__no_memory(ctx, sizeof *choice, "a choice");
    }
    choice->arena = arena;
    struct fr__chooser c = {.ctx = ctx, .d = d, .arena = arena, .most_instructions = 1e7};
    c.n_devices = d->n_devices ? d->n_devices : d->cluster->n_devices;
    for (int k = 0; k < FR__N_CLASSES; k++) kinds[k] = (struct kind){.best = -1};
    fr_status status = find_steps(&c);
    if (status == FR_OK) status = fr_links_create(ctx, d->cluster, &c.links);
    if (status == FR_OK) status = fr__choose_options(&c);
    if (status == FR_OK) status = try_options(&c, kinds);
    if (status == FR_OK) status = improve(&c);
    if (status == FR_OK) status = fr__choose_complete(&c);
    if (status == FR_OK) status = fill_choice(&c, choice);
    fini(&c);
    if (status == FR_OK)
        *out = choice;
    else
        fr_choice_free(choice);
    return status;
}

void fr_choice_free(fr_choice *c)
{
    if (c) fr__arena_free(c->arena); /* which holds the choice itself */
}
