/* transport.c -- cost of passing a tensor from worker to worker.
 *
 *     bench_transport [--transport NAME] [--messages N] [--bytes N] [--pin 0|1]
 *
 * Prints one JSON object: half a round trip of a ping-pong when both ends poll (latency_ns, the
 * median and the 99th percentile) and when the receiver sleeps (wake_ns), messages per second in
 * one direction with eight buffers, and one round of a board. */
#include <forerun/transport.h>

#include "base/alloc.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BUFFERS = 8, SLEEPY = 200 };

typedef struct settings {
    const fr_transport *t;
    int n_messages, pin;
    size_t bytes;
} settings;

typedef struct bench {
    const settings *s;
    fr_group *g;
    fr_channel *there, *back;
    fr_board *board;
    uint64_t *ns; /* [n_messages] durations of round trips */
    uint64_t gap_ns, total_ns;
    int n;
    fr_status status[2];
} bench;

static fr_status ping(bench *b, fr_channel *out, fr_channel *in, bool is_first)
{
    const fr_transport *t = b->s->t;
    for (int i = 0; i < b->n; i++) {
        const void *data;
        size_t n_bytes;
        int k = i % N_BUFFERS;
        if (is_first && b->gap_ns) fr__sleep_ns(b->gap_ns);
        uint64_t start = fr__now_ns();
        if (is_first) {
            FR_TRY(t->acquire(out, k));
            t->send(out, k, b->s->bytes);
        }
        FR_TRY(t->receive(in, k, &data, &n_bytes));
        t->release(in, k);
        if (is_first) b->ns[i] = fr__now_ns() - start;
        if (!is_first) {
            FR_TRY(t->acquire(out, k));
            t->send(out, k, b->s->bytes);
        }
    }
    return FR_OK;
}

static fr_status ping_pong(bench *b, int member)
{
    return member == 0 ? ping(b, b->there, b->back, true) : ping(b, b->back, b->there, false);
}

static fr_status stream(bench *b, int member)
{
    const fr_transport *t = b->s->t;
    uint64_t start = fr__now_ns();
    for (int i = 0; i < b->n; i++) {
        const void *data;
        size_t n_bytes;
        if (member == 0) {
            FR_TRY(t->acquire(b->there, i % N_BUFFERS));
            t->send(b->there, i % N_BUFFERS, b->s->bytes);
        } else {
            FR_TRY(t->receive(b->there, i % N_BUFFERS, &data, &n_bytes));
            t->release(b->there, i % N_BUFFERS);
        }
    }
    if (member == 1) b->total_ns = fr__now_ns() - start;
    return FR_OK;
}

static fr_status rounds(bench *b, int member)
{
    const fr_transport *t = b->s->t;
    uint64_t start = fr__now_ns();
    for (int64_t i = 0; i < b->n; i++) {
        *(double *)t->board_part(b->board, i, member) = (double)i;
        t->board_post(b->board, i, member);
        FR_TRY(t->board_wait(b->board, i, member));
    }
    if (member == 1) b->total_ns = fr__now_ns() - start;
    return FR_OK;
}

typedef struct worker {
    bench *b;
    int member;
    fr_status (*run)(bench *b, int member);
} worker;

static void *worker_main(void *arg)
{
    worker *w = arg;
    if (w->b->s->pin && !fr__thread_pin(w->member, 1)) w->b->status[w->member] = FR_UNSUPPORTED;
    if (w->b->status[w->member] == FR_OK) w->b->status[w->member] = w->run(w->b, w->member);
    if (w->b->status[w->member] != FR_OK) w->b->s->t->abort(w->b->g);
    return NULL;
}

static fr_status play(fr_ctx *ctx, bench *b, fr_status (*run)(bench *, int))
{
    pthread_t threads[2];
    worker workers[2] = {{b, 0, run}, {b, 1, run}};
    b->s->t->reset(b->g);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, worker_main, &workers[i]) != 0) {
            b->s->t->abort(b->g);
            if (i) pthread_join(threads[0], NULL);
            return fr_fail(ctx, FR_IO, "cannot start a thread");
        }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        if (b->status[i] == FR_UNSUPPORTED)
            return fr_fail(ctx, FR_UNSUPPORTED, "cannot pin to two cores; try --pin 0");
    return b->status[0] ? b->status[0] : b->status[1];
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Percentile of half a round trip. */
static double percentile(bench *b, double p)
{
    qsort(b->ns, (size_t)b->n, sizeof *b->ns, by_time);
    return (double)b->ns[(int)(p * (b->n - 1))] / 2;
}

static fr_status measure(fr_ctx *ctx, const settings *s, bench *b, char *memory)
{
    size_t stride = fr__align_up(s->bytes);
    fr_channel_desc there = {0, 1, N_BUFFERS, s->bytes, stride, memory, NULL, NULL};
    fr_channel_desc back = {1,    0,   N_BUFFERS, s->bytes, stride, memory + N_BUFFERS * stride,
                            NULL, NULL};
    FR_TRY(s->t->add_channel(b->g, &there, &b->there));
    FR_TRY(s->t->add_channel(b->g, &back, &b->back));
    FR_TRY(s->t->add_board(b->g, 2, (size_t[]){8, 8}, (int[]){0, 1}, &b->board));
    printf("{\"transport\": \"%s\", \"bytes\": %zu, \"pinned\": %s, \"cores\": %d, ", s->t->name,
           s->bytes, s->pin ? "true" : "false", fr__cpu_count());
    b->n = s->n_messages;
    FR_TRY(play(ctx, b, ping_pong));
    printf("\"latency_ns\": %.0f, \"latency_p99_ns\": %.0f, ", percentile(b, 0.5),
           percentile(b, 0.99));
    FR_TRY(play(ctx, b, stream));
    printf("\"messages_per_s\": %.0f, ", b->n * 1e9 / (double)b->total_ns);
    FR_TRY(play(ctx, b, rounds));
    printf("\"board_round_ns\": %.0f, ", (double)b->total_ns / b->n);
    b->n = SLEEPY < s->n_messages ? SLEEPY : s->n_messages;
    b->gap_ns = 2000000;
    FR_TRY(play(ctx, b, ping_pong));
    printf("\"wake_ns\": %.0f, \"wake_p99_ns\": %.0f}\n", 2 * percentile(b, 0.5),
           2 * percentile(b, 0.99));
    return FR_OK;
}

static fr_status run(fr_ctx *ctx, const settings *s)
{
    bench b = {.s = s};
    fr_status status;
    size_t bytes = 2 * N_BUFFERS * fr__align_up(s->bytes);
    char *memory = fr__alloc(bytes);
    b.ns = FR_NEW_ARRAY(uint64_t, s->n_messages);
    if (!memory || !b.ns)
        status = fr__no_memory(ctx, bytes, "messages");
    else
        status = s->t->open(ctx, NULL, 2, &b.g);
    if (status == FR_OK) status = measure(ctx, s, &b, memory);
    if (b.g) s->t->close(b.g);
    fr__free(memory);
    fr__free(b.ns);
    return status;
}

/* NULL if key = value is valid, else the error. */
static const char *set(settings *s, const char *key, const char *value)
{
    int number = atoi(value);
    if (strcmp(key, "--transport") == 0)
        return (s->t = fr_transport_find(value)) ? NULL : "no such transport:";
    if (strcmp(key, "--pin") == 0) return s->pin = number, NULL;
    if (number < 1) return "not a positive number:";
    if (strcmp(key, "--messages") == 0) return s->n_messages = number, NULL;
    if (strcmp(key, "--bytes") == 0) return s->bytes = (size_t)number, NULL;
    return "unknown option before";
}

int main(int argc, char **argv)
{
    settings s = {.t = fr_transport_list()[0], .n_messages = 100000, .pin = 1, .bytes = 4096};
    for (int i = 1; i < argc; i += 2) {
        const char *problem = i + 1 < argc ? set(&s, argv[i], argv[i + 1]) : "no value for";
        if (problem) {
            fprintf(stderr,
                    "bench_transport: %s %s\nusage: bench_transport [--transport NAME] "
                    "[--messages N] [--bytes N] [--pin 0|1]\n",
                    problem, argv[i + 1 < argc ? i + 1 : i]);
            return 2;
        }
    }
    fr_ctx *ctx = fr_ctx_create();
    if (!ctx) return 1;
    fr_status status = run(ctx, &s);
    if (status != FR_OK) fprintf(stderr, "bench_transport: %s\n", fr_ctx_error(ctx));
    fr_ctx_free(ctx);
    return fr_status_exit_code(status);
}
