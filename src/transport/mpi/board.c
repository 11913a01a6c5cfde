/* board.c -- boards over processes: each part is sent to every other process that has an owner.
 *
 * Every process that has an owner holds all parts in two halves, for even and odd rounds. The
 * part of another process is received into its half. This receive is posted when all local owners
 * have posted for the round before, because then none of them reads the old content any more. A
 * part is written again two rounds later; by then all others have posted for the round between, so
 * they have received it. */
#include <limits.h>

#include "transport/mpi/mpi.h"

struct fr_board {
    fr_group *group;
    fr_board *next;
    fr_board *inner; /* of threads, if all owners are in this process */
    int n_parts, n_peers, n_here, tag;
    int *owner;               /* [part] */
    int *peers;               /* [n_peers] other processes that have an owner */
    size_t *bytes;            /* [part] */
    char **parts;             /* [round mod 2][part] */
    _Atomic uint64_t *posted; /* [part] rounds that are readable here */
    MPI_Request *sends;       /* [round mod 2][part][peer] */
    MPI_Request *lands; /* [round mod 2][part] persistent; NULL unless another process sends it */
    uint64_t opened;    /* rounds whose receives have been posted */
    uint64_t closed;    /* posts by owners here, all parts and rounds */
};

static bool is_among(int x, int n, const int *list)
{
    for (int i = 0; i < n; i++)
        if (list[i] == x) return true;
    return false;
}

static MPI_Request *land_of(fr_board *b, uint64_t round, int part)
{
    return &b->lands[(round & 1) * (uint64_t)b->n_parts + (uint64_t)part];
}

/* With the lock held. */
static void open_round(fr_board *b)
{
    fr_group *g = b->group;
    for (int p = 0; p < b->n_parts; p++)
        if (!fr__mpi_is_here(g, b->owner[p]))
            fr__mpi_ok(g, MPI_Start(land_of(b, b->opened, p)), "a receive from",
                       fr__mpi_rank_of(g, b->owner[p]));
    b->opened++;
}

static fr_status init_requests(fr_board *b, const size_t *part_bytes)
{
    fr_group *g = b->group;
    for (int i = 0; i < 2 * b->n_parts * b->n_peers; i++) b->sends[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < b->n_parts * 2; i++) b->lands[i] = MPI_REQUEST_NULL;
    if (b->n_here == 0) return FR_OK;
    for (int i = 0; i < b->n_parts * 2; i++) {
        int p = i % b->n_parts, peer = fr__mpi_rank_of(g, b->owner[p]);
        if (peer == g->rank) continue;
        int code = MPI_Recv_init(b->parts[i], (int)part_bytes[p], MPI_BYTE, peer, b->tag + p,
                                 g->comm, &b->lands[i]);
        if (!fr__mpi_ok(g, code, "a receive from", peer)) return FR_PEER;
    }
    open_round(b);
    open_round(b);
    return FR_OK;
}

static fr_status add_outer(fr_board *b, const size_t *part_bytes)
{
    fr_group *g = b->group;
    int n = b->n_parts;
    FR_TRY(fr__mpi_take_tags(g, (size_t)n, &b->tag));
    b->peers = FR_ARENA_ARRAY(&g->arena, int, n);
    b->parts = FR_ARENA_ARRAY(&g->arena, char *, 2 * n);
    b->posted = FR_ARENA_ARRAY(&g->arena, _Atomic uint64_t, n);
    b->bytes = FR_ARENA_ARRAY(&g->arena, size_t, n);
    if (!b->peers || !b->parts || !b->posted || !b->bytes)
        return fr__no_memory(g->ctx, (size_t)n * 40, "a board");
    for (int p = 0; p < n; p++) {
        int rank = fr__mpi_rank_of(g, b->owner[p]);
        if (part_bytes[p] > INT_MAX)
            return fr_fail(g->ctx, FR_UNSUPPORTED,
                           "a part of a board of %zu bytes; MPI takes up to %d", part_bytes[p],
                           INT_MAX);
        b->bytes[p] = part_bytes[p];
        b->n_here += rank == g->rank;
        if (rank != g->rank && !is_among(rank, b->n_peers, b->peers)) b->peers[b->n_peers++] = rank;
    }
    for (int i = 0; i < 2 * n && b->n_here > 0; i++)
        if (!(b->parts[i] = fr__arena_alloc(&g->arena, part_bytes[i % n])))
            return fr__no_memory(g->ctx, part_bytes[i % n], "a part of a board");
    MPI_Request *sends = FR_ARENA_ARRAY(&g->arena, MPI_Request, 2 * n * b->n_peers);
    MPI_Request *lands = FR_ARENA_ARRAY(&g->arena, MPI_Request, 2 * n);
    if (!sends || !lands)
        return fr__no_memory(g->ctx, (size_t)(2 * n * b->n_peers) * sizeof *sends, "a board");
    b->sends = sends, b->lands = lands;
    return init_requests(b, part_bytes);
}

fr_status fr__mpi_add_board(fr_group *g, int n_parts, const size_t *part_bytes, const int *owner,
                            fr_board **out)
{
    *out = NULL;
    FR_TRY(fr__board_check(g->ctx, g->n_members, n_parts, owner));
    fr_board *b = FR_ARENA_NEW(&g->arena, fr_board);
    int *owners = FR_ARENA_ARRAY(&g->arena, int, 2 * n_parts), *inner = owners + n_parts;
    if (!b || !owners) return fr__no_memory(g->ctx, (size_t)n_parts * 8, "a board");
    *b = (fr_board){.group = g, .next = g->boards, .n_parts = n_parts, .owner = owners};
    g->boards = b;
    bool is_here = true, is_one = true;
    for (int p = 0; p < n_parts; p++) {
        owners[p] = owner[p];
        inner[p] = fr__mpi_inner(g, owner[p]);
        is_here &= fr__mpi_is_here(g, owner[p]);
        is_one &= fr__mpi_rank_of(g, owner[p]) == fr__mpi_rank_of(g, owner[0]);
    }
    if (is_here)
        FR_TRY(THREADS->add_board(g->inner, n_parts, part_bytes, inner, &b->inner));
    else if (!is_one)
        FR_TRY(add_outer(b, part_bytes));
    *out = b;
    return FR_OK;
}

void *fr__mpi_board_part(fr_board *b, int64_t round, int part)
{
    if (b->inner) return THREADS->board_part(b->inner, round, part);
    return b->parts[(round & 1) * b->n_parts + part];
}

/* Its message of two rounds ago has been received (see the top of this file), but MPI may not have
 * completed the send yet. */
static fr_status finish_send(fr_group *g, MPI_Request *r, int peer)
{
    fr__pause pause = {0};
    for (int is_done = 0; *r != MPI_REQUEST_NULL && !is_done;) {
        fr__mpi_lock(g);
        int code = MPI_Test(r, &is_done, MPI_STATUS_IGNORE);
        fr__mpi_unlock(g);
        if (!fr__mpi_ok(g, code, "a part of a board for", peer)) return FR_PEER;
        if (!is_done) FR_TRY(fr__mpi_pause(g, &pause));
    }
    return FR_OK;
}

void fr__mpi_board_post(fr_board *b, int64_t round, int part)
{
    fr_group *g = b->group;
    if (b->inner) {
        THREADS->board_post(b->inner, round, part);
        return;
    }
    if (fr__mpi_is_over(g)) return;
    for (int i = 0; i < b->n_peers; i++) {
        MPI_Request *r = &b->sends[((round & 1) * b->n_parts + part) * b->n_peers + i];
        if (finish_send(g, r, b->peers[i]) != FR_OK) return;
        fr__mpi_lock(g);
        int code = MPI_Isend(fr__mpi_board_part(b, round, part), (int)b->bytes[part], MPI_BYTE,
                             b->peers[i], b->tag + part, g->comm, r);
        fr__mpi_unlock(g);
        if (!fr__mpi_ok(g, code, "a part of a board for", b->peers[i])) return;
    }
    fr__mpi_lock(g);
    if (++b->closed % (uint64_t)b->n_here == 0 && b->opened == (uint64_t)round + 1) open_round(b);
    atomic_store(&b->posted[part], (uint64_t)round + 1);
    fr__mpi_unlock(g);
}

/* With the lock held: receive what has arrived for this part. */
static void look(fr_board *b, int part)
{
    uint64_t next = atomic_load(&b->posted[part]);
    int peer = fr__mpi_rank_of(b->group, b->owner[part]), is_done = 0;
    if (peer == b->group->rank || next >= b->opened) return;
    int code = MPI_Test(land_of(b, next, part), &is_done, MPI_STATUS_IGNORE);
    if (fr__mpi_ok(b->group, code, "a part of a board from", peer) && is_done)
        atomic_store(&b->posted[part], next + 1);
}

fr_status fr__mpi_board_wait(fr_board *b, int64_t round, int member)
{
    fr_group *g = b->group;
    if (b->inner) return THREADS->board_wait(b->inner, round, fr__mpi_inner(g, member));
    if (!is_among(member, b->n_parts, b->owner))
        return fr_fail(
            g->ctx, FR_INTERNAL,
            "worker %d waits at a board where it has no part: no worker could tell when it "
            "has read",
            member);
    if (fr__mpi_is_over(g)) return FR_PEER;
    fr__pause pause = {0};
    for (int p = 0; p < b->n_parts;) {
        if (atomic_load(&b->posted[p]) > (uint64_t)round) {
            p++;
            continue;
        }
        fr__mpi_lock(g);
        look(b, p);
        fr__mpi_unlock(g);
        if (atomic_load(&b->posted[p]) <= (uint64_t)round) FR_TRY(fr__mpi_pause(g, &pause));
    }
    return fr__mpi_is_over(g) ? FR_PEER : FR_OK;
}

static void swap_halves(fr_board *b)
{
    for (int p = 0, q = b->n_parts; p < b->n_parts; p++, q++) {
        MPI_Request land = b->lands[p];
        char *part = b->parts[p];
        b->lands[p] = b->lands[q], b->lands[q] = land;
        b->parts[p] = b->parts[q], b->parts[q] = part;
    }
}

/* When nothing is in flight, the receives of the next round are posted, or of the next two before
 * the first round. The next round becomes round 0, and the other half is no longer read. */
void fr__mpi_reset_boards(fr_group *g)
{
    for (fr_board *b = g->boards; b; b = b->next) {
        if (!b->lands || b->n_here == 0) continue;
        uint64_t n_rounds = atomic_load(&b->posted[0]);
        if (n_rounds > 0) open_round(b);
        if (n_rounds % 2) swap_halves(b);
        b->opened = 2, b->closed = 0;
        for (int p = 0; p < b->n_parts; p++) atomic_store(&b->posted[p], 0);
    }
}

void fr__mpi_drop_boards(fr_group *g)
{
    for (fr_board *b = g->boards; b; b = b->next) {
        for (int i = 0; b->lands && i < 2 * b->n_parts * b->n_peers; i++)
            if (b->sends[i] != MPI_REQUEST_NULL) MPI_Request_free(&b->sends[i]);
        for (int i = 0; b->lands && i < 2 * b->n_parts; i++) fr__mpi_take_back(&b->lands[i]);
    }
}
