/* state.h -- state.json of a checkpoint: position, settings that a resumed run must share, and the
 * hashes of the other files. Its last key is a checksum of the text before it, which detects damage
 * to state.json itself. Format 1 had no hashes and no checksum. */
#ifndef FR_CHECKPOINT_STATE_H
#define FR_CHECKPOINT_STATE_H

#include "checkpoint/checkpoint.h"
#include "io/hash.h"

#define FR_STATE_FORMAT 2
#define FR_STATE_TEXT 64 /* size of a name */

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
    /* Kernels and instruction set, for a log line only; "" in checkpoints of older versions. */
    char kernels[FR_STATE_TEXT], instructions[FR_STATE_TEXT];
} fr__state;

void fr__state_of(const fr__setup *s, const fr__position *at, const char *sha256, fr__state *state);
/* Into a folder that is open as dir. */
fr_status fr__state_write(fr_ctx *ctx, int dir, const char *folder, const fr__state *state);
/* FR_INVALID or FR_IO: missing, truncated, changed, of another step than its folder's name, or not
 * a state.json of Forerun. */
fr_status fr__state_read(fr_ctx *ctx, const char *folder, fr__state *state);
/* Compares a file with its hash. FR_INVALID: it is damaged. FR_OK: no damage was found. */
fr_status fr__state_check_file(fr_ctx *ctx, const fr__state *state, fr__state_file which,
                               const char *path, fr_tensors *file);
/* Can a run with this setup continue from there with the same numbers? */
fr_status fr__state_check(const fr__setup *s, const char *folder, const fr__state *state);
/* Logs a line if it was written with other kernels or instructions, so last bits may differ. */
void fr__state_log_kernels(const fr__setup *s, const char *folder, const fr__state *state);

#endif
