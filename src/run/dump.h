/* dump.h -- --dump-step: inputs, weights and gradients of one mini-batch, for a check by another
 * framework.
 *
 * step-K.safetensors holds input, target, length (where there is one), loss (the mean over
 * targets that count), and for each parameter param.<name>, grad.<name> (of that mean, before
 * clipping), param_after.<name>; also state.<state>.<name> and buffer.<name> before the update. */
#ifndef FR_RUN_DUMP_H
#define FR_RUN_DUMP_H

#include "checkpoint/folder.h"
#include "config/setup.h"

typedef struct fr__dump {
    fr__setup *s;
    fr_engine *e; /* made with keep_grads */
    const fr__folder *folder;
    fr_tensor_writer *file;
    float *plain;
    char path[FR_PATH], temp[FR_PATH];
} fr__dump;

/* With a team, call it inside fr__rank0_work. Before the mini-batch: writes everything except its
 * results. */
fr_status fr__dump_begin(fr__setup *s, fr_engine *e, const fr__folder *f, const fr_batch *b,
                         int64_t step, double lr, fr__dump *d);
/* After the mini-batch: writes its results. */
fr_status fr__dump_end(fr__dump *d, double loss);
void fr__dump_abort(fr__dump *d); /* a zeroed or ended one is fine */

#endif
