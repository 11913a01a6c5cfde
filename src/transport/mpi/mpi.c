/* mpi.c -- workers of several processes: those of one process communicate through memory, others by
 * MPI.
 *
 * Messages go directly from the sender's memory to the receiver's, into receives posted ahead.
 * They have no header, so they cost no more than MPI does. */
#include "transport/mpi/mpi.h"

#include "team/bootstrap.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* A waiting member polls, then polls and yields, then polls and sleeps, longer each time. */
enum { SPIN_NS = 200000, CROWDED_SPIN_NS = 50000, NAP_NS = 5000, SLEEP_NS = 100000 };

/* --- lock, errors, waiting ------------------------------------------------------------------- */

struct fr__mpi_door fr__mpi_door = {.is_shut = ATOMIC_FLAG_INIT, .next_tag = 1};

/* The holder keeps the lock briefly unless it was preempted. In that case it needs a core, which a
 * loop of yields would not free: so block. */
void fr__mpi_lock_slowly(void)
{
    for (int i = 1; atomic_flag_test_and_set_explicit(&fr__mpi_door.is_shut, memory_order_acquire);
         i++)
        if (i % FR__LOOKS == 0) fr__sleep_ns(NAP_NS);
}

bool fr__mpi_fail(fr_group *g, int code, const char *what, int peer)
{
    char text[FR__MPI_TEXT];
    fr_fail(g->ctx, FR_PEER, "rank %d: %s rank %d failed: MPI says %s", g->rank, what, peer,
            fr__mpi_text(code, text));
    atomic_store(&g->is_broken, true);
    return false;
}

fr_status fr__mpi_rest(fr_group *g, fr__pause *p)
{
    uint64_t now = fr__now_ns();
    if (!p->since) p->since = now;
    if (now - p->since < g->spin_ns) {
        if (g->spin_ns < SPIN_NS || p->looks % FR__LOOKS == 0) sched_yield();
        return FR_OK;
    }
    if (p->sleep_ns < SLEEP_NS) p->sleep_ns += NAP_NS;
    fr__sleep_ns(p->sleep_ns);
    return FR_OK;
}

void fr__mpi_take_back(MPI_Request *r)
{
    int is_done = 0;
    if (*r == MPI_REQUEST_NULL) return;
    MPI_Cancel(r);
    MPI_Test(r, &is_done, MPI_STATUS_IGNORE);
    if (*r != MPI_REQUEST_NULL) MPI_Request_free(r);
}

fr_status fr__mpi_take_tags(fr_group *g, size_t n, int *first)
{
    *first = g->next_tag;
    if (g->n_ranks == 1) return FR_OK;
    if (n > (size_t)(g->max_tag - g->next_tag))
        return fr_fail(g->ctx, FR_UNSUPPORTED,
                       "%zu more tags for messages are needed, but this MPI has only %d left; use "
                       "fewer workers or larger buckets",
                       n, g->max_tag - g->next_tag);
    g->next_tag += (int)n;
    if (fr__mpi_door.next_tag < g->next_tag) fr__mpi_door.next_tag = g->next_tag;
    return FR_OK;
}

/* Tags continue where those of the last group ended, the same on all ranks. A communicator may get
 * the number of a freed one, as in MPICH. With the same tag, a message of the freed communicator
 * that was never received would match a receive of this group. */
static int agree_on_tags(fr_group *g)
{
    int *max_tag = NULL, has_max = 0;
    MPI_Comm_get_attr(g->comm, MPI_TAG_UB, &max_tag, &has_max);
    g->max_tag = has_max ? *max_tag : 32767;
    if (fr__mpi_door.next_tag > g->max_tag / 2) fr__mpi_door.next_tag = 1;
    return MPI_Allreduce(&fr__mpi_door.next_tag, &g->next_tag, 1, MPI_INT, MPI_MAX, g->comm);
}

/* --- the progress thread ----------------------------------------------------------------- */

/* One test moves about one fragment of the pending messages. */
enum { TICK_NS = 1000000, LOOKS_A_TICK = 16, LOOKS_A_POLL = 16 };

static void *tick(void *arg)
{
    fr_group *g = arg;
    uint64_t seen = 0;
    fr__thread_name("mpi");
    while (!atomic_load(&g->is_closing)) {
        fr__sleep_ns(TICK_NS);
        if (fr__mpi_is_over(g) || !fr__mpi_try_lock(g))
            continue; /* taken: another thread makes progress */
        int is_done = 0;
        if (g->n_looks == seen + 1) { /* by this thread only */
            fr__mpi_step_sums(g);
            for (int i = 0; i < LOOKS_A_TICK; i++) MPI_Test(&g->idle, &is_done, MPI_STATUS_IGNORE);
        }
        seen = g->n_looks;
        fr__mpi_unlock(g);
    }
    return NULL;
}

static fr_status start_ticker(fr_group *g)
{
    g->has_ticker = pthread_create(&g->ticker, NULL, tick, g) == 0;
    return g->has_ticker ? FR_OK : fr__no_memory(g->ctx, 0, "a thread that keeps MPI going");
}

static void stop_ticker(fr_group *g)
{
    atomic_store(&g->is_closing, true);
    if (g->has_ticker) pthread_join(g->ticker, NULL);
    g->has_ticker = false;
}

/* --- group ----------------------------------------------------------------------------------- */

/* Receives are always cancelled, because their buffers are freed next. After an abort communicators
 * are not freed, because that is a collective operation. */
static void mpi_close(fr_group *g)
{
    if (!g) return;
    stop_ticker(g);
    fr__mpi_lock(g);
    if (g->has_comms && !atomic_load(&g->is_broken)) {
        fr__mpi_drop_channels(g);
        fr__mpi_drop_boards(g);
        fr__mpi_drop_sums(g);
        fr__mpi_take_back(&g->idle);
    }
    if (g->has_comms && !fr__mpi_is_over(g)) {
        MPI_Comm_free(&g->sums);
        MPI_Comm_free(&g->comm);
    }
    fr__mpi_unlock(g);
    THREADS->close(g->inner);
    fr__arena_fini(&g->arena);
    fr__free(g);
}

/* Whether each worker can have a core of its own: then a waiting one may poll for long. */
static uint64_t spin_ns(const fr_group *g, const fr_team *team)
{
    int nth, n_here;
    fr_team_neighbours(team, &nth, &n_here);
    return n_here * g->n_local <= fr__cpu_count() ? SPIN_NS : CROWDED_SPIN_NS;
}

static fr_status make_comms(fr_group *g)
{
    int is_up = 0, size = 0;
    MPI_Initialized(&is_up);
    if (is_up) MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != g->n_ranks)
        return fr_fail(g->ctx, FR_INVALID,
                       "a group over a team of %d processes, but MPI has %d; join the team by "
                       "fr_team_join under mpirun or srun",
                       g->n_ranks, size);
    if (!fr__mpi_ok(g, MPI_Comm_dup(MPI_COMM_WORLD, &g->comm), "a communicator with", 0))
        return FR_PEER;
    if (!fr__mpi_ok(g, MPI_Comm_dup(MPI_COMM_WORLD, &g->sums), "a communicator with", 0)) {
        MPI_Comm_free(&g->comm);
        return FR_PEER;
    }
    g->has_comms = true;
    MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(g->sums, MPI_ERRORS_RETURN);
    if (!fr__mpi_ok(g, agree_on_tags(g), "agreeing on tags with", 0)) return FR_PEER;
    static char nothing;
    if (!fr__mpi_ok(g, MPI_Irecv(&nothing, 0, MPI_BYTE, g->rank, 0, g->comm, &g->idle),
                    "a receive from", g->rank))
        return FR_PEER;
    return FR_OK;
}

static fr_status mpi_open(fr_ctx *ctx, fr_team *team, int n_members, fr_group **out)
{
    *out = NULL;
    int n_ranks = fr_team_size(team);
    if (n_members < 1 || n_members % n_ranks != 0)
        return fr_fail(
            ctx, FR_INVALID,
            "a group of %d workers over %d processes; there must be at least one, and as "
            "many in each process: start %d, or as many as divide %d",
            n_members, n_ranks, n_members, n_members);
    fr_group *g = FR_NEW(fr_group);
    if (!g) return fr__no_memory(ctx, sizeof *g, "a group of workers");
    g->ctx = ctx;
    g->n_members = n_members;
    g->n_ranks = n_ranks;
    g->n_local = n_members / n_ranks;
    g->rank = fr_team_rank(team);
    g->spin_ns = spin_ns(g, team);
    g->idle = MPI_REQUEST_NULL;
    fr_status status = THREADS->open(ctx, NULL, g->n_local, &g->inner);
    fr__mpi_lock(g);
    if (status == FR_OK && n_ranks > 1) status = make_comms(g);
    fr__mpi_unlock(g);
    if (status == FR_OK && n_ranks > 1) status = start_ticker(g);
    if (status != FR_OK) {
        mpi_close(g);
        return status;
    }
    *out = g;
    return FR_OK;
}

static int mpi_rank_of(const fr_group *g, int member) { return fr__mpi_rank_of(g, member); }

static fr_status mpi_add_channel(fr_group *g, const fr_channel_desc *d, fr_channel **out)
{
    fr__mpi_lock(g);
    fr_status status = fr__mpi_add_channel(g, d, out);
    fr__mpi_unlock(g);
    return status;
}

static fr_status mpi_add_board(fr_group *g, int n_parts, const size_t *part_bytes, const int *owner,
                               fr_board **out)
{
    fr__mpi_lock(g);
    fr_status status = fr__mpi_add_board(g, n_parts, part_bytes, owner, out);
    fr__mpi_unlock(g);
    return status;
}

static fr_status mpi_add_sum(fr_group *g, const fr_sum_desc *d, fr_sum **out)
{
    fr__mpi_lock(g);
    fr_status status = fr__mpi_add_sum(g, d, out);
    fr__mpi_unlock(g);
    return status;
}

static void mpi_poll(fr_group *g, int member)
{
    int is_done;
    if (!g->has_comms || fr__mpi_is_over(g)) return;
    for (int i = 0; i < LOOKS_A_POLL; i++) {
        fr__mpi_lock(g);
        MPI_Test(&g->idle, &is_done, MPI_STATUS_IGNORE);
        fr__mpi_unlock(g);
        fr__mpi_poll_sums(g, member);
    }
}

static void mpi_abort(fr_group *g)
{
    atomic_store(&g->is_aborted, true);
    THREADS->abort(g->inner);
}

static bool mpi_is_aborted(const fr_group *g) { return atomic_load(&g->is_aborted); }

static void mpi_reset(fr_group *g)
{
    THREADS->reset(g->inner);
    fr__mpi_lock(g);
    fr__mpi_reset_boards(g);
    fr__mpi_reset_sums(g);
    fr__mpi_unlock(g);
    atomic_store(&g->is_aborted, false);
}

const fr_transport fr__transport_mpi = {
    .name = "mpi",
    .has_processes = true,
    .summary = "workers of many processes; tensors travel by MPI, inside a process not at all",
    .open = mpi_open,
    .close = mpi_close,
    .rank_of = mpi_rank_of,
    .add_channel = mpi_add_channel,
    .add_board = mpi_add_board,
    .sum_room = fr__mpi_sum_room,
    .add_sum = mpi_add_sum,
    .acquire = fr__mpi_acquire,
    .send = fr__mpi_send,
    .receive = fr__mpi_receive,
    .release = fr__mpi_release,
    .board_part = fr__mpi_board_part,
    .board_post = fr__mpi_board_post,
    .board_wait = fr__mpi_board_wait,
    .sum_post = fr__mpi_sum_post,
    .sum_wait = fr__mpi_sum_wait,
    .sum_piece = fr__mpi_sum_piece,
    .poll = mpi_poll,
    .abort = mpi_abort,
    .is_aborted = mpi_is_aborted,
    .reset = mpi_reset,
    .library = fr__mpi_library,
};
