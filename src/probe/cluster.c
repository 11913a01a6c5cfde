/* cluster.c -- this machine as a cluster: one device per core, with links measured over a
 * transport.
 *
 * Two workers exchange messages (ping-pong). The latency is half of the median round trip of 8
 * bytes. The extra time of a message of 16 MB gives the bandwidth, from the fastest round trip of
 * each size: on a busy machine a median includes the time of other processes. If messages are
 * passed without a copy there is no extra time, and the bandwidth is 0: links are free. */
#include "base/alloc.h"
#include "base/thread.h"

#include <forerun/probe.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_BUFFERS = 2, N_SMALL = 2000, N_LARGE = 40 };
static const size_t small_bytes = 8, large_bytes = (size_t)16 << 20;
static const double least_copy_s = 20e-6; /* of the large one: no memory copies 800 GB/s */

/* Half of round trips, in seconds. */
typedef struct trips {
    double median, fastest;
} trips;

struct match {
    fr_ctx *ctx;
    const fr_transport *t;
    fr_group *group;
    fr_channel *there, *back;
    char *memory[2],
        *landing[2]; /* of each end: messages to send; landing memory of the other's messages */
    uint64_t *ns;    /* (N_SMALL) round trips */
    trips small, large;
};

struct player {
    struct match *match;
    bool serves; /* the first */
    fr_status status;
};

/* --- ping-pong --------------------------------------------------------------------------- */

static fr_status hit(const struct match *m, fr_channel *out, int ball, size_t bytes)
{
    FR_TRY(m->t->acquire(out, ball));
    m->t->send(out, ball, bytes);
    return FR_OK;
}

static fr_status receive(const struct match *m, fr_channel *in, int ball)
{
    const void *data;
    size_t bytes;
    FR_TRY(m->t->receive(in, ball, &data, &bytes));
    m->t->release(in, ball);
    return FR_OK;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static fr_status play(const struct player *p, int n, size_t bytes, trips *half)
{
    struct match *m = p->match;
    for (int i = 0; i < n; i++) {
        int ball = i % N_BUFFERS;
        uint64_t start = fr__now_ns();
        if (p->serves) FR_TRY(hit(m, m->there, ball, bytes));
        FR_TRY(receive(m, p->serves ? m->back : m->there, ball));
        if (!p->serves) FR_TRY(hit(m, m->back, ball, bytes));
        if (p->serves) m->ns[i] = fr__now_ns() - start;
    }
    if (!p->serves) return FR_OK;
    qsort(m->ns, (size_t)n, sizeof *m->ns, compare);
    *half = (trips){1e-9 * (double)m->ns[n / 2] / 2, 1e-9 * (double)m->ns[0] / 2};
    return FR_OK;
}

static void *player_main(void *player)
{
    struct player *p = player;
    trips warm;
    (void)fr__thread_pin(p->serves ? 0 : 1, 1); /* if there are two cores */
    p->status = play(p, N_SMALL / 10, small_bytes, &warm);
    if (p->status == FR_OK) p->status = play(p, N_SMALL, small_bytes, &p->match->small);
    if (p->status == FR_OK) p->status = play(p, N_LARGE, large_bytes, &p->match->large);
    if (p->status != FR_OK) p->match->t->abort(p->match->group);
    return NULL;
}

/* --- setup ------------------------------------------------------------------------------- */

/* Ends 0 and 1 are members `first` and `last`; an end in another process has no memory here. */
static fr_status set_up(struct match *m, fr_team *team, int n_members, bool *is_here)
{
    int end[2] = {0, n_members - 1}, rank = fr_team_rank(team);
    FR_TRY(m->t->open(m->ctx, team, n_members, &m->group));
    fr_channel **channels[2] = {&m->there, &m->back};
    for (int i = 0; i < 2; i++) is_here[i] = m->t->rank_of(m->group, end[i]) == rank;
    for (int i = 0; i < 2; i++) {
        bool is_remote = is_here[i] && !is_here[!i];
        m->memory[i] = is_here[i] ? fr__alloc(N_BUFFERS * large_bytes) : NULL;
        m->landing[i] = is_remote ? fr__alloc(N_BUFFERS * large_bytes) : NULL;
        if ((is_here[i] && !m->memory[i]) || (is_remote && !m->landing[i]))
            return fr__no_memory(m->ctx, N_BUFFERS * large_bytes, "messages that measure links");
        if (is_here[i]) memset(m->memory[i], 1, N_BUFFERS * large_bytes); /* pages of its own */
    }
    for (int i = 0; i < 2; i++) {
        fr_channel_desc d = {.from = end[i],
                             .to = end[!i],
                             .n_buffers = N_BUFFERS,
                             .bytes = large_bytes,
                             .stride = large_bytes,
                             .memory = m->memory[i],
                             .landing = m->landing[!i]};
        FR_TRY(m->t->add_channel(m->group, &d, channels[i]));
    }
    return FR_OK;
}

static fr_status run(struct match *m, const bool *is_here)
{
    pthread_t threads[2];
    struct player players[2] = {{.match = m, .serves = true}, {.match = m}};
    bool is_started[2] = {false, false};
    fr_status status = FR_OK;
    for (int i = 0; i < 2 && status == FR_OK; i++) {
        if (!is_here[i]) continue;
        is_started[i] = pthread_create(&threads[i], NULL, player_main, &players[i]) == 0;
        if (is_started[i]) continue;
        status = fr_fail(m->ctx, FR_IO, "cannot start a thread to measure links with");
        m->t->abort(m->group);
    }
    for (int i = 0; i < 2; i++) {
        if (!is_started[i]) continue;
        pthread_join(threads[i], NULL);
        if (status == FR_OK) status = players[i].status;
    }
    if (status == FR_PEER) fr_fail(m->ctx, status, "a worker was lost while links were measured");
    return status;
}

static fr_status measure(fr_ctx *ctx, const fr_transport *t, fr_team *team, trips half[2])
{
    struct match m = {.ctx = ctx, .t = t};
    bool is_here[2] = {false, false};
    int n_members = team ? fr_team_size(team) : 2;
    m.ns = FR_NEW_ARRAY(uint64_t, N_SMALL);
    fr_status status = m.ns ? set_up(&m, team, n_members, is_here)
                            : fr__no_memory(ctx, N_SMALL * sizeof *m.ns, "times of messages");
    if (team) status = fr_team_agree(team, status);
    if (status == FR_OK) status = run(&m, is_here);
    if (team) status = fr_team_agree(team, status);
    if (m.group) t->close(m.group);
    for (int i = 0; i < 2; i++) fr__free(m.memory[i]), fr__free(m.landing[i]);
    fr__free(m.ns);
    half[0] = m.small, half[1] = m.large;
    return status == FR_OK && team ? fr_team_share(team, half, 2 * sizeof *half) : status;
}

fr_status fr_probe_cluster(fr_ctx *ctx, const fr_transport *transport, fr_team *team, int n,
                           fr_cluster **out)
{
    trips half[2];
    *out = NULL;
    if (team && fr_team_size(team) < 2)
        return fr_fail(ctx, FR_INVALID, "measuring links needs at least two processes");
    FR_TRY(measure(ctx, transport, team, half));
    double longer = half[1].fastest - half[0].fastest;
    bool is_free = longer < fmax(half[0].fastest, least_copy_s);
    if (n < 1) n = fr__cpu_count();
    FR_TRY(
        fr_cluster_flat(ctx, n, is_free ? 0 : (double)large_bytes / longer, half[0].median, out));
    (*out)->name = "this-machine";
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    for (int i = 0; i < n; i++) (*out)->devices[i].memory = memory / n;
    return FR_OK;
}
