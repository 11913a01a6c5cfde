/* transport.h -- how workers hand things to each other: a const table of operations.
 *
 * A group is the workers of one run, its members; they live in one process or, with a team, in
 * several: then every process makes the same calls in the same order to set the group up, and a
 * member's own calls are made where it lives. Three things are set up before it starts: channels
 * (from one member to another, messages in order), boards (every owner writes its part, all of them
 * read them all) and sums (blocks of floats added up over members). Sending and posting never wait.
 * Waits end early with FR_PEER when the group is aborted; that leaves no text in the context, for
 * only the caller knows what it waited for. Any other failure of a wait has its text: the two ends
 * do not walk the same schedule.
 *
 * Memory of channels and sums belongs to devices. In one process a transport hands over addresses
 * and adds by calls of the backend, on the device of the member that adds. What goes to another
 * process passes through host memory: device memory itself where the host may read it, else a
 * copy. Boards are host memory.
 *
 * A call on a channel is made by the thread of the member at that end, a call on a board or a sum
 * by the thread of the member that owns the part or waits (sum_post: by any thread that works for
 * it); abort and is_aborted by anyone; the rest while no member runs. */
#ifndef FORERUN_TRANSPORT_H
#define FORERUN_TRANSPORT_H

#include <forerun/backend.h>
#include <forerun/team.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_group fr_group;
typedef struct fr_channel fr_channel;
typedef struct fr_board fr_board;
typedef struct fr_sum fr_sum;

/* Buffers of a channel are filled and freed in any order, but messages arrive in the order they
 * were sent. n_buffers pieces, `stride` bytes apart. */
typedef struct fr_channel_desc {
    int from, to; /* members; a member may send to itself */
    int n_buffers;
    size_t bytes, stride;
    char *memory; /* of the sender; NULL where it does not live */
    /* Where the receiver lives, if that is another process: as many pieces, of `bytes` rounded up
     * to FR_ALIGN (64), side by side; else NULL. */
    char *landing;
    fr_device *device; /* of the end that lives here, whose memory this is; NULL: host memory */
} fr_channel_desc;

/* A block of floats of each member, in buckets that are added up one by one. Sums are made in one
 * fixed order, whatever comes first: along a binary tree over the members,
 * sum(a, s) = sum(a, 2s) + sum(a + s, 2s), sum(a, s) = member a if a + s is none. */
typedef struct fr_sum_desc {
    int n_members;
    const int *members;   /* [n_members] of the group, each once */
    int n_buckets;        /* bucket i is floats edge[i] .. edge[i + 1] - 1 */
    const size_t *edge;   /* [n_buckets + 1], ascending from 0 */
    float *const *memory; /* [n_members] blocks; NULL for those in other processes */
    char *const *room;    /* [n_members] fr_transport.sum_room bytes each, likewise */
    /* [n_members] whose memory both are, devices of one backend; NULL: host memory */
    fr_device *const *devices;
    bool is_at_once; /* members post all buckets together */
} fr_sum_desc;

typedef struct fr_transport {
    const char *name, *summary;
    bool has_processes; /* members may be in several */
    /* team NULL: all members are here. Else rank r has as many as any other, in order. */
    fr_status (*open)(fr_ctx *ctx, fr_team *team, int n_members, fr_group **out);
    /* Channels, boards and sums with it; messages that nobody has received are dropped. */
    void (*close)(fr_group *g);
    int (*rank_of)(const fr_group *g, int member);

    /* Before any member runs. */
    fr_status (*add_channel)(fr_group *g, const fr_channel_desc *d, fr_channel **out);
    /* part_bytes: [n_parts], each written by member owner[part]. */
    fr_status (*add_board)(fr_group *g, int n_parts, const size_t *part_bytes, const int *owner,
                           fr_board **out);
    /* Bytes that the nth member of a sum must give (of the pointers only devices[nth] is read). */
    size_t (*sum_room)(const fr_group *g, const fr_sum_desc *d, int nth);
    fr_status (*add_sum)(fr_group *g, const fr_sum_desc *d, fr_sum **out);

    /* Sender: wait until buffer b may be written again (at once if it was never sent). */
    fr_status (*acquire)(fr_channel *c, int b);
    /* The first `bytes` bytes of buffer b; 0 is a message too. */
    void (*send)(fr_channel *c, int b, size_t bytes);
    /* Receiver: wait for the next message, which the sender had in buffer b; *data is readable
     * until released. */
    fr_status (*receive)(fr_channel *c, int b, const void **data, size_t *bytes);
    void (*release)(fr_channel *c, int b);

    /* A round: write to fr_board_part, post each of one's parts, wait, read all parts. Rounds are
     * told apart by number, 0, 1, 2, ...; a part of round r may be read until its reader posts
     * for round r + 1. So only owners of parts wait, and they wait for every round: a part of round
     * r + 1 is written after the wait for round r. */
    void *(*board_part)(fr_board *b, int64_t round, int part);
    void (*board_post)(fr_board *b, int64_t round, int part);
    fr_status (*board_wait)(fr_board *b, int64_t round, int member);

    /* A round of a sum: post every bucket once (in the same order on all members), then wait for
     * every bucket once, in that order. From post to wait the bucket is not written; after the
     * wait the block may be. Sums lie elsewhere: nobody else writes to a block. is_alive false:
     * there is nothing to add; then the sum of the bucket is not alive anywhere, and there are no
     * pieces. */
    void (*sum_post)(fr_sum *s, int nth, int bucket, bool is_alive);
    fr_status (*sum_wait)(fr_sum *s, int nth, int bucket, bool *is_alive);
    /* After the wait: piece k of the sum of a bucket, k = 0 .. n_members - 1, as it lies; readable
     * until this member posts the bucket of the next round. *at: its first float in the block. */
    const float *(*sum_piece)(fr_sum *s, int nth, int bucket, int k, size_t *at, size_t *count);

    /* Get on with what is under way, without waiting; for a member that computes for long. Member
     * -1: by any thread, for those that do not call; what has been sent moves on, sums do not. */
    void (*poll)(fr_group *g, int member);

    /* End all waits of this process, now and later, with FR_PEER. */
    void (*abort)(fr_group *g);
    bool (*is_aborted)(const fr_group *g);
    /* Forget counts (rounds begin at 0 again) and, in one process, messages under way and the
     * abort: all members of all processes are outside, and nothing is under way between them. */
    void (*reset)(fr_group *g);
    /* Optional: what it is built on, as "Open MPI 4.1.4"; may be called before anything else. */
    void (*library)(char *text, size_t room);
} fr_transport;

FR_API const fr_transport *const *fr_transport_list(void); /* NULL-terminated, the default first */
FR_API const fr_transport *fr_transport_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
