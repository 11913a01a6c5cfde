/* threads.h -- shared by the files of this transport: counts, bells, the group.
 *
 * Every wait is for a count that only grows: messages sent on a channel, uses of a buffer that
 * the reader has freed, rounds posted to a part of a board or to a sum. Each count has one writer,
 * so raising it is a store. A waiting member polls for a while, then sleeps at its bell; the writer
 * of a count rings that bell if a member sleeps there. */
#ifndef FR_TRANSPORT_THREADS_THREADS_H
#define FR_TRANSPORT_THREADS_THREADS_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/thread.h"
#include "transport/transport.h"

typedef _Atomic uint64_t count;

typedef struct bell {
    _Alignas(FR_ALIGN) atomic_bool is_sleeping; /* by its member, with the lock held */
    pthread_mutex_t lock;
    pthread_cond_t ring;
    uint64_t modest_until; /* used by the member only: it polls briefly */
} bell;

struct fr_group {
    fr_ctx *ctx;
    int n_members, n_bells; /* n_bells: those created so far */
    bool may_spin;
    bell *bells; /* [member] */
    fr_channel *channels;
    fr_board *boards;
    fr_sum *sums;
    fr_arena arena;
    _Alignas(FR_ALIGN) atomic_bool is_aborted;
};

void fr__threads_raise(fr_group *g, count *c, uint64_t value, int n_waiters, const int *waiters);
fr_status fr__threads_wait(fr_group *g, int member, const count *c, uint64_t value);

/* Slots of the table; reset: all of one group. */
fr_status fr__threads_add_channel(fr_group *g, const fr_channel_desc *d, fr_channel **out);
fr_status fr__threads_acquire(fr_channel *c, int b);
void fr__threads_send(fr_channel *c, int b, size_t bytes);
fr_status fr__threads_receive(fr_channel *c, int b, const void **data, size_t *bytes);
void fr__threads_release(fr_channel *c, int b);
void fr__threads_reset_channels(fr_group *g);

fr_status fr__threads_add_board(fr_group *g, int n_parts, const size_t *part_bytes,
                                const int *owner, fr_board **out);
void *fr__threads_board_part(fr_board *b, int64_t round, int part);
void fr__threads_board_post(fr_board *b, int64_t round, int part);
fr_status fr__threads_board_wait(fr_board *b, int64_t round, int member);
void fr__threads_reset_boards(fr_group *g);

size_t fr__threads_sum_room(const fr_group *g, const fr_sum_desc *d, int nth);
fr_status fr__threads_add_sum(fr_group *g, const fr_sum_desc *d, fr_sum **out);
void fr__threads_sum_post(fr_sum *s, int nth, int bucket, bool is_alive);
fr_status fr__threads_sum_wait(fr_sum *s, int nth, int bucket, bool *is_alive);
const float *fr__threads_sum_piece(fr_sum *s, int nth, int bucket, int k, size_t *at,
                                   size_t *n_floats);
void fr__threads_reset_sums(fr_group *g);

#endif
