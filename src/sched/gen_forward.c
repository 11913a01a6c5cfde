/* gen_forward.c -- forwards only, for evaluation.
 *
 * If a worker owns several stages, micro-batches are grouped, one per worker: a group passes the
 * worker's first stage, then its second. Each list is therefore a subsequence of one order (group,
 * stage, micro-batch), in which all inputs precede their uses. So no assignment of stages to
 * workers can deadlock. With replicas, the group size is multiplied by the least common multiple of
 * their numbers, so groups begin and end with the same micro-batch on every worker. */
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
