/* worker.h -- workers, and the stages on them. */
#ifndef FR_ENGINE_WORKER_H
#define FR_ENGINE_WORKER_H

#include "engine/links.h"
#include "exec/update.h"

#include <pthread.h>
#include <stdatomic.h>

/* One stage on one of its workers; replicas of a stage are parts of the same stage. */
struct fr__part {
    fr_engine *engine;
    fr__worker *worker;
    int index, stage, replica, n_replicas;
    int n_micro; /* micro-batches per mini-batch on this worker */
    fr__exec *exec;
    /* Buffers of the current pass, by link: it reads values and gradients, and writes gradients. */
    const void **values, **grads;
    void **sent_grads;
    int64_t borrowed, lent;     /* last mini-batch of tied weights from and to others; -1 */
    double *param_sums;         /* (own parameters of the stage) */
    uint64_t *posted_ns;        /* [bucket] of the reduction of gradients */
    fr_stage_times times, cold; /* cold: the first mini-batch's share of them */
    int64_t cold_batch;         /* -1: nothing has been trained */
    bool has_error;             /* collected: */
    fr_prediction_error error;  /* of predictions, in another process */
};

typedef fr_status (*fr__job)(fr__worker *w, void *arg);

struct fr__worker {
    fr_engine *engine;
    int index;
    bool is_local; /* of this process; others have numbers and notes only */
    pthread_t thread;
    bool has_thread, is_lost;
    fr__exec_device *device;
    int n_parts;
    fr__part **parts; /* ascending stages */
    fr_memory_use predicted;
    size_t peak_bytes; /* collected */

    /* Conditions with one waiter each: glibc up to 2.40 may lose the wake-up of one of several
     * (its bug 25847). `wakes` goes with engine.lock, `fed` with engine.feed_lock. */
    pthread_cond_t wakes, fed;
    fr__job job; /* under engine.lock; NULL: idle */
    void *job_arg;
    fr_status job_status;

    /* Current activity: written by the worker, read by the stall detection. */
    _Atomic uint64_t n_beats;
    _Atomic int64_t doing_batch;
    _Atomic int doing_at; /* position in its list; -1: nothing */
    _Atomic int is_waiting;
    int64_t opened; /* mini-batches of this call it has begun */
    int64_t summed; /* mini-batch whose gradients were last summed over all stages */
    double norm_sq; /* of that sum */
    int64_t n_late; /* mini-batches of this call whose norm it has posted for later ones */
    fr_traffic traffic;
    fr_worker_times times;
    uint64_t wait_ns; /* in the current instruction */
    uint64_t wait_from_ns;
    fr_event *events;
    int n_events;
};

/* parts.c: executors of this process, in the order of these calls. */
fr_status fr__parts_create(fr_engine *e);
fr_status fr__parts_measure(fr_engine *e); /* into w->predicted */
fr_status fr__parts_allocate(fr_engine *e);
fr_status fr__parts_open_sums(fr_engine *e);
void fr__parts_release(fr__worker *w);
/* After a call of train: undo forwards beyond the limit; synchronise replicas. */
fr_status fr__parts_undo(fr_engine *e);
fr_status fr__parts_drain(fr_engine *e);

/* worker.c */
void fr__spend(const fr__part *p, fr_action action, double share);
void fr__push_event(fr__worker *w, const fr_event *event);
fr_status fr__worker_walk(fr__worker *w, void *arg);

/* A worker waits for others: counted in wait_ns. */
void fr__wait_begin(fr__worker *w);
void fr__wait_end(fr__worker *w);

/* worker.c. With the lock held; n_running counts the workers that are not done. */
void *fr__worker_main(void *worker);
void fr__job_start(fr__worker *w, fr__job job);
/* Run a job on every worker of this process at once (or one after the other) and wait. */
fr_status fr__jobs_run(fr_engine *e, fr__job job, bool one_by_one);

#endif
