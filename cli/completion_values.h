/* completion_values.h -- the values of an argument, by its name in usage and help: METHOD, FILE,
 * a|b. */
#ifndef CLI_COMPLETION_VALUES_H
#define CLI_COMPLETION_VALUES_H

#include "cli.h"

typedef enum completion_kind {
    COMPLETE_ANY,  /* a number, a text: nothing to offer */
    COMPLETE_FILE, /* of any name */
    COMPLETE_CONFIG,
    COMPLETE_FOLDER,
    COMPLETE_KEY, /* of a config, followed by = and its value */
    COMPLETE_LIST /* of words */
} completion_kind;

completion_kind completion_kind_of(const char *value); /* NULL: COMPLETE_ANY */
/* Is key `at` the first of its path? Rows of one path need not be adjacent. */
bool completion_is_first_key(int at);
/* Word i of a list, into `text`; false after the last. */
bool completion_value_at(const char *value, int i, char *text, size_t room);

#endif
