/* clock.h -- a schedule on a virtual clock: start times, makespan, period, live sets.
 *
 * Any number of threads may time the same schedule. */
#ifndef FORERUN_CLOCK_H
#define FORERUN_CLOCK_H

#include <forerun/sched.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds (or units) an instruction takes. NULL fields: F = I = W = 1, B = I + W; the rest 0. */
typedef struct fr_costs {
    const double *forward, *back_input, *back_weight, *step; /* [stage] */
    const double *send_forward, *send_backward;              /* [link]: until the receiver has it */
    const double *backward;                                  /* [stage]: of B; NULL: I + W */
    /* Of each transfer, beside send_*. Two workers share one link, which carries one transfer at a
     * time, either way (is_full_duplex: one each way), first come first served. */
    double link;
    const double *link_forward, *link_backward; /* [link]: instead of `link`; both or none */
    bool is_full_duplex;
} fr_costs;

struct fr_clock {
    double makespan;
    double period;         /* printed with the makespan if it is above 0; fr_schedule_period */
    bool has_costs;        /* others than units and free transfers */
    double **start, **end; /* [worker][instruction] */
    double *busy;          /* [worker]: inside F, B, I, W, STEP */
    int *peak_live;        /* [worker]: most activation sets held at once, F until B or W */
    void *arena;
};

/* Run the lists on a virtual clock: each worker in order, a receive waits for its send, a send
 * does not hold the worker up, a slot or buffer in use is waited for. */
FR_API FR_MUST_USE fr_status fr_schedule_clock(fr_ctx *ctx, const fr_schedule *s,
                                               const fr_costs *costs, fr_clock *out);
FR_API void fr_clock_free(fr_clock *c);
/* Distance of mini-batches in the steady state, where workers walk their lists again and again with
 * no barrier between: the makespan less what one walk and the next overlap. It is found by running
 * walks until one repeats the one before; where none of 64 does, it is the mean of the last 32.
 * Without a flush: the distance of updates. NAN: the schedule is too long. */
FR_API FR_MUST_USE fr_status fr_schedule_period(fr_ctx *ctx, const fr_schedule *s,
                                                const fr_costs *costs, double *period);

#ifdef __cplusplus
}
#endif
#endif
