/* run_object.c -- the public calls on a run: open, step, inspect, close.
 *
 * A failing step ends the run at once, so its summary has the cause; closing then only frees it. */
#include "base/alloc.h"
#include "base/ctx.h"
#include "base/thread.h"
#include "run/eval.h"
#include "run/run.h"

#include <forerun/state.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* The caller may add to the folder while the run holds its lock. */
static fr_status leave_folder(fr_run *r, fr_status status)
{
    if (status == FR_OK) status = fr__folder_held(r->ctx, &r->folder);
    if (r->o.over && fr__folder_is_held(&r->folder)) r->o.over(r->o.user, &r->result, status);
    fr__folder_close(&r->folder);
    return status;
}

/* Ends the run and writes its files. */
static fr_status end(fr_run *r, fr_status status)
{
    if (r->has_ended) return r->status;
    r->has_ended = true;
    r->status = fr__run_end(r, status);
    return r->status;
}

fr_status fr_run_close(fr_run *r, fr_run_result *result)
{
    if (!r) {
        if (result) *result = fr__no_result();
        return FR_OK;
    }
    fr_ctx *ctx = r->ctx;
    bool is_reported = r->has_ended; /* reported by the step that failed */
    fr__failure failure;
    fr_status status = end(r, FR_OK), ended = status;
    fr__failure_save(ctx, &failure);
    fr_status closed = fr__ledger_close(&r->ledger);
    if (status == FR_OK) status = closed;
    if (result) *result = r->result;
    fr__saver_close(&r->saver); /* it reads the engine's snapshot */
    fr_engine_free(r->engine);  /* its workers use the loader */
    fr__feeder_close(&r->feeder);
    fr__metrics_close(&r->metrics);
    if (r->folder.lock_fd >= 0) status = leave_folder(r, status);
    fr__time_forecast_free(&r->forecast);
    fr__setup_close(&r->setup);
    fr__free(r);
    if (ended != FR_OK) fr__failure_restore(ctx, &failure);
    return is_reported ? FR_OK : status;
}

static void forget_texts(fr_run_options *o)
{
    o->config = o->config_text = o->out = o->ledger = o->checkpoint = NULL;
    o->sets = NULL, o->n_sets = 0;
}

static fr_status open_run(fr_ctx *ctx, const fr_run_options *given, bool has_folder, fr_run **out)
{
    fr_run_options o;
    *out = NULL;
    FR_TRY(fr__run_options_take(ctx, given, &o));
    fr_run *r = FR_NEW(fr_run);
    if (!r) {
        fr_status status = fr__no_memory(ctx, sizeof *r, "training run");
        fr_team_fail(o.team, fr_ctx_error(ctx)); /* the other ranks cannot notice it */
        return status;
    }
    r->ctx = ctx, r->o = o, r->has_folder = has_folder;
    r->started = (int64_t)time(NULL);
    r->team = o.team, r->leads = fr_team_rank(o.team) == 0;
    r->saved_step = -1;
    r->folder.lock_fd = r->folder.checkpoint_fd = -1;
    r->result = fr__no_result();
    fr_status status = fr__run_start(r);
    forget_texts(&r->o);
    if (status != FR_OK) {
        r->has_ended = true, r->status = status;
        (void)fr_run_close(r, NULL);
        return status;
    }
    r->last = (fr_progress){.step = r->at.step,
                            .n_steps = r->setup.n_steps,
                            .samples = r->at.samples,
                            .loss = NAN,
                            .grad_norm = NAN,
                            .eval_loss = NAN,
                            .eval_accuracy = NAN,
                            .eval_mae = NAN,
                            .eval_perplexity = NAN,
                            .out = r->folder.path};
    r->start_ns = fr_engine_now(r->engine);
    r->wall_ns = fr__now_ns();
    r->stolen_s = fr__stolen_s();
    *out = r;
    return FR_OK;
}

fr_status fr_run_open(fr_ctx *ctx, const fr_run_options *o, fr_run **out)
{
    return open_run(ctx, o, o->out != NULL, out);
}

/* --- training -------------------------------------------------------------------------------- */

bool fr_run_is_over(const fr_run *r)
{
    return r->has_ended || r->is_stopped || r->at.step >= r->setup.n_steps;
}

/* Initial weights set by the caller cannot be computed from the seed, so they are saved. */
static fr_status keep_change(fr_run *r)
{
    if (!r->is_changed || !r->has_folder) return FR_OK;
    r->is_changed = false;
    return fr__run_save(r);
}

static fr_status step(fr_run *r, int64_t n)
{
    int64_t left = r->setup.n_steps - r->at.step,
            upto = r->at.step + (n > 0 && n < left ? n : left);
    r->is_stopped = false;
    FR_TRY(keep_change(r));
    while (r->at.step < upto && !r->is_stopped) {
        FR_TRY(fr__run_train(r, upto));
        if (n == 0) break;
    }
    return FR_OK;
}

fr_status fr_run_step(fr_run *r, int64_t n, int64_t *n_done)
{
    int64_t first = r->at.step;
    if (n_done) *n_done = 0;
    if (n < 0)
        return fr_fail(r->ctx, FR_INVALID, "a run cannot step %lld mini-batches", (long long)n);
    if (r->has_ended)
        return fr_fail(r->ctx, FR_INVALID, "the run has ended (%s): it cannot train any further",
                       fr_status_text(r->status));
    fr_status status = step(r, n);
    if (n_done) *n_done = r->at.step - first;
    return status == FR_OK ? FR_OK : end(r, status);
}

fr_status fr_train(fr_ctx *ctx, const fr_run_options *o, fr_run_result *result)
{
    fr_run *r;
    fr_status status = open_run(ctx, o, true, &r);
    while (status == FR_OK && !fr_run_is_over(r)) status = fr_run_step(r, 0, NULL);
    fr_status closed = fr_run_close(r, result);
    return status == FR_OK ? closed : status;
}

/* --- what it has come to --------------------------------------------------------------------- */

fr_status fr__run_check_whole(fr_run *r)
{
    if (!r->has_ended || r->status == FR_OK || r->status == FR_DIVERGED) return FR_OK;
    return fr_fail(r->ctx, FR_INVALID, "the run has ended (%s): it can only be closed",
                   fr_status_text(r->status));
}

fr_status fr_run_evaluate(fr_run *r, double *loss, double *accuracy)
{
    *loss = *accuracy = NAN;
    FR_TRY(fr__run_check_whole(r));
    if (fr_dataset_info(r->setup.data)->n_eval == 0)
        return fr_fail(r->ctx, FR_INVALID, "data %s has no evaluation part", r->setup.data_name);
    fr__scores scores;
    FR_TRY(fr__evaluate(&r->setup, r->engine, (int)r->setup.settings.batch, r->o.stop, &scores));
    *loss = scores.loss, *accuracy = scores.accuracy;
    return FR_OK;
}

void fr_run_progress(const fr_run *r, fr_progress *out) { *out = r->last; }

const fr_graph *fr_run_graph(const fr_run *r) { return r->setup.graph; }

static fr_status find_param(fr_run *r, const char *name, int64_t n, const float *values, int *param)
{
    const fr_graph *g = r->setup.graph;
    FR_TRY(fr__run_check_whole(r));
    *param = fr_graph_find_param(g, name);
    if (*param < 0)
        return fr_fail(r->ctx, FR_INVALID, "model %s has no parameter '%s'", fr_graph_name(g),
                       name);
    int64_t count = fr_shape_count(&fr_graph_param(g, *param)->shape);
    if (n != count)
        return fr_fail(r->ctx, FR_INVALID, "parameter %s has %lld values, %lld were asked for",
                       name, (long long)count, (long long)n);
    if (r->leads && !values)
        return fr_fail(r->ctx, FR_INVALID, "parameter %s: `values` is NULL", name);
    return FR_OK;
}

/* All ranks have found the parameter, and no checkpoint is reading the engine. */
static fr_status reach_param(fr_run *r, const char *name, int64_t n, const float *values,
                             int *param)
{
    FR_TRY(fr__run_agree(r, find_param(r, name, n, values, param)));
    return fr__run_settle(r);
}

fr_status fr_run_get_param(fr_run *r, const char *name, int64_t n, float *values)
{
    int param = -1;
    FR_TRY(reach_param(r, name, n, values, &param));
    return fr_engine_get_param(r->engine, param, values);
}

fr_status fr_run_set_param(fr_run *r, const char *name, int64_t n, const float *values)
{
    int param = -1;
    FR_TRY(reach_param(r, name, n, values, &param));
    r->is_changed = true;
    r->saved_step = -1; /* a checkpoint of this step holds other values */
    return fr_engine_set_param(r->engine, param, values);
}

/* --- checkpoints ----------------------------------------------------------------------------- */

/* Saves into a folder other than the run's, which rank 0 has opened. */
static fr_status save_into(fr_run *r, const fr__folder *f)
{
    fr__saver saver = {0};
    fr_status status =
        fr__saver_open(&r->setup, r->engine, r->leads ? f : NULL, NULL, NULL, &saver);
    status = fr__run_agree(r, status);
    r->at.elapsed_s = fr__run_elapsed_s(r);
    if (status == FR_OK) status = fr__saver_begin(&saver, &r->at);
    if (status == FR_OK) status = fr__run_agree(r, fr__saver_wait(&saver));
    fr__saver_close(&saver);
    return status;
}

fr_status fr_run_save(fr_run *r, const char *folder)
{
    fr__folder *f = NULL;
    FR_TRY(fr__run_check_whole(r));
    if (!folder && !r->has_folder)
        return fr_fail(r->ctx, FR_INVALID, "the run has no folder of its own to be saved in");
    FR_TRY(fr__run_settle(r)); /* one snapshot at a time */
    if (!folder) {
        FR_TRY(fr__run_save(r));
        r->is_changed = false;
        return fr__run_settle(r);
    }
    fr_status status = FR_OK;
    if (r->leads) {
        f = FR_NEW(fr__folder);
        status = f ? fr__folder_open(r->ctx, folder, true, f)
                   : fr__no_memory(r->ctx, sizeof *f, "checkpoint");
    }
    bool is_open = f && status == FR_OK;
    status = fr__run_agree(r, status);
    if (status == FR_OK) status = save_into(r, f);
    if (is_open) fr__folder_close(f);
    fr__free(f);
    return status;
}
