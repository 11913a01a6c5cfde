/* replicas.c -- several workers for one stage. The micro-batches of a mini-batch go to them round
 * robin, and their gradients are summed before the step (PipeDream's hybrid of pipeline and data
 * parallelism).
 *
 * Generators do not handle replicas. A generator writes one list per worker, over the micro-batches
 * of one replica. This file gives replica q of r that list with micro-batch i renamed to i * r + q.
 * Because r divides the micro-batches of a mini-batch, mini-batches stay together: micro-batch i of
 * replica q is micro-batch (i mod n/r) * r + q of mini-batch i / (n/r). If all stages have the same
 * number of replicas, the result is that number of independent pipelines. */
#include "sched/sched.h"

bool fr__has_replicas(const fr_schedule *s)
{
    for (int k = 0; k < s->n_stages; k++)
        if (s->replicas[k] > 1) return true;
    return false;
}

int fr__lcm(int a, int b)
{
    if (a < 1 || b < 1) return 1; /* the range checks report it */
    int x = a, y = b;
    while (y > 0) {
        int rest = x % y;
        x = y, y = rest;
    }
    return a / x * b;
}

fr_status fr__check_replicas(fr_ctx *ctx, const char *name, const fr_schedule_desc *d,
                             bool any_replicas)
{
    for (int k = 0; d->replicas && k < d->n_stages; k++) {
        int r = d->replicas[k];
        if (r < 1)
            return fr_fail(ctx, FR_INVALID,
                           "schedule %s: %d replicas of stage %d; at least 1 is required", name, r,
                           k);
        if (d->n_micro % r != 0)
            return fr_fail(
                ctx, FR_INVALID,
                "schedule %s: stage %d has %d replicas for %d micro-batches; train.micro must be a "
                "multiple of the replicas of each stage (parallel.replicas)",
                name, k, r, d->n_micro);
        if (!any_replicas && r != d->replicas[0])
            return fr_fail(ctx, FR_INVALID,
                           "schedule %s needs the same number of replicas of all stages, but stage "
                           "0 has %d and stage %d has %d; 1f1b, 1f1b-async, gpipe and sequential "
                           "accept different numbers",
                           name, d->replicas[0], k, r);
    }
    return FR_OK;
}

fr_status fr__check_together(fr_ctx *ctx, const fr_schedule *s, const int *replicas)
{
    for (int w = 0; w < s->n_workers; w++) {
        int n;
        const int *own = fr__stages_of(s, w, &n);
        for (int i = 1; i < n; i++)
            if (replicas[own[i]] != replicas[own[0]] ||
                s->worker_of[own[i]] != s->worker_of[own[0]])
                return fr_fail(ctx, FR_INVALID,
                               "schedule %s: stages %d and %d are both on worker %d, which is "
                               "replicated as a whole, but stage %d has %d replicas and stage %d "
                               "has %d; give stages of one worker the same number",
                               s->name, own[0], own[i], w, own[0], replicas[own[0]], own[i],
                               replicas[own[i]]);
    }
    return FR_OK;
}

/* Number of replica 0 of each worker of `base`, counting all replicas worker by worker. Returns the
 * total number. */
static int number_workers(const fr_schedule *base, const int *replicas, int *first)
{
    int n = 0, n_own;
    for (int w = 0; w < base->n_workers; w++) {
        const int *own = fr__stages_of(base, w, &n_own);
        first[w] = n;
        n += n_own > 0 ? replicas[own[0]] : 1;
    }
    return n;
}

static fr_status copy_lists(fr_ctx *ctx, const fr_schedule *base, const int *first, fr_schedule *to)
{
    for (int w = 0; w < base->n_workers; w++)
        for (int i = 0; i < base->lists[w].n; i++) {
            const fr_instr *x = &base->lists[w].at[i];
            bool is_of_batch = fr_is_of_batch(x->action);
            int r = to->replicas[x->stage];
            for (int q = 0; q < r; q++)
                fr__emit_transfer(to, first[w] + q, (fr_action)x->action, x->stage,
                                  is_of_batch ? x->micro : x->micro * r + q, x->peer);
        }
    return fr__emit_failed(to) ? fr__no_memory(ctx, sizeof(fr_instr), "a schedule") : FR_OK;
}

static fr_status replicate(fr_ctx *ctx, const fr_schedule *base, const int *replicas, int n_micro,
                           int *first, int *worker_of, fr_schedule **out)
{
    int n_workers = number_workers(base, replicas, first);
    for (int k = 0; k < base->n_stages; k++) worker_of[k] = first[base->worker_of[k]];
    fr_schedule_desc d = {.n_stages = base->n_stages,
                          .n_micro = n_micro,
                          .n_batches = base->n_batches,
                          .n_forward = base->n_forward,
                          .n_backward = base->n_backward,
                          .forward = base->forward,
                          .backward = base->backward,
                          .replicas = replicas};
    FR_TRY(fr__schedule_new(ctx, base->name, &d, n_workers, worker_of, base->is_forward_only, out));
    (*out)->is_flush = base->is_flush;
    (*out)->is_split = base->is_split;
    return copy_lists(ctx, base, first, *out);
}

fr_status fr__schedule_replicate(fr_ctx *ctx, fr_schedule **base, const int *replicas, int n_micro)
{
    fr_schedule *s = NULL;
    int *first = FR_NEW_ARRAY(int, (*base)->n_workers);
    int *worker_of = FR_NEW_ARRAY(int, (*base)->n_stages);
    fr_status status =
        first && worker_of
            ? replicate(ctx, *base, replicas, n_micro, first, worker_of, &s)
            : fr__no_memory(ctx, (size_t)(*base)->n_stages * sizeof(int), "a schedule");
    fr__free(first);
    fr__free(worker_of);
    if (status != FR_OK) {
        fr_schedule_free(s);
        return status;
    }
    fr_schedule_free(*base);
    *base = s;
    return FR_OK;
}
