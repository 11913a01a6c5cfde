/* clocks.h -- clocks for engines under test, so that no result depends on this machine's pace.
 *
 * Virtual clock: time stops while any thread works, and jumps to the end of the next sleep when
 * all of them wait. An emulated run on it takes exactly the time of its timing, however busy the
 * machine is, and no longer than its computation.
 *
 * Quiet clock: real time, counted only while every thread sleeps. A worker that waits for a core
 * is not silent on it; one that hangs is. Frozen clock: no worker is ever silent. */
#ifndef TESTS_ENGINE_CLOCKS_H
#define TESTS_ENGINE_CLOCKS_H

#include "engine/engine.h"
#include "support/quiet.h"
#include "support/test.h"
#include "transport/threads/threads.h"

/* --- virtual ---------------------------------------------------------------------------------- */

/* On the stack of the thread that sleeps. A condition each: see fr__worker. */
typedef struct sleeper {
    struct sleeper *next;
    uint64_t until_ns;
    int worker;
    pthread_cond_t is_first;
} sleeper;

typedef struct virtual_clock {
    pthread_mutex_t lock;
    uint64_t now_ns;
    sleeper *first; /* the earliest; at the same time, the lowest worker */
} virtual_clock;

static inline uint64_t virtual_now(void *user)
{
    virtual_clock *c = user;
    pthread_mutex_lock(&c->lock);
    uint64_t now = c->now_ns;
    pthread_mutex_unlock(&c->lock);
    return now;
}

/* The first one advances the clock when all others are idle; the rest wait for their turn. */
static inline void virtual_sleep(void *user, int worker, uint64_t until_ns)
{
    virtual_clock *c = user;
    sleeper me = {.until_ns = until_ns, .worker = worker}, **at = &c->first;
    pthread_cond_init(&me.is_first, NULL);
    pthread_mutex_lock(&c->lock);
    while (*at &&
           ((*at)->until_ns < until_ns || ((*at)->until_ns == until_ns && (*at)->worker < worker)))
        at = &(*at)->next;
    me.next = *at;
    *at = &me;
    for (bool is_quiet = false; !is_quiet || c->first != &me;) {
        is_quiet = false;
        if (c->first != &me) {
            pthread_cond_wait(&me.is_first, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        is_quiet = quiet_now();
        if (!is_quiet) fr__sleep_ns(20000);
        pthread_mutex_lock(&c->lock);
    }
    if (c->now_ns < until_ns) c->now_ns = until_ns;
    c->first = me.next;
    if (c->first) pthread_cond_signal(&c->first->is_first);
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&me.is_first);
}

/* Before the first call of train. Members that poll for messages instead of sleeping would never be
 * idle. */
static inline void use_virtual_clock(fr_engine *e, virtual_clock *c)
{
    *c = (virtual_clock){.now_ns = fr__now_ns()};
    pthread_mutex_init(&c->lock, NULL);
    e->clock = (fr__timer){.now_ns = virtual_now, .sleep_until = virtual_sleep, .user = c};
    assert_string_equal(e->inner_transport->name, "threads");
    e->inner_group->may_spin = false;
}

/* --- for the watch over stalls ---------------------------------------------------------------- */

typedef struct quiet_clock {
    fr_engine *e;
    uint64_t now_ns, last_ns;
} quiet_clock;

/* Called by one thread, the caller of train, which holds the engine's lock: a worker that waits for
 * the lock is not idle. */
static inline uint64_t quiet_clock_now(void *user)
{
    quiet_clock *c = user;
    pthread_mutex_unlock(&c->e->lock);
    bool is_quiet = quiet_now();
    pthread_mutex_lock(&c->e->lock);
    uint64_t now = fr__now_ns();
    if (is_quiet) c->now_ns += now - c->last_ns;
    c->last_ns = now;
    return c->now_ns;
}

static inline void use_quiet_watch(fr_engine *e, quiet_clock *c)
{
    *c = (quiet_clock){.e = e, .last_ns = fr__now_ns()};
    e->watch = (fr__timer){.now_ns = quiet_clock_now, .user = c};
    e->inner_group->may_spin = false;
}

static inline uint64_t frozen_now(void *user)
{
    (void)user;
    return 0;
}

static inline void use_frozen_watch(fr_engine *e) { e->watch = (fr__timer){.now_ns = frozen_now}; }

#endif
