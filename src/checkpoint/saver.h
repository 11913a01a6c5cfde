/* saver.h -- checkpoints that are written while training goes on.
 *
 * While the pipeline is empty all ranks take a snapshot together; then a thread on each writes it
 * (rank 0) or sends its part (others). A snapshot that is no copy holds training up until its last
 * item has been read; files are flushed to the disk beside the training in any case. One at a time:
 * the next waits for it. */
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
    fr_status status;    /* what it came to, */
    char error[1600];    /* in words */
    atomic_bool is_done; /* it has */
} fr__saver;

/* Folder: NULL on other ranks. sync, user: as in fr__checkpoint_job. All must live until
 * fr__saver_close. */
fr_status fr__saver_open(fr__setup *s, fr_engine *e, const fr__folder *f,
                         fr_status (*sync)(void *user, fr_ctx *ctx), void *user, fr__saver *v);
void fr__saver_close(fr__saver *v); /* waits; a zeroed one is fine */

/* After fr__saver_wait, all ranks together while no mini-batch is under way. */
fr_status fr__saver_begin(fr__saver *v, const fr__position *at);
/* Whether what was begun has come to its end, so that fr__saver_wait would not wait. */
bool fr__saver_is_done(const fr__saver *v);
/* FR_OK: job.path is there and whole (if anything had been begun since). Else its failure, once,
 * with its text. */
fr_status fr__saver_wait(fr__saver *v);

#endif
