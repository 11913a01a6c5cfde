/* gen_1f1b.c -- one forward, one backward (PipeDream, Narayanan et al., 2019; with a flush: DAPPLE,
 * Fan et al., 2021).
 *
 * Without replicas, worker w of a chain runs n - 1 - w forwards ahead of its backwards. It
 * alternates from the arrival of the first gradient and never holds more than n - w micro-batches.
 *
 *     w0  F0 F1 .  B0 F2 B1 F3 B2 .  B3
 *     w1  .  F0 B0 F1 B1 F2 B2 F3 B3 .
 *
 * With a flush the segment is one mini-batch. Without a flush it continues over mini-batches, and a
 * stage steps as soon as it has completed a mini-batch. Forwards minus backwards stay below n - w
 * when a forward starts, which is PACI's flow rule.
 *
 * With replicas (PipeDream's 1F1B-RR) stage k has r_k replicas. From stage k on, S_k = r_k +
 * r_(k+1) + ... workers must stay busy, so each replica keeps c_k = ceil(S_k / r_k) micro-batches
 * in flight. This cannot deadlock: number F of micro-batch m on stage k as m + k / 2n, and its B as
 * m + k / 2n + S_k - 1/2. Because (c_k - 1) r_k <= S_k - 1 < S_k - 1/2 < c_k r_k, lists and
 * dependencies both ascend in these numbers.
 *
 * If the stages are no chain, S_k is counted along the longest way from stage k to the end (the
 * in-flight counts of GraphPipe, Jeon et al., 2025), over the links of values or, against their
 * direction, of gradients: branches that run at the same time hold what their depth asks for, and
 * S_k is larger than that of every stage whose backward comes first, so the numbers still ascend.
 *
 * A transfer that takes long leaves a worker of 1F1B idle for a round trip. With a lead of c > 1 it
 * holds c (n - 1 - w) micro-batches, one at least, and is busy meanwhile: c = 2 is DAPPLE's second
 * policy, c = 4 that of SPP (Luo et al., 2022). */
#include "sched/sched.h"

/* Micro-batches in flight on a replica, less one. */
static int lead(const fr_schedule_desc *d, int stage)
{
    int own = fr__replicas(d, stage), workers = d->n_stages - stage, factor = d->lead;
    if (d->depth)
        workers = d->depth[stage];
    else
        for (int k = stage; k < d->n_stages && d->replicas; k++) workers += fr__replicas(d, k) - 1;
    if (factor > 1) workers = factor * (workers - own);
    return workers > own ? (workers + own - 1) / own - 1 : 0;
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
    .has_lead = true,
    .emit = emit,
};

const fr_generator fr__gen_1f1b_async = {
    .name = "1f1b-async",
    .summary = "one forward, one backward, without a flush; each stage steps when it can",
    .any_replicas = true,
    .has_lead = true,
    .lead = lead,
    .emit = emit,
};
