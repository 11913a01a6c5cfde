/* json.h -- JSON output of verbs that the library does not write. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <jansson.h>

/* Print and release it. Returns 0; exits if out of memory (root NULL), or if stdout cannot be
 * written. */
int json_print(json_t *root);
int json_print_line(json_t *root); /* the same, all on one line */
/* A number; null if it is not finite, which JSON cannot say. */
json_t *json_finite(double value);

#endif
