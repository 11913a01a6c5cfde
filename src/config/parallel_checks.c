/* parallel_checks.c -- number of replicas per stage, their sync, number of processes. */
#include "config/parallel_checks.h"

#include <stdio.h>
#include <string.h>

bool fr__parallel_is_even(const fr_schedule *s)
{
    for (int k = 1; k < s->n_stages; k++)
        if (s->replicas[k] != s->replicas[0]) return false;
    return true;
}

const char *fr__parallel_text(const fr_schedule *s, char *text, size_t room)
{
    const char *plural = s->n_stages > 1 ? "s" : "";
    if (!fr__parallel_is_even(s)) {
        char list[128] = "", one[16];
        for (int k = 0; k < s->n_stages; k++) {
            snprintf(one, sizeof one, "%d", s->replicas[k]);
            fr__append_name(list, sizeof list, one);
        }
        snprintf(text, room, "%d stages with %s replicas", s->n_stages, list);
    } else if (s->replicas[0] > 1) {
        snprintf(text, room, "%d stage%s x %d replicas", s->n_stages, plural, s->replicas[0]);
    } else {
        snprintf(text, room, "%d stage%s", s->n_stages, plural);
    }
    return text;
}

fr_status fr__parallel_check_replicas(fr_conf *parallel, const fr__settings *t,
                                      const fr_generator *g, int n_stages)
{
    int n_apart = n_stages / t->chunks; /* stages at this distance share a worker */
    for (int k = 1; k < n_stages; k++) {
        int here = fr__settings_replicas(t, k), before = fr__settings_replicas(t, k - 1);
        if (here != before && !g->any_replicas)
            return fr_conf_fail(
                parallel, "replicas",
                "stage %d has %d replicas, stage %d has %d, and method '%s' needs the same number "
                "for all stages; give one number, or choose a method that distributes "
                "micro-batches (1f1b, pipedream, spectrain, ...)",
                k - 1, before, k, here, t->method->name);
        if (k >= n_apart && here != fr__settings_replicas(t, k - n_apart))
            return fr_conf_fail(parallel, "replicas",
                                "stages %d and %d are chunks of the same workers, and so have the "
                                "same number of replicas; give one number for all stages",
                                k - n_apart, k);
    }
    return FR_OK;
}

fr_status fr__parallel_check_sync(fr_conf *parallel, const fr__settings *t, fr__pipeline *p)
{
    const fr_schedule *s = p->schedule;
    p->sync = t->sync;
    if (!fr_sync_find(t->sync.name)->steps_alone) return FR_OK;
    if (p->sync.every == 0) /* a wave: the mini-batches that a pipeline has in flight */
        p->sync.every =
            s->is_flush ? 1 : fr_schedule_lead(s, 0) / (s->n_micro / s->replicas[0]) + 1;
    if (fr__parallel_is_even(s)) return FR_OK;
    return fr_conf_fail(parallel, "replicas",
                        "with sync '%s' each replica is a whole pipeline: every stage has as many; "
                        "give one number, or use sync allreduce",
                        t->sync.name);
}

fr_status fr__parallel_check_ranks(fr_conf *parallel, const fr__settings *t, const fr__pipeline *p,
                                   int n_ranks)
{
    char layout[192], remedy[128] = "";
    int n = p->schedule->n_workers, each = t->workers_per_rank, at = 0;
    if (n_ranks == 1 && t->transport && t->transport != fr_transport_list()[0])
        return fr_conf_fail(parallel, "transport",
                            "transport '%s' connects processes, and there is only one; start %d "
                            "(mpirun -n %d forerun train ...), or parallel.transport: auto",
                            t->transport->name, (n + each - 1) / each, (n + each - 1) / each);
    if (n_ranks <= 1) return FR_OK;
    if (t->transport == fr_transport_list()[0])
        return fr_conf_fail(parallel, "transport",
                            "transport '%s' works within one process, and %d were started; leave "
                            "parallel.transport out, or start one",
                            t->transport->name, n_ranks);
    if (n == n_ranks * each) return FR_OK;
    if (n % each == 0) at = snprintf(remedy, sizeof remedy, "mpirun -n %d", n / each);
    if (n % n_ranks == 0)
        at += snprintf(remedy + at, sizeof remedy - (size_t)at, "%sparallel.workers_per_rank: %d",
                       at ? ", or " : "", n / n_ranks);
    if (at == 0) snprintf(remedy, sizeof remedy, "mpirun -n %d, one worker each", n);
    return fr_conf_fail(
        parallel, fr_conf_has(parallel, "workers_per_rank") ? "workers_per_rank" : "stages",
        "the run has %d worker%s (%s), %d processes were started with %d worker%s each: %s", n,
        n > 1 ? "s" : "", fr__parallel_text(p->schedule, layout, sizeof layout), n_ranks, each,
        each > 1 ? "s" : "", remedy);
}

const char *fr__parallel_transport(const fr__settings *t, const fr_team *team)
{
    return t->transport ? t->transport->name : team ? "mpi" : fr_transport_list()[0]->name;
}

static bool has_replicas(const fr_schedule *s)
{
    for (int k = 0; k < s->n_stages; k++)
        if (s->replicas[k] > 1) return true;
    return false;
}

void fr__parallel_warn(fr_ctx *ctx, const fr__settings *t, const fr__pipeline *p)
{
    const fr_schedule *s = p->schedule;
    if (t->method->wants_replicas && !t->schedule_file && !has_replicas(s))
        fr_log(ctx, FR_LOG_WARN,
               "method %s is for several replicas, the config has one (parallel.replicas: N)",
               t->method->name);
    for (int k = 0; k < s->n_stages && t->exact_sum; k++) {
        int r = s->replicas[k];
        if ((r & (r - 1)) == 0) continue;
        fr_log(ctx, FR_LOG_WARN,
               "train.exact_sum: stage %d has %d replicas, which is not a power of two: sums are "
               "the same in every run, but not to the bit those of one worker",
               k, r);
        return;
    }
}
