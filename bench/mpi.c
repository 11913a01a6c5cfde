/* mpi.c -- overhead of transport mpi over plain MPI, in the same processes at the same time.
 *
 *     mpirun -n 2 bench_mpi [--tries N] [--only pingpong|duplex|sum|overlap]
 *
 * Prints JSON lines, from rank 0:
 *   pingpong  half a round trip between ranks 0 and 1, against MPI_Send and MPI_Recv
 *   duplex    both directions at once, against MPI_Isend and MPI_Irecv
 *   sum       a sum over all ranks in buckets of at most 8 MB, against MPI_Allreduce
 *   overlap   the same during equally long computation, against both one after the other
 * Ours and plain take turns, so that disturbances affect both; the best turn of each counts. A
 * ratio is ours over plain, so above 1 is slower. */
#include <forerun/transport.h>
#include <mpi.h>

#include "base/alloc.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BUFFERS = 4, BUCKET = 2 << 20 /* floats */ };

typedef struct bench {
    fr_ctx *ctx;
    fr_team *team;
    const fr_transport *t;
    int rank, size;
    size_t bytes;
    int n;          /* repeats in a turn */
    char *out, *in; /* N_BUFFERS * bytes each */
    fr_board *board;
    int64_t round;
    char *room;
    bool is_overlap;
    fr_group *g;
    double plain_ns; /* if ours measures the plain time too */
    double ns;       /* of one repeat in the last turn */
} bench;

static fr_status check(const bench *b, int code)
{
    return code == MPI_SUCCESS ? FR_OK : fr_fail(b->ctx, FR_PEER, "a call of MPI failed: %d", code);
}

/* As many buffers as ours, in sequence, so that caches are equally warm. */
static char *buffer(const bench *b, char *all, int i)
{
    return all + (size_t)(i % N_BUFFERS) * fr__align_up(b->bytes);
}

/* --- plain MPI ------------------------------------------------------------------------------- */

static fr_status plain_pingpong(bench *b)
{
    int n = (int)b->bytes, peer = 1 - b->rank;
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t start = fr__now_ns();
    for (int i = 0; i < b->n && b->rank < 2; i++)
        for (int side = 0; side < 2; side++)
            FR_TRY(check(b, side == b->rank ? MPI_Send(buffer(b, b->out, i), n, MPI_BYTE, peer, 1,
                                                       MPI_COMM_WORLD)
                                            : MPI_Recv(buffer(b, b->in, i), n, MPI_BYTE, peer, 1,
                                                       MPI_COMM_WORLD, MPI_STATUS_IGNORE)));
    b->ns = (double)(fr__now_ns() - start) / b->n / 2;
    return FR_OK;
}

static fr_status plain_duplex(bench *b)
{
    int n = (int)b->bytes, peer = 1 - b->rank;
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t start = fr__now_ns();
    for (int i = 0; i < b->n && b->rank < 2; i++) {
        MPI_Request r[2];
        FR_TRY(
            check(b, MPI_Irecv(buffer(b, b->in, i), n, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &r[0])));
        FR_TRY(
            check(b, MPI_Isend(buffer(b, b->out, i), n, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &r[1])));
        FR_TRY(check(b, MPI_Waitall(2, r, MPI_STATUSES_IGNORE)));
    }
    b->ns = (double)(fr__now_ns() - start) / b->n;
    return FR_OK;
}

static fr_status plain_sum(bench *b)
{
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t start = fr__now_ns();
    for (int i = 0; i < b->n; i++)
        FR_TRY(check(b, MPI_Allreduce(b->out, b->in, (int)(b->bytes / sizeof(float)), MPI_FLOAT,
                                      MPI_SUM, MPI_COMM_WORLD)));
    b->ns = (double)(fr__now_ns() - start) / b->n;
    return FR_OK;
}

/* --- ours ------------------------------------------------------------------------------------ */

/* Wait for all ranks and broadcast rank 0's number. While a group is open, only the group uses
 * MPI. */
static fr_status meet(bench *b, uint64_t *number)
{
    uint64_t *mine = b->t->board_part(b->board, b->round, b->rank);
    *mine = number ? *number : 0;
    b->t->board_post(b->board, b->round, b->rank);
    FR_TRY(b->t->board_wait(b->board, b->round, b->rank));
    if (number) *number = *(uint64_t *)b->t->board_part(b->board, b->round, 0);
    b->round++;
    return FR_OK;
}

static fr_status add_channels(bench *b, fr_group *g, fr_channel *channels[2])
{
    for (int from = 0; from < 2; from++) {
        fr_channel_desc d = {from, 1 - from, N_BUFFERS, b->bytes, fr__align_up(b->bytes),
                             NULL, NULL,     NULL};
        if (b->rank == from) d.memory = b->out;
        if (b->rank == 1 - from) d.landing = b->in;
        FR_TRY(b->t->add_channel(g, &d, &channels[from]));
    }
    return FR_OK;
}

static fr_status our_messages(bench *b, fr_group *g, bool is_duplex)
{
    fr_channel *channels[2];
    FR_TRY(add_channels(b, g, channels));
    FR_TRY(meet(b, NULL));
    uint64_t start = fr__now_ns();
    for (int i = 0; i < b->n && b->rank < 2; i++) {
        int k = i % N_BUFFERS;
        for (int side = 0; side < 2; side++) {
            const void *data;
            size_t bytes;
            if (is_duplex ? side == 0 : side == b->rank) {
                FR_TRY(b->t->acquire(channels[b->rank], k));
                b->t->send(channels[b->rank], k, b->bytes);
            } else {
                FR_TRY(b->t->receive(channels[1 - b->rank], k, &data, &bytes));
                b->t->release(channels[1 - b->rank], k);
            }
        }
    }
    for (int k = 0; k < N_BUFFERS && b->rank < 2; k++) FR_TRY(b->t->acquire(channels[b->rank], k));
    b->ns = (double)(fr__now_ns() - start) / b->n / (is_duplex ? 1 : 2);
    return FR_OK;
}

static fr_status our_pingpong(bench *b, fr_group *g) { return our_messages(b, g, false); }
static fr_status our_duplex(bench *b, fr_group *g) { return our_messages(b, g, true); }

static fr_status play_sum(bench *b, fr_sum *s, int n_buckets)
{
    bool is_alive;
    FR_TRY(meet(b, NULL));
    uint64_t start = fr__now_ns();
    for (int i = 0; i < b->n; i++) {
        for (int k = 0; k < n_buckets; k++) b->t->sum_post(s, b->rank, k, true);
        for (int k = 0; k < n_buckets; k++) FR_TRY(b->t->sum_wait(s, b->rank, k, &is_alive));
    }
    b->ns = (double)(fr__now_ns() - start) / b->n;
    return FR_OK;
}

static void compute(uint64_t ns)
{
    for (uint64_t end = fr__now_ns() + ns; fr__now_ns() < end;) {
    }
}

/* Post during computation, as a backward pass does, and poll occasionally. */
static fr_status play_overlap(bench *b, fr_sum *s, int n_buckets)
{
    enum { SLICES = 64 };
    int n = b->n;
    bool is_alive;
    b->n = 1;
    FR_TRY(play_sum(b, s, n_buckets));
    b->n = n;
    uint64_t alone_ns = (uint64_t)b->ns;
    FR_TRY(meet(b, &alone_ns));
    uint64_t start = fr__now_ns();
    for (int i = 0; i < n; i++) {
        for (int slice = 0, k = 0; slice < SLICES; slice++) {
            for (; k < n_buckets && k * SLICES <= slice * n_buckets * 2; k++)
                b->t->sum_post(s, b->rank, k, true);
            compute(alone_ns / SLICES);
            b->t->poll(b->g, b->rank);
        }
        for (int k = 0; k < n_buckets; k++) FR_TRY(b->t->sum_wait(s, b->rank, k, &is_alive));
    }
    b->ns = (double)(fr__now_ns() - start) / n;
    b->plain_ns = 2.0 * (double)alone_ns;
    return FR_OK;
}

static fr_status our_sum(bench *b, fr_group *g)
{
    size_t n = b->bytes / sizeof(float), room_bytes;
    int n_buckets = (int)((n + BUCKET - 1) / BUCKET);
    size_t *edge = FR_NEW_ARRAY(size_t, n_buckets + 1);
    int *members = FR_NEW_ARRAY(int, b->size);
    float **memory = FR_NEW_ARRAY(float *, b->size);
    char **room = FR_NEW_ARRAY(char *, b->size), *mine = NULL;
    fr_sum *s;
    fr_status status = FR_OK;
    if (!edge || !members || !memory || !room)
        FR_TRY_GOTO(status, fr__no_memory(b->ctx, n, "a sum"), end);
    for (int k = 0; k < b->size; k++) members[k] = k;
    for (int k = 0; k <= n_buckets; k++) edge[k] = (size_t)k * BUCKET < n ? (size_t)k * BUCKET : n;
    fr_sum_desc d = {b->size, members, n_buckets, edge, memory, room, NULL, false};
    room_bytes = b->t->sum_room(g, &d, b->rank);
    memory[b->rank] = (float *)(void *)b->out;
    room[b->rank] = mine = fr__alloc(room_bytes);
    if (!mine) FR_TRY_GOTO(status, fr__no_memory(b->ctx, room_bytes, "a sum"), end);
    FR_TRY_GOTO(status, b->t->add_sum(g, &d, &s), end);
    int repeats = b->n;
    b->n = 1; /* touch all memory */
    FR_TRY_GOTO(status, play_sum(b, s, n_buckets), end);
    b->n = repeats;
    b->g = g;
    status = b->is_overlap ? play_overlap(b, s, n_buckets) : play_sum(b, s, n_buckets);
end:
    if (status == FR_OK) status = meet(b, NULL);
    fr__free(edge), fr__free(members), fr__free(memory), fr__free(room);
    b->room = mine; /* until the group is closed */
    return status;
}

static fr_status our_overlap(bench *b, fr_group *g)
{
    b->is_overlap = true;
    fr_status status = our_sum(b, g);
    b->is_overlap = false;
    return status;
}

/* --- turns ----------------------------------------------------------------------------------- */

typedef struct what {
    const char *name;
    size_t bytes;
    int n;
    fr_status (*plain)(bench *b);
    fr_status (*ours)(bench *b, fr_group *g);
} what;

static const what whats[] = {
    {"pingpong", 8, 2000, plain_pingpong, our_pingpong},
    {"pingpong", 65536, 200, plain_pingpong, our_pingpong},
    {"pingpong", 1 << 20, 20, plain_pingpong, our_pingpong},
    {"pingpong", 16 << 20, 2, plain_pingpong, our_pingpong},
    {"duplex", 65536, 200, plain_duplex, our_duplex},
    {"duplex", 1 << 20, 20, plain_duplex, our_duplex},
    {"duplex", 8 << 20, 2, plain_duplex, our_duplex},
    {"sum", 8, 1000, plain_sum, our_sum},
    {"sum", 65536, 100, plain_sum, our_sum},
    {"sum", 1 << 20, 10, plain_sum, our_sum},
    {"sum", 16 << 20, 2, plain_sum, our_sum},
    {"sum", 128 << 20, 1, plain_sum, our_sum},
    {"overlap", 32 << 20, 1, NULL, our_overlap},
};

static fr_status add_board(bench *b, fr_group *g)
{
    size_t *bytes = FR_NEW_ARRAY(size_t, b->size);
    int *owner = FR_NEW_ARRAY(int, b->size);
    fr_status status = FR_OK;
    for (int k = 0; k < b->size && bytes && owner; k++) bytes[k] = sizeof(uint64_t), owner[k] = k;
    if (!bytes || !owner)
        status = fr__no_memory(b->ctx, 0, "a board");
    else
        status = b->t->add_board(g, b->size, bytes, owner, &b->board);
    b->round = 0;
    fr__free(bytes), fr__free(owner);
    return status;
}

static fr_status take_turns(bench *b, const what *w, int n_tries)
{
    double best[2] = {1e300, 1e300};
    for (int i = 0; i < n_tries; i++) {
        fr_group *g;
        if (w->plain) FR_TRY(w->plain(b));
        if (w->plain && b->ns < best[0]) best[0] = b->ns;
        MPI_Barrier(MPI_COMM_WORLD);
        FR_TRY(b->t->open(b->ctx, b->team, b->size, &g));
        fr_status status = add_board(b, g);
        if (status == FR_OK) status = w->ours(b, g);
        b->t->close(g);
        fr__free(b->room);
        b->room = NULL;
        FR_TRY(status);
        if (!w->plain && b->ns / b->plain_ns < best[1] / best[0])
            best[0] = b->plain_ns, best[1] = b->ns;
        if (w->plain && b->ns < best[1]) best[1] = b->ns;
    }
    if (b->rank == 0)
        printf("{\"what\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"plain_us\": %.2f, \"ours_us\": "
               "%.2f, \"ratio\": %.3f, \"GB_per_s\": %.3f}\n",
               w->name, b->size, w->bytes, best[0] * 1e-3, best[1] * 1e-3, best[1] / best[0],
               (double)w->bytes / best[1]);
    fflush(stdout);
    return FR_OK;
}

static fr_status run(bench *b, int n_tries, const char *only)
{
    if (b->size < 2)
        return fr_fail(b->ctx, FR_INVALID, "start it with mpirun, 2 processes or more");
    for (size_t i = 0; i < sizeof whats / sizeof *whats; i++) {
        const what *w = &whats[i];
        if (only && strcmp(only, w->name) != 0) continue;
        b->bytes = w->bytes, b->n = w->n;
        size_t bytes = N_BUFFERS * fr__align_up(w->bytes);
        b->out = fr__alloc(bytes), b->in = fr__alloc(bytes);
        fr_status status = b->out && b->in ? FR_OK : fr__no_memory(b->ctx, bytes, "messages");
        if (b->in) memset(b->in, 1, bytes);
        if (status == FR_OK) status = take_turns(b, w, n_tries);
        fr__free(b->out), fr__free(b->in);
        FR_TRY(status);
    }
    return FR_OK;
}

int main(int argc, char **argv)
{
    bench b = {.ctx = fr_ctx_create(), .t = fr_transport_find("mpi")};
    int n_tries = 10;
    const char *only = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--tries") == 0) n_tries = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--only") == 0) only = argv[i + 1];
    }
    if (!b.ctx || !b.t) return 1;
    fr_status status = fr_team_join(b.ctx, &b.team);
    b.rank = fr_team_rank(b.team), b.size = fr_team_size(b.team);
    if (status == FR_OK) status = run(&b, n_tries, only);
    if (status != FR_OK) fprintf(stderr, "bench_mpi: %s\n", fr_ctx_error(b.ctx));
    if (status != FR_OK) fr_team_fail(b.team, "the bench has failed");
    fr_team_leave(b.team);
    fr_ctx_free(b.ctx);
    return fr_status_exit_code(status);
}
