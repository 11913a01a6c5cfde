/* json.h -- what verbs print with --json, where the library does not write it. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <jansson.h>

/* Prints and releases it; NULL: there was no memory for it. Returns the exit code. */
int json_print(json_t *root);

#endif
