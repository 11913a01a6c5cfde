/* transport.h -- how workers hand things to each other: a const table of operations.
 *
 * A group is the workers of one run. Two things are set up before it starts: channels (from one
 * worker to another, messages in order) and boards (every worker writes its part, every worker
 * reads them all). Sending and posting never wait. Waits end early with FR_PEER when the group is
 * aborted; that leaves no text in the context, for only the caller knows what it waited for. Any
 * other failure of a wait has its text: the two ends do not walk the same schedule.
 *
 * A call on a channel is made by the thread of the member at that end, a call on a board by the
 * thread of the member that owns the part or waits; abort and is_aborted by anyone; the rest while
 * no member runs. */
#ifndef FORERUN_TRANSPORT_H
#define FORERUN_TRANSPORT_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_group fr_group;
typedef struct fr_channel fr_channel;
typedef struct fr_board fr_board;

/* Buffers of a channel are filled and freed in any order, but messages arrive in the order they
 * were sent. `memory` belongs to the sender: n_buffers pieces, `stride` bytes apart. */
typedef struct fr_channel_desc {
    int from, to; /* members; a member may send to itself */
    int n_buffers;
    size_t bytes, stride;
    char *memory;
} fr_channel_desc;

typedef struct fr_transport {
    const char *name, *summary;
    bool shares_memory; /* a receiver reads the sender's buffer: nothing is copied */
    fr_status (*open)(fr_ctx *ctx, int n_members, fr_group **out);
    void (*close)(fr_group *g); /* channels and boards with it */
    /* Before any member runs. */
    fr_status (*add_channel)(fr_group *g, const fr_channel_desc *d, fr_channel **out);
    /* part_bytes: [n_parts], each written by member owner[part]. */
    fr_status (*add_board)(fr_group *g, int n_parts, const size_t *part_bytes, const int *owner,
                           fr_board **out);

    /* Sender: wait until the reader has freed buffer b (at once if it was never sent). */
    fr_status (*acquire)(fr_channel *c, int b);
    void (*send)(fr_channel *c, int b);
    /* Receiver: wait for the next message, which must be in buffer b; *data is readable until
     * released. */
    fr_status (*receive)(fr_channel *c, int b, const void **data);
    void (*release)(fr_channel *c, int b);

    /* A round: write to fr_board_part, post each of one's parts, wait, read all parts. Rounds are
     * told apart by number, 0, 1, 2, ...; a part of round r may be read until its reader posts
     * for round r + 1. So only owners of parts wait, and they wait for every round: a part of round
     * r + 1 is written after the wait for round r. */
    void *(*board_part)(fr_board *b, int64_t round, int part);
    void (*board_post)(fr_board *b, int64_t round, int part);
    fr_status (*board_wait)(fr_board *b, int64_t round, int member);

    /* End all waits, now and later, with FR_PEER. */
    void (*abort)(fr_group *g);
    bool (*is_aborted)(const fr_group *g);
    /* Forget messages under way, counts (rounds begin at 0 again) and the abort: all members are
     * outside. */
    void (*reset)(fr_group *g);
} fr_transport;

const fr_transport *const *fr_transport_list(void); /* NULL-terminated, the default first */
const fr_transport *fr_transport_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
