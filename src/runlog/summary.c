/* summary.c -- writes summary.json, replacing the file atomically. */
#include "runlog/summary.h"

#include "base/thread.h"
#include "config/parallel_checks.h"
#include "forecast/recompute.h"
#include "io/file.h"
#include "io/json.h"
#include "runlog/environment.h"
#include "runlog/stage_rules.h"

#include <string.h>

#include <math.h>

static void write_memory(fr__json *j, const fr_memory_use *m)
{
    const struct {
        const char *name;
        size_t bytes;
    } parts[] = {{"weights", m->weights}, {"grads", m->grads}, {"optimizer", m->optimizer},
                 {"buffers", m->buffers}, {"slots", m->slots}, {"workspace", m->workspace},
                 {"cache", m->cache},     {"io", m->io}};
    fr__json_object(j, "predicted");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        fr__json_uint(j, parts[i].name, parts[i].bytes);
    fr__json_end(j);
}

static double seconds(const fr_worker_times *t, fr_spent first, fr_spent last)
{
    uint64_t ns = 0;
    for (int k = (int)first; k <= (int)last; k++) ns += t->ns[k];
    return (double)ns * 1e-9;
}

/* All time of a worker inside training. The rest of wall_s is before its first instruction and
 * after its last. */
static void write_times(fr__json *j, const fr_worker_times *t)
{
    static const char *const names[FR_N_SPENT] = {[FR_SPENT_FORWARD] = "forward",
                                                  [FR_SPENT_BACKWARD] = "backward",
                                                  [FR_SPENT_WEIGHT] = "weight",
                                                  [FR_SPENT_STEP] = "step",
                                                  [FR_SPENT_TRANSFER] = "transfer",
                                                  [FR_SPENT_WAIT_FORWARD] = "wait_forward",
                                                  [FR_SPENT_WAIT_BACKWARD] = "wait_backward",
                                                  [FR_SPENT_WAIT_OTHER] = "wait_other"};
    fr__json_real(j, "wall_s", (double)t->wall_ns * 1e-9);
    fr__json_object(j, "time");
    for (int k = 0; k < FR_N_SPENT; k++) fr__json_real(j, names[k], (double)t->ns[k] * 1e-9);
    fr__json_end(j);
}

static void write_worker(fr__json *j, const fr_engine *e, int worker)
{
    const fr_worker_times *t = fr_engine_times(e, worker);
    const fr_memory_use *m = fr_engine_predicted(e, worker);
    int replica = 0; /* the same for all its stages */
    fr__json_object(j, NULL);
    fr__json_list(j, "stages");
    for (int k = 0; k < fr_engine_n_stages(e); k++) {
        int nth = worker - fr_engine_worker_of(e, k, 0);
        if (nth < 0 || nth >= fr_engine_n_replicas(e, k)) continue;
        fr__json_int(j, NULL, k);
        replica = nth;
    }
    fr__json_end(j);
    fr__json_int(j, "replica", replica);
    fr__json_int(j, "rank", fr_engine_rank_of(e, worker));
    fr__json_real(j, "busy_s", seconds(t, FR_SPENT_FORWARD, FR_SPENT_STEP));
    fr__json_real(j, "wait_s", seconds(t, FR_SPENT_WAIT_FORWARD, FR_SPENT_WAIT_OTHER));
    fr__json_real(j, "comm_s", seconds(t, FR_SPENT_TRANSFER, FR_SPENT_TRANSFER));
    write_times(j, t);
    fr__json_uint(j, "peak_bytes", fr_engine_peak_bytes(e, worker));
    fr__json_uint(j, "predicted_peak_bytes", m->total);
    fr__json_int(j, "weight_copies", m->weight_copies);
    write_memory(j, m);
    fr__json_end(j);
}

static double per(uint64_t ns, int64_t n) { return n > 0 ? (double)ns * 1e-9 / (double)n : NAN; }

/* The stage's own rate (of the first update) and momentum, where the policy changes them. */
static void write_rule(fr__json *j, const fr__setup *setup, int stage)
{
    const fr__stage_rules r = fr__setup_stage_rules(setup);
    if (r.policy->lr_factor) fr__json_real(j, "lr_factor", fr__stage_lr_factor(&r, stage, 0));
    if (r.policy->adapt) fr__json_real(j, "momentum", fr__stage_momentum(&r, stage));
}

static void write_prediction(fr__json *j, const fr_prediction_error *p)
{
    if (!p || p->n_values == 0) return; /* nothing was predicted or sampled */
    fr__json_object(j, "prediction");
    fr__json_real(j, "ahead", p->ahead);
    fr__json_real(j, "predicted_rmse", sqrt(p->predicted / (double)p->n_values));
    fr__json_real(j, "stale_rmse", sqrt(p->stale / (double)p->n_values));
    fr__json_end(j);
}

/* Number of trained values of a stage; a tied parameter counts at its owner. */
static int64_t count_params(const fr_graph *g, const fr_stage *s)
{
    int64_t n = 0;
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        const fr_param *p = fr_graph_param(g, i);
        if (p->node >= s->first && p->node < s->last && p->tied_to < 0 && !p->is_buffer)
            n += fr_shape_count(&p->shape);
    }
    return n;
}

/* Times of the stage that the forecast used: per micro-batch, per update. */
static void write_expected(fr__json *j, const fr__time_forecast *f, const fr_schedule *q, int stage)
{
    if (!f->is_made) return;
    const fr_timing *t = &f->spread.timing;
    const fr_stage_cost *c = &t->cost[stage];
    double speed = t->speed ? t->speed[q->worker_of[stage]] : 1;
    double back = q->is_split ? c->back_input + c->back_weight : c->backward;
    double n_own = (double)q->n_micro / q->replicas[stage];
    fr__json_real(j, "predicted_forward_s", (c->forward + c->fetch_forward / n_own) / speed);
    fr__json_real(j, "predicted_backward_s", (back + c->fetch_backward / n_own) / speed);
    fr__json_real(j, "predicted_step_s", c->step / speed);
}

static void write_stage(fr__json *j, const fr__setup *setup, const fr_engine *e,
                        const fr__time_forecast *f, int stage)
{
    const fr_graph *g = setup->graph;
    const fr_stage *s = fr_engine_stage(e, stage);
    fr_stage_times t = fr_engine_warm_times(e, stage);
    fr__json_object(j, NULL);
    int first = s->first; /* INPUT nodes do not count */
    while (fr_graph_node(g, first)->op == FR_OP_INPUT && first + 1 < s->last) first++;
    fr__json_text(j, "first", fr_graph_node(g, first)->name);
    fr__json_text(j, "last", fr_graph_node(g, s->last - 1)->name);
    fr__json_int(j, "worker", fr_engine_worker_of(e, stage, 0));
    fr__json_int(j, "replicas", fr_engine_n_replicas(e, stage));
    fr__json_int(j, "parameters", count_params(g, s));
    fr__json_real(j, "forward_s", per(t.forward_ns, t.n_micro));
    fr__json_real(j, "backward_s", per(t.back_input_ns + t.back_weight_ns, t.n_micro));
    fr__json_real(j, "step_s", per(t.step_ns, t.n_steps));
    write_expected(j, f, setup->pipeline.schedule, stage);
    write_rule(j, setup, stage);
    write_prediction(j, fr_engine_prediction(e, stage));
    fr__json_end(j);
}

static void write_bubble(fr__json *j, const fr__bubble *b)
{
    fr__json_object(j, "bubble");
    fr__json_real(j, "share", b->bubble);
    fr__json_real(j, "fill_drain", b->fill_drain);
    fr__json_real(j, "imbalance", b->imbalance);
    fr__json_real(j, "communication", b->communication);
    fr__json_real(j, "optimizer", b->optimizer);
    fr__json_int(j, "busiest_worker", b->busiest);
    fr__json_real(j, "scheduled_s_per_batch", b->scheduled_s_per_batch);
    fr__json_real(j, "s_per_batch", b->measured_s_per_batch);
    fr__json_end(j);
}

/* Forecast against measurement, which leaves out the first tenth. */
static void write_forecast(fr__json *j, const fr__setup *s, const fr_engine *e,
                           const fr__time_forecast *f, const fr_run_result *r)
{
    double measured = (double)s->settings.batch / r->samples_per_s;
    fr__json_real(j, "predicted_s_per_batch", fr__forecast_s(f));
    fr__json_real(j, "measured_s_per_batch", measured);
    fr__json_real(j, "prediction_error", fr__forecast_s(f) / measured - 1);
    if (f->is_late_made) fr__json_int(j, "predicted_after_batches", FR_LATE_BATCHES);
    if (f->replayed_s > 0) {
        fr__json_real(j, "replayed_s_per_batch", f->replayed_s);
        fr__json_real(j, "cost_error", f->s_per_batch / f->replayed_s - 1);
        fr__json_real(j, "schedule_error", f->replayed_s / measured - 1);
    }
    fr__json_real(j, "prediction_took_s", f->spent_s);
    fr__json_text(j, "profile", s->settings.profile);
    if (!f->cluster) return;
    fr_overrun o = fr_engine_overrun(e);
    fr__json_object(j, "emulated");
    fr__json_text(j, "cluster", f->cluster->name);
    fr__json_text(j, "file", s->settings.cluster);
    fr__json_real(j, "scale", f->scale);
    fr__json_real(j, "late", o.paced_s > 0 ? o.late_s / o.paced_s : 0);
    fr__json_list(j, "devices");
    for (int w = 0; w < fr_engine_n_workers(e); w++)
        fr__json_text(j, NULL, f->cluster->devices[f->spread.timing.device_of[w]].name);
    fr__json_end(j);
    fr__json_end(j);
}

/* One number, or one per stage where they differ; and the sync rule. */
static void write_replicas(fr__json *j, const fr__pipeline *p)
{
    const fr_schedule *s = p->schedule;
    if (fr__parallel_is_even(s)) {
        fr__json_int(j, "replicas", s->replicas[0]);
    } else {
        fr__json_list(j, "replicas");
        for (int k = 0; k < s->n_stages; k++) fr__json_int(j, NULL, s->replicas[k]);
        fr__json_end(j);
    }
    fr__json_object(j, "sync");
    fr__json_text(j, "name", p->sync.name);
    if (p->sync.every > 0) fr__json_int(j, "every", p->sync.every);
    if (p->sync.every > 0) fr__json_int(j, "distance", p->sync.distance);
    fr__json_end(j);
}

/* Bytes between workers per trained sample. */
static void write_traffic(fr__json *j, const fr_engine *e, int64_t n_samples)
{
    fr_traffic t = fr_engine_traffic(e);
    double n = n_samples > 0 ? (double)n_samples : NAN;
    fr__json_object(j, "traffic");
    fr__json_real(j, "forward", (double)t.forward / n);
    fr__json_real(j, "backward", (double)t.backward / n);
    fr__json_real(j, "sums", (double)t.sums / n);
    fr__json_end(j);
}

static void write_groups(fr__json *j, const fr__setup *s)
{
    if (s->settings.n_groups == 0) return;
    fr__json_list(j, "groups");
    for (int i = 0; i < s->settings.n_groups; i++) {
        const fr__group_settings *g = &s->settings.groups[i];
        fr__json_object(j, NULL);
        fr__json_text(j, "match", g->match);
        fr__json_int(j, "parameters", g->n_params);
        fr__json_int(j, "weights", g->n_weights);
        fr__json_bool(j, "frozen", g->freeze);
        fr__json_real(j, "lr_factor", g->lr_factor);
        fr__json_real(j, "weight_decay", g->weight_decay);
        fr__json_end(j);
    }
    fr__json_end(j);
}

static void write_all(fr__json *j, const fr__setup *s, const fr_engine *e, const fr__summary *sum)
{
    const fr__settings *t = &s->settings;
    const fr_run_result *r = sum->result;
    fr__json_object(j, NULL);
    fr__json_text(j, "status", sum->status);
    fr__json_text(j, "model", fr_graph_name(s->graph));
    fr__json_int(j, "parameters", fr_graph_param_count(s->graph));
    write_groups(j, s);
    fr__json_text(j, "data", s->data_name);
    fr__json_text(j, "method", t->schedule_file ? "schedule file" : t->method->name);
    fr__json_text(j, "schedule", s->pipeline.schedule->name);
    fr__json_text(j, "weights", t->policy->name);
    fr__json_int(j, "stages", s->pipeline.n_stages);
    write_replicas(j, &s->pipeline);
    fr__json_text(j, "transport", fr__parallel_transport(t, s->team));
    fr__json_int(j, "processes", fr_team_size(s->team));
    fr__json_int(j, "batch", t->batch);
    fr__json_int(j, "micro", t->micro);
    fr__json_uint(j, "seed", t->seed);
    fr__json_text(j, "precision", fr__type_name(t->precision));
    fr__json_text(j, "messages", fr__type_name(t->has_short_messages ? FR_BF16 : t->precision));
    fr__json_text(j, "optimizer", t->optimizer->name);
    fr__json_int(j, "steps", r->steps);
    fr__json_int(j, "samples", r->samples);
    fr__json_real(j, "train_loss", r->train_loss);
    fr__json_real(j, "eval_loss", r->eval_loss);
    fr__json_real(j, "eval_accuracy", r->eval_accuracy);
    fr__json_real(j, "eval_mae", r->eval_mae);
    fr__json_real(j, "eval_perplexity", r->eval_perplexity);
    if (sum->best_step > 0) {
        fr__json_object(j, "best");
        fr__json_text(j, "metric", t->stop_metric);
        fr__json_real(j, "value", sum->best);
        fr__json_int(j, "step", sum->best_step);
        fr__json_end(j);
    }
    fr__json_bool(j, "ended_early", sum->has_ended_early);
    fr__json_real(j, "samples_per_s", r->samples_per_s);
    fr__json_real(j, "wall_s", r->wall_s);
    fr__json_real(j, "stolen", r->stolen);
    fr__json_text(j, "weights_sha256", r->weights_sha256[0] ? r->weights_sha256 : NULL);
    fr__json_real(j, "data_wait_s", sum->data_wait_s);
    write_traffic(j, e, sum->n_samples);
    write_forecast(j, s, e, sum->forecast, r);
    write_bubble(j, sum->bubble);
    fr__json_int(j, "n_workers", fr_engine_n_workers(e));
    fr__json_list(j, "workers");
    for (int i = 0; i < fr_engine_n_workers(e); i++) write_worker(j, e, i);
    fr__json_end(j);
    fr__json_list(j, "per_stage");
    for (int k = 0; k < fr_engine_n_stages(e); k++) write_stage(j, s, e, sum->forecast, k);
    fr__json_end(j);
    fr__json_uint(j, "peak_resident_bytes", fr__peak_rss());
    fr__memory_write(j, sum->footprint);
    fr__recompute_write(j, s);
    fr__json_uint(j, "data_bytes", fr_dataset_bytes(s->data));
    fr__json_text(j, "backend", fr_engine_about(e));
    fr__environment_write(j, t, sum->started);
    fr__json_text(j, "checkpoint", sum->checkpoint);
    fr__json_text(j, "config", sum->config);
    fr__json_text(j, "forerun", fr_version());
    fr__json_end(j);
}

fr_status fr__summary_write(const fr__setup *s, const fr_engine *e, const fr__folder *f,
                            const fr__summary *sum)
{
    char path[FR_PATH];
    fr__json j;
    FR_TRY(fr__folder_file(s->ctx, f, "summary.json", path));
    fr__json_to_text(&j, 2);
    write_all(&j, s, e, sum);
    char *text = fr__json_take(&j, "\n");
    if (!text) return fr__no_memory(s->ctx, j.bytes, "summary");
    fr_status status = fr__file_replace(s->ctx, path, text, strlen(text));
    fr__free(text);
    return status;
}
