/* saver.h -- checkpoints written while training continues.
 *
 * While the pipeline is empty all ranks take a snapshot together. A thread on each rank then
 * writes it (rank 0) or sends its part (others). If the snapshot is not a copy, training waits
 * until its last item has been read. Files are flushed to the disk beside the training in any case.
 * One checkpoint at a time: the next waits for it. */
#ifndef FR_CHECKPOINT_SAVER_H
#define FR_CHECKPOINT_SAVER_H

#include "checkpoint/checkpoint.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct fr__saver {
    fr__setup *s;
    fr_engine *e;
    fr__checkpoint_job job;
    pthread_t thread;
    bool is_begun, has_thread;
    fr_status status;    /* result of the last checkpoint */
    char error[1600];    /* its message */
    atomic_bool is_done; /* the last checkpoint has ended */
} fr__saver;

/* Folder: NULL on other ranks. sync, user: as in fr__checkpoint_job. All must live until
 * fr__saver_close. */
fr_status fr__saver_open(fr__setup *s, fr_engine *e, const fr__folder *f,
                         fr_status (*sync)(void *user, fr_ctx *ctx), void *user, fr__saver *v);
void fr__saver_close(fr__saver *v); /* waits; a zeroed one is fine */

/* After fr__saver_wait; all ranks together while no mini-batch is in flight. */
fr_status fr__saver_begin(fr__saver *v, const fr__position *at);
/* The checkpoint has ended: fr__saver_wait would not wait. */
bool fr__saver_is_done(const fr__saver *v);
/* FR_OK: job.path exists and is whole, if a checkpoint was begun. Else its failure, reported once.
 */
fr_status fr__saver_wait(fr__saver *v);

#endif
