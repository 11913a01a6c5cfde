/* forecast.c -- runs a training run on the virtual clock before it starts.
 *
 * On this machine each stage is measured by itself, as many at once as workers will run at once,
 * so caches and memory are shared as in the run. With more workers than cores, a mini-batch takes
 * at least the computation of all workers divided by the number of cores. For a cluster the whole
 * model is measured node by node and scaled by the speeds of the devices. */
#include "forecast/forecast.h"

#include <forerun/probe.h>

#include "base/thread.h"
#include "config/parallel_checks.h"
#include "io/conf.h"

#include <math.h>
#include <string.h>

#define PROFILE_S 3.0 /* for a profile of the whole model, which delays no run */
#define MARGIN 2.0    /* time of an emulated instruction over that of its real computation */
#define MOST_SUM_BYTES ((size_t)256 << 20) /* largest block in the measurement of sums */
enum { STEADY = 200 }; /* mini-batches until a pipeline is in its steady state */
enum { DRAWN = 1000 }; /* least number of mini-batches drawn where times vary */

/* --- what is measured ----------------------------------------------------------------------- */

static fr_probe_desc describe(const fr__setup *s)
{
    const fr__settings *t = &s->settings;
    return (fr_probe_desc){.graph = s->graph,
                           .backend = t->backend,
                           .n_threads = t->threads > 0 ? t->threads : 1,
                           .batch = (int)(t->batch / t->micro),
                           .n_micro = (int)t->micro,
                           .update_in_backward = true,
                           .optimizer = t->optimizer,
                           .options = t->optim};
}

static fr_probe_desc describe_stage(const fr__setup *s, int stage)
{
    const fr_exec_plan *p = s->pipeline.plan;
    fr_probe_desc d = describe(s);
    d.graph = s->pipeline.graph;
    d.stage = &s->pipeline.stages[stage];
    d.n_micro = p->context[stage].n_micro;
    d.split_backward = p->schedule->is_split;
    d.update_in_backward = p->update_in_backward[stage];
    d.policy = p->policy;
    d.context = p->context[stage];
    return d;
}

/* As many probes at once as this process has workers with their own cores. */
static fr_exec_cores share_cores(const fr__setup *s)
{
    int n_local = s->pipeline.schedule->n_workers / fr_team_size(s->team);
    return fr_exec_share_cores(s->team, n_local, s->settings.threads, s->settings.pin);
}

static int n_waves(const fr__setup *s, const fr_exec_cores *w)
{
    return (s->pipeline.n_stages + w->n_at_once - 1) / w->n_at_once;
}

/* Measures stages first, first + 1, ... at once. After the last stage it starts again at stage 0,
 * so all cores are busy. parts: [stage]. */
static fr_status probe_wave(fr__setup *s, const fr_exec_cores *w, int first,
                            const fr_profile **parts)
{
    int n_stages = s->pipeline.n_stages;
    fr_probe_desc *d = FR_NEW_ARRAY(fr_probe_desc, w->n_at_once);
    const fr_profile **found = FR_NEW_ARRAY(const fr_profile *, w->n_at_once);
    fr_status status =
        d && found ? FR_OK : fr__no_memory(s->ctx, (size_t)w->n_at_once, "a profile");
    for (int i = 0; i < w->n_at_once && status == FR_OK; i++) {
        d[i] = describe_stage(s, (first + i) % n_stages);
        d[i].n_threads = w->n_threads;
        d[i].pin = w->first_cpu >= 0;
        d[i].first_cpu = w->first_cpu + i * w->n_threads;
        d[i].seconds =
            s->settings.forecast_s > 0 ? s->settings.forecast_s : FR_MEASURE_S / n_waves(s, w);
        d[i].for_batches = s->settings.forecast_s > 0 ? 0 : s->n_steps;
    }
    if (status == FR_OK) status = fr_probe_nodes(s->ctx, w->n_at_once, d, found);
    for (int i = 0; i < w->n_at_once && status == FR_OK; i++) {
        if (first + i < n_stages)
            parts[first + i] = found[i];
        else
            fr_profile_free(found[i]);
    }
    fr__free(d);
    fr__free(found);
    return status;
}

static fr_status measure_stages(fr__setup *s, const fr_profile **out)
{
    int n = s->pipeline.n_stages;
    fr_exec_cores w = share_cores(s);
    const fr_profile **parts = FR_NEW_ARRAY(const fr_profile *, n);
    if (!parts) return fr__no_memory(s->ctx, (size_t)n * sizeof *parts, "a profile");
    fr_status status = FR_OK;
    for (int first = 0; first < n && status == FR_OK; first += w.n_at_once)
        status = probe_wave(s, &w, first, parts);
    if (status == FR_OK) status = fr_profile_join(s->ctx, n, (const fr_profile *const *)parts, out);
    for (int k = 0; k < n; k++) fr_profile_free(parts[k]);
    fr__free(parts);
    return status;
}

/* --- a profile of the whole model ------------------------------------------------------------- */

fr_status fr__profile_check(fr__setup *s, const fr_profile *p, const char *path)
{
    int n = fr_graph_n_nodes(s->graph);
    if (p->n_nodes != n)
        return fr_fail(s->ctx, FR_INVALID,
                       "%s has %d nodes, the model %s has %d; make a profile of this model with "
                       "`forerun profile`",
                       path, p->n_nodes, fr_graph_name(s->graph), n);
    for (int i = 0; i < n; i++)
        if (strcmp(p->nodes[i].name, fr_graph_node(s->graph, i)->name) != 0)
            return fr_fail(s->ctx, FR_INVALID,
                           "%s: node %d is %s, in the model %s it is %s; make a profile of this "
                           "model with `forerun profile`",
                           path, i, p->nodes[i].name, fr_graph_name(s->graph),
                           fr_graph_node(s->graph, i)->name);
    return FR_OK;
}

static fr_status read_profile(fr__setup *s, int batch, const fr_profile **out)
{
    const fr_profile *p = NULL;
    FR_TRY(fr_profile_read(s->ctx, s->settings.profile, &p));
    if (!fr_profile_knows(p, batch) && !s->has_warned_proportion) {
        s->has_warned_proportion = true;
        fr_log(
            s->ctx, FR_LOG_WARN,
            "%s was measured with micro-batches of %d samples; times of other sizes, such as %d, "
            "are scaled in proportion, which underestimates small micro-batches (forerun profile "
            "--sizes all measures them)",
            s->settings.profile, p->batch, batch);
    }
    fr_status status = fr__profile_check(s, p, s->settings.profile);
    if (status == FR_OK) status = fr_profile_scaled(s->ctx, p, batch, out);
    fr_profile_free(p);
    return status;
}

/* Workers that measure at once: n_workers, or those of all cores. One is a device of speed 1. */
static int describe_workers(const fr__setup *s, int n_workers, fr_probe_desc *d)
{
    *d = describe(s);
    int n = n_workers > 0 ? n_workers : fr__cpu_count() / d->n_threads;
    if (n < 1) n = 1;
    d->pin = s->settings.pin && n * d->n_threads <= fr__cpu_count();
    return n;
}

static fr_status measure_model(fr__setup *s, int batch, int n_workers, double seconds,
                               const fr_profile **out)
{
    fr_probe_desc d;
    int n = describe_workers(s, n_workers, &d);
    d.batch = batch;
    d.n_micro = (int)(s->settings.batch / batch) < 4 ? (int)(s->settings.batch / batch) : 4;
    if (d.n_micro < 1) d.n_micro = 1;
    d.update_in_backward = s->settings.clip_norm == 0;
    if (seconds == 0) seconds = s->settings.forecast_s;
    d.seconds = seconds > 0 ? seconds : PROFILE_S;
    return fr_probe_copies(s->ctx, n, &d, out);
}

fr_status fr__run_peak(fr__setup *s, int n_workers, double *flops_per_s)
{
    fr_probe_desc d;
    int n = describe_workers(s, n_workers, &d);
    return fr_probe_peak(s->ctx, n, &d, fr_graph_precision(s->graph), flops_per_s);
}

/* The model was measured before it is cut: any of its values may become a message. */
static void shorten_messages(const fr__setup *s, const fr_profile *p)
{
    for (int i = 0; i < p->n_nodes; i++) {
        const fr_node *n = fr_graph_node(s->graph, i);
        if (n->op != FR_OP_INPUT && n->dtype == FR_F32)
            p->nodes[i].output_bytes =
                fr_shape_count(&n->shape) * p->batch * (int64_t)fr_dtype_bytes(FR_BF16);
    }
}

fr_status fr__run_profile(fr__setup *s, int batch, int n_workers, double seconds,
                          const fr_profile **out)
{
    *out = NULL;
    FR_TRY(s->settings.profile ? read_profile(s, batch, out)
                               : measure_model(s, batch, n_workers, seconds, out));
    if (s->settings.has_short_messages) shorten_messages(s, *out);
    return FR_OK;
}

/* --- sums of replicas on this machine --------------------------------------------------------- */

/* Gradient bytes of the largest stage with replicas: a block that fits into a cache is added faster
 * than a larger one. */
static size_t largest_sum(const fr__setup *s, const fr_profile *p)
{
    const fr__pipeline *q = &s->pipeline;
    int64_t most = 1;
    for (int k = 0; k < q->n_stages; k++) {
        int64_t bytes = 0;
        if (q->schedule->replicas[k] == 1) continue;
        for (int i = q->stages[k].first; i < q->stages[k].last; i++)
            bytes += p->nodes[i].param_bytes;
        most = bytes > most ? bytes : most;
    }
    return (size_t)most < MOST_SUM_BYTES ? (size_t)most : MOST_SUM_BYTES;
}

/* Expressed as the bandwidth of links over which a ring would take the same time; 0: no sums. */
static fr_status measure_sums(fr__setup *s, const fr_profile *p, double *bandwidth)
{
    const fr_schedule *q = s->pipeline.schedule;
    const fr_transport *t = s->settings.transport;
    int n = 1, n_ranks = fr_team_size(s->team);
    double seconds = 0;
    *bandwidth = 0;
    for (int k = 0; k < q->n_stages; k++) n = q->replicas[k] > n ? q->replicas[k] : n;
    if (n == 1) return FR_OK;
    if (!t) t = fr_transport_find(fr__parallel_transport(&s->settings, s->team));
    if (n % n_ranks != 0) n = n_ranks; /* every process has a member */
    size_t bytes = largest_sum(s, p);
    FR_TRY(fr_probe_sum(s->ctx, t, s->team, n, bytes, &seconds));
    *bandwidth = 2.0 * (n - 1) / n * (double)bytes / seconds;
    return FR_OK;
}

/* --- the clock -------------------------------------------------------------------------------- */

/* On this machine the workers add by themselves while they wait for the sum: nothing overlaps. */
static fr_status join_replicas(fr__setup *s, fr__time_forecast *f)
{
    double bandwidth;
    FR_TRY(measure_sums(s, f->profile, &bandwidth));
    if (bandwidth == 0) return FR_OK;
    return fr_cluster_flat(s->ctx, s->pipeline.schedule->n_workers, bandwidth, 0, &f->here);
}

static fr_status check_cluster(fr__setup *s, const fr_cluster *c)
{
    const fr__settings *t = &s->settings;
    int n_workers = s->pipeline.schedule->n_workers;
    fr_conf *parallel;
    FR_TRY(fr_conf_section(s->conf, "parallel", &parallel));
    if (n_workers > c->n_devices)
        return fr_conf_fail(parallel, "cluster",
                            "the run has %d workers, %s has %d devices; use fewer stages or "
                            "replicas, or a larger cluster",
                            n_workers, t->cluster, c->n_devices);
    if (t->n_devices > 0 && t->n_devices != n_workers)
        return fr_conf_fail(parallel, "devices", "%d devices for %d workers; give one for each",
                            t->n_devices, n_workers);
    for (int i = 0; i < t->n_devices; i++) {
        if (t->devices[i] >= c->n_devices)
            return fr_conf_fail(parallel, "devices", "there is no device %d; they are 0 to %d",
                                t->devices[i], c->n_devices - 1);
        for (int k = 0; k < i; k++)
            if (t->devices[k] == t->devices[i])
                return fr_conf_fail(parallel, "devices", "device %d has two workers, %d and %d",
                                    t->devices[i], k, i);
    }
    return FR_OK;
}

static fr_status spread(fr__setup *s, fr__time_forecast *f)
{
    const fr__pipeline *q = &s->pipeline;
    const fr_spread_desc d = {.profile = f->profile,
                              .n_stages = q->n_stages,
                              .cuts = q->cuts,
                              .replicas = q->schedule->replicas,
                              .schedule = q->schedule,
                              .n_micro = q->schedule->n_micro,
                              .recompute = q->recompute,
                              .policy = s->settings.policy,
                              .policy_options = fr__settings_policy_options(&s->settings),
                              .cluster = f->cluster ? f->cluster : f->here,
                              .device_of = s->settings.n_devices > 0 ? s->settings.devices : NULL};
    return fr_spread_make(s->ctx, &d, &f->spread);
}

/* Seconds per mini-batch if one worker of speed 1 computed everything. */
static double work_of(const fr__setup *s, const fr__time_forecast *f)
{
    const fr_schedule *q = s->pipeline.schedule;
    double sum = 0;
    for (int k = 0; k < q->n_stages; k++) {
        const fr_stage_cost *c = &f->spread.timing.cost[k];
        double back = q->is_split ? c->back_input + c->back_weight : c->backward;
        double once = c->step + c->fetch_forward + c->fetch_backward;
        sum += q->n_micro * (c->forward + back) + q->replicas[k] * once;
    }
    return sum;
}

/* All workers may compute at once (replicas do) and then share the cores. Each instruction must
 * still end within its modelled time. */
static double choose_scale(const fr__setup *s, const fr__time_forecast *f)
{
    double fastest = 0, sum = 0;
    if (s->settings.scale > 0) return s->settings.scale;
    for (int w = 0; w < s->pipeline.schedule->n_workers; w++) {
        double speed = f->spread.timing.speed ? f->spread.timing.speed[w] : 1;
        fastest = fmax(fastest, speed);
        sum += speed;
    }
    return fmax(1, MARGIN * fmax(fastest, sum / fr__cpu_count()));
}

static fr_sim_desc describe_clock(const fr__setup *s, const fr__time_forecast *f, int64_t n_batches)
{
    const fr__pipeline *q = &s->pipeline;
    const fr_exec_plan *plan = q->plan;
    int n_segment = q->schedule->n_batches;
    int64_t most = n_segment > STEADY ? 2 * (int64_t)n_segment : STEADY;
    if (n_batches == 0) n_batches = s->n_steps < most ? s->n_steps : most;
    return (fr_sim_desc){.schedule = q->schedule,
                         .timing = f->spread.timing,
                         .n_batches = n_batches,
                         .sync_every = fr_sync_find(q->sync.name)->steps_alone ? q->sync.every : 0,
                         .overlaps = f->cluster && !s->settings.exact_sum,
                         .adds_itself = !f->cluster,
                         .update_in_backward = f->cluster ? NULL : plan->update_in_backward,
                         .steps_together = plan->sums_stages,
                         .jitter = f->cluster ? 0 : fmin(f->profile->jitter, 1)};
}

/* More workers than cores share the cores. All machines are taken to be like this one. */
static void take_turns(const fr__setup *s, fr__time_forecast *f)
{
    int nth, n_here, n_cores = fr__cpu_count(), n_ranks = fr_team_size(s->team);
    fr_team_neighbours(s->team, &nth, &n_here);
    double share = (double)n_here / n_ranks;
    f->is_crowded = s->pipeline.schedule->n_workers * share > n_cores;
    if (f->is_crowded) f->s_per_batch = fmax(f->s_per_batch, f->host_s * share / n_cores);
}

/* A short run has too few drawn times for a mean: it is simulated several times with new draws.
 * *result is that of the first. */
static fr_status draw(fr__setup *s, fr_sim_desc *d, fr_sim_result *result, double *s_per_batch)
{
    FR_TRY(fr_simulate(s->ctx, d, result));
    *s_per_batch = result->s_per_batch;
    if (d->jitter == 0 || d->n_batches < 1) return FR_OK;
    int n = (int)((DRAWN + d->n_batches - 1) / d->n_batches);
    double sum = result->s_per_batch;
    d->n_events = 0;
    for (d->draw = 1; d->draw < n; d->draw++) {
        fr_sim_result again = {0};
        FR_TRY(fr_simulate(s->ctx, d, &again));
        sum += again.s_per_batch;
        fr_sim_free(&again);
    }
    *s_per_batch = sum / n;
    return FR_OK;
}

static fr_status run_clock(fr__setup *s, int64_t n_batches, int n_events, fr__time_forecast *f)
{
    fr_sim_desc d = describe_clock(s, f, n_batches);
    d.n_events = n_events;
    FR_TRY(draw(s, &d, &f->result, &f->s_per_batch));
    f->host_s = work_of(s, f);
    if (f->cluster)
        f->scale = choose_scale(s, f);
    else
        take_turns(s, f);
    f->is_made = true;
    return FR_OK;
}

static double per(uint64_t ns, int64_t n) { return (double)ns * 1e-9 / (double)n; }

fr_status fr__forecast_replay(fr__setup *s, const fr_engine *e, fr__time_forecast *f)
{
    int n = s->pipeline.n_stages;
    if (!f->is_made || f->cluster || f->is_crowded) return FR_OK;
    fr_stage_cost *costs = FR_NEW_ARRAY(fr_stage_cost, n);
    if (!costs) return fr__no_memory(s->ctx, (size_t)n * sizeof *costs, "costs of stages");
    bool has_run = true;
    for (int k = 0; k < n; k++) {
        fr_stage_times t = fr_engine_warm_times(e, k);
        has_run = has_run && t.n_micro > 0 && t.n_steps > 0;
        costs[k] = f->spread.timing.cost[k];
        costs[k].forward = per(t.forward_ns - t.fetch_forward_ns, t.n_micro);
        costs[k].back_input = per(t.back_input_ns - t.fetch_backward_ns, t.n_micro);
        costs[k].back_weight = per(t.back_weight_ns, t.n_micro);
        costs[k].backward = costs[k].back_input + costs[k].back_weight;
        costs[k].step = per(t.step_ns, t.n_steps);
        costs[k].fetch_forward = per(t.fetch_forward_ns, t.n_steps);
        costs[k].fetch_backward = per(t.fetch_backward_ns, t.n_steps);
    }
    fr_sim_desc d = describe_clock(s, f, 0);
    fr_sim_result result = {0};
    d.timing.cost = costs;
    fr_status status = has_run ? draw(s, &d, &result, &f->replayed_s) : FR_OK;
    fr_sim_free(&result);
    fr__free(costs);
    return status;
}

fr_status fr__forecast_time(fr__setup *s, int64_t n_batches, int n_events, fr__time_forecast *f)
{
    const fr__settings *t = &s->settings;
    uint64_t start = fr__now_ns();
    memset(f, 0, sizeof *f);
    f->is_measured = !t->profile;
    if (t->cluster) {
        FR_TRY(fr_cluster_read(s->ctx, t->cluster, &f->cluster));
        FR_TRY(check_cluster(s, f->cluster));
    }
    fr_status status = t->cluster || t->profile
                           ? fr__run_profile(s, (int)(t->batch / t->micro), 0, 0, &f->profile)
                           : measure_stages(s, &f->profile);
    FR_TRY(fr_team_agree(s->team, status)); /* the following calls are made by all ranks */
    if (!t->cluster) FR_TRY(join_replicas(s, f));
    f->spent_s = (double)(fr__now_ns() - start) * 1e-9;
    FR_TRY(spread(s, f));
    return run_clock(s, n_batches, n_events, f);
}

void fr__time_forecast_free(fr__time_forecast *f)
{
    fr_sim_free(&f->result);
    fr_spread_free(&f->spread);
    fr_profile_free(f->profile);
    fr_cluster_free(f->cluster);
    fr_cluster_free(f->here);
    memset(f, 0, sizeof *f);
}
