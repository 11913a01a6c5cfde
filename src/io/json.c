/* json.c -- the streaming JSON writer. The position of a value determines commas, colons and line
 * breaks. A call that is not allowed at its position (a key in a list, two values at the top) is
 * recorded as a failure, so invalid JSON is never written. */
#include "io/json.h"

#include "base/utf8.h"
#include "io/number.h"

#include <math.h>
#include <string.h>

static void put(fr__json *j, const char *text, size_t n)
{
    if (j->has_text) {
        fr__text_put_bytes(&j->text, text, n);
    } else if (j->write) {
        if (!j->failed && !j->write(j->user, text, n)) j->failed = true;
    } else if (j->file) {
        if (!j->failed && fwrite(text, 1, n, j->file) != n) j->failed = true;
    } else if (j->bytes + n < j->room) {
        memcpy(j->buffer + j->bytes, text, n);
        j->buffer[j->bytes + n] = '\0';
    } else {
        j->failed = true;
    }
    j->bytes += n;
}

static void put_text(fr__json *j, const char *text) { put(j, text, strlen(text)); }

static void new_line(fr__json *j)
{
    if (j->indent == 0) return;
    put(j, "\n", 1);
    for (int i = 0; i < j->depth * j->indent; i++) put(j, " ", 1);
}

static void put_string(fr__json *j, const char *text)
{
    size_t n;
    put(j, "\"", 1);
    for (const char *t = text; *t; t += n) {
        int32_t c = fr__utf8_next(t, &n);
        char escape[8];
        if (c < 0) {
            put_text(j, "\xEF\xBF\xBD");
        } else if (c == '"' || c == '\\') {
            put(j, (char[2]){'\\', (char)c}, 2);
        } else if (c == '\n') {
            put_text(j, "\\n");
        } else if (c < 0x20 || c == 0x7F) {
            put(j, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c));
        } else {
            put(j, t, n);
        }
    }
    put(j, "\"", 1);
}

/* Write the text before a value. */
static void before(fr__json *j, const char *key)
{
    bool in_object = j->depth > 0 && !j->is_list[j->depth];
    if (in_object != (key != NULL) || (j->depth == 0 && j->has_items[0])) j->failed = true;
    if (j->depth > 0) {
        if (j->has_items[j->depth]) put_text(j, j->indent ? "," : ", ");
        new_line(j);
    }
    j->has_items[j->depth] = true;
    if (!key) return;
    put_string(j, key);
    put(j, ": ", 2);
}

static void open_level(fr__json *j, const char *key, bool is_list)
{
    before(j, key);
    if (j->depth == FR_JSON_DEPTH) {
        j->failed = true;
        return;
    }
    put(j, is_list ? "[" : "{", 1);
    j->depth++;
    j->is_list[j->depth] = is_list;
    j->has_items[j->depth] = false;
}

static void start(fr__json *j, fr__json what)
{
    *j = what;
    if (j->buffer && j->room) j->buffer[0] = '\0';
}

void fr__json_to_file(fr__json *j, FILE *file, int indent)
{
    start(j, (fr__json){.file = file, .indent = indent});
}

void fr__json_to_buffer(fr__json *j, char *buffer, size_t room, int indent)
{
    start(j, (fr__json){.buffer = buffer, .room = room, .indent = indent});
}

void fr__json_to(fr__json *j, bool (*write)(void *user, const char *text, size_t n), void *user)
{
    start(j, (fr__json){.write = write, .user = user});
}

void fr__json_to_text(fr__json *j, int indent)
{
    start(j, (fr__json){.has_text = true, .indent = indent});
}

char *fr__json_take(fr__json *j, const char *end)
{
    if (!fr__json_finish(j)) j->text.failed = true;
    fr__text_put(&j->text, end);
    return fr__text_take(&j->text);
}

void fr__json_object(fr__json *j, const char *key) { open_level(j, key, false); }

void fr__json_list(fr__json *j, const char *key) { open_level(j, key, true); }

void fr__json_end(fr__json *j)
{
    if (j->depth == 0) {
        j->failed = true;
        return;
    }
    bool is_list = j->is_list[j->depth], has_items = j->has_items[j->depth];
    j->depth--;
    if (has_items) new_line(j);
    put(j, is_list ? "]" : "}", 1);
}

void fr__json_int(fr__json *j, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    before(j, key);
    put_text(j, text);
}

void fr__json_uint(fr__json *j, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    before(j, key);
    put_text(j, text);
}

void fr__json_real(fr__json *j, const char *key, double value)
{
    char text[32] = "null";
    if (isfinite(value)) fr__real_format(value, text);
    before(j, key);
    put_text(j, text);
}

void fr__json_number(fr__json *j, const char *key, const char *text)
{
    before(j, key);
    put_text(j, text[0] ? text : "null");
}

void fr__json_bool(fr__json *j, const char *key, bool value)
{
    before(j, key);
    put_text(j, value ? "true" : "false");
}

void fr__json_text(fr__json *j, const char *key, const char *text)
{
    before(j, key);
    if (text)
        put_string(j, text);
    else
        put_text(j, "null");
}

void fr__json_null(fr__json *j, const char *key) { fr__json_text(j, key, NULL); }

void fr__json_raw(fr__json *j, const char *key, const char *json, size_t bytes)
{
    before(j, key);
    put(j, json, bytes);
}

bool fr__json_finish(fr__json *j)
{
    if (j->depth != 0 || !j->has_items[0]) j->failed = true;
    if (j->file && !j->failed && (putc('\n', j->file) == EOF || fflush(j->file) != 0))
        j->failed = true;
    return !j->failed;
}
