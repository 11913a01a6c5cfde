/* bubble.c -- compares the idle time of a run with the virtual clock.
 *
 * The clock executes the lists of the engine: the segment repeated without a barrier, cut where
 * the call ended. A long call is extrapolated from the steady state of its first segments. */
#include "forecast/bubble.h"

#include "sched/sched.h"

#include <math.h>

enum { STEADY = 64 }; /* mini-batches until a pipeline is in its steady state */

/* Seconds of a stage. */
typedef struct stage_costs {
    double *forward, *back_input, *back_weight, *step; /* [stage] */
} stage_costs;

/* Seconds for a call of n_batches mini-batches. */
static fr_status walk_time(fr_ctx *ctx, const fr_schedule *s, const stage_costs *c, int n_batches,
                           double *seconds)
{
    const fr_costs costs = {.forward = c->forward,
                            .back_input = c->back_input,
                            .back_weight = c->back_weight,
                            .step = c->step};
    fr_arena arena = {0};
    fr_schedule walk;
    fr_clock clock = {0};
    fr_status status;
    if (fr__schedule_repeat(&arena, s, n_batches, &walk))
        status = fr_schedule_clock(ctx, &walk, &costs, &clock);
    else
        status = fr__no_memory(ctx, (size_t)n_batches * sizeof(fr_instr), "a schedule's walk");
    *seconds = clock.makespan;
    fr_clock_free(&clock);
    fr__arena_fini(&arena);
    return status;
}

/* Per mini-batch, in calls of n_batches. */
static fr_status beat(fr_ctx *ctx, const fr_schedule *s, const stage_costs *c, int64_t n_batches,
                      double *seconds)
{
    int half = (STEADY + s->n_batches - 1) / s->n_batches * s->n_batches;
    double at_half, at_full;
    if (n_batches <= 2 * half) {
        FR_TRY(walk_time(ctx, s, c, (int)n_batches, &at_full));
        *seconds = at_full / (double)n_batches;
        return FR_OK;
    }
    FR_TRY(walk_time(ctx, s, c, half, &at_half));
    FR_TRY(walk_time(ctx, s, c, 2 * half, &at_full));
    double more = (double)(n_batches - 2 * half) * (at_full - at_half) / half;
    *seconds = (at_full + more) / (double)n_batches;
    return FR_OK;
}

/* --- measured -------------------------------------------------------------------------------- */

static double per(uint64_t ns, int64_t n) { return n > 0 ? (double)ns * 1e-9 / (double)n : 0; }

/* Even costs: r replicas share the micro-batches of a stage, so it may cost r times as much. */
static void fill_costs(const fr__bubble_input *in, stage_costs *own, stage_costs *mean)
{
    int n = in->schedule->n_stages, n_hands = 0;
    const int *replicas = in->schedule->replicas;
    double sum[4] = {0};
    for (int k = 0; k < n; k++) n_hands += replicas[k];
    for (int k = 0; k < n; k++) {
        const fr_stage_times *t = &in->stages[k];
        sum[0] += own->forward[k] = per(t->forward_ns, t->n_micro);
        sum[1] += own->back_input[k] = per(t->back_input_ns, t->n_micro);
        sum[2] += own->back_weight[k] = per(t->back_weight_ns, t->n_micro);
        sum[3] += own->step[k] = per(t->step_ns, t->n_steps);
    }
    for (int k = 0; k < n; k++) {
        double share = (double)replicas[k] / n_hands;
        mean->forward[k] = sum[0] * share, mean->back_input[k] = sum[1] * share;
        mean->back_weight[k] = sum[2] * share, mean->step[k] = sum[3] / n;
    }
}

static bool costs_init(fr_arena *a, int n_stages, stage_costs *c)
{
    double *at = FR_ARENA_ARRAY(a, double, 4 * n_stages);
    if (!at) return false;
    *c = (stage_costs){at, at + n_stages, at + 2 * n_stages, at + 3 * n_stages};
    return true;
}

static double busy_ns(const fr_worker_times *t)
{
    return (double)(t->ns[FR_SPENT_FORWARD] + t->ns[FR_SPENT_BACKWARD] + t->ns[FR_SPENT_WEIGHT] +
                    t->ns[FR_SPENT_STEP]);
}

static void measure(const fr__bubble_input *in, fr__bubble *out, double *busy_s)
{
    int n = in->schedule->n_workers;
    double wall = 0, busy = 0;
    out->busiest = 0;
    for (int w = 0; w < n; w++) {
        wall += (double)in->workers[w].wall_ns;
        busy += busy_ns(&in->workers[w]);
        if (busy_ns(&in->workers[w]) > busy_ns(&in->workers[out->busiest])) out->busiest = w;
    }
    const fr_worker_times *most = &in->workers[out->busiest];
    out->bubble = 1 - busy / wall;
    out->optimizer = (double)most->ns[FR_SPENT_STEP] / (double)most->wall_ns;
    out->measured_s_per_batch = wall * 1e-9 / n / (double)in->n_batches;
    *busy_s = busy * 1e-9 / n / (double)in->n_batches;
}

static bool has_run(const fr__bubble_input *in)
{
    if (in->n_batches < 1) return false;
    for (int w = 0; w < in->schedule->n_workers; w++)
        if (in->workers[w].wall_ns == 0) return false;
    return true;
}

fr_status fr__bubble_split(fr_ctx *ctx, const fr__bubble_input *in, fr__bubble *out)
{
    const fr_schedule *s = in->schedule;
    *out = (fr__bubble){NAN, NAN, NAN, NAN, NAN, -1, NAN, NAN};
    if (!has_run(in)) return FR_OK;
    if (!s->is_lowered)
        return fr_fail(ctx, FR_INTERNAL, "schedule %s must be lowered before it is timed", s->name);
    int64_t n_calls = in->n_calls > 0 ? in->n_calls : 1;
    int64_t n_each = in->n_batches > n_calls ? in->n_batches / n_calls : 1;
    fr_arena arena = {0};
    stage_costs own, mean;
    double even = 0, uneven = 0, busy = 0;
    fr_status status = FR_OK;
    if (!costs_init(&arena, s->n_stages, &own) || !costs_init(&arena, s->n_stages, &mean)) {
        status = fr__no_memory(ctx, 8 * (size_t)s->n_stages * sizeof(double), "costs of stages");
    } else {
        fill_costs(in, &own, &mean);
        status = beat(ctx, s, &mean, n_each, &even);
        if (status == FR_OK) status = beat(ctx, s, &own, n_each, &uneven);
    }
    fr__arena_fini(&arena);
    if (status != FR_OK) return status;
    measure(in, out, &busy);
    out->scheduled_s_per_batch = uneven;
    out->fill_drain = (even - busy) / out->measured_s_per_batch;
    out->imbalance = (uneven - even) / out->measured_s_per_batch;
    out->communication = out->bubble - out->fill_drain - out->imbalance;
    return FR_OK;
}
