/* host.c -- memory of backends whose device is the host: what they share. */
#include "backend/kernel.h"

#include <string.h>

void *fr__host_alloc(fr_device *dev, size_t bytes)
{
    (void)dev;
    return fr__alloc(bytes);
}

void fr__host_release(fr_device *dev, void *block)
{
    (void)dev;
    fr__free(block);
}

fr_status fr__host_copy(fr_device *dev, void *to, const void *from, size_t bytes)
{
    (void)dev;
    if (from)
        memcpy(to, from, bytes);
    else
        memset(to, 0, bytes);
    return FR_OK;
}
