/* observe.c -- from the engine's records to the files of a run. */
#include "train/observe.h"

#include "base/alloc.h"
#include "train/trace.h"

fr_status fr__observe_trace(const fr_setup *s, const fr_engine *e, const fr_folder *f)
{
    char path[FR_PATH], title[128];
    const fr_schedule *plan = s->pipeline.schedule;
    int n = fr_engine_n_workers(e), n_all = 0;
    if (s->settings.n_events == 0) return FR_OK;
    FR_TRY(fr__path(s->ctx, path, "%s/trace.json", f->path));
    const fr_event **events = FR_NEW_ARRAY(const fr_event *, n);
    int *n_events = FR_NEW_ARRAY(int, n);
    fr_status status = FR_OK;
    if (!events || !n_events) status = fr__no_memory(s->ctx, (size_t)n * sizeof *events, "a trace");
    for (int i = 0; i < n && status == FR_OK; i++) {
        events[i] = fr_engine_events(e, i, &n_events[i]);
        n_all += n_events[i];
    }
    snprintf(title, sizeof title, "%s, %s, weights %s, %d stages", fr_graph_name(s->graph),
             plan->name, s->settings.policy->name, plan->n_stages);
    fr_timeline t = {.title = title,
                     .n_workers = n,
                     .n_stages = plan->n_stages,
                     .n_micro = plan->n_micro,
                     .worker_of = plan->worker_of,
                     .events = events,
                     .n_events = n_events};
    if (status == FR_OK && n_all > 0) status = fr__timeline_write(s->ctx, path, &t);
    fr__free(events);
    fr__free(n_events);
    return status;
}

fr_status fr__observe_bubble(const fr_setup *s, const fr_engine *e, int64_t n_batches,
                             int64_t n_calls, fr_bubble *out)
{
    int n_workers = fr_engine_n_workers(e), n_stages = fr_engine_n_stages(e);
    fr_worker_times *workers = FR_NEW_ARRAY(fr_worker_times, n_workers);
    fr_stage_times *stages = FR_NEW_ARRAY(fr_stage_times, n_stages);
    fr_status status = FR_OK;
    if (!workers || !stages)
        status = fr__no_memory(s->ctx, (size_t)n_stages * sizeof *stages, "times");
    for (int i = 0; i < n_workers && status == FR_OK; i++) workers[i] = *fr_engine_times(e, i);
    for (int k = 0; k < n_stages && status == FR_OK; k++) stages[k] = *fr_engine_stage_times(e, k);
    fr_bubble_input in = {.schedule = s->pipeline.schedule,
                          .workers = workers,
                          .stages = stages,
                          .n_batches = n_batches,
                          .n_calls = n_calls};
    if (status == FR_OK) status = fr__bubble_split(s->ctx, &in, out);
    fr__free(workers);
    fr__free(stages);
    return status;
}
