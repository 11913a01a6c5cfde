/* gen_forward.c -- forwards only, for evaluation.
 *
 * Where a worker owns several stages, micro-batches go in groups as large as there are workers:
 * a group passes the worker's first stage, then its second. Every list is thus a part of one order,
 * by group, stage, micro-batch, in which nothing comes before what it needs: whatever stage is
 * where, it cannot deadlock. */
#include "sched/sched.h"

static bool emit(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    (void)d;
    int n, total = fr__n_micro(s), group = s->n_workers;
    const int *own = fr__stages_of(s, w, &n);
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
    .emit = emit,
};
