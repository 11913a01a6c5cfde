/* state.h -- state.json of a checkpoint: position, and what a resumed run must agree with. */
#ifndef FR_TRAIN_STATE_H
#define FR_TRAIN_STATE_H

#include "train/checkpoint.h"

#define FR_STATE_FORMAT 1
#define FR_STATE_TEXT 64 /* room for a name */

typedef struct fr_state {
    fr_position at;
    int64_t batch, n_train, seed;
    char model[FR_STATE_TEXT], data[FR_STATE_TEXT], optimizer[FR_STATE_TEXT];
    char sha256[65];
    /* Of the kernels, for a remark only; "" in checkpoints of versions that did not write them. */
    char kernels[FR_STATE_TEXT], instructions[FR_STATE_TEXT];
} fr_state;

void fr__state_of(const fr_setup *s, const fr_position *at, const char *sha256, fr_state *state);
fr_status fr__state_write(fr_ctx *ctx, const char *folder, const fr_state *state);
/* FR_INVALID or FR_IO: missing, cut, or not one of ours. */
fr_status fr__state_read(fr_ctx *ctx, const char *folder, fr_state *state);
/* Can a run with this setup go on from there with the same numbers? */
fr_status fr__state_check(const fr_setup *s, const char *folder, const fr_state *state);
/* Logs a line if it was written with other kernels or instructions, whose last bits may differ. */
void fr__state_tell(const fr_setup *s, const char *folder, const fr_state *state);

#endif
