/* mpi.h -- shared by the files of this transport: the group, the lock, waiting.
 *
 * MPI is initialised with MPI_THREAD_SERIALIZED: a process makes all calls with its one lock
 * held, which is never held while waiting or computing. A waiting member tests its request with the
 * lock held, which also makes progress on all other requests, and then pauses. While all members
 * compute or have returned, a progress thread tests regularly: MPI makes no progress by itself, not
 * even on a message whose send has completed. */
#ifndef FR_TRANSPORT_MPI_MPI_H
#define FR_TRANSPORT_MPI_MPI_H

#include <mpi.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/thread.h"
#include "transport/transport.h"

struct fr_group {
    fr_ctx *ctx;
    fr_group *inner; /* of threads: the members in this process, counted from 0 */
    int n_members, n_local, rank, n_ranks;
    uint64_t spin_ns; /* how long a waiting member polls before it sleeps */
    bool has_comms;
    MPI_Comm comm, sums; /* sums have their own communicator, so that their many receives do not
                            slow matching here */
    int next_tag, max_tag;
    MPI_Request idle; /* a receive that never completes; testing it makes progress */
    fr_channel *channels;
    fr_board *boards;
    fr_sum *all_sums;
    fr_arena arena;
    pthread_t ticker;
    bool has_ticker;
    atomic_bool is_closing;
    uint64_t n_looks; /* with the lock: how often it was taken for this group */
    _Alignas(FR_ALIGN) atomic_bool is_aborted;
    atomic_bool is_broken; /* a call of MPI failed; the context has the text */
};

#define THREADS (&fr__transport_threads)

/* Guards MPI and all members that are marked so. There is one MPI per process, so there is one lock
 * for all groups, and one sequence of tags. */
extern struct fr__mpi_door {
    _Alignas(FR_ALIGN) atomic_flag is_shut;
    int next_tag; /* of the next group; no tag is taken twice until half of them are used up */
} fr__mpi_door;

/* Small functions that run for every message. */
void fr__mpi_lock_slowly(void);
static inline void fr__mpi_lock(fr_group *g)
{
    if (atomic_flag_test_and_set_explicit(&fr__mpi_door.is_shut, memory_order_acquire))
        fr__mpi_lock_slowly();
    g->n_looks++;
}
static inline bool fr__mpi_try_lock(fr_group *g)
{
    if (atomic_flag_test_and_set_explicit(&fr__mpi_door.is_shut, memory_order_acquire))
        return false;
    g->n_looks++;
    return true;
}
static inline void fr__mpi_unlock(fr_group *g)
{
    (void)g;
    atomic_flag_clear_explicit(&fr__mpi_door.is_shut, memory_order_release);
}

/* False after a failed call; the text in the context names the rank and the operation. */
bool fr__mpi_fail(fr_group *g, int code, const char *what, int peer);
static inline bool fr__mpi_ok(fr_group *g, int code, const char *what, int peer)
{
    return code == MPI_SUCCESS || fr__mpi_fail(g, code, what, peer);
}

static inline bool fr__mpi_is_over(const fr_group *g)
{
    return atomic_load_explicit(&g->is_aborted, memory_order_relaxed) ||
           atomic_load_explicit(&g->is_broken, memory_order_relaxed);
}

/* Between two polls; FR_PEER if the wait is over because of an abort or a failure. Zero is a new
 * wait. */
typedef struct fr__pause {
    int looks;
    uint64_t since, sleep_ns;
} fr__pause;
enum { FR__LOOKS = 64 }; /* before the first pause */
fr_status fr__mpi_rest(fr_group *g, fr__pause *p);
static inline fr_status fr__mpi_pause(fr_group *g, fr__pause *p)
{
    if (fr__mpi_is_over(g)) return FR_PEER;
    return ++p->looks < FR__LOOKS ? FR_OK : fr__mpi_rest(g, p);
}

/* The first of n tags; all processes take them in the same order. */
fr_status fr__mpi_take_tags(fr_group *g, size_t n, int *first);

static inline int fr__mpi_rank_of(const fr_group *g, int member) { return member / g->n_local; }
static inline bool fr__mpi_is_here(const fr_group *g, int member)
{
    return fr__mpi_rank_of(g, member) == g->rank;
}
/* Number of a local member in the inner group. */
static inline int fr__mpi_inner(const fr_group *g, int member) { return member % g->n_local; }

/* Slots of the table. Call add, reset and drop (which cancels posted receives when the group is
 * closed) with the lock held. */
fr_status fr__mpi_add_channel(fr_group *g, const fr_channel_desc *d, fr_channel **out);
fr_status fr__mpi_acquire(fr_channel *c, int b);
void fr__mpi_send(fr_channel *c, int b, size_t bytes);
fr_status fr__mpi_receive(fr_channel *c, int b, const void **data, size_t *bytes);
void fr__mpi_release(fr_channel *c, int b);
void fr__mpi_drop_channels(fr_group *g);

fr_status fr__mpi_add_board(fr_group *g, int n_parts, const size_t *part_bytes, const int *owner,
                            fr_board **out);
void *fr__mpi_board_part(fr_board *b, int64_t round, int part);
void fr__mpi_board_post(fr_board *b, int64_t round, int part);
fr_status fr__mpi_board_wait(fr_board *b, int64_t round, int member);
void fr__mpi_reset_boards(fr_group *g);
void fr__mpi_drop_boards(fr_group *g);

size_t fr__mpi_sum_room(const fr_group *g, const fr_sum_desc *d, int nth);
fr_status fr__mpi_add_sum(fr_group *g, const fr_sum_desc *d, fr_sum **out);
void fr__mpi_sum_post(fr_sum *s, int nth, int bucket, bool is_alive);
fr_status fr__mpi_sum_wait(fr_sum *s, int nth, int bucket, bool *is_alive);
const float *fr__mpi_sum_piece(fr_sum *s, int nth, int bucket, int k, size_t *at, size_t *n_floats);
void fr__mpi_poll_sums(fr_group *g, int member);
void fr__mpi_step_sums(fr_group *g); /* with the lock held */
void fr__mpi_reset_sums(fr_group *g);
void fr__mpi_drop_sums(fr_group *g);

/* Whether MPI cannot access the device's memory and needs a copy in host memory. */
static inline bool fr__mpi_must_stage(const fr_device *device)
{
    return device && !fr__device_is_host(device);
}

/* Cancel a posted receive. This is local to the process and does not wait. */
void fr__mpi_take_back(MPI_Request *r);

#endif
