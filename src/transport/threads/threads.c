/* threads.c -- workers that are threads of one process: a tensor changes hands, nothing is copied.
 *
 * Everything that is waited for is a count that only grows: messages sent on a channel, uses of a
 * buffer that the reader has freed, rounds posted to a part of a board. Each count has one writer,
 * so raising it is a store. A member that waits looks for a while, then sleeps at its bell;
 * whoever raises a count rings that bell if somebody sleeps there.
 *
 * No wake-up is lost: the waiter says that it sleeps and then looks at the count once more, the
 * writer raises the count and then looks for a sleeper, all in the one order of sequentially
 * consistent operations; so at least one of them sees the other. Having seen a sleeper, the writer
 * takes the bell's lock, which the sleeper gives up only in pthread_cond_wait. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "base/thread.h"
#include "transport/transport.h"

/* How long a member looks before it sleeps. Being woken costs about 50 us on a virtual machine with
 * idle cores (bench_transport), a message that is looked for 0.15 us; looking for about twice the
 * former keeps short waits short. Only where each member can have a core. */
#define SPIN_NS 100000
#define LOOKS 64 /* between two yields: the one waited for may have been put on this very core */

typedef _Atomic uint64_t count;

typedef struct bell {
    _Alignas(FR_ALIGN) atomic_bool is_sleeping; /* by its member, with the lock held */
    pthread_mutex_t lock;
    pthread_cond_t ring;
} bell;

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

struct fr_board {
    fr_group *group;
    fr_board *next;
    int n_parts, n_readers;
    int *owner;    /* [part] */
    int *readers;  /* [n_readers] the owners, each once */
    char **parts;  /* [round mod 2][part] */
    count *posted; /* [part] rounds */
};

struct fr_group {
    fr_ctx *ctx;
    int n_members, n_bells; /* n_bells: those that have been made, while opening */
    bool may_spin;
    bell *bells; /* [member] */
    fr_channel *channels;
    fr_board *boards;
    fr_arena arena;
    _Alignas(FR_ALIGN) atomic_bool is_aborted;
};

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

static void raise_count(count *c, uint64_t value, bell *waiter)
{
    atomic_store(c, value);
    if (atomic_load(&waiter->is_sleeping)) ring(waiter);
}

static bool spin_for(const fr_group *g, const count *c, uint64_t value)
{
    uint64_t end = fr__now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(c, memory_order_acquire) >= value) return true;
            relax();
        }
        sched_yield();
    } while (!atomic_load_explicit(&g->is_aborted, memory_order_relaxed) && fr__now_ns() < end);
    return false;
}

static fr_status wait_for(fr_group *g, int member, const count *c, uint64_t value)
{
    if (atomic_load(&g->is_aborted)) return FR_PEER;
    if (atomic_load_explicit(c, memory_order_acquire) >= value) return FR_OK;
    if (g->may_spin && spin_for(g, c, value)) return FR_OK;
    bell *b = &g->bells[member];
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
    for (fr_channel *c = g->channels; c; c = c->next) {
        atomic_store(&c->sent, 0);
        c->received = 0;
        for (int b = 0; b < c->desc.n_buffers; b++) {
            c->used[b] = 0;
            atomic_store(&c->freed[b], 0);
        }
    }
    for (fr_board *b = g->boards; b; b = b->next)
        for (int i = 0; i < b->n_parts; i++) atomic_store(&b->posted[i], 0);
    atomic_store(&g->is_aborted, false);
}

/* --- channels -------------------------------------------------------------------------------- */

static fr_status threads_add_channel(fr_group *g, const fr_channel_desc *d, fr_channel **out)
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

static fr_status threads_acquire(fr_channel *c, int b)
{
    return wait_for(c->group, c->desc.from, &c->freed[b], c->used[b]);
}

/* Not more messages than buffers are under way, so a place in `order` is free when it is needed;
 * a sender that did not acquire is found out by the receiver. */
static void threads_send(fr_channel *c, int b, size_t bytes)
{
    uint64_t n = atomic_load_explicit(&c->sent, memory_order_relaxed);
    bool is_free = atomic_load_explicit(&c->freed[b], memory_order_relaxed) >= c->used[b];
    atomic_store_explicit(&c->order[n % (uint64_t)c->desc.n_buffers], is_free ? b : -1,
                          memory_order_relaxed);
    c->bytes[n % (uint64_t)c->desc.n_buffers] = bytes;
    c->used[b]++;
    raise_count(&c->sent, n + 1, &c->group->bells[c->desc.to]);
}

static fr_status threads_receive(fr_channel *c, int b, const void **data, size_t *bytes)
{
    const fr_channel_desc *d = &c->desc;
    *data = NULL, *bytes = 0;
    FR_TRY(wait_for(c->group, d->to, &c->sent, c->received + 1));
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

static void threads_release(fr_channel *c, int b)
{
    uint64_t n = atomic_load_explicit(&c->freed[b], memory_order_relaxed);
    raise_count(&c->freed[b], n + 1, &c->group->bells[c->desc.from]);
}

/* --- boards ---------------------------------------------------------------------------------- */

static bool is_among(int member, int n, const int *list)
{
    for (int i = 0; i < n; i++)
        if (list[i] == member) return true;
    return false;
}

static fr_status threads_add_board(fr_group *g, int n_parts, const size_t *part_bytes,
                                   const int *owner, fr_board **out)
{
    *out = NULL;
    FR_TRY(fr__board_check(g->ctx, g->n_members, n_parts, owner));
    fr_board *b = FR_ARENA_NEW(&g->arena, fr_board);
    int *members = FR_ARENA_ARRAY(&g->arena, int, 2 * n_parts);
    char **parts = FR_ARENA_ARRAY(&g->arena, char *, 2 * n_parts);
    count *posted = FR_ARENA_ARRAY(&g->arena, count, n_parts);
    if (!b || !members || !parts || !posted)
        return fr__no_memory(g->ctx, sizeof *b + (size_t)n_parts * 32, "a board");
    *b = (fr_board){.group = g,
                    .n_parts = n_parts,
                    .owner = members,
                    .readers = members + n_parts,
                    .parts = parts,
                    .posted = posted};
    for (int i = 0; i < n_parts; i++) {
        b->owner[i] = owner[i];
        if (!is_among(owner[i], b->n_readers, b->readers)) b->readers[b->n_readers++] = owner[i];
        for (int half = 0; half < 2; half++) {
            parts[half * n_parts + i] = fr__arena_alloc(&g->arena, part_bytes[i]);
            if (!parts[half * n_parts + i])
                return fr__no_memory(g->ctx, part_bytes[i], "a part of a board");
        }
    }
    b->next = g->boards;
    g->boards = b;
    *out = b;
    return FR_OK;
}

static void *threads_board_part(fr_board *b, int64_t round, int part)
{
    return b->parts[(round & 1) * b->n_parts + part];
}

static void threads_board_post(fr_board *b, int64_t round, int part)
{
    atomic_store(&b->posted[part], (uint64_t)round + 1);
    for (int i = 0; i < b->n_readers; i++) {
        bell *reader = &b->group->bells[b->readers[i]];
        if (atomic_load(&reader->is_sleeping)) ring(reader);
    }
}

/* Two halves are enough because a member posts for round r + 1 only when it is done with round r,
 * and begins round r + 2 only after everybody has posted for r + 1. */
static fr_status threads_board_wait(fr_board *b, int64_t round, int member)
{
    fr_ctx *ctx = b->group->ctx;
    if (!is_among(member, b->n_readers, b->readers))
        return fr_fail(ctx, FR_INTERNAL,
                       "worker %d waits at a board where it has no part: nobody would know when it "
                       "has read",
                       member);
    for (int i = 0; i < b->n_parts; i++) {
        FR_TRY(wait_for(b->group, member, &b->posted[i], (uint64_t)round + 1));
        uint64_t posted = atomic_load_explicit(&b->posted[i], memory_order_relaxed);
        if (posted > (uint64_t)round + 2)
            return fr_fail(ctx, FR_INTERNAL,
                           "part %d of a board is in round %llu while worker %d waits for round "
                           "%lld: its owner, worker %d, did not wait",
                           i, (unsigned long long)posted - 1, member, (long long)round,
                           b->owner[i]);
    }
    return FR_OK;
}

const fr_transport fr__transport_threads = {
    .name = "threads",
    .summary = "workers are threads of one process; tensors change hands without a copy",
    .open = threads_open,
    .close = threads_close,
    .rank_of = threads_rank_of,
    .add_channel = threads_add_channel,
    .add_board = threads_add_board,
    .acquire = threads_acquire,
    .send = threads_send,
    .receive = threads_receive,
    .release = threads_release,
    .board_part = threads_board_part,
    .board_post = threads_board_post,
    .board_wait = threads_board_wait,
    .poll = threads_poll,
    .abort = threads_abort,
    .is_aborted = threads_is_aborted,
    .reset = threads_reset,
};
