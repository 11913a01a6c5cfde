/* pass_slots.c -- memory of each micro-batch: slots for activations, buffers for gradients between
 * stages.
 *
 * The schedule runs on the unit clock. Each micro-batch holds its slot for an interval of time, and
 * intervals that overlap get different slots. Reuse in the order of that clock cannot deadlock,
 * whatever the real durations are: every wait, for a slot or otherwise, is for a computation that
 * started earlier on the unit clock.
 *
 * Slots are reused round robin, the one that is free for longest first, so a spare slot lets
 * producer and consumer drift apart. A flush schedule is walked again and again, and each walk
 * takes slots from number 0 on, while readers on other workers may not have finished the
 * micro-batches of the last walk. Its last micro-batches therefore take the highest slots that are
 * free. */
#include "sched/sched.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct moment {
    double at;
    int micro;
} moment;

/* Times on the unit clock, [stage][micro]; INFINITY if the event never happens. */
typedef struct times {
    double *forward_start; /* start of F */
    double *grad_start;    /* start of B or I */
    double *grad_end;      /* end of B or I */
    double *last_use;      /* end of B or W, or of F if there is nothing else */
} times;

typedef struct slots {
    fr_schedule *s;
    const fr__link_index *x;
    int total; /* micro-batches of the segment */
    times t;
    moment *begin, *end; /* [total] per replica, or per pair of replicas */
    double *until;       /* [total] */
    int *queue;          /* [total]: free slots, a ring */
    bool ends_high;      /* the last micro-batches take the highest free slots */
} slots;

static int by_time(const void *a, const void *b)
{
    const moment *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
                          : (x->micro > y->micro) - (x->micro < y->micro);
}

static void sort(moment *m, int n)
{
    for (int i = 1; i < n; i++)
        if (by_time(&m[i - 1], &m[i]) > 0) {
            qsort(m, (size_t)n, sizeof *m, by_time);
            return;
        }
}

/* Largest number of intervals open at once. An interval that ends when another begins does not
 * overlap it. */
static int peak(const moment *begin, const moment *end, int n)
{
    int most = 0, ended = 0;
    for (int i = 0; i < n; i++) {
        while (end[ended].at <= begin[i].at) ended++;
        if (i + 1 - ended > most) most = i + 1 - ended;
    }
    return most;
}

/* Move the highest of the free slots, queue[taken] to queue[given - 1], to the front. */
static void put_highest_first(slots *p, int taken, int given, int room)
{
    int *front = &p->queue[taken % room];
    for (int i = taken + 1; i < given; i++) {
        int *other = &p->queue[i % room], slot = *other;
        if (slot > *front) *other = *front, *front = slot;
    }
}

/* Micro-batch m holds a slot from from[m] to p->until[m]. Each share (first, first + every, ...)
 * has its own slots. */
static void colour_share(slots *p, const double *from, int first, int every, int n_spare,
                         int *slot_of, int *n_slots)
{
    int n = 0;
    for (int m = first; m < p->total; m += every) {
        slot_of[m] = 0;
        if (!isfinite(from[m])) continue;
        p->begin[n] = (moment){from[m], m};
        p->end[n++] = (moment){p->until[m], m};
    }
    sort(p->begin, n);
    sort(p->end, n);
    int room = peak(p->begin, p->end, n) + n_spare;
    if (room > n) room = n;
    if (room < 1) room = 1;
    for (int i = 0; i < room; i++) p->queue[i] = i;
    int ended = 0; /* = slots released; i = slots taken */
    for (int i = 0; i < n; i++) {
        for (; p->end[ended].at <= p->begin[i].at; ended++)
            p->queue[ended % room] = slot_of[p->end[ended].micro];
        if (p->ends_high && i >= room && i >= n - room) put_highest_first(p, i, ended + room, room);
        slot_of[p->begin[i].micro] = p->queue[i % room];
    }
    if (room > *n_slots) *n_slots = room;
}

/* All shares; *n_slots is the largest number that a share needs. */
static void colour(slots *p, const double *from, int n_shares, int n_spare, int *slot_of,
                   int *n_slots)
{
    *n_slots = 0;
    for (int first = 0; first < n_shares; first++)
        colour_share(p, from, first, n_shares, n_spare, slot_of, n_slots);
}

/* A spare slot lets the stage continue if a reader on another worker may finish after the stage
 * itself: in forward-only schedules, or with deferred weight gradients. Otherwise the stage's own
 * backward has already waited for the reader's gradient. */
static int spare_slots(const slots *p, int stage)
{
    const fr__direction *d = &p->x->forward;
    if (p->s->is_forward_only) return 1;
    for (int j = d->out.first[stage]; p->s->is_split && j < d->out.first[stage + 1]; j++)
        if (p->s->worker_of[d->links[d->out.link[j]].to] != p->s->worker_of[stage]) return 1;
    return 0;
}

/* The slot of a stage is free when the stage and every reader of its outputs have finished. */
static void colour_stage(slots *p, int stage)
{
    const fr__direction *d = &p->x->forward;
    size_t row = (size_t)stage * (size_t)p->total;
    memcpy(p->until, p->t.last_use + row, (size_t)p->total * sizeof(double));
    for (int j = d->out.first[stage]; j < d->out.first[stage + 1]; j++) {
        const double *reader =
            p->t.last_use + (size_t)d->links[d->out.link[j]].to * (size_t)p->total;
        for (int m = 0; m < p->total; m++) p->until[m] = fmax(p->until[m], reader[m]);
    }
    p->ends_high = p->s->is_flush && p->s->is_split;
    colour(p, p->t.forward_start + row, p->s->replicas[stage], spare_slots(p, stage),
           p->s->slot_of + row, &p->s->n_slots[stage]);
}

/* A gradient buffer is in use from the start of its producer to the end of its reader. The spare
 * buffer lets the producer continue while the reader is late. On one worker no reader is late. */
static void colour_link(slots *p, int link)
{
    fr_link at = p->x->backward.links[link];
    bool is_shared = p->s->worker_of[at.from] != p->s->worker_of[at.to];
    memcpy(p->until, p->t.grad_end + (size_t)at.to * (size_t)p->total,
           (size_t)p->total * sizeof(double));
    p->ends_high = false;
    colour(p, p->t.grad_start + (size_t)at.from * (size_t)p->total, p->x->backward.pairs[link],
           is_shared ? 1 : 0, p->s->buffer_of + (size_t)link * (size_t)p->total,
           &p->s->n_buffers[link]);
}

static double *table(fr_arena *a, size_t n)
{
    double *t = FR_ARENA_ARRAY(a, double, n);
    for (size_t i = 0; t && i < n; i++) t[i] = INFINITY;
    return t;
}

static bool slots_init(fr_arena *a, slots *p)
{
    size_t micros = (size_t)p->total, cells = (size_t)p->s->n_stages * micros;
    p->t = (times){table(a, cells), table(a, cells), table(a, cells), table(a, cells)};
    p->begin = FR_ARENA_ARRAY(a, moment, micros);
    p->end = FR_ARENA_ARRAY(a, moment, micros);
    p->until = table(a, micros);
    p->queue = FR_ARENA_ARRAY(a, int, micros);
    return p->t.forward_start && p->t.grad_start && p->t.grad_end && p->t.last_use && p->begin &&
           p->end && p->until && p->queue;
}

static void note_times(slots *p, const fr_clock *c)
{
    for (int w = 0; w < p->s->n_workers; w++)
        for (int i = 0; i < p->s->lists[w].n; i++) {
            const fr_instr *at = &p->s->lists[w].at[i];
            if (at->action > FR_DO_W) continue;
            size_t cell = (size_t)at->stage * (size_t)p->total + (size_t)at->micro;
            if (at->action == FR_DO_F) p->t.forward_start[cell] = c->start[w][i];
            if (fr__makes_gradients(at->action)) {
                p->t.grad_start[cell] = c->start[w][i];
                p->t.grad_end[cell] = c->end[w][i];
            }
            if (fr__is_last_use(p->s, at->action)) p->t.last_use[cell] = c->end[w][i];
        }
}

fr_status fr__pass_slots(fr_ctx *ctx, fr_schedule *s, const fr__link_index *x)
{
    fr_clock clock = {0};
    FR_TRY(fr__clock_run(ctx, s, x, NULL, false, &clock));
    fr_arena scratch = {0};
    slots p = {.s = s, .x = x, .total = fr__n_micro(s)};
    size_t micros = (size_t)p.total, links = (size_t)s->n_backward;
    s->n_slots = fr__schedule_ints(s, (size_t)s->n_stages);
    s->slot_of = fr__schedule_ints(s, (size_t)s->n_stages * micros);
    s->n_buffers = fr__schedule_ints(s, links);
    s->buffer_of = fr__schedule_ints(s, links * micros);
    bool is_ok =
        s->n_slots && s->slot_of && s->n_buffers && s->buffer_of && slots_init(&scratch, &p);
    if (is_ok) {
        note_times(&p, &clock);
        for (int k = 0; k < s->n_stages; k++) colour_stage(&p, k);
        for (int l = 0; l < s->n_backward; l++) colour_link(&p, l);
    }
    fr__arena_fini(&scratch);
    fr_clock_free(&clock);
    return is_ok ? FR_OK
                 : fr__no_memory(ctx, (size_t)s->n_stages * micros * sizeof(double),
                                 "the slots of a schedule");
}
