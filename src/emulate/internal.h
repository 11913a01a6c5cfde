/* internal.h -- shared by emulation.c and emulated_transport.c. */
#ifndef FR_EMULATE_INTERNAL_H
#define FR_EMULATE_INTERNAL_H

#include "base/arena.h"
#include "base/thread.h"
#include "emulate/emulation.h"

#include <stdatomic.h>

typedef struct fr__emulated_reduction fr__emulated_reduction;

typedef struct fr__emulated_worker {
    double clock;  /* virtual seconds */
    double waited; /* virtual seconds */
    double span;   /* of the current backward; 0: none */
    const fr_curve *final;
    fr_overrun overrun;
    _Atomic int sleeps;
} fr__emulated_worker;

struct fr__emulation {
    fr_ctx *ctx;
    fr__emulation_desc d;
    fr_arena arena;
    bool is_on;
    uint64_t origin_ns; /* of both clocks */
    int *device_of;     /* [worker] */
    fr__emulated_worker *workers;
    fr_group *inner;
    pthread_mutex_t lock;
    /* Under the lock: */
    fr_links *links; /* NULL: transfers are free */
    fr__emulated_reduction *reductions;
    int n_due;
};

/* Wait until that virtual time. */
void fr__emulation_wait(fr__emulation *m, int worker, double until);
/* A message leaves: the time at which it arrives. */
double fr__emulation_send(fr__emulation *m, int from, int to, size_t bytes);
double fr__emulation_post_time(const fr__emulation *m, int worker, double share);

/* Members (workers) post round after round; a round is complete when all have posted and the links
 * have carried the sum of `bytes`. before: the sum of the same round that uses the links first, or
 * NULL. Post before the inner transport, take after its wait. */
fr_status fr__emulation_add_reduction(fr__emulation *m, int n, const int *members, size_t bytes,
                                      fr__emulated_reduction *before, fr__emulated_reduction **out);
void fr__emulation_post(fr__emulation *m, fr__emulated_reduction *r, int worker, double at,
                        bool is_alive);
void fr__emulation_take(fr__emulation *m, fr__emulated_reduction *r, int worker);

#endif
