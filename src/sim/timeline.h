/* timeline.h -- the recorded events of workers as a timeline for Perfetto: trace.json. */
#ifndef FR_SIM_TIMELINE_H
#define FR_SIM_TIMELINE_H

#include <forerun/events.h>

typedef struct fr__timeline {
    const char *title; /* of the run: "spectrain, 4 stages" */
    int n_workers, n_stages;
    int n_micro;                   /* micro-batches of a mini-batch */
    const int *worker_of;          /* [stage]: of replica 0 */
    const int *replicas;           /* [stage]; NULL: one each */
    int n_ranks;                   /* processes; 0: one, without a name */
    const char *const *rank_names; /* [n_ranks] */
    const int *rank_of;            /* [worker], if there are ranks */
    const fr_event *const *events; /* [worker][n_events], in order of time */
    const int *n_events;           /* [worker] */
} fr__timeline;

/* One process per rank, one track per worker. Slices F12, R12, B12, I12, W12 (micro-batch of the
 * run), STEP3, REDUCE3 (mini-batch), SEND_F12 and the like, with the stage in front (2F12) where a
 * worker has several; "wait F12" before an instruction that waited. Arrows from each send to its
 * receive if both were kept. Sums over replicas as asynchronous slices, from submit to take. One
 * counter of weight versions per stage and replica. */
fr_status fr__timeline_write(fr_ctx *ctx, const char *path, const fr__timeline *t);

#endif
