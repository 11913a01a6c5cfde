/* vec.c -- the functions behind the FR_VEC macros. */
#include "base/vec.h"

bool fr__vec_grow(void **at, size_t *room, size_t item_bytes)
{
    return fr__vec_resize(at, room, *room ? 2 * *room : 16, item_bytes);
}

bool fr__vec_resize(void **at, size_t *room, size_t new_room, size_t item_bytes)
{
    void *moved = fr__realloc(*at, *room * item_bytes, fr__array_bytes(new_room, item_bytes));
    if (!moved) return false;
    *at = moved;
    *room = new_room;
    return true;
}
