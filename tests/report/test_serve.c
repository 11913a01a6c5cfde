/* test_serve.c -- the live server, used over plain sockets: its answers and refusals, and that
 * neither many nor slow readers delay the run. Reads and unexpected waits have no time limit here;
 * only ctest limits them. */
#include "report/serve.h"
#include "support/run_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

enum { NEVER_S = 1000000 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- a client -------------------------------------------------------------------------------- */

static int connect_to(const fr_server *s)
{
    const char *port = strrchr(fr_server_url(s), ':') + 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void ask(int fd, const char *request)
{
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
}

/* Read until the text contains `word`, or to the end of the stream (word NULL). */
static void read_until(int fd, char *text, size_t room, const char *word)
{
    size_t n = strlen(text);
    while (!word || !strstr(text, word)) {
        assert_true(n + 1 < room);
        ssize_t got = recv(fd, text + n, room - n - 1, 0);
        if (got < 0) fail_msg("nothing more came after: %s", text);
        if (got == 0 && word) fail_msg("'%s' is not in: %s", word, text);
        if (got == 0) return;
        n += (size_t)got;
        text[n] = '\0';
    }
}

static char answer[1 << 20];

/* One request and the whole answer. */
static const char *get(const fr_server *s, const char *request)
{
    int fd = connect_to(s);
    answer[0] = '\0';
    ask(fd, request);
    read_until(fd, answer, sizeof answer, NULL);
    close(fd);
    return answer;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

/* Listen to events; `text` receives the first ones. */
static int listen_in(const fr_server *s, char *text, size_t room)
{
    int fd = connect_to(s);
    text[0] = '\0';
    ask(fd, GET("/events"));
    read_until(fd, text, room, "retry: 1000\n\n");
    return fd;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    while ((text = strstr(text, word))) n++, text++;
    return n;
}

/* --- a server -------------------------------------------------------------------------------- */

static fr_server *start(fixture *f)
{
    fr_server *s = NULL;
    fr_status status = fr_server_start(f->ctx, "127.0.0.1:0", &s);
    if (status == FR_UNSUPPORTED) skip_because("the live server", "%s", fr_ctx_error(f->ctx));
    assert_done(f, status);
    return s;
}

static fr_progress progress_at(int64_t step)
{
    return (fr_progress){.step = step,
                         .n_steps = 9000,
                         .samples = 8 * step,
                         .loss = 0.5,
                         .lr = 0.1,
                         .samples_per_s = 100,
                         .elapsed_s = 2,
                         .left_s = 3,
                         .grad_norm = NAN,
                         .eval_loss = NAN,
                         .eval_accuracy = NAN,
                         .eval_mae = NAN,
                         .eval_perplexity = NAN};
}

static void bring(fr_server *s, int64_t step)
{
    fr_progress p = progress_at(step);
    fr_server_progress(s, &p);
}

static void make_run(fixture *f)
{
    char path[160];
    assert_int_equal(mkdir(f->out, 0777), 0);
    snprintf(path, sizeof path, "%s/config.yaml", f->out);
    write_text(path, "model: {name: mlp}\ndata: {name: synthetic}\n");
    snprintf(path, sizeof path, "%s/metrics.jsonl", f->out);
    write_text(path, "{\"step\": 1, \"samples\": 8, \"loss\": 0.625, \"lr\": 0.1, "
                     "\"samples_per_s\": 10, \"elapsed_s\": 1}\n");
}

/* --- tests ----------------------------------------------------------------------------------- */

static void assert_says(const char *text, const char *word)
{
    if (!strstr(text, word)) fail_msg("'%s' is not in: %.900s", word, text);
}

static void test_answers(void **state)
{
    fixture *f = *state;
    fr_server *s = start(f);
    size_t bytes;
    const char *page = fr_report_live_page(&bytes);
    const char *text = get(s, GET("/"));
    assert_says(text, "HTTP/1.1 200 ");
    assert_says(text, "Content-Type: text/html; charset=utf-8\r\n");
    assert_says(text, "Content-Security-Policy: default-src 'none';");
    assert_says(text, "X-Content-Type-Options: nosniff\r\n");
    assert_says(text, "Cache-Control: no-store\r\n");
    assert_string_equal(strstr(text, "\r\n\r\n") + 4, page);
    assert_null(
        strstr(get(s, "HEAD / HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n"), "<"));

    text = get(s, GET("/data.json"));
    assert_says(text, "Content-Type: application/json\r\n");
    assert_says(text, "\"live\": true, \"runs\": []");
    make_run(f);
    fr_server_folder(s, f->out);
    text = get(s, GET("/data.json?again"));
    assert_says(text, "\"live\": true");
    assert_says(text, "0.625");

    assert_says(get(s, GET("/../etc/passwd")), " 404 ");
    assert_says(get(s, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"),
                " 405 ");
    assert_says(answer, "Allow: GET, HEAD\r\n");
    assert_says(get(s, "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                       "Connection: close\r\n\r\nhello"),
                " 200 "); /* a body is ignored */
    assert_says(answer, "</html>");
    assert_says(get(s, "DELETE /data.json HTTP/1.1\r\nHost: localhost\r\n\r\n"), " 405 ");
    static const char *const strangers[] = {
        "GET / HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost.example.org:80\r\nConnection: close\r\n\r\n",
        "GET /data.json HTTP/1.1\r\nHost: 10.0.0.1\r\nConnection: close\r\n\r\n",
        "GET /events HTTP/1.0\r\n\r\n"};
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        assert_says(get(s, strangers[i]), " 403 ");
    assert_says(get(s, "GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: close\r\n\r\n"),
                " 200 ");
    fr_server_stop(s);
}

static void test_events(void **state)
{
    fixture *f = *state;
    fr_server *s = start(f);
    static char text[1 << 16];
    bring(s, 7); /* later readers receive it too */
    int fd = listen_in(s, text, sizeof text);
    assert_says(text, "Content-Type: text/event-stream\r\n");
    read_until(fd, text, sizeof text,
               "event: progress\ndata: {\"step\": 7, \"n_steps\": 9000, "
               "\"samples\": 56, \"loss\": 0.5, \"lr\": 0.1, "
               "\"samples_per_s\": 100, \"elapsed_s\": 2, \"left_s\": 3}"
               "\n\n");
    /* Events come at most ten times a second; the last one and evaluations always arrive. */
    double begin = now_s();
    for (int64_t i = 1; i <= 500; i++) {
        fr_progress p = progress_at(i);
        if (i == 100) p.eval_loss = 0.25, p.eval_accuracy = 0.75, p.grad_norm = 1.5;
        fr_server_progress(s, &p);
        usleep(1000);
    }
    read_until(fd, text, sizeof text, "{\"step\": 500,");
    assert_says(text, "{\"step\": 100,");
    assert_says(text, "\"grad_norm\": 1.5, \"eval_loss\": 0.25, \"eval_accuracy\": 0.75}");
    /* The limit also holds if there is new progress after every event. */
    for (double end = now_s() + 0.3; now_s() < end;) bring(s, 501);
    bring(s, 600);
    read_until(fd, text, sizeof text, "{\"step\": 600,");
    double most = 10 * (now_s() - begin) + 4;
    assert_true(count(text, "event: progress") <= (int)most);
    close(fd);
    fr_server_stop(s);
}

static void test_many_and_slow(void **state)
{
    enum { MANY = 40, SLOW = 5, N_NEWS = 200000 };
    fixture *f = *state;
    fr_server *s = start(f);
    static char text[MANY][1 << 14];
    int fds[MANY], slow[SLOW];
    for (int i = 0; i < MANY; i++) fds[i] = listen_in(s, text[i], sizeof text[i]);
    for (int i = 0; i < SLOW; i++) { /* requests, but never reads */
        slow[i] = connect_to(s);
        int little = 1;
        setsockopt(slow[i], SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
        for (int k = 0; k < 50; k++) ask(slow[i], "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ask(slow[i], GET("/events"));
    }
    for (int64_t i = 1; i <= N_NEWS; i++) bring(s, i); /* slow readers would block it forever */
    for (int i = 0; i < MANY; i++) {
        read_until(fds[i], text[i], sizeof text[i], "{\"step\": 200000,");
        if (i % 2) close(fds[i]); /* some leave, the server finds out later */
    }
    bring(s, 9000);
    for (int i = 0; i < MANY; i += 2) {
        read_until(fds[i], text[i], sizeof text[i], "{\"step\": 9000,");
        close(fds[i]);
    }
    fr_server_stop(s);
    for (int i = 0; i < SLOW; i++) close(slow[i]);
}

/* A request that takes too long is ended, even if bytes keep arriving. A reader that accepts its
 * events is not. */
static void test_slow_are_dropped(void **state)
{
    fixture *f = *state;
    fr_server *s = start(f);
    static char text[1 << 16], nothing[8];
    int mute = connect_to(s), slow = connect_to(s), reader = listen_in(s, text, sizeof text);
    bool is_dropped = false;
    for (int64_t step = 1; !is_dropped; step++) { /* ctest ends it if that never happens */
        char want[32];
        pthread_mutex_lock(&s->lock);
        s->skew_ns += (uint64_t)(s->request_s * 0.4e9); /* let this much time pass */
        pthread_mutex_unlock(&s->lock);
        bring(s, step);
        snprintf(want, sizeof want, "{\"step\": %lld,", (long long)step);
        text[0] = '\0';
        read_until(reader, text, sizeof text, want); /* the server ticks, the reader stays */
        is_dropped = send(slow, "G", 1, MSG_NOSIGNAL) < 0;
    }
    assert_true(recv(mute, nothing, sizeof nothing, 0) <= 0);
    assert_says(get(s, GET("/")), " 200 ");
    close(reader);
    close(mute);
    close(slow);
    fr_server_stop(s);
}

static void test_over(void **state)
{
    fixture *f = *state;
    static char text[1 << 14];
    make_run(f);
    for (int loads = 0; loads < 2; loads++) {
        fr_server *s = start(f);
        s->grace_s = loads ? NEVER_S : 0.3;
        fr_server_folder(s, f->out);
        int fd = listen_in(s, text, sizeof text);
        assert_says(get(s, GET("/data.json")), "\"live\": true");
        bring(s, 8);
        fr_server_over(s, "interrupted");
        read_until(fd, text, sizeof text, NULL); /* the stream ends by itself */
        char *last = strstr(text, "{\"step\": 8,");
        assert_non_null(last);
        assert_says(last, "event: over\ndata: {\"status\": \"interrupted\"}\n\n");
        if (loads) assert_says(get(s, GET("/data.json")), "\"live\": false");
        double begin = now_s();
        fr_server_stop(s); /* a reader that has loaded the data is not waited for */
        if (!loads) assert_true(now_s() - begin >= 0.3);
        close(fd);
    }
}

/* Readers receive the end of the run, even if the server stops at once. */
static void test_over_in_haste(void **state)
{
    fixture *f = *state;
    static char text[4][1 << 12];
    int fds[4];
    fr_server *s = start(f);
    s->grace_s = 0;
    for (int i = 0; i < 4; i++) fds[i] = listen_in(s, text[i], sizeof text[i]);
    bring(s, 8); /* the next event comes a tick later */
    for (int i = 0; i < 4; i++) read_until(fds[i], text[i], sizeof text[i], "{\"step\": 8,");
    fr_server_over(s, "done");
    fr_server_stop(s);
    for (int i = 0; i < 4; i++) {
        read_until(fds[i], text[i], sizeof text[i], NULL);
        assert_says(text[i], "event: over\ndata: {\"status\": \"done\"}\n\n");
        close(fds[i]);
    }
}

static void test_stop_early(void **state)
{
    fixture *f = *state;
    static char text[1 << 12];
    fr_server *s = start(f);
    int quiet = listen_in(s, text, sizeof text), mute = connect_to(s);
    ask(mute, "GET /ev");
    s->grace_s = NEVER_S;
    fr_server_stop(s); /* the run was refused: there are no readers to wait for */
    read_until(quiet, text, sizeof text, NULL);
    close(quiet);
    close(mute);
    fr_server_stop(NULL);
}

static void test_addresses(void **state)
{
    fixture *f = *state;
    static const char *const good[] = {"0", ":0", "localhost:0"};
    static const char *const bad[] = {
        "",      ":",     "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "::1:80",
        "[::1]", "1:2:3", "-1",        "65536",      "8080 ",       "http://localhost:1"};
    fr_server *s = start(f), *t;
    char taken[64];
    assert_true(strncmp(fr_server_url(s), "http://127.0.0.1:", 17) == 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_failed(f, fr_server_start(f->ctx, bad[i], &t), FR_INVALID, "cannot serve at",
                      bad[i]);
    snprintf(taken, sizeof taken, "127.0.0.1:%d", atoi(strrchr(fr_server_url(s), ':') + 1));
    assert_failed(f, fr_server_start(f->ctx, taken, &t), FR_INVALID, taken, "in use", "port");
    assert_failed(f, fr_server_start(f->ctx, "192.0.2.1:0", &t), FR_INVALID, "192.0.2.1:0",
                  "does not have that address");
    assert_null(t);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_done(f, fr_server_start(f->ctx, good[i], &t));
        fr_server_stop(t);
    }
    assert_string_equal(f->log, "");
    assert_done(f, fr_server_start(f->ctx, "0.0.0.0:0", &t));
    assert_says(f->log, "can be read by everybody");
    assert_says(get(t, "GET / HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n"), " 200 ");
    fr_server_stop(t);
    fr_server_stop(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_answers),          TEST(test_events),    TEST(test_many_and_slow),
        TEST(test_slow_are_dropped), TEST(test_over),      TEST(test_over_in_haste),
        TEST(test_stop_early),       TEST(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
