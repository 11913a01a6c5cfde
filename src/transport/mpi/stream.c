/* stream.c -- a row of bytes in chunks, which are started and completed in order. */
#include "transport/mpi/stream.h"

void fr__stream_init(fr__stream *s, bool is_send, void *at, size_t bytes, int peer, int tag)
{
    *s = (fr__stream){
        .is_send = is_send, .at = at, .bytes = bytes, .peer = peer, .tag = tag, .n_chunks = 1};
    if (bytes == 0) s->at = &s->nothing;
    if (bytes > 0) s->n_chunks = (int)((bytes + FR__CHUNK - 1) / FR__CHUNK);
    s->n_begun = s->n_done = s->n_chunks;
}

void fr__stream_rewind(fr__stream *s)
{
    s->n_begun = s->n_done = 0;
    s->is_dead = false;
}

static bool begin(fr_group *g, fr__stream *s)
{
    size_t offset = (size_t)s->n_begun * FR__CHUNK, left = s->bytes - offset;
    int n = left < FR__CHUNK ? (int)left : FR__CHUNK;
    if (s->bytes == 0) n = 1;
    if (s->is_send && s->is_dead) n = 0;
    MPI_Request *r = &s->under_way[s->n_begun % FR__WINDOW];
    int code = s->is_send ? MPI_Isend(s->at + offset, n, MPI_BYTE, s->peer, s->tag, g->sums, r)
                          : MPI_Irecv(s->at + offset, n, MPI_BYTE, s->peer, s->tag, g->sums, r);
    s->n_begun++;
    return fr__mpi_ok(g, code, s->is_send ? "a part of a sum for" : "a part of a sum from",
                      s->peer);
}

static bool finish(fr_group *g, fr__stream *s)
{
    int is_done = 0, n = 0;
    MPI_Status status;
    int code = MPI_Test(&s->under_way[s->n_done % FR__WINDOW], &is_done, &status);
    if (!fr__mpi_ok(g, code, s->is_send ? "a part of a sum for" : "a part of a sum from", s->peer))
        return false;
    if (!is_done) return false;
    if (!s->is_send && s->n_done == 0) {
        MPI_Get_count(&status, MPI_BYTE, &n);
        s->is_dead = n == 0;
    }
    s->n_done++;
    return true;
}

static bool is_ready(const fr__stream *s, size_t n_ready)
{
    size_t end = ((size_t)s->n_begun + 1) * FR__CHUNK;
    return !s->is_send || s->is_dead || n_ready >= (end < s->bytes ? end : s->bytes);
}

bool fr__stream_step(fr_group *g, fr__stream *s, size_t n_ready)
{
    bool has_moved = false;
    while (s->n_done < s->n_begun && finish(g, s)) has_moved = true;
    while (s->n_begun < s->n_chunks && s->n_begun - s->n_done < FR__WINDOW && is_ready(s, n_ready))
        if (!begin(g, s)) return false;
    return has_moved;
}

void fr__stream_drop(fr__stream *s)
{
    for (; s->n_done < s->n_begun; s->n_done++) {
        MPI_Request *r = &s->under_way[s->n_done % FR__WINDOW];
        if (!s->is_send)
            fr__mpi_take_back(r);
        else if (*r != MPI_REQUEST_NULL)
            MPI_Request_free(r);
    }
}
