/* json.h -- JSON output of verbs that the library does not write. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <jansson.h>

/* Print and release it; NULL: out of memory. Returns the exit code. */
int json_print(json_t *root);

#endif
