/* json.c -- JSON to stdout. */
#include "json.h"

#include "term.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int print(json_t *root, size_t flags)
{
    if (!root || json_dumpf(root, stdout, flags) != 0) {
        term_say(TERM_ERROR, "forerun: cannot print JSON: out of memory, or no room for it");
        exit(1);
    }
    putchar('\n');
    json_decref(root);
    return 0;
}

int json_print(json_t *root) { return print(root, JSON_INDENT(1)); }

int json_print_line(json_t *root) { return print(root, 0); }

json_t *json_finite(double value) { return isfinite(value) ? json_real(value) : json_null(); }
