/* nodes.c -- measures the time of nodes: rigs on separate threads, all busy at the same time, and
 * the report of their mini-batches. */
#include "base/room.h"
#include "base/thread.h"
#include "cost/profile.h"
#include "probe/rig.h"
#include "probe/samples.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_SAMPLES = 2 };
/* So that there are many short mini-batches, and a disturbed one does not count. */
#define LEAST_S 0.02
#define SHARE_OF_RUN 0.1 /* limit of a measurement within a run */

/* Probes that run at the same time. */
struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n, n_ready;          /* n_ready: probes that are set up; guarded by the lock */
    atomic_int n_unfinished; /* probes that need more mini-batches */
    atomic_bool has_failed;
    fr__rig_room room;
};

struct probe {
    fr_ctx *ctx;
    const fr_probe_desc *d;
    struct meeting *meeting;
    int n_at_once;
    fr_status status;
    fr__rig *rig;
    int n_nodes;        /* of the stage */
    fr_samples samples; /* of mini-batches, as rows */
    double *row;
    const fr_profile *out;
};

/* Values of a row: of a mini-batch, then of each node of the stage. */
enum { STEP, STORE, FETCH_FORWARD, FETCH_BACKWARD, NODES };
enum { N_TIMES = sizeof(fr_node_time) / sizeof(double) };

static fr_node_time *times_in(double *row) { return (fr_node_time *)(void *)(row + NODES); }

/* --- synchronisation --------------------------------------------------------------------- */

static void wait_for_all(struct meeting *m)
{
    pthread_mutex_lock(&m->lock);
    m->n_ready++;
    pthread_cond_broadcast(&m->changed);
    while (m->n_ready < m->n) pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static void take_sample(struct probe *p, double step_s)
{
    p->row[STEP] = step_s;
    p->row[STORE] = p->rig->store_s;
    p->row[FETCH_FORWARD] = p->rig->fetch_forward_s;
    p->row[FETCH_BACKWARD] = p->rig->fetch_backward_s;
    memcpy(times_in(p->row), p->rig->times + p->rig->stage.first,
           (size_t)p->n_nodes * sizeof(fr_node_time));
    fr__samples_add(&p->samples, p->row);
}

static double since(uint64_t start) { return 1e-9 * (double)(fr__now_ns() - start); }

/* A run waits for this measurement, and its time is over. */
static bool is_late(const fr_probe_desc *d, uint64_t begin)
{
    return d->for_batches > 0 && since(begin) > d->seconds;
}

/* The first mini-batches warm the caches: every slot must have been written. */
static fr_status warm_up(fr__rig *r)
{
    uint64_t begin = fr__now_ns();
    for (int64_t used = 0; used < r->n_slots && !is_late(r->d, begin); used += r->d->n_micro)
        FR_TRY(fr__rig_step(r));
    r->pass_s = r->change_s = 0;
    return FR_OK;
}

/* How long to measure, given the time of a mini-batch. */
static double worth(const fr_probe_desc *d, double step_s)
{
    if (d->for_batches == 0) return d->seconds;
    return fmax(fmin(d->seconds, SHARE_OF_RUN * step_s * (double)d->for_batches), LEAST_S);
}

static fr_status run(struct probe *p)
{
    struct meeting *m = p->meeting;
    FR_TRY(warm_up(p->rig));
    uint64_t begin = fr__now_ns(), before = begin, after;
    int64_t n_steps = 0;
    for (bool has_enough = false; atomic_load(&m->n_unfinished) > 0; before = after) {
        if (atomic_load(&m->has_failed)) return FR_OK; /* the probe that failed reports it */
        FR_TRY(fr__rig_step(p->rig));
        after = fr__now_ns();
        take_sample(p, 1e-9 * (double)(after - before));
        n_steps++;
        if (has_enough || (n_steps < MIN_SAMPLES && !is_late(p->d, begin))) continue;
        double elapsed = 1e-9 * (double)(after - begin);
        has_enough = elapsed >= worth(p->d, elapsed / (double)n_steps);
        if (has_enough) atomic_fetch_sub(&m->n_unfinished, 1);
    }
    return FR_OK;
}

/* --- report ------------------------------------------------------------------------------ */

static fr_status take_room(struct probe *p)
{
    fr_arena *a = &p->rig->arena;
    p->n_nodes = p->rig->stage.last - p->rig->stage.first;
    int n_values = NODES + N_TIMES * p->n_nodes;
    p->row = FR_ARENA_ARRAY(a, double, n_values);
    bool has_all = p->row && fr__samples_init(&p->samples, a, n_values);
    return has_all ? FR_OK : fr__no_memory(p->ctx, (size_t)p->n_nodes, "a probe");
}

/* Floats of the weights block that belong to a node. */
static void count_weights(const struct probe *p, fr_profile_node *nodes)
{
    const fr_program *program = fr__exec_program(p->rig->exec, FR_MODE_TRAIN);
    size_t n_weights = fr_program_sizes_of(program)->n_weights;
    for (int i = 0; i < fr_program_n_placements(program); i++) {
        const fr_placement *at = fr_program_placement(program, i);
        const fr_param *param = fr_graph_param(p->d->graph, at->param);
        if (param->is_buffer || at->offset >= n_weights) continue;
        nodes[param->node - p->rig->stage.first].param_bytes +=
            (int64_t)(at->count * sizeof(float));
    }
}

static bool describe(const struct probe *p, int i, fr_profile_node *to)
{
    int node = p->rig->stage.first + i, batch = p->d->batch;
    const fr_node *n = fr_graph_node(p->d->graph, node);
    char shape[64];
    to->name = n->name;
    to->about = fr__arena_printf(&p->rig->arena, "%s %s", fr_operator_name(n->op),
                                 fr_shape_text(&n->shape, shape, sizeof shape));
    to->output_bytes = (int64_t)fr_node_bytes(n) * batch;
    to->kept_bytes =
        (int64_t)fr_program_kept_bytes(fr__exec_program(p->rig->exec, FR_MODE_TRAIN), node);
    to->fixed_bytes =
        (int64_t)fr_program_fixed_bytes(fr__exec_program(p->rig->exec, FR_MODE_TRAIN), node);
    to->flops = (n->flops_forward + n->flops_back_input + n->flops_back_weight) * batch;
    to->n_inputs = n->n_inputs;
    to->inputs = n->inputs;
    to->is_input = n->op == FR_OP_INPUT;
    return to->about != NULL;
}

/* If times are exponentially distributed above a minimum, the mean difference between consecutive
 * times is their standard deviation. A slow drift of the machine does not affect it, and a rare
 * stop only a little. */
static double jitter_of(const fr__rig *r) { return r->pass_s > 0 ? r->change_s / r->pass_s : 0; }

/* The cost of a node's update, as a number of weights to sweep over. */
static double update_cost(const struct probe *p, const fr_profile_node *n, int i)
{
    const double per_weight = 100; /* multiply-adds of an orthogonalisation */
    double work = fr__exec_matrix_work(p->rig->exec, p->rig->stage.first + i);
    return (double)n->param_bytes / sizeof(float) + work / per_weight;
}

/* The store's time outside of fused updates (a sweep, matrices) is divided by the cost of updates,
 * that of predictions by parameters. Without parameters fetching only returns a pointer. */
static void set_times(struct probe *p, fr_profile *out)
{
    double n_micro = p->d->n_micro, all = 0, cost = 0, sum = 0;
    const fr_node_time *times = times_in(p->row);
    fr__samples_mean(&p->samples, p->row);
    for (int i = 0; i < p->n_nodes; i++) {
        all += (double)out->nodes[i].param_bytes;
        cost += update_cost(p, &out->nodes[i], i);
    }
    for (int i = 0; i < p->n_nodes; i++) {
        fr_profile_node *n = &out->nodes[i];
        fr_node_time t = times[i];
        n->forward_s = t.forward / n_micro;
        n->back_input_s = t.back_input / n_micro;
        n->back_weight_s = t.back_weight / n_micro;
        n->backward_s = n->back_input_s + n->back_weight_s;
        double share = all > 0 ? (double)n->param_bytes / all : 0;
        n->update_s = t.ready + (cost > 0 ? update_cost(p, n, i) / cost : 0) * p->row[STORE];
        n->fetch_forward_s = share * p->row[FETCH_FORWARD];
        n->fetch_backward_s = share * p->row[FETCH_BACKWARD];
        sum += n_micro * (n->forward_s + n->backward_s) + n->update_s + n->fetch_forward_s +
               n->fetch_backward_s;
    }
    out->step_s = p->row[STEP];
    out->jitter = jitter_of(p->rig);
    out->accounted = sum / out->step_s;
}

static void note_workspace(const struct probe *p, const fr_program *program, fr_profile *out)
{
    const double bytes = (double)fr_program_sizes_of(program)->workspace_bytes;
    if (bytes > out->workspace_bytes) out->workspace_bytes = bytes;
    for (int i = 0; i < p->n_nodes; i++) {
        fr_profile_node *n = &out->nodes[i];
        const int64_t values = (int64_t)fr_program_values_bytes(program, p->rig->stage.first + i);
        const int64_t scratch = (int64_t)fr_program_scratch_bytes(program, p->rig->stage.first + i);
        const int64_t update =
            (int64_t)fr__exec_matrix_bytes(p->rig->exec, p->rig->stage.first + i);
        if (values > n->values_bytes) n->values_bytes = values;
        if (scratch > n->scratch_bytes) n->scratch_bytes = scratch;
        if (update > values + n->scratch_bytes) n->scratch_bytes = update - values;
        if ((double)update > out->workspace_bytes) out->workspace_bytes = (double)update;
        n->edge_bytes = (int64_t)fr_program_edge_bytes(program, p->rig->stage.first + i);
    }
}

/* A worker's workspace serves training and evaluation, which keeps no values in slots. */
static fr_status measure_workspace(struct probe *p, fr_profile *out)
{
    const fr_program_desc d = {
        .graph = p->d->graph, .stage = p->d->stage, .batch = p->d->batch, .is_plan = true};
    fr_program *evaluation;
    FR_TRY(fr_program_create(p->ctx, fr__exec_device_of(p->rig->device), &d, &evaluation));
    note_workspace(p, fr__exec_program(p->rig->exec, FR_MODE_TRAIN), out);
    note_workspace(p, evaluation, out);
    fr_program_free(evaluation);
    return FR_OK;
}

static fr_status report(struct probe *p)
{
    const fr__rig *r = p->rig;
    fr_profile out = {.model = fr_graph_name(p->d->graph),
                      .batch = p->d->batch,
                      .n_nodes = p->n_nodes,
                      .n_micro = p->d->n_micro,
                      .state_per_weight = p->d->optimizer->n_state,
                      .precision = fr_graph_precision(p->d->graph)};
    out.nodes = FR_ARENA_ARRAY(&p->rig->arena, fr_profile_node, p->n_nodes);
    out.machine = fr__arena_printf(&p->rig->arena, "%s; %d at once",
                                   fr_device_about(fr__exec_device_of(r->device)), p->n_at_once);
    bool has_all = out.nodes && out.machine;
    for (int i = 0; i < p->n_nodes && has_all; i++) has_all = describe(p, i, &out.nodes[i]);
    if (!has_all) return fr__no_memory(p->ctx, (size_t)p->n_nodes, "a profile");
    FR_TRY(measure_workspace(p, &out));
    count_weights(p, out.nodes);
    set_times(p, &out);
    if (!p->d->stage) return fr_profile_copy(p->ctx, &out, &p->out);
    fr_profile *part;
    FR_TRY(fr__profile_clone(p->ctx, &out, &part));
    p->out = part;
    return FR_OK;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *probe_main(void *probe)
{
    struct probe *p = probe;
    p->status = fr__rig_create(p->ctx, p->d, &p->meeting->room, &p->rig);
    if (p->status == FR_OK) p->status = take_room(p);
    if (p->status != FR_OK) atomic_store(&p->meeting->has_failed, true);
    wait_for_all(p->meeting);
    if (!atomic_load(&p->meeting->has_failed)) {
        p->status = run(p);
        if (p->status != FR_OK) atomic_store(&p->meeting->has_failed, true);
    }
    if (!atomic_load(&p->meeting->has_failed)) p->status = report(p);
    fr__rig_free(p->rig);
    return NULL;
}

static fr_status start_all(fr_ctx *ctx, int n, struct probe *probes, pthread_t *threads)
{
    struct meeting *m = probes[0].meeting;
    int n_started = 0;
    while (n_started < n &&
           pthread_create(&threads[n_started], NULL, probe_main, &probes[n_started]) == 0)
        n_started++;
    fr_status status = FR_OK;
    if (n_started < n) {
        status = fr_fail(ctx, FR_IO, "cannot start %d threads to probe with", n);
        atomic_store(&m->has_failed, true);
        pthread_mutex_lock(&m->lock);
        m->n = n_started;
        pthread_cond_broadcast(&m->changed);
        pthread_mutex_unlock(&m->lock);
    }
    for (int i = 0; i < n_started; i++) {
        pthread_join(threads[i], NULL);
        if (status == FR_OK) status = probes[i].status;
    }
    return status;
}

static uint64_t bytes_left(void)
{
    fr__room room;
    fr__room_read("", &room);
    return room.machine < room.group ? room.machine : room.group;
}

fr_status fr_probe_nodes(fr_ctx *ctx, int n, const fr_probe_desc *desc, const fr_profile **out)
{
    for (int i = 0; i < n; i++) out[i] = NULL;
    struct meeting m = {.lock = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER,
                        .n = n,
                        .n_unfinished = n,
                        .room.left = bytes_left()};
    struct probe *probes = FR_NEW_ARRAY(struct probe, n);
    pthread_t *threads = FR_NEW_ARRAY(pthread_t, n);
    fr_status status = probes && threads ? FR_OK : fr__no_memory(ctx, sizeof m, "probes");
    for (int i = 0; i < n && status == FR_OK; i++)
        probes[i] = (struct probe){.ctx = ctx, .d = &desc[i], .meeting = &m, .n_at_once = n};
    if (status == FR_OK && n > 0) status = start_all(ctx, n, probes, threads);
    for (int i = 0; i < n && probes; i++) {
        if (status == FR_OK)
            out[i] = probes[i].out;
        else
            fr_profile_free(probes[i].out);
    }
    fr__free(probes);
    fr__free(threads);
    return status;
}

fr_status fr_probe_copies(fr_ctx *ctx, int n, const fr_probe_desc *desc, const fr_profile **out)
{
    *out = NULL;
    fr_probe_desc *all = FR_NEW_ARRAY(fr_probe_desc, n);
    const fr_profile **found = FR_NEW_ARRAY(const fr_profile *, n);
    fr_status status = all && found ? FR_OK : fr__no_memory(ctx, (size_t)n, "a profile");
    for (int i = 0; i < n && status == FR_OK; i++) {
        all[i] = *desc;
        all[i].first_cpu += i * desc->n_threads;
    }
    if (status == FR_OK) status = fr_probe_nodes(ctx, n, all, found);
    if (status == FR_OK) *out = found[0];
    for (int i = 1; i < n && found; i++) fr_profile_free(found[i]);
    fr__free(all);
    fr__free(found);
    return status;
}
