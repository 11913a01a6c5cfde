/* choose_why.c -- the choice in words. */
#include "plan/choose.h"

#include <stdio.h>

/* "270.3 ms", "1.318 s" */
static void say_time(fr__text *t, double seconds)
{
    fr__text_printf(t, "%.4g %s", seconds < 1 ? seconds * 1e3 : seconds, seconds < 1 ? "ms" : "s");
}

void fr__choose_say_layout(fr__text *t, const struct fr__outcome *at)
{
    const struct fr__option *o = at->option;
    bool is_uniform = true;
    for (int s = 1; s < o->n_stages; s++)
        is_uniform = is_uniform && o->replicas[s] == o->replicas[0];
    fr__text_printf(t, "%d stage%s", o->n_stages, o->n_stages == 1 ? "" : "s");
    if (o->chunks > 1) fr__text_printf(t, " (%d a device)", o->chunks);
    if (is_uniform) {
        if (o->replicas[0] > 1) fr__text_printf(t, " x %d replicas", o->replicas[0]);
    } else {
        fr__text_printf(t, " with");
        for (int s = 0; s < o->n_stages; s++)
            fr__text_printf(t, "%s%d", s ? "," : " ", o->replicas[s]);
        fr__text_printf(t, " replicas");
    }
    fr__text_printf(t, ", %d device%s, %d micro-batch%s", o->n_workers,
                    o->n_workers == 1 ? "" : "s", o->size->n_micro,
                    o->size->n_micro == 1 ? "" : "es");
    if (at->lead > 1) fr__text_printf(t, ", lead %d", at->lead);
}

static void say_layout(fr__text *t, const struct fr__chooser *c, const struct fr__outcome *at)
{
    fr__text_printf(t, "%s, ", c->d->methods[at->method].name);
    fr__choose_say_layout(t, at);
}

/* Only where they are not the first ones in order. */
static void say_devices(fr__text *t, const struct fr__option *o)
{
    enum { ENOUGH = 12 };
    bool is_plain = true;
    for (int w = 0; w < o->n_workers; w++) is_plain = is_plain && fr__choose_device(o, w) == w;
    if (is_plain) return;
    fr__text_printf(t, ", on device%s", o->n_workers > 1 ? "s" : "");
    for (int w = 0; w < o->n_workers && w < ENOUGH; w++)
        fr__text_printf(t, " %d", fr__choose_device(o, w));
    if (o->n_workers > ENOUGH) fr__text_printf(t, " ...");
}

/* Nodes first .. last - 1 that compute, those of them that are recomputed, and forward seconds of
 * these. */
static int count_again(const struct fr__outcome *at, int first, int last, int *n, double *seconds)
{
    const fr_profile *p = at->option->size->problem.profile;
    int n_again = 0;
    *n = 0;
    for (int i = first; i < last; i++) {
        if (p->nodes[i].is_input) continue;
        *n += 1, n_again += at->recompute[i];
        if (at->recompute[i]) *seconds += p->nodes[i].forward_s;
    }
    return n_again;
}

/* Whole stages by number, other nodes by name, the first of them. */
static void say_recompute(fr__text *t, const struct fr__outcome *at)
{
    enum { ENOUGH = 6 };
    const struct fr__option *o = at->option;
    const fr_profile *p = o->size->problem.profile;
    double seconds = 0, ignored = 0;
    int n, n_stage, said = 0, n_all = count_again(at, 0, p->n_nodes, &n, &seconds);
    if (n_all == n) fr__text_printf(t, ", all stages recompute");
    for (int s = 0; s < o->n_stages && n_all < n; s++) {
        const int first = s ? at->cuts[s - 1] : 0;
        const int last = s < o->n_stages - 1 ? at->cuts[s] : p->n_nodes;
        const bool is_whole = count_again(at, first, last, &n_stage, &ignored) == n_stage;
        if (is_whole) fr__text_printf(t, ", %sstage %d", said++ ? "" : "recomputes ", s);
        for (int i = first; i < last && !is_whole && said <= ENOUGH; i++) {
            if (!at->recompute[i]) continue;
            const char *name = said < ENOUGH ? p->nodes[i].name : "...";
            fr__text_printf(t, ", %s%s", said++ ? "" : "recomputes ", name);
        }
    }
    const double whole = o->size->task.forward[o->size->task.n];
    fr__text_printf(t, " (%d of %d nodes, %.3g %% of the forward)", n_all, n,
                    whole > 0 ? 100 * seconds / whole : 0);
}

const char *fr__choose_reason(struct fr__chooser *c, const struct fr__outcome *at)
{
    const struct fr__option *o = at->option;
    fr__text t = {0};
    if (!at->fits) fr__text_printf(&t, "too large for its devices: ");
    fr__text_printf(&t, "%s", o->n_stages > 1 ? o->from : "not cut");
    if (at->lead > 1) fr__text_printf(&t, ", lead %d", at->lead);
    if (at->n_moves) fr__text_printf(&t, ", %d changes by the simulator", at->n_moves);
    if (o->is_across) fr__text_printf(&t, ", stages of a pipeline side by side");
    say_devices(&t, o);
    if (at->recompute) say_recompute(&t, at);
    const fr_plan_method *m = &c->d->methods[at->method];
    int others = 0;
    for (int i = 0; i < c->d->n_methods; i++) {
        const fr_plan_method *other = &c->d->methods[i];
        if (i == at->method || other->generator != m->generator || m->max_stages ||
            other->chunks != m->chunks || other->max_stages || !fr__choose_can(c, i, o))
            continue;
        fr__text_printf(&t, "%s%s", others++ ? ", " : "; as fast: ", other->name);
    }
    const char *line = t.failed ? NULL : fr__arena_printf(c->arena, "%.511s", t.at);
    fr__text_fini(&t);
    return line;
}

/* Where a mini-batch's time goes: computation, messages, sums. */
static void say_costs(fr__text *t, const struct fr__outcome *at)
{
    fr__text_printf(t, "its busiest device computes ");
    say_time(t, at->busy);
    fr__text_printf(t, " of ");
    say_time(t, at->s_per_batch);
    if (at->sum_bytes > 0)
        fr__text_printf(t, ", replicas send %.4g MB to add up gradients", at->sum_bytes / 1e6);
    if (at->message_bytes > 0) fr__text_printf(t, ", stages send %.4g MB", at->message_bytes / 1e6);
}

static void say_kind(fr__text *t, const struct fr__chooser *c, const char *kind,
                     const struct fr__outcome *at, const struct fr__outcome *first)
{
    if (!at) {
        fr__text_printf(t, "\n%s: none that fits, or none was asked for", kind);
        return;
    }
    fr__text_printf(t, "\n%s: ", kind);
    say_time(t, at->s_per_batch);
    fr__text_printf(t, " (%.2fx): ", at->s_per_batch / first->s_per_batch);
    say_layout(t, c, at);
}

void fr__choose_explain(const struct fr__chooser *c, const struct fr__outcome *const *best,
                        const struct fr__outcome *first, const struct fr__outcome *second,
                        char *why, size_t room)
{
    fr__text t = {0};
    fr__text_printf(&t, "best: ");
    say_layout(&t, c, first);
    fr__text_printf(&t, "\npredicted: ");
    say_time(&t, first->s_per_batch);
    fr__text_printf(
        &t, " a mini-batch, %.0f samples/s, bubble %.1f %%, at most %.4g MB on a device",
        c->d->batch / first->s_per_batch, 100 * first->bubble, (double)first->peak / 1e6);
    if (second) {
        fr__text_printf(&t, "\nrunner-up: ");
        say_time(&t, second->s_per_batch);
        fr__text_printf(&t, " (%+.1f %%): ", 100 * (second->s_per_batch / first->s_per_batch - 1));
        say_layout(&t, c, second);
    }
    fr__text_printf(&t, "\nwhat decided: ");
    say_costs(&t, first);
    const struct fr__outcome *other = best[FR__DATA] && best[FR__DATA] != first ? best[FR__DATA]
                                      : best[FR__FLUSH] && best[FR__FLUSH] != first
                                          ? best[FR__FLUSH]
                                          : second;
    if (other && other != first) {
        fr__text_printf(&t, "; against it, of ");
        say_layout(&t, c, other);
        fr__text_printf(&t, ", ");
        say_costs(&t, other);
    }
    say_kind(&t, c, "one device", best[FR__ALONE], first);
    say_kind(&t, c, "best data parallel", best[FR__DATA], first);
    say_kind(&t, c, "best pipeline with a flush", best[FR__FLUSH], first);
    say_kind(&t, c, "best pipeline without a flush", best[FR__ASYNC], first);
    fr__text_printf(&t, "\n%d layouts tried in the simulator, %d of them too large", c->n_tried,
                    c->n_too_large);
    snprintf(why, room, "%s", t.failed ? "" : t.at);
    fr__text_fini(&t);
}
