/* reader.h -- long files of JSON, a piece at a time: the lines of metrics.jsonl, the events of
 * trace.json; and a quick look into such a piece.
 *
 * Memory does not grow with the file. */
#ifndef FR_REPORT_READER_H
#define FR_REPORT_READER_H

#include <forerun/base.h>

typedef struct fr_reader {
    fr_ctx *ctx;
    const char *path; /* the caller's */
    int fd;
    char *buffer;
    size_t begin, end; /* what is read and not yet given out */
    bool is_drained;   /* the file has no more */
    int64_t line;      /* that the last piece began in, from 1 */
    int64_t n_breaks;  /* ends of lines given out */
} fr_reader;

fr_status fr__reader_open(fr_ctx *ctx, const char *path, fr_reader *r);
void fr__reader_close(fr_reader *r);

/* A piece of the file, good until the next call. */
typedef struct fr_piece {
    const char *text; /* (n); NULL: there are no more */
    size_t n;
    bool is_whole; /* a line: its end was there */
} fr_piece;
fr_status fr__reader_line(fr_reader *r, fr_piece *line);
/* The first list of the file that is not inside of another value than the outermost object. */
fr_status fr__reader_list(fr_reader *r);
/* The next object of that list. */
fr_status fr__reader_object(fr_reader *r, fr_piece *object);
/* FR_INVALID with "path:line: text". */
fr_status fr__reader_fail(fr_reader *r, const char *text);

/* --- inside a piece -------------------------------------------------------------------------- */

typedef enum fr_kind { FR_A_NUMBER, FR_A_TEXT, FR_AN_OBJECT, FR_A_WORD } fr_kind;

typedef struct fr_field {
    const char *key, *value; /* (n_key), without quotes; (n_value), as it stands */
    size_t n_key, n_value;
    fr_kind kind;
    double real; /* of a number, to within a rounding or two: enough for a picture; else NaN */
} fr_field;

/* The fields of an object. Understands what Forerun writes, and fails at what it does not: keys
 * with escapes, lists. */
typedef struct fr_fields {
    const char *at, *end;
    bool is_first, is_over, failed;
} fr_fields;
void fr__fields_open(fr_fields *f, const char *text, size_t n);
bool fr__fields_next(fr_fields *f, fr_field *field); /* false: over, or failed */
bool fr__field_is(const fr_field *f, const char *key);

#endif
