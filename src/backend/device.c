/* device.c -- backends by name, and devices with their memory accounts. */
#include "backend/kernel.h"
#include "backend/orthogonalise.h"

#include <stdio.h>
#include <string.h>

const fr_backend *fr_backend_find(const char *name)
{
    for (const fr_backend *const *b = fr_backend_list(); *b; b++) {
        if (strcmp((*b)->name, name) == 0) return *b;
    }
    return NULL;
}

const char *fr_backend_name(const fr_backend *b) { return b->name; }
const char *fr_backend_summary(const fr_backend *b) { return b->summary; }

void fr_backend_library(const fr_backend *b, char *text, size_t room)
{
    if (room) text[0] = '\0';
    if (room && b->library) b->library(text, room);
}

void fr_backend_instructions(const fr_backend *b, char *text, size_t room)
{
#if defined(__x86_64__)
    const char *architecture = "x86-64";
#elif defined(__aarch64__)
    const char *architecture = "aarch64";
#else
    const char *architecture = "other";
#endif
    if (room && b->instructions)
        b->instructions(text, room);
    else
        snprintf(text, room, "%s", architecture);
}

bool fr_backend_computes(const fr_backend *b, fr_dtype type)
{
    return type == FR_F32 || (type == FR_BF16 && b->computes_bf16 && b->computes_bf16());
}

int fr_backend_n_devices(const fr_backend *b) { return b->n_devices ? b->n_devices() : 1; }

fr_status fr_device_open(fr_ctx *ctx, const fr_backend *b, const fr_device_desc *desc,
                         fr_device **out)
{
    *out = NULL;
    int n = fr_backend_n_devices(b);
    if (desc->index < 0 || desc->index >= n)
        return fr_fail(ctx, FR_INVALID, "backend %s: there is no device %d; this machine has %d",
                       b->name, desc->index, n);
    fr_device *dev = FR_NEW(fr_device);
    if (!dev) return fr__no_memory(ctx, sizeof *dev, "a device");
    dev->backend = b;
    dev->ctx = ctx;
    dev->index = desc->index;
    fr_status status = b->open(dev, desc);
    if (status != FR_OK) {
        fr__free(dev);
        return status;
    }
    *out = dev;
    return FR_OK;
}

void fr_device_close(fr_device *dev)
{
    if (!dev) return;
    dev->backend->close(dev);
    fr__free(dev);
}

int fr_device_index(const fr_device *dev) { return dev->index; }
int fr_device_n_threads(const fr_device *dev) { return dev->n_threads; }
const char *fr_device_about(const fr_device *dev) { return dev->about; }

fr_status fr_device_alloc(fr_device *dev, size_t bytes, const char *what, void **out)
{
    *out = dev->backend->alloc(dev, bytes);
    if (!*out) return fr__no_memory(dev->ctx, bytes, what);
    dev->bytes += bytes;
    if (dev->bytes > dev->peak_bytes) dev->peak_bytes = dev->bytes;
    return FR_OK;
}

void fr_device_release(fr_device *dev, void *block, size_t bytes)
{
    if (!block) return;
    dev->backend->release(dev, block);
    dev->bytes -= bytes;
}

size_t fr_device_bytes(const fr_device *dev) { return dev->bytes; }
size_t fr_device_peak_bytes(const fr_device *dev) { return dev->peak_bytes; }

fr_status fr_device_upload(fr_device *dev, void *to, const void *host, size_t bytes)
{
    return dev->backend->upload(dev, to, host, bytes);
}

fr_status fr_device_download(fr_device *dev, void *host, const void *from, size_t bytes)
{
    return dev->backend->download(dev, host, from, bytes);
}

fr_status fr_device_sync(fr_device *dev) { return dev->backend->sync(dev); }

fr__mark fr__device_mark(fr_device *dev)
{
    return dev->backend->mark ? dev->backend->mark(dev) : 0;
}

fr_status fr__device_wait(fr_device *dev, fr__mark mark)
{
    return dev->backend->wait ? dev->backend->wait(dev, mark) : dev->backend->sync(dev);
}

void fr_device_parallel(fr_device *dev, size_t n, size_t grain, fr_range_fn body, void *arg)
{
    dev->backend->parallel(dev, n, grain, body, arg);
}

bool fr__device_is_host(const fr_device *dev) { return dev->backend->is_host; }

fr_status fr__device_copy(fr_device *dev, void *to, const void *from, size_t bytes)
{
    return dev->backend->copy(dev, to, from, bytes);
}

fr_status fr__device_convert(fr_device *dev, fr_dtype to_type, void *to, fr_dtype from_type,
                             const void *from, size_t n)
{
    return dev->backend->convert(dev, to_type, to, from_type, from, n);
}

void fr__device_add(fr_device *dev, fr_dtype type, void *y, const void *x, size_t n)
{
    dev->backend->add(dev, type, y, x, n);
}

void fr__device_blend(fr_device *dev, fr__blend kind, float *y, const float *x, float by, size_t n)
{
    dev->backend->blend(dev, kind, y, x, by, n);
}

void fr__device_sweep(fr_device *dev, const fr_optimizer *opt, const fr_optim_coef *coef,
                      const fr_sweep *sweep)
{
    dev->backend->sweep(dev, opt, coef, sweep);
}

void fr__device_orthogonalise(fr_device *dev, float *x, const fr_matrix *shape, float *scratch)
{
    dev->backend->orthogonalise(dev, x, shape, scratch);
}

size_t fr__orthogonalise_floats(const fr_matrix *shape)
{
    return fr__ortho_room(shape, NULL).floats;
}

double fr__orthogonalise_work(const fr_matrix *shape)
{
    double side = (double)fr__ortho_room(shape, NULL).side, n = (double)(shape->rows * shape->cols);
    return FR_ORTHO_STEPS * side * (2 * n + side * side);
}

void fr__device_squares(fr_device *dev, const float *x, const fr__span *spans, size_t n,
                        double *sums)
{
    dev->backend->squares(dev, x, spans, n, sums);
}

void fr__device_tree_sum(fr_device *dev, float *to, const float *const *from, int n, size_t count)
{
    dev->backend->tree_sum(dev, to, from, n, count);
}

fr_status fr__device_pick(fr_device *dev, float *host, fr_dtype type, const void *from, size_t n,
                          size_t stride)
{
    return dev->backend->pick(dev, host, type, from, n, stride);
}
