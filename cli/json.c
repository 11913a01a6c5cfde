/* json.c -- JSON to stdout. */
#include "json.h"

#include "term.h"

#include <stdio.h>

int json_print(json_t *root)
{
    if (!root) {
        term_say(TERM_ERROR, "forerun: out of memory for JSON");
        return 1;
    }
    int failed = json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
    return failed ? 1 : 0;
}
