/* list.c -- the backends of the test programs, in place of src/backend/registry.c: those of the
 * library. FR_BACKEND=fenced or deferred makes that one the default, which takes the name of ref as
 * well, for tests and configurations that name it; oracles take ref by its record. */
#include "fenced/fenced.h"

#include <stdlib.h>
#include <string.h>

static fr_backend named_ref;
static const fr_backend *chosen;

__attribute__((constructor(203))) static void choose(void)
{
    const fr_backend *const all[] = {&fenced_backend, &deferred_backend};
    const char *name = getenv("FR_BACKEND");
    for (int i = 0; name && i < 2; i++)
        if (strcmp(all[i]->name, name) == 0) chosen = all[i];
    if (!chosen) return;
    named_ref = *chosen;
    named_ref.name = fr__backend_ref.name;
}

const fr_backend *const *fr_backend_list(void)
{
    static const fr_backend *const usual[] = {&fr__backend_cpu, &fr__backend_ref, NULL};
    static const fr_backend *fenced[] = {NULL, &named_ref, &fr__backend_cpu, NULL};
    fenced[0] = chosen;
    return chosen ? fenced : usual;
}
