/* test_faults.c -- faults of a team: ranks that are killed, stopped, fail or send invalid data, and
 * joining with a rank missing or with strangers at the port. */
#include "forked.h"

#include "team/control.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* The team is broken, and the text names the rank, its host and process, and the reason. */
static void check_loss(member *m, loss_record *r, int rank, const char *why)
{
    char host[64], expected[600];
    const char *text = "";
    gethostname(host, sizeof host);
    snprintf(expected, sizeof expected, "rank %d (host %s, process %d) %s", rank, host,
             (int)m->s->pid[rank], why);
    CHECK(m, fr_team_is_broken(m->team, &text), "not broken");
    CHECK(m, strncmp(text, expected, strlen(expected)) == 0, "'%s', not '%s'", text, expected);
    if (!r) return;
    await_loss(r);
    CHECK(m, r->n_lost == 1 && r->lost_rank == rank && strcmp(r->lost_text, text) == 0,
          "%d losses, rank %d: %s", r->n_lost, r->lost_rank, r->lost_text);
}

static void check_left_broken(member *m)
{
    fr_team_leave(m->team); /* does not wait for the lost rank */
    CHECK(m, atomic_load(&m->s->left[m->rank]) == 2, "as if all was well");
}

/* A barrier. An agreement alone is not enough: a rank that breaks the team right after it may find
 * others still inside. */
static void gather(member *m)
{
    CHECK_OK(m, fr_team_agree(m->team, FR_OK));
    atomic_store(&m->s->mark[m->rank], 1);
    for (int i = 0; i < m->size; i++) forked_await(m->s, i, 1);
}

/* --- killed ----------------------------------------------------------------------------------- */

/* Streams, messages and agreements until a rank is lost. */
static void work_until_loss(member *m)
{
    loss_record r;
    enum { BYTES = 1 << 20 };
    char *data = fr__alloc(BYTES);
    loss_record_init(&r);
    fr_team_set_callbacks(m->team, &(fr_team_callbacks){&r, NULL, record_loss});
    fr_team_set_timeout(m->team, FORKED_ALARM_S); /* silence must not be the cause here */
    fr_status status = FR_OK;
    for (int round = 0; status == FR_OK; round++) {
        atomic_store(&m->s->mark[m->rank], round);
        for (int i = 1; i < m->size && status == FR_OK; i++) {
            if (m->rank == 0) {
                CHECK_OK(m, fr_team_notify(m->team, i, data, 1000));
                status = round % 2 ? fr_team_recv(m->team, i, data, BYTES)
                                   : fr_team_send(m->team, i, data, BYTES);
            } else if (m->rank == i) {
                CHECK_OK(m, fr_team_notify(m->team, 0, data, 1000));
                status = round % 2 ? fr_team_send(m->team, 0, data, BYTES)
                                   : fr_team_recv(m->team, 0, data, BYTES);
            }
        }
        if (status == FR_OK && round % 5 == 0) status = fr_team_agree(m->team, FR_OK);
    }
    CHECK(m, status == FR_PEER, "%d: %s", (int)status, fr_ctx_error(m->ctx));
    check_loss(m, &r, m->s->victim, "has ended");
    const char *text;
    fr_team_is_broken(m->team, &text);
    CHECK(m, strcmp(fr_ctx_error(m->ctx), text) == 0, "%s", fr_ctx_error(m->ctx));
    /* All calls still return. */
    CHECK(m, fr_team_agree(m->team, FR_OK) == FR_PEER, "agrees with a lost rank");
    CHECK_OK(m, fr_team_notify(m->team, m->rank == 0 ? 1 : 0, data, 10));
    loss_record late;
    loss_record_init(&late);
    fr_team_set_callbacks(m->team, &(fr_team_callbacks){&late, NULL, record_loss});
    CHECK(m, late.n_lost == 1 && late.lost_rank == m->s->victim, "an earlier loss is not reported");
    check_left_broken(m);
    fr__free(data);
}

static int kill_size, kill_victim;

static void kill_one(forked_state *s)
{
    forked_await(s, kill_victim, 3);
    fr__sleep_ns(1000000 * (uint64_t)(kill_size * 7 + kill_victim * 3));
    s->victim = kill_victim;
    kill(s->pid[kill_victim], SIGKILL);
}

static void killed_ranks_are_lost_at_once(void **state)
{
    (void)state;
    static const int cases[][2] = {{2, 0}, {2, 1}, {4, 0}, {4, 3}, {8, 5}, {8, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kill_size = cases[i][0], kill_victim = cases[i][1];
        forked_run(&(scenario){.size = kill_size,
                               .body = work_until_loss,
                               .drive = kill_one,
                               .may_die = 1u << kill_victim});
    }
}

/* --- stopped ---------------------------------------------------------------------------------- */

enum { TIMEOUT_MS = 500 };

static void start_clock(forked_state *s) { atomic_store(&s->now_ns, UINT64_C(1000000000)); }

/* All ranks but the victim report its silence, and not before the timeout. */
static void watch_silence(member *m)
{
    loss_record r;
    loss_record_init(&r);
    r.m = m;
    fr_team_set_callbacks(m->team, &(fr_team_callbacks){&r, NULL, record_loss});
    fr_team_set_timeout(m->team, TIMEOUT_MS * 1e-3);
    CHECK_OK(m, fr_team_agree(m->team, FR_OK));
    atomic_store(&m->s->mark[m->rank], 1);
    await_loss(&r);
    check_loss(m, &r, m->s->victim, "has been silent for 0.");
    check_left_broken(m);
}

static int stop_size, stop_victim;

static void set_victim(forked_state *s)
{
    s->victim = stop_victim;
    start_clock(s);
}

static void stop_one(forked_state *s)
{
    for (int i = 0; i < stop_size; i++) forked_await(s, i, 1);
    forked_pass(s, stop_size, 0, TIMEOUT_MS * 12 / 10); /* heartbeats arrive */
    for (int i = 0; i < stop_size; i++)
        if (atomic_load(&s->lost_ns[i]))
            snprintf(s->says[i], sizeof s->says[i], "a loss, but no rank was stopped"),
                kill(s->pid[i], SIGTERM);
    forked_stop(s, stop_victim);
    uint64_t start = atomic_load(&s->now_ns);
    forked_pass(s, stop_size, 1u << stop_victim, TIMEOUT_MS * 2);
    for (int i = 0; i < stop_size; i++) {
        if (i == stop_victim) continue;
        int64_t ms = (int64_t)(atomic_load(&s->lost_ns[i]) - start) / 1000000;
        if (atomic_load(&s->lost_ns[i]) && ms >= TIMEOUT_MS * 8 / 10 && ms <= TIMEOUT_MS * 15 / 10)
            continue;
        snprintf(s->says[i], sizeof s->says[i], "knew it after %d ms (0: never)", (int)ms);
        kill(s->pid[i], SIGTERM);
    }
    kill(s->pid[stop_victim], SIGCONT);
}

/* When it resumes, the stopped rank learns that it was given up, and blames no other. */
static void stopped_ranks_fall_silent(void **state)
{
    (void)state;
    static const int cases[][2] = {{3, 0}, {3, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stop_size = cases[i][0], stop_victim = cases[i][1];
        forked_run(&(scenario){
            .size = stop_size, .prepare = set_victim, .body = watch_silence, .drive = stop_one});
    }
}

/* Rank 1 alone has a short timeout, or all have; some are stopped for longer than theirs. */
static bool are_all_stopped;

static void wait_stopped(member *m)
{
    loss_record r;
    loss_record_init(&r);
    r.m = m;
    fr_team_set_callbacks(m->team, &(fr_team_callbacks){&r, NULL, record_loss});
    fr_team_set_timeout(m->team, m->rank == 1 || are_all_stopped ? TIMEOUT_MS * 1e-3 : 30);
    atomic_store(&m->s->mark[m->rank], 1);
    forked_await(m->s, 2, 2);
    CHECK(m, r.n_lost == 0, "%s", r.lost_text);
    fr_team_leave(m->team);
    CHECK(m, atomic_load(&m->s->left[m->rank]) == 1, "broken");
}

static void stop_and_go(forked_state *s)
{
    unsigned stopped = 0, slow = are_all_stopped ? 0 : 1u << 2; /* its interval is a second */
    for (int i = 0; i < 3; i++) forked_await(s, i, 1);
    forked_pass(s, 3, slow, 200);
    for (int i = 2; i >= 0; i--) { /* rank 0, which resumes first, then has nothing to read */
        if (i == 1 || are_all_stopped) forked_stop(s, i), stopped |= 1u << i;
    }
    forked_pass(s, 3, stopped | slow, TIMEOUT_MS * 2);
    for (int i = 0; i < 3; i++) kill(s->pid[i], SIGCONT);
    /* ranks with a long timeout send heartbeats as often as the others request */
    forked_pass(s, 3, slow, TIMEOUT_MS * 15 / 10);
    atomic_store(&s->mark[2], 2);
}

static void a_resumed_rank_blames_no_other(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        are_all_stopped = i;
        forked_run(&(scenario){
            .size = 3, .prepare = start_clock, .body = wait_stopped, .drive = stop_and_go});
    }
}

/* --- failing ---------------------------------------------------------------------------------- */

static int fail_rank;

static void give_up(member *m)
{
    loss_record r;
    char data[100] = "";
    loss_record_init(&r);
    fr_team_set_callbacks(m->team, &(fr_team_callbacks){&r, NULL, record_loss});
    gather(m);
    m->s->victim = fail_rank;
    if (m->rank == fail_rank) { /* with much data still in flight */
        char *much = fr__alloc(30 << 20);
        CHECK_OK(m, fr_team_notify(m->team, m->rank ? 0 : 1, much, 30 << 20));
        fr__free(much);
        fr_team_fail(m->team, "the loss is not a number");
        if (m->size == 4) _exit(0); /* at once, as a program may */
        check_loss(m, NULL, fail_rank, "failed: the loss is not a number");
        CHECK(m, fr_team_recv(m->team, m->rank ? 0 : 1, data, 1) == FR_PEER, "takes");
        CHECK(m, r.n_lost == 0, "reported to itself");
    } else {
        int other = m->rank == 0 ? fail_rank : 0;
        CHECK(m, fr_team_recv(m->team, other, data, sizeof data) == FR_PEER, "taken");
        check_loss(m, &r, fail_rank, "failed: the loss is not a number");
    }
    check_left_broken(m);
}

static void a_failing_rank_gives_its_reason(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        for (fail_rank = 0; fail_rank < size; fail_rank++)
            forked_run(&(scenario){.size = size, .body = give_up});
}

/* --- invalid data ----------------------------------------------------------------------------- */

/* All ranks report an invalid status in a vote as such; it never becomes an exit code. */
static void send_invalid_vote(member *m)
{
    const int32_t head[2] = {1, 4711};
    char bytes[sizeof head + FR__MAX_TEXT] = "";
    memcpy(bytes, head, sizeof head);
    if (m->rank == 1)
        CHECK(m, send(m->team->peers[0].fd[FR__COLLECTIVE], bytes, sizeof bytes, 0) == sizeof bytes,
              "sent");
    fr_status status =
        m->rank == 1 ? fr_team_share(m->team, bytes, sizeof bytes) : fr_team_agree(m->team, FR_OK);
    CHECK(m, status == (m->rank == 1 ? FR_OK : FR_PEER), "status %d", (int)status);
    CHECK(m, m->rank == 1 || strstr(fr_ctx_error(m->ctx), "invalid status 4711"), "%s",
          fr_ctx_error(m->ctx));
    fr_team_leave(m->team);
}

static void an_invalid_status_is_no_vote(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++)
        forked_run(&(scenario){.size = size, .body = send_invalid_vote});
}

static void send_invalid_frame(member *m)
{
    loss_record r;
    loss_record_init(&r);
    fr_team_set_callbacks(m->team, &(fr_team_callbacks){&r, NULL, record_loss});
    gather(m);
    m->s->victim = 1;
    if (m->rank == 1)
        CHECK(m, send(m->team->peers[0].fd[FR__CONTROL], "GET / HTTP/1.1\r\n", 16, 0) == 16,
              "sent");
    await_loss(&r);
    check_loss(m, &r, 1, "sent an invalid message");
    check_left_broken(m);
}

static void invalid_frames_are_a_loss(void **state)
{
    (void)state;
    forked_run(&(scenario){.size = 3, .body = send_invalid_frame});
}

/* --- joining ---------------------------------------------------------------------------------- */

static int listening_port(void)
{
    for (int fd = 3; fd < 256; fd++) {
        int is_listening = 0;
        socklen_t bytes = sizeof is_listening;
        struct sockaddr_in6 a;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &bytes) != 0) continue;
        bytes = sizeof a;
        if (is_listening && getsockname(fd, (struct sockaddr *)&a, &bytes) == 0)
            return ntohs(a.sin6_port);
    }
    return -1;
}

/* Before rank 0 accepts, strangers connect: silent ones, and ones that send invalid, incomplete or
 * unauthenticated hellos. */
static void send_strangers(member *m)
{
    enum { N = 150 };
    static const char rubbish[200] = "GET / HTTP/1.1\r\n", half[24] = "frhello";
    char whole[104] = "frhello"; /* a complete hello without the token */
    if (m->rank != 0) return;
    int port = listening_port();
    CHECK(m, port > 0, "rank 0 does not listen");
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    for (int i = 0; i < N; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(m, connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "%s", strerror(errno));
        if (i % 4 == 1) CHECK(m, send(fd, rubbish, sizeof rubbish, 0) == sizeof rubbish, "sent");
        if (i % 4 == 2) CHECK(m, send(fd, half, sizeof half, 0) == sizeof half, "sent");
        whole[24] = (char)(1 + i % 3), whole[28] = (char)(i / 12 % 3);
        if (i % 4 == 3) CHECK(m, send(fd, whole, sizeof whole, 0) == sizeof whole, "sent");
    }
}

static void join_among_strangers(member *m)
{
    CHECK_OK(m, forked_join(m, 60)); /* too short to serve strangers one by one */
    for (int i = 0; i < 10; i++) CHECK_OK(m, fr_team_agree(m->team, FR_OK));
    fr__sleep_ns(100000000);
    fr_team_leave(m->team);
    CHECK(m, atomic_load(&m->s->left[m->rank]) == 1, "broken");
}

static void strangers_are_refused(void **state)
{
    (void)state;
    forked_run(&(scenario){.size = 4,
                           .body = join_among_strangers,
                           .when_shared = send_strangers,
                           .is_join_tested = true});
}

static void stay_away(member *m)
{
    if (m->rank == 2) _exit(0);
}

static void join_without_rank_2(member *m)
{
    fr_status status = forked_join(m, 5);
    const char *text = fr_ctx_error(m->ctx);
    CHECK(m, status == FR_PEER && !m->team, "%d: %s", (int)status, text);
    CHECK(m, strstr(text, "rank 2 of 4 did not connect to rank 0 within 5 s") == text, "%s", text);
    CHECK(m, strstr(text, "firewall"), "%s", text);
    CHECK(m, atomic_load(&m->s->left[m->rank]) == 0, "the bootstrap is the caller's");
}

static void missing_ranks_are_named(void **state)
{
    (void)state;
    forked_run(&(scenario){
        .size = 4, .body = join_without_rank_2, .when_shared = stay_away, .is_join_tested = true});
}

static void run_away(member *m)
{
    if (m->rank == 0) _exit(0);
    while (kill(m->s->pid[0], 0) == 0) fr__sleep_ns(1000000); /* until the driver has reaped it */
}

static void find_nobody(member *m)
{
    fr_status status = forked_join(m, 1);
    const char *text = fr_ctx_error(m->ctx);
    CHECK(m, status == FR_PEER && !m->team, "%d: %s", (int)status, text);
    CHECK(m, strstr(text, "rank 1 cannot reach rank 0 on host ") == text, "%s", text);
    CHECK(m, strstr(text, "127.0.0.1") && strstr(text, "Connection refused"), "%s", text);
}

static void a_missing_rank_0_is_named(void **state)
{
    (void)state;
    forked_run(&(scenario){
        .size = 2, .body = find_nobody, .when_shared = run_away, .is_join_tested = true});
}

/* Rank 1 expects another reply than rank 0 gives, as if another program listened there. */
static void expect_another(member *m)
{
    if (m->rank == 1) m->shared[30] ^= 1; /* after the magic (8 bytes) and the first token (16) */
}

static void find_another(member *m)
{
    fr_status status = forked_join(m, 1);
    const char *text = fr_ctx_error(m->ctx);
    CHECK(m, status == FR_PEER && !m->team, "%d: %s", (int)status, text);
    if (m->rank == 1)
        CHECK(m, strstr(text, "rank 0 does not answer"), "%s", text);
    else
        CHECK(m, strstr(text, "rank 1 of 2 did not connect"), "%s", text);
}

static void a_false_rank_0_is_refused(void **state)
{
    (void)state;
    forked_run(&(scenario){
        .size = 2, .body = find_another, .when_shared = expect_another, .is_join_tested = true});
}

/* One rank is out of memory; no rank hangs, and all report the failure. */
static void join_without_memory(member *m)
{
    if (m->rank == m->s->victim) fr__alloc_fail_after(atomic_load(&m->s->mark[0]));
    fr_status status = forked_join(m, 0.3);
    fr__alloc_fail_after(-1);
    const char *text = fr_ctx_error(m->ctx);
    if (m->rank == m->s->victim)
        CHECK(m, status == FR_NO_MEMORY, "%d: %s", (int)status, text);
    else if (m->rank == 0)
        CHECK(m, strstr(text, "rank 1") == text, "%s", text);
    else if (m->s->victim == 0)
        CHECK(m, status == FR_IO && strstr(text, "rank 0: out of memory"), "%s", text);
    CHECK(m, status != FR_OK && !m->team, "joined");
}

static int memory_victim, memory_allowance;

static void set_memory(forked_state *s)
{
    s->victim = memory_victim;
    atomic_store(&s->mark[0], memory_allowance);
}

static void missing_memory_is_no_hang(void **state)
{
    (void)state;
    for (memory_victim = 0; memory_victim < 2; memory_victim++)
        for (memory_allowance = 0; memory_allowance < 4; memory_allowance++)
            forked_run(&(scenario){.size = 3,
                                   .body = join_without_memory,
                                   .prepare = set_memory,
                                   .is_join_tested = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks_are_lost_at_once),
        cmocka_unit_test(stopped_ranks_fall_silent),
        cmocka_unit_test(a_resumed_rank_blames_no_other),
        cmocka_unit_test(a_failing_rank_gives_its_reason),
        cmocka_unit_test(invalid_frames_are_a_loss),
        cmocka_unit_test(an_invalid_status_is_no_vote),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(a_missing_rank_0_is_named),
        cmocka_unit_test(a_false_rank_0_is_refused),
        cmocka_unit_test(missing_memory_is_no_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
