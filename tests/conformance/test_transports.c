/* test_transports.c -- requirements on every transport: messages in order with their contents,
 * buffers freed in any order, boards round after round, waits that end when the group is aborted,
 * and a group as good as new after a reset. Members are threads, of one process or (if mpirun
 * starts this) of several; they record failures, and the test's thread checks them. */
#include <forerun/transport.h>

#include "base/philox.h"
#include "base/thread.h"
#include "support/backend.h"
#include "support/check.h"
#include "support/crew.h"

#include <sched.h>

enum {
    MAX_MEMBERS = 8,
    MAX_MESSAGES = 1000,
    MAX_BUFFERS = 5,
    BYTES = 192,
    STRIDE = 256,
    BIG = 1 << 20
};

/* State shared by the members. */
typedef struct scene {
    const fr_transport *t;
    fr_ctx *ctx;
    fr_group *g;
    int n_members, n_rounds;
    fr_channel *channel[MAX_MEMBERS][MAX_MEMBERS]; /* [from][to] */
    fr_channel *big; /* one buffer of BIG bytes, from the first member to the last */
    fr_board *board;
    bool with_delays;
    int n_received; /* by the last member, if it counts */
    fr_device *dev;
    char *memory, *landing; /* of all channels, on the device */
    size_t bytes;           /* of each */
} scene;

typedef struct member {
    scene *s;
    int index;
    uint64_t draws;
    fr_status status;
    char says[160]; /* "" if all was well */
    pthread_t thread;
    const char *(*run)(struct member *m);
} member;

#define NOTE(m, ...) (snprintf((m)->says, sizeof(m)->says, __VA_ARGS__), "")

static uint32_t draw(member *m)
{
    uint32_t r[4];
    fr__random4(11, FR_STREAM_SYNTHETIC, (uint32_t)m->index, m->draws++, 0, r);
    return r[0];
}

static void delay(member *m)
{
    if (!m->s->with_delays) return;
    uint32_t r = draw(m);
    if (r % 8 == 0) sched_yield();
    if (r % 64 == 0) fr__sleep_ns(1000 * (r >> 8) % 60000);
}

/* Processes that share cores wait for a core nearly every time. */
static int fewer(int n) { return crew_team() ? n / 5 : n; }

/* --- scenes ---------------------------------------------------------------------------------- */

static scene open_scene(const fr_transport *t, int n_members, int n_buffers, bool all_to_all)
{
    scene s = {.t = t, .n_members = n_members, .ctx = fr_ctx_create()};
    assert_non_null(s.ctx);
    assert_ok(s.ctx, t->open(s.ctx, crew_team(), n_members, &s.g));
    size_t each = (size_t)n_buffers * STRIDE;
    fr_device_desc device = {.n_threads = 1};
    assert_ok(s.ctx, fr_device_open(s.ctx, test_backend("ref"), &device, &s.dev));
    s.bytes = (size_t)(n_members * n_members) * each;
    s.memory = (char *)device_floats(s.dev, s.bytes / sizeof(float));
    s.landing = (char *)device_floats(s.dev, s.bytes / sizeof(float));
    for (int from = 0; from < n_members; from++)
        for (int to = 0; to < n_members; to++) {
            if (!all_to_all && to != (from + 1) % n_members) continue;
            bool is_near = crew_has(t, s.g, from), is_far = !is_near && crew_has(t, s.g, to);
            size_t at = (size_t)(from * n_members + to) * each;
            fr_channel_desc d = {from, to, n_buffers, BYTES, STRIDE, NULL, NULL, s.dev};
            if (is_near) d.memory = s.memory + at;
            if (is_far) d.landing = s.landing + at;
            assert_ok(s.ctx, t->add_channel(s.g, &d, &s.channel[from][to]));
        }
    return s;
}

static void close_scene(scene *s)
{
    s->t->close(s->g);
    fr_device_release(s->dev, s->memory, s->bytes);
    fr_device_release(s->dev, s->landing, s->bytes);
    fr_device_close(s->dev);
    fr_ctx_free(s->ctx);
}

static char *buffer_of(const scene *s, int from, int to, int n_buffers, int b)
{
    return s->memory + (size_t)((from * s->n_members + to) * n_buffers + b) * STRIDE;
}

static void *member_main(void *arg)
{
    member *m = arg;
    m->run(m);
    if (m->says[0]) m->s->t->abort(m->s->g); /* the others would wait for it for ever */
    return NULL;
}

/* Two runs are those of the first and of the last member, however many are between them. */
static void start(scene *s, member *members, const char *(*const *runs)(member *), int n_runs)
{
    for (int i = 0; i < s->n_members; i++) {
        int nth = n_runs == 2 ? i == s->n_members - 1 : i % n_runs;
        members[i] = (member){.s = s, .index = i, .run = runs[nth]};
        if (!crew_has(s->t, s->g, i)) continue;
        assert_int_equal(pthread_create(&members[i].thread, NULL, member_main, &members[i]), 0);
    }
}

static void join(scene *s, member *members)
{
    for (int i = 0; i < s->n_members; i++)
        if (crew_has(s->t, s->g, i)) pthread_join(members[i].thread, NULL);
}

/* All members run to their end without a fault. */
static void play(scene *s, const char *(*const *runs)(member *), int n_runs)
{
    member members[MAX_MEMBERS];
    bool is_well = true;
    start(s, members, runs, n_runs);
    join(s, members);
    for (int i = 0; i < s->n_members; i++) is_well &= !members[i].says[0];
    if (is_well) {
        crew_meet(true);
        return;
    }
    for (int lost = 0; lost < 2; lost++) /* a cause before its consequences */
        for (int i = 0; i < s->n_members; i++)
            if (members[i].says[0] && (lost || members[i].status != FR_PEER))
                fail_msg("%s, member %d: %s (status %d, %s)", s->t->name, i, members[i].says,
                         (int)members[i].status, fr_ctx_error(s->ctx));
}

/* Message `n` from a to b, filled and checked byte by byte. */
static uint8_t letter(int from, int to, int n, int i)
{
    return (uint8_t)(n * 31 + from * 7 + to * 3 + i);
}

static void write_letters(char *host, int from, int to, int n)
{
    for (int i = 0; i < BYTES; i++) host[i] = (char)letter(from, to, n, i);
}

static bool are_letters(const void *host, int from, int to, int n, size_t n_bytes)
{
    const uint8_t *bytes = host;
    for (int i = 0; i < (int)n_bytes; i++)
        if (bytes[i] != letter(from, to, n, i)) return false;
    return true;
}

static void fill(const scene *s, char *data, int from, int to, int n)
{
    char host[BYTES];
    write_letters(host, from, to, n);
    assert_int_equal(fr_device_upload(s->dev, data, host, BYTES), FR_OK);
}

static bool is_filled(const scene *s, const void *data, int from, int to, int n, size_t n_bytes)
{
    char host[BYTES];
    return fr_device_download(s->dev, host, data, n_bytes) == FR_OK &&
           are_letters(host, from, to, n, n_bytes);
}

/* --- one channel ----------------------------------------------------------------------------- */

static void assert_all_received(const scene *s, int n)
{
    if (crew_has(s->t, s->g, s->n_members - 1)) assert_int_equal(s->n_received, n);
}

/* From the first member to the last, which are in different processes if there are several. */
static fr_channel *first_to_last(const scene *s) { return s->channel[0][s->n_members - 1]; }

static size_t length_of(int n) { return n % 7 == 3 ? 0 : (size_t)(n * 37) % (BYTES + 1); }

static const char *send_in_turn(member *m)
{
    scene *s = m->s;
    int last = s->n_members - 1;
    for (int n = 0; n < s->n_rounds && m->index == 0; n++) {
        int b = n % 3;
        delay(m);
        if ((m->status = s->t->acquire(first_to_last(s), b))) return NOTE(m, "acquire %d", n);
        fill(s, buffer_of(s, 0, last, 3, b), 0, last, n);
        s->t->send(first_to_last(s), b, length_of(n));
    }
    return NULL;
}

static const char *receive_in_turn(member *m)
{
    scene *s = m->s;
    int last = s->n_members - 1;
    for (int n = 0; n < s->n_rounds; n++) {
        const void *data;
        size_t n_bytes;
        delay(m);
        if ((m->status = s->t->receive(first_to_last(s), n % 3, &data, &n_bytes)))
            return NOTE(m, "receive %d", n);
        if (n_bytes != length_of(n)) return NOTE(m, "message %d: %zu bytes", n, n_bytes);
        if (crew_has(s->t, s->g, 0) && data != buffer_of(s, 0, last, 3, n % 3))
            return NOTE(m, "message %d was copied", n);
        delay(m);
        if (!is_filled(s, data, 0, last, n, n_bytes))
            return NOTE(m, "message %d has the wrong contents", n);
        s->t->release(first_to_last(s), n % 3);
        s->n_received++;
    }
    return NULL;
}

static void messages_arrive_in_order_and_nothing_is_allocated(void **state)
{
    (void)state;
    static const char *(*const runs[])(member *) = {send_in_turn, receive_in_turn};
    FOR_EACH_TRANSPORT(t) for (int with_delays = 0; with_delays < 2; with_delays++)
    {
        scene s = open_scene(t, crew_fit(2), 3, true);
        s.n_rounds = fewer(MAX_MESSAGES), s.with_delays = with_delays;
        uint64_t before = fr__alloc_count();
        play(&s, runs, 2);
        assert_all_received(&s, s.n_rounds);
        if (!crew_team()) assert_int_equal(fr__alloc_count(), before);
        close_scene(&s);
    }
}

static void a_member_may_send_to_itself(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(t)
    {
        scene s = open_scene(t, crew_fit(1), 2, true);
        for (int n = 0; n < 10 && crew_has(t, s.g, 0); n++) {
            const void *data;
            size_t n_bytes;
            assert_ok(s.ctx, t->acquire(s.channel[0][0], n % 2));
            fill(&s, buffer_of(&s, 0, 0, 2, n % 2), 0, 0, n);
            t->send(s.channel[0][0], n % 2, BYTES);
            assert_ok(s.ctx, t->receive(s.channel[0][0], n % 2, &data, &n_bytes));
            assert_true(is_filled(&s, data, 0, 0, n, BYTES));
            t->release(s.channel[0][0], n % 2);
        }
        crew_meet(true);
        close_scene(&s);
    }
}

/* --- buffers in any order -------------------------------------------------------------------- */

/* A single timeline of sends, receives and releases in a random but valid order; each member
 * executes its own part, so that no deadlock is possible. */
static struct {
    int n;
    struct {
        char what; /* 's'end, 'r'eceive, 'f'ree */
        int message, buffer;
    } at[3 * MAX_MESSAGES];
} story;

static void write_story(int n_messages, uint32_t seed)
{
    int owner[MAX_BUFFERS], buffer[MAX_MESSAGES], n_sent = 0, n_received = 0, n_freed = 0;
    for (int b = 0; b < MAX_BUFFERS; b++) owner[b] = -1;
    story.n = 0;
    for (uint64_t i = 0; n_freed < n_messages; i++) {
        uint32_t r[4];
        fr__random4(seed, FR_STREAM_SYNTHETIC, 0, i, 0, r);
        int b = (int)(r[1] % MAX_BUFFERS);
        char what = "srf"[r[0] % 3];
        int message = what == 's' ? n_sent : what == 'r' ? n_received : owner[b];
        if (what == 's' && owner[b] < 0 && n_sent < n_messages)
            owner[b] = message, buffer[message] = b, n_sent++;
        else if (what == 'r' && n_received < n_sent)
            b = buffer[message], n_received++;
        else if (what == 'f' && owner[b] >= 0 && owner[b] < n_received)
            owner[b] = -1, n_freed++;
        else
            continue;
        story.at[story.n].what = what, story.at[story.n].message = message;
        story.at[story.n++].buffer = b;
    }
}

static const char *send_by_story(member *m)
{
    scene *s = m->s;
    int last = s->n_members - 1;
    for (int i = 0; i < story.n && m->index == 0; i++) {
        int b = story.at[i].buffer;
        if (story.at[i].what != 's') continue;
        delay(m);
        if ((m->status = s->t->acquire(first_to_last(s), b))) return NOTE(m, "line %d", i);
        fill(s, buffer_of(s, 0, last, MAX_BUFFERS, b), 0, last, story.at[i].message);
        s->t->send(first_to_last(s), b, BYTES);
    }
    return NULL;
}

static const char *receive_by_story(member *m)
{
    scene *s = m->s;
    const void *held[MAX_BUFFERS];
    size_t n_bytes;
    int last = s->n_members - 1;
    for (int i = 0; i < story.n; i++) {
        int b = story.at[i].buffer;
        delay(m);
        if (story.at[i].what == 'r') {
            if ((m->status = s->t->receive(first_to_last(s), b, &held[b], &n_bytes)))
                return NOTE(m, "line %d", i);
        } else if (story.at[i].what == 'f') {
            /* Checked as late as possible: no member may have written to it meanwhile. */
            if (!is_filled(s, held[b], 0, last, story.at[i].message, BYTES))
                return NOTE(m, "line %d: message %d was overwritten", i, story.at[i].message);
            s->t->release(first_to_last(s), b);
            s->n_received++;
        }
    }
    return NULL;
}

static void buffers_are_freed_in_any_order(void **state)
{
    (void)state;
    static const char *(*const runs[])(member *) = {send_by_story, receive_by_story};
    FOR_EACH_TRANSPORT(t) for (uint32_t seed = 0; seed < 6; seed++)
    {
        scene s = open_scene(t, crew_fit(2), MAX_BUFFERS, true);
        s.with_delays = seed % 2;
        write_story(fewer(300), seed);
        play(&s, runs, 2);
        assert_all_received(&s, fewer(300));
        close_scene(&s);
    }
}

/* --- many channels, boards ------------------------------------------------------------------- */

static const char *exchange(member *m)
{
    scene *s = m->s;
    for (int n = 0; n < s->n_rounds; n++) {
        int b = n % 2, me = m->index;
        for (int to = 0; to < s->n_members; to++) {
            delay(m);
            if ((m->status = s->t->acquire(s->channel[me][to], b)))
                return NOTE(m, "round %d, acquire for %d", n, to);
            fill(s, buffer_of(s, me, to, 2, b), me, to, n);
            s->t->send(s->channel[me][to], b, BYTES);
        }
        for (int from = 0; from < s->n_members; from++) {
            const void *data;
            size_t n_bytes;
            if ((m->status = s->t->receive(s->channel[from][me], b, &data, &n_bytes)))
                return NOTE(m, "round %d, receive from %d", n, from);
            if (n_bytes != BYTES || !is_filled(s, data, from, me, n, BYTES))
                return NOTE(m, "round %d: wrong contents from %d, %zu bytes", n, from, n_bytes);
            s->t->release(s->channel[from][me], b);
        }
    }
    return NULL;
}

static void many_channels_at_once(void **state)
{
    (void)state;
    static const char *(*const runs[])(member *) = {exchange};
    FOR_EACH_TRANSPORT(t) for (int n = 1; n <= 6; n += n < 2 ? 1 : 4)
    {
        scene s = open_scene(t, crew_fit(n), 2, true);
        s.n_rounds = fewer(100), s.with_delays = true;
        play(&s, runs, 1);
        t->reset(s.g);
        crew_meet(true);
        s.n_rounds = 5;
        play(&s, runs, 1);
        close_scene(&s);
    }
}

/* Parts of a board; member 1 has three, member 4 has a large one, member 5 has none. */
static const size_t part_bytes[] = {8, 40, 8, 72, 16, 4096, 8};
static const int part_owner[] = {0, 1, 1, 2, 3, 4, 1};
enum { N_PARTS = sizeof part_owner / sizeof *part_owner };

static void add_board(scene *s)
{
    assert_ok(s->ctx, s->t->add_board(s->g, N_PARTS, part_bytes, part_owner, &s->board));
}

static const char *post_and_read(member *m)
{
    scene *s = m->s;
    if (m->index >= 5) return NULL;
    for (int64_t round = 0; round < s->n_rounds; round++) {
        for (int p = 0; p < N_PARTS; p++) {
            if (part_owner[p] != m->index) continue;
            int64_t *part = s->t->board_part(s->board, round, p);
            delay(m);
            for (size_t i = 0; i < part_bytes[p] / 8; i++) part[i] = round * 1000 + p;
            s->t->board_post(s->board, round, p);
        }
        delay(m);
        if ((m->status = s->t->board_wait(s->board, round, m->index)))
            return NOTE(m, "round %d", (int)round);
        for (int p = 0; p < N_PARTS; p++) {
            const int64_t *part = s->t->board_part(s->board, round, p);
            for (size_t i = 0; i < part_bytes[p] / 8; i++)
                if (part[i] != round * 1000 + p)
                    return NOTE(m, "round %d, part %d reads %lld", (int)round, p,
                                (long long)part[i]);
        }
    }
    return NULL;
}

static void boards_over_many_rounds(void **state)
{
    (void)state;
    static const char *(*const runs[])(member *) = {post_and_read};
    FOR_EACH_TRANSPORT(t) for (int with_delays = 0; with_delays < 2; with_delays++)
    {
        scene s = open_scene(t, crew_fit(6), 1, false);
        add_board(&s);
        for (int n = fewer(300); n > 0; n = n > 9 ? 9 : 0) { /* an even and an odd number */
            s.n_rounds = n, s.with_delays = with_delays;
            play(&s, runs, 1);
            t->reset(s.g);
            crew_meet(true);
        }
        close_scene(&s);
    }
}

/* --- abort and reset ------------------------------------------------------------------------- */

/* A member that does not come back is never joined. */
static void assert_all_lost(scene *s, member *members)
{
    join(s, members);
    for (int i = 0; i < s->n_members; i++)
        if (crew_has(s->t, s->g, i) && members[i].status != FR_PEER)
            fail_msg("%s, member %d: status %d, %s", s->t->name, i, (int)members[i].status,
                     members[i].says);
    assert_true(s->t->is_aborted(s->g));
    assert_int_equal(fr_ctx_status(s->ctx), FR_OK); /* words are the caller's */
}

static void abort_at_any_moment_then_reset(void **state)
{
    (void)state;
    static const char *(*const runs[])(member *) = {exchange};
    FOR_EACH_TRANSPORT(t)
    {
        scene s = open_scene(t, 4, 2, true);
        s.with_delays = true;
        for (int i = 0; i < 25; i++) {
            member members[MAX_MEMBERS];
            uint32_t r[4];
            fr__random4(3, FR_STREAM_SYNTHETIC, 0, (uint64_t)i, 0, r);
            assert_false(t->is_aborted(s.g));
            s.n_rounds = 1 << 30;
            start(&s, members, runs, 1);
            fr__sleep_ns(r[0] % 3000000);
            t->abort(s.g);
            assert_all_lost(&s, members);
            t->reset(s.g);
            s.n_rounds = 20;
            play(&s, runs, 1);
            t->reset(s.g);
        }
        close_scene(&s);
    }
}

/* Between processes a buffer is free when its message has been sent, so the first wait ends at
 * once: the receive is posted. */
static const char *wait_for_a_buffer(member *m)
{
    while (m->status == FR_OK) {
        m->s->t->send(m->s->big, 0, BIG);
        m->status = m->s->t->acquire(m->s->big, 0);
    }
    return NULL;
}

static const char *wait_for_a_message(member *m)
{
    const void *data;
    size_t n_bytes;
    m->status = m->s->t->receive(m->s->channel[4][1], 0, &data, &n_bytes);
    return NULL;
}

static const char *wait_for_the_board(member *m)
{
    m->s->t->board_post(m->s->board, 0, 3);
    m->status = m->s->t->board_wait(m->s->board, 0, 2);
    return NULL;
}

static const char *wait_for_nothing(member *m)
{
    m->status = FR_PEER;
    return NULL;
}

static void add_big(scene *s, char *memory)
{
    fr_channel_desc d = {0, s->n_members - 1, 1, BIG, BIG, NULL, NULL, NULL};
    if (crew_has(s->t, s->g, d.from))
        d.memory = memory;
    else if (crew_has(s->t, s->g, d.to))
        d.landing = memory;
    assert_ok(s->ctx, s->t->add_channel(s->g, &d, &s->big));
}

static void abort_ends_each_kind_of_wait(void **state)
{
    (void)state;
    static char memory[BIG];
    static const char *(*const runs[])(member *) = {
        wait_for_a_buffer, wait_for_a_message, wait_for_the_board, wait_for_nothing,
        wait_for_nothing,  wait_for_nothing,   wait_for_nothing,   wait_for_nothing};
    FOR_EACH_TRANSPORT(t) for (int ms = 0; ms < 30; ms += 10)
    {
        scene s = open_scene(t, crew_fit(5), 1, true);
        member members[MAX_MEMBERS];
        const void *data;
        size_t n_bytes;
        add_board(&s);
        add_big(&s, memory);
        start(&s, members, runs, 8);
        fr__sleep_ns((uint64_t)ms * 1000000); /* 0: perhaps before they wait */
        t->abort(s.g);
        assert_all_lost(&s, members);
        if (crew_has(t, s.g, 1))
            assert_int_equal(t->receive(s.channel[4][1], 0, &data, &n_bytes), FR_PEER);
        if (crew_has(t, s.g, 0)) assert_int_equal(t->acquire(s.big, 0), FR_PEER);
        if (crew_has(t, s.g, 2)) assert_int_equal(t->board_wait(s.board, 0, 2), FR_PEER);
        crew_meet(true);
        close_scene(&s);
    }
}

/* --- faults of the caller -------------------------------------------------------------------- */

static void different_schedules_are_told(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(t)
    {
        scene s = open_scene(t, 2, 2, true);
        const void *data;
        size_t n_bytes;
        t->send(s.channel[0][1], 1, BYTES);
        assert_fails(s.ctx, t->receive(s.channel[0][1], 0, &data, &n_bytes), FR_INTERNAL,
                     "message 0 from worker 0 to worker 1 came in buffer 1, expected in 0");
        assert_ok(s.ctx, t->receive(s.channel[0][1], 1, &data, &n_bytes));
        t->send(s.channel[0][1], 1, BYTES); /* it has not been released */
        assert_fails(s.ctx, t->receive(s.channel[0][1], 1, &data, &n_bytes), FR_INTERNAL,
                     "sent while in use");
        close_scene(&s);
    }
}

static void misuse_of_a_board_is_told(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(t)
    {
        scene s = open_scene(t, 6, 1, false);
        add_board(&s);
        assert_fails(s.ctx, t->board_wait(s.board, 0, 5), FR_INTERNAL, "worker 5");
        for (int64_t round = 0; round < 3; round++)
            for (int p = 0; p < N_PARTS; p++) t->board_post(s.board, round, p);
        assert_fails(s.ctx, t->board_wait(s.board, 0, 0), FR_INTERNAL, "is in round 2");
        assert_ok(s.ctx, t->board_wait(s.board, 1, 0));
        close_scene(&s);
    }
}

/* These two have not described the same channel. */
static void a_message_that_does_not_fit_is_told(void **state)
{
    (void)state;
    static char memory[BYTES];
    FOR_EACH_TRANSPORT(t)
    {
        scene s = open_scene(t, crew_fit(2), 1, false);
        int last = s.n_members - 1;
        bool is_sender = crew_has(t, s.g, 0), is_receiver = crew_has(t, s.g, last);
        fr_channel_desc d = {0, last, 1, BYTES, BYTES, memory, NULL, NULL};
        fr_channel *c;
        const void *data;
        size_t n_bytes;
        if (is_receiver) d.memory = NULL, d.landing = memory, d.bytes = BYTES / 2;
        assert_ok(s.ctx, t->add_channel(s.g, &d, &c));
        if (is_sender) t->send(c, 0, BYTES);
        if (is_receiver) {
            assert_int_equal(t->receive(c, 0, &data, &n_bytes), FR_PEER);
            assert_null(strchr(fr_ctx_error(s.ctx), '\n')); /* an MPI may have much to say */
            assert_non_null(strstr(fr_ctx_error(s.ctx), "truncated"));
            assert_fails(s.ctx, t->receive(c, 0, &data, &n_bytes), FR_PEER,
                         "a message from rank 0 failed: MPI says ");
        }
        crew_meet(true);
        close_scene(&s);
    }
}

/* MPI may give a communicator the number of one that was freed, and with it the messages that were
 * not received there. */
static void a_group_has_its_own_messages_only(void **state)
{
    (void)state;
    static char memory[3][BYTES], landing[BYTES];
    FOR_EACH_TRANSPORT(t) for (int n = 0; n < 3; n++)
    {
        scene s = open_scene(t, crew_fit(2), 1, false);
        int last = s.n_members - 1;
        bool is_sender = crew_has(t, s.g, 0), is_receiver = crew_has(t, s.g, last);
        fr_channel_desc d = {0, last, 3, BYTES, BYTES, is_sender ? memory[0] : NULL, NULL, NULL};
        fr_channel *c;
        const void *data;
        size_t n_bytes;
        if (is_receiver) d.landing = landing, d.n_buffers = 1; /* two more come than are received */
        assert_ok(s.ctx, t->add_channel(s.g, &d, &c));
        for (int b = 0; b < 3 && is_sender; b++) {
            write_letters(memory[b], 0, last, 3 * n + b);
            t->send(c, b, BYTES);
        }
        if (is_receiver) {
            assert_ok(s.ctx, t->receive(c, 0, &data, &n_bytes));
            if (!are_letters(data, 0, last, 3 * n, BYTES))
                fail_msg("%s, group %d: a message of one before it", t->name, n);
        }
        for (int b = 0; b < 3 && is_sender; b++) assert_ok(s.ctx, t->acquire(c, b));
        crew_meet(true);
        close_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order_and_nothing_is_allocated),
        cmocka_unit_test(a_member_may_send_to_itself),
        cmocka_unit_test(buffers_are_freed_in_any_order),
        cmocka_unit_test(many_channels_at_once),
        cmocka_unit_test(boards_over_many_rounds),
        cmocka_unit_test(abort_ends_each_kind_of_wait),
    };
    const struct CMUnitTest of_one_process[] = {
        cmocka_unit_test(abort_at_any_moment_then_reset),
        cmocka_unit_test(different_schedules_are_told),
        cmocka_unit_test(misuse_of_a_board_is_told),
    };
    const struct CMUnitTest of_several[] = {
        cmocka_unit_test(a_message_that_does_not_fit_is_told),
        cmocka_unit_test(a_group_has_its_own_messages_only),
    };
    crew_join();
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    n_failed += crew_team() ? cmocka_run_group_tests(of_several, NULL, NULL)
                            : cmocka_run_group_tests(of_one_process, NULL, NULL);
    return crew_leave(n_failed);
}
