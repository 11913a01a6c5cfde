/* reader.h -- reads long JSON files piece by piece: the lines of metrics.jsonl, the events of
 * trace.json; and iterates over the fields of a piece.
 *
 * Memory does not grow with the file. */
#ifndef FR_REPORT_READER_H
#define FR_REPORT_READER_H

#include <forerun/base.h>

typedef struct fr__reader {
    fr_ctx *ctx;
    const char *path; /* the caller's */
    int fd;
    char *buffer;
    size_t begin, end; /* bytes read but not yet returned */
    bool is_drained;   /* end of file reached */
    int64_t line;      /* line of the last piece's start, from 1 */
    int64_t n_breaks;  /* line ends returned so far */
} fr__reader;

fr_status fr__reader_open(fr_ctx *ctx, const char *path, fr__reader *r);
void fr__reader_close(fr__reader *r);

/* A piece of the file, valid until the next call. */
typedef struct fr__piece {
    const char *text; /* (n); NULL: no more pieces */
    size_t n;
    bool is_whole; /* line: its end was found */
} fr__piece;
fr_status fr__reader_line(fr__reader *r, fr__piece *line);
/* Go to the first list that is a member of the outermost object. */
fr_status fr__reader_list(fr__reader *r);
/* The next object of that list. */
fr_status fr__reader_object(fr__reader *r, fr__piece *object);
/* Fail with FR_INVALID and "path:line: text". */
fr_status fr__reader_fail(fr__reader *r, const char *text);

/* --- inside a piece -------------------------------------------------------------------------- */

typedef enum fr__kind { FR_A_NUMBER, FR_A_TEXT, FR_AN_OBJECT, FR_A_WORD } fr__kind;

typedef struct fr__field {
    const char *key, *value; /* (n_key), without quotes; (n_value), verbatim */
    size_t n_key, n_value;
    fr__kind kind;
    double real; /* number, exact to one or two roundings; not a number: NaN */
} fr__field;

/* Iterate over the fields of an object. Supports the subset of JSON that Forerun writes; fails at
 * keys with escapes and at lists. */
typedef struct fr__fields {
    const char *at, *end;
    bool is_first, is_over, failed;
} fr__fields;
void fr__fields_open(fr__fields *f, const char *text, size_t n);
bool fr__fields_next(fr__fields *f, fr__field *field); /* false: at the end, or failed */
bool fr__field_is(const fr__field *f, const char *key);

#endif
