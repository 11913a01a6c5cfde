/* words.h -- what an argument may be, by the name that usage and help give it: METHOD, FILE, a|b.
 */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include "cli.h"

typedef enum words_kind {
    WORDS_ANY,  /* a number, a text: nothing to offer */
    WORDS_FILE, /* of any name */
    WORDS_CONFIG,
    WORDS_FOLDER,
    WORDS_KEY, /* of a config, followed by = and its value */
    WORDS_LIST /* of words */
} words_kind;

words_kind words_kind_of(const char *value); /* NULL: WORDS_ANY */
/* Word i of a list, into `text`; false after the last. */
bool words_at(const char *value, int i, char *text, size_t room);

#endif
