/* gen_sequential.c -- one micro-batch at a time through all stages and back.
 *
 *     w0  F0 .  .  .  .  B0 F1 .  .  .  .  B1
 *     w1  .  F0 .  .  B0 .  .  F1 .  .  B1 .
 *     w2  .  .  F0 B0 .  .  .  .  F1 B1 .  .
 *
 * On one worker this is plain training with gradients summed over micro-batches; on several it is
 * model parallelism without a pipeline: the yardstick that the others are measured by. */
#include "sched/sched.h"

static bool emit(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    int n;
    const int *own = fr__stages_of(s, w, &n);
    for (int m = 0; m < d->n_micro; m++) {
        for (int k = 0; k < n; k++) fr__emit(s, w, FR_DO_F, own[k], m);
        for (int k = n - 1; k >= 0; k--) fr__emit(s, w, FR_DO_B, own[k], m);
    }
    return !fr__emit_failed(s);
}

const fr_generator fr__gen_sequential = {
    .name = "sequential",
    .summary = "one micro-batch at a time through all stages and back",
    .is_flush = true,
    .has_chunks = true,
    .any_placement = true,
    .any_replicas = true,
    .ahead = FR_AHEAD_ONE,
    .emit = emit,
};
