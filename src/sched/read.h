/* read.h -- reading a schedule file: entries with their places in the file. */
#ifndef FR_SCHED_READ_H
#define FR_SCHED_READ_H

#include "base/vec.h"
#include "sched/sched.h"

/* Larger numbers of stages or micro-batches are rejected as typing errors. */
#define FR_SCHED_MAX_NUMBER 1048575
#define FR_SCHED_MAX_BYTES ((size_t)256 << 20)

/* Part of a line, between separators. */
typedef struct fr__text_span {
    const char *at;
    size_t n;
} fr__text_span;

bool fr__span_is(fr__text_span s, const char *word);

/* An instruction of the file. */
typedef struct fr__sched_entry {
    fr_instr x;
    int worker, line, number; /* line and number count from 1 */
} fr__sched_entry;

typedef struct fr__sched_reader {
    fr_ctx *ctx;
    const char *path;
    const char *at, *end; /* rest of the file */
    int line;             /* current line, from 1 */
    FR_VEC(fr__sched_entry) entries;
    int n_rows;     /* workers so far */
    int n_skipped;  /* UNSHARD and similar entries, ignored */
    int n_overlaps; /* OVERLAP_F_B entries, run one after the other */
    /* From the head of a text form; 0 or NULL: not given. */
    char name[64];
    int n_stages, n_workers, n_micro, n_batches;
    int is_flush; /* -1: not given */
    FR_VEC(int) worker_of;
    FR_VEC(int) replicas;     /* [stage]; empty: 1 each */
    int n_pipelines;          /* replicas of the whole pipeline */
    FR_VEC(fr_link) links[2]; /* forward, backward */
    bool has_links[2];
} fr__sched_reader;

/* The next line that is not empty, without its comment and surrounding blanks; false at the end. */
bool fr__read_line(fr__sched_reader *r, fr__text_span *line);
/* Cut the first part, up to the separator (' ': any run of blanks), off the line. */
fr__text_span fr__read_part(fr__text_span *line, char separator);
/* Cut an integer up to FR_SCHED_MAX_NUMBER off the front of the text; false: there is none, or it
 * is too large (then *value is -1). */
bool fr__read_number(fr__text_span *text, int *value);
/* Append one instruction to r->entries; `number` is its position in the line, from 1. */
fr_status fr__read_entry(fr__sched_reader *r, fr__text_span text, int number);
/* Fail with the prefix "file:line: ", or with number > 0 "file:line: entry 3: ". */
fr_status fr__read_fail(const fr__sched_reader *r, int line, int number, const char *format, ...)
    FR_PRINTF(4, 5);

/* Move posted transfers to the places of blocking ones; see read_posts.c. */
fr_status fr__read_posts(fr__sched_reader *r);

/* fr_schedule_read from memory; messages name `path`. */
fr_status fr__schedule_parse(fr_ctx *ctx, const char *path, const char *data, size_t bytes,
                             int n_micro, const fr_schedule_desc *d, fr_schedule **out);

#endif
