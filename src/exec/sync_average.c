/* sync_average.c -- model averaging (Su and Chen, 2015): each replica makes its own updates; after
 * every `every` updates, and at a drain, all take the mean of their weights.
 *
 * An update steps along the replica's own gradient, times the number of replicas: the mean over
 * its share of the mini-batch. With a mean after each update of plain sgd this is data parallelism,
 * up to rounding. Each replica has its own optimizer state until a drain. */
#include "exec/sync.h"

static int one(const fr_sync_options *o)
{
    (void)o;
    return 1;
}

static int none(const fr_sync_options *o)
{
    (void)o;
    return 0;
}

static int slack(const fr_sync_options *o) { return o->every; }

static fr_status take_mean(fr__syncing *s, bool is_alive, bool *all_alive)
{
    FR_TRY(fr__sync_mean(s, FR_F32, fr_store_newest(s->store), is_alive, all_alive));
    if (*all_alive) fr_store_changed(s->store);
    return FR_OK;
}

static fr_status stepped(fr__syncing *s, int64_t batch, bool is_alive, bool *all_alive)
{
    if ((batch + 1) % s->options.every != 0) return FR_OK;
    return take_mean(s, is_alive, all_alive);
}

static fr_status drain(fr__syncing *s)
{
    bool is_alive;
    return take_mean(s, true, &is_alive);
}

const fr__sync_rule fr__sync_average = {
    .about = {.name = "average",
              .summary = "replicas step alone and average their weights every few updates",
              .has_every = true,
              .steps_alone = true},
    .n_sums = one,
    .n_blocks = none,
    .slack = slack,
    .stepped = stepped,
    .drain = drain,
};
