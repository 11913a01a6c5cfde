/* sum.c -- sums over processes: each shard goes to the member that reduces it, its sum to all
 * members.
 *
 * Member k reduces shard k of a bucket. It receives the terms of other processes as streams into
 * its room and reads those of its own process in place. It adds what has arrived of all terms along
 * the tree, and sends the result once to every other process that has a member. The first member of
 * that process receives it into its room, where the others read it too. Shards are streams of
 * chunks, so one chunk is sent back while the next is added and a third is received. The bits are
 * those of fr__tree_sum, as in every other transport.
 *
 * A member with nothing to add sends empty chunks, and a member that receives one sends empty
 * chunks on. So all members learn of it by the sum of shard 0, which is exchanged even if the
 * bucket has no floats.
 *
 * When a wait returns, all streams of that member and bucket are complete, so its block is free.
 * Received sums are overwritten when all local members have posted the next round. The streams of a
 * member make progress on one thread at a time; those of received sums on any local member's
 * thread, with the lock held.
 *
 * If the host cannot read the memory of a member's device, all of this uses host memory: a post
 * downloads the bucket, and a wait uploads its sum to the member's room. */
#include <string.h>

#include "transport/mpi/stream.h"

enum { AHEAD = 4 }; /* buckets that make progress at the same time */

/* One bucket of one local member. */
typedef struct job {
    fr__stream *out;                 /* [n_members] its shards, to the members that reduce them */
    fr__stream *in;                  /* [n_members] terms of its own shard, from the others */
    fr__stream *give;                /* [n_peers] its sum */
    float *sum;                      /* its shard */
    _Atomic uint64_t posted, summed; /* rounds */
    uint64_t waited;
    size_t n_added;   /* floats of its shard in this round */
    bool is_dead;     /* it has nothing to add */
    bool is_known;    /* whether the sum is dead */
    bool is_sum_dead; /* read by others here until they have posted the next round */
} job;

/* For a member whose device has memory of its own. */
typedef struct staging {
    fr_device *device; /* NULL: it has not */
    const float *block;
    float *sum; /* as long, in the room of the device */
} staging;

struct fr_sum {
    fr_group *group;
    fr_sum *next;
    fr_sum *inner; /* of threads, if all members are in this process */
    int n_members, n_buckets, n_peers, tag;
    int *members;     /* [n_members] of the group */
    int *peers;       /* [n_peers] other processes that have a member */
    size_t *edge;     /* [n_buckets + 1] */
    float **block;    /* [n_members] in host memory; NULL for those of other processes */
    staging *staged;  /* [n_members] */
    job *jobs;        /* [nth][bucket]; empty for those of other processes */
    fr__stream *take; /* [bucket][n_members] sums of shards from other processes */
    uint64_t *taking; /* [bucket] the round that `take` is in */
    int *queue;       /* [nth][n_buckets] buckets that are posted and not waited for, in order */
    int *n_queued;    /* [nth] */
};

static bool is_here(const fr_sum *s, int nth) { return s->block[nth] != NULL; }
static job *job_of(const fr_sum *s, int nth, int bucket)
{
    return &s->jobs[(size_t)nth * (size_t)s->n_buckets + (size_t)bucket];
}
static fr__stream *take_of(const fr_sum *s, int bucket, int k)
{
    return &s->take[(size_t)bucket * (size_t)s->n_members + (size_t)k];
}

/* Floats of shard k; *at in the block. */
static size_t shard_of(const size_t *edge, int n_members, int bucket, int k, size_t *at)
{
    size_t count;
    fr__shard(edge[bucket + 1] - edge[bucket], n_members, k, at, &count);
    *at += edge[bucket];
    return count;
}

/* Whether shard k is exchanged. Shard 0 always is, because it carries whether the sum is alive. */
static bool is_used(const fr_sum *s, int bucket, int k)
{
    size_t at;
    return k == 0 || shard_of(s->edge, s->n_members, bucket, k, &at) > 0;
}

/* --- setting up ------------------------------------------------------------------------------ */

static bool is_all_in(const fr_group *g, const fr_sum_desc *d, int rank)
{
    for (int k = 0; k < d->n_members; k++)
        if (fr__mpi_rank_of(g, d->members[k]) != rank) return false;
    return true;
}

/* Whether the nth member is the first of its process, whose room receives the sums of others. */
static bool is_host(const fr_group *g, const fr_sum_desc *d, int nth)
{
    for (int k = 0; k < nth; k++)
        if (fr__mpi_rank_of(g, d->members[k]) == fr__mpi_rank_of(g, d->members[nth])) return false;
    return true;
}

static size_t shard_bytes(const fr_sum_desc *d, int bucket, int k)
{
    size_t at;
    return fr__align_up(shard_of(d->edge, d->n_members, bucket, k, &at) * sizeof(float));
}

static bool is_staged(const fr_sum_desc *d, int nth)
{
    return d->devices && fr__mpi_must_stage(d->devices[nth]);
}

/* In host memory. */
static size_t room_bytes(const fr_group *g, const fr_sum_desc *d, int nth)
{
    int rank = fr__mpi_rank_of(g, d->members[nth]);
    size_t bytes = 0;
    for (int b = 0; b < d->n_buckets; b++) {
        bytes += shard_bytes(d, b, nth);
        for (int k = 0; k < d->n_members; k++) {
            if (fr__mpi_rank_of(g, d->members[k]) == rank) continue;
            bytes += shard_bytes(d, b, nth);
            if (is_host(g, d, nth)) bytes += shard_bytes(d, b, k);
        }
    }
    return bytes;
}

size_t fr__mpi_sum_room(const fr_group *g, const fr_sum_desc *d, int nth)
{
    int rank = fr__mpi_rank_of(g, d->members[nth]);
    if (is_all_in(g, d, rank)) return THREADS->sum_room(g->inner, d, nth);
    return is_staged(d, nth) ? d->edge[d->n_buckets] * sizeof(float) : room_bytes(g, d, nth);
}

static char *carve(char **room, size_t bytes)
{
    char *piece = *room;
    *room += bytes;
    return piece;
}

/* Tags: first those of the terms of shards, by bucket, from, to; then those of the sums, by bucket,
 * from. */
static int term_tag(const fr_sum *s, int bucket, int from, int to)
{
    return s->tag + (bucket * s->n_members + from) * s->n_members + to;
}
static int sum_tag(const fr_sum *s, int bucket, int from)
{
    return s->tag + s->n_buckets * s->n_members * s->n_members + bucket * s->n_members + from;
}

/* The streams and the room of one bucket of a member. */
static void lay_out(fr_sum *s, const fr_sum_desc *d, int nth, int b, char **room)
{
    const fr_group *g = s->group;
    job *j = job_of(s, nth, b);
    size_t mine, at;
    size_t n_mine = shard_of(s->edge, s->n_members, b, nth, &mine) * sizeof(float);
    j->sum = (float *)(void *)carve(room, fr__align_up(n_mine));
    for (int k = 0; k < s->n_members; k++) {
        int peer = fr__mpi_rank_of(g, s->members[k]);
        if (peer == g->rank) continue;
        size_t n = shard_of(s->edge, s->n_members, b, k, &at) * sizeof(float);
        fr__stream_init(&j->out[k], true, s->block[nth] + at, n, peer, term_tag(s, b, nth, k));
        fr__stream_init(&j->in[k], false, carve(room, fr__align_up(n_mine)), n_mine, peer,
                        term_tag(s, b, k, nth));
        if (is_host(g, d, nth))
            fr__stream_init(take_of(s, b, k), false, carve(room, fr__align_up(n)), n, peer,
                            sum_tag(s, b, k));
    }
    for (int p = 0; p < s->n_peers; p++)
        fr__stream_init(&j->give[p], true, j->sum, n_mine, s->peers[p], sum_tag(s, b, nth));
}

/* Block and room of a member in host memory. */
static fr_status stage(fr_sum *s, const fr_sum_desc *d, int k, char **room)
{
    fr_arena *a = &s->group->arena;
    size_t n = d->edge[d->n_buckets], bytes = room_bytes(s->group, d, k);
    s->staged[k] = (staging){d->devices[k], d->memory[k], (float *)(void *)d->room[k]};
    s->block[k] = FR_ARENA_ARRAY(a, float, n + 1);
    *room = fr__arena_alloc(a, bytes + 1);
    if (s->block[k] && *room) return FR_OK;
    return fr__no_memory(s->group->ctx, n * sizeof(float) + bytes, "a sum in host memory");
}

static fr_status add_outer(fr_sum *s, const fr_sum_desc *d)
{
    fr_group *g = s->group;
    size_t n = (size_t)d->n_members, n_buckets = (size_t)d->n_buckets;
    s->members = FR_ARENA_ARRAY(&g->arena, int, n);
    s->peers = FR_ARENA_ARRAY(&g->arena, int, n);
    s->edge = FR_ARENA_ARRAY(&g->arena, size_t, n_buckets + 1);
    s->block = FR_ARENA_ARRAY(&g->arena, float *, n);
    s->staged = FR_ARENA_ARRAY(&g->arena, staging, n);
    s->jobs = FR_ARENA_ARRAY(&g->arena, job, n * n_buckets);
    s->take = FR_ARENA_ARRAY(&g->arena, fr__stream, n * n_buckets);
    s->taking = FR_ARENA_ARRAY(&g->arena, uint64_t, n_buckets);
    s->queue = FR_ARENA_ARRAY(&g->arena, int, n *n_buckets);
    s->n_queued = FR_ARENA_ARRAY(&g->arena, int, n);
    if (!s->members || !s->peers || !s->edge || !s->block || !s->staged || !s->jobs || !s->take ||
        !s->taking || !s->queue || !s->n_queued)
        return fr__no_memory(g->ctx, n * n_buckets * (sizeof(job) + sizeof(fr__stream)), "a sum");
    memcpy(s->edge, d->edge, (n_buckets + 1) * sizeof *s->edge);
    for (int k = 0; k < d->n_members; k++) {
        int rank = fr__mpi_rank_of(g, d->members[k]);
        s->members[k] = d->members[k];
        s->block[k] = rank == g->rank ? d->memory[k] : NULL;
        if (rank != g->rank && is_host(g, d, k)) s->peers[s->n_peers++] = rank;
    }
    for (int k = 0; k < d->n_members; k++) {
        char *room = d->room[k];
        if (is_here(s, k) && is_staged(d, k)) FR_TRY(stage(s, d, k, &room));
        for (int b = 0; b < d->n_buckets && is_here(s, k); b++) {
            fr__stream *streams = FR_ARENA_ARRAY(&g->arena, fr__stream, 2 * n + (size_t)s->n_peers);
            if (!streams) return fr__no_memory(g->ctx, 2 * n * sizeof *streams, "a sum");
            job *j = job_of(s, k, b);
            j->out = streams, j->in = streams + n, j->give = streams + 2 * n;
            lay_out(s, d, k, b, &room);
        }
    }
    return FR_OK;
}

static fr_status add_inner(fr_sum *s, const fr_sum_desc *d)
{
    fr_group *g = s->group;
    fr_sum_desc inner = *d;
    int *members = FR_ARENA_ARRAY(&g->arena, int, d->n_members);
    if (!members) return fr__no_memory(g->ctx, (size_t)d->n_members * sizeof *members, "a sum");
    for (int k = 0; k < d->n_members; k++) members[k] = fr__mpi_inner(g, d->members[k]);
    inner.members = members;
    return THREADS->add_sum(g->inner, &inner, &s->inner);
}

fr_status fr__mpi_add_sum(fr_group *g, const fr_sum_desc *d, fr_sum **out)
{
    *out = NULL;
    FR_TRY(fr__sum_check(g->ctx, g->n_members, d));
    bool has_any = false;
    for (int k = 0; k < d->n_members; k++) {
        bool is_mine = fr__mpi_is_here(g, d->members[k]);
        has_any |= is_mine;
        if (is_mine && (!d->memory[k] || (!d->room[k] && fr__mpi_sum_room(g, d, k) > 0)))
            return fr_fail(g->ctx, FR_INVALID, "worker %d has no block or no room in a sum",
                           d->members[k]);
    }
    fr_sum *s = FR_ARENA_NEW(&g->arena, fr_sum);
    if (!s) return fr__no_memory(g->ctx, sizeof *s, "a sum");
    *s = (fr_sum){.group = g, .n_members = d->n_members, .n_buckets = d->n_buckets};
    size_t n = (size_t)d->n_members; /* in all processes, so that tags agree */
    FR_TRY(fr__mpi_take_tags(g, (size_t)d->n_buckets * n * (n + 1), &s->tag));
    if (is_all_in(g, d, g->rank))
        FR_TRY(add_inner(s, d));
    else if (has_any)
        FR_TRY(add_outer(s, d));
    s->next = g->all_sums;
    g->all_sums = s;
    *out = s;
    return FR_OK;
}

/* --- a round --------------------------------------------------------------------------------- */

static bool have_all_here_posted(const fr_sum *s, int bucket, uint64_t round)
{
    for (int k = 0; k < s->n_members; k++)
        if (is_here(s, k) && atomic_load(&job_of(s, k, bucket)->posted) < round) return false;
    return true;
}

/* With the lock held. Receives are posted before sends, so that messages match them. */
static bool step(fr_sum *s, int nth, int bucket)
{
    fr_group *g = s->group;
    job *j = job_of(s, nth, bucket);
    bool has_moved = false;
    for (int k = 0; k < s->n_members; k++)
        if (!is_here(s, k)) {
            has_moved |= fr__stream_step(g, &j->in[k], 0);
            has_moved |= fr__stream_step(g, take_of(s, bucket, k), 0);
        }
    for (int p = 0; p < s->n_peers && j->is_known; p++)
        has_moved |= fr__stream_step(g, &j->give[p], j->n_added * sizeof(float));
    for (int k = 0; k < s->n_members; k++)
        if (!is_here(s, k)) has_moved |= fr__stream_step(g, &j->out[k], j->out[k].bytes);
    return has_moved;
}

/* The bucket of a member, to host memory. */
static bool fetch(fr_sum *s, int nth, int bucket)
{
    const staging *t = &s->staged[nth];
    size_t at = s->edge[bucket], bytes = (s->edge[bucket + 1] - at) * sizeof(float);
    return !t->device ||
           fr_device_download(t->device, s->block[nth] + at, t->block + at, bytes) == FR_OK;
}

/* Piece k of the sum of a bucket, in host memory. */
static const float *piece_of(const fr_sum *s, int bucket, int k, size_t *at, size_t *n_floats)
{
    *n_floats = shard_of(s->edge, s->n_members, bucket, k, at);
    if (is_here(s, k)) return job_of(s, k, bucket)->sum;
    return (const float *)(const void *)take_of(s, bucket, k)->at;
}

/* The sum of a bucket, to a member's device. */
static fr_status deliver(fr_sum *s, int nth, int bucket)
{
    const staging *t = &s->staged[nth];
    for (int k = 0; k < s->n_members && t->device; k++) {
        size_t at, n;
        const float *piece = piece_of(s, bucket, k, &at, &n);
        FR_TRY(fr_device_upload(t->device, t->sum + at, piece, n * sizeof(float)));
    }
    return FR_OK;
}

void fr__mpi_sum_post(fr_sum *s, int nth, int bucket, bool is_alive)
{
    fr_group *g = s->group;
    if (s->inner) {
        THREADS->sum_post(s->inner, nth, bucket, is_alive);
        return;
    }
    if (fr__mpi_is_over(g)) return;
    if (is_alive && !fetch(s, nth, bucket)) {
        atomic_store(&g->is_broken, true);
        return;
    }
    job *j = job_of(s, nth, bucket);
    fr__mpi_lock(g);
    uint64_t round = atomic_load(&j->posted) + 1;
    j->is_dead = !is_alive;
    j->is_known = false;
    j->n_added = 0;
    for (int k = 0; k < s->n_members; k++) {
        if (is_here(s, k)) continue;
        if (is_used(s, bucket, nth)) fr__stream_rewind(&j->in[k]);
        if (is_used(s, bucket, k)) fr__stream_rewind(&j->out[k]);
        j->out[k].is_dead = !is_alive;
    }
    for (int p = 0; p < s->n_peers && is_used(s, bucket, nth); p++) fr__stream_rewind(&j->give[p]);
    atomic_store(&j->posted, round);
    if (have_all_here_posted(s, bucket, round)) {
        s->taking[bucket] = round;
        for (int k = 0; k < s->n_members; k++)
            if (!is_here(s, k) && is_used(s, bucket, k)) fr__stream_rewind(take_of(s, bucket, k));
    }
    if (s->n_queued[nth] < s->n_buckets) s->queue[nth * s->n_buckets + s->n_queued[nth]++] = bucket;
    step(s, nth, bucket);
    fr__mpi_unlock(g);
}

/* The part of a member's shard that can be added now. */
typedef struct terms {
    size_t at, n, n_ready; /* in the block; floats; floats that have arrived of all terms */
    bool is_dead;          /* one of them is */
} terms;

/* With the lock held; false: nothing. */
static bool look_at_terms(const fr_sum *s, int nth, int bucket, terms *t)
{
    const job *j = job_of(s, nth, bucket);
    uint64_t round = atomic_load(&j->posted);
    *t = (terms){0};
    t->n_ready = t->n = shard_of(s->edge, s->n_members, bucket, nth, &t->at);
    if (!is_used(s, bucket, nth) || atomic_load(&j->summed) == round) return false;
    if (!have_all_here_posted(s, bucket, round)) return false;
    for (int k = 0; k < s->n_members; k++) {
        if (is_here(s, k)) {
            t->is_dead |= job_of(s, k, bucket)->is_dead;
            continue;
        }
        if (j->in[k].n_done == 0) return false;
        size_t n = fr__stream_done(&j->in[k]) / sizeof(float);
        t->is_dead |= j->in[k].is_dead;
        if (n < t->n_ready) t->n_ready = n;
    }
    if (t->is_dead) return t->n_ready == t->n; /* the other terms must still be received */
    return !j->is_known || t->n_ready > j->n_added;
}

/* Without the lock: only the member's own thread adds. */
static void add_terms(const fr_sum *s, int nth, int bucket, const terms *t)
{
    const job *j = job_of(s, nth, bucket);
    const float *from[FR_TREE_MEMBERS];
    if (t->is_dead) return;
    for (int k = 0; k < s->n_members; k++)
        from[k] =
            (is_here(s, k) ? s->block[k] + t->at : (const float *)(void *)j->in[k].at) + j->n_added;
    fr__tree_sum(j->sum + j->n_added, from, s->n_members, t->n_ready - j->n_added);
}

/* With the lock held: send what was added. */
static void give_terms(fr_sum *s, int nth, int bucket, const terms *t)
{
    job *j = job_of(s, nth, bucket);
    for (int p = 0; p < s->n_peers; p++) j->give[p].is_dead = t->is_dead;
    j->n_added = t->n_ready;
    j->is_sum_dead = t->is_dead;
    j->is_known = true;
    if (t->n_ready == t->n) atomic_store(&j->summed, atomic_load(&j->posted));
}

/* With the lock held: whether all streams of a member and bucket are complete and all sums
 * received. */
static bool is_at_rest(const fr_sum *s, int nth, int bucket)
{
    const job *j = job_of(s, nth, bucket);
    uint64_t round = atomic_load(&j->posted);
    if (s->taking[bucket] != round) return false;
    for (int k = 0; k < s->n_members; k++)
        if (is_here(s, k)) {
            if (is_used(s, bucket, k) && atomic_load(&job_of(s, k, bucket)->summed) < round)
                return false;
        } else if (!fr__stream_is_done(&j->in[k]) || !fr__stream_is_done(&j->out[k]) ||
                   !fr__stream_is_done(take_of(s, bucket, k)))
            return false;
    for (int p = 0; p < s->n_peers; p++)
        if (!fr__stream_is_done(&j->give[p])) return false;
    return true;
}

/* Make progress on a bucket, on its member's thread; true if there was any. */
static bool advance(fr_sum *s, int nth, int bucket, bool *is_done)
{
    fr_group *g = s->group;
    terms t;
    fr__mpi_lock(g);
    bool has_moved = step(s, nth, bucket), can_add = look_at_terms(s, nth, bucket, &t);
    *is_done = is_at_rest(s, nth, bucket);
    fr__mpi_unlock(g);
    if (!can_add) return has_moved;
    add_terms(s, nth, bucket, &t);
    fr__mpi_lock(g);
    give_terms(s, nth, bucket, &t);
    step(s, nth, bucket);
    *is_done = is_at_rest(s, nth, bucket);
    fr__mpi_unlock(g);
    return true;
}

/* Make progress on the oldest buckets of a member, except one. */
static bool advance_queue(fr_sum *s, int nth, int except)
{
    int buckets[AHEAD], n = 0;
    bool has_moved = false, is_done;
    fr__mpi_lock(s->group);
    for (int i = 0; i < s->n_queued[nth] && n < AHEAD; i++)
        if (s->queue[nth * s->n_buckets + i] != except)
            buckets[n++] = s->queue[nth * s->n_buckets + i];
    fr__mpi_unlock(s->group);
    for (int i = 0; i < n; i++) has_moved |= advance(s, nth, buckets[i], &is_done);
    return has_moved;
}

static void leave_queue(fr_sum *s, int nth, int bucket)
{
    int *queue = s->queue + nth * s->n_buckets, *n = &s->n_queued[nth], i = 0;
    fr__mpi_lock(s->group);
    while (i < *n && queue[i] != bucket) i++;
    for (; i + 1 < *n; i++) queue[i] = queue[i + 1];
    if (*n > 0) --*n;
    fr__mpi_unlock(s->group);
}

fr_status fr__mpi_sum_wait(fr_sum *s, int nth, int bucket, bool *is_alive)
{
    fr_group *g = s->group;
    if (s->inner) return THREADS->sum_wait(s->inner, nth, bucket, is_alive);
    job *j = job_of(s, nth, bucket);
    *is_alive = false;
    if (fr__mpi_is_over(g)) return FR_PEER;
    if (atomic_load(&j->posted) != j->waited + 1)
        return fr_fail(
            g->ctx, FR_INTERNAL,
            "worker %d waits for the sum of bucket %d in round %llu, but has posted %llu "
            "rounds of it: each is posted once and waited for once",
            s->members[nth], bucket, (unsigned long long)j->waited,
            (unsigned long long)atomic_load(&j->posted));
    fr__pause pause = {0};
    for (;;) {
        bool is_done = false, has_moved = advance(s, nth, bucket, &is_done);
        if (is_done) break;
        has_moved |= advance_queue(s, nth, bucket);
        if (has_moved) pause = (fr__pause){0};
        FR_TRY(fr__mpi_pause(g, &pause));
    }
    leave_queue(s, nth, bucket);
    j->waited++;
    *is_alive =
        !(is_here(s, 0) ? job_of(s, 0, bucket)->is_sum_dead : take_of(s, bucket, 0)->is_dead);
    return *is_alive ? deliver(s, nth, bucket) : FR_OK;
}

const float *fr__mpi_sum_piece(fr_sum *s, int nth, int bucket, int k, size_t *at, size_t *n_floats)
{
    if (s->inner) return THREADS->sum_piece(s->inner, nth, bucket, k, at, n_floats);
    const float *piece = piece_of(s, bucket, k, at, n_floats);
    return s->staged[nth].device ? s->staged[nth].sum + *at : piece;
}

void fr__mpi_poll_sums(fr_group *g, int member)
{
    for (fr_sum *s = g->all_sums; s; s = s->next)
        for (int k = 0; k < s->n_members && s->members; k++)
            if (s->members[k] == member && is_here(s, k)) advance_queue(s, k, -1);
}

void fr__mpi_step_sums(fr_group *g)
{
    for (fr_sum *s = g->all_sums; s; s = s->next)
        for (int k = 0; k < s->n_members && s->members; k++)
            for (int i = 0; i < s->n_queued[k] && i < AHEAD; i++)
                step(s, k, s->queue[k * s->n_buckets + i]);
}

void fr__mpi_reset_sums(fr_group *g)
{
    for (fr_sum *s = g->all_sums; s; s = s->next)
        for (int i = 0; i < s->n_members * s->n_buckets && s->jobs; i++) {
            atomic_store(&s->jobs[i].posted, 0);
            atomic_store(&s->jobs[i].summed, 0);
            s->jobs[i].waited = 0;
            s->taking[i % s->n_buckets] = 0;
            s->n_queued[i / s->n_buckets] = 0;
        }
}

void fr__mpi_drop_sums(fr_group *g)
{
    for (fr_sum *s = g->all_sums; s; s = s->next)
        for (int i = 0; i < s->n_members * s->n_buckets && s->jobs; i++) {
            const job *j = &s->jobs[i];
            for (int k = 0; k < 2 * s->n_members + s->n_peers && j->out; k++)
                fr__stream_drop(&j->out[k]); /* and those after them: in, give */
            fr__stream_drop(&s->take[i]);
        }
}
