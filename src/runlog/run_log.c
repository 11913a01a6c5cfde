/* run_log.c -- log lines for users. summary.json has the same numbers in full. */
#include "runlog/run_log.h"
#include <forerun/stability.h>
#include <forerun/state.h>

#include "config/parallel_checks.h"
#include "io/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MUCH_STOLEN 0.02  /* of the processors' time */
#define MUCH_STABILITY 10 /* times that a method may be less stable than one worker */
enum { MOST = 8 };        /* most numbers in one line */

/* "12.3 MB + 8.12 MB", one number per worker; for many workers only the range. */
static const char *memory_text(const fr_engine *e, bool is_forecast, char *text, size_t room)
{
    int n = fr_engine_n_workers(e), at = 0;
    double least = INFINITY, most = 0;
    for (int i = 0; i < n; i++) {
        double taken =
            (double)(is_forecast ? fr_engine_predicted(e, i)->total : fr_engine_peak_bytes(e, i));
        least = fmin(least, taken), most = fmax(most, taken);
        if (n <= MOST)
            at += snprintf(text + at, room - (size_t)at, "%s%s", i ? " + " : "",
                           fr__brief_bytes(taken).text);
    }
    if (n > MOST)
        snprintf(text, room, "%s to %s per worker", fr__brief_bytes(least).text,
                 fr__brief_bytes(most).text);
    return text;
}

/* "1f1b, weights live: 2 stages x 2 replicas on 4 workers in 2 processes (mpi), cut before fc.2" */
static void log_layout(const fr__setup *s, const fr_engine *e)
{
    char cuts[512], layout[192], where[64] = "";
    const fr__pipeline *p = &s->pipeline;
    int n_ranks = fr_team_size(s->team);
    if (n_ranks > 1)
        snprintf(where, sizeof where, " in %d processes (%s)", n_ranks,
                 fr__parallel_transport(&s->settings, s->team));
    fr__pipeline_cuts_text(p, s->graph, cuts, sizeof cuts);
    fr_log(s->ctx, FR_LOG_INFO, "%s, weights %s: %s on %d worker%s%s%s%s", p->schedule->name,
           s->settings.policy->name, fr__parallel_text(p->schedule, layout, sizeof layout),
           fr_engine_n_workers(e), fr_engine_n_workers(e) > 1 ? "s" : "", where,
           cuts[0] ? ", cut before " : "", cuts);
}

/* "41.2 ms", "1.53 s" */
static const char *time_text(double seconds, char *text, size_t room)
{
    bool is_short = seconds < 1;
    snprintf(text, room, "%.3g %s", is_short ? seconds * 1e3 : seconds, is_short ? "ms" : "s");
    return text;
}

/* A schedule whose pipeline is never full is not judged. */
static void log_stability(const fr__setup *s)
{
    const fr__settings *t = &s->settings;
    const fr_exec_plan *p = s->pipeline.plan;
    fr_stability limits;
    if (p->schedule->is_flush ||
        fr_exec_plan_stability(s->ctx, p, t->optimizer, &t->optim, &limits) != FR_OK)
        return;
    if (fr_stability_factor(&limits) > MUCH_STABILITY)
        fr_log(s->ctx, FR_LOG_WARN,
               "weights %s, %d stages, train.micro %lld: stable up to a learning rate %.0f times "
               "below one worker's (forerun methods --stability); warm it up "
               "(train.schedule.warmup), clip gradients, raise train.micro or change the method",
               p->policy->name, p->schedule->n_stages, (long long)t->micro,
               fr_stability_factor(&limits));
}

static void log_forecast(const fr__setup *s, const fr__time_forecast *f)
{
    char time[32];
    if (!f->is_made) return;
    time_text(f->s_per_batch, time, sizeof time);
    if (f->cluster)
        fr_log(s->ctx, FR_LOG_INFO,
               "EMULATED on %s: computation is real, times are those of the cluster; one second "
               "takes %.3g s here",
               f->cluster->name, f->scale);
    fr_log(s->ctx, FR_LOG_INFO,
           "forecast: %s per mini-batch, %s samples/s, workers idle %.1f %% (%s %s)", time,
           fr__brief_count((double)s->settings.batch / f->s_per_batch).text, 100 * f->result.bubble,
           f->is_measured ? "stages measured in" : "by",
           f->is_measured ? time_text(f->spent_s, (char[32]){0}, 32) : s->settings.profile);
}

/* "memory of the process: up to 2.7 GB (engine 2.45 GB, checkpoints and data in flight 160 MB,
 * program and data 95 MB)" */
static void log_footprint(const fr__setup *s, const fr__footprint *f)
{
    char measuring[64] = "";
    bool is_shared = fr_team_size(s->team) > 1;
    if (f->measuring > f->engine + f->host)
        snprintf(measuring, sizeof measuring, "; %s while the model is measured",
                 fr__brief_bytes((double)f->measuring).text);
    fr_log(s->ctx, FR_LOG_INFO,
           "memory of %s: up to %s (engine %s, checkpoints and data in flight %s, program and data "
           "%s%s)",
           is_shared ? "the largest process" : "the process",
           fr__brief_bytes((double)f->largest).text, fr__brief_bytes((double)f->engine).text,
           fr__brief_bytes((double)f->host).text, fr__brief_bytes((double)f->base).text, measuring);
}

/* Large state is not copied. */
static void log_checkpoints(const fr__setup *s, const fr_engine *e)
{
    if (s->settings.checkpoint_every == 0) return;
    if (fr_engine_copies_snapshots(e))
        fr_log(s->ctx, FR_LOG_INFO, "checkpoints are written from a copy, beside the training");
    else
        fr_log(s->ctx, FR_LOG_INFO,
               "checkpoints are written from the engine's own memory: training waits until it has "
               "been read");
}

void fr__log_late_forecast(const fr__setup *s, const fr__time_forecast *f, int64_t n_left)
{
    char time[32], left[32];
    double seconds = fr__forecast_s(f);
    fr_log(s->ctx, FR_LOG_INFO,
           "forecast from the first %d mini-batches: %s each, %s samples/s, %s for the %lld left",
           (int)FR_LATE_BATCHES, time_text(seconds, time, sizeof time),
           fr__brief_count((double)s->settings.batch / seconds).text,
           time_text(seconds * (double)n_left, left, sizeof left), (long long)n_left);
}

/* Stages that do not wait for each other do not know the norm of the whole gradient. */
static void log_clipping(const fr__setup *s)
{
    double norm = s->settings.clip_norm;
    int lag = s->pipeline.plan->norm_lag;
    if (lag > 0)
        fr_log(s->ctx, FR_LOG_INFO,
               "clip_norm %g: by the norm of the whole model %d update%s before, or that of the "
               "stage if it is larger",
               norm, lag, lag == 1 ? "" : "s");
    else
        fr_log(s->ctx, FR_LOG_INFO,
               "clip_norm %g: each stage by the norm of its own gradient (the stages do not wait "
               "for each other)",
               norm);
}

/* "*.norm.*: 12 parameters, 3.1k weights, lr x 0.1, weight_decay 0" */
static void log_groups(const fr__setup *s)
{
    for (int i = 0; i < s->settings.n_groups; i++) {
        const fr__group_settings *g = &s->settings.groups[i];
        char what[128] = "";
        if (g->freeze) snprintf(what, sizeof what, ", frozen");
        if (!g->freeze && g->lr_factor != 1) snprintf(what, sizeof what, ", lr x %g", g->lr_factor);
        const size_t n = strlen(what);
        if (!g->freeze && g->has_weight_decay)
            snprintf(what + n, sizeof what - n, ", weight_decay %g", g->weight_decay);
        fr_log(s->ctx, FR_LOG_INFO, "group %s: %lld parameter%s, %s weights%s%s", g->match,
               (long long)g->n_params, g->n_params == 1 ? "" : "s",
               fr__brief_count((double)g->n_weights).text, what,
               g->n_params ? "" : " (groups before it decide about all that it matches)");
    }
}

void fr__log_start(const fr__setup *s, const fr_engine *e, const fr__time_forecast *f,
                   const fr__footprint *footprint)
{
    char memory[320];
    fr_log(s->ctx, FR_LOG_INFO, "%s: %s parameters, %s on %s; %lld updates of %lld samples in %s",
           fr_graph_name(s->graph), fr__brief_count((double)fr_graph_param_count(s->graph)).text,
           memory_text(e, true, memory, sizeof memory), fr_engine_about(e), (long long)s->n_steps,
           (long long)s->settings.batch, fr__type_name(s->settings.precision));
    if (s->settings.precision == FR_BF16 && !fr_backend_computes(s->settings.backend, FR_BF16))
        fr_log(
            s->ctx, FR_LOG_INFO,
            "this processor has no instructions for bf16: values are stored as bf16 and computed "
            "in fp32");
    log_groups(s);
    if (fr_engine_n_workers(e) > 1 || s->pipeline.n_stages > 1) log_layout(s, e);
    if (s->settings.clip_norm > 0 && s->pipeline.n_stages > 1 && !s->pipeline.schedule->is_flush)
        log_clipping(s);
    log_stability(s);
    log_forecast(s, f);
    if (s->settings.is_micro_chosen)
        fr_log(s->ctx, FR_LOG_INFO,
               "train.micro is %lld: the smallest multiple of every stage's number of replicas",
               (long long)s->settings.micro);
    log_footprint(s, footprint);
    log_checkpoints(s, e);
}

static void log_idle_time(const fr__setup *s, const fr__bubble *b)
{
    fr_log(s->ctx, FR_LOG_INFO,
           "workers idle %.1f %%: fill and drain %.1f, imbalance %.1f, communication and the rest "
           "%.1f",
           100 * b->bubble, 100 * b->fill_drain, 100 * b->imbalance, 100 * b->communication);
}

static void log_forecast_error(const fr__setup *s, const fr__time_forecast *f,
                               const fr_run_result *r)
{
    double measured = (double)s->settings.batch / r->samples_per_s;
    char a[32], b[32], parts[64] = "";
    double forecast = fr__forecast_s(f);
    if (isnan(forecast) || isnan(measured)) return;
    if (f->replayed_s > 0)
        snprintf(parts, sizeof parts, ": stage times %+.1f, schedule %+.1f",
                 100 * (forecast / f->replayed_s - 1), 100 * (f->replayed_s / measured - 1));
    fr_log(s->ctx, FR_LOG_INFO, "a mini-batch took %s%s, forecast %s (%+.1f %%%s)",
           time_text(measured, a, sizeof a), f->cluster ? " (emulated)" : "",
           time_text(forecast, b, sizeof b), 100 * (forecast / measured - 1), parts);
    if (r->stolen > MUCH_STOLEN && !f->cluster)
        fr_log(s->ctx, FR_LOG_INFO,
               "the host of this virtual machine withheld %.1f %% of the processor time",
               100 * r->stolen);
}

static void log_overrun(const fr__setup *s, const fr_engine *e, const fr__time_forecast *f)
{
    fr_overrun o = fr_engine_overrun(e);
    if (f->cluster && o.late_s > 0.02 * o.paced_s)
        fr_log(s->ctx, FR_LOG_WARN,
               "this machine was too slow for the emulation: instructions were late by %.1f %% of "
               "their time; set parallel.emulation.scale to %.3g or more",
               100 * o.late_s / o.paced_s, 1.5 * f->scale);
}

static void log_memory(const fr__setup *s, const fr_engine *e)
{
    char taken[320], forecast[320];
    bool is_same = true;
    for (int i = 0; i < fr_engine_n_workers(e); i++)
        is_same &= fr_engine_peak_bytes(e, i) == fr_engine_predicted(e, i)->total;
    memory_text(e, false, taken, sizeof taken);
    if (is_same)
        fr_log(s->ctx, FR_LOG_INFO, "memory: %s, as forecast", taken);
    else
        fr_log(s->ctx, FR_LOG_INFO, "memory: %s, forecast %s", taken,
               memory_text(e, true, forecast, sizeof forecast));
}

/* Error of predicted weights relative to that of stale weights, per stage; for many stages only the
 * largest. */
static void log_prediction_error(const fr__setup *s, const fr_engine *e)
{
    char text[320];
    int at = 0, n = 0;
    double worst = 0;
    for (int k = 0; k < fr_engine_n_stages(e); k++) {
        const fr_prediction_error *p = fr_engine_prediction(e, k);
        if (!p || p->n_values == 0 || !(p->stale > 0)) continue;
        double ratio = sqrt(p->predicted / p->stale);
        worst = fmax(worst, ratio);
        if (n++ < MOST)
            at += snprintf(text + at, sizeof text - (size_t)at, "%s%.2f (stage %d)", at ? ", " : "",
                           ratio, k);
    }
    if (n > MOST) snprintf(text, sizeof text, "at most %.2f", worst);
    if (n > 0)
        fr_log(s->ctx, FR_LOG_INFO, "error of predicted weights over that of stale ones: %s", text);
}

void fr__log_end(const fr__setup *s, const fr_engine *e, const fr__time_forecast *f,
                 const fr__bubble *b, const fr_run_result *r)
{
    if (isnan(b->measured_s_per_batch)) return; /* nothing was trained in this session */
    log_forecast_error(s, f, r);
    log_overrun(s, e, f);
    if (fr_engine_n_workers(e) > 1) log_idle_time(s, b);
    log_memory(s, e);
    log_prediction_error(s, e);
}
