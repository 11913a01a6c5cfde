/* state.h -- state.json of a checkpoint: position, what a resumed run must agree with, and the
 * hashes of the other files. Its last key is a checksum of the text before it, so that damage to
 * state.json itself is noticed. Format 1 had neither. */
#ifndef FR_CHECKPOINT_STATE_H
#define FR_CHECKPOINT_STATE_H

#include "checkpoint/checkpoint.h"
#include "io/hash.h"

#define FR_STATE_FORMAT 2
#define FR_STATE_TEXT 64 /* room for a name */

/* Files of a checkpoint beside state.json. */
typedef enum fr__state_file { FR_MODEL_FILE, FR_OPTIMIZER_FILE, FR_N_STATE_FILES } fr__state_file;
extern const char *const fr__state_files[FR_N_STATE_FILES];

typedef struct fr__state {
    int64_t format;
    fr__position at;
    int64_t batch, n_train, seed;
    char model[FR_STATE_TEXT], data[FR_STATE_TEXT], optimizer[FR_STATE_TEXT];
    char sha256[65];
    char hash[FR_N_STATE_FILES][FR_HASH_TEXT]; /* "": format 1 */
    /* Of the kernels, for a remark only; "" in checkpoints of versions that did not write them. */
    char kernels[FR_STATE_TEXT], instructions[FR_STATE_TEXT];
} fr__state;

void fr__state_of(const fr__setup *s, const fr__position *at, const char *sha256, fr__state *state);
/* Into a folder that is open as dir. */
fr_status fr__state_write(fr_ctx *ctx, int dir, const char *folder, const fr__state *state);
/* FR_INVALID or FR_IO: missing, cut, changed, of another step than its folder's name says, or not
 * one of ours. */
fr_status fr__state_read(fr_ctx *ctx, const char *folder, fr__state *state);
/* A file that was read to its end, or did not make sense, against its hash. FR_INVALID: it is
 * damaged. FR_OK: it is as it was written, as far as that can be told. */
fr_status fr__state_check_file(fr_ctx *ctx, const fr__state *state, fr__state_file which,
                               const char *path, fr_tensors *file);
/* Can a run with this setup go on from there with the same numbers? */
fr_status fr__state_check(const fr__setup *s, const char *folder, const fr__state *state);
/* Logs a line if it was written with other kernels or instructions, whose last bits may differ. */
void fr__state_log_kernels(const fr__setup *s, const char *folder, const fr__state *state);

#endif
