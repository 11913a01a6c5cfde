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

int fr__by_int(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int fr__by_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}
