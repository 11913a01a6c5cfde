/* names.h -- maps names of nodes, parameters or tensors to indices; lists of records by name. */
#ifndef FR_BASE_NAMES_H
#define FR_BASE_NAMES_H

#include "base/alloc.h"

#include <string.h>

typedef struct fr__names {
    struct fr__name_slot *slots; /* (room), open addressing, at most half full */
    size_t room, n;
} fr__names; /* zero is empty */

int fr__names_find(const fr__names *t, const char *name); /* -1: none */
/* Add a name. The text must outlive the table and must not be in it. False: no memory. */
bool fr__names_add(fr__names *t, const char *name, int index);
void fr__names_fini(fr__names *t);

/* Defines list() and find(name) of a NULL-terminated array of records that have a name. */
#define FR_REGISTRY(type, records, list, find)            \
    const type *const *list(void) { return records; }     \
    const type *find(const char *name)                    \
    {                                                     \
        for (const type *const *r = records; *r; r++)     \
            if (strcmp((*r)->name, name) == 0) return *r; \
        return NULL;                                      \
    }

#endif
