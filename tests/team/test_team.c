/* test_team.c -- a team without faults: messages, streams, collectives, leaving, and the detection
 * of launchers. */
#include "forked.h"

#include "base/philox.h"

#include <pthread.h>
#include <sched.h>

/* --- messages --------------------------------------------------------------------------------- */

enum { N_MESSAGES = 1500 };

/* Message i between rank 0 and another rank: its number, then bytes derived from it. */
static size_t make_message(uint32_t i, int rank, unsigned char *out)
{
    uint32_t r[4];
    fr__random4(5, FR_STREAM_SYNTHETIC, (uint32_t)rank, i, 0, r);
    size_t bytes = 4 + (i % 100 == 99 ? r[0] % 200000 : r[0] % 300);
    memcpy(out, &i, 4);
    for (size_t k = 4; k < bytes; k++) out[k] = (unsigned char)(r[1] + k * (r[2] | 1));
    return bytes;
}

typedef struct listener {
    member *m;
    loss_record loss_record;
    unsigned char *expected;
    uint32_t n_received[FORKED_MAX], n_received_in_all;
    bool is_echoing;
} listener;

static void on_message(void *user, int from, const void *data, size_t bytes)
{
    listener *l = user;
    member *m = l->m;
    uint32_t i = l->n_received[from]++;
    size_t n = make_message(i, m->rank == 0 ? from : 0, l->expected);
    CHECK(m, bytes == n && memcmp(data, l->expected, n) == 0, "message %u of rank %d, %zu bytes",
          (unsigned)i, from, bytes);
    CHECK(m, (uintptr_t)data % 16 == 0, "not aligned");
    if (l->is_echoing) {
        n = make_message(i, m->rank, l->expected);
        CHECK_OK(m, fr_team_notify(m->team, from, l->expected, n));
    }
    pthread_mutex_lock(&l->loss_record.lock);
    l->n_received_in_all++;
    pthread_cond_broadcast(&l->loss_record.changed);
    pthread_mutex_unlock(&l->loss_record.lock);
}

static void await_messages(listener *l, uint32_t n)
{
    pthread_mutex_lock(&l->loss_record.lock);
    while (l->n_received_in_all < n && l->loss_record.n_lost == 0)
        pthread_cond_wait(&l->loss_record.changed, &l->loss_record.lock);
    pthread_mutex_unlock(&l->loss_record.lock);
    CHECK(l->m, l->n_received_in_all == n && l->loss_record.n_lost == 0, "%u of %u; %s",
          (unsigned)l->n_received_in_all, (unsigned)n, l->loss_record.lost_text);
}

static void notify_both_ways(member *m)
{
    listener l = {.m = m, .expected = fr__alloc(300000)};
    unsigned char *mine = fr__alloc(300000);
    const fr_team_callbacks callbacks = {&l, on_message, record_loss};
    loss_record_init(&l.loss_record);
    /* Some messages arrive before callbacks are set. */
    if (m->rank % 2) fr_team_set_callbacks(m->team, &callbacks);
    for (uint32_t i = 0; i < N_MESSAGES; i++) {
        size_t n = make_message(i, m->rank, mine);
        if (m->rank == 0)
            CHECK_OK(m, fr_team_notify_all(m->team, mine, n));
        else
            CHECK_OK(m, fr_team_notify(m->team, 0, mine, n));
        if (i == N_MESSAGES / 2 && m->rank % 2 == 0) {
            fr__sleep_ns(50000000);
            fr_team_set_callbacks(m->team, &callbacks);
        }
    }
    await_messages(&l, (uint32_t)(m->rank == 0 ? m->size - 1 : 1) * N_MESSAGES);
    fr_team_leave(m->team);
    CHECK(m, l.loss_record.n_lost == 0, "%s", l.loss_record.lost_text);
    fr__free(mine);
    fr__free(l.expected);
}

static void messages_arrive_in_order(void **state)
{
    (void)state;
    for (int size = 2; size <= 8; size += 3)
        forked_run(&(scenario){.size = size, .body = notify_both_ways});
}

/* Rank 1 sends, rank 0 replies from inside its callback, on the control thread. */
static void echo(member *m)
{
    listener l = {.m = m, .expected = fr__alloc(300000), .is_echoing = m->rank == 0};
    unsigned char *mine = fr__alloc(300000);
    const fr_team_callbacks callbacks = {&l, on_message, record_loss};
    loss_record_init(&l.loss_record);
    fr_team_set_callbacks(m->team, &callbacks);
    for (uint32_t i = 0; i < N_MESSAGES && m->rank == 1; i++) {
        CHECK_OK(m, fr_team_notify(m->team, 0, mine, make_message(i, 1, mine)));
        if (i % 3 == 0) await_messages(&l, i + 1);
    }
    await_messages(&l, N_MESSAGES);
    fr_team_leave(m->team);
    fr__free(mine);
    fr__free(l.expected);
}

static void callbacks_may_notify(void **state)
{
    (void)state;
    forked_run(&(scenario){.size = 2, .body = echo});
}

typedef struct large {
    member *m;
    unsigned char *data;
} large;

static void on_large_message(void *user, int from, const void *data, size_t bytes)
{
    large *l = user;
    CHECK(l->m, from == !l->m->rank && memcmp(data, l->data, bytes) == 0, "%zu bytes", bytes);
    atomic_fetch_add(&l->m->s->mark[l->m->rank], 1);
}

static void notify_large(member *m)
{
    const size_t most = (size_t)64 << 20, sizes[] = {1, 0, 5000001, m->rank ? most : 2000, 3};
    large l = {m, fr__alloc(most + 1)};
    const fr_team_callbacks callbacks = {&l, on_large_message, NULL};
    for (size_t i = 0; i < most; i += 61) l.data[i] = (unsigned char)(i * 7 + i / 4096);
    fr_team_set_callbacks(m->team, &callbacks);
    for (int i = 0; i < 5; i++) CHECK_OK(m, fr_team_notify(m->team, !m->rank, l.data, sizes[i]));
    CHECK(m, fr_team_notify(m->team, !m->rank, l.data, most + 1) == FR_INVALID, "not refused");
    CHECK(m, strstr(fr_ctx_error(m->ctx), "67108865 bytes"), "%s", fr_ctx_error(m->ctx));
    forked_await(m->s, m->rank, 5);
    CHECK(m, atomic_load(&m->s->mark[m->rank]) == 5, "not all have come");
    fr_team_leave(m->team);
    fr__free(l.data);
}

static void messages_may_be_large(void **state)
{
    (void)state;
    forked_run(&(scenario){.size = 2, .body = notify_large});
}

/* After warming up, small messages allocate nothing: a training loop may send them. */
enum { N_WARM = 100, N_PINGS = 500 };

static void ping(void *user, int from, const void *data, size_t bytes)
{
    member *m = user;
    if (m->rank == 0) CHECK_OK(m, fr_team_notify(m->team, from, data, bytes));
    atomic_fetch_add(&m->s->mark[m->rank], 1);
}

static void notify_in_place(member *m)
{
    uint64_t n_allocs = 0;
    fr_team_set_callbacks(m->team, &(fr_team_callbacks){m, ping, NULL});
    for (int i = 0; i < N_PINGS; i++) {
        if (m->rank == 1) CHECK_OK(m, fr_team_notify(m->team, 0, &i, sizeof i));
        forked_await(m->s, m->rank, i + 1);
        if (i == N_WARM) n_allocs = fr__alloc_count();
    }
    CHECK(m, fr__alloc_count() == n_allocs, "%d allocations", (int)(fr__alloc_count() - n_allocs));
    fr_team_leave(m->team);
}

static void small_messages_take_no_memory(void **state)
{
    (void)state;
    forked_run(&(scenario){.size = 2, .body = notify_in_place});
}

static void count_in(void *user, int from, const void *data, size_t bytes)
{
    (void)from, (void)data, (void)bytes;
    atomic_int *n_inside = user;
    atomic_fetch_add(n_inside, 1);
    sched_yield();
    atomic_fetch_sub(n_inside, 1);
}

/* Callbacks that were removed are not in use any more: their memory may be freed. */
static void change_callbacks(member *m)
{
    for (int i = 0; i < 3000 && m->rank == 1; i++) {
        CHECK_OK(m, fr_team_notify(m->team, 0, &i, sizeof i));
        if (i % 16 == 0) fr__sleep_ns(100000);
    }
    for (int i = 0; i < 500 && m->rank == 0; i++) {
        atomic_int *n_inside = fr__alloc(sizeof *n_inside);
        fr_team_set_callbacks(m->team, &(fr_team_callbacks){n_inside, count_in, NULL});
        if (i % 2) sched_yield();
        fr_team_set_callbacks(m->team, NULL);
        CHECK(m, atomic_load(n_inside) == 0, "still in use");
        atomic_store(n_inside, 1000000);
        fr__free(n_inside);
    }
    fr_team_leave(m->team);
}

static void callbacks_can_be_removed(void **state)
{
    (void)state;
    forked_run(&(scenario){.size = 2, .body = change_callbacks});
}

/* --- streams ---------------------------------------------------------------------------------- */

enum { BULK = 50 << 20 };

static void fill(uint64_t *data, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) data[i] = (seed + i) * 0x9E3779B97F4A7C15u;
}

static size_t count_wrong(const uint64_t *data, size_t n, uint64_t seed)
{
    size_t n_wrong = 0;
    for (size_t i = 0; i < n; i++) n_wrong += data[i] != (seed + i) * 0x9E3779B97F4A7C15u;
    return n_wrong;
}

typedef struct sending {
    member *m;
    int to;
    const void *data;
} sending;

static void *send_all(void *arg)
{
    sending *s = arg;
    CHECK_OK(s->m, fr_team_send(s->m->team, s->to, s->data, BULK));
    return NULL;
}

/* Both directions at the same time, one rank after the other; agreements do not interfere. */
static void stream(member *m)
{
    const size_t n = BULK / 8;
    uint64_t *out = fr__alloc(BULK), *in = fr__alloc(BULK);
    fill(out, n, (uint64_t)m->rank << 40);
    for (int i = 1; i < m->size; i++) {
        int other = m->rank == 0 ? i : 0;
        bool is_on = m->rank == 0 || m->rank == i;
        sending s = {m, other, out};
        pthread_t thread;
        CHECK(m, !is_on || pthread_create(&thread, NULL, send_all, &s) == 0, "no thread");
        CHECK_OK(m, fr_team_agree(m->team, FR_OK));
        if (!is_on) continue;
        CHECK_OK(m, fr_team_recv(m->team, other, in, BULK));
        pthread_join(thread, NULL);
        size_t n_wrong = count_wrong(in, n, (uint64_t)other << 40);
        CHECK(m, n_wrong == 0, "%zu words wrong", n_wrong);
    }
    CHECK(m, fr_team_send(m->team, m->rank, out, 8) == FR_INVALID, "to itself");
    fr_team_leave(m->team);
    fr__free(in);
    fr__free(out);
}

static void streams_go_both_ways(void **state)
{
    (void)state;
    forked_run(&(scenario){.size = 3, .body = stream});
}

/* --- collectives ------------------------------------------------------------------------------ */

static void agree(member *m)
{
    for (int i = 0; i < 200; i++) CHECK_OK(m, fr_team_agree(m->team, FR_OK));
    for (int who = 0; who < m->size; who++) { /* ranks `who` and, but for the last, the next fail */
        fr_status mine = FR_OK;
        bool is_failed = m->rank == who || m->rank == who + 1;
        if (is_failed) {
            mine = m->rank % 2 ? FR_IO : FR_NO_MEMORY;
            if (who != 2) fr_fail(m->ctx, mine, "the disk of %d is full", m->rank);
        }
        fr_status expected = who % 2 ? FR_IO : FR_NO_MEMORY, got = fr_team_agree(m->team, mine);
        CHECK(m, got == expected, "who %d: %d", who, (int)got);
        char text[200];
        if (who == 2)
            snprintf(text, sizeof text, "%s: out of memory", fr_team_name(m->team, 2));
        else if (is_failed)
            snprintf(text, sizeof text, "the disk of %d is full", m->rank);
        else
            snprintf(text, sizeof text, "%s: the disk of %d is full", fr_team_name(m->team, who),
                     who);
        CHECK(m, strcmp(fr_ctx_error(m->ctx), text) == 0, "'%s', not '%s'", fr_ctx_error(m->ctx),
              text);
        fr_ctx_clear(m->ctx);
    }
    CHECK_OK(m, fr_team_agree(m->team, FR_OK));
    fr_team_leave(m->team);
}

static void ranks_agree(void **state)
{
    (void)state;
    for (int size = 2; size <= 8; size += 3) forked_run(&(scenario){.size = size, .body = agree});
}

static void compare_and_share(member *m)
{
    char host[64], name[200];
    gethostname(host, sizeof host);
    CHECK_OK(m, fr_team_same(m->team, "the config", 42));
    for (int i = 1; i < m->size; i++) {
        fr_status got = fr_team_same(m->team, "the config", m->rank >= i ? 7 : 42);
        snprintf(name, sizeof name,
                 "the config of rank %d (host %s, process %d) is not that of "
                 "rank 0 (",
                 i, host, (int)m->s->pid[i]);
        CHECK(m, got == FR_INVALID && strstr(fr_ctx_error(m->ctx), name) == fr_ctx_error(m->ctx),
              "%d: %s", (int)got, fr_ctx_error(m->ctx));
        fr_ctx_clear(m->ctx);
    }
    uint64_t *data = fr__alloc(3 << 20);
    const size_t n = (3 << 20) / 8;
    for (uint64_t seed = 0; seed < 5; seed++) {
        fill(data, n, m->rank == 0 ? seed : 999);
        CHECK_OK(m, fr_team_share(m->team, data, n * 8));
        CHECK(m, count_wrong(data, n, seed) == 0, "share %d", (int)seed);
    }
    fr__free(data);
    fr_team_leave(m->team);
}

static void ranks_compare_and_share(void **state)
{
    (void)state;
    forked_run(&(scenario){.size = 4, .body = compare_and_share});
}

/* --- leaving ---------------------------------------------------------------------------------- */

/* One rank is done late; no other has left before. */
static void leave_late(member *m)
{
    CHECK(m, fr_team_rank(m->team) == m->rank && fr_team_size(m->team) == m->size, "who am I");
    if (m->rank == m->s->victim) {
        fr__sleep_ns(300000000);
        atomic_store(&m->s->mark[0], 1);
    }
    fr_team_leave(m->team);
    CHECK(m, atomic_load(&m->s->mark[0]) == 1, "has left too soon");
    CHECK(m, atomic_load(&m->s->left[m->rank]) == 1, "not in order");
}

static void set_last(member *m)
{
    if (m->rank == 0) m->s->victim = (int)(m->s->pid[0] % m->size);
}

static void ranks_leave_when_all_are_done(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        forked_run(&(scenario){.size = 3, .body = leave_late, .when_shared = set_last});
}

/* --- alone, and launchers --------------------------------------------------------------------- */

static void alone_is_rank_0_of_1(void **state)
{
    (void)state;
    uint64_t word = 5;
    const char *text = NULL;
    assert_int_equal(fr_team_rank(NULL), 0);
    assert_int_equal(fr_team_size(NULL), 1);
    assert_string_equal(fr_team_name(NULL, 0), "rank 0 (this process)");
    assert_int_equal(fr_team_agree(NULL, FR_IO), FR_IO);
    assert_int_equal(fr_team_same(NULL, "it", word), FR_OK);
    assert_int_equal(fr_team_share(NULL, &word, sizeof word), FR_OK);
    assert_int_equal(fr_team_notify_all(NULL, &word, sizeof word), FR_OK);
    assert_int_equal(fr_team_notify(NULL, 1, &word, sizeof word), FR_INVALID);
    assert_int_equal(fr_team_send(NULL, 1, &word, sizeof word), FR_INVALID);
    assert_int_equal(fr_team_recv(NULL, 1, &word, sizeof word), FR_INVALID);
    assert_false(fr_team_is_broken(NULL, &text));
    fr_team_set_callbacks(NULL, NULL);
    fr_team_set_timeout(NULL, 1);
    fr_team_fail(NULL, "nothing");
    fr_team_leave(NULL);
}

static const char *const variables[] = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",      "PMI_SIZE", "PMIX_RANK",
    "SLURM_PROCID",         "SLURM_NTASKS",         "SLURM_STEP_ID", NULL};

/* Defined only in a build with MPI. */
#pragma weak fr__mpi_bootstrap

static void launchers_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *set; /* "NAME=value NAME=value" */
        int rank, size;
    } cases[] = {
        {"", 0, 1},
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=3", 3, 4},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0", 0, 1},
        {"PMI_RANK=1 PMI_SIZE=2", 1, 2},
        {"PMIX_RANK=5", 5, 0},
        {"SLURM_PROCID=0 SLURM_NTASKS=8", 0, 1}, /* a batch script */
        {"SLURM_PROCID=6 SLURM_NTASKS=8 SLURM_STEP_ID=0", 6, 8},
        {"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=0 PMI_RANK=1 PMI_SIZE=2", 1, 2},
        {"OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=4", 0, 1},
        {"OMPI_COMM_WORLD_RANK=1", 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; variables[k]; k++) unsetenv(variables[k]);
        char *text = strdup(cases[i].set), *rest = NULL;
        for (char *p = strtok_r(text, " ", &rest); p; p = strtok_r(NULL, " ", &rest)) {
            char *value = strchr(p, '=');
            *value = '\0';
            setenv(p, value + 1, 1);
        }
        fr__launched l = fr__launcher_look();
        if (l.rank != cases[i].rank || l.size != cases[i].size)
            fail_msg("%s: rank %d of %d", cases[i].set, l.rank, l.size);
        assert_int_equal(fr_team_rank_by_launcher(), cases[i].rank);
        free(text);
    }
    for (int k = 0; variables[k]; k++) unsetenv(variables[k]);
    fr_ctx *ctx = fr_ctx_create();
    fr_team *team = (fr_team *)ctx; /* anything but NULL */
    assert_ok(ctx, fr_team_join(ctx, &team));
    assert_null(team);
    if (!fr__mpi_bootstrap) {
        setenv("PMI_RANK", "1", 1);
        setenv("PMI_SIZE", "2", 1);
        assert_fails(ctx, fr_team_join(ctx, &team), FR_UNSUPPORTED, "libopenmpi-dev");
        unsetenv("PMI_RANK");
        unsetenv("PMI_SIZE");
    }
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order),
        cmocka_unit_test(callbacks_may_notify),
        cmocka_unit_test(messages_may_be_large),
        cmocka_unit_test(small_messages_take_no_memory),
        cmocka_unit_test(callbacks_can_be_removed),
        cmocka_unit_test(streams_go_both_ways),
        cmocka_unit_test(ranks_agree),
        cmocka_unit_test(ranks_compare_and_share),
        cmocka_unit_test(ranks_leave_when_all_are_done),
        cmocka_unit_test(alone_is_rank_0_of_1),
        cmocka_unit_test(launchers_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
