/* run_end.c -- the end of a training run.
 *
 * After a run that is done, stopped or diverged, the folder holds a checkpoint of the last finite
 * weights and a summary. If a worker was lost, it holds a summary. If the folder itself was lost,
 * nothing more is written. */
#include "base/ctx.h"
#include "base/thread.h"
#include "checkpoint/rank0_rpc.h"
#include "checkpoint/state.h"
#include "io/conf.h"
#include "io/file.h"
#include "run/eval.h"
#include "run/run.h"
#include "runlog/observe.h"
#include "runlog/run_log.h"
#include "runlog/summary.h"

#include <math.h>
#include <string.h>

static void fill_result(fr_run *r)
{
    fr_run_result *q = &r->result;
    q->steps = r->at.step, q->samples = r->at.samples;
    q->train_loss = r->at.epoch_targets ? r->at.epoch_loss / (double)r->at.epoch_targets : NAN;
    bool has_rest = r->timed_samples > 0; /* else the run was too short to leave out a tenth */
    double seconds = has_rest ? r->timed_s : r->first_tenth_s;
    int64_t samples = has_rest ? r->timed_samples : r->first_tenth_samples;
    q->samples_per_s = samples ? (double)samples / seconds : NAN;
    double session_s = (double)(fr__now_ns() - r->wall_ns) * 1e-9;
    q->wall_s = r->earlier_s + session_s;
    q->stolen = session_s > 0 ? (fr__stolen_s() - r->stolen_s) / session_s : 0;
}

static fr_status summarize(fr_run *r, const char *status)
{
    fr__bubble bubble;
    fill_result(r);
    if (!r->leads) return FR_OK;
    FR_TRY(
        fr__observe_bubble(&r->setup, r->engine, r->at.step - r->first_step, r->n_calls, &bubble));
    FR_TRY(fr__forecast_replay(&r->setup, r->engine, &r->forecast));
    if (strcmp(status, "failed") != 0)
        fr__log_end(&r->setup, r->engine, &r->forecast, &bubble, &r->result);
    const fr_loader *loader = r->feeder.loader;
    fr__summary sum = {.result = &r->result,
                       .config = r->setup.conf->root->name,
                       .status = status,
                       .checkpoint = r->checkpoint,
                       .forecast = &r->forecast,
                       .footprint = &r->footprint,
                       .bubble = &bubble,
                       .started = r->started,
                       .best = r->at.best,
                       .best_step = r->at.best_step,
                       .has_ended_early = r->has_ended_early,
                       .n_samples = (r->at.step - r->first_step) * r->setup.settings.batch,
                       .data_wait_s = loader ? (double)fr_loader_wait_ns(loader) * 1e-9 : 0};
    return fr__summary_write(&r->setup, r->engine, &r->folder, &sum);
}

/* Files of rank 0. The other ranks are not needed any more. */
static fr_status write_files(fr_run *r, const char *status)
{
    FR_TRY(fr__ledger_close(&r->ledger));
    FR_TRY(summarize(r, status));
    /* Last, because it is large: if the disk is full, everything else exists. */
    return r->leads ? fr__observe_trace(&r->setup, r->engine, &r->folder) : FR_OK;
}

static fr_status hash_weights(void *run)
{
    fr_run *r = run;
    return fr__weights_sha256(&r->setup, r->engine, r->result.weights_sha256);
}

static fr_status finish(fr_run *r, const char *status)
{
    if (r->saved_step != r->at.step) FR_TRY(fr__run_save(r));
    FR_TRY(fr__run_settle(r));
    if (!r->has_saved) { /* resumed with nothing left to do */
        FR_TRY(fr__rank0_work(&r->setup, r->engine, hash_weights, r));
        if (fr__run_has_eval(r)) FR_TRY(fr__run_evaluate(r));
    }
    FR_TRY(fr_engine_collect(r->engine));
    return fr__run_agree(r, write_files(r, status));
}

/* A summary that names the last finite state: the newest checkpoint, or the initial weights. */
static fr_status write_last_finite(fr_run *r)
{
    fr__state state;
    fr__position start = {0};
    char *sha256 = r->result.weights_sha256;
    if (r->leads && !r->checkpoint[0]) {
        FR_TRY(fr__checkpoint_save(&r->setup, NULL, &r->folder, &start, r->checkpoint, sha256));
    } else if (r->leads) {
        FR_TRY(fr__state_read(r->ctx, r->checkpoint, &state));
        memcpy(sha256, state.sha256, sizeof state.sha256);
    }
    return write_files(r, "diverged");
}

/* The engine has kept the weights from before the mini-batch that failed; they are saved. They may
 * already be infinite from an earlier update: an asynchronous pipeline makes updates before the
 * loss shows it, and a gradient may overflow before its loss. Then they are not saved. The
 * divergence is reported, whatever fails here. */
static fr_status finish_diverged(fr_run *r)
{
    fr__failure divergence;
    fr__failure_save(r->ctx, &divergence);
    fr_status status = fr__run_settle(r);
    r->saved_step = -1; /* the failure may be that of a checkpoint */
    if (status == FR_OK) status = finish(r, "diverged");
    bool is_spoilt = status == FR_DIVERGED, is_start = is_spoilt && !r->checkpoint[0];
    if (is_spoilt) status = fr_engine_collect(r->engine);
    if (is_spoilt && status == FR_OK) status = fr__run_agree(r, write_last_finite(r));
    if (status == FR_OK && r->leads)
        fr_log(r->ctx, FR_LOG_WARN, "%s %s; --resume continues from there%s",
               is_spoilt ? "earlier updates have made weights infinite; the last finite ones that "
                           "were saved are in"
                         : "the last good weights are in",
               r->checkpoint,
               is_start ? " (the start: run.checkpoint_every: N saves every N updates)" : "");
    fr__failure_restore(r->ctx, &divergence);
    return FR_DIVERGED;
}

/* The failure is that of another rank, which reports it itself. */
static bool is_of_other(const fr_run *r, const char *what)
{
    for (int i = 1; i < fr_team_size(r->team) && !fr_team_is_broken(r->team, NULL); i++) {
        const char *name = fr_team_name(r->team, i);
        if (strncmp(what, name, strlen(name)) == 0) return true;
    }
    return false;
}

/* Adds to the failure where to resume from. */
static fr_status fail_with_hint(fr_run *r, fr_status status, const char *what)
{
    char hint[FR_PATH + 64] = "nothing was saved before (run.checkpoint_every: N saves every N "
                              "updates)";
    if (r->checkpoint[0])
        snprintf(hint, sizeof hint, "%s is whole, --resume continues from there", r->checkpoint);
    if (!is_of_other(r, what)) return fr_fail(r->ctx, status, "%.1600s; %s", what, hint);
    fr_log(r->ctx, FR_LOG_WARN, "%s", hint);
    return fr_fail(r->ctx, status, "%s", what);
}

/* A worker failed, hung or was lost: the weights of the others are of mixed versions. A checkpoint
 * that is being written may still become whole if it is a copy. */
static fr_status finish_failed(fr_run *r)
{
    fr__failure failure; /* reported, whatever fails here */
    fr__failure_save(r->ctx, &failure);
    (void)fr__run_take_checkpoint(r);
    r->result.weights_sha256[0] = '\0';
    (void)summarize(r, "failed");
    return fail_with_hint(r, FR_PEER, failure.text);
}

static fr_status fail(fr_run *r, fr_status status)
{
    if (!r->leads) return status;
    if (status == FR_PEER) return finish_failed(r);
    /* A lost folder or checkpoint is the cause of any failure. */
    if (!fr__folder_is_held(&r->folder) || (r->checkpoint[0] && !fr__dir_exists(r->checkpoint)))
        return fr__folder_lost(r->ctx, &r->folder);
    return fail_with_hint(r, status, fr_ctx_error(r->ctx));
}

static fr_status end_without_folder(fr_run *r, fr_status status)
{
    fill_result(r);
    if (status != FR_OK || !r->is_stopped) return status;
    return fr_fail(r->ctx, FR_INTERRUPTED, "interrupted after %lld of %lld updates",
                   (long long)r->at.step, (long long)r->setup.n_steps);
}

fr_status fr__run_end(fr_run *r, fr_status status)
{
    if (!r->has_folder) return end_without_folder(r, status);
    if (status == FR_DIVERGED) return finish_diverged(r);
    if (status == FR_OK) {
        bool is_done = r->at.step >= r->setup.n_steps;
        status = finish(r, is_done ? "done" : "interrupted");
        if (status == FR_OK && (is_done || !r->is_stopped)) return FR_OK;
    }
    if (status != FR_OK) return fail(r, status);
    FR_TRY(fr_team_share(r->team, r->checkpoint,
                         sizeof r->checkpoint)); /* all ranks give the same message */
    return fr_fail(r->ctx, FR_INTERRUPTED,
                   "interrupted after %lld of %lld updates; %s holds them, continue with --resume",
                   (long long)r->at.step, (long long)r->setup.n_steps, r->checkpoint);
}
