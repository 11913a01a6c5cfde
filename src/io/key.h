/* key.h -- short forms for tables of keys (fr_key): one row a key, its meaning last, then what is
 * special by name. */
#ifndef FR_IO_KEY_H
#define FR_IO_KEY_H

#include <forerun/io.h>

#include <math.h>

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
#define FR_AMOUNT(path, preset, ...) FR_PLAIN(FR_KEY_AMOUNT, path, preset, __VA_ARGS__)
#define FR_INTS(path, preset, ...) FR_PLAIN(FR_KEY_INTS, path, preset, __VA_ARGS__)
#define FR_TEXTS(path, preset, ...) FR_PLAIN(FR_KEY_TEXTS, path, preset, __VA_ARGS__)
#define FR_ITEMS(path, preset, ...) FR_PLAIN(FR_KEY_ITEMS, path, preset, __VA_ARGS__)

/* A choice among words, and among the names of a registry. */
#define FR_WORDS(function, ...)                                 \
    static const char *function(int i)                          \
    {                                                           \
        static const char *const words[] = {__VA_ARGS__, NULL}; \
        return words[i];                                        \
    }
#define FR_NAMES(function, list) \
    static const char *function(int i) { return (list)()[i] ? (list)()[i]->name : NULL; }

#endif
