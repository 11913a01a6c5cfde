/* choose_loss.c -- why a method is not the one chosen: slower, too large, or impossible here.
 *
 * The search tries what promises most, so some methods have no outcome. Each of these is tried with
 * the best layout of another method with its schedule; if that does not fit, with its own layouts
 * in the order of their estimates, until one fits. */
#include "plan/choose.h"

/* Within the tolerance of the sort: which of the two comes first says nothing. */
#define SAME (1 + 1e-9)

/* The fastest outcome that fits, of the method itself or (is_twin) of another with its schedule
 * that it can run, too. */
static const struct fr__outcome *best_of(const struct fr__chooser *c, int method, bool is_twin)
{
    const struct fr__outcome *best = NULL;
    for (size_t i = 0; i < c->outcomes.n; i++) {
        const struct fr__outcome *at = &c->outcomes.at[i];
        if (!at->fits || (best && at->s_per_batch >= best->s_per_batch)) continue;
        bool counts = is_twin ? fr__choose_is_twin(c, at->method, method) &&
                                    fr__choose_can(c, method, at->option)
                              : at->method == method;
        if (counts) best = at;
    }
    return best;
}

static bool is_own(const struct fr__chooser *c, int method, const struct fr__option *o)
{
    return fr__choose_is_twin(c, o->method, method) && fr__choose_can(c, method, o);
}

static bool is_quick(const struct fr__chooser *c, const struct fr__option *o)
{
    return fr__choose_cost(c, o) <= c->most_instructions;
}

/* One of its layouts, which are sorted by estimate; NULL: none is possible. */
static const struct fr__option *first_of(const struct fr__chooser *c, int method)
{
    for (size_t i = 0; i < c->options.n; i++)
        if (is_own(c, method, &c->options.at[i])) return &c->options.at[i];
    return NULL;
}

static fr_status add_outcome(struct fr__chooser *c, int method, const struct fr__option *o,
                             const int *cuts, bool *fits)
{
    struct fr__outcome out;
    FR_TRY(fr__choose_try(c, o, method, cuts, &out));
    *fits = out.fits && out.method == method;
    out.is_extra = true;
    return fr__vec_push(&c->outcomes, out) ? FR_OK : fr__no_memory(c->ctx, sizeof out, "layouts");
}

/* Until one fits. A layout that does not is not simulated. */
static fr_status try_own(struct fr__chooser *c, int method)
{
    enum { MOST = 40 };
    bool fits = false;
    for (int guess = 0; guess < 2; guess++) /* those that seem to fit before others */
        for (size_t i = 0, n = 0; i < c->options.n && n < MOST && !fits; i++) {
            const struct fr__option *o = &c->options.at[i];
            if (o->is_too_large != (guess == 1) || !is_own(c, method, o) || !is_quick(c, o))
                continue;
            FR_TRY(add_outcome(c, method, o, o->cuts, &fits));
            n++;
        }
    return FR_OK;
}

fr_status fr__choose_complete(struct fr__chooser *c)
{
    for (int m = 0; m < c->d->n_methods; m++) {
        if (best_of(c, m, false)) continue;
        const struct fr__outcome *twin = best_of(c, m, true);
        bool fits = false;
        if (twin) FR_TRY(add_outcome(c, m, twin->option, twin->cuts, &fits));
        if (!fits) FR_TRY(try_own(c, m));
    }
    return FR_OK;
}

const char *fr__choose_loss(struct fr__chooser *c, int method)
{
    const struct fr__outcome *first = &c->outcomes.at[0], *at = best_of(c, method, false);
    const struct fr__option *o = first_of(c, method);
    if (at && at->s_per_batch <= SAME * first->s_per_batch)
        return fr__arena_printf(c->arena, "as fast as %s, which comes first",
                                c->d->methods[first->method].name);
    if (at) {
        fr__text t = {0};
        fr__text_printf(&t,
                        "slower by %.3g %%: ", 100 * (at->s_per_batch / first->s_per_batch - 1));
        fr__choose_say_layout(&t, at);
        const char *line = t.failed ? NULL : fr__arena_strdup(c->arena, t.at);
        fr__text_fini(&t);
        return line;
    }
    if (!o) return "cannot run with this model, mini-batch and number of devices";
    if (!is_quick(c, o)) return "not simulated: its layouts are too large for that";
    return "does not fit in memory";
}
