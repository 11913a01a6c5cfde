/* emulated_transport.c -- a transport whose channels, boards and sums take emulated time.
 *
 * It passes every call to an inner transport of one process and sets the clocks of the workers:
 * before the inner call if a worker sends, after it if a worker receives. */
#include "emulate/internal.h"

#include <string.h>

struct fr_group {
    fr__emulation *m;
    const fr_transport *t;
    fr_group *inner;
    fr_board *boards;
};

/* Times are written before, read after a buffer changes hands. */
struct fr_channel {
    const fr_group *g;
    fr_channel *inner;
    int from, to;
    double *arrival, *freed; /* [buffer] */
};

/* Workers that own parts synchronise once per round; the content counts as small. */
struct fr_board {
    const fr_group *g;
    fr_board *inner, *next;
    fr__emulated_reduction *reduction;
    int *owner;      /* [part] */
    int64_t *posted; /* [worker]: rounds */
};

struct fr_sum {
    const fr_group *g;
    fr_sum *inner;
    int *members;
    int n_buckets;
    bool is_at_once;
    size_t *edge;                        /* [n_buckets + 1] */
    fr__emulated_reduction **reductions; /* [n_buckets]; at once: one */
};

static bool is_on(const fr_group *g) { return g->m->is_on; }
static double clock_of(const fr_group *g, int worker) { return g->m->workers[worker].clock; }

static fr_status no_memory(const fr_group *g) { return fr__no_memory(g->m->ctx, 0, "emulation"); }

/* --- groups ---------------------------------------------------------------------------------- */

fr_status fr__emulation_wrap(fr__emulation *m, fr_group *inner, fr_group **out)
{
    fr_group *g = *out = FR_ARENA_NEW(&m->arena, fr_group);
    if (!g) return fr__no_memory(m->ctx, sizeof *g, "emulation");
    *g = (fr_group){.m = m, .t = m->d.transport, .inner = inner};
    m->inner = inner;
    return FR_OK;
}

static int rank_of(const fr_group *g, int member) { return g->t->rank_of(g->inner, member); }
static void poll(fr_group *g, int member) { g->t->poll(g->inner, member); }
static void end_waits(fr_group *g) { g->t->abort(g->inner); }
static bool is_aborted(const fr_group *g) { return g->t->is_aborted(g->inner); }
static void reset(fr_group *g)
{
    g->t->reset(g->inner);
    for (fr_board *b = g->boards; b; b = b->next)
        memset(b->posted, 0, (size_t)g->m->d.n_workers * sizeof *b->posted);
}

/* --- channels -------------------------------------------------------------------------------- */

static fr_status add_channel(fr_group *g, const fr_channel_desc *d, fr_channel **out)
{
    fr_channel *c = *out = FR_ARENA_NEW(&g->m->arena, fr_channel);
    if (!c) return no_memory(g);
    *c = (fr_channel){.g = g,
                      .from = d->from,
                      .to = d->to,
                      .arrival = FR_ARENA_ARRAY(&g->m->arena, double, d->n_buffers),
                      .freed = FR_ARENA_ARRAY(&g->m->arena, double, d->n_buffers)};
    if (!c->arrival || !c->freed) return no_memory(g);
    return g->t->add_channel(g->inner, d, &c->inner);
}

static fr_status acquire(fr_channel *c, int b)
{
    FR_TRY(c->g->t->acquire(c->inner, b));
    if (is_on(c->g)) fr__emulation_wait(c->g->m, c->from, c->freed[b]);
    return FR_OK;
}

static void send(fr_channel *c, int b, size_t bytes)
{
    if (is_on(c->g)) c->arrival[b] = fr__emulation_send(c->g->m, c->from, c->to, bytes);
    c->g->t->send(c->inner, b, bytes);
}

static fr_status receive(fr_channel *c, int b, const void **data, size_t *bytes)
{
    FR_TRY(c->g->t->receive(c->inner, b, data, bytes));
    if (!is_on(c->g)) return FR_OK;
    fr__emulation_wait(c->g->m, c->to, c->arrival[b]);
    fr__emulation_advance(c->g->m, c->to, c->g->m->d.timing->overhead_s);
    return FR_OK;
}

static void release(fr_channel *c, int b)
{
    if (is_on(c->g)) c->freed[b] = clock_of(c->g, c->to);
    c->g->t->release(c->inner, b);
}

/* --- boards ---------------------------------------------------------------------------------- */

static fr_status add_board(fr_group *g, int n_parts, const size_t *part_bytes, const int *owner,
                           fr_board **out)
{
    fr_arena *a = &g->m->arena;
    int n_workers = g->m->d.n_workers, n = 0;
    fr_board *b = *out = FR_ARENA_NEW(a, fr_board);
    int *members = FR_ARENA_ARRAY(a, int, n_workers);
    if (!b || !members) return no_memory(g);
    *b = (fr_board){.g = g,
                    .next = g->boards,
                    .owner = FR_ARENA_ARRAY(a, int, n_parts),
                    .posted = FR_ARENA_ARRAY(a, int64_t, n_workers)};
    if (!b->owner || !b->posted) return no_memory(g);
    g->boards = b;
    for (int w = 0; w < n_workers; w++)
        for (int i = 0; i < n_parts; i++)
            if (owner[i] == w) {
                members[n++] = w;
                break;
            }
    for (int i = 0; i < n_parts; i++) b->owner[i] = owner[i];
    FR_TRY(fr__emulation_add_reduction(g->m, n, members, 0, NULL, &b->reduction));
    return g->t->add_board(g->inner, n_parts, part_bytes, owner, &b->inner);
}

static void *board_part(fr_board *b, int64_t round, int part)
{
    return b->g->t->board_part(b->inner, round, part);
}

/* A worker posts with the first of its parts. */
static void board_post(fr_board *b, int64_t round, int part)
{
    int worker = b->owner[part];
    if (is_on(b->g) && b->posted[worker] <= round) {
        fr__emulation_post(b->g->m, b->reduction, worker, clock_of(b->g, worker), true);
        b->posted[worker] = round + 1;
    }
    b->g->t->board_post(b->inner, round, part);
}

static fr_status board_wait(fr_board *b, int64_t round, int member)
{
    FR_TRY(b->g->t->board_wait(b->inner, round, member));
    if (is_on(b->g)) fr__emulation_take(b->g->m, b->reduction, member);
    return FR_OK;
}

/* --- sums ------------------------------------------------------------------------------------ */

static size_t sum_room(const fr_group *g, const fr_sum_desc *d, int nth)
{
    return g->t->sum_room(g->inner, d, nth);
}

/* Buckets are posted from the last to the first, and so they use the links. */
static fr_status add_reductions(fr_group *g, const fr_sum_desc *d, fr_sum *s)
{
    if (d->is_at_once)
        return fr__emulation_add_reduction(g->m, d->n_members, d->members,
                                           d->edge[d->n_buckets] * sizeof(float), NULL,
                                           &s->reductions[0]);
    for (int i = d->n_buckets - 1; i >= 0; i--)
        FR_TRY(fr__emulation_add_reduction(
            g->m, d->n_members, d->members, (d->edge[i + 1] - d->edge[i]) * sizeof(float),
            i < d->n_buckets - 1 ? s->reductions[i + 1] : NULL, &s->reductions[i]));
    return FR_OK;
}

static fr_status add_sum(fr_group *g, const fr_sum_desc *d, fr_sum **out)
{
    fr_arena *a = &g->m->arena;
    fr_sum *s = *out = FR_ARENA_NEW(a, fr_sum);
    if (!s) return no_memory(g);
    *s = (fr_sum){.g = g,
                  .n_buckets = d->n_buckets,
                  .is_at_once = d->is_at_once,
                  .members = FR_ARENA_ARRAY(a, int, d->n_members),
                  .edge = FR_ARENA_ARRAY(a, size_t, d->n_buckets + 1),
                  .reductions = FR_ARENA_ARRAY(a, fr__emulated_reduction *, d->n_buckets + 1)};
    if (!s->members || !s->edge || !s->reductions) return no_memory(g);
    for (int i = 0; i < d->n_members; i++) s->members[i] = d->members[i];
    for (int i = 0; i <= d->n_buckets; i++) s->edge[i] = d->edge[i];
    FR_TRY(add_reductions(g, d, s));
    return g->t->add_sum(g->inner, d, &s->inner);
}

/* Sums at once: a member posts with its first bucket and takes with its last. */
static void sum_post(fr_sum *s, int nth, int bucket, bool is_alive)
{
    fr__emulation *m = s->g->m;
    int worker = s->members[nth];
    double n = (double)s->edge[s->n_buckets];
    if (is_on(s->g) && (!s->is_at_once || bucket == 0))
        fr__emulation_post(m, s->reductions[bucket], worker,
                           fr__emulation_post_time(m, worker, (n - (double)s->edge[bucket]) / n),
                           is_alive);
    s->g->t->sum_post(s->inner, nth, bucket, is_alive);
}

static fr_status sum_wait(fr_sum *s, int nth, int bucket, bool *is_alive)
{
    FR_TRY(s->g->t->sum_wait(s->inner, nth, bucket, is_alive));
    if (!is_on(s->g)) return FR_OK;
    if (!s->is_at_once)
        fr__emulation_take(s->g->m, s->reductions[bucket], s->members[nth]);
    else if (bucket == s->n_buckets - 1)
        fr__emulation_take(s->g->m, s->reductions[0], s->members[nth]);
    return FR_OK;
}

static const float *sum_piece(fr_sum *s, int nth, int bucket, int k, size_t *at, size_t *count)
{
    return s->g->t->sum_piece(s->inner, nth, bucket, k, at, count);
}

/* Opened and closed by the inner transport. */
const fr_transport fr__emulated_transport = {
    .name = "emulated",
    .summary = "a transport whose transfers take the time of modelled links",
    .rank_of = rank_of,
    .add_channel = add_channel,
    .add_board = add_board,
    .sum_room = sum_room,
    .add_sum = add_sum,
    .acquire = acquire,
    .send = send,
    .receive = receive,
    .release = release,
    .board_part = board_part,
    .board_post = board_post,
    .board_wait = board_wait,
    .sum_post = sum_post,
    .sum_wait = sum_wait,
    .sum_piece = sum_piece,
    .poll = poll,
    .abort = end_waits,
    .is_aborted = is_aborted,
    .reset = reset,
};
