/* sum.c -- sums between threads: each member reduces one shard of a bucket, which all can read.
 *
 * When all have posted a bucket, member k adds the k-th shard of all blocks into its room and
 * raises a count. The sum is complete when all shards are. Nothing is copied: piece k stays in the
 * room of member k. No bucket or shard is overwritten too early:
 *   - after the wait a block is free for its owner, because all shards have been added;
 *   - a shard is written again when all have posted the next round, and a member posts only when it
 *     has read the sum of this one. */
#include <string.h>

#include "transport/threads/threads.h"

struct fr_sum {
    fr_group *group;
    fr_sum *next;
    int n_members, n_buckets;
    int *members;        /* [n_members] */
    size_t *edge;        /* [n_buckets + 1] */
    const float **block; /* [n_members] */
    fr_device **device;  /* [n_members] NULL: host memory */
    float **shard;       /* [bucket][nth]: in the room of the nth member */
    count *posted;       /* [bucket][nth] rounds */
    count *added;        /* [bucket][nth] rounds */
    atomic_bool *dead;   /* [round mod 2][bucket][nth]: nothing was posted */
    uint64_t *waited;    /* [bucket][nth] rounds; the member's alone */
};

size_t fr__threads_sum_room(const fr_group *g, const fr_sum_desc *d, int nth)
{
    (void)g;
    size_t bytes = 0;
    for (int b = 0; b < d->n_buckets; b++) {
        size_t at, n;
        fr__shard(d->edge[b + 1] - d->edge[b], d->n_members, nth, &at, &n);
        bytes += fr__align_up(n * sizeof(float));
    }
    return bytes;
}

/* The first dimensions of all arrays of counts. */
static size_t index_of(const fr_sum *s, int bucket, int nth)
{
    return (size_t)bucket * (size_t)s->n_members + (size_t)nth;
}

static void lay_out(fr_sum *s, const fr_sum_desc *d)
{
    for (int k = 0; k < s->n_members; k++) {
        char *room = d->room[k];
        s->members[k] = d->members[k];
        s->block[k] = d->memory[k];
        s->device[k] = d->devices ? d->devices[k] : NULL;
        for (int b = 0; b < s->n_buckets; b++) {
            size_t at, n;
            fr__shard(d->edge[b + 1] - d->edge[b], s->n_members, k, &at, &n);
            s->shard[index_of(s, b, k)] = (float *)(void *)room;
            room += fr__align_up(n * sizeof(float));
        }
    }
    memcpy(s->edge, d->edge, ((size_t)s->n_buckets + 1) * sizeof *s->edge);
}

fr_status fr__threads_add_sum(fr_group *g, const fr_sum_desc *d, fr_sum **out)
{
    *out = NULL;
    FR_TRY(fr__sum_check(g->ctx, g->n_members, d));
    for (int k = 0; k < d->n_members; k++)
        if (!d->memory[k] || (!d->room[k] && fr__threads_sum_room(g, d, k) > 0))
            return fr_fail(g->ctx, FR_INVALID, "worker %d has no block or no room in a sum",
                           d->members[k]);
    size_t n = (size_t)d->n_buckets * (size_t)d->n_members;
    fr_sum *s = FR_ARENA_NEW(&g->arena, fr_sum);
    if (!s) return fr__no_memory(g->ctx, sizeof *s, "a sum");
    *s = (fr_sum){.group = g,
                  .n_members = d->n_members,
                  .n_buckets = d->n_buckets,
                  .members = FR_ARENA_ARRAY(&g->arena, int, d->n_members),
                  .edge = FR_ARENA_ARRAY(&g->arena, size_t, (size_t)d->n_buckets + 1),
                  .block = FR_ARENA_ARRAY(&g->arena, const float *, d->n_members),
                  .device = FR_ARENA_ARRAY(&g->arena, fr_device *, d->n_members),
                  .shard = FR_ARENA_ARRAY(&g->arena, float *, n),
                  .posted = FR_ARENA_ARRAY(&g->arena, count, n),
                  .added = FR_ARENA_ARRAY(&g->arena, count, n),
                  .dead = FR_ARENA_ARRAY(&g->arena, atomic_bool, 2 * n),
                  .waited = FR_ARENA_ARRAY(&g->arena, uint64_t, n)};
    if (!s->members || !s->edge || !s->block || !s->device || !s->shard || !s->posted ||
        !s->added || !s->dead || !s->waited)
        return fr__no_memory(g->ctx, n * 40, "a sum");
    lay_out(s, d);
    s->next = g->sums;
    g->sums = s;
    *out = s;
    return FR_OK;
}

/* Entries of round `round`, counted from 1. Two halves are enough: a member posts for the round
 * after next when all have waited for this one. */
static atomic_bool *dead_of(fr_sum *s, uint64_t round, size_t i)
{
    return &s->dead[(round & 1) * (size_t)s->n_members * (size_t)s->n_buckets + i];
}

void fr__threads_sum_post(fr_sum *s, int nth, int bucket, bool is_alive)
{
    size_t i = index_of(s, bucket, nth);
    uint64_t round = atomic_load_explicit(&s->posted[i], memory_order_relaxed) + 1;
    atomic_store_explicit(dead_of(s, round, i), !is_alive, memory_order_relaxed);
    fr__threads_raise(s->group, &s->posted[i], round, s->n_members, s->members);
}

static void add_shard(fr_sum *s, int nth, int bucket)
{
    const float *from[FR_TREE_MEMBERS];
    size_t at, n;
    fr__shard(s->edge[bucket + 1] - s->edge[bucket], s->n_members, nth, &at, &n);
    for (int k = 0; k < s->n_members; k++) from[k] = s->block[k] + s->edge[bucket] + at;
    float *to = s->shard[index_of(s, bucket, nth)];
    if (s->device[nth])
        fr__device_tree_sum(s->device[nth], to, from, s->n_members, n);
    else
        fr__tree_sum(to, from, s->n_members, n);
}

fr_status fr__threads_sum_wait(fr_sum *s, int nth, int bucket, bool *is_alive)
{
    size_t mine = index_of(s, bucket, nth);
    int member = s->members[nth];
    uint64_t round = s->waited[mine] + 1;
    *is_alive = false;
    if (atomic_load_explicit(&s->posted[mine], memory_order_relaxed) != round)
        return fr_fail(
            s->group->ctx, FR_INTERNAL,
            "worker %d waits for the sum of bucket %d in round %llu, but has posted %llu "
            "rounds of it: each is posted once and waited for once",
            member, bucket, (unsigned long long)round - 1,
            (unsigned long long)atomic_load(&s->posted[mine]));
    bool is_dead = false;
    for (int k = 0; k < s->n_members; k++) {
        size_t i = index_of(s, bucket, k);
        FR_TRY(fr__threads_wait(s->group, member, &s->posted[i], round));
        is_dead |= atomic_load_explicit(dead_of(s, round, i), memory_order_relaxed);
    }
    if (!is_dead) add_shard(s, nth, bucket);
    if (s->device[nth]) FR_TRY(fr_device_sync(s->device[nth]));
    fr__threads_raise(s->group, &s->added[mine], round, s->n_members, s->members);
    for (int k = 0; k < s->n_members && !is_dead; k++)
        FR_TRY(fr__threads_wait(s->group, member, &s->added[index_of(s, bucket, k)], round));
    s->waited[mine] = round;
    *is_alive = !is_dead;
    return FR_OK;
}

const float *fr__threads_sum_piece(fr_sum *s, int nth, int bucket, int k, size_t *at,
                                   size_t *n_floats)
{
    (void)nth;
    fr__shard(s->edge[bucket + 1] - s->edge[bucket], s->n_members, k, at, n_floats);
    *at += s->edge[bucket];
    return s->shard[index_of(s, bucket, k)];
}

void fr__threads_reset_sums(fr_group *g)
{
    for (fr_sum *s = g->sums; s; s = s->next) {
        size_t n = (size_t)s->n_buckets * (size_t)s->n_members;
        for (size_t i = 0; i < n; i++) {
            atomic_store(&s->posted[i], 0);
            atomic_store(&s->added[i], 0);
            s->waited[i] = 0;
        }
    }
}
