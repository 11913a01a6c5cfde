/* emulation.h -- real computation at the pace of modelled devices and links. */
#ifndef FR_ENGINE_EMULATION_H
#define FR_ENGINE_EMULATION_H

#include "engine/types.h"

/* The time of an engine, in nanoseconds: the machine's clock unless a test sets another one. */
typedef struct fr__timer {
    uint64_t (*now_ns)(void *user);
    /* Returns at that moment or earlier; on a worker's thread. Only emulation sleeps. */
    void (*sleep_until)(void *user, int worker, uint64_t ns);
    void *user;
} fr__timer;
extern const fr__timer fr__machine_clock;
static inline uint64_t fr__clock_ns(const fr__timer *c) { return c->now_ns(c->user); }

/* Without desc.timing there is no emulation; the other calls are made only if engine.emulated is
 * set. */
fr_status fr__emulation_create(fr_engine *e);
void fr__emulation_free(fr_engine *e);
void fr__emulation_begin(fr_engine *e); /* a call begins */
void fr__emulation_enter(void);         /* on a worker's thread */
/* Reported nanoseconds: of virtual seconds, of a moment of the wall clock. */
uint64_t fr__emulation_ns(const fr__emulation *p, double seconds);
uint64_t fr__emulation_report_ns(const fr__emulation *p, uint64_t wall_ns);
/* Modelled duration; `spend` sleeps until it has elapsed. */
double fr__emulation_seconds(const fr__part *p, fr_action action);
void fr__emulation_spend(fr__worker *w, double seconds);
void fr__emulation_advance(fr__worker *w, double seconds); /* the clock only */
void fr__emulation_wait(fr__worker *w, double until);
/* Before sending, after receiving. */
void fr__emulation_send(fr__worker *w, fr__link_channel *channel, int buffer, size_t bytes);
void fr__emulation_receive(fr__worker *w, const fr__link_channel *channel, int buffer);
/* Members (workers) post round after round; a round is complete when all have posted and the links
 * have carried the sum of `bytes`. Call post before the transport's post, take after its wait. */
fr_status fr__emulation_add_reduction(fr_engine *e, int n, const int *members, size_t bytes,
                                      fr__emulated_reduction **out);
/* The sum of a round uses the links only after that of `before`. */
void fr__emulation_follow(fr__emulated_reduction *m, fr__emulated_reduction *before);
void fr__emulation_post(fr__worker *w, fr__emulated_reduction *m, double at, bool is_alive);
void fr__emulation_take(fr__worker *w, fr__emulated_reduction *m);

#endif
