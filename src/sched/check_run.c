/* check_run.c -- proof that all lists together run to their ends with any timing.
 *
 * Each worker runs its list in order. It waits
 *     at RECV for the SEND;
 *     at F until its slot is free: the stage itself and all readers of its outputs have finished
 * the micro-batch that held the slot before (its B or W; in evaluation its F); at B or I until each
 * gradient buffer is free: the stage below has read its contents; at STEP, if gradients are
 * reduced, until all replicas have submitted theirs: the replicas of all stages if the schedule
 * flushes, else those of its own stage. The lists and tables decide what a worker waits for; time
 * does not. So if one run completes, every run does, and no slot or buffer has two users at once,
 * because each user waits for the one before. If one run deadlocks, every run does, at the same
 * steps. */
#include "sched/check.h"

#include <stdio.h>

typedef struct run {
    fr__proof *p;
    int *at;            /* [worker]: its current step */
    int *slot_before;   /* [stage][micro]: micro-batch that held the slot before; -1: none */
    int *buffer_before; /* [backward link][micro] */
    int *n_reduced;     /* [reduction]: copies that have submitted */
    /* Workers that wait for a place, chained; place n_places + i is the end of reduction i. */
    int *waiting, *next; /* [places + reductions], [worker]; -1: none */
    int *ready, n_ready; /* [worker]: stack of workers that can run */
} run;

/* Event that a worker waits for, and the reason. */
typedef enum why { FOR_NOTHING, FOR_SEND, FOR_SLOT, FOR_BUFFER, FOR_REDUCE } why;
typedef struct wait {
    why why;
    int worker, place; /* of the instruction */
    int owner;         /* slot, buffer: the micro-batch that holds it */
} wait;

static const wait no_wait = {.why = FOR_NOTHING};

static bool is_done(const run *r, int w, int place) { return place < r->p->first[w] + r->at[w]; }

/* Last owner of a slot or buffer. Each replica has its own slots, each pair its own buffers. Their
 * number is at most the micro-batches of one replica or pair, so a row has room for all. */
static int *slot_owner(const fr__proof *p, int *slots, int stage, int micro)
{
    const fr_schedule *s = p->s;
    return fr__micro_row(p, slots, stage) + micro % s->replicas[stage] * s->n_slots[stage] +
           fr_schedule_slot(s, stage, micro);
}
static int *buffer_owner(const fr__proof *p, int *buffers, int link, int micro)
{
    const fr_schedule *s = p->s;
    return fr__micro_row(p, buffers, link) +
           micro % p->n_pairs[FR_BACKWARD][link] * s->n_buffers[link] +
           fr_schedule_buffer(s, link, micro);
}

/* Find the previous owner of each slot and buffer, in list order. */
static bool find_owners(run *r)
{
    fr__proof *p = r->p;
    const fr_schedule *s = p->s;
    int *slots = fr__proof_table(p, s->n_stages, p->n_all); /* last owners so far */
    int *buffers = fr__proof_table(p, s->n_backward, p->n_all);
    if (!slots || !buffers) return false;
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++) {
            const fr_instr *x = fr__instr_at(p, w, i);
            if (x->action == FR_DO_F) {
                int *last = slot_owner(p, slots, x->stage, x->micro);
                fr__micro_row(p, r->slot_before, x->stage)[x->micro] = *last;
                *last = x->micro;
            }
            if (x->action != FR_DO_B && x->action != FR_DO_I) continue;
            const fr__groups *g = &p->out_of[FR_BACKWARD];
            for (int n = g->first[x->stage]; n < g->first[x->stage + 1]; n++) {
                int link = g->at[n];
                int *last = buffer_owner(p, buffers, link, x->micro);
                fr__micro_row(p, r->buffer_before, link)[x->micro] = *last;
                *last = x->micro;
            }
        }
    return true;
}

/* --- waits -------------------------------------------------------------------------------- */

static wait wait_for_slot(const run *r, const fr_instr *x)
{
    fr__proof *p = r->p;
    const fr_schedule *s = p->s;
    int owner = fr__micro_row(p, r->slot_before, x->stage)[x->micro];
    if (owner < 0) return no_wait;
    int *last_use = s->is_forward_only ? p->forward : p->weight;
    int place = fr__micro_row(p, last_use, x->stage)[owner];
    int w = fr_schedule_worker(s, x->stage, owner);
    if (!is_done(r, w, place))
        return (wait){.why = FOR_SLOT, .worker = w, .place = place, .owner = owner};
    const fr__groups *g = &p->out_of[FR_FORWARD];
    for (int n = g->first[x->stage]; n < g->first[x->stage + 1]; n++) {
        int reader = s->forward[g->at[n]].to;
        place = fr__micro_row(p, last_use, reader)[owner];
        w = fr_schedule_worker(s, reader, owner);
        if (!is_done(r, w, place))
            return (wait){.why = FOR_SLOT, .worker = w, .place = place, .owner = owner};
    }
    return no_wait;
}

static wait wait_for_buffers(const run *r, const fr_instr *x)
{
    fr__proof *p = r->p;
    const fr__groups *g = &p->out_of[FR_BACKWARD];
    for (int n = g->first[x->stage]; n < g->first[x->stage + 1]; n++) {
        int to = p->s->backward[g->at[n]].to;
        int owner = fr__micro_row(p, r->buffer_before, g->at[n])[x->micro];
        if (owner < 0) continue;
        int place = fr__micro_row(p, p->back, to)[owner], w = fr_schedule_worker(p->s, to, owner);
        if (!is_done(r, w, place))
            return (wait){.why = FOR_BUFFER, .worker = w, .place = place, .owner = owner};
    }
    return no_wait;
}

static wait wait_for_send(const run *r, const fr_instr *x)
{
    fr__proof *p = r->p;
    int way = fr__way_of(x->action), link = fr__proof_link(p, way, x->peer, x->stage);
    int place = fr__micro_row(p, p->send[way], link)[x->micro];
    int w = fr_schedule_worker(p->s, x->peer, x->micro);
    if (is_done(r, w, place)) return no_wait;
    return (wait){.why = FOR_SEND, .worker = w, .place = place};
}

/* The reduction of a STEP or REDUCE: one for all stages, or one per stage. */
static int reduction_of(const fr__proof *p, const fr_instr *x)
{
    return p->s->is_flush ? x->micro : x->stage * p->s->n_batches + x->micro;
}

static bool is_reduced(const run *r, const fr_instr *x)
{
    const fr_schedule *s = r->p->s;
    int n_all = s->is_flush ? r->p->first_copy[s->n_stages] : s->replicas[x->stage];
    return r->n_reduced[reduction_of(r->p, x)] == n_all;
}

static wait wait_for_reduce(const run *r, const fr_instr *x)
{
    fr__proof *p = r->p;
    const fr_schedule *s = p->s;
    if (!p->has_reduce || is_reduced(r, x)) return no_wait;
    for (int k = s->is_flush ? 0 : x->stage; k < s->n_stages; k++)
        for (int w = s->worker_of[k]; w < s->worker_of[k] + s->replicas[k]; w++) {
            int place = fr__batch_row(p, p->reduce, k, w)[x->micro];
            if (!is_done(r, w, place))
                return (wait){.why = FOR_REDUCE, .worker = w, .place = place};
        }
    return no_wait;
}

static wait wait_for(const run *r, const fr_instr *x)
{
    switch (x->action) {
    case FR_DO_F: return wait_for_slot(r, x);
    case FR_DO_B:
    case FR_DO_I: return wait_for_buffers(r, x);
    case FR_DO_RECV_F:
    case FR_DO_RECV_B: return wait_for_send(r, x);
    case FR_DO_STEP: return wait_for_reduce(r, x);
    default: return no_wait;
    }
}

/* --- running ------------------------------------------------------------------------------ */

static void wake(run *r, int place)
{
    for (int w = r->waiting[place]; w >= 0; w = r->next[w]) r->ready[r->n_ready++] = w;
    r->waiting[place] = -1;
}

/* Run worker w until it waits or its list ends. */
static void go_on(run *r, int w)
{
    fr__proof *p = r->p;
    while (r->at[w] < p->s->lists[w].n) {
        const fr_instr *x = fr__instr_at(p, w, r->at[w]);
        wait need = wait_for(r, x);
        if (need.why != FOR_NOTHING) {
            int place = need.why == FOR_REDUCE ? p->n_places + reduction_of(p, x) : need.place;
            r->next[w] = r->waiting[place];
            r->waiting[place] = w;
            return;
        }
        r->at[w]++;
        wake(r, p->first[w] + r->at[w] - 1);
        if (x->action != FR_DO_REDUCE) continue;
        r->n_reduced[reduction_of(p, x)]++;
        if (is_reduced(r, x)) wake(r, p->n_places + reduction_of(p, x));
    }
}

/* --- deadlock ----------------------------------------------------------------------------- */

/* " for worker 1 to do 1B3 (step 9), which frees slot 2 of micro-batch 3" */
static void describe(const run *r, const fr_instr *x, const wait *need, char *text, size_t room)
{
    const fr__proof *p = r->p;
    int w = need->worker, step = need->place - p->first[w];
    char what[48], reason[96] = "";
    if (need->why == FOR_SLOT)
        snprintf(reason, sizeof reason, ", the end of micro-batch %d in slot %d of stage %d",
                 need->owner, fr_schedule_slot(p->s, x->stage, x->micro), x->stage);
    if (need->why == FOR_BUFFER)
        snprintf(reason, sizeof reason, ", the end of micro-batch %d in its gradient buffer",
                 need->owner);
    snprintf(text, room, " for %s on worker %d, step %d%s",
             fr_instr_text(fr__instr_at(p, w, step), what), w, step, reason);
}

/* Each blocked worker waits for another blocked one, so the chain closes. The message names the
 * loop. */
static fr_status deadlock(run *r, int w)
{
    enum { TOLD = 5 };
    const fr__proof *p = r->p;
    char text[768], part[192], what[48];
    size_t n = 0;
    for (int i = 0; i < p->s->n_workers; i++) { /* enter the loop */
        wait need = wait_for(r, fr__instr_at(p, w, r->at[w]));
        w = need.worker;
    }
    int first = w, length = 0;
    text[0] = '\0';
    do {
        const fr_instr *x = fr__instr_at(p, w, r->at[w]);
        wait need = wait_for(r, x);
        describe(r, x, &need, part, sizeof part);
        if (length < TOLD)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s waits at step %d (%s)%s",
                                  length ? ", which" : "", r->at[w], fr_instr_text(x, what), part);
        w = need.worker;
        length++;
    } while (w != first && n < sizeof text);
    return fr_fail(p->ctx, FR_INVALID, "deadlock: worker %d%s%s", first, text,
                   length > TOLD ? ", and so on, back to the first" : "");
}

fr_status fr__proof_run(fr__proof *p)
{
    const fr_schedule *s = p->s;
    run r = {.p = p};
    int n_reductions = s->n_batches * (s->is_flush ? 1 : s->n_stages);
    r.at = FR_ARENA_ARRAY(&p->arena, int, s->n_workers);
    r.ready = FR_ARENA_ARRAY(&p->arena, int, s->n_workers);
    r.next = FR_ARENA_ARRAY(&p->arena, int, s->n_workers);
    r.n_reduced = FR_ARENA_ARRAY(&p->arena, int, n_reductions);
    r.waiting = fr__proof_table(p, 1, p->n_places + n_reductions);
    r.slot_before = fr__proof_table(p, s->n_stages, p->n_all);
    r.buffer_before = fr__proof_table(p, s->n_backward, p->n_all);
    if (!r.at || !r.ready || !r.next || !r.n_reduced || !r.waiting || !r.slot_before ||
        !r.buffer_before || (p->has_slots && !find_owners(&r)))
        return fr__no_memory(p->ctx, (size_t)p->n_places * sizeof(int), "the check of a schedule");
    for (int w = 0; w < s->n_workers; w++) r.ready[r.n_ready++] = w;
    while (r.n_ready > 0) go_on(&r, r.ready[--r.n_ready]);
    for (int w = 0; w < s->n_workers; w++)
        if (r.at[w] < s->lists[w].n) return deadlock(&r, w);
    return FR_OK;
}
