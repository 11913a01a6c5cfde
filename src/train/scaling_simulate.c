/* scaling_simulate.c -- step times of more and more devices of a cluster, on the virtual clock:
 * data parallel, and pipelines side by side. */
#include "train/efficiency.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct layout {
    const char *method;
    int stages, replicas;
    int64_t batch, micro;
} layout;

enum { N_SETS = 5, N_BATCHES = 12, MAX_POINTS = 40 };

static fr_status simulate(fr_ctx *ctx, const fr_run_options *run, const char *cluster,
                          const char *profile, const layout *l, double *seconds)
{
    char text[N_SETS][64];
    fr_forecast f;
    const char **sets = FR_NEW_ARRAY(const char *, run->n_sets + N_SETS);
    if (!sets) return fr__no_memory(ctx, 0, "settings");
    snprintf(text[0], sizeof *text, "parallel.method=%s", l->method);
    snprintf(text[1], sizeof *text, "parallel.stages=%d", l->stages);
    snprintf(text[2], sizeof *text, "parallel.replicas=%d", l->replicas);
    snprintf(text[3], sizeof *text, "train.batch=%lld", (long long)l->batch);
    snprintf(text[4], sizeof *text, "train.micro=%lld", (long long)l->micro);
    for (int i = 0; i < run->n_sets; i++) sets[i] = run->sets[i];
    for (int i = 0; i < N_SETS; i++) sets[run->n_sets + i] = text[i];
    fr_run_options o = {
        .config = run->config, .n_sets = run->n_sets + N_SETS, .sets = sets, .stop = run->stop};
    fr_status status = fr_run_simulate(ctx, &o, cluster, profile, N_BATCHES, NULL, &f);
    fr__free(sets);
    if (status != FR_OK) return status;
    *seconds = f.s_per_batch;
    fr_forecast_free(&f);
    return FR_OK;
}

/* As many micro-batches as divide the batch, up to 4 a stage. */
static int64_t pipeline_micro(int64_t batch, int ways, int wanted)
{
    if (wanted > 0) return wanted;
    int64_t n = 4 * (int64_t)ways < batch ? 4 * (int64_t)ways : batch;
    while (batch % n != 0) n--;
    return n;
}

/* 1, 2, 4, ... and all; 0: no more. */
static int more_devices(int n, int all)
{
    if (n >= all) return 0;
    return 2 * n < all ? 2 * n : all;
}

static fr_status simulate_point(fr_ctx *ctx, const fr_run_options *run, const fr_scaling *s,
                                const char *cluster, const char *profile, int64_t batch,
                                int64_t n_micro, fr_scaling_point *p)
{
    int n = p->devices, n_pipelines = s->ways > 1 && n % s->ways == 0 ? n / s->ways : 0;
    layout dp = {n > 1 ? "dp" : "single", 1, n, n * batch, n};
    layout hybrid = {"1f1b", s->ways, n_pipelines, n_pipelines * batch, n_pipelines * n_micro};
    p->dp_s = p->hybrid_s = NAN;
    FR_TRY(simulate(ctx, run, cluster, profile, &dp, &p->dp_s));
    return n_pipelines ? simulate(ctx, run, cluster, profile, &hybrid, &p->hybrid_s) : FR_OK;
}

fr_status fr_scaling_simulate(fr_ctx *ctx, const fr_run_options *run, int64_t batch, int ways,
                              int n_micro, const char *cluster, const char *profile,
                              fr_scaling *out)
{
    fr_cluster *c;
    memset(out, 0, sizeof *out);
    FR_TRY(fr_cluster_read(ctx, cluster, &c));
    int n_devices = c->n_devices;
    fr_cluster_free(c);
    FR_TRY(fr__scaling_open(ctx, ways, MAX_POINTS, out));
    fr_status status = FR_OK;
    for (int n = 1; n > 0 && status == FR_OK; n = more_devices(n, n_devices)) {
        out->points[out->n_points].devices = n;
        status =
            simulate_point(ctx, run, out, cluster, profile, batch,
                           pipeline_micro(batch, ways, n_micro), &out->points[out->n_points++]);
    }
    if (status != FR_OK) fr_scaling_free(out);
    return status;
}
