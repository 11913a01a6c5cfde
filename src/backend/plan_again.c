/* plan_again.c -- which units run again before a backward, instead of keeping their values.
 *
 * A unit is named if one of its nodes is. It runs again if a backward needs its output or what its
 * kernel saves, or if a unit that runs again reads its output. The others would run for nothing: a
 * value that only forwards read is in the workspace in any case.
 *
 *     x -> linear -> relu -> linear -> y       all named; a backward of linear reads its input,
 *            R        R        -               that of relu its output: the last does not run */
#include "backend/program.h"

typedef struct plan {
    fr_program *p;
    bool *named;  /* [unit] */
    bool *needed; /* [local]: its value, by a backward or by a unit that runs again */
} plan;

/* The output is input 0 under another name: no value of its own, unless it leaves the program. */
static bool is_alias(const fr_program *p, const fr__unit *u)
{
    return u->kernel->y_is_x0 && fr_program_find_output(p, fr__unit_out(u)) < 0;
}

/* Another name of a value goes with the unit that makes the value. */
static bool is_named(const plan *a, int u)
{
    const fr_program *p = a->p;
    const fr__unit *unit = &p->units[u];
    int maker = is_alias(p, unit) ? p->unit_of[fr__local(p, unit->inputs[0].node)] : -1;
    if (maker >= 0) return a->named[maker];
    for (int i = 0; i < unit->n_nodes; i++)
        if (p->desc.recompute[unit->nodes[i]]) return true;
    return false;
}

static void find_needed(const plan *a)
{
    const fr_program *p = a->p;
    for (int u = 0; u < p->n_units; u++) {
        const fr__unit *unit = &p->units[u];
        if (!fr__unit_goes_back(unit)) continue;
        for (int i = 0; i < unit->n_inputs; i++)
            if (unit->kernel->needs_x >> i & 1)
                a->needed[fr__local(p, unit->inputs[i].node)] = true;
        if (unit->kernel->needs_y) a->needed[fr__local(p, fr__unit_out(unit))] = true;
    }
}

fr_status fr__plan_again(fr_program *p)
{
    if (!p->desc.training || !p->desc.recompute) return FR_OK;
    plan a = {.p = p,
              .named = FR_ARENA_ARRAY(&p->making, bool, p->n_units + 1),
              .needed = FR_ARENA_ARRAY(&p->making, bool, p->n_local)};
    if (!a.named || !a.needed) return fr__no_memory(p->ctx, (size_t)p->n_local, "a program");
    for (int u = 0; u < p->n_units; u++) a.named[u] = is_named(&a, u);
    find_needed(&a);
    for (int u = p->n_units - 1; u >= 0; u--) {
        fr__unit *unit = &p->units[u];
        bool has_saved = unit->kernel->saved_bytes > 0 && fr__unit_goes_back(unit);
        bool has_use = has_saved || a.needed[fr__local(p, fr__unit_out(unit))];
        unit->again = a.named[u] && has_use;
        if (!unit->again) continue;
        p->sizes.n_recomputed++;
        for (int i = 0; i < unit->n_inputs; i++)
            a.needed[fr__local(p, unit->inputs[i].node)] = true;
    }
    for (int i = 0; i < p->n_outputs && p->sizes.n_recomputed > 0; i++)
        p->outputs[i].recomputed = a.named[p->unit_of[fr__local(p, p->outputs[i].node)]];
    return FR_OK;
}
