/* gen_1f1b.c -- one forward, one backward (PipeDream, Narayanan et al., 2019; with a flush:
 * DAPPLE, Fan et al., 2021).
 *
 * Without replicas, worker w runs n - 1 - w forwards ahead of its backwards, so that it alternates
 * from the moment the first gradient arrives and never holds more than n - w micro-batches.
 *
 *     w0  F0 F1 .  B0 F2 B1 F3 B2 .  B3
 *     w1  .  F0 B0 F1 B1 F2 B2 F3 B3 .
 *
 * With a flush the segment is one mini-batch. Without, it runs on over mini-batches, and a stage
 * steps as soon as a mini-batch is complete on it. Forwards minus backwards stay below n - w when
 * a forward starts, which is PACI's flow rule.
 *
 * With replicas (PipeDream's 1F1B-RR) stage k shares its work among r_k, and from it on there are
 * S_k = r_k + r_(k+1) + ... workers to keep busy: each replica has c_k = ceil(S_k / r_k)
 * micro-batches in flight, the others' included S_k or just more. It cannot deadlock: let F of
 * micro-batch m on stage k count as m + k / 2n and B as m + k / 2n + S_k - 1/2; as (c_k - 1) r_k <=
 * S_k - 1 < S_k - 1/2 < c_k r_k, both the lists and the dependencies go from lower to higher
 * counts.
 */
#include "sched/sched.h"

/* c_k - 1 */
static int lead(const fr_schedule_desc *d, int stage)
{
    int workers = 0, own = fr__replicas(d, stage);
    for (int k = stage; k < d->n_stages && d->replicas; k++) workers += fr__replicas(d, k);
    if (!d->replicas) workers = d->n_stages - stage;
    return (workers + own - 1) / own - 1;
}

static bool emit(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    int total = d->n_micro * d->n_batches, ahead = lead(d, w);
    for (int i = 0; i < total + ahead; i++) {
        if (i < total) fr__emit(s, w, FR_DO_F, w, i);
        if (i >= ahead) fr__emit(s, w, FR_DO_B, w, i - ahead);
    }
    return !fr__emit_failed(s);
}

const fr_generator fr__gen_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward; flush after each mini-batch",
    .is_flush = true,
    .any_replicas = true,
    .emit = emit,
};

const fr_generator fr__gen_1f1b_async = {
    .name = "1f1b-async",
    .summary = "one forward, one backward, on and on; each stage steps when it can",
    .any_replicas = true,
    .lead = lead,
    .emit = emit,
};
