/* json.h -- JSON output of verbs that the library does not write. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <jansson.h>

/* Print and release it; flags: of json_dumpf, 0: all on one line. Returns 0. Exits if out of memory
 * (root NULL) or if stdout cannot be written. */
int json_print(json_t *root, size_t flags);
/* A number; null if it is not finite, which JSON cannot say. */
json_t *json_finite(double value);

#endif
