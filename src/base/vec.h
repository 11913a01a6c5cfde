/* vec.h -- a growable array of any type, as a macro over three fields.
 *
 *     FR_VEC(int) v = {0};
 *     if (!fr__vec_push(&v, 7)) ...no memory...
 *     fr__vec_fini(&v);  */
#ifndef FR_BASE_VEC_H
#define FR_BASE_VEC_H

#include "base/alloc.h"

#define FR_VEC(type) \
    struct {         \
        type *at;    \
        size_t n;    \
        size_t room; \
    }

bool fr__vec_grow(void **at, size_t *room, size_t item_bytes);
bool fr__vec_resize(void **at, size_t *room, size_t new_room, size_t item_bytes);

#define fr__vec_push(v, item)                                                             \
    (((v)->n < (v)->room || fr__vec_grow((void **)&(v)->at, &(v)->room, sizeof *(v)->at)) \
         ? ((v)->at[(v)->n++] = (item), true)                                             \
         : false)
/* Set the room to exactly this many items, at least v->n: before the first, or after the last item.
 */
#define fr__vec_fit(v, n_items) \
    fr__vec_resize((void **)&(v)->at, &(v)->room, (n_items), sizeof *(v)->at)
#define fr__vec_fini(v) (fr__free((v)->at), (v)->at = NULL, (v)->n = (v)->room = 0)

/* For qsort: ascending. */
int fr__by_int(const void *a, const void *b);
int fr__by_int64(const void *a, const void *b);

#endif
