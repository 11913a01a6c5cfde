/* list.c -- the backends of the test programs, in place of src/backend/registry.c: those of the
 * library; with FR_BACKEND=fenced the fenced one and ref, which it is compared with. */
#include "fenced/fenced.h"

#include <stdlib.h>
#include <string.h>

const fr_backend *const *fr_backend_list(void)
{
    static const fr_backend *const usual[] = {&fr__backend_cpu, &fr__backend_ref, NULL};
    static const fr_backend *const fenced[] = {&fenced_backend, &fr__backend_ref, NULL};
    const char *name = getenv("FR_BACKEND");
    return name && strcmp(name, "fenced") == 0 ? fenced : usual;
}
