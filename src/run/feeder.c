/* feeder.c -- a loader as the source of an engine. */
#include "run/feeder.h"

#include "base/alloc.h"

#include <string.h>

fr_status fr__feeder_open(fr_ctx *ctx, const fr_loader_desc *desc, const fr_engine *e,
                          fr__feeder *f)
{
    fr_loader_desc d = *desc;
    memset(f, 0, sizeof *f);
    f->ctx = ctx;
    if (!fr_engine_reads_data(e)) return FR_OK;
    f->room = fr_engine_window(e) + 2; /* two are prepared while the others are in use */
    d.ahead = f->room;
    f->held = FR_NEW_ARRAY(const fr_batch *, f->room);
    if (!f->held) return fr__no_memory(ctx, (size_t)f->room * sizeof *f->held, "feeder");
    if (pthread_mutex_init(&f->lock, NULL) != 0) {
        fr__feeder_close(f);
        return fr_fail(ctx, FR_IO, "feeder: cannot create a mutex");
    }
    f->has_lock = true;
    fr_status status = fr_loader_create(ctx, &d, &f->loader);
    if (status != FR_OK) fr__feeder_close(f);
    return status;
}

void fr__feeder_close(fr__feeder *f)
{
    fr_loader_free(f->loader);
    if (f->has_lock) pthread_mutex_destroy(&f->lock);
    fr__free(f->held);
    memset(f, 0, sizeof *f);
}

/* Under the lock, or while no other thread calls. */
static fr_status take(fr__feeder *f, const fr_batch **out)
{
    if (!f->peeked) FR_TRY(fr_loader_next(f->loader, &f->peeked));
    *out = f->peeked;
    if (*out) return FR_OK;
    return fr_fail(f->ctx, FR_INTERNAL, "the data ended before the run");
}

fr_status fr__feeder_peek(fr__feeder *f, const fr_batch **out) { return take(f, out); }

static fr_status next(void *user, fr_feed *out)
{
    fr__feeder *f = user;
    const fr_batch *b = NULL;
    pthread_mutex_lock(&f->lock);
    fr_status status =
        f->n_held < f->room
            ? take(f, &b)
            : fr_fail(f->ctx, FR_INTERNAL, "feeder: all %d mini-batches are held", f->room);
    if (status == FR_OK) {
        f->held[(f->first + f->n_held++) % f->room] = b;
        f->peeked = NULL;
        *out = (fr_feed){
            .input = b->input, .target = b->target, .length = b->length, .n_targets = b->n_targets};
    }
    pthread_mutex_unlock(&f->lock);
    return status;
}

static void release(void *user)
{
    fr__feeder *f = user;
    const fr_batch *b = NULL;
    pthread_mutex_lock(&f->lock);
    if (f->n_held > 0) {
        b = f->held[f->first];
        f->first = (f->first + 1) % f->room;
        f->n_held--;
    }
    pthread_mutex_unlock(&f->lock);
    fr_loader_release(f->loader, b);
}

fr_source fr__feeder_source(fr__feeder *f)
{
    return (fr_source){.user = f, .next = next, .release = release};
}
