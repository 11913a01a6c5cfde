/* vec.c -- the one function behind the FR_VEC macros. */
#include "base/vec.h"

bool fr__vec_grow(void **at, size_t *room, size_t item_bytes)
{
    size_t wanted = *room ? 2 * *room : 16;
    void *grown = fr__realloc(*at, *room * item_bytes, fr__array_bytes(wanted, item_bytes));
    if (!grown) return false;
    *at = grown;
    *room = wanted;
    return true;
}
