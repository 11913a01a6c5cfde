/* stream.h -- a long row of bytes to or from another process, in chunks, a few of which are in
 * flight. So the receiver can process chunks as they arrive, and both directions of a link are
 * used. All calls with the group's lock held. */
#ifndef FR_TRANSPORT_MPI_STREAM_H
#define FR_TRANSPORT_MPI_STREAM_H

#include "transport/mpi/mpi.h"

enum { FR__CHUNK = 512 * 1024, FR__WINDOW = 8 }; /* bytes; chunks in flight */

typedef struct fr__stream {
    char *at; /* (bytes); a send does not write there */
    size_t bytes;
    int peer, tag, n_chunks, n_begun, n_done;
    bool is_send;
    bool is_dead; /* all chunks are empty: there is nothing to add; known from the first on */
    char nothing; /* a row of no bytes that is alive is one chunk of one byte */
    MPI_Request under_way[FR__WINDOW];
} fr__stream;

/* Set the address and the peer; once. */
void fr__stream_init(fr__stream *s, bool is_send, void *at, size_t bytes, int peer, int tag);
/* Restart from the beginning. */
void fr__stream_rewind(fr__stream *s);
/* Make progress; a send with its first n_ready bytes. True if a chunk was started or completed. */
bool fr__stream_step(fr_group *g, fr__stream *s, size_t n_ready);

/* Give it up. */
void fr__stream_drop(fr__stream *s);

static inline bool fr__stream_is_done(const fr__stream *s) { return s->n_done == s->n_chunks; }
static inline size_t fr__stream_done(const fr__stream *s) /* bytes */
{
    return fr__stream_is_done(s) ? s->bytes : (size_t)s->n_done * FR__CHUNK;
}

#endif
