/* sync.c -- the ways in which replicas of a stage agree. */
#include <forerun/engine.h>

static const fr_sync *const syncs[] = {
    &(const fr_sync){.name = "allreduce",
                     .summary = "gradients are added up over the replicas before each update"},
    &(const fr_sync){.name = "average",
                     .summary = "each steps alone; weights are averaged every K updates",
                     .has_every = true},
    &(const fr_sync){.name = "wsp",
                     .summary = "each steps alone, by waves, at most D waves ahead (HetPipe-style)",
                     .has_every = true,
                     .has_distance = true},
    NULL,
};

const fr_sync *const *fr_sync_list(void) { return syncs; }
