/* folder.h -- a run's folder: its lock and its checkpoints.
 *
 *     OUT/config.yaml  metrics.jsonl  summary.json  checkpoint/step-N/...
 *
 * One process at a time has a folder open for writing; the lock ends with the process. The lock
 * belongs to the folder, not to its path: if the folder is moved, removed or replaced while a run
 * writes, the path may lead to another run's folder. So before each write the path must still lead
 * to the locked folder; else the run ends. */
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
    int checkpoint_fd; /* path/checkpoint, valid even if it is moved */
    dev_t device;      /* identity of the folder */
    ino_t inode;
} fr__folder;

typedef FR_VEC(int64_t) fr__steps;

/* Fails if the folder holds a run and resume is false, or files that are not a run's. Changes
 * nothing. */
fr_status fr__folder_check(fr_ctx *ctx, const char *path, bool resume);
/* Creates the folder, locks it, removes partial files of a killed run. */
fr_status fr__folder_open(fr_ctx *ctx, const char *path, bool resume, fr__folder *f);
void fr__folder_close(fr__folder *f);

/* Before each write, on any thread: FR_IO unless the path still leads to the folder. */
fr_status fr__folder_held(fr_ctx *ctx, const fr__folder *f);
bool fr__folder_is_held(const fr__folder *f);
/* Fails with that message unconditionally. */
fr_status fr__folder_lost(fr_ctx *ctx, const fr__folder *f);
/* The path of a file in the folder, to be written next; fails like fr__folder_held. */
fr_status fr__folder_file(fr_ctx *ctx, const fr__folder *f, const char *name, char path[FR_PATH]);

/* Numbers N of the folders step-N in `checkpoints`, newest first; none if it does not exist. The
 * caller releases the vec. */
fr_status fr__folder_steps(fr_ctx *ctx, const char *checkpoints, fr__steps *steps);

/* N of a path that ends in step-N. */
bool fr__folder_step_of(const char *path, int64_t *step);

/* Removes a folder of plain files, or a file. It is renamed first, so it is never visible half
 * removed. dir: its parent, open; -1: use the path. */
fr_status fr__folder_discard(fr_ctx *ctx, int dir, const char *parent, const char *name);

/* printf into a path; FR_INVALID if it does not fit. */
fr_status fr__path(fr_ctx *ctx, char out[FR_PATH], const char *format, ...) FR_PRINTF(3, 4);

#endif
