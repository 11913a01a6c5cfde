/* emulation.c -- clocks of emulated workers, and the links between them.
 *
 * Every worker has a clock of virtual seconds. An instruction is computed as fast as possible; then
 * the clock advances by its modelled duration, and the worker sleeps until the wall clock has
 * caught up. Everything that passes between workers carries a time: a message its arrival, a
 * returned buffer its release, a sum its completion. A worker that takes it sets its own clock to
 * that time at least, and sleeps. So an emulated run has the order of events, the overlap and the
 * staleness of the real one, and its wall clock is the virtual one times `scale`.
 *
 * A worker that is late by a little (other threads were on its core) makes up for it with its next
 * sleeps; if it is late by more, its clock advances and the time is counted as overrun. Results do
 * not depend on it; only the order of messages on the links may then differ from the modelled one.
 *
 * Each member of a reduction posts at a time of its own, during the last backward at the share of
 * it by which the bucket is final. The links carry the sum when its turn comes in virtual time
 * (buckets of a block follow each other): when a worker sends something later, or asks for it. */
#include "emulate/internal.h"

#include <math.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    SLACK_NS = 20000000,  /* of the wall clock: a delay that later sleeps make up for */
    NAP_NS = 50000000,    /* between two checks whether the run was aborted */
    GRACE_NS = 3000000,   /* for others to reach the same moment; also made up for */
    TIMER_SLACK_NS = 1000 /* else 50 us */
};
#define INSTANT 1e-9

/* One of the two rounds that can be open. */
typedef struct round_state {
    int n_posted, n_taken;
    bool is_alive, is_due; /* due: complete, and not yet on the links */
    double ready, done;
} round_state;

struct fr__emulated_reduction {
    fr__emulated_reduction *next;
    fr__emulated_reduction *before; /* the bucket that uses the links first, or NULL */
    double through[2];              /* [round]: when the last such one was */
    int n_members;
    int *devices; /* [n_members] */
    size_t bytes;
    uint8_t *posts, *takes; /* [worker]: number of its next round, mod 2 */
    round_state rounds[2];
};

/* --- life ------------------------------------------------------------------------------------ */

static fr_status check_costs(fr_ctx *ctx, const fr__emulation_desc *d)
{
    const fr_timing *t = d->timing;
    for (int k = 0; k < d->n_stages; k++) {
        const fr_stage_cost *c = &t->cost[k];
        const double seconds[] = {c->forward,        c->backward,  c->back_input,
                                  c->back_weight,    c->step,      c->fetch_forward,
                                  c->fetch_backward, c->recompute, c->backward - c->recompute};
        for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
            if (!(seconds[i] >= 0 && isfinite(seconds[i])))
                return fr_fail(ctx, FR_INVALID,
                               "emulation: stage %d has a cost of %g s; a cost must be 0 or more",
                               k, seconds[i]);
    }
    for (int w = 0; t->speed && w < d->n_workers; w++)
        if (!(t->speed[w] > 0 && isfinite(t->speed[w])))
            return fr_fail(ctx, FR_INVALID,
                           "emulation: the device of worker %d has speed %g; it must be above 0", w,
                           t->speed[w]);
    return FR_OK;
}

static fr_status check(fr_ctx *ctx, const fr__emulation_desc *d)
{
    const fr_timing *t = d->timing;
    if (d->transport->has_processes)
        return fr_fail(ctx, FR_UNSUPPORTED,
                       "emulation runs in one process, over transport threads: devices share "
                       "nothing but its clock; leave the launcher out, or the cluster");
    if (!t->cost) return fr_fail(ctx, FR_INVALID, "emulation: stages have no costs");
    if (!(d->scale > 0 && isfinite(d->scale)) || !(t->overhead_s >= 0 && isfinite(t->overhead_s)))
        return fr_fail(ctx, FR_INVALID,
                       "emulation: scale %g must be above 0, overhead %g s at least 0", d->scale,
                       t->overhead_s);
    for (int w = 0; t->cluster && w < d->n_workers; w++) {
        int device = t->device_of ? t->device_of[w] : w;
        if (device < 0 || device >= t->cluster->n_devices)
            return fr_fail(ctx, FR_INVALID,
                           "emulation: worker %d is to be on device %d, cluster %s has %d", w,
                           device, t->cluster->name ? t->cluster->name : "", t->cluster->n_devices);
    }
    return check_costs(ctx, d);
}

static fr_status set_up(fr__emulation *m)
{
    const fr_timing *t = m->d.timing;
    m->origin_ns = fr__clock_ns(m->d.clock);
    m->device_of = FR_ARENA_ARRAY(&m->arena, int, m->d.n_workers);
    m->workers = FR_ARENA_ARRAY(&m->arena, fr__emulated_worker, m->d.n_workers);
    if (!m->device_of || !m->workers)
        return fr__no_memory(m->ctx, (size_t)m->d.n_workers * sizeof *m->workers, "emulation");
    for (int w = 0; w < m->d.n_workers; w++) m->device_of[w] = t->device_of ? t->device_of[w] : w;
    return t->cluster ? fr_links_create(m->ctx, t->cluster, &m->links) : FR_OK;
}

fr_status fr__emulation_create(fr_ctx *ctx, const fr__emulation_desc *d, fr__emulation **out)
{
    *out = NULL;
    FR_TRY(check(ctx, d));
    fr__emulation *m = FR_NEW(fr__emulation);
    if (!m) return fr__no_memory(ctx, sizeof *m, "emulation");
    m->ctx = ctx;
    m->d = *d;
    pthread_mutex_init(&m->lock, NULL);
    fr_status status = set_up(m);
    if (status == FR_OK)
        *out = m;
    else
        fr__emulation_free(m);
    return status;
}

void fr__emulation_free(fr__emulation *m)
{
    if (!m) return;
    fr_links_free(m->links);
    pthread_mutex_destroy(&m->lock);
    fr__arena_fini(&m->arena);
    fr__free(m);
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

static uint64_t ns_of(const fr__emulation *m, double seconds)
{
    return m->origin_ns + (uint64_t)(seconds * 1e9);
}

static uint64_t wall_of(const fr__emulation *m, double seconds)
{
    return ns_of(m, seconds * m->d.scale);
}

static double virtual_of(const fr__emulation *m, uint64_t wall_ns)
{
    return (double)(wall_ns - m->origin_ns) * 1e-9 / m->d.scale;
}

uint64_t fr__emulation_now_ns(const fr__emulation *m, int worker)
{
    return ns_of(m, m->workers[worker].clock);
}

uint64_t fr__emulation_report_ns(const fr__emulation *m, uint64_t wall_ns)
{
    return ns_of(m, virtual_of(m, wall_ns));
}

void fr__emulation_begin(fr__emulation *m)
{
    double now = virtual_of(m, fr__clock_ns(m->d.clock));
    m->is_on = true;
    for (int w = 0; w < m->d.n_workers; w++) {
        m->workers[w].clock = now;
        m->workers[w].span = m->workers[w].waited = 0;
    }
    if (m->links) fr_links_reset(m->links);
    m->n_due = 0;
    for (fr__emulated_reduction *r = m->reductions; r; r = r->next) {
        memset(r->rounds, 0, sizeof r->rounds);
        memset(r->through, 0, sizeof r->through);
        memset(r->posts, 0, (size_t)m->d.n_workers);
        memset(r->takes, 0, (size_t)m->d.n_workers);
    }
}

void fr__emulation_end(fr__emulation *m)
{
    if (m) m->is_on = false;
}

bool fr__emulation_is_on(const fr__emulation *m) { return m && m->is_on; }

void fr__emulation_enter(fr__emulation *m)
{
    if (fr__emulation_is_on(m)) (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
}

/* A worker that sleeps is not stalled, and leaves at once when the run is aborted. */
static void sleep_until(fr__emulation *m, int worker, uint64_t wall_ns)
{
    const fr__timer *clock = m->d.clock;
    uint64_t now = fr__clock_ns(clock);
    if (now >= wall_ns) return;
    atomic_store(&m->workers[worker].sleeps, 1);
    for (; now < wall_ns && !m->d.transport->is_aborted(m->inner); now = fr__clock_ns(clock))
        clock->sleep_until(clock->user, worker, wall_ns - now < NAP_NS ? wall_ns : now + NAP_NS);
    atomic_store(&m->workers[worker].sleeps, 0);
}

bool fr__emulation_sleeps(const fr__emulation *m)
{
    for (int w = 0; fr__emulation_is_on(m) && w < m->d.n_workers; w++)
        if (atomic_load(&m->workers[w].sleeps)) return true;
    return false;
}

/* --- computation ----------------------------------------------------------------------------- */

double fr__emulation_seconds(const fr__emulation *m, int worker, int stage, fr_action action)
{
    const fr_timing *t = m->d.timing;
    const fr_stage_cost *c = &t->cost[stage];
    double seconds = 0;
    switch (action) {
    case FR_DO_F: seconds = c->forward; break;
    case FR_DO_R: seconds = c->recompute; break;
    case FR_DO_B: seconds = c->backward - c->recompute; break;
    case FR_DO_I: seconds = c->back_input - c->recompute; break;
    case FR_DO_W: seconds = c->back_weight; break;
    case FR_DO_STEP: seconds = c->step + c->fetch_forward + c->fetch_backward; break;
    default: break;
    }
    return t->speed ? seconds / t->speed[worker] : seconds;
}

void fr__emulation_advance(fr__emulation *m, int worker, double seconds)
{
    fr__emulated_worker *w = &m->workers[worker];
    w->clock += seconds;
    w->overrun.paced_s += seconds * m->d.scale;
}

void fr__emulation_spend(fr__emulation *m, int worker, double seconds)
{
    fr__emulated_worker *w = &m->workers[worker];
    fr__emulation_advance(m, worker, seconds + m->d.timing->overhead_s);
    uint64_t due = wall_of(m, w->clock), now = fr__clock_ns(m->d.clock);
    if (now > due + SLACK_NS) {
        w->overrun.late_s += (double)(now - due) * 1e-9;
        w->clock = virtual_of(m, now);
        return;
    }
    sleep_until(m, worker, due);
}

void fr__emulation_set_backward(fr__emulation *m, int worker, int stage, double seconds)
{
    m->workers[worker].span = seconds;
    m->workers[worker].final = &m->d.timing->cost[stage].final;
}

double fr__emulation_post_time(const fr__emulation *m, int worker, double share)
{
    const fr__emulated_worker *w = &m->workers[worker];
    if (!(w->span > 0)) return w->clock;
    return w->clock + (w->span + m->d.timing->overhead_s) * fr_curve_time(w->final, share);
}

uint64_t fr__emulation_post_ns(const fr__emulation *m, int worker, double share)
{
    return ns_of(m, fr__emulation_post_time(m, worker, share));
}

void fr__emulation_wait(fr__emulation *m, int worker, double until)
{
    fr__emulated_worker *w = &m->workers[worker];
    if (!(until > w->clock)) return;
    w->waited += until - w->clock;
    w->clock = until;
    sleep_until(m, worker, wall_of(m, until));
}

uint64_t fr__emulation_take_waited(fr__emulation *m, int worker)
{
    double seconds = m->workers[worker].waited;
    m->workers[worker].waited = 0;
    return (uint64_t)(seconds * 1e9);
}

fr_overrun fr__emulation_overrun(const fr__emulation *m)
{
    fr_overrun sum = {0};
    for (int i = 0; m && i < m->d.n_workers; i++) {
        sum.late_s += m->workers[i].overrun.late_s;
        sum.paced_s += m->workers[i].overrun.paced_s;
    }
    return sum;
}

/* --- reductions ------------------------------------------------------------------------------ */

fr_status fr__emulation_add_reduction(fr__emulation *m, int n, const int *members, size_t bytes,
                                      fr__emulated_reduction *before, fr__emulated_reduction **out)
{
    fr__emulated_reduction *r = *out = FR_ARENA_NEW(&m->arena, fr__emulated_reduction);
    if (!r) return fr__no_memory(m->ctx, sizeof *r, "emulation");
    *r = (fr__emulated_reduction){.next = m->reductions,
                                  .before = before,
                                  .n_members = n,
                                  .bytes = bytes,
                                  .devices = FR_ARENA_ARRAY(&m->arena, int, n),
                                  .posts = FR_ARENA_ARRAY(&m->arena, uint8_t, m->d.n_workers),
                                  .takes = FR_ARENA_ARRAY(&m->arena, uint8_t, m->d.n_workers)};
    if (!r->devices || !r->posts || !r->takes)
        return fr__no_memory(m->ctx, (size_t)m->d.n_workers * 2, "emulation");
    for (int i = 0; i < n; i++) r->devices[i] = m->device_of[members[i]];
    m->reductions = r;
    return FR_OK;
}

/* The time when a complete round may use the links: not before the first bucket is complete. */
static double turn(const fr__emulated_reduction *r, int round)
{
    const round_state *state = &r->rounds[round];
    if (!r->before) return state->ready;
    if (r->before->rounds[round].is_due) return INFINITY;
    return fmax(state->ready, r->before->through[round]);
}

/* With the lock held: the links carry what is due until then, in order. */
static void serve(fr__emulation *m, double until)
{
    while (m->n_due > 0) {
        fr__emulated_reduction *first = NULL;
        double earliest = until;
        int round = 0;
        for (fr__emulated_reduction *r = m->reductions; r; r = r->next)
            for (int i = 0; i < 2; i++)
                if (r->rounds[i].is_due && turn(r, i) <= earliest &&
                    (!first || turn(r, i) < earliest))
                    first = r, round = i, earliest = turn(r, i);
        if (!first) return;
        round_state *state = &first->rounds[round];
        state->done = first->through[round] =
            fr_links_sum(m->links, first->n_members, first->devices, first->bytes, earliest);
        state->is_due = false;
        m->n_due--;
    }
}

void fr__emulation_post(fr__emulation *m, fr__emulated_reduction *r, int worker, double at,
                        bool is_alive)
{
    pthread_mutex_lock(&m->lock);
    round_state *state = &r->rounds[r->posts[worker]];
    r->posts[worker] ^= 1;
    state->is_alive = is_alive && (state->n_posted == 0 || state->is_alive);
    state->ready = state->done = fmax(state->ready, at);
    if (++state->n_posted == r->n_members && state->is_alive && r->bytes > 0 && m->links) {
        state->is_due = true;
        m->n_due++;
    }
    pthread_mutex_unlock(&m->lock);
}

/* Gradients are posted as they are computed, ahead of their virtual time: before the links carry
 * the sum, all workers that send something at that time or earlier must have reached it. */
static void wait_for_turn(fr__emulation *m, const fr__emulated_reduction *r, int worker, int round)
{
    pthread_mutex_lock(&m->lock);
    bool is_due = r->rounds[round].is_due;
    double at = turn(r, round);
    pthread_mutex_unlock(&m->lock);
    if (is_due) sleep_until(m, worker, wall_of(m, at) + GRACE_NS);
}

/* All have posted: the inner transport's wait has returned. No member begins the round after the
 * next before all have taken this one. */
void fr__emulation_take(fr__emulation *m, fr__emulated_reduction *r, int worker)
{
    int round = r->takes[worker];
    round_state *state = &r->rounds[round];
    wait_for_turn(m, r, worker, round);
    pthread_mutex_lock(&m->lock);
    r->takes[worker] ^= 1;
    serve(m, turn(r, round));
    double done = state->done;
    if (++state->n_taken == r->n_members) *state = (round_state){0};
    pthread_mutex_unlock(&m->lock);
    fr__emulation_wait(m, worker, done);
}

/* --- messages -------------------------------------------------------------------------------- */

double fr__emulation_send(fr__emulation *m, int from, int to, size_t bytes)
{
    fr__emulation_advance(m, from, m->d.timing->overhead_s);
    double arrival = m->workers[from].clock;
    if (!m->links || bytes == 0) return arrival;
    pthread_mutex_lock(&m->lock);
    serve(m, arrival - INSTANT); /* what is ready at the same time goes behind */
    arrival = fr_links_send(m->links, m->device_of[from], m->device_of[to], bytes, arrival);
    pthread_mutex_unlock(&m->lock);
    return arrival;
}
