/* simulate.c -- simulates a whole run on the virtual clock: time, idle share, traffic, memory,
 * trace. */
#include "config/parallel_checks.h"
#include "forecast/forecast.h"
#include "forecast/recompute.h"
#include "io/file.h"
#include "sim/timeline.h"

#include <stdio.h>
#include <string.h>

enum { MOST_COMPILED = 128, N_EVENTS = 20000 };

static fr_status write_trace(const fr__setup *s, const fr_sim_result *r, const char *path)
{
    const fr_schedule *q = s->pipeline.schedule;
    char title[256], layout[128];
    fr_arena arena = {0};
    const fr_event **events = FR_ARENA_ARRAY(&arena, const fr_event *, r->n_workers);
    int *n_events = FR_ARENA_ARRAY(&arena, int, r->n_workers);
    fr_status status = events && n_events ? FR_OK : fr__no_memory(s->ctx, 0, "a trace");
    for (int w = 0; w < r->n_workers && status == FR_OK; w++)
        events[w] = r->workers[w].events, n_events[w] = r->workers[w].n_events;
    snprintf(title, sizeof title, "SIMULATED: %s, %s, weights %s, %s", fr_graph_name(s->graph),
             q->name, s->settings.policy->name, fr__parallel_text(q, layout, sizeof layout));
    fr__timeline t = {.title = title,
                      .n_workers = r->n_workers,
                      .n_stages = q->n_stages,
                      .n_micro = q->n_micro,
                      .worker_of = q->worker_of,
                      .replicas = q->replicas,
                      .events = events,
                      .n_events = n_events};
    if (status == FR_OK) status = fr__timeline_write(s->ctx, path, &t);
    fr__arena_fini(&arena);
    return status;
}

/* Exact where the stages can be compiled in reasonable time, else by the profile. */
static fr_status fill_memory(const fr__setup *s, const fr__time_forecast *time, fr_forecast *f)
{
    fr_memory_use *use;
    f->fits = true;
    if (f->n_workers <= MOST_COMPILED) {
        use = FR_NEW_ARRAY(fr_memory_use, f->n_workers);
        if (!use) return fr__no_memory(s->ctx, (size_t)f->n_workers, "a forecast");
        fr_status status = fr__setup_forecast(s, use);
        for (int w = 0; w < f->n_workers; w++) f->memory[w] = use[w].total;
        fr__free(use);
        FR_TRY(status);
    } else {
        memcpy(f->memory, time->spread.memory, (size_t)f->n_workers * sizeof *f->memory);
    }
    for (int w = 0; w < f->n_workers; w++) {
        size_t limit = fr__worker_limit(&s->settings, time->cluster, w);
        f->limit[w] = (double)limit;
        if (limit > 0 && f->memory[w] > limit) f->fits = false;
    }
    return FR_OK;
}

static fr_status fill(const fr__setup *s, const fr__time_forecast *time, fr_forecast *f)
{
    const fr_sim_result *r = &time->result;
    fr_arena *arena = FR_NEW(fr_arena);
    f->arena = arena;
    if (!arena) return fr__no_memory(s->ctx, sizeof *arena, "a forecast");
    f->n_workers = r->n_workers;
    f->s_per_batch = time->s_per_batch;
    f->samples_per_s = (double)s->settings.batch / time->s_per_batch;
    f->bubble = r->bubble, f->makespan = r->makespan;
    f->sum_bytes = r->sum_bytes, f->message_bytes = r->message_bytes;
    f->busy_s = FR_ARENA_ARRAY(arena, double, r->n_workers);
    f->wait_s = FR_ARENA_ARRAY(arena, double, r->n_workers);
    f->limit = FR_ARENA_ARRAY(arena, double, r->n_workers);
    f->memory = FR_ARENA_ARRAY(arena, size_t, r->n_workers);
    if (!f->busy_s || !f->wait_s || !f->limit || !f->memory)
        return fr__no_memory(s->ctx, (size_t)r->n_workers * sizeof(double), "a forecast");
    for (int w = 0; w < r->n_workers; w++)
        f->busy_s[w] = r->workers[w].busy, f->wait_s[w] = r->workers[w].wait;
    return fill_memory(s, time, f);
}

static fr_status simulate(fr__setup *s, int64_t n_batches, const char *trace,
                          fr__time_forecast *time, fr_forecast *out)
{
    FR_TRY(fr__pipeline_open(s->ctx, s->conf, &s->settings, s->graph, s->n_steps, 0, &s->pipeline));
    FR_TRY(fr__recompute_choose(s));
    FR_TRY(fr__forecast_time(s, n_batches, trace ? N_EVENTS : 0, time));
    if (trace) FR_TRY(write_trace(s, &time->result, trace));
    return fill(s, time, out);
}

/* Adds the cluster to the options as a quoted config value, so keys that need a cluster
 * (parallel.devices) are read with it. */
static fr_status add_cluster(fr_ctx *ctx, const char *cluster, fr_arena *a, fr_run_options *o)
{
    const char **sets = FR_ARENA_ARRAY(a, const char *, o->n_sets + 1);
    char *set = fr__arena_alloc(a, 2 * strlen(cluster) + 32);
    if (!sets || !set) return fr__no_memory(ctx, strlen(cluster), "the name of a cluster file");
    char *at = set + sprintf(set, "parallel.cluster='");
    for (const char *c = cluster; *c; *at++ = *c++)
        if (*c == '\'') *at++ = '\'';
    at[0] = '\'', at[1] = '\0';
    for (int i = 0; i < o->n_sets; i++) sets[i] = o->sets[i];
    sets[o->n_sets++] = set;
    o->sets = sets;
    return FR_OK;
}

fr_status fr_run_simulate(fr_ctx *ctx, const fr_run_options *o, const char *cluster,
                          const char *profile, int64_t n_batches, const char *trace,
                          fr_forecast *out)
{
    fr__setup s;
    fr__time_forecast time = {0};
    fr_arena arena = {0};
    fr_run_options own;
    memset(out, 0, sizeof *out);
    FR_TRY(fr__run_options_take(ctx, o, &own));
    fr_status status = cluster ? add_cluster(ctx, cluster, &arena, &own) : FR_OK;
    if (status == FR_OK) status = fr__setup_open(ctx, &own, &s);
    if (status == FR_OK) {
        if (profile) s.settings.profile = profile;
        status = simulate(&s, n_batches, trace, &time, out);
        if (status != FR_OK) fr_forecast_free(out);
        fr__time_forecast_free(&time);
        fr__setup_close(&s);
    }
    fr__arena_fini(&arena);
    return status;
}

void fr_forecast_free(fr_forecast *f)
{
    fr__arena_free(f->arena);
    memset(f, 0, sizeof *f);
}
