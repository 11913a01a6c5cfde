/* read.h -- a schedule file on its way in: entries with the place they came from. */
#ifndef FR_SCHED_READ_H
#define FR_SCHED_READ_H

#include "base/vec.h"
#include "sched/sched.h"

/* Larger numbers of stages or micro-batches are typing errors. */
#define FR_SCHED_MAX_NUMBER 1048575
#define FR_SCHED_MAX_BYTES ((size_t)256 << 20)

/* Part of a line, between separators. */
typedef struct fr_span {
    const char *at;
    size_t n;
} fr_span;

/* An instruction of the file. */
typedef struct fr_entry {
    fr_instr x;
    int worker, line, number; /* line and number count from 1 */
} fr_entry;

typedef struct fr_reader {
    fr_ctx *ctx;
    const char *path;
    const char *at, *end; /* what is left of the file */
    int line;             /* the one being read, from 1 */
    FR_VEC(fr_entry) entries;
    int n_rows;     /* workers so far */
    int n_skipped;  /* UNSHARD and the like */
    int n_overlaps; /* two at once, taken one after the other */
    /* From the head of a text form; 0 or NULL: not said. */
    char name[64];
    int n_stages, n_workers, n_micro, n_batches;
    int is_flush; /* -1: not said */
    FR_VEC(int) worker_of;
    FR_VEC(int) replicas;     /* [stage]; empty: one each */
    int n_pipelines;          /* all of it so many times, side by side */
    FR_VEC(fr_link) links[2]; /* forward, backward */
    bool has_links[2];
} fr_reader;

/* The next line that holds something, comment and blanks at its ends removed; false at the end. */
bool fr__read_line(fr_reader *r, fr_span *line);
/* Cut the part before the next separator (' ': any run of blanks) off the line. */
fr_span fr__read_part(fr_span *line, char separator);
/* A whole number up to FR_SCHED_MAX_NUMBER from the front of the text; false: there is none, or it
 * is too large (then *value is -1). */
bool fr__read_number(fr_span *text, int *value);
/* One instruction onto r->entries; `number` is its place in the line, from 1. */
fr_status fr__read_entry(fr_reader *r, fr_span text, int number);
/* "file:line: " before the text; number > 0: "file:line: entry 3: ". */
fr_status fr__read_fail(const fr_reader *r, int line, int number, const char *format, ...)
    FR_PRINTF(4, 5);

/* Transfers that are posted go where ours belong; see read_posts.c. */
fr_status fr__read_posts(fr_reader *r);

/* fr_schedule_read on bytes in memory; `path` is for messages. */
fr_status fr__schedule_parse(fr_ctx *ctx, const char *path, const char *data, size_t bytes,
                             int n_micro, const fr_schedule_desc *d, fr_schedule **out);

#endif
