/* emulation.c -- emulation: real computation at the pace of devices and links that are not there.
 *
 * Every worker has a clock of virtual seconds. An instruction is computed as fast as it goes, then
 * the clock is set on by what it should have taken, and the worker sleeps until the wall clock has
 * come there too. Whatever passes between workers carries the time at which it is there: a message
 * its arrival, a buffer that was given back the moment of it, a sum the time when it is through the
 * links; who takes it sets the own clock to that time at least, and sleeps. So an emulated run has
 * the order of events, the overlap and the staleness of the real one, and its wall clock is the
 * virtual one times `scale`. What workers note of their instructions is virtual; mini-batches are
 * through when the wall clock says so.
 *
 * A worker that comes late by a little (other threads were on its core) makes up for it with its
 * next sleeps; by more, it sets its clock on and the time is counted as overrun. What is computed
 * does not depend on it; only links may then see messages in another order than they should.
 *
 * Replicas (and boards) meet: each hands in at a time of its own, during the last backward at the
 * share of it by which the bucket is final; the links get the sum when it is its turn in virtual
 * time (buckets of a block follow each other), which is when somebody sends something later or asks
 * for it. */
#include "engine/engine.h"

#include <math.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    SLACK_NS = 20000000,  /* of the wall clock: late, but to be made up for */
    NAP_NS = 50000000,    /* between two looks whether the run was given up */
    GRACE_NS = 3000000,   /* for others to come to the same moment; made up for likewise */
    TIMER_SLACK_NS = 1000 /* else 50 us */
};
#define INSTANT 1e-9

/* One of the two rounds that can be under way. */
typedef struct round_state {
    int n_posted, n_taken;
    bool is_alive, is_due; /* due: complete, and the links do not know of it yet */
    double ready, done;
} round_state;

struct fr__emulated_reduction {
    fr__emulated_reduction *next;
    fr__emulated_reduction *before; /* the bucket that goes first, or NULL */
    double through[2];              /* [round]: when the last such one was */
    int n_members;
    int *devices; /* [n_members] */
    size_t bytes;
    uint8_t *posts, *takes; /* [worker]: number of its next round, mod 2 */
    round_state rounds[2];
};

struct fr__emulation {
    const fr_timing *timing;
    double scale;
    uint64_t origin_ns; /* of both clocks */
    int n_workers;
    int *device_of; /* [worker] */
    pthread_mutex_t lock;
    /* Under the lock: */
    fr_links *links; /* NULL: transfers are free */
    fr__emulated_reduction *reductions;
    int n_due;
};

/* --- life ------------------------------------------------------------------------------------ */

static fr_status check_costs(fr_ctx *ctx, const fr_engine *e)
{
    const fr_timing *t = e->desc.timing;
    for (int k = 0; k < e->n_stages; k++) {
        const fr_stage_cost *c = &t->cost[k];
        const double seconds[] = {c->forward, c->backward,      c->back_input,    c->back_weight,
                                  c->step,    c->fetch_forward, c->fetch_backward};
        for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
            if (!(seconds[i] >= 0 && isfinite(seconds[i])))
                return fr_fail(ctx, FR_INVALID,
                               "emulation: stage %d is said to take %g s; a cost must be 0 or more",
                               k, seconds[i]);
    }
    for (int w = 0; t->speed && w < e->n_workers; w++)
        if (!(t->speed[w] > 0 && isfinite(t->speed[w])))
            return fr_fail(ctx, FR_INVALID,
                           "emulation: the device of worker %d has speed %g; it must be above 0", w,
                           t->speed[w]);
    return FR_OK;
}

static fr_status check(const fr_engine *e)
{
    const fr_timing *t = e->desc.timing;
    if (e->desc.team || e->transport->has_processes)
        return fr_fail(e->ctx, FR_UNSUPPORTED,
                       "emulation runs in one process, over transport threads: devices share "
                       "nothing but its clock; leave the launcher out, or the cluster");
    if (!t->cost) return fr_fail(e->ctx, FR_INVALID, "emulation: stages have no costs");
    if (!(e->desc.scale > 0 && isfinite(e->desc.scale)) ||
        !(t->overhead_s >= 0 && isfinite(t->overhead_s)))
        return fr_fail(e->ctx, FR_INVALID,
                       "emulation: scale %g must be above 0, overhead %g s at least 0",
                       e->desc.scale, t->overhead_s);
    for (int w = 0; t->cluster && w < e->n_workers; w++) {
        int device = t->device_of ? t->device_of[w] : w;
        if (device < 0 || device >= t->cluster->n_devices)
            return fr_fail(e->ctx, FR_INVALID,
                           "emulation: worker %d is to be on device %d, cluster %s has %d", w,
                           device, t->cluster->name ? t->cluster->name : "", t->cluster->n_devices);
    }
    return check_costs(e->ctx, e);
}

fr_status fr__emulation_create(fr_engine *e)
{
    const fr_timing *t = e->desc.timing;
    if (!t) return FR_OK;
    FR_TRY(check(e));
    fr__emulation *p = FR_ARENA_NEW(&e->arena, fr__emulation);
    if (!p) return fr__no_memory(e->ctx, sizeof *p, "emulation");
    *p = (fr__emulation){.timing = t,
                         .scale = e->desc.scale,
                         .origin_ns = fr__clock_ns(&e->clock),
                         .n_workers = e->n_workers,
                         .device_of = FR_ARENA_ARRAY(&e->arena, int, e->n_workers)};
    if (!p->device_of) return fr__no_memory(e->ctx, (size_t)e->n_workers * 4, "emulation");
    for (int w = 0; w < e->n_workers; w++) p->device_of[w] = t->device_of ? t->device_of[w] : w;
    pthread_mutex_init(&p->lock, NULL);
    e->emulation = p;
    return t->cluster ? fr_links_create(e->ctx, t->cluster, &p->links) : FR_OK;
}

void fr__emulation_free(fr_engine *e)
{
    if (!e->emulation) return;
    fr_links_free(e->emulation->links);
    pthread_mutex_destroy(&e->emulation->lock);
}

/* --- the machine's clock --------------------------------------------------------------------- */

static uint64_t machine_now_ns(void *user)
{
    (void)user;
    return fr__now_ns();
}

static void machine_sleep_until(void *user, int worker, uint64_t ns)
{
    (void)user, (void)worker;
    struct timespec at = {.tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u)};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

const fr__timer fr__machine_clock = {.now_ns = machine_now_ns, .sleep_until = machine_sleep_until};

/* --- two clocks ------------------------------------------------------------------------------ */

uint64_t fr__emulation_ns(const fr__emulation *p, double seconds)
{
    return p->origin_ns + (uint64_t)(seconds * 1e9);
}

static uint64_t wall_of(const fr__emulation *p, double seconds)
{
    return fr__emulation_ns(p, seconds * p->scale);
}

static double virtual_of(const fr__emulation *p, uint64_t wall_ns)
{
    return (double)(wall_ns - p->origin_ns) * 1e-9 / p->scale;
}

uint64_t fr__emulation_report_ns(const fr__emulation *p, uint64_t wall_ns)
{
    return fr__emulation_ns(p, virtual_of(p, wall_ns));
}

uint64_t fr_engine_now(const fr_engine *e)
{
    uint64_t now = fr__clock_ns(&e->clock);
    return e->emulation ? fr__emulation_report_ns(e->emulation, now) : now;
}

/* All workers start at the same moment, with links that nobody uses. */
void fr__emulation_begin(fr_engine *e)
{
    fr__emulation *p = e->emulation;
    double now = virtual_of(p, fr__clock_ns(&e->clock));
    for (int w = 0; w < e->n_workers; w++) {
        e->workers[w].clock = now;
        e->workers[w].span = 0;
    }
    if (p->links) fr_links_reset(p->links);
    p->n_due = 0;
    for (fr__emulated_reduction *m = p->reductions; m; m = m->next) {
        memset(m->rounds, 0, sizeof m->rounds);
        memset(m->through, 0, sizeof m->through);
        memset(m->posts, 0, (size_t)p->n_workers);
        memset(m->takes, 0, (size_t)p->n_workers);
    }
}

void fr__emulation_enter(void) { (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0); }

/* It is not stalled meanwhile, and leaves at once when the run is given up. */
static void sleep_until(fr__worker *w, uint64_t wall_ns)
{
    fr_engine *e = w->engine;
    uint64_t now = fr__clock_ns(&e->clock);
    if (now >= wall_ns) return;
    atomic_store(&w->is_emulating, 1);
    for (; now < wall_ns && !e->transport->is_aborted(e->group); now = fr__clock_ns(&e->clock))
        e->clock.sleep_until(e->clock.user, w->index,
                             wall_ns - now < NAP_NS ? wall_ns : now + NAP_NS);
    atomic_store(&w->is_emulating, 0);
}

/* --- computation ----------------------------------------------------------------------------- */

double fr__emulation_seconds(const fr__part *p, fr_action action)
{
    const fr_timing *t = p->engine->emulation->timing;
    const fr_stage_cost *c = &t->cost[p->stage];
    double seconds = 0;
    switch (action) {
    case FR_DO_F: seconds = c->forward; break;
    case FR_DO_B: seconds = c->backward; break;
    case FR_DO_I: seconds = c->back_input; break;
    case FR_DO_W: seconds = c->back_weight; break;
    case FR_DO_STEP: seconds = c->step + c->fetch_forward + c->fetch_backward; break;
    default: break;
    }
    return t->speed ? seconds / t->speed[p->worker->index] : seconds;
}

void fr__emulation_advance(fr__worker *w, double seconds)
{
    w->clock += seconds;
    w->overrun.paced_s += seconds * w->engine->emulation->scale;
}

void fr__emulation_spend(fr__worker *w, double seconds)
{
    const fr__emulation *p = w->engine->emulation;
    fr__emulation_advance(w, seconds + p->timing->overhead_s);
    uint64_t due = wall_of(p, w->clock), now = fr__clock_ns(&w->engine->clock);
    if (now > due + SLACK_NS) {
        w->overrun.late_s += (double)(now - due) * 1e-9;
        w->clock = virtual_of(p, now);
        return;
    }
    sleep_until(w, due);
}

void fr__emulation_wait(fr__worker *w, double until)
{
    if (!(until > w->clock)) return;
    w->waited += until - w->clock;
    w->clock = until;
    sleep_until(w, wall_of(w->engine->emulation, until));
}

fr_overrun fr_engine_overrun(const fr_engine *e)
{
    fr_overrun sum = {0};
    for (int i = 0; i < e->n_workers; i++) {
        sum.late_s += e->workers[i].overrun.late_s;
        sum.paced_s += e->workers[i].overrun.paced_s;
    }
    return sum;
}

/* --- reductions --------------------------------------------------------------------------------
 */

void fr__emulation_follow(fr__emulated_reduction *m, fr__emulated_reduction *before)
{
    m->before = before;
}

fr_status fr__emulation_add_reduction(fr_engine *e, int n, const int *members, size_t bytes,
                                      fr__emulated_reduction **out)
{
    fr__emulation *p = e->emulation;
    fr__emulated_reduction *m = *out = FR_ARENA_NEW(&e->arena, fr__emulated_reduction);
    if (!m) return fr__no_memory(e->ctx, sizeof *m, "emulation");
    *m = (fr__emulated_reduction){.next = p->reductions,
                                  .n_members = n,
                                  .bytes = bytes,
                                  .devices = FR_ARENA_ARRAY(&e->arena, int, n),
                                  .posts = FR_ARENA_ARRAY(&e->arena, uint8_t, e->n_workers),
                                  .takes = FR_ARENA_ARRAY(&e->arena, uint8_t, e->n_workers)};
    if (!m->devices || !m->posts || !m->takes)
        return fr__no_memory(e->ctx, (size_t)e->n_workers * 2, "emulation");
    for (int i = 0; i < n; i++) m->devices[i] = p->device_of[members[i]];
    p->reductions = m;
    return FR_OK;
}

/* When the links may get a complete round: not before the bucket that goes first is through. */
static double turn(const fr__emulated_reduction *m, int round)
{
    const round_state *r = &m->rounds[round];
    if (!m->before) return r->ready;
    if (m->before->rounds[round].is_due) return INFINITY;
    return fmax(r->ready, m->before->through[round]);
}

/* With the lock held: the links get what is due until then, in order. */
static void serve(fr__emulation *p, double until)
{
    while (p->n_due > 0) {
        fr__emulated_reduction *first = NULL;
        double earliest = until;
        int round = 0;
        for (fr__emulated_reduction *m = p->reductions; m; m = m->next)
            for (int i = 0; i < 2; i++)
                if (m->rounds[i].is_due && turn(m, i) <= earliest &&
                    (!first || turn(m, i) < earliest))
                    first = m, round = i, earliest = turn(m, i);
        if (!first) return;
        round_state *r = &first->rounds[round];
        r->done = first->through[round] =
            fr_links_sum(p->links, first->n_members, first->devices, first->bytes, earliest);
        r->is_due = false;
        p->n_due--;
    }
}

void fr__emulation_post(fr__worker *w, fr__emulated_reduction *m, double at, bool is_alive)
{
    fr__emulation *p = w->engine->emulation;
    pthread_mutex_lock(&p->lock);
    round_state *r = &m->rounds[m->posts[w->index]];
    m->posts[w->index] ^= 1;
    r->is_alive = is_alive && (r->n_posted == 0 || r->is_alive);
    r->ready = r->done = fmax(r->ready, at);
    if (++r->n_posted == m->n_members && r->is_alive && m->bytes > 0 && p->links) {
        r->is_due = true;
        p->n_due++;
    }
    pthread_mutex_unlock(&p->lock);
}

/* Gradients are handed in as they are computed, ahead of the time that it should take: before the
 * links get the sum, all who send something at that time or earlier must have come to it. */
static void wait_for_turn(fr__worker *w, const fr__emulated_reduction *m, int round)
{
    fr__emulation *p = w->engine->emulation;
    pthread_mutex_lock(&p->lock);
    bool is_due = m->rounds[round].is_due;
    double at = turn(m, round);
    pthread_mutex_unlock(&p->lock);
    if (is_due) sleep_until(w, wall_of(p, at) + GRACE_NS);
}

/* All have posted: the transport has said so. Nobody begins the round after the next before all
 * have taken this one. */
void fr__emulation_take(fr__worker *w, fr__emulated_reduction *m)
{
    fr__emulation *p = w->engine->emulation;
    int round = m->takes[w->index];
    round_state *r = &m->rounds[round];
    wait_for_turn(w, m, round);
    pthread_mutex_lock(&p->lock);
    m->takes[w->index] ^= 1;
    serve(p, turn(m, round));
    double done = r->done;
    if (++r->n_taken == m->n_members) *r = (round_state){0};
    pthread_mutex_unlock(&p->lock);
    fr__emulation_wait(w, done);
}

/* --- messages -------------------------------------------------------------------------------- */

void fr__emulation_send(fr__worker *w, fr__link_channel *channel, int buffer, size_t bytes)
{
    fr__emulation *p = w->engine->emulation;
    fr__emulation_advance(w, p->timing->overhead_s);
    channel->arrival[buffer] = w->clock;
    if (!p->links || bytes == 0) return;
    pthread_mutex_lock(&p->lock);
    serve(p, w->clock - INSTANT); /* what is ready at the same time goes behind */
    channel->arrival[buffer] =
        fr_links_send(p->links, p->device_of[w->index], p->device_of[channel->to->worker->index],
                      bytes, w->clock);
    pthread_mutex_unlock(&p->lock);
}

void fr__emulation_receive(fr__worker *w, const fr__link_channel *channel, int buffer)
{
    fr__emulation_wait(w, channel->arrival[buffer]);
    fr__emulation_advance(w, w->engine->emulation->timing->overhead_s);
}
