/* oracle.h -- an independent check of schedules: run them, one instruction of a random worker at a
 * time.
 *
 * It tracks values, messages, sums of gradients and holders of slots, and stops at the first
 * instruction that an engine could not run. It is slow and simple, and shares no code with
 * fr_schedule_check. */
#ifndef FR_TEST_SCHED_ORACLE_H
#define FR_TEST_SCHED_ORACLE_H

#include <forerun/sched.h>

#include <stdlib.h>
#include <string.h>

typedef enum outcome { RAN, WAITS, BROKEN } outcome;

typedef struct oracle {
    const fr_schedule *s;
    int n_all, most; /* most: replicas of any stage */
    bool has_reduce;
    int *at;                             /* [worker] */
    char *forward, *back, *weight;       /* [stage][micro]: done */
    int *uses;                           /* [stage][micro]: of the slot, left */
    int *slot_owner;                     /* [stage][replica][slot]: micro or -1 */
    int *buffer_owner;                   /* [link][replica][replica][buffer]: micro or -1 */
    int *mail[2], *n_sent[2], *n_got[2]; /* [link][replica][replica][n] and without [n] */
    char *has_sent[2], *has_got[2];      /* [link][micro] */
    int *n_summed, *n_steps;             /* [stage][replica] */
    char *reduced;                       /* [stage][replica][batch] */
} oracle;

static inline size_t cell_of(const oracle *o, int row, int micro)
{
    return (size_t)row * (size_t)o->n_all + (size_t)micro;
}

static inline int replica_of(const oracle *o, int stage, int micro)
{
    return micro % o->s->replicas[stage];
}

/* A replica of a stage; two workers that exchange messages over a link. */
static inline int copy_of(const oracle *o, int stage, int replica)
{
    return stage * o->most + replica;
}
static inline int channel_of_link(const oracle *o, int way, int link, int micro)
{
    const fr_link *l = way ? &o->s->backward[link] : &o->s->forward[link];
    return (link * o->most + replica_of(o, l->from, micro)) * o->most + replica_of(o, l->to, micro);
}

static inline int *slot_owner_of(const oracle *o, int stage, int micro)
{
    return &o->slot_owner[cell_of(o, copy_of(o, stage, replica_of(o, stage, micro)),
                                  fr_schedule_slot(o->s, stage, micro))];
}
static inline int *buffer_owner_of(const oracle *o, int link, int micro)
{
    return &o->buffer_owner[cell_of(o, channel_of_link(o, 1, link, micro),
                                    fr_schedule_buffer(o->s, link, micro))];
}

static inline oracle oracle_create(const fr_schedule *s)
{
    oracle o = {.s = s, .n_all = s->n_micro * s->n_batches, .most = 1};
    for (int k = 0; k < s->n_stages; k++)
        if (s->replicas[k] > o.most) o.most = s->replicas[k];
    o.has_reduce = o.most > 1 && !s->is_forward_only; /* replicas must */
    size_t most = (size_t)o.most, stages = (size_t)s->n_stages * most;
    size_t cells = stages * (size_t)o.n_all + 1;
    const int n_links[2] = {s->n_forward, s->n_backward};
    o.at = calloc((size_t)s->n_workers, sizeof(int));
    o.forward = calloc(cells, 1), o.back = calloc(cells, 1), o.weight = calloc(cells, 1);
    o.uses = calloc(cells, sizeof(int));
    o.slot_owner = malloc(cells * sizeof(int));
    memset(o.slot_owner, 0xFF, cells * sizeof(int));
    for (int way = 0; way < 2; way++) {
        size_t links = ((size_t)n_links[way] + 1) * most * most, n = links * (size_t)o.n_all;
        o.mail[way] = calloc(n, sizeof(int));
        o.has_sent[way] = calloc(n, 1), o.has_got[way] = calloc(n, 1);
        o.n_sent[way] = calloc(links, sizeof(int)), o.n_got[way] = calloc(links, sizeof(int));
        if (way == 1) o.buffer_owner = malloc(n * sizeof(int));
        if (way == 1) memset(o.buffer_owner, 0xFF, n * sizeof(int));
    }
    o.n_summed = calloc(stages, sizeof(int)), o.n_steps = calloc(stages, sizeof(int));
    o.reduced = calloc(stages * (size_t)s->n_batches, 1);
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++)
            o.has_reduce |= s->lists[w].at[i].action == FR_DO_REDUCE;
    return o;
}

static inline void oracle_free(oracle *o)
{
    free(o->at), free(o->forward), free(o->back), free(o->weight), free(o->uses);
    free(o->slot_owner), free(o->buffer_owner), free(o->n_summed), free(o->n_steps);
    free(o->reduced);
    for (int way = 0; way < 2; way++) {
        free(o->mail[way]), free(o->n_sent[way]), free(o->n_got[way]);
        free(o->has_sent[way]), free(o->has_got[way]);
    }
}

/* All inputs of a stage: made by the same worker or received by it. */
static inline bool has_inputs(const oracle *o, int way, int stage, int micro)
{
    const fr_schedule *s = o->s;
    int n = way ? s->n_backward : s->n_forward;
    const fr_link *links = way ? s->backward : s->forward;
    for (int l = 0; l < n; l++) {
        if (links[l].to != stage) continue;
        bool is_near = s->worker_of[links[l].from] == s->worker_of[stage];
        const char *made = way ? o->back : o->forward;
        if (is_near ? !made[cell_of(o, links[l].from, micro)]
                    : !o->has_got[way][cell_of(o, l, micro)])
            return false;
    }
    return true;
}

/* The stage has finished a micro-batch: release its own slot, and those that it reads. */
static inline void done_with(oracle *o, int stage, int micro)
{
    const fr_schedule *s = o->s;
    for (int l = -1; l < s->n_forward; l++) {
        if (l >= 0 && s->forward[l].to != stage) continue;
        int k = l < 0 ? stage : s->forward[l].from;
        if (--o->uses[cell_of(o, k, micro)] == 0) *slot_owner_of(o, k, micro) = -1;
    }
}

static inline outcome do_forward(oracle *o, const fr_instr *x)
{
    const fr_schedule *s = o->s;
    int slot = fr_schedule_slot(s, x->stage, x->micro), readers = 0;
    if (o->forward[cell_of(o, x->stage, x->micro)]) return BROKEN;
    if (!has_inputs(o, 0, x->stage, x->micro)) return BROKEN;
    if (slot < 0 || slot >= s->n_slots[x->stage]) return BROKEN;
    for (int k = 0; s->is_flush && !s->is_forward_only && k < s->n_stages; k++)
        if (s->worker_of[k] == s->worker_of[x->stage] &&
            o->n_steps[copy_of(o, k, replica_of(o, k, x->micro))] < x->micro / s->n_micro)
            return BROKEN;
    if (*slot_owner_of(o, x->stage, x->micro) >= 0) return WAITS;
    *slot_owner_of(o, x->stage, x->micro) = x->micro;
    o->forward[cell_of(o, x->stage, x->micro)] = 1;
    for (int l = 0; l < s->n_forward; l++) readers += s->forward[l].from == x->stage;
    o->uses[cell_of(o, x->stage, x->micro)] = 1 + readers;
    if (s->is_forward_only) done_with(o, x->stage, x->micro);
    return RAN;
}

static inline outcome do_input(oracle *o, const fr_instr *x)
{
    const fr_schedule *s = o->s;
    size_t cell = cell_of(o, x->stage, x->micro);
    if (!o->forward[cell] || o->back[cell] || !has_inputs(o, 1, x->stage, x->micro)) return BROKEN;
    for (int l = 0; l < s->n_backward; l++) {
        if (s->backward[l].from != x->stage) continue;
        int b = fr_schedule_buffer(s, l, x->micro);
        if (b < 0 || b >= s->n_buffers[l]) return BROKEN;
        if (*buffer_owner_of(o, l, x->micro) >= 0) return WAITS;
    }
    for (int l = 0; l < s->n_backward; l++) {
        if (s->backward[l].from == x->stage) *buffer_owner_of(o, l, x->micro) = x->micro;
        if (s->backward[l].to == x->stage) *buffer_owner_of(o, l, x->micro) = -1;
    }
    o->back[cell] = 1;
    return RAN;
}

static inline outcome do_weight(oracle *o, const fr_instr *x)
{
    size_t cell = cell_of(o, x->stage, x->micro);
    if (!o->back[cell] || o->weight[cell]) return BROKEN;
    int own = copy_of(o, x->stage, replica_of(o, x->stage, x->micro));
    if (o->n_summed[own] != x->micro / o->s->replicas[x->stage]) return BROKEN;
    if (o->n_steps[own] != x->micro / o->s->n_micro) return BROKEN;
    o->n_summed[own]++;
    o->weight[cell] = 1;
    done_with(o, x->stage, x->micro);
    return RAN;
}

static inline outcome do_backward(oracle *o, const fr_instr *x)
{
    if (o->weight[cell_of(o, x->stage, x->micro)]) return BROKEN;
    outcome end = do_input(o, x);
    return end == RAN ? do_weight(o, x) : end;
}

static inline outcome do_transfer(oracle *o, const fr_instr *x)
{
    const fr_schedule *s = o->s;
    bool is_send = x->action == FR_DO_SEND_F || x->action == FR_DO_SEND_B;
    int way = x->action == FR_DO_SEND_F || x->action == FR_DO_RECV_F ? 0 : 1;
    int l =
        fr_schedule_find_link(way ? s->n_backward : s->n_forward, way ? s->backward : s->forward,
                              is_send ? x->stage : x->peer, is_send ? x->peer : x->stage);
    if (l < 0 || s->worker_of[x->stage] == s->worker_of[x->peer]) return BROKEN;
    size_t cell = cell_of(o, l, x->micro);
    int channel = channel_of_link(o, way, l, x->micro);
    if (is_send) {
        const char *made = way ? o->back : o->forward;
        if (!made[cell_of(o, x->stage, x->micro)] || o->has_sent[way][cell]) return BROKEN;
        o->has_sent[way][cell] = 1;
        o->mail[way][cell_of(o, channel, o->n_sent[way][channel]++)] = x->micro;
        return RAN;
    }
    if (o->n_got[way][channel] == o->n_sent[way][channel]) return WAITS;
    if (o->mail[way][cell_of(o, channel, o->n_got[way][channel]++)] != x->micro) return BROKEN;
    o->has_got[way][cell] = 1;
    return RAN;
}

static inline outcome do_update(oracle *o, int w, const fr_instr *x)
{
    const fr_schedule *s = o->s;
    int replica = w - s->worker_of[x->stage], own = copy_of(o, x->stage, replica);
    char *mine = &o->reduced[own * s->n_batches + x->micro];
    if (o->n_steps[own] != x->micro) return BROKEN;
    if (o->n_summed[own] != (x->micro + 1) * (s->n_micro / s->replicas[x->stage])) return BROKEN;
    if (x->action == FR_DO_REDUCE) return (*mine)++ ? BROKEN : RAN;
    bool all_in = true;
    for (int k = 0; k < s->n_stages; k++)
        for (int q = 0; q < s->replicas[k]; q++) {
            bool is_in = o->reduced[copy_of(o, k, q) * s->n_batches + x->micro];
            if (!s->is_flush && k != x->stage) continue; /* stages do not wait for each other */
            if (o->has_reduce && s->worker_of[k] + q == w && !is_in) return BROKEN;
            all_in &= is_in;
        }
    if (o->has_reduce && !all_in) return WAITS;
    o->n_steps[own]++;
    return RAN;
}

static inline outcome do_next(oracle *o, int w)
{
    const fr_schedule *s = o->s;
    const fr_instr *x = &s->lists[w].at[o->at[w]];
    bool is_update = x->action == FR_DO_STEP || x->action == FR_DO_REDUCE;
    bool is_transfer = x->action >= FR_DO_SEND_F && x->action <= FR_DO_RECV_B;
    if (x->stage < 0 || x->stage >= s->n_stages || x->micro < 0 ||
        x->micro >= (is_update ? s->n_batches : o->n_all) || is_transfer != (x->peer != -1) ||
        (is_transfer && (x->peer < 0 || x->peer >= s->n_stages)))
        return BROKEN;
    int replica = w - s->worker_of[x->stage];
    if (replica < 0 || replica >= s->replicas[x->stage]) return BROKEN;
    if (!is_update && replica != replica_of(o, x->stage, x->micro)) return BROKEN;
    if (s->is_forward_only && x->action != FR_DO_F && x->action != FR_DO_SEND_F &&
        x->action != FR_DO_RECV_F)
        return BROKEN;
    switch (x->action) {
    case FR_DO_F: return do_forward(o, x);
    case FR_DO_B: return do_backward(o, x);
    case FR_DO_I: return do_input(o, x);
    case FR_DO_W: return do_weight(o, x);
    case FR_DO_REDUCE:
    case FR_DO_STEP: return do_update(o, w, x);
    default: return is_transfer ? do_transfer(o, x) : BROKEN;
    }
}

static inline bool all_done(const oracle *o)
{
    const fr_schedule *s = o->s;
    for (int w = 0; w < s->n_workers; w++)
        if (o->at[w] < s->lists[w].n) return false;
    for (int k = 0; k < s->n_stages; k++) {
        for (int m = 0; m < o->n_all; m++) {
            size_t cell = cell_of(o, k, m);
            if (!o->forward[cell]) return false;
            if (!s->is_forward_only && (!o->back[cell] || !o->weight[cell])) return false;
        }
        for (int q = 0; !s->is_forward_only && q < s->replicas[k]; q++)
            if (o->n_steps[copy_of(o, k, q)] != s->n_batches) return false;
    }
    for (int way = 0; way < 2; way++)
        for (int l = 0; l < (way ? s->n_backward : s->n_forward) * o->most * o->most; l++)
            if (o->n_got[way][l] != o->n_sent[way][l]) return false;
    return true;
}

/* Does it run to its end, with workers taking turns by the seed? */
static inline bool oracle_runs(const fr_schedule *s, unsigned seed)
{
    oracle o = oracle_create(s);
    bool is_fine = true, is_moving = true;
    while (is_fine && is_moving) {
        is_moving = false;
        seed = seed * 1664525u + 1013904223u;
        int first = (int)(seed >> 8) % s->n_workers, most = 1 + (int)(seed >> 28);
        for (int i = 0; i < s->n_workers && is_fine; i++) {
            int w = (first + i) % s->n_workers;
            for (int n = 0; n < most && is_fine && o.at[w] < s->lists[w].n; n++) {
                outcome end = do_next(&o, w);
                if (end == BROKEN) is_fine = false;
                if (end != RAN) break;
                o.at[w]++;
                is_moving = true;
            }
        }
    }
    is_fine = is_fine && all_done(&o);
    oracle_free(&o);
    return is_fine;
}

#endif
