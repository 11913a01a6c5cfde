/* loader.c -- prepares mini-batches ahead on a separate thread.
 *
 * The stream of training samples is the sequence of the epochs' permutations. Mini-batch k consists
 * of the positions k * batch .. (k + 1) * batch - 1 and may cross the border of an epoch. A
 * position is also the draw number of its augmentation. So a mini-batch depends only on (seed, k),
 * wherever the loader started.
 *
 * A ring of `ahead` slots: EMPTY -(thread fills)-> READY -(next)-> HELD -(release)-> EMPTY. The
 * contents of a slot belong to the thread while it is EMPTY and to the caller while it is HELD, so
 * the lock guards only states. */
#include "base/philox.h"
#include "base/thread.h"
#include "data/source.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_AHEAD = 2, MAX_AHEAD = 1024 };
enum { TARGET_BYTES = 4 }; /* of a class, or a float */
_Static_assert(FR_TARGET_IGNORE == -1, "all bits are set");
enum slot_state { EMPTY, READY, HELD };

typedef struct slot {
    fr_batch batch;
    enum slot_state state;
} slot;

struct fr_loader {
    fr_ctx *ctx;
    fr_loader_desc desc;
    int64_t n_samples;                /* of the split */
    int64_t n_batches;                /* in all */
    size_t input_bytes, target_count; /* of one sample */
    size_t target_width;              /* floats of one target */

    /* used by the thread only */
    int64_t *order; /* (n_samples) permutation of `epoch`; NULL: in order */
    int64_t epoch;

    pthread_mutex_t lock;  /* guards slots[].state, next, status, error, stop */
    pthread_cond_t filled; /* a slot became READY, or status was set */
    pthread_cond_t freed;  /* a slot became EMPTY, or stop was set */
    slot *slots;           /* (desc.ahead) */
    int64_t next;          /* mini-batch that fr_loader_next returns next */
    fr_status status;      /* error of the thread */
    char error[1024];      /* in words */
    bool stop;

    atomic_uint_fast64_t wait_ns;
    pthread_t thread;
    bool has_lock, has_thread;
    unsigned char *block; /* the buffers of all slots */
    size_t bytes;
};

/* Fisher-Yates, keyed by (seed, epoch). The bias of the remainder is below n / 2^64. */
static void shuffle(fr_loader *l, int64_t epoch)
{
    int64_t *order = l->order;
    for (int64_t i = 0; i < l->n_samples; i++) order[i] = i;
    for (int64_t i = l->n_samples - 1; i > 0; i--) {
        uint32_t lot[4];
        fr__random4(l->desc.seed, FR_STREAM_SHUFFLE, 0, (uint64_t)i, (uint32_t)epoch, lot);
        int64_t j = (int64_t)(((uint64_t)lot[1] << 32 | lot[0]) % (uint64_t)(i + 1));
        int64_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    l->epoch = epoch;
}

static fr_status put_sample(fr_loader *l, fr_batch *b, int i, int64_t position)
{
    const fr_dataset *d = l->desc.data;
    int32_t unwanted, *length = b->length ? b->length + i : &unwanted;
    int64_t index = position % l->n_samples;
    uint64_t draw = FR_DRAW_PLAIN;
    if (l->order) {
        if (position / l->n_samples != l->epoch) shuffle(l, position / l->n_samples);
        index = l->order[index];
        draw = (uint64_t)position;
    }
    return d->ops->read(d, l->desc.split, index, l->desc.seed, draw,
                        (char *)b->input + (size_t)i * l->input_bytes,
                        (char *)b->target + (size_t)i * l->target_count * TARGET_BYTES, length);
}

/* Rows after the last sample: zeros, ignored targets, one (harmless) token. All bits set are
 * FR_TARGET_IGNORE and, as a float, NaN. */
static void put_padding(const fr_loader *l, fr_batch *b, int i)
{
    memset((char *)b->input + (size_t)i * l->input_bytes, 0, l->input_bytes);
    memset((char *)b->target + (size_t)i * l->target_count * TARGET_BYTES, 0xff,
           l->target_count * TARGET_BYTES);
    if (b->length) b->length[i] = 1;
}

static int64_t count_targets(const fr_loader *l, const fr_batch *b)
{
    const size_t n = (size_t)b->n_samples * l->target_count;
    const int32_t *classes = b->target;
    const float *numbers = b->target;
    int64_t n_counted = 0;
    if (!l->desc.data->info.has_float_targets) {
        for (size_t i = 0; i < n; i++) n_counted += classes[i] != FR_TARGET_IGNORE;
        return n_counted;
    }
    for (size_t i = 0; i < n; i += l->target_width) {
        bool counts = true;
        for (size_t j = i; j < i + l->target_width; j++) counts = counts && !isnan(numbers[j]);
        n_counted += counts;
    }
    return n_counted;
}

static fr_status fill(fr_loader *l, int64_t step, fr_batch *b)
{
    int batch = l->desc.batch;
    int64_t first = step * batch;
    b->step = step;
    b->n_samples = batch;
    if (l->desc.split == FR_EVAL && l->n_samples - first < batch)
        b->n_samples = (int)(l->n_samples - first);
    for (int i = 0; i < b->n_samples; i++) FR_TRY(put_sample(l, b, i, first + i));
    for (int i = b->n_samples; i < batch; i++) put_padding(l, b, i);
    b->n_targets = count_targets(l, b);
    return FR_OK;
}

static void *run(void *loader)
{
    fr_loader *l = loader;
    for (int64_t k = 0; k < l->n_batches; k++) {
        slot *s = &l->slots[k % l->desc.ahead];
        pthread_mutex_lock(&l->lock);
        while (s->state != EMPTY && !l->stop) pthread_cond_wait(&l->freed, &l->lock);
        bool stop = l->stop;
        pthread_mutex_unlock(&l->lock);
        if (stop) break;

        fr_status status = fill(l, l->desc.first_step + k, &s->batch);

        pthread_mutex_lock(&l->lock);
        if (status == FR_OK) s->state = READY;
        l->status = status;
        if (status != FR_OK) snprintf(l->error, sizeof l->error, "%s", fr_ctx_error(NULL));
        pthread_cond_signal(&l->filled);
        pthread_mutex_unlock(&l->lock);
        if (status != FR_OK) break;
    }
    return NULL;
}

static fr_status check_desc(fr_ctx *ctx, const fr_loader_desc *d)
{
    int64_t n = d->split == FR_TRAIN ? d->data->info.n_train : d->data->info.n_eval;
    if (d->batch < 1 || d->first_step < 0 || d->n_steps < 0 || d->ahead < 0 || d->ahead > MAX_AHEAD)
        return fr_fail(ctx, FR_INVALID,
                       "loader: batch %d, first step %lld, steps %lld, ahead %d; expected a batch "
                       "of at least 1, no negative number, ahead up to %d",
                       d->batch, (long long)d->first_step, (long long)d->n_steps, d->ahead,
                       MAX_AHEAD);
    if (n < 1)
        return fr_fail(ctx, FR_INVALID, "loader: the data set has no %s part",
                       d->split == FR_TRAIN ? "training" : "evaluation");
    if (d->target_width < 0 ||
        (d->target_width > 0 && fr_shape_count(&d->data->info.target) % d->target_width != 0))
        return fr_fail(ctx, FR_INVALID,
                       "loader: targets of %d numbers do not divide the %lld of a "
                       "sample",
                       d->target_width, (long long)fr_shape_count(&d->data->info.target));
    if (d->first_step > INT64_MAX / d->batch - d->n_steps - 1)
        return fr_fail(ctx, FR_INVALID, "loader: step %lld is out of range",
                       (long long)d->first_step);
    return FR_OK;
}

/* Set sizes, allocate buffers and the permutation; nothing is allocated later. */
static fr_status allocate(fr_loader *l)
{
    const fr_data_info *info = &l->desc.data->info;
    size_t batch = (size_t)l->desc.batch, ahead = (size_t)l->desc.ahead;
    l->input_bytes = (size_t)fr_shape_count(&info->input) * fr_dtype_bytes(info->input_dtype);
    l->target_count = (size_t)fr_shape_count(&info->target);
    l->target_width = l->desc.target_width > 0 ? (size_t)l->desc.target_width : 1;
    size_t input = fr__align_up(fr__array_bytes(batch, l->input_bytes));
    size_t target = fr__align_up(fr__array_bytes(batch, l->target_count * TARGET_BYTES));
    size_t length = info->has_length ? fr__align_up(batch * sizeof(int32_t)) : 0;
    size_t all = fr__array_bytes(ahead, input + target + length);
    bool is_shuffled = l->desc.split == FR_TRAIN && !l->desc.in_order;
    size_t order_bytes = is_shuffled ? fr__array_bytes((size_t)l->n_samples, sizeof *l->order) : 0;
    l->slots = FR_NEW_ARRAY(slot, ahead);
    l->block = fr__alloc(all);
    if (is_shuffled) l->order = fr__alloc(order_bytes);
    if (!l->slots || !l->block || (is_shuffled && !l->order))
        return fr__no_memory(l->ctx, all + order_bytes, "loader");
    unsigned char *at = l->block;
    for (size_t i = 0; i < ahead; i++, at += input + target + length) {
        fr_batch *b = &l->slots[i].batch;
        b->input = at;
        b->target = at + input;
        b->length = info->has_length ? (int32_t *)(void *)(at + input + target) : NULL;
    }
    l->epoch = -1;
    l->bytes = sizeof *l + ahead * sizeof *l->slots + all + order_bytes;
    return FR_OK;
}

/* Block signals: the main thread handles them. */
static fr_status start(fr_loader *l)
{
    sigset_t all, before;
    if (pthread_mutex_init(&l->lock, NULL) != 0)
        return fr_fail(l->ctx, FR_IO, "loader: cannot create a mutex");
    pthread_cond_init(&l->filled, NULL);
    pthread_cond_init(&l->freed, NULL);
    l->has_lock = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&l->thread, NULL, run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return fr_fail(l->ctx, FR_IO, "loader: cannot start its thread: %s", strerror(error));
    l->has_thread = true;
    return FR_OK;
}

fr_status fr_loader_create(fr_ctx *ctx, const fr_loader_desc *desc, fr_loader **out)
{
    *out = NULL;
    FR_TRY(check_desc(ctx, desc));
    fr_loader *l = FR_NEW(fr_loader);
    if (!l) return fr__no_memory(ctx, sizeof *l, "loader");
    l->ctx = ctx;
    l->desc = *desc;
    if (l->desc.ahead == 0) l->desc.ahead = DEFAULT_AHEAD;
    const fr_data_info *info = &desc->data->info;
    l->n_samples = desc->split == FR_TRAIN ? info->n_train : info->n_eval;
    l->n_batches = desc->n_steps;
    if (desc->split == FR_EVAL) {
        l->n_batches = (l->n_samples - 1) / desc->batch + 1 - desc->first_step;
        if (l->n_batches < 0) l->n_batches = 0;
    }
    fr_status status = allocate(l);
    if (status == FR_OK) status = start(l);
    if (status != FR_OK) {
        fr_loader_free(l);
        return status;
    }
    *out = l;
    return FR_OK;
}

void fr_loader_free(fr_loader *l)
{
    if (!l) return;
    if (l->has_thread) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->freed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    if (l->has_lock) {
        pthread_cond_destroy(&l->freed);
        pthread_cond_destroy(&l->filled);
        pthread_mutex_destroy(&l->lock);
    }
    fr__free(l->order);
    fr__free(l->block);
    fr__free(l->slots);
    fr__free(l);
}

fr_status fr_loader_next(fr_loader *l, const fr_batch **out)
{
    *out = NULL;
    fr_status status = FR_OK;
    pthread_mutex_lock(&l->lock);
    slot *s = &l->slots[l->next % l->desc.ahead];
    if (l->next == l->n_batches) {
        s = NULL;
    } else if (s->state == HELD) {
        s = NULL;
        status =
            fr_fail(l->ctx, FR_INVALID,
                    "loader: mini-batch %lld requested while all %d are held; release one first",
                    (long long)(l->desc.first_step + l->next), l->desc.ahead);
    } else if (s->state == EMPTY) {
        uint64_t begin = fr__now_ns();
        while (s->state == EMPTY && l->status == FR_OK) pthread_cond_wait(&l->filled, &l->lock);
        atomic_fetch_add(&l->wait_ns, fr__now_ns() - begin);
    }
    if (s && s->state == READY) {
        s->state = HELD;
        l->next++;
        *out = &s->batch;
    } else if (s) {
        status = fr_fail(l->ctx, l->status, "%s", l->error);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

void fr_loader_release(fr_loader *l, const fr_batch *b)
{
    if (!b) return;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->desc.ahead; i++)
        if (&l->slots[i].batch == b && l->slots[i].state == HELD) l->slots[i].state = EMPTY;
    pthread_cond_signal(&l->freed);
    pthread_mutex_unlock(&l->lock);
}

uint64_t fr_loader_wait_ns(const fr_loader *l) { return atomic_load(&l->wait_ns); }

size_t fr_loader_bytes(const fr_loader *l) { return l->bytes; }
