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

typedef struct fr_saver {
    fr_setup *s;
    fr_engine *e;
    fr__checkpoint_job job;
    pthread_t thread;
    bool is_begun, has_thread;
    fr_status status;    /* what it came to, */
    char error[1600];    /* in words */
    atomic_bool is_done; /* it has */
} fr_saver;

/* Folder: NULL on other ranks. sync, user: as in fr__checkpoint_job. All must live until
 * fr__saver_close. */
fr_status fr__saver_open(fr_setup *s, fr_engine *e, const fr_folder *f,
                         fr_status (*sync)(void *user, fr_ctx *ctx), void *user, fr_saver *v);
void fr__saver_close(fr_saver *v); /* waits; a zeroed one is fine */

/* After fr__saver_wait, all ranks together while no mini-batch is under way. */
fr_status fr__saver_begin(fr_saver *v, const fr_position *at);
/* Whether what was begun has come to its end, so that fr__saver_wait would not wait. */
bool fr__saver_is_done(const fr_saver *v);
/* FR_OK: job.path is there and whole (if anything had been begun since). Else its failure, once,
 * with its text. */
fr_status fr__saver_wait(fr_saver *v);

#endif
