/* key.h -- tables of keys (fr_key), and reading a config by them.
 *
 * Short forms make one row per key: its meaning last, then what is special by name. The default of
 * a key is the value that the struct already holds, or else the preset of its row. */
#ifndef FR_IO_KEY_H
#define FR_IO_KEY_H

#include <forerun/io.h>

#include <float.h>
#include <math.h>
#include <stddef.h>

#define FR_KEY_END   \
    {                \
        .path = NULL \
    }
#define FR_NUMBER(k, p, d, lo, hi, ...)                                                 \
    {                                                                                   \
        .path = p, .kind = k, .preset = d, .min = lo, .max = hi, .meaning = __VA_ARGS__ \
    }
#define FR_PLAIN(k, p, d, ...)                                    \
    {                                                             \
        .path = p, .kind = k, .preset = d, .meaning = __VA_ARGS__ \
    }
#define FR_INT(path, preset, min, ...) FR_NUMBER(FR_KEY_INT, path, preset, min, __VA_ARGS__)
#define FR_REAL(path, preset, min, ...) FR_NUMBER(FR_KEY_REAL, path, preset, min, __VA_ARGS__)
#define FR_BOOL(path, preset, ...) FR_PLAIN(FR_KEY_BOOL, path, preset, __VA_ARGS__)
#define FR_TEXT(path, preset, ...) FR_PLAIN(FR_KEY_TEXT, path, preset, __VA_ARGS__)
#define FR_AMOUNT(path, preset, unit_of, min, ...) \
    FR_NUMBER(FR_KEY_AMOUNT, path, preset, min, __VA_ARGS__, .unit = unit_of)
#define FR_INTS(path, preset, ...) FR_PLAIN(FR_KEY_INTS, path, preset, __VA_ARGS__)
#define FR_TEXTS(path, preset, ...) FR_PLAIN(FR_KEY_TEXTS, path, preset, __VA_ARGS__)
#define FR_ITEMS(path, preset, ...) FR_PLAIN(FR_KEY_ITEMS, path, preset, __VA_ARGS__)

/* Where the value goes. An integer is an int or int64_t there, a number float or double. */
#define FR_AT(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)

/* A choice among words, and among the names of a registry. */
#define FR_WORDS(function, ...)                                 \
    static const char *function(int i)                          \
    {                                                           \
        static const char *const words[] = {__VA_ARGS__, NULL}; \
        return words[i];                                        \
    }
#define FR_NAMES(function, list) \
    static const char *function(int i) { return (list)()[i] ? (list)()[i]->name : NULL; }

/* "a, b, c" has b */
bool fr__has_name(const char *names, const char *name);
/* text, which has room for so many bytes, becomes "a, b, name". */
void fr__append_name(char *text, size_t room, const char *name);

/* The name of a key in its section: what follows the last dot. */
const char *fr__key_name(const fr_key *k);
/* The first row at or after k of a key directly in `section` ("train.", "model.nodes[].") that
 * `user` (NULL: anybody) has; NULL: none. */
const fr_key *fr__key_next(const fr_key *k, const char *section, const char *user);
/* The row of "section.key", which is in the table. */
const fr_key *fr__key_find(const fr_key *table, const char *section, const char *key,
                           const char *user);
/* Reads a key of c into *to: of the row's size, or else int64_t, double, bool or const char *. A
 * number or text without default that is not given stays as it is. */
fr_status fr__key_read(fr_conf *c, const fr_key *k, void *to);
/* All rows of a section that have a place in *base, in the order of the table. */
fr_status fr__keys_read(fr_conf *c, const fr_key *table, const char *section, const char *user,
                        void *base);
/* Those that a record lists, in its order. */
fr_status fr__keys_read_listed(fr_conf *c, const fr_key *table, const char *section,
                               const char *const *keys, void *base);
/* The index of a choice; -1: none. */
int fr__key_choice(const fr_key *k, const char *name);

#endif
