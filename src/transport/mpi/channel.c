/* channel.c -- messages between processes: one send, and one receive posted ahead.
 *
 * The receiver has as many landing buffers as the sender has buffers. All free ones are posted,
 * in the order in which they became free, and the messages of a channel match them in that order.
 * So the number of a landing buffer may differ from that of the sender's buffer; `holds` maps them.
 *
 * Where the host cannot read the device's memory, messages are downloaded to host memory when they
 * are sent, and uploaded when they are received. */
#include <limits.h>

#include "transport/mpi/mpi.h"

enum { SMALL = 2048 }; /* bytes */

struct fr_channel {
    fr_group *group;
    fr_channel *next;
    fr_channel *inner; /* of threads, if both ends are in this process */
    fr_channel_desc desc;
    char *staging; /* [n_buffers] of an end whose device has memory of its own; else NULL */
    int peer, tag;
    MPI_Request *sends; /* [buffer]; NULL unless the sender is in this process */
    MPI_Request
        *lands; /* [landing buffer] persistent; NULL unless the receiver is in this process */
    int *order; /* [n_buffers] ring: posted landing buffers, the oldest at `first` */
    int *holds; /* [buffer] its landing buffer while it is held, else -1 */
    int first, n_posted;
    unsigned long long received;
};

static fr_status check(fr_group *g, const fr_channel_desc *d, bool is_sender, bool is_receiver)
{
    fr_channel_desc whole = *d;
    if (!is_sender) whole.memory = is_receiver ? d->landing : (char *)&whole;
    FR_TRY(fr__channel_check(g->ctx, g->n_members, &whole));
    if (d->bytes > INT_MAX)
        return fr_fail(g->ctx, FR_UNSUPPORTED,
                       "messages of %zu bytes from worker %d to worker %d; MPI takes up to %d: use "
                       "smaller micro-batches",
                       d->bytes, d->from, d->to, INT_MAX);
    return FR_OK;
}

static fr_status add_inner(fr_group *g, fr_channel *c)
{
    fr_channel_desc d = c->desc;
    d.from = fr__mpi_inner(g, d.from);
    d.to = fr__mpi_inner(g, d.to);
    return THREADS->add_channel(g->inner, &d, &c->inner);
}

static char *landing_of(const fr_channel *c, int l)
{
    return c->desc.landing + (size_t)l * fr__align_up(c->desc.bytes);
}

static char *staging_of(const fr_channel *c, int l)
{
    return c->staging + (size_t)l * fr__align_up(c->desc.bytes);
}

static fr_status start_landing(fr_channel *c, int l)
{
    fr_group *g = c->group;
    int code = MPI_Recv_init(c->staging ? staging_of(c, l) : landing_of(c, l), (int)c->desc.bytes,
                             MPI_BYTE, c->peer, c->tag, g->comm, &c->lands[l]);
    if (code == MPI_SUCCESS) code = MPI_Start(&c->lands[l]);
    if (!fr__mpi_ok(g, code, "a receive from", c->peer)) return FR_PEER;
    c->order[c->n_posted++] = l;
    c->holds[l] = -1;
    return FR_OK;
}

static fr_status add_outer(fr_group *g, fr_channel *c, bool is_sender, bool is_receiver)
{
    int n = c->desc.n_buffers;
    c->peer = fr__mpi_rank_of(g, is_sender ? c->desc.to : c->desc.from);
    if ((is_sender || is_receiver) && fr__mpi_must_stage(c->desc.device)) {
        size_t bytes = (size_t)n * fr__align_up(c->desc.bytes);
        c->staging = fr__arena_alloc(&g->arena, bytes + 1);
        if (!c->staging) return fr__no_memory(g->ctx, bytes, "messages in host memory");
    }
    if (is_sender) {
        c->sends = FR_ARENA_ARRAY(&g->arena, MPI_Request, n);
        if (!c->sends) return fr__no_memory(g->ctx, (size_t)n * sizeof *c->sends, "a channel");
        for (int b = 0; b < n; b++) c->sends[b] = MPI_REQUEST_NULL;
    }
    if (is_receiver) {
        c->lands = FR_ARENA_ARRAY(&g->arena, MPI_Request, n);
        c->order = FR_ARENA_ARRAY(&g->arena, int, n);
        c->holds = FR_ARENA_ARRAY(&g->arena, int, n);
        if (!c->lands || !c->order || !c->holds) {
            c->lands = NULL;
            return fr__no_memory(g->ctx, (size_t)n * 16, "a channel");
        }
        for (int l = 0; l < n; l++) c->lands[l] = MPI_REQUEST_NULL;
        for (int l = 0; l < n; l++) FR_TRY(start_landing(c, l));
    }
    return FR_OK;
}

fr_status fr__mpi_add_channel(fr_group *g, const fr_channel_desc *d, fr_channel **out)
{
    *out = NULL;
    bool is_sender = fr__mpi_is_here(g, d->from), is_receiver = fr__mpi_is_here(g, d->to);
    FR_TRY(check(g, d, is_sender, is_receiver));
    fr_channel *c = FR_ARENA_NEW(&g->arena, fr_channel);
    if (!c) return fr__no_memory(g->ctx, sizeof *c, "a channel");
    *c = (fr_channel){.group = g, .next = g->channels, .desc = *d};
    g->channels = c;
    FR_TRY(fr__mpi_take_tags(g, 1, &c->tag)); /* in all processes, so that tags agree */
    if (is_sender && is_receiver)
        FR_TRY(add_inner(g, c));
    else
        FR_TRY(add_outer(g, c, is_sender, is_receiver));
    *out = c;
    return FR_OK;
}

fr_status fr__mpi_acquire(fr_channel *c, int b)
{
    fr_group *g = c->group;
    if (c->inner) return THREADS->acquire(c->inner, b);
    if (fr__mpi_is_over(g)) return FR_PEER;
    fr__pause pause = {0};
    while (c->sends[b] != MPI_REQUEST_NULL) {
        int is_done = 0;
        fr__mpi_lock(g);
        int code = MPI_Test(&c->sends[b], &is_done, MPI_STATUS_IGNORE);
        fr__mpi_unlock(g);
        if (!fr__mpi_ok(g, code, "a message to", c->peer)) return FR_PEER;
        if (!is_done) FR_TRY(fr__mpi_pause(g, &pause));
    }
    return FR_OK;
}

void fr__mpi_send(fr_channel *c, int b, size_t bytes)
{
    fr_group *g = c->group;
    if (c->inner) {
        THREADS->send(c->inner, b, bytes);
        return;
    }
    if (fr__mpi_is_over(g)) return;
    if (c->sends[b] != MPI_REQUEST_NULL) {
        fr_fail(g->ctx, FR_INTERNAL,
                "buffer %d from worker %d to worker %d was sent while in use: acquire it first", b,
                c->desc.from, c->desc.to);
        atomic_store(&g->is_broken, true);
        return;
    }
    const char *from = c->desc.memory + (size_t)b * c->desc.stride;
    if (c->staging) {
        if (fr_device_download(c->desc.device, staging_of(c, b), from, bytes) != FR_OK) {
            atomic_store(&g->is_broken, true);
            return;
        }
        from = staging_of(c, b);
    }
    fr__mpi_lock(g);
    int code = MPI_Isend(from, (int)bytes, MPI_BYTE, c->peer, c->tag, g->comm, &c->sends[b]);
    if (code == MPI_SUCCESS && bytes <= SMALL) {
        int is_done; /* a short message is already sent; testing here is faster than in acquire */
        code = MPI_Test(&c->sends[b], &is_done, MPI_STATUS_IGNORE);
    }
    fr__mpi_unlock(g);
    fr__mpi_ok(g, code, "a message to", c->peer);
}

fr_status fr__mpi_receive(fr_channel *c, int b, const void **data, size_t *bytes)
{
    fr_group *g = c->group;
    if (c->inner) return THREADS->receive(c->inner, b, data, bytes);
    *data = NULL, *bytes = 0;
    if (fr__mpi_is_over(g)) return FR_PEER;
    if (c->n_posted == 0 || c->holds[b] >= 0)
        return fr_fail(g->ctx, FR_INTERNAL,
                       "message %llu from worker %d to worker %d is expected in buffer %d, which "
                       "has not been released: they do not walk the same schedule",
                       c->received, c->desc.from, c->desc.to, b);
    int l = c->order[c->first], is_done = 0, n_bytes = 0;
    MPI_Status status;
    fr__pause pause = {0};
    for (;;) {
        fr__mpi_lock(g);
        int code = MPI_Test(&c->lands[l], &is_done, &status);
        if (code == MPI_SUCCESS && is_done) MPI_Get_count(&status, MPI_BYTE, &n_bytes);
        fr__mpi_unlock(g);
        if (!fr__mpi_ok(g, code, "a message from", c->peer)) return FR_PEER;
        if (is_done) break;
        FR_TRY(fr__mpi_pause(g, &pause));
    }
    if (++c->first == c->desc.n_buffers) c->first = 0;
    c->n_posted--;
    c->received++;
    c->holds[b] = l;
    *data = landing_of(c, l);
    *bytes = (size_t)n_bytes;
    if (!c->staging) return FR_OK;
    return fr_device_upload(c->desc.device, landing_of(c, l), staging_of(c, l), *bytes);
}

void fr__mpi_release(fr_channel *c, int b)
{
    fr_group *g = c->group;
    if (c->inner) {
        THREADS->release(c->inner, b);
        return;
    }
    int l = c->holds[b], last = c->first + c->n_posted;
    if (l < 0 || fr__mpi_is_over(g)) return;
    c->holds[b] = -1;
    c->order[last < c->desc.n_buffers ? last : last - c->desc.n_buffers] = l;
    c->n_posted++;
    fr__mpi_lock(g);
    int code = MPI_Start(&c->lands[l]);
    fr__mpi_unlock(g);
    fr__mpi_ok(g, code, "a receive from", c->peer);
}

/* Free the requests of sends that were not received; MPI completes them by itself. */
void fr__mpi_drop_channels(fr_group *g)
{
    for (fr_channel *c = g->channels; c; c = c->next) {
        for (int b = 0; c->sends && b < c->desc.n_buffers; b++)
            if (c->sends[b] != MPI_REQUEST_NULL) MPI_Request_free(&c->sends[b]);
        for (int i = 0; c->lands && i < c->n_posted; i++)
            MPI_Cancel(&c->lands[c->order[(c->first + i) % c->desc.n_buffers]]);
        for (int l = 0; c->lands && l < c->desc.n_buffers; l++) {
            int is_done;
            if (c->lands[l] == MPI_REQUEST_NULL) continue; /* setting it up had failed */
            MPI_Test(&c->lands[l], &is_done, MPI_STATUS_IGNORE);
            MPI_Request_free(&c->lands[l]);
        }
    }
}
