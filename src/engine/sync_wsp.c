/* sync_wsp.c -- wave synchronous parallel, HetPipe-style (Park et al., USENIX ATC 2020): replicas
 * of different speed work in waves of E updates and wait for each other's waves, but D waves late.
 *
 * At the end of wave c a replica hands in what it has changed in it, delta_c, and goes on; but
 * before wave c + 1 it takes in the mean of all replicas' delta_(c-D) in place of its own. It waits
 * for nothing younger, and what it takes in does not depend on who was faster. Its weights are
 *
 *     W = base + delta_(c-D+1) + ... + delta_c         own deltas, oldest first
 *     base = what replicas began with + the means of waves 0 .. c - D, the same on all of them
 *
 *     D = 1, E = 2    updates   0 1 | 2 3 | 4 5 | 6 7
 *                     base                0 1   0 1 2 3       of everybody
 *                     own             0 1   2 3   4 5
 *
 * Others' updates that the weights lack when update t is made: at most (D + 1) E - 1; where a stage
 * has s mini-batches in flight, s more. At a drain all that is outstanding is taken in at once: the
 * mean of W - base. A replica that has stopped (the run diverged) hands in nothing from then on,
 * and with the first wave that lacks somebody everybody takes in nothing more until the drain. */
#include "engine/sync.h"

#include <string.h>

enum { GRAIN = 4096 };

static int n_sums(const fr_sync_options *o) { return o->distance + 1; }

static int n_blocks(const fr_sync_options *o)
{
    (void)o;
    return 1; /* the base */
}

static int slack(const fr_sync_options *o) { return (o->distance + 1) * o->every; }

static void begin(fr__syncing *s)
{
    memcpy(s->blocks[0], fr_store_newest(s->store), s->n * sizeof(float));
}

/* The sum of a wave, and the own delta that is in it. One more than can be outstanding. */
static int slot_of(const fr__syncing *s, int64_t wave)
{
    return (int)(wave % (s->options.distance + 1));
}

/* A sweep over the weights and the own deltas of some waves. */
typedef struct sweep {
    const fr__syncing *s;
    int64_t first, end; /* waves */
    float *weights, *to;
} sweep;

static sweep make_sweep(fr__syncing *s, int64_t first, int64_t end)
{
    return (sweep){.s = s, .first = first, .end = end, .weights = fr_store_newest(s->store)};
}

/* to := base + own deltas, oldest first */
static void add_up(const sweep *w, size_t at, size_t n)
{
    float *restrict to = w->to + at;
    memcpy(to, w->s->blocks[0] + at, n * sizeof *to);
    for (int64_t wave = w->first; wave < w->end; wave++) {
        const float *restrict own = w->s->posted[slot_of(w->s, wave)] + at;
        for (size_t i = 0; i < n; i++) to[i] += own[i];
    }
}

/* to := W - base - own deltas */
static void measure_range(void *arg, size_t at, size_t end)
{
    const sweep *w = arg;
    add_up(w, at, end - at);
    for (size_t i = at; i < end; i++) w->to[i] = w->weights[i] - w->to[i];
}

static void rebuild_range(void *arg, size_t at, size_t end) { add_up(arg, at, end - at); }

/* W := base + own deltas */
static void rebuild(fr__syncing *s, int64_t first, int64_t end)
{
    sweep w = make_sweep(s, first, end);
    w.to = w.weights;
    fr_device_parallel(s->device, s->n, GRAIN, rebuild_range, &w);
    fr_store_changed(s->store);
}

typedef struct addition {
    float *to; /* += from / n */
    const float *from;
    float n;
} addition;

static void add_range(void *arg, size_t at, size_t end)
{
    const addition *a = arg;
    for (size_t i = at; i < end; i++) a->to[i] += a->from[i] / a->n;
}

static void add_to_base(fr__syncing *s, size_t offset, size_t count, const float *sum)
{
    addition a = {s->blocks[0] + offset, sum, (float)s->n_members};
    fr_device_parallel(s->device, count, GRAIN, add_range, &a);
}

/* The wave is over: hand in its delta, and keep it. Who has stopped keeps what it had of it: older
 * waves of everybody may still be there to be taken in. */
static void post_wave(fr__syncing *s, bool is_alive)
{
    int slot = slot_of(s, s->round);
    sweep w = make_sweep(s, s->taken, s->round);
    w.to = s->posted[slot];
    fr_device_parallel(s->device, s->n, GRAIN, measure_range, &w);
    fr__sync_post(s, slot, is_alive);
    s->round++;
}

static fr_status take_wave(fr__syncing *s, bool *all_alive)
{
    FR_TRY(fr__sync_wait(s, slot_of(s, s->taken), add_to_base, all_alive));
    s->taken++;
    if (*all_alive) rebuild(s, s->taken, s->round);
    return FR_OK;
}

static fr_status stepped(fr__syncing *s, int64_t batch, bool is_alive, bool *all_alive)
{
    s->transport->poll(s->group, s->members[s->nth]);
    if ((batch + 1) % s->options.every != 0) return FR_OK;
    post_wave(s, is_alive);
    return s->round - s->taken > s->options.distance ? take_wave(s, all_alive) : FR_OK;
}

static fr_status drain(fr__syncing *s)
{
    bool is_alive;
    for (; s->taken < s->round; s->taken++)
        FR_TRY(fr__sync_wait(s, slot_of(s, s->taken), NULL, &is_alive));
    sweep w = make_sweep(s, 0, 0);
    w.to = s->posted[0];
    fr_device_parallel(s->device, s->n, GRAIN, measure_range, &w);
    fr__sync_post(s, 0, true);
    FR_TRY(fr__sync_wait(s, 0, add_to_base, &is_alive));
    rebuild(s, 0, 0);
    return FR_OK;
}

const fr__sync_rule fr__sync_wsp = {
    .about = {.name = "wsp",
              .summary = "each replica for itself in waves, others' waves taken in some waves late",
              .has_every = true,
              .has_distance = true,
              .steps_alone = true},
    .n_sums = n_sums,
    .n_blocks = n_blocks,
    .slack = slack,
    .begin = begin,
    .stepped = stepped,
    .drain = drain,
};
