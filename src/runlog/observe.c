/* observe.c -- from the engine's records to the files of a run. */
#include "runlog/observe.h"

#include "base/alloc.h"
#include "config/parallel_checks.h"
#include "sim/timeline.h"

/* Arrays of a timeline, by worker and by rank. */
typedef struct lists {
    const fr_event **events;
    int *n_events, *rank_of;
    const char **names;
} lists;

static fr_status collect(const fr__setup *s, const fr_engine *e, lists *l)
{
    int n = fr_engine_n_workers(e), n_ranks = fr_team_size(s->team);
    l->events = FR_NEW_ARRAY(const fr_event *, n);
    l->n_events = FR_NEW_ARRAY(int, n);
    l->rank_of = FR_NEW_ARRAY(int, n);
    l->names = FR_NEW_ARRAY(const char *, n_ranks);
    if (!l->events || !l->n_events || !l->rank_of || !l->names)
        return fr__no_memory(s->ctx, (size_t)n * sizeof *l->events, "a trace");
    for (int i = 0; i < n; i++) {
        l->events[i] = fr_engine_events(e, i, &l->n_events[i]);
        l->rank_of[i] = fr_engine_rank_of(e, i);
    }
    for (int i = 0; i < n_ranks && s->team; i++) l->names[i] = fr_team_name(s->team, i);
    return FR_OK;
}

static fr_status write_timeline(const fr__setup *s, const fr_engine *e, const char *path,
                                const lists *l)
{
    const fr_schedule *plan = s->pipeline.schedule;
    char title[256], layout[128];
    int n = fr_engine_n_workers(e), n_all = 0;
    for (int i = 0; i < n; i++) n_all += l->n_events[i];
    if (n_all == 0) return FR_OK;
    snprintf(title, sizeof title, "%s, %s, weights %s, %s", fr_graph_name(s->graph), plan->name,
             s->settings.policy->name, fr__parallel_text(plan, layout, sizeof layout));
    fr__timeline t = {.title = title,
                      .n_workers = n,
                      .n_stages = plan->n_stages,
                      .n_micro = plan->n_micro,
                      .worker_of = plan->worker_of,
                      .replicas = plan->replicas,
                      .n_ranks = s->team ? fr_team_size(s->team) : 0,
                      .rank_names = l->names,
                      .rank_of = l->rank_of,
                      .events = l->events,
                      .n_events = l->n_events};
    return fr__timeline_write(s->ctx, path, &t);
}

fr_status fr__observe_trace(const fr__setup *s, const fr_engine *e, const fr__folder *f)
{
    char path[FR_PATH];
    lists l = {0};
    if (s->settings.n_events == 0) return FR_OK;
    FR_TRY(fr__folder_file(s->ctx, f, "trace.json", path));
    fr_status status = collect(s, e, &l);
    if (status == FR_OK) status = write_timeline(s, e, path, &l);
    fr__free(l.events);
    fr__free(l.n_events);
    fr__free(l.rank_of);
    fr__free(l.names);
    return status;
}

fr_status fr__observe_bubble(const fr__setup *s, const fr_engine *e, int64_t n_batches,
                             int64_t n_calls, fr__bubble *out)
{
    int n_workers = fr_engine_n_workers(e), n_stages = fr_engine_n_stages(e);
    fr_worker_times *workers = FR_NEW_ARRAY(fr_worker_times, n_workers);
    fr_stage_times *stages = FR_NEW_ARRAY(fr_stage_times, n_stages);
    fr_status status = FR_OK;
    if (!workers || !stages)
        status = fr__no_memory(s->ctx, (size_t)n_stages * sizeof *stages, "times");
    for (int i = 0; i < n_workers && status == FR_OK; i++) workers[i] = *fr_engine_times(e, i);
    for (int k = 0; k < n_stages && status == FR_OK; k++) stages[k] = *fr_engine_stage_times(e, k);
    fr__bubble_input in = {.schedule = s->pipeline.schedule,
                           .workers = workers,
                           .stages = stages,
                           .n_batches = n_batches,
                           .n_calls = n_calls};
    if (status == FR_OK) status = fr__bubble_split(s->ctx, &in, out);
    fr__free(workers);
    fr__free(stages);
    return status;
}
