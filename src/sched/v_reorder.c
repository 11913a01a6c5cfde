/* v_reorder.c -- fill and drain of a V pattern, reordered (desc.reorder).
 *
 * A pattern idles in the fill and in the drain, where workers follow an order made for the middle.
 * The authors of v-half and v-min reorder both phases; their rule is not printed, this one is ours.
 * Time runs in steps of one computation, on all workers at once. In each step a worker takes the
 * first entry of its remaining list
 *
 *   - whose inputs are there,
 *   - before which no entry of the same stage and action is left, and
 *   - with which, taken now, the rest of the list stays within the live sets of the whole list.
 *
 * A worker without forwards left takes such an I before any W: others wait for it.
 *
 * A worker never holds more than in the pattern, by the third condition. There is no deadlock: all
 * inputs of what has been taken have been taken, and the rest is in the order of the pattern. */
#include "base/alloc.h"
#include "sched/v_list.h"

/* The list of a worker. */
typedef struct row {
    fr_instr_list list; /* in the order of the pattern */
    bool *is_taken;     /* (list.n) */
    int first;          /* the entries before it are taken */
    int live, most, n_forwards_left;
} row;

typedef struct rows {
    fr_schedule *s;
    int n_micro, step;
    int *end_f, *end_i; /* (n_stages, n_micro): the step after F and I; 0: not taken */
    row *at;            /* (n_workers) */
} rows;

static int change(const fr_instr *x)
{
    return x->action == FR_DO_F ? 1 : x->action == FR_DO_W ? -1 : 0;
}

/* Done before this step? The list is a chain of stages. */
static bool is_done(const rows *r, const int *end, int stage, int micro)
{
    int at = end[stage * r->n_micro + micro];
    return at > 0 && at <= r->step;
}

static bool has_inputs(const rows *r, const fr_instr *x)
{
    bool is_last = x->stage == r->s->n_stages - 1;
    switch (x->action) {
    case FR_DO_F: return x->stage == 0 || is_done(r, r->end_f, x->stage - 1, x->micro);
    case FR_DO_I:
        return is_done(r, r->end_f, x->stage, x->micro) &&
               (is_last || is_done(r, r->end_i, x->stage + 1, x->micro));
    default: return is_done(r, r->end_i, x->stage, x->micro);
    }
}

/* The entry that worker w takes in this step; -1: none is ready. */
static int choose(const rows *r, int w)
{
    const row *own = &r->at[w];
    unsigned seen = 0, all = own->n_forwards_left ? 0x3f : 0x3c; /* F, I, W of both stages */
    int best = -1;
    for (int i = own->first, live = own->live, most = live; i < own->list.n && seen != all; i++) {
        const fr_instr *x = &own->list.at[i];
        if (own->is_taken[i]) continue;
        int kind = x->action == FR_DO_F ? 0 : x->action == FR_DO_I ? 2 : 4;
        unsigned bit = 1u << (kind + (x->stage != w));
        bool fits = x->action != FR_DO_F || most < own->most;
        if (!(seen & bit) && fits && has_inputs(r, x)) {
            if (own->n_forwards_left || x->action == FR_DO_I) return i;
            if (best < 0) best = i;
        }
        seen |= bit;
        live += change(x);
        if (live > most) most = live;
    }
    return best;
}

static void take(rows *r, int w, int i)
{
    row *own = &r->at[w];
    fr_instr x = own->list.at[i];
    int *end = x.action == FR_DO_F ? r->end_f : x.action == FR_DO_I ? r->end_i : NULL;
    if (end) end[x.stage * r->n_micro + x.micro] = r->step + 1;
    own->is_taken[i] = true;
    while (own->first < own->list.n && own->is_taken[own->first]) own->first++;
    own->live += change(&x);
    own->n_forwards_left -= x.action == FR_DO_F;
    fr__emit(r->s, w, (fr_action)x.action, x.stage, x.micro);
}

/* The entries of worker w become the pattern; its list in the schedule begins anew. */
static bool set_aside(rows *r, int w)
{
    row *own = &r->at[w];
    own->list = r->s->lists[w];
    r->s->lists[w] = (fr_instr_list){0};
    own->is_taken = FR_NEW_ARRAY(bool, own->list.n);
    for (int i = 0, live = 0; i < own->list.n; i++) {
        live += change(&own->list.at[i]);
        if (live > own->most) own->most = live;
        own->n_forwards_left += own->list.at[i].action == FR_DO_F;
    }
    return own->is_taken;
}

static void run(rows *r)
{
    for (int left = 3 * r->n_micro * r->s->n_stages; left > 0; r->step++)
        for (int w = 0; w < r->s->n_workers; w++) {
            int i = choose(r, w);
            if (i >= 0) take(r, w, i), left--;
        }
}

bool fr__v_reorder(fr_schedule *s, int n_micro)
{
    size_t cells = (size_t)s->n_stages * (size_t)n_micro;
    rows r = {.s = s, .n_micro = n_micro};
    r.at = FR_NEW_ARRAY(row, s->n_workers);
    r.end_f = FR_NEW_ARRAY(int, 2 * cells);
    bool is_ready = !fr__emit_failed(s) && r.at && r.end_f;
    if (r.end_f) r.end_i = r.end_f + cells;
    for (int w = 0; is_ready && w < s->n_workers; w++) is_ready = set_aside(&r, w);
    if (is_ready) run(&r);
    for (int w = 0; r.at && w < s->n_workers; w++) {
        fr__free(r.at[w].list.at);
        fr__free(r.at[w].is_taken);
    }
    fr__free(r.at);
    fr__free(r.end_f);
    return is_ready && !fr__emit_failed(s);
}
