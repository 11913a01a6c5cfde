/* json.h -- a streaming JSON writer that allocates nothing, for metrics lines and summaries.
 *
 *     fr__json j;
 *     fr__json_to_file(&j, f, 0);
 *     fr__json_object(&j, NULL);
 *     fr__json_int(&j, "step", 7);
 *     fr__json_list(&j, "parts"), fr__json_real(&j, NULL, 0.5), fr__json_end(&j);
 *     fr__json_end(&j);
 *     if (!fr__json_finish(&j)) ...write failed, buffer too small, or calls that do not match...
 *
 * `key` is NULL inside a list and at the top, a text inside an object. Errors are recorded, so only
 * fr__json_finish needs a check. */
#ifndef FR_IO_JSON_H
#define FR_IO_JSON_H

#include "base/text.h"

#include <stdio.h>

#define FR_JSON_DEPTH 32

typedef struct fr__json {
    FILE *file;   /* or NULL: */
    char *buffer; /* (room), always zero-terminated */
    size_t room, bytes;
    bool (*write)(void *user, const char *text, size_t n); /* replaces both */
    void *user;
    bool has_text; /* as does: */
    fr__text text;
    int indent; /* blanks per level; 0: all on one line */
    int depth;
    bool is_list[FR_JSON_DEPTH + 1], has_items[FR_JSON_DEPTH + 1];
    bool failed;
} fr__json;

/* The caller owns the file, which stays open; fr__json_finish writes a newline and flushes. */
void fr__json_to_file(fr__json *j, FILE *file, int indent);
/* The text has j->bytes bytes, without a newline at the end. If room is too small, the writer fails
 * and j->bytes is the needed size (room must be one byte larger, for the zero). */
void fr__json_to_buffer(fr__json *j, char *buffer, size_t room, int indent);

/* `write` receives the text in pieces, which never split a character, and returns whether it
 * succeeded. */
void fr__json_to(fr__json *j, bool (*write)(void *user, const char *text, size_t n), void *user);

/* A text of any length, in one block: fr__json_take instead of fr__json_finish returns it with
 * `end` appended, to be released with fr__free; NULL: no memory, or calls that do not match. */
void fr__json_to_text(fr__json *j, int indent);
char *fr__json_take(fr__json *j, const char *end);

void fr__json_object(fr__json *j, const char *key);
void fr__json_list(fr__json *j, const char *key);
void fr__json_end(fr__json *j); /* of the innermost object or list */

void fr__json_int(fr__json *j, const char *key, int64_t value);
void fr__json_uint(fr__json *j, const char *key, uint64_t value);
/* Shortest text that reads back to the same double; NaN and infinity become null. */
void fr__json_real(fr__json *j, const char *key, double value);
/* A number in text form; "" becomes null. */
void fr__json_number(fr__json *j, const char *key, const char *text);
void fr__json_bool(fr__json *j, const char *key, bool value);
/* NULL becomes null; bytes that are not UTF-8 become U+FFFD. */
void fr__json_text(fr__json *j, const char *key, const char *text);
void fr__json_null(fr__json *j, const char *key);
/* A value that is already JSON, verbatim. */
void fr__json_raw(fr__json *j, const char *key, const char *json, size_t bytes);

/* True if exactly one complete value was written without errors. */
bool fr__json_finish(fr__json *j);

#endif
