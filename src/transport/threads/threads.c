/* threads.c -- workers that are threads of one process: tensors are read in place, nothing is
 * copied.
 *
 * No wake-up is lost. The waiter marks itself asleep and then tests the count once more; the
 * writer raises the count and then tests for a sleeper. All are sequentially consistent operations,
 * so at least one of them sees the other. A writer that sees a sleeper takes the bell's lock, which
 * the sleeper releases only in pthread_cond_wait. */
#include "transport/threads/threads.h"

#include <sched.h>

/* How long a member polls before it sleeps, if each can have a core: longer than pipelines wait. A
 * wake-up costs about 50 us on a virtual machine with idle cores (bench_transport), a polled
 * message 0.15 us. Work after a long sleep is also slower, probably because the core was given
 * back; docs/speed.md has the numbers. */
#define SPIN_NS 200000000
#define LOOKS 64 /* between two yields: the awaited worker may be scheduled on this core */
/* If polls and a yield take this long, other threads need this core. For a while the member then
 * polls for at most twice the cost of a wake-up. Otherwise it would spend its share of the
 * scheduler on polling and be slow when it has work (by a fifth beside one busy process). */
#define WANTED_NS 500000
#define MODEST_NS 5000000000
#define SHORT_NS 100000

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* --- counts and bells ------------------------------------------------------------------------ */

static void ring(bell *b)
{
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->ring);
    pthread_mutex_unlock(&b->lock);
}

void fr__threads_raise(fr_group *g, count *c, uint64_t value, int n_waiters, const int *waiters)
{
    atomic_store(c, value);
    for (int i = 0; i < n_waiters; i++) {
        bell *b = &g->bells[waiters[i]];
        if (atomic_load(&b->is_sleeping)) ring(b);
    }
}

static bool spin_for(const fr_group *g, bell *b, const count *c, uint64_t value)
{
    uint64_t now = fr__now_ns(), before;
    uint64_t end = now + (now < b->modest_until ? SHORT_NS : SPIN_NS);
    do {
        before = now;
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(c, memory_order_acquire) >= value) return true;
            relax();
        }
        sched_yield();
        now = fr__now_ns();
        if (now - before > WANTED_NS) b->modest_until = now + MODEST_NS;
    } while (!atomic_load_explicit(&g->is_aborted, memory_order_relaxed) && now < end &&
             now - before <= WANTED_NS);
    return false;
}

fr_status fr__threads_wait(fr_group *g, int member, const count *c, uint64_t value)
{
    if (atomic_load(&g->is_aborted)) return FR_PEER;
    if (atomic_load_explicit(c, memory_order_acquire) >= value) return FR_OK;
    bell *b = &g->bells[member];
    if (g->may_spin && spin_for(g, b, c, value)) return FR_OK;
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->is_sleeping, true);
    bool is_aborted = false;
    while (!(is_aborted = atomic_load(&g->is_aborted)) && atomic_load(c) < value)
        pthread_cond_wait(&b->ring, &b->lock);
    atomic_store(&b->is_sleeping, false);
    pthread_mutex_unlock(&b->lock);
    return is_aborted ? FR_PEER : FR_OK;
}

/* --- group ----------------------------------------------------------------------------------- */

static void threads_close(fr_group *g)
{
    if (!g) return;
    for (int i = 0; i < g->n_bells; i++) {
        pthread_cond_destroy(&g->bells[i].ring);
        pthread_mutex_destroy(&g->bells[i].lock);
    }
    fr__arena_fini(&g->arena);
    fr__free(g);
}

static fr_status bell_init(fr_ctx *ctx, bell *b)
{
    if (pthread_mutex_init(&b->lock, NULL) == 0) {
        if (pthread_cond_init(&b->ring, NULL) == 0) return FR_OK;
        pthread_mutex_destroy(&b->lock);
    }
    return fr__no_memory(ctx, sizeof *b, "a lock of a group of workers");
}

static fr_status threads_open(fr_ctx *ctx, fr_team *team, int n_members, fr_group **out)
{
    *out = NULL;
    if (team)
        return fr_fail(ctx, FR_UNSUPPORTED, "threads are workers of one process, not of %d",
                       fr_team_size(team));
    if (n_members < 1)
        return fr_fail(ctx, FR_INVALID, "a group of %d workers; there must be at least one",
                       n_members);
    fr_group *g = FR_NEW(fr_group);
    if (!g) return fr__no_memory(ctx, sizeof *g, "a group of workers");
    g->ctx = ctx;
    g->n_members = n_members;
    g->may_spin = n_members <= fr__cpu_count();
    g->bells = FR_ARENA_ARRAY(&g->arena, bell, n_members);
    fr_status status = FR_OK;
    if (!g->bells)
        status = fr__no_memory(ctx, (size_t)n_members * sizeof(bell), "a group of workers");
    for (int i = 0; i < n_members && status == FR_OK; i++, g->n_bells += status == FR_OK)
        status = bell_init(ctx, &g->bells[i]);
    if (status != FR_OK) {
        threads_close(g);
        return status;
    }
    *out = g;
    return FR_OK;
}

static int threads_rank_of(const fr_group *g, int member)
{
    (void)g, (void)member;
    return 0;
}

static void threads_poll(fr_group *g, int member) { (void)g, (void)member; }

static void threads_abort(fr_group *g)
{
    atomic_store(&g->is_aborted, true);
    for (int i = 0; i < g->n_members; i++) ring(&g->bells[i]);
}

static bool threads_is_aborted(const fr_group *g) { return atomic_load(&g->is_aborted); }

static void threads_reset(fr_group *g)
{
    fr__threads_reset_channels(g);
    fr__threads_reset_boards(g);
    fr__threads_reset_sums(g);
    atomic_store(&g->is_aborted, false);
}

const fr_transport fr__transport_threads = {
    .name = "threads",
    .summary = "workers are threads of one process; tensors change hands without a copy",
    .open = threads_open,
    .close = threads_close,
    .rank_of = threads_rank_of,
    .add_channel = fr__threads_add_channel,
    .add_board = fr__threads_add_board,
    .sum_room = fr__threads_sum_room,
    .add_sum = fr__threads_add_sum,
    .acquire = fr__threads_acquire,
    .send = fr__threads_send,
    .receive = fr__threads_receive,
    .release = fr__threads_release,
    .board_part = fr__threads_board_part,
    .board_post = fr__threads_board_post,
    .board_wait = fr__threads_board_wait,
    .sum_post = fr__threads_sum_post,
    .sum_wait = fr__threads_sum_wait,
    .sum_piece = fr__threads_sum_piece,
    .poll = threads_poll,
    .abort = threads_abort,
    .is_aborted = threads_is_aborted,
    .reset = threads_reset,
};
