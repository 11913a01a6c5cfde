/* emulation.h -- real computation at the pace of modelled devices and links: a decorator of the
 * executor's calls (enter, spend) and of a transport.
 *
 * Workers are identified by number. Calls with a worker are made on its thread. */
#ifndef FR_EMULATE_EMULATION_H
#define FR_EMULATE_EMULATION_H

#include <forerun/cost.h>
#include <forerun/events.h>
#include <forerun/sched.h>
#include <forerun/transport.h>

typedef struct fr__emulation fr__emulation;

/* A clock in nanoseconds: the machine's unless a test sets another one. */
typedef struct fr__timer {
    uint64_t (*now_ns)(void *user);
    /* Returns at that moment or earlier; on a worker's thread. Only emulation sleeps. */
    void (*sleep_until)(void *user, int worker, uint64_t ns);
    void *user;
} fr__timer;
extern const fr__timer fr__machine_clock;
static inline uint64_t fr__clock_ns(const fr__timer *c) { return c->now_ns(c->user); }

/* The description lives as long as the emulation; the clock is read through its pointer. */
typedef struct fr__emulation_desc {
    const fr_timing *timing;
    double scale; /* seconds of the wall clock per virtual second */
    int n_workers, n_stages;
    const fr_transport *transport; /* of one process */
    const fr__timer *clock;
} fr__emulation_desc;
fr_status fr__emulation_create(fr_ctx *ctx, const fr__emulation_desc *d, fr__emulation **out);
void fr__emulation_free(fr__emulation *m);

/* The transport that the group of the emulation goes with. The inner group is not closed with it.
 * Channels, boards and sums added through it carry the times at which their contents arrive. */
extern const fr_transport fr__emulated_transport;
fr_status fr__emulation_wrap(fr__emulation *m, fr_group *inner, fr_group **out);

/* A call: workers start at the same moment, with idle links. Outside of calls nothing is emulated:
 * the transport is the inner one, and no worker sleeps. */
void fr__emulation_begin(fr__emulation *m);
void fr__emulation_end(fr__emulation *m);
bool fr__emulation_is_on(const fr__emulation *m); /* NULL: false */
void fr__emulation_enter(fr__emulation *m);       /* on a worker's thread */

/* Reported nanoseconds: a worker's clock; a moment of the wall clock. */
uint64_t fr__emulation_now_ns(const fr__emulation *m, int worker);
uint64_t fr__emulation_report_ns(const fr__emulation *m, uint64_t wall_ns);

/* Modelled duration of an instruction; `spend` sleeps until it has elapsed. */
double fr__emulation_seconds(const fr__emulation *m, int worker, int stage, fr_action action);
void fr__emulation_spend(fr__emulation *m, int worker, double seconds);
void fr__emulation_advance(fr__emulation *m, int worker, double seconds); /* the clock only */
/* A backward of that duration is computed: sums posted meanwhile count from the moment at which
 * their share of the gradient is final by the stage's curve. 0: it has ended. */
void fr__emulation_set_backward(fr__emulation *m, int worker, int stage, double seconds);
uint64_t fr__emulation_post_ns(const fr__emulation *m, int worker, double share);

/* Virtual nanoseconds that a worker has waited for others since the last call of this. */
uint64_t fr__emulation_take_waited(fr__emulation *m, int worker);
bool fr__emulation_sleeps(const fr__emulation *m); /* some worker does: it is not stalled */
fr_overrun fr__emulation_overrun(const fr__emulation *m);

#endif
