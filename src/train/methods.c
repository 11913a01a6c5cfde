/* methods.c -- the ways a run can be spread over workers. A new one is one line in the list. */
#include <forerun/train.h>
#include <string.h>

static const fr_method single = {
    .name = "single",
    .summary = "one worker holds the whole model: the reference for all others",
    .generator = "sequential",
    .policy = "live",
    .max_stages = 1,
    .max_replicas = 1,
};

static const fr_method *const methods[] = {&single, NULL};

const fr_method *const *fr_method_list(void) { return methods; }

const fr_method *fr_method_find(const char *name)
{
    for (const fr_method *const *m = methods; *m; m++)
        if (strcmp((*m)->name, name) == 0) return *m;
    return NULL;
}
