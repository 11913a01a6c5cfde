/* names.h -- maps names of nodes, parameters or tensors to indices. */
#ifndef FR_BASE_NAMES_H
#define FR_BASE_NAMES_H

#include "base/alloc.h"

typedef struct fr_names {
    struct fr_name_slot *slots; /* (room), open addressing, at most half full */
    size_t room, n;
} fr_names; /* zero is empty */

int fr__names_find(const fr_names *t, const char *name); /* -1: none */
/* Add a name. The text must outlive the table and must not be in it. False: no memory. */
bool fr__names_add(fr_names *t, const char *name, int index);
void fr__names_fini(fr_names *t);

#endif
