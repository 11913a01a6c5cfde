/* sync_wsp.c -- wave synchronous parallel, HetPipe-style (Park et al., USENIX ATC 2020): replicas
 * of different speed work in waves of E updates and wait for each other's waves, D waves later.
 *
 * At the end of wave c a replica submits its change of the weights in that wave, delta_c, and
 * continues. Before wave c + 1 it replaces its own delta_(c-D) by the mean of all replicas'. It
 * waits for nothing more recent, and the result does not depend on the speed of replicas. Its
 * weights are
 *
 *     W = base + delta_(c-D+1) + ... + delta_c         own deltas, oldest first
 *     base = what replicas began with + the means of waves 0 .. c - D, the same on all of them
 *
 *     D = 1, E = 2    updates   0 1 | 2 3 | 4 5 | 6 7
 *                     base                0 1   0 1 2 3       of all
 *                     own             0 1   2 3   4 5
 *
 * When update t is made, the weights lack at most (D + 1) E - 1 updates of other replicas; with s
 * mini-batches in flight on a stage, s more. At a drain everything outstanding is applied at once:
 * the mean of W - base. A replica that has stopped (the run diverged) submits nothing from then on.
 * From the first wave with a missing replica on, no replica applies further waves until the drain.
 */
#include "exec/sync.h"

static int n_sums(const fr_sync_options *o) { return o->distance + 1; }

static int n_blocks(const fr_sync_options *o)
{
    (void)o;
    return 1; /* the base */
}

static int slack(const fr_sync_options *o) { return (o->distance + 1) * o->every; }

static fr_status begin(fr__syncing *s)
{
    return fr__device_copy(s->device, s->blocks[0], fr_store_newest(s->store),
                           s->n * sizeof(float));
}

/* Sums of waves, with the replica's own deltas. One more than can be outstanding. */
static int slot_of(const fr__syncing *s, int64_t wave)
{
    return (int)(wave % (s->options.distance + 1));
}

/* to := base + own deltas of waves first .. end - 1, oldest first */
static fr_status add_up(fr__syncing *s, int64_t first, int64_t end, float *to)
{
    FR_TRY(fr__device_copy(s->device, to, s->blocks[0], s->n * sizeof(float)));
    for (int64_t wave = first; wave < end; wave++)
        fr__device_add(s->device, FR_F32, to, s->posted[slot_of(s, wave)], s->n);
    return FR_OK;
}

/* to := W - base - own deltas */
static fr_status measure(fr__syncing *s, int64_t first, int64_t end, float *to)
{
    FR_TRY(add_up(s, first, end, to));
    fr__device_blend(s->device, FR_BLEND_REST, to, fr_store_newest(s->store), 0, s->n);
    return fr_device_sync(s->device); /* others will read it */
}

/* W := base + own deltas */
static fr_status rebuild(fr__syncing *s, int64_t first, int64_t end)
{
    FR_TRY(add_up(s, first, end, fr_store_newest(s->store)));
    fr_store_changed(s->store);
    return FR_OK;
}

static fr_status add_to_base(fr__syncing *s, size_t offset, size_t count, const float *sum)
{
    fr__device_blend(s->device, FR_BLEND_ADD_PART, s->blocks[0] + offset, sum, (float)s->n_members,
                     count);
    return FR_OK;
}

/* The wave is over: submit its delta, and keep it. A stopped replica keeps its partial delta,
 * because older waves of all replicas may still have to be applied. */
static fr_status post_wave(fr__syncing *s, bool is_alive)
{
    int slot = slot_of(s, s->round);
    FR_TRY(measure(s, s->taken, s->round, s->posted[slot]));
    fr__sync_post(s, slot, is_alive);
    s->round++;
    return FR_OK;
}

static fr_status take_wave(fr__syncing *s, bool *all_alive)
{
    FR_TRY(fr__sync_wait(s, slot_of(s, s->taken), add_to_base, all_alive));
    s->taken++;
    return *all_alive ? rebuild(s, s->taken, s->round) : FR_OK;
}

static fr_status stepped(fr__syncing *s, int64_t batch, bool is_alive, bool *all_alive)
{
    s->transport->poll(s->group, s->members[s->nth]);
    if ((batch + 1) % s->options.every != 0) return FR_OK;
    FR_TRY(post_wave(s, is_alive));
    return s->round - s->taken > s->options.distance ? take_wave(s, all_alive) : FR_OK;
}

static fr_status drain(fr__syncing *s)
{
    bool is_alive;
    for (; s->taken < s->round; s->taken++)
        FR_TRY(fr__sync_wait(s, slot_of(s, s->taken), NULL, &is_alive));
    FR_TRY(measure(s, 0, 0, s->posted[0]));
    fr__sync_post(s, 0, true);
    FR_TRY(fr__sync_wait(s, 0, add_to_base, &is_alive));
    return rebuild(s, 0, 0);
}

const fr__sync_rule fr__sync_wsp = {
    .about = {.name = "wsp",
              .summary = "replicas step alone in waves; others' waves are applied some waves later",
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
