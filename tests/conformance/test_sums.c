/* test_sums.c -- requirements on the sums of every transport: the bits of a binary tree over the
 * members, for groups of every size, uneven and empty buckets, rounds in which a member has nothing
 * to add, members that are early and late. Blocks are written again as soon as that is allowed, and
 * pieces are read as late as that is allowed, so that small violations of the contract are
 * detected. */
#include <forerun/transport.h>

#include "base/philox.h"
#include "base/thread.h"
#include "support/backend.h"
#include "support/check.h"
#include "support/crew.h"

#include <sched.h>

enum { MAX_MEMBERS = 8, N_BUCKETS = 7, BLOCK = 9000 };
static const size_t edge[N_BUCKETS + 1] = {0, 0, 1, 17, 1000, 1000, 4139, BLOCK};

typedef struct scene {
    const fr_transport *t;
    fr_ctx *ctx;
    fr_group *g;
    fr_sum *sum;
    int n_members, n_rounds;
    int members[MAX_MEMBERS];
    fr_device *dev[MAX_MEMBERS]; /* of those that live here */
    float *block[MAX_MEMBERS];   /* on it */
    char *room[MAX_MEMBERS];
    size_t room_bytes[MAX_MEMBERS];
} scene;

typedef struct member {
    scene *s;
    int nth;
    uint64_t draws;
    float host[BLOCK];
    char says[160]; /* "" if all was well */
    pthread_t thread;
} member;

#define NOTE(m, ...) (snprintf((m)->says, sizeof(m)->says, __VA_ARGS__), false)

static void delay(member *m)
{
    uint32_t r[4];
    fr__random4(5, FR_STREAM_SYNTHETIC, (uint32_t)m->nth, m->draws++, 0, r);
    if (r[0] % 4 == 0) sched_yield();
    if (r[0] % 64 == 0) fr__sleep_ns(1000 * (r[0] >> 8) % 60000);
}

/* The term of the nth member at place i in a round: numbers whose sum depends on its order. */
static float term(int nth, int round, size_t i)
{
    uint32_t h = (uint32_t)(i * 2654435761u) ^ (uint32_t)(round * 40503 + nth * 9176);
    h ^= h >> 15, h *= 0x2c1b3c6du, h ^= h >> 12;
    return ((float)(h & 0xffff) - 32768) * (h & 0x10000 ? 0x1p-10f : 0x1p10f); /* exact */
}

static float by_hand(int n_members, int a, int s, int round, size_t i)
{
    if (a + s >= n_members) return term(a, round, i);
    return by_hand(n_members, a, 2 * s, round, i) + by_hand(n_members, a + s, 2 * s, round, i);
}

/* Whether the nth member has something to add; in most rounds of most buckets all have. */
static bool is_alive_at(int nth, int round, int bucket)
{
    return (round * 7 + bucket * 3 + nth) % 11 != 5;
}

static bool is_sum_alive(const scene *s, int round, int bucket)
{
    for (int k = 0; k < s->n_members; k++)
        if (!is_alive_at(k, round, bucket)) return false;
    return true;
}

static int bucket_at(int round, int i) { return round % 2 ? i : N_BUCKETS - 1 - i; }

static void fill(member *m, int round, int bucket)
{
    size_t begin = edge[bucket], end = edge[bucket + 1];
    for (size_t i = begin; i < end; i++) m->host[i] = term(m->nth, round, i);
    device_put(m->s->dev[m->nth], m->s->block[m->nth] + begin, m->host + begin, end - begin);
}

/* Sums are in other memory. */
static bool is_untouched(member *m, int round, int bucket)
{
    size_t begin = edge[bucket], end = edge[bucket + 1];
    device_get(m->s->dev[m->nth], m->host + begin, m->s->block[m->nth] + begin, end - begin);
    for (size_t i = begin; i < end; i++)
        if (m->host[i] != term(m->nth, round, i))
            return NOTE(m, "round %d, bucket %d: float %zu of its block was changed", round, bucket,
                        i);
    return true;
}

static bool check(member *m, int round, int bucket)
{
    scene *s = m->s;
    size_t next = edge[bucket];
    if (round < 0 || !is_sum_alive(s, round, bucket)) return true;
    for (int k = 0; k < s->n_members; k++) {
        size_t at, n;
        const float *piece = s->t->sum_piece(s->sum, m->nth, bucket, k, &at, &n);
        if (at != next || at + n > edge[bucket + 1])
            return NOTE(m, "bucket %d: piece %d is %zu floats at %zu", bucket, k, n, at);
        device_get(s->dev[m->nth], m->host, piece, n);
        for (size_t i = 0; i < n; i++) {
            float right = by_hand(s->n_members, 0, 1, round, at + i);
            if (m->host[i] != right)
                return NOTE(m, "round %d, bucket %d, float %zu: %.9g, should be %.9g", round,
                            bucket, at + i, (double)m->host[i], (double)right);
        }
        next = at + n;
    }
    return next == edge[bucket + 1] || NOTE(m, "bucket %d: pieces end at %zu", bucket, next);
}

static bool run_round(member *m, int round)
{
    scene *s = m->s;
    for (int i = 0; i < N_BUCKETS; i++) {
        int b = bucket_at(round, i);
        delay(m);
        if (!check(m, round - 1, b)) return false;
        s->t->sum_post(s->sum, m->nth, b, is_alive_at(m->nth, round, b));
    }
    for (int i = 0; i < N_BUCKETS; i++) {
        int b = bucket_at(round, i);
        bool is_alive;
        delay(m);
        if (i % 3 == 1) s->t->poll(s->g, s->members[m->nth]);
        if (s->t->sum_wait(s->sum, m->nth, b, &is_alive)) return NOTE(m, "round %d", round);
        if (is_alive != is_sum_alive(s, round, b))
            return NOTE(m, "round %d, bucket %d: alive is %d", round, b, is_alive);
        if (!is_untouched(m, round, b)) return false;
        fill(m, round + 1, b);
    }
    return true;
}

static void *member_main(void *arg)
{
    member *m = arg;
    for (int b = 0; b < N_BUCKETS; b++) fill(m, 0, b);
    for (int round = 0; round < m->s->n_rounds; round++)
        if (!run_round(m, round)) {
            m->s->t->abort(m->s->g); /* the others would wait for it for ever */
            break;
        }
    return NULL;
}

/* The members of the sum are the last ones of the group, the last one first; at least `spare` of
 * the group are not in it. */
static scene open_scene(const fr_transport *t, int n_members, int spare)
{
    scene s = {.t = t, .n_members = n_members, .ctx = fr_ctx_create()};
    int n = crew_fit(n_members + spare);
    assert_non_null(s.ctx);
    assert_ok(s.ctx, t->open(s.ctx, crew_team(), n, &s.g));
    for (int k = 0; k < n_members; k++) s.members[k] = n - 1 - k;
    fr_sum_desc d = {n_members, s.members, N_BUCKETS, edge, s.block, s.room, s.dev, false};
    for (int k = 0; k < n_members; k++) {
        if (!crew_has(t, s.g, s.members[k])) continue;
        fr_device_desc device = {.n_threads = 1};
        assert_ok(s.ctx, fr_device_open(s.ctx, test_backend("ref"), &device, &s.dev[k]));
        s.room_bytes[k] = t->sum_room(s.g, &d, k);
        s.block[k] = device_floats(s.dev[k], BLOCK);
        s.room[k] = (char *)device_floats(s.dev[k], s.room_bytes[k] / sizeof(float));
    }
    assert_ok(s.ctx, t->add_sum(s.g, &d, &s.sum));
    return s;
}

static void close_scene(scene *s)
{
    s->t->close(s->g);
    for (int k = 0; k < s->n_members; k++) {
        if (!s->dev[k]) continue;
        fr_device_release(s->dev[k], s->block[k], BLOCK * sizeof(float));
        fr_device_release(s->dev[k], s->room[k], s->room_bytes[k]);
        fr_device_close(s->dev[k]);
    }
    fr_ctx_free(s->ctx);
}

static void play(scene *s, int n_rounds)
{
    static member members[MAX_MEMBERS];
    bool is_well = true;
    s->n_rounds = n_rounds;
    for (int k = 0; k < s->n_members; k++) {
        members[k] = (member){.s = s, .nth = k};
        if (s->block[k])
            assert_int_equal(pthread_create(&members[k].thread, NULL, member_main, &members[k]), 0);
    }
    for (int k = 0; k < s->n_members; k++)
        if (s->block[k]) pthread_join(members[k].thread, NULL);
    for (int k = 0; k < s->n_members; k++)
        if (members[k].says[0]) {
            print_error("%s, member %d of %d: %s (%s)\n", s->t->name, k, s->n_members,
                        members[k].says, fr_ctx_error(s->ctx));
            is_well = false;
        }
    crew_meet(is_well);
}

static void sums_have_the_bits_of_the_tree(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(t) for (int n = 1; n <= MAX_MEMBERS; n++)
    {
        scene s = open_scene(t, n, n % 2);
        uint64_t before = fr__alloc_count();
        play(&s, crew_team() ? 12 : 23); /* who is alive repeats after 11 */
        if (!crew_team()) assert_int_equal(fr__alloc_count(), before);
        t->reset(s.g);
        crew_meet(true);
        play(&s, 4);
        close_scene(&s);
    }
}

static void abort_ends_a_wait(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(t)
    {
        scene s = open_scene(t, 2, 0);
        bool is_alive;
        if (s.block[0]) t->sum_post(s.sum, 0, 3, true);
        t->abort(s.g);
        if (s.block[0]) assert_int_equal(t->sum_wait(s.sum, 0, 3, &is_alive), FR_PEER);
        assert_int_equal(fr_ctx_status(s.ctx), FR_OK);
        crew_meet(true);
        close_scene(&s);
    }
}

static void misuse_is_told(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(t)
    {
        scene s = open_scene(t, 2, 1);
        bool is_alive;
        fr_sum *sum;
        assert_fails(s.ctx, t->sum_wait(s.sum, 0, 3, &is_alive), FR_INTERNAL,
                     "worker 2 waits for the sum of bucket 3 in round 0");
        int twice[] = {1, 1}, unknown[] = {0, 3};
        size_t falling[] = {0, 5, 4};
        fr_sum_desc good = {2, s.members, N_BUCKETS, edge, s.block, s.room, s.dev, false}, d = good;
        d.members = twice;
        assert_fails(s.ctx, t->add_sum(s.g, &d, &sum), FR_INVALID, "already in it");
        d.members = unknown;
        assert_fails(s.ctx, t->add_sum(s.g, &d, &sum), FR_INVALID, "not in the group");
        d = good, d.n_buckets = 2, d.edge = falling;
        assert_fails(s.ctx, t->add_sum(s.g, &d, &sum), FR_INVALID, "ascend");
        d = good, d.n_buckets = 0;
        assert_fails(s.ctx, t->add_sum(s.g, &d, &sum), FR_INVALID, "0 buckets");
        close_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_the_tree),
        cmocka_unit_test(abort_ends_a_wait),
    };
    const struct CMUnitTest of_one_process[] = {cmocka_unit_test(misuse_is_told)};
    crew_join();
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!crew_team()) n_failed += cmocka_run_group_tests(of_one_process, NULL, NULL);
    return crew_leave(n_failed);
}
