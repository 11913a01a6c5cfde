/* folder.h -- a run's folder: who may write into it, and the checkpoints it holds.
 *
 *     OUT/config.yaml  metrics.jsonl  summary.json  checkpoint/step-N/...
 *
 * A folder is open for writing by one process at a time (a lock that ends with the process). The
 * lock is the folder's, not its path's: a folder that is moved, removed or replaced while a run
 * writes leaves the path to somebody else. So before each write the path must still lead to the
 * folder that was locked; else the run ends. */
#ifndef FR_CHECKPOINT_FOLDER_H
#define FR_CHECKPOINT_FOLDER_H

#include <forerun/base.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/vec.h"

#define FR_PATH 4096

typedef struct fr__folder {
    char path[FR_PATH];
    char checkpoints[FR_PATH]; /* path/checkpoint */
    int lock_fd;
    int checkpoint_fd; /* path/checkpoint, wherever it is moved to */
    dev_t device;      /* which folder it is */
    ino_t inode;
} fr__folder;

typedef FR_VEC(int64_t) fr__steps;

/* Fails if the folder holds a run and resume is false, or files that are not a run's. Looks only.
 */
fr_status fr__folder_check(fr_ctx *ctx, const char *path, bool resume);
/* Makes the folder, locks it, removes what a killed run left half written. */
fr_status fr__folder_open(fr_ctx *ctx, const char *path, bool resume, fr__folder *f);
void fr__folder_close(fr__folder *f);

/* Before each write, on any thread: FR_IO and one line unless the path still leads to the folder.
 */
fr_status fr__folder_held(fr_ctx *ctx, const fr__folder *f);
bool fr__folder_is_held(const fr__folder *f);
/* Says so, whatever the path leads to. */
fr_status fr__folder_lost(fr_ctx *ctx, const fr__folder *f);
/* The path of a file in it that is about to be written; fails as fr__folder_held. */
fr_status fr__folder_file(fr_ctx *ctx, const fr__folder *f, const char *name, char path[FR_PATH]);

/* Numbers N of the folders step-N in `checkpoints`, newest first; none if it does not exist. The
 * caller releases the vec. */
fr_status fr__folder_steps(fr_ctx *ctx, const char *checkpoints, fr__steps *steps);

/* N of a path that ends in step-N. */
bool fr__folder_step_of(const char *path, int64_t *step);

/* Remove a folder of plain files, or a file, so that it is never seen half removed: renamed first.
 * dir: its parent, open; -1: the path leads. */
fr_status fr__folder_discard(fr_ctx *ctx, int dir, const char *parent, const char *name);

/* printf into a path; FR_INVALID if it does not fit. */
fr_status fr__path(fr_ctx *ctx, char out[FR_PATH], const char *format, ...) FR_PRINTF(3, 4);

#endif
