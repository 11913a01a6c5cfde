/* clock.c -- start times of a schedule's instructions on a virtual clock.
 *
 * Workers share no resource besides slots and buffers, so an instruction starts at the latest time
 * of the events that it waits for: a max-plus recursion, not an event queue. An event (a forward
 * done, a message sent, a slot free) has one time. A worker runs until it needs an event that has
 * not happened, then sleeps; the event wakes it. Each wait costs constant time, so the run is
 * linear in instructions and links. If all workers sleep, the schedule deadlocks.
 *
 * With costs of links workers share these as well. A link is given to the first that asks for it,
 * so workers then run in the order of their times, one instruction after the other. */
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>

/* Kinds of events: the first three are [stage][micro], the next two [link][micro], the last is
 * [mini-batch], or [stage][mini-batch] if stages do not step together. */
typedef enum event_kind { VALUES, GRADIENTS, FREED, SENT_F, SENT_B, REDUCED, N_KINDS } event_kind;

typedef struct run {
    fr_ctx *ctx;
    const fr_schedule *s;
    const fr__link_index *x;
    const fr_costs *costs;
    bool hold;   /* instructions wait for slots and buffers */
    int n_micro; /* of the segment */
    size_t first[N_KINDS + 1];
    double *when;      /* [event]; NEVER until it happens */
    int *sleeper;      /* [event]: first worker that waits for it, or -1 */
    int *next_sleeper; /* [worker]: next worker that waits for the same event */
    size_t *asleep_on; /* [worker] */
    int *at;           /* [worker]: next instruction */
    int *awake;        /* [worker]: stack of workers that can run */
    int n_awake;
    int *live;          /* [worker]: activation sets held */
    int *reduces_left;  /* [row of REDUCED] */
    double *reduced_at; /* [row of REDUCED]: latest time so far; workers do not run in time order */
    int **slot_holder;  /* [stage][replica, slot]: micro-batch that held it last; -1: none */
    int **buffer_holder; /* [backward link][pair, buffer] */
    int *line; /* [forward link, backward link]: its first pair in free_at; NULL: not shared */
    double *free_at; /* [pair of workers]: end of the last transfer between them */
    double start;    /* current instruction: latest event that it waits for */
    size_t missing;  /* event that has not happened */
    fr_clock *out;
} run;

#define NEVER (-INFINITY)

static size_t event(const run *r, event_kind kind, int row, int micro)
{
    size_t columns = kind == REDUCED ? 1 : (size_t)r->n_micro;
    return r->first[kind] + (size_t)row * columns + (size_t)micro;
}

/* Row of the event that a STEP waits for and a REDUCE contributes to. */
static int reduction(const run *r, const fr_instr *i)
{
    return fr__steps_together(r->s) ? i->micro : i->stage * r->s->n_batches + i->micro;
}

static double cost(const double *table, int at, double otherwise)
{
    return table ? table[at] : otherwise;
}

static double duration(const run *r, const fr_instr *i)
{
    const fr_costs *c = r->costs;
    double input = cost(c->back_input, i->stage, 1), weight = cost(c->back_weight, i->stage, 1);
    switch (i->action) {
    case FR_DO_F: return cost(c->forward, i->stage, 1);
    case FR_DO_B: return cost(c->backward, i->stage, input + weight);
    case FR_DO_I: return input;
    case FR_DO_W: return weight;
    case FR_DO_STEP: return cost(c->step, i->stage, 0);
    default: return 0;
    }
}

/* Last holder of a micro-batch's slot or buffer. */
static int *slot_holder(const run *r, int stage, int micro)
{
    int replica = micro % r->s->replicas[stage];
    return &r->slot_holder[stage]
                          [replica * r->s->n_slots[stage] + fr_schedule_slot(r->s, stage, micro)];
}

static int *buffer_holder(const run *r, int link, int micro)
{
    int pair = micro % r->x->backward.pairs[link];
    return &r->buffer_holder[link]
                            [pair * r->s->n_buffers[link] + fr_schedule_buffer(r->s, link, micro)];
}

/* --- waits: false if an event has not happened
 * -------------------------------------------------- */

static bool after(run *r, size_t e, double delay)
{
    r->missing = e;
    if (r->when[e] == NEVER) return false;
    r->start = fmax(r->start, r->when[e] + delay);
    return true;
}

/* Inputs over the links of one direction. Between workers the transfer already implies the wait;
 * waiting for the producer as well lets schedules without transfers run. */
static bool after_inputs(run *r, const fr__direction *d, event_kind made, const double *costs,
                         const fr_instr *i)
{
    for (int j = d->in.first[i->stage]; j < d->in.first[i->stage + 1]; j++) {
        int l = d->in.link[j], from = d->links[l].from;
        bool is_far = r->s->worker_of[from] != r->s->worker_of[i->stage];
        if (!after(r, event(r, made, from, i->micro), is_far ? cost(costs, l, 0) : 0)) return false;
    }
    return true;
}

/* The slot is free: this stage and all readers have finished its last holder. */
static bool after_slot(run *r, const fr_instr *i)
{
    const fr__direction *d = &r->x->forward;
    int holder = r->hold ? *slot_holder(r, i->stage, i->micro) : -1;
    if (holder < 0) return true;
    for (int j = d->out.first[i->stage]; j < d->out.first[i->stage + 1]; j++)
        if (!after(r, event(r, FREED, d->links[d->out.link[j]].to, holder), 0)) return false;
    return after(r, event(r, FREED, i->stage, holder), 0);
}

/* The target buffers of the gradients are free: their last readers have finished. */
static bool after_buffers(run *r, const fr_instr *i)
{
    const fr__direction *d = &r->x->backward;
    for (int j = d->out.first[i->stage]; r->hold && j < d->out.first[i->stage + 1]; j++) {
        int l = d->out.link[j];
        int holder = *buffer_holder(r, l, i->micro);
        if (holder >= 0 && !after(r, event(r, GRADIENTS, d->links[l].to, holder), 0)) return false;
    }
    return true;
}

static bool can_start(run *r, const fr_instr *i)
{
    const fr__link_index *x = r->x;
    int l = fr__transfer_link(x, i);
    switch (i->action) {
    case FR_DO_F:
        return after_inputs(r, &x->forward, VALUES, r->costs->send_forward, i) && after_slot(r, i);
    case FR_DO_B:
    case FR_DO_I:
        return after(r, event(r, VALUES, i->stage, i->micro), 0) &&
               after_inputs(r, &x->backward, GRADIENTS, r->costs->send_backward, i) &&
               after_buffers(r, i);
    case FR_DO_W: return after(r, event(r, GRADIENTS, i->stage, i->micro), 0);
    case FR_DO_SEND_F: return after(r, event(r, VALUES, i->stage, i->micro), 0);
    case FR_DO_SEND_B: return after(r, event(r, GRADIENTS, i->stage, i->micro), 0);
    case FR_DO_RECV_F:
        return after(r, event(r, SENT_F, l, i->micro), cost(r->costs->send_forward, l, 0));
    case FR_DO_RECV_B:
        return after(r, event(r, SENT_B, l, i->micro), cost(r->costs->send_backward, l, 0));
    case FR_DO_STEP: return after(r, event(r, REDUCED, reduction(r, i), 0), 0);
    default: return true;
    }
}

/* --- effects
 * ----------------------------------------------------------------------------------- */

/* False: the event has already happened. */
static bool happen(run *r, size_t e, double when)
{
    if (r->when[e] != NEVER) return false;
    r->when[e] = when;
    for (int w = r->sleeper[e]; w >= 0; w = r->next_sleeper[w]) r->awake[r->n_awake++] = w;
    return true;
}

/* Become the holder of the slot or buffers. */
static void hold(run *r, const fr_instr *i)
{
    const fr__direction *d = &r->x->backward;
    if (!r->hold) return;
    if (i->action == FR_DO_F) *slot_holder(r, i->stage, i->micro) = i->micro;
    if (fr__makes_gradients(i->action))
        for (int j = d->out.first[i->stage]; j < d->out.first[i->stage + 1]; j++)
            *buffer_holder(r, d->out.link[j], i->micro) = i->micro;
}

static bool reduce(run *r, int row, double end)
{
    r->reduced_at[row] = fmax(r->reduced_at[row], end);
    return --r->reduces_left[row] > 0 || happen(r, event(r, REDUCED, row, 0), r->reduced_at[row]);
}

/* Time at which a message sent at `now` has crossed the link of the two workers. */
static double cross(run *r, const fr_instr *i, double now)
{
    bool is_back = i->action == FR_DO_SEND_B;
    const fr__direction *d = is_back ? &r->x->backward : &r->x->forward;
    int l = fr__transfer_link(r->x, i);
    if (!r->line) return now;
    double *free_at =
        &r->free_at[r->line[l + (is_back ? r->x->forward.n : 0)] + i->micro % d->pairs[l]];
    const double *own = is_back ? r->costs->link_backward : r->costs->link_forward;
    return *free_at = fmax(*free_at, now) + cost(own, l, r->costs->link);
}

/* All events of an instruction that starts at r->start. False: the instruction has already run. */
static bool perform(run *r, int w, const fr_instr *i, double end)
{
    bool is_new = true;
    hold(r, i);
    if (i->action == FR_DO_F) {
        is_new = happen(r, event(r, VALUES, i->stage, i->micro), end);
        if (++r->live[w] > r->out->peak_live[w]) r->out->peak_live[w] = r->live[w];
    }
    if (fr__makes_gradients(i->action))
        is_new = happen(r, event(r, GRADIENTS, i->stage, i->micro), end);
    if (is_new && fr__is_last_use(r->s, i->action)) {
        is_new = happen(r, event(r, FREED, i->stage, i->micro), end);
        r->live[w]--;
    }
    if (i->action == FR_DO_SEND_F || i->action == FR_DO_SEND_B) {
        event_kind sent = i->action == FR_DO_SEND_F ? SENT_F : SENT_B;
        is_new = happen(r, event(r, sent, fr__transfer_link(r->x, i), i->micro), cross(r, i, end));
    }
    if (i->action == FR_DO_REDUCE) is_new = reduce(r, reduction(r, i), end);
    return is_new;
}

/* --- workers -----------------------------------------------------------------------------------*/

/* Take the next worker to run off the stack. With links it is the one whose time is least: none
 * can ask for a link before it does. Of several, the last one: gradients go first. */
static int take_awake(run *r)
{
    int best = r->n_awake - 1;
    for (int i = best - 1; r->line && i >= 0; i--) {
        int w = r->awake[i], x = r->awake[best];
        double time = r->at[w] ? r->out->end[w][r->at[w] - 1] : 0;
        double least = r->at[x] ? r->out->end[x][r->at[x] - 1] : 0;
        if (time < least || (time == least && w > x)) best = i;
    }
    int w = r->awake[best];
    r->awake[best] = r->awake[--r->n_awake];
    return w;
}

/* Until it waits or, with links, for one instruction. */
static fr_status run_worker(run *r, int w)
{
    const fr_instr_list *list = &r->s->lists[w];
    fr_clock *out = r->out;
    for (; r->at[w] < list->n; r->at[w]++) {
        int n = r->at[w];
        const fr_instr *i = &list->at[n];
        r->start = n > 0 ? out->end[w][n - 1] : 0;
        if (!can_start(r, i)) {
            r->asleep_on[w] = r->missing;
            r->next_sleeper[w] = r->sleeper[r->missing];
            r->sleeper[r->missing] = w;
            return FR_OK;
        }
        double length = duration(r, i);
        out->start[w][n] = r->start;
        out->end[w][n] = r->start + length;
        out->busy[w] += length;
        out->makespan = fmax(out->makespan, out->end[w][n]);
        if (!perform(r, w, i, out->end[w][n]))
            return fr__instr_fail(r->ctx, r->s, w, n, "it has already run");
        if (!r->line) continue;
        r->at[w]++;
        r->awake[r->n_awake++] = w;
        break;
    }
    return FR_OK;
}

/* The instruction that causes an event, and its worker. */
static int maker_of(const run *r, size_t e, fr_instr *i)
{
    int kind = 0;
    while (e >= r->first[kind + 1]) kind++;
    int columns = kind == REDUCED ? 1 : r->n_micro;
    int row = (int)((e - r->first[kind]) / (size_t)columns);
    int micro = (int)((e - r->first[kind]) % (size_t)columns);
    bool is_split = r->s->is_split, is_only_f = r->s->is_forward_only;
    const fr_action actions[N_KINDS] = {
        [VALUES] = FR_DO_F,      [GRADIENTS] = is_split ? FR_DO_I : FR_DO_B,
        [SENT_F] = FR_DO_SEND_F, [FREED] = is_only_f ? FR_DO_F : is_split ? FR_DO_W : FR_DO_B,
        [SENT_B] = FR_DO_SEND_B, [REDUCED] = FR_DO_REDUCE,
    };
    *i = (fr_instr){.action = (uint8_t)actions[kind], .stage = row, .micro = micro, .peer = -1};
    if (kind == SENT_F || kind == SENT_B) {
        const fr__direction *d = kind == SENT_F ? &r->x->forward : &r->x->backward;
        i->stage = d->links[row].from, i->peer = d->links[row].to;
    }
    for (int w = 0; kind == REDUCED && w < r->s->n_workers; w++) /* a copy that has not submitted */
        for (int n = r->at[w]; n < r->s->lists[w].n; n++) {
            const fr_instr *at = &r->s->lists[w].at[n];
            if (at->action != FR_DO_REDUCE || reduction(r, at) != row) continue;
            *i = *at;
            return w;
        }
    return fr_schedule_worker(r->s, i->stage, i->micro);
}

/* All remaining workers sleep. Follow the waits to an event that no worker will cause, or around a
 * cycle. */
static fr_status deadlock(run *r, int w)
{
    fr_instr wanted = {0};
    const fr_schedule *s = r->s;
    int whom = w;
    for (int hop = 0; hop <= s->n_workers; hop++) {
        whom = maker_of(r, r->asleep_on[w], &wanted);
        if (whom == w || r->at[whom] == s->lists[whom].n) break;
        if (hop < s->n_workers) w = whom;
    }
    char name[48], other[48], where[128];
    if (whom == w)
        snprintf(where, sizeof where, "which this worker does not run before it");
    else if (r->at[whom] == s->lists[whom].n)
        snprintf(where, sizeof where, "which worker %d never runs", whom);
    else
        snprintf(where, sizeof where, "but worker %d waits at step %d (%s)", whom, r->at[whom],
                 fr_instr_text(&s->lists[whom].at[r->at[whom]], other));
    return fr__instr_fail(r->ctx, s, w, r->at[w], "deadlock: waits for %s, %s",
                          fr_instr_text(&wanted, name), where);
}

static fr_status run_all(run *r)
{
    for (int w = r->s->n_workers - 1; w >= 0; w--) r->awake[r->n_awake++] = w;
    while (r->n_awake > 0) FR_TRY(run_worker(r, take_awake(r)));
    for (int w = 0; w < r->s->n_workers; w++)
        if (r->at[w] < r->s->lists[w].n) return deadlock(r, w);
    return FR_OK;
}

/* --- setting up --------------------------------------------------------------------------------*/

/* For each row, n[row] entries per share, all -1. */
static int **holders_init(fr_arena *a, int n_rows, const int *n, const int *shares)
{
    int **rows = FR_ARENA_ARRAY(a, int *, n_rows);
    for (int k = 0; rows && k < n_rows; k++) {
        size_t n_all = (size_t)n[k] * (size_t)shares[k];
        rows[k] = FR_ARENA_ARRAY(a, int, n_all);
        if (!rows[k]) return NULL;
        for (size_t i = 0; i < n_all; i++) rows[k][i] = -1;
    }
    return rows;
}

/* Link i of both directions, forward ones first, and the number of worker pairs it connects. */
static fr_link link_at(const fr__link_index *x, int i, int *pairs)
{
    const fr__direction *d = i < x->forward.n ? &x->forward : &x->backward;
    if (d == &x->backward) i -= x->forward.n;
    *pairs = d->pairs[i];
    return d->links[i];
}

/* Links between the same workers, in either direction unless these are apart, share a line for each
 * pair of replicas. */
static bool lines_init(fr_arena *a, run *r)
{
    const int *worker_of = r->s->worker_of;
    int n = r->x->forward.n + r->x->backward.n, n_lines = 0, pairs, same;
    r->line = FR_ARENA_ARRAY(a, int, n + 1);
    for (int i = 0; r->line && i < n; i++) {
        fr_link here = link_at(r->x, i, &pairs);
        int low = worker_of[here.from], high = worker_of[here.to];
        r->line[i] = -1;
        for (int k = 0; k < i && r->line[i] < 0; k++) {
            fr_link there = link_at(r->x, k, &same);
            int from = worker_of[there.from], to = worker_of[there.to];
            bool is_back = from == high && to == low && !r->costs->is_full_duplex;
            if ((from == low && to == high) || is_back) r->line[i] = r->line[k];
        }
        if (r->line[i] >= 0) continue;
        r->line[i] = n_lines;
        n_lines += pairs;
    }
    r->free_at = FR_ARENA_ARRAY(a, double, n_lines + 1);
    return r->line && r->free_at;
}

static bool run_init(fr_arena *a, run *r)
{
    const fr_schedule *s = r->s;
    size_t workers = (size_t)s->n_workers, micro = (size_t)r->n_micro;
    size_t reductions = (size_t)s->n_batches * (fr__steps_together(s) ? 1 : (size_t)s->n_stages);
    const size_t rows[N_KINDS] = {
        [VALUES] = (size_t)s->n_stages,   [GRADIENTS] = (size_t)s->n_stages,
        [FREED] = (size_t)s->n_stages,    [SENT_F] = (size_t)s->n_forward,
        [SENT_B] = (size_t)s->n_backward, [REDUCED] = reductions,
    };
    for (int kind = 0; kind < N_KINDS; kind++)
        r->first[kind + 1] = r->first[kind] + rows[kind] * (kind == REDUCED ? 1 : micro);
    size_t n_events = r->first[N_KINDS];
    r->when = FR_ARENA_ARRAY(a, double, n_events);
    r->sleeper = FR_ARENA_ARRAY(a, int, n_events);
    r->next_sleeper = FR_ARENA_ARRAY(a, int, workers);
    r->asleep_on = FR_ARENA_ARRAY(a, size_t, workers);
    r->at = FR_ARENA_ARRAY(a, int, workers);
    r->awake = FR_ARENA_ARRAY(a, int, workers);
    r->live = FR_ARENA_ARRAY(a, int, workers);
    r->reduces_left = FR_ARENA_ARRAY(a, int, reductions);
    r->reduced_at = FR_ARENA_ARRAY(a, double, reductions);
    if (!r->when || !r->sleeper || !r->next_sleeper || !r->asleep_on || !r->at || !r->awake ||
        !r->live || !r->reduces_left || !r->reduced_at)
        return false;
    for (size_t e = 0; e < n_events; e++) r->when[e] = NEVER, r->sleeper[e] = -1;
    for (int w = 0; w < s->n_workers; w++)
        for (int n = 0; n < s->lists[w].n; n++)
            if (s->lists[w].at[n].action == FR_DO_REDUCE)
                r->reduces_left[reduction(r, &s->lists[w].at[n])]++;
    for (int i = 0; i < (int)reductions; i++)
        if (r->reduces_left[i] == 0) r->when[event(r, REDUCED, i, 0)] = 0;
    if ((r->costs->link > 0 || r->costs->link_forward) && !lines_init(a, r)) return false;
    if (!r->hold) return true;
    r->slot_holder = holders_init(a, s->n_stages, s->n_slots, s->replicas);
    r->buffer_holder = holders_init(a, s->n_backward, s->n_buffers, r->x->backward.pairs);
    return r->slot_holder && r->buffer_holder;
}

static bool clock_init(fr_clock *c, const fr_schedule *s)
{
    fr_arena *a = FR_NEW(fr_arena);
    *c = (fr_clock){.arena = a};
    if (!a) return false;
    c->start = FR_ARENA_ARRAY(a, double *, s->n_workers);
    c->end = FR_ARENA_ARRAY(a, double *, s->n_workers);
    c->busy = FR_ARENA_ARRAY(a, double, s->n_workers);
    c->peak_live = FR_ARENA_ARRAY(a, int, s->n_workers);
    if (!c->start || !c->end || !c->busy || !c->peak_live) return false;
    for (int w = 0; w < s->n_workers; w++) {
        c->start[w] = FR_ARENA_ARRAY(a, double, s->lists[w].n);
        c->end[w] = FR_ARENA_ARRAY(a, double, s->lists[w].n);
        if (!c->start[w] || !c->end[w]) return false;
    }
    return true;
}

fr_status fr__clock_run(fr_ctx *ctx, const fr_schedule *s, const fr__link_index *x,
                        const fr_costs *costs, bool hold_slots, fr_clock *out)
{
    static const fr_costs unit;
    fr_arena scratch = {0};
    run r = {.ctx = ctx,
             .s = s,
             .x = x,
             .costs = costs ? costs : &unit,
             .hold = hold_slots,
             .n_micro = fr__n_micro(s),
             .out = out};
    fr_status status;
    if (clock_init(out, s) && run_init(&scratch, &r))
        status = run_all(&r), out->has_costs = costs != NULL;
    else
        status = fr__no_memory(ctx, (size_t)s->n_stages * (size_t)r.n_micro * sizeof(double),
                               "the clock of a schedule");
    fr__arena_fini(&scratch);
    if (status != FR_OK) fr_clock_free(out);
    return status;
}

fr_status fr_schedule_clock(fr_ctx *ctx, const fr_schedule *s, const fr_costs *costs, fr_clock *out)
{
    fr_arena scratch = {0};
    fr__link_index x;
    *out = (fr_clock){0};
    fr_status status = fr__link_index_init(ctx, &scratch, s, &x);
    if (status == FR_OK) status = fr__clock_run(ctx, s, &x, costs, s->slot_of != NULL, out);
    fr__arena_fini(&scratch);
    return status;
}

void fr_clock_free(fr_clock *c)
{
    fr__arena_free(c->arena);
    *c = (fr_clock){0};
}
