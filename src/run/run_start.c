/* run_start.c -- a training run up to its first mini-batch.
 *
 * First all checks are made; nothing is written. The memory check follows when the engine has
 * been planned. Then all ranks create the engine together. Then rank 0 opens the run's folder and,
 * for a resumed run, loads the newest checkpoint into the engine. */
#include "checkpoint/given.h"
#include "checkpoint/rank0_rpc.h"
#include "config/changes.h"
#include "forecast/recompute.h"
#include "io/conf.h"
#include "io/sha256.h"
#include "io/units.h"
#include "run/eval.h"
#include "run/run.h"
#include "runlog/run_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fr_status check_dump_step(const fr_run *r)
{
    int64_t k = r->o.dump_step;
    if (k > r->setup.n_steps)
        return fr_fail(r->ctx, FR_INVALID, "--dump-step %lld: the run has mini-batches 1 to %lld",
                       (long long)k, (long long)r->setup.n_steps);
    if (k > 0 && k <= r->at.step)
        return fr_fail(r->ctx, FR_INVALID,
                       "--dump-step %lld: the run resumes after mini-batch %lld", (long long)k,
                       (long long)r->at.step);
    return FR_OK;
}

static fr_status check_folder_options(const fr_run *r)
{
    if (r->has_folder || (!r->o.resume && r->o.dump_step <= 0)) return FR_OK;
    return fr_fail(r->ctx, FR_INVALID, "%s needs the folder of the run: set `out` in the options",
                   r->o.resume ? "resume" : "dump_step");
}

/* Weights that do not match are refused before anything is measured or allocated. The table of a
 * partial match is logged when they are loaded. */
static fr_status check_weights(const fr_run *r)
{
    fr__given w;
    const fr__setup *s = &r->setup;
    if (!r->leads || r->o.resume || r->o.checkpoint || !s->weights || !s->is_weights_strict)
        return FR_OK;
    FR_TRY(fr__given_open(r->ctx, s->graph, fr__weight_map_of(fr_graph_name(s->graph)), s->weights,
                          true, &w));
    fr__given_close(&w);
    return FR_OK;
}

/* Checks that this process makes by itself. */
static fr_status look(fr_run *r)
{
    FR_TRY(check_folder_options(r));
    FR_TRY(fr__setup_open(r->ctx, &r->o, &r->setup));
    r->setup.want_outputs = r->o.want_outputs;
    if (r->leads && r->has_folder)
        FR_TRY(fr__folder_check(r->ctx, r->setup.settings.out, r->o.resume));
    FR_TRY(check_dump_step(r));
    FR_TRY(check_weights(r));
    return fr__setup_pipeline(&r->setup);
}

/* Hash of the resolved config as it is saved. It must be equal on all ranks. */
static fr_status hash_config(fr_run *r, uint64_t *word)
{
    fr__text text = {0};
    fr__sha256 hash;
    char hex[65];
    fr__conf_format(r->setup.conf, &text);
    fr__sha256_init(&hash);
    fr__sha256_update(&hash, text.at, text.n);
    fr__sha256_final(&hash, hex);
    fr__text_fini(&text);
    hex[16] = '\0';
    *word = strtoull(hex, NULL, 16);
    return text.failed ? fr__no_memory(r->ctx, 0, "config") : FR_OK;
}

static fr_status agree_on_config(fr_run *r)
{
    uint64_t word = 0;
    FR_TRY(fr_team_agree(r->team, look(r)));
    FR_TRY(fr_team_agree(r->team, hash_config(r, &word)));
    return fr_team_same(r->team, "the config", word);
}

static fr_status open_folder(fr_run *r)
{
    const fr__settings *t = &r->setup.settings;
    if (!r->leads) return FR_OK;
    FR_TRY(fr__ledger_open(r->ctx, r->o.ledger, r->setup.pipeline.plan->lends_ties, &r->ledger));
    if (!r->has_folder) return FR_OK;
    FR_TRY(fr__folder_open(r->ctx, t->out, r->o.resume, &r->folder));
    snprintf(r->result.out, sizeof r->result.out, "%s", r->folder.path);
    r->result.wants_report = t->report;
    return FR_OK;
}

static fr_status load_newest(void *run)
{
    fr_run *r = run;
    return fr__checkpoint_load_newest(&r->setup, r->engine, r->folder.checkpoints, &r->at,
                                      r->checkpoint);
}

static void log_resumed(const fr_run *r)
{
    if (!r->checkpoint[0])
        fr_log(r->ctx, FR_LOG_INFO, "%s: no checkpoint to resume from, starting from the beginning",
               r->folder.path);
    else
        fr_log(r->ctx, FR_LOG_INFO, "resuming from %s%s", r->checkpoint,
               r->setup.weights ? "; model.weights is not read" : "");
    if (r->checkpoint[0] && r->at.step >= r->setup.n_steps)
        fr_log(r->ctx, FR_LOG_INFO, "it has %lld updates, the config asks for %lld: nothing to do",
               (long long)r->at.step, (long long)r->setup.n_steps);
}

static void log_changes(const fr_run *r)
{
    char path[FR_PATH + 16];
    snprintf(path, sizeof path, "%s/config.yaml", r->folder.path);
    fr__log_changes(r->ctx, path, r->setup.conf);
}

static fr_status resume(fr_run *r)
{
    FR_TRY(fr__rank0_work(&r->setup, r->engine, load_newest, r));
    FR_TRY(fr_team_share(r->team, &r->at, sizeof r->at));
    FR_TRY(fr_team_share(r->team, r->checkpoint, sizeof r->checkpoint));
    if (r->leads) log_resumed(r);
    if (!r->checkpoint[0]) return FR_OK;
    if (r->leads) log_changes(r);
    r->saved_step = r->at.step;
    r->earlier_s = r->at.elapsed_s;
    return FR_OK;
}

static fr_status load_weights(void *run)
{
    fr_run *r = run;
    if (!r->o.checkpoint) return fr__given_load(&r->setup, r->engine);
    return fr__load_weights(&r->setup, r->engine, r->o.checkpoint);
}

/* Starts from given weights or those of another run; optimizer state and position are those of a
 * new run. */
static fr_status start_from(fr_run *r)
{
    FR_TRY(fr__rank0_work(&r->setup, r->engine, load_weights, r));
    r->is_changed = true;
    return FR_OK;
}

/* Saves the resolved config, with the leading comment if it is a plan. */
static fr_status save_config(fr_run *r)
{
    char path[FR_PATH];
    const char *head = r->setup.conf->root->head;
    bool is_plan = strncmp(head, "# " FR_PLAN_MARK, strlen("# " FR_PLAN_MARK)) == 0;
    FR_TRY(fr__folder_file(r->ctx, &r->folder, "config.yaml", path));
    return fr__conf_save(r->setup.conf, is_plan ? head : "", path);
}

static fr_status open_metrics(fr_run *r)
{
    const fr__settings *t = &r->setup.settings;
    int more = (t->csv ? FR_METRICS_CSV : 0) | (t->tensorboard ? FR_METRICS_TENSORBOARD : 0);
    FR_TRY(fr__metrics_open(r->ctx, &r->folder, r->at.step, more, &r->metrics));
    r->metrics.rules = fr__setup_stage_rules(&r->setup);
    return FR_OK;
}

static fr_status sync_metrics(void *metrics, fr_ctx *ctx) { return fr__metrics_sync(metrics, ctx); }

/* A file that cannot be written at the end is refused now. */
static fr_status open_files(fr_run *r)
{
    char path[FR_PATH];
    if (r->leads) FR_TRY(fr__folder_file(r->ctx, &r->folder, "summary.json", path));
    if (r->leads) FR_TRY(fr__folder_file(r->ctx, &r->folder, "trace.json", path));
    if (r->leads) FR_TRY(open_metrics(r));
    if (r->leads) FR_TRY(save_config(r));
    return fr__saver_open(&r->setup, r->engine, r->leads ? &r->folder : NULL, sync_metrics,
                          &r->metrics, &r->saver);
}

/* Opens what the mini-batches need. */
static fr_status open_rest(fr_run *r)
{
    const fr__settings *t = &r->setup.settings;
    int64_t left = r->setup.n_steps - r->at.step;
    FR_TRY(check_dump_step(r));
    if (r->has_folder) FR_TRY(open_files(r));
    fr_loader_desc desc = fr__setup_loader_desc(&r->setup, FR_TRAIN, (int)t->batch);
    desc.first_step = r->at.step, desc.n_steps = left > 0 ? left : 0;
    return left > 0 ? fr__feeder_open(r->ctx, &desc, r->engine, &r->feeder) : FR_OK;
}

/* Every rank measures, so memory and caches are shared as in the run. Rank 0 decides whether the
 * forecast is late. */
static fr_status forecast(fr_run *r)
{
    const fr__settings *t = &r->setup.settings;
    if (t->cluster && r->team)
        return fr_fail(r->ctx, FR_UNSUPPORTED,
                       "a cluster is emulated by the threads of one process; start the run without "
                       "mpirun, or leave parallel.cluster out");
    if ((!t->forecasts || !r->has_folder) && !t->cluster) return FR_OK;
    if (!t->cluster && !t->profile && t->forecast_s == 0) {
        bool is_late = fr__forecast_takes_long(&r->setup, &r->footprint);
        FR_TRY(fr_team_share(r->team, &is_late, sizeof is_late));
        r->forecast.is_late = is_late;
        if (is_late) return FR_OK;
    }
    fr_status status = fr_team_agree(r->team, fr__forecast_time(&r->setup, 0, 0, &r->forecast));
    if (status == FR_OK || t->cluster || t->profile || fr_team_is_broken(r->team, NULL))
        return status;
    /* The forecast is optional: warn and continue. */
    fr_log(r->ctx, FR_LOG_WARN, "no forecast: %s", fr_ctx_error(r->ctx));
    fr__time_forecast_free(&r->forecast);
    return FR_OK;
}

/* Refuses a run that does not fit the memory of the emulated devices, or parallel.memory. */
static fr_status check_devices(const fr_run *r)
{
    const fr__time_forecast *f = &r->forecast;
    const fr__settings *t = &r->setup.settings;
    for (int w = 0; w < fr_engine_n_workers(r->engine); w++) {
        size_t needs = fr_engine_predicted(r->engine, w)->total;
        size_t limit = fr__worker_limit(t, f->cluster, w);
        char who[FR_PATH + 64] = "parallel.memory allows";
        if (limit == 0 || needs <= limit) continue;
        if (f->cluster && limit != (size_t)t->worker_memory)
            snprintf(who, sizeof who, "device %s of %s has",
                     f->cluster->devices[f->spread.timing.device_of[w]].name, t->cluster);
        return fr_fail(r->ctx, FR_INVALID,
                       "worker %d needs %s, %s %s; cut the model into more stages, use smaller "
                       "micro-batches, or parallel.recompute: auto",
                       w, fr__brief_bytes((double)needs).text, who,
                       fr__brief_bytes((double)limit).text);
    }
    return FR_OK;
}

/* Plans, forecasts, then allocates: a run that does not fit allocates nothing. */
static fr_status make_engine(fr_run *r)
{
    const fr__time_forecast *f = &r->forecast;
    FR_TRY(fr__recompute_choose(&r->setup));
    fr_engine_desc d = fr__setup_train_desc(&r->setup, r->o.dump_step > 0, r->o.ledger != NULL);
    FR_TRY(fr__memory_plan(&r->setup, &d, &r->footprint, &r->engine));
    FR_TRY(forecast(r));
    FR_TRY(fr_team_agree(r->team, check_devices(r))); /* a process knows its own workers only */
    return fr_engine_take(r->engine, f->cluster ? &f->spread.timing : NULL, f->scale);
}

fr_status fr__run_start(fr_run *r)
{
    const fr_run_options *o = &r->o;
    FR_TRY(agree_on_config(r));
    if (r->team) fr_team_set_timeout(r->team, r->setup.settings.stall_s);
    FR_TRY(fr__run_check_best(r));
    FR_TRY(make_engine(r));
    FR_TRY(fr_team_agree(r->team, open_folder(r)));
    FR_TRY(fr_engine_collect(r->engine)); /* rank 0 needs the memory of each worker */
    if (r->leads) fr__log_start(&r->setup, r->engine, &r->forecast, &r->footprint);
    if (o->resume) FR_TRY(resume(r));
    if ((o->checkpoint || r->setup.weights) && !r->checkpoint[0]) FR_TRY(start_from(r));
    FR_TRY(fr__run_resume_best(r));
    r->first_step = r->at.step;
    return fr_team_agree(r->team, open_rest(r));
}
