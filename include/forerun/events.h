/* events.h -- what a worker notes while it runs: times by kind, events for a trace, the ledger of
 * weight versions. Plain records in memory that was taken before the run. */
#ifndef FORERUN_EVENTS_H
#define FORERUN_EVENTS_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Uses of a worker's time. All but the waits count as busy. */
typedef enum fr_spent {
    FR_SPENT_FORWARD,
    FR_SPENT_BACKWARD,     /* B and I, the update that is fused into it left out */
    FR_SPENT_WEIGHT,       /* W */
    FR_SPENT_STEP,         /* optimizer and prediction */
    FR_SPENT_TRANSFER,     /* copying, posting */
    FR_SPENT_WAIT_FORWARD, /* for an input */
    FR_SPENT_WAIT_BACKWARD,
    FR_SPENT_WAIT_OTHER, /* a slot, a buffer, a sum, data */
    FR_N_SPENT
} fr_spent;

typedef struct fr_worker_times {
    uint64_t ns[FR_N_SPENT];
    uint64_t wall_ns; /* inside fr_engine_train */
} fr_worker_times;

/* The same by stage, for a cost model: sums over passes. An update counts as step wherever it was
 * made. */
typedef struct fr_stage_times {
    uint64_t forward_ns, back_input_ns, back_weight_ns, step_ns; /* B counts as back_input */
    /* Part of forward_ns and back_input_ns: fetching or predicting the weights. */
    uint64_t fetch_forward_ns, fetch_backward_ns;
    int64_t n_micro, n_steps;
} fr_stage_times;

/* One span on a worker's track. */
typedef struct fr_event {
    uint64_t start_ns, end_ns;
    uint8_t action; /* fr_action of sched.h */
    bool is_wait;   /* waiting before the action could begin */
    bool is_beside; /* went on beside the worker's own: a sum over replicas, from being handed in
                       until it was there; REDUCE, micro is the bucket */
    int stage, peer;
    int64_t batch;   /* mini-batch of the run */
    int micro;       /* in the mini-batch; -1 for STEP and REDUCE */
    int64_t version; /* of the weights used; STEP: after it */
    int ahead;
} fr_event;

/* Bytes that workers have sent to other workers so far: activations and gradients between stages;
 * sums between replicas. */
typedef struct fr_traffic {
    uint64_t forward, backward, sums;
} fr_traffic;

/* Emulation: wall-clock seconds by which instructions took longer than they should have, summed
 * over workers, and those they should have taken. */
typedef struct fr_overrun {
    double late_s, paced_s;
} fr_overrun;

/* One line of the ledger: a forward or a backward. */
typedef struct fr_ledger_row {
    int stage, replica;
    int64_t micro; /* of the run: mini-batch * micro-batches + micro */
    char pass;     /* 'F' or 'B' */
    int64_t version;
    int ahead;
    int64_t live; /* the stage's version when the micro-batch's own update is applied; -1 for F */
    /* Of a parameter whose owner is in another stage, without a flush: the owner's weights that it
     * was read as. tied -1: there is none. */
    int64_t tied;
    int tied_ahead;
} fr_ledger_row;

#ifdef __cplusplus
}
#endif
#endif
