/* sum.c -- measures the time in which workers of this machine sum a block of gradients: buckets are
 * submitted and taken as in the engine, with no other work meanwhile. */
#include <forerun/probe.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/thread.h"

#include <stdlib.h>

enum { ROUNDS = 7 }; /* the first is a warm-up */

typedef struct rig {
    const fr_transport *t;
    fr_group *group;
    fr_sum *sum;
    int n_buckets;
    uint64_t ns[ROUNDS]; /* of this process's first member */
} rig;

typedef struct hand {
    rig *r;
    int nth;
    bool notes;
    fr_status status;
    pthread_t thread;
} hand;

static fr_status add_up(hand *h)
{
    const rig *r = h->r;
    bool is_alive;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = fr__now_ns();
        for (int k = r->n_buckets - 1; k >= 0; k--) r->t->sum_post(r->sum, h->nth, k, true);
        for (int k = r->n_buckets - 1; k >= 0; k--)
            FR_TRY(r->t->sum_wait(r->sum, h->nth, k, &is_alive));
        if (h->notes) h->r->ns[i] = fr__now_ns() - start;
    }
    return FR_OK;
}

static void *hand_main(void *arg)
{
    hand *h = arg;
    h->status = add_up(h);
    if (h->status != FR_OK) h->r->t->abort(h->r->group);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static fr_status play(fr_ctx *ctx, rig *r, hand *hands, int first, int n)
{
    fr_status status = FR_OK;
    int n_started = 0;
    for (; n_started < n && status == FR_OK; n_started++) {
        hands[n_started] = (hand){.r = r, .nth = first + n_started, .notes = n_started == 0};
        if (pthread_create(&hands[n_started].thread, NULL, hand_main, &hands[n_started]) != 0) {
            status = fr_fail(ctx, FR_IO, "cannot start a thread");
            r->t->abort(r->group);
            break;
        }
    }
    for (int i = 0; i < n_started; i++) {
        pthread_join(hands[i].thread, NULL);
        if (status == FR_OK) status = hands[i].status;
    }
    return status;
}

/* Blocks of this process's members, and the sum over all. */
static fr_status set_up(fr_ctx *ctx, rig *r, fr_arena *a, int n, int first, int n_local,
                        size_t n_floats)
{
    size_t bucket = FR_BUCKET_BYTES / sizeof(float);
    r->n_buckets = (int)((n_floats + bucket - 1) / bucket);
    int *members = FR_ARENA_ARRAY(a, int, n);
    size_t *edge = FR_ARENA_ARRAY(a, size_t, r->n_buckets + 1);
    float **memory = FR_ARENA_ARRAY(a, float *, n);
    char **room = FR_ARENA_ARRAY(a, char *, n);
    if (!members || !edge || !memory || !room) return fr__no_memory(ctx, n_floats, "a sum");
    for (int i = 0; i < n; i++) members[i] = i;
    for (int k = 0; k <= r->n_buckets; k++)
        edge[k] = k < r->n_buckets ? (size_t)k * bucket : n_floats;
    fr_sum_desc d = {.n_members = n,
                     .members = members,
                     .n_buckets = r->n_buckets,
                     .edge = edge,
                     .memory = memory,
                     .room = room};
    for (int i = first; i < first + n_local; i++) {
        memory[i] = FR_ARENA_ARRAY(a, float, n_floats);
        room[i] = FR_ARENA_ARRAY(a, char, r->t->sum_room(r->group, &d, i) + 1);
        if (!memory[i] || !room[i]) return fr__no_memory(ctx, n_floats, "a sum");
    }
    return r->t->add_sum(r->group, &d, &r->sum);
}

fr_status fr_probe_sum(fr_ctx *ctx, const fr_transport *transport, fr_team *team, int n,
                       size_t bytes, double *seconds)
{
    int n_local = n / fr_team_size(team), first = n_local * fr_team_rank(team);
    rig r = {.t = transport};
    fr_arena arena = {0};
    hand *hands = FR_NEW_ARRAY(hand, n_local);
    if (!hands) return fr__no_memory(ctx, (size_t)n_local * sizeof *hands, "a sum");
    size_t n_floats = bytes / sizeof(float) > 0 ? bytes / sizeof(float) : 1;
    fr_status status = transport->open(ctx, team, n, &r.group);
    if (status == FR_OK) {
        status = set_up(ctx, &r, &arena, n, first, n_local, n_floats);
        if (status == FR_OK) status = play(ctx, &r, hands, first, n_local);
        transport->close(r.group);
    }
    qsort(r.ns + 1, ROUNDS - 1, sizeof *r.ns, by_size);
    *seconds = (double)r.ns[ROUNDS / 2] * 1e-9;
    fr__arena_fini(&arena);
    fr__free(hands);
    return status;
}
