/* device.c -- a worker's device and the blocks taken on it. */
#include "exec/stage.h"

fr_status fr__exec_device_open(fr_ctx *ctx, const fr_backend *backend, const fr_device_desc *desc,
                               fr__exec_device **out)
{
    fr__exec_device *d = *out = FR_NEW(fr__exec_device);
    if (!d) return fr__no_memory(ctx, sizeof *d, "a device");
    d->ctx = ctx;
    fr_status status = fr_device_open(ctx, backend, desc, &d->dev);
    if (status == FR_OK) return FR_OK;
    fr__exec_device_close(d);
    *out = NULL;
    return status;
}

void fr__exec_device_close(fr__exec_device *d)
{
    if (!d) return;
    for (size_t i = 0; i < d->blocks.n; i++)
        fr_device_release(d->dev, d->blocks.at[i].at, d->blocks.at[i].bytes);
    fr__vec_fini(&d->blocks);
    if (d->dev) fr_device_close(d->dev);
    fr__free(d);
}

fr_device *fr__exec_device_of(fr__exec_device *d) { return d ? d->dev : NULL; }

fr_status fr__exec_device_take(fr__exec_device *d, size_t bytes, const char *what, void **out)
{
    *out = NULL;
    if (bytes == 0) return FR_OK;
    if (!fr__vec_push(&d->blocks, ((fr__device_block){0})))
        return fr__no_memory(d->ctx, sizeof *d->blocks.at, "a device");
    fr__device_block *block = &d->blocks.at[d->blocks.n - 1];
    fr_status status = fr_device_alloc(d->dev, bytes, what, &block->at);
    if (status != FR_OK) d->blocks.n--;
    if (status != FR_OK) return status;
    block->bytes = bytes;
    *out = block->at;
    return FR_OK;
}

size_t fr__exec_device_workspace_bytes(const fr__exec_device *d) { return d->workspace_bytes; }

fr_status fr__exec_device_take_workspace(fr__exec_device *d)
{
    return fr__exec_device_take(d, d->workspace_bytes, "workspace", &d->workspace);
}
