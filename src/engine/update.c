/* update.c -- gradients applied: over the whole block at the end of a mini-batch, or range by
 * range while the last backward still runs and the gradient is in cache. Both give the same bits,
 * because an optimizer treats each number by itself. */
#include "engine/worker.h"

#include "optim/optim.h"

#include <math.h>

enum { UPDATE_GRAIN = 1024, NORM_GRAIN = 8 }; /* floats; blocks of FR_NORM_BLOCK */

/* What one call sweeps; on the stack, so that several threads may hand in ranges at once. */
typedef struct range {
    const fr_update *update;
    size_t offset;     /* in the weights and state blocks */
    const float *grad; /* of the range alone */
} range;

void fr__update_begin(fr_update *u, fr_worker *w, const fr_feed *feed, double grad_scale)
{
    u->w = w;
    atomic_init(&u->n_done, 0);
    fr_optim_prepare(w->desc.optimizer, &w->desc.options, feed->step + 1, feed->lr, grad_scale,
                     &u->coef);
}

static void sweep(void *arg, size_t begin, size_t end)
{
    const range *r = arg;
    const fr_worker *w = r->update->w;
    size_t at = r->offset + begin;
    fr_sweep s = {
        .n = end - begin, .from = w->weights + at, .to = w->weights + at, .grad = r->grad + begin};
    for (int i = 0; i < FR_MAX_OPTIM_STATE; i++) s.state[i] = w->state[i] ? w->state[i] + at : NULL;
    w->desc.optimizer->step(&r->update->coef, &s);
}

void fr__update_range(void *update, size_t offset, size_t count, const float *grad)
{
    fr_update *u = update;
    range r = {.update = u, .offset = offset, .grad = grad};
    fr_device_parallel(u->w->dev, count, UPDATE_GRAIN, sweep, &r);
    atomic_fetch_add_explicit(&u->n_done, count, memory_order_relaxed);
}

size_t fr__update_size(const fr_worker *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_norm_blocks; i++) n += w->norm_blocks[i].count;
    return n;
}

/* Partial sums go to the workspace, which nobody uses between the last backward and the next
 * forward. */
static void sum_blocks(void *worker, size_t begin, size_t end)
{
    const fr_worker *w = worker;
    double *sums = (double *)(void *)w->workspace; /* (n_norm_blocks) */
    for (size_t i = begin; i < end; i++)
        sums[i] =
            fr__sum_squares_block(w->grads + w->norm_blocks[i].offset, w->norm_blocks[i].count);
}

double fr__grad_norm(fr_worker *w)
{
    fr_device_parallel(w->dev, w->n_norm_blocks, NORM_GRAIN, sum_blocks, w);
    const double *sums = (const double *)(const void *)w->workspace;
    double sum = 0;
    for (size_t i = 0; i < w->n_norm_blocks; i++) sum += sums[i];
    return sqrt(sum);
}
