/* stream.h -- a long row of bytes to or from another process, in chunks of which a few are under
 * way: so that they can be worked on as they come, and both directions of a link get their share.
 * All calls with the group's lock held. */
#ifndef FR_TRANSPORT_MPI_STREAM_H
#define FR_TRANSPORT_MPI_STREAM_H

#include "transport/mpi/mpi.h"

enum { FR__CHUNK = 512 * 1024, FR__WINDOW = 8 }; /* bytes; chunks under way */

typedef struct fr__stream {
    char *at; /* (bytes); a send does not write there */
    size_t bytes;
    int peer, tag, n_chunks, n_begun, n_done;
    bool is_send;
    bool is_dead; /* all chunks are empty: there is nothing to add; known from the first on */
    char nothing; /* a row of no bytes that is alive is one chunk of one byte */
    MPI_Request under_way[FR__WINDOW];
} fr__stream;

/* Where, from or to whom; once. */
void fr__stream_init(fr__stream *s, bool is_send, void *at, size_t bytes, int peer, int tag);
/* Once more from the beginning. */
void fr__stream_rewind(fr__stream *s);
/* Get on; a send with its first n_ready bytes. True if something has moved. */
bool fr__stream_step(fr_group *g, fr__stream *s, size_t n_ready);

/* Nobody waits for it any more. */
void fr__stream_drop(fr__stream *s);

static inline bool fr__stream_is_done(const fr__stream *s) { return s->n_done == s->n_chunks; }
static inline size_t fr__stream_done(const fr__stream *s) /* bytes */
{
    return fr__stream_is_done(s) ? s->bytes : (size_t)s->n_done * FR__CHUNK;
}

#endif
