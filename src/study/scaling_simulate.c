/* scaling_simulate.c -- step times for increasing numbers of devices of a cluster, on the virtual
 * clock: data parallel, and replicated pipelines.
 *
 * The nodes of the model are measured twice, for the micro-batch of a device and that of a
 * pipeline, and both profiles are used for all numbers of devices, so their noise does not affect
 * comparisons. */
#include "study/efficiency.h"

#include "config/setup.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_SETS = 5, N_BATCHES = 12, MAX_POINTS = 40 };

typedef struct sweep {
    fr_ctx *ctx;
    const fr_run_options *run;
    const char *cluster, *profile; /* profile NULL: measured, in run->out */
    int64_t batch;                 /* of a device, and of a pipeline */
    int ways;
    int64_t n_micro; /* of a pipeline */
} sweep;

typedef struct layout {
    const char *method;
    int stages, replicas;
    int64_t n_micro; /* of a replica */
} layout;

/* OUT/profile-N.json: profile of a micro-batch of N samples; measured if it does not exist. */
static fr_status find_profile(const sweep *w, int64_t micro_batch, char path[FR_PATH])
{
    fr_run_model *m;
    const fr_profile *p;
    if (w->profile) return fr__path(w->ctx, path, "%s", w->profile);
    FR_TRY(fr__path(w->ctx, path, "%s/profile-%lld.json", w->run->out, (long long)micro_batch));
    if (fr__file_exists(path)) return FR_OK;
    FR_TRY(fr__dir_make(w->ctx, w->run->out));
    FR_TRY(fr_run_model_open(w->ctx, w->run, NULL, &m));
    fr_status status = fr_run_model_profile(m, (int)micro_batch, &p);
    if (status == FR_OK) status = fr_profile_write_json(w->ctx, p, path);
    fr_run_model_free(m);
    return status;
}

static fr_status simulate(const sweep *w, const layout *l, double *seconds)
{
    const fr_run_options *run = w->run;
    char text[N_SETS][64], profile[FR_PATH];
    fr_forecast f;
    FR_TRY(find_profile(w, w->batch / l->n_micro, profile));
    const char **sets = FR_NEW_ARRAY(const char *, run->n_sets + N_SETS);
    if (!sets) return fr__no_memory(w->ctx, 0, "settings");
    snprintf(text[0], sizeof *text, "parallel.method=%s", l->method);
    snprintf(text[1], sizeof *text, "parallel.stages=%d", l->stages);
    snprintf(text[2], sizeof *text, "parallel.replicas=%d", l->replicas);
    snprintf(text[3], sizeof *text, "train.batch=%lld", (long long)(l->replicas * w->batch));
    snprintf(text[4], sizeof *text, "train.micro=%lld", (long long)(l->replicas * l->n_micro));
    for (int i = 0; i < run->n_sets; i++) sets[i] = run->sets[i];
    for (int i = 0; i < N_SETS; i++) sets[run->n_sets + i] = text[i];
    fr_run_options o = {.size = sizeof o,
                        .config = run->config,
                        .n_sets = run->n_sets + N_SETS,
                        .sets = sets,
                        .dump_step = -1,
                        .stop = run->stop};
    fr_status status = fr_run_simulate(w->ctx, &o, w->cluster, profile, N_BATCHES, NULL, &f);
    fr__free(sets);
    if (status != FR_OK) return status;
    *seconds = f.s_per_batch;
    fr_forecast_free(&f);
    return FR_OK;
}

static fr_status simulate_point(const sweep *w, int n, fr_scaling_point *p)
{
    int n_pipelines = n % w->ways == 0 ? n / w->ways : 0;
    layout dp = {n > 1 ? "dp" : "single", 1, n, 1};
    layout hybrid = {"1f1b", w->ways, n_pipelines, w->n_micro};
    *p = (fr_scaling_point){n, NAN, NAN};
    if (w->run->stop && *w->run->stop) return fr_fail(w->ctx, FR_INTERRUPTED, "interrupted");
    FR_TRY(simulate(w, &dp, &p->dp_s));
    return n_pipelines ? simulate(w, &hybrid, &p->hybrid_s) : FR_OK;
}

/* The largest number of micro-batches that divides the batch, up to 4 per stage. */
static fr_status choose_micro(sweep *w, int wanted)
{
    w->n_micro = 4 * (int64_t)w->ways < w->batch ? 4 * (int64_t)w->ways : w->batch;
    while (w->batch % w->n_micro != 0) w->n_micro--;
    if (wanted > 0) w->n_micro = wanted;
    if (w->batch % w->n_micro == 0) return FR_OK;
    return fr_fail(w->ctx, FR_INVALID,
                   "the batch of a pipeline, %lld, does not split into %d equal micro-batches",
                   (long long)w->batch, wanted);
}

static fr_status count_devices(fr_ctx *ctx, const char *cluster, int most, int *n)
{
    fr_cluster *c;
    FR_TRY(fr_cluster_read(ctx, cluster, &c));
    *n = most > 0 && most < c->n_devices ? most : c->n_devices;
    fr_cluster_free(c);
    return FR_OK;
}

/* 1, 2, 4, ... and all; 0: no more. */
static int more_devices(int n, int all)
{
    if (n >= all) return 0;
    return 2 * n < all ? 2 * n : all;
}

fr_status fr_scaling_simulate(fr_ctx *ctx, const fr_scaling_options *o, fr_scaling *out)
{
    fr_run_options run;
    sweep w = {.ctx = ctx,
               .run = &run,
               .cluster = o->cluster,
               .profile = o->profile,
               .batch = o->batch,
               .ways = o->ways};
    int all;
    memset(out, 0, sizeof *out);
    FR_TRY(fr__run_options_take(ctx, o->run, &run));
    if (o->batch < 1 || o->ways < 2 || (!o->profile && !o->run->out))
        return fr_fail(
            ctx, FR_INVALID,
            "scaling needs a batch, at least 2 stages, and a profile or a folder for it");
    FR_TRY(choose_micro(&w, o->n_micro));
    FR_TRY(count_devices(ctx, o->cluster, o->max_devices, &all));
    FR_TRY(fr__scaling_open(ctx, o->ways, MAX_POINTS, out));
    fr_status status = FR_OK;
    for (int n = 1; n > 0 && status == FR_OK; n = more_devices(n, all))
        status = simulate_point(&w, n, &out->points[out->n_points++]);
    if (status != FR_OK) fr_scaling_free(out);
    return status;
}
