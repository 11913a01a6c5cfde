/* gen_forward.c -- forwards only, for evaluation.
 *
 * Where a worker owns several stages, micro-batches go in groups as large as there are workers:
 * a group passes the worker's first stage, then its second. Every list is thus a part of one order,
 * by group, stage, micro-batch, in which nothing comes before what it needs: whatever stage is
 * where, it cannot deadlock. With replicas, groups are larger by what all their numbers divide, so
 * that they begin and end with the same micro-batch on every worker. */
#include "sched/sched.h"

static bool emit(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    int n, total = d->n_micro * d->n_batches, multiple = 1;
    const int *own = fr__stages_of(s, w, &n);
    if (n == 0) return true;
    for (int k = 0; k < d->n_stages; k++) multiple = fr__lcm(multiple, fr__replicas(d, k));
    int group = s->n_workers * (multiple / fr__replicas(d, own[0]));
    for (int first = 0; first < total; first += group)
        for (int k = 0; k < n; k++)
            for (int m = first; m < total && m < first + group; m++)
                fr__emit(s, w, FR_DO_F, own[k], m);
    return !fr__emit_failed(s);
}

const fr_generator fr__gen_forward = {
    .name = "forward",
    .summary = "forwards only, for evaluation",
    .is_forward_only = true,
    .has_chunks = true,
    .any_placement = true,
    .any_replicas = true,
    .emit = emit,
};
