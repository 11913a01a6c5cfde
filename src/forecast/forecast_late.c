/* forecast_late.c -- forecast from the first mini-batches of a run, if measuring the stages would
 * delay it too long.
 *
 * The choice depends on sizes alone, so a config behaves the same on an idle and on a busy
 * machine. */
#include "forecast/forecast.h"

#include "base/thread.h"

#include <math.h>

#define LEAST_S 0.25     /* a measurement of at most this long is always made */
#define SHARE_OF_RUN 0.1 /* that a measurement may take */
#define FLOPS_PER_S 40e9 /* per core, about */
#define FILLED_PER_S 3e9 /* bytes allocated and zeroed, about */
enum { N_COUNTED = 2 };  /* mini-batches of a measurement after its warm-up */

/* Cores of the workers of this process. */
static int count_cores(const fr__setup *s)
{
    int nth, n_neighbours, n_local = s->pipeline.schedule->n_workers / fr_team_size(s->team);
    fr_team_neighbours(s->team, &nth, &n_neighbours);
    int n = fr__cpu_count() / n_neighbours, wanted = s->settings.threads * n_local;
    if (wanted > 0 && wanted < n) n = wanted;
    return n > 0 ? n : 1;
}

static double batch_s(const fr__setup *s)
{
    double flops = 0;
    for (int i = 0; i < fr_graph_n_nodes(s->graph); i++) {
        const fr_node *n = fr_graph_node(s->graph, i);
        flops += (double)(n->flops_forward + n->flops_back_input + n->flops_back_weight);
    }
    return flops * (double)s->settings.batch / (FLOPS_PER_S * count_cores(s));
}

/* The warm-up writes each slot of the deepest stage once. */
static int n_warming(const fr_schedule *q)
{
    int most = 1;
    for (int k = 0; k < q->n_stages; k++)
        if (q->n_slots[k] > most) most = q->n_slots[k];
    return (most + q->n_micro - 1) / q->n_micro;
}

bool fr__forecast_takes_long(const fr__setup *s, const fr__footprint *f)
{
    double one = batch_s(s), run = one * (double)s->n_steps;
    double look =
        (double)f->engine / FILLED_PER_S + (n_warming(s->pipeline.schedule) + N_COUNTED) * one;
    return look > fmin(FR_MEASURE_S, fmax(LEAST_S, SHARE_OF_RUN * run));
}

void fr__forecast_by_run(fr__time_forecast *f, int64_t n_done, double seconds)
{
    if (!f->is_late || n_done < 2 || n_done > FR_LATE_BATCHES)
        return; /* the first ran with cold caches */
    f->s_per_batch += seconds / (FR_LATE_BATCHES - 1);
    f->is_late_made = n_done == FR_LATE_BATCHES;
}

double fr__forecast_s(const fr__time_forecast *f)
{
    return f->is_made || f->is_late_made ? f->s_per_batch : NAN;
}
