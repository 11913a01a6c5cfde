/* feeder.h -- a loader as the source of an engine: supplies mini-batches in order and releases the
 * oldest. The workers' threads make the calls; a lock serialises them. */
#ifndef FR_RUN_FEEDER_H
#define FR_RUN_FEEDER_H

#include <forerun/data.h>
#include <forerun/engine.h>
#include <pthread.h>

typedef struct fr__feeder {
    fr_ctx *ctx;
    fr_loader *loader;
    pthread_mutex_t lock;  /* guards what follows */
    const fr_batch **held; /* ring of `room`, the oldest at `first` */
    int room, first, n_held;
    const fr_batch *peeked; /* taken from the loader, not yet supplied; or NULL */
    bool has_lock;
} fr__feeder;

/* Creates the loader, with room for as many mini-batches as the engine holds at once. No loader is
 * created if the stages of this process read no data. */
fr_status fr__feeder_open(fr_ctx *ctx, const fr_loader_desc *desc, const fr_engine *e,
                          fr__feeder *f);
void fr__feeder_close(fr__feeder *f); /* a zeroed one is fine */
fr_source fr__feeder_source(fr__feeder *f);
/* The next mini-batch; valid until it is released. Between calls of the engine. */
fr_status fr__feeder_peek(fr__feeder *f, const fr_batch **out);

#endif
