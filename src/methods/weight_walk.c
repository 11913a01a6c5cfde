/* weight_walk.c -- which weights the passes of a stage read, and how many blocks of them must be
 * kept at once: a store without weights is led along the lists of the schedule.
 *
 * So the choice of versions is the store's own, whatever the schedule is. A stage needs the same in
 * every mini-batch once its pipeline is full; a segment that ends before has a longer one beside it
 * (fr__schedule_steady), so that the count does not depend on the length of a run. */
#include "methods/methods.h"

#include "sched/sched.h"

/* Micro-batches between forward and last use, at most. */
static int count_in_flight(const fr_schedule *s, const fr_instr_list *list, int stage)
{
    int n = 0, most = 1;
    for (int i = 0; i < list->n; i++) {
        const fr_instr *at = &list->at[i];
        if (at->stage != stage) continue;
        if (at->action == FR_DO_F && ++n > most) most = n;
        if (at->action != FR_DO_F && fr__is_last_use(s, at->action)) n--;
    }
    return most;
}

typedef struct walk {
    const fr_schedule *s;
    int stage, replica;
    int n_batches; /* the first of the segment */
    int first;     /* micro-batch of them that is noted, with all that follow */
    fr_store *store;
    fr_weight_read *forwards, *backwards; /* [stage][micro]; NULL: not needed */
} walk;

static void note(const walk *w, fr_weight_read *to, int micro, const fr_view *view)
{
    int length = w->n_batches * w->s->n_micro - w->first;
    if (!to || micro < w->first) return;
    to[(size_t)w->stage * (size_t)length + (size_t)(micro - w->first)] =
        (fr_weight_read){(int)view->version, view->ahead};
}

static fr_status step(const walk *w, const fr_instr *at)
{
    int j = at->micro % w->s->n_micro / w->s->replicas[w->stage];
    int64_t batch = at->micro / w->s->n_micro;
    fr_view view;
    switch (at->action) {
    case FR_DO_F:
        FR_TRY(fr_store_forward(w->store, batch, j, &view));
        note(w, w->forwards, at->micro, &view);
        return FR_OK;
    case FR_DO_B:
    case FR_DO_I:
    case FR_DO_W:
        FR_TRY(fr_store_backward(w->store, batch, j, &view));
        if (at->action != FR_DO_W) note(w, w->backwards, at->micro, &view);
        if (at->action != FR_DO_I) fr_store_done(w->store, batch, j);
        return FR_OK;
    case FR_DO_STEP: fr_store_begin(w->store, at->micro, 1); return fr_store_end(w->store, 0);
    default: return FR_OK;
    }
}

static fr_status run(fr_ctx *ctx, const fr_exec_plan *p, walk *w, int *n_blocks)
{
    const fr_instr_list *list = &w->s->lists[w->s->worker_of[w->stage] + w->replica];
    fr_store_desc d = {
        .policy = p->policy, .context = p->context[w->stage], .type = p->weight_type};
    d.context.n_slots = count_in_flight(w->s, list, w->stage);
    FR_TRY(fr_store_create(ctx, &d, &w->store));
    fr_status status = FR_OK;
    for (int i = 0; i < list->n && status == FR_OK; i++) {
        const fr_instr *at = &list->at[i];
        int batch = at->action == FR_DO_STEP ? at->micro : at->micro / w->s->n_micro;
        if (at->stage == w->stage && batch < w->n_batches) status = step(w, at);
    }
    if (n_blocks && fr_store_n_blocks(w->store) > *n_blocks)
        *n_blocks = fr_store_n_blocks(w->store);
    fr_store_free(w->store);
    return status;
}

/* With a flush all weights are of one version, and only a policy that reads these is let in. */
fr_status fr__count_blocks(fr_ctx *ctx, fr_exec_plan *p, int stage)
{
    int n_batches, *n = &p->n_weight_blocks[stage];
    const fr_schedule *s = fr__schedule_steady(p->schedule, &n_batches);
    *n = 1;
    if (s->is_flush) return FR_OK;
    fr_status status = FR_OK;
    for (int q = 0; q < s->replicas[stage] && status == FR_OK; q++) {
        walk w = {.s = s, .stage = stage, .replica = q, .n_batches = n_batches};
        status = run(ctx, p, &w, n);
    }
    if (status != FR_OK && *n == FR_MAX_WEIGHT_BLOCKS)
        status = fr_fail(ctx, FR_UNSUPPORTED,
                         "weights '%s' would hold more than %d blocks of weights on stage %d; "
                         "use fewer stages, or another policy",
                         p->policy->name, FR_MAX_WEIGHT_BLOCKS, stage);
    return status;
}

/* All workers of the schedule; `common` is the same for all. */
static fr_status walk_all(fr_ctx *ctx, const fr_exec_plan *p, const walk *common)
{
    const fr_schedule *s = common->s;
    for (int k = 0; k < s->n_stages; k++)
        for (int q = 0; q < s->replicas[k]; q++) {
            walk w = *common;
            w.stage = k, w.replica = q;
            FR_TRY(run(ctx, p, &w, NULL));
        }
    return FR_OK;
}

fr_status fr_exec_plan_reads(fr_ctx *ctx, const fr_exec_plan *p, fr_weight_read *forwards,
                             fr_weight_read *backwards)
{
    const walk w = {.s = p->schedule,
                    .n_batches = p->schedule->n_batches,
                    .forwards = forwards,
                    .backwards = backwards};
    return walk_all(ctx, p, &w);
}

fr_status fr__steady_forwards(fr_ctx *ctx, const fr_exec_plan *p, fr_weight_read *reads, int *batch)
{
    int n_batches;
    const fr_schedule *s = fr__schedule_steady(p->schedule, &n_batches);
    *batch = n_batches - 1;
    const walk w = {
        .s = s, .n_batches = n_batches, .first = *batch * s->n_micro, .forwards = reads};
    return walk_all(ctx, p, &w);
}
