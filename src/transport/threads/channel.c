/* channel.c -- messages between threads: the receiver reads the tensor in place. */
#include "transport/threads/threads.h"

struct fr_channel {
    fr_group *group;
    fr_channel *next;
    fr_channel_desc desc;
    count *freed;       /* [buffer] uses that the receiver is done with */
    _Atomic int *order; /* [message mod n_buffers]: its buffer, -1 if it was still in use */
    size_t *bytes;      /* [message mod n_buffers]: its length */
    uint64_t *used;     /* [buffer] uses begun; the sender's alone */
    _Alignas(FR_ALIGN) count sent;
    _Alignas(FR_ALIGN) uint64_t received; /* the receiver's alone */
};

fr_status fr__threads_add_channel(fr_group *g, const fr_channel_desc *d, fr_channel **out)
{
    *out = NULL;
    FR_TRY(fr__channel_check(g->ctx, g->n_members, d));
    fr_channel *c = FR_ARENA_NEW(&g->arena, fr_channel);
    count *freed = FR_ARENA_ARRAY(&g->arena, count, d->n_buffers);
    _Atomic int *order = FR_ARENA_ARRAY(&g->arena, _Atomic int, d->n_buffers);
    uint64_t *used = FR_ARENA_ARRAY(&g->arena, uint64_t, d->n_buffers);
    size_t *bytes = FR_ARENA_ARRAY(&g->arena, size_t, d->n_buffers);
    if (!c || !freed || !order || !used || !bytes)
        return fr__no_memory(g->ctx, sizeof *c + (size_t)d->n_buffers * 20, "a channel");
    *c = (fr_channel){.group = g,
                      .next = g->channels,
                      .desc = *d,
                      .freed = freed,
                      .order = order,
                      .bytes = bytes,
                      .used = used};
    g->channels = c;
    *out = c;
    return FR_OK;
}

fr_status fr__threads_acquire(fr_channel *c, int b)
{
    return fr__threads_wait(c->group, c->desc.from, &c->freed[b], c->used[b]);
}

/* There are never more messages in flight than buffers, so a place in `order` is free when it is
 * needed. The receiver detects a sender that did not acquire. */
void fr__threads_send(fr_channel *c, int b, size_t bytes)
{
    uint64_t n = atomic_load_explicit(&c->sent, memory_order_relaxed);
    bool is_free = atomic_load_explicit(&c->freed[b], memory_order_relaxed) >= c->used[b];
    atomic_store_explicit(&c->order[n % (uint64_t)c->desc.n_buffers], is_free ? b : -1,
                          memory_order_relaxed);
    c->bytes[n % (uint64_t)c->desc.n_buffers] = bytes;
    c->used[b]++;
    fr__threads_raise(c->group, &c->sent, n + 1, 1, &c->desc.to);
}

fr_status fr__threads_receive(fr_channel *c, int b, const void **data, size_t *bytes)
{
    const fr_channel_desc *d = &c->desc;
    *data = NULL, *bytes = 0;
    FR_TRY(fr__threads_wait(c->group, d->to, &c->sent, c->received + 1));
    int got =
        atomic_load_explicit(&c->order[c->received % (uint64_t)d->n_buffers], memory_order_relaxed);
    if (got != b)
        return fr_fail(c->group->ctx, FR_INTERNAL,
                       "message %llu from worker %d to worker %d came in buffer %d%s, expected in "
                       "%d: they do not walk the same schedule",
                       (unsigned long long)c->received, d->from, d->to, got,
                       got < 0 ? " (sent while in use)" : "", b);
    *bytes = c->bytes[c->received % (uint64_t)d->n_buffers];
    c->received++;
    *data = d->memory + (size_t)b * d->stride;
    return FR_OK;
}

void fr__threads_release(fr_channel *c, int b)
{
    uint64_t n = atomic_load_explicit(&c->freed[b], memory_order_relaxed);
    fr__threads_raise(c->group, &c->freed[b], n + 1, 1, &c->desc.from);
}

void fr__threads_reset_channels(fr_group *g)
{
    for (fr_channel *c = g->channels; c; c = c->next) {
        atomic_store(&c->sent, 0);
        c->received = 0;
        for (int b = 0; b < c->desc.n_buffers; b++) {
            c->used[b] = 0;
            atomic_store(&c->freed[b], 0);
        }
    }
}
