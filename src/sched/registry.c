/* registry.c -- the table of generators. */
#include "sched/sched.h"

#include <string.h>

static const fr_generator *const generators[] = {
    &fr__gen_sequential, &fr__gen_gpipe,       &fr__gen_1f1b,
    &fr__gen_1f1b_async, &fr__gen_interleaved, &fr__gen_zb_h1,
    &fr__gen_nf1b,       &fr__gen_forward,     NULL,
};

const fr_generator *const *fr_generator_list(void) { return generators; }

const fr_generator *fr_generator_find(const char *name)
{
    for (const fr_generator *const *g = generators; *g; g++)
        if (strcmp((*g)->name, name) == 0) return *g;
    return NULL;
}
