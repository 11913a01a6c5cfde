/* run.c -- a training run: resume, the loop, the end.
 *
 * The engine is called for as many mini-batches as may pass without a drain of the pipeline: up to
 * the next evaluation, checkpoint or dump. It reports each mini-batch as it comes through: a line
 * of metrics, progress. The report of the last one waits for what follows the call, so that its
 * line has the evaluation, and comes before the checkpoint: a checkpoint always finds its line.
 * However the run ends (done, stopped, diverged), the folder holds a checkpoint of the last good
 * weights and a summary; if a worker is lost, a summary. */
#include "base/thread.h"
#include "io/file.h"
#include "train/checkpoint.h"
#include "train/dump.h"
#include "train/eval.h"
#include "train/feeder.h"
#include "train/ledger.h"
#include "train/metrics.h"
#include "train/observe.h"
#include "train/summary.h"
#include "train/tell.h"

#include <math.h>
#include <string.h>

typedef struct run {
    fr_ctx *ctx;
    const fr_run_options *o;
    fr_setup setup;
    fr_engine *engine;
    fr_folder folder;
    fr_metrics metrics;
    fr_ledger ledger;
    fr_feeder feeder;
    fr_position at;
    int64_t first_step; /* where this session began */
    int64_t saved_step; /* of the last checkpoint; -1: none */
    char checkpoint[FR_PATH];
    uint64_t start_ns;
    double earlier_s;              /* elapsed in earlier sessions */
    double timed_s, first_tenth_s; /* inside mini-batches, waiting for data included */
    int64_t timed_samples, first_tenth_samples;
    /* the call of the engine that is under way */
    int64_t n_calls;       /* so far, in this session */
    int64_t call_end;      /* updates done when it has come through */
    uint64_t done_ns;      /* when the last mini-batch was through, or the call began */
    bool has_last;         /* the mini-batch that ends the call was reported: */
    fr_progress last;      /* its report, yet to be written */
    fr_status report_says; /* a line could not be written */
    fr_run_result result;
} run;

static double elapsed_s(const run *r)
{
    return r->earlier_s + (double)(fr__now_ns() - r->start_ns) * 1e-9;
}

static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

/* --- start ---------------------------------------------------------------------------------- */

static fr_status check_dump_step(const run *r)
{
    int64_t k = r->o->dump_step;
    if (k > r->setup.n_steps)
        return fr_fail(r->ctx, FR_INVALID, "--dump-step %lld: the run has mini-batches 1 to %lld",
                       (long long)k, (long long)r->setup.n_steps);
    if (k > 0 && k <= r->at.step)
        return fr_fail(r->ctx, FR_INVALID,
                       "--dump-step %lld: the run resumes after mini-batch %lld", (long long)k,
                       (long long)r->at.step);
    return FR_OK;
}

static fr_status save_config(run *r)
{
    char path[FR_PATH];
    FR_TRY(fr__path(r->ctx, path, "%s/config.yaml", r->folder.path));
    return fr_conf_save(r->setup.conf, path);
}

static fr_status resume(run *r)
{
    FR_TRY(fr__checkpoint_load_newest(&r->setup, r->engine, r->folder.checkpoints, &r->at,
                                      r->checkpoint));
    if (!r->checkpoint[0]) {
        fr_log(r->ctx, FR_LOG_INFO, "%s: no checkpoint to resume from, starting from the beginning",
               r->folder.path);
        return FR_OK;
    }
    fr_log(r->ctx, FR_LOG_INFO, "resuming from %s", r->checkpoint);
    r->saved_step = r->at.step;
    r->earlier_s = r->at.elapsed_s;
    if (r->at.step >= r->setup.n_steps)
        fr_log(r->ctx, FR_LOG_INFO, "it has %lld updates, the config asks for %lld: nothing to do",
               (long long)r->at.step, (long long)r->setup.n_steps);
    return FR_OK;
}

static fr_status start(run *r)
{
    const fr_run_options *o = r->o;
    const fr_settings *t = &r->setup.settings;
    FR_TRY(fr__setup_open(r->ctx, o, &r->setup));
    FR_TRY(fr__folder_check(r->ctx, t->out, o->resume));
    FR_TRY(check_dump_step(r));
    FR_TRY(fr__setup_train_engine(&r->setup, o->dump_step > 0, o->ledger != NULL, &r->engine));
    FR_TRY(fr__ledger_open(r->ctx, o->ledger, &r->ledger));
    FR_TRY(fr__folder_open(r->ctx, t->out, o->resume, &r->folder));
    snprintf(r->result.out, sizeof r->result.out, "%s", r->folder.path);
    fr__tell_start(&r->setup, r->engine);
    if (o->resume) FR_TRY(resume(r));
    FR_TRY(check_dump_step(r));
    r->first_step = r->at.step;
    FR_TRY(fr__metrics_open(r->ctx, &r->folder, r->at.step, &r->metrics));
    FR_TRY(save_config(r));
    int64_t left = r->setup.n_steps - r->at.step;
    fr_loader_desc desc = {.data = r->setup.data,
                           .split = FR_TRAIN,
                           .batch = (int)t->batch,
                           .seed = t->seed,
                           .first_step = r->at.step,
                           .n_steps = left > 0 ? left : 0};
    return left > 0 ? fr__feeder_open(r->ctx, &desc, r->engine, &r->feeder) : FR_OK;
}

/* --- one mini-batch ------------------------------------------------------------------------- */

/* Loss sums are of the epoch that a mini-batch begins in: the reported train_loss then depends on
 * the position in the data only, not on where a run was cut and resumed. */
static void add_to_epoch(run *r, const fr_tally *t)
{
    int64_t n_train = fr_dataset_info(r->setup.data)->n_train, batch = r->setup.settings.batch;
    int64_t step = r->at.step; /* done before this one */
    if (step > 0 && step * batch / n_train != (step - 1) * batch / n_train)
        r->at.epoch_loss = 0, r->at.epoch_targets = 0;
    r->at.epoch_loss += t->loss;
    r->at.epoch_targets += t->targets;
}

/* The first tenth of this session's mini-batches warms up caches and does not count for speed. */
static void add_time(run *r, int64_t n_samples, double seconds)
{
    int64_t tenth = (r->setup.n_steps - r->first_step + 9) / 10;
    bool is_first = r->at.step - r->first_step < tenth;
    *(is_first ? &r->first_tenth_s : &r->timed_s) += seconds;
    *(is_first ? &r->first_tenth_samples : &r->timed_samples) += n_samples;
}

/* Times that are known only when the line is written. */
static fr_status write_line(run *r, fr_progress *p)
{
    double session_s = elapsed_s(r) - r->earlier_s;
    p->elapsed_s = r->earlier_s + session_s;
    p->left_s =
        session_s / (double)(p->step - r->first_step) * (double)(r->setup.n_steps - p->step);
    return fr__metrics_write(&r->metrics, p);
}

/* A mini-batch is through; others may be under way. */
static bool on_batch(void *user, const fr_batch_report *b)
{
    run *r = user;
    const fr_settings *t = &r->setup.settings;
    double seconds = (double)(b->done_ns - r->done_ns) * 1e-9;
    r->done_ns = b->done_ns;
    add_to_epoch(r, &b->tally);
    add_time(r, t->batch, seconds);
    r->at.step++;
    r->at.samples += t->batch;
    fr_progress p = {.step = r->at.step,
                     .n_steps = r->setup.n_steps,
                     .samples = r->at.samples,
                     .loss = b->tally.loss / (double)(b->tally.targets > 0 ? b->tally.targets : 1),
                     .lr = fr_lr_at(&t->lr, t->optim.lr, b->step),
                     .samples_per_s = (double)t->batch / seconds,
                     .grad_norm = b->grad_norm,
                     .eval_loss = NAN,
                     .eval_accuracy = NAN};
    r->report_says = fr__ledger_write(&r->ledger, b->ledger, b->n_ledger);
    if (r->at.step == r->call_end) {
        r->has_last = true;
        r->last = p;
    } else if (r->report_says == FR_OK) {
        r->report_says = write_line(r, &p);
        if (r->o->progress) r->o->progress(r->o->user, &p);
    }
    return r->report_says == FR_OK;
}

/* --- a call of the engine ------------------------------------------------------------------- */

static bool has_eval(const run *r)
{
    return r->setup.settings.eval_every >= 0 && fr_dataset_info(r->setup.data)->n_eval > 0;
}

static int64_t earlier(int64_t a, int64_t b) { return b < a ? b : a; }

/* Updates done when the pipeline must next be empty. */
static int64_t next_stop(const run *r)
{
    const fr_settings *t = &r->setup.settings;
    int64_t now = r->at.step, end = r->setup.n_steps, dump = r->o->dump_step;
    if (t->checkpoint_every > 0)
        end = earlier(end, (now / t->checkpoint_every + 1) * t->checkpoint_every);
    if (t->eval_every > 0 && has_eval(r))
        end = earlier(end, (now / t->eval_every + 1) * t->eval_every);
    if (dump - 1 > now) end = earlier(end, dump - 1);
    if (dump - 1 == now) end = dump;
    return end;
}

static fr_status train_call(run *r)
{
    int64_t first = r->at.step, n_done = 0;
    fr_source source = fr__feeder_source(&r->feeder);
    r->has_last = false;
    r->report_says = FR_OK;
    r->n_calls++;
    r->done_ns = fr__now_ns();
    fr_status status = fr_engine_train(r->engine, first, r->call_end - first, &source, on_batch, r,
                                       r->o->stop, &n_done);
    if (status == FR_OK) status = r->report_says;
    if ((status == FR_OK || status == FR_DIVERGED) && r->at.step != first + n_done)
        return fr_fail(r->ctx, FR_INTERNAL, "%lld mini-batches were reported, %lld done",
                       (long long)(r->at.step - first), (long long)n_done);
    return status;
}

/* The mini-batch --dump-step is a call of its own: the pipeline is empty before and after. */
static fr_status train_dumped(run *r)
{
    const fr_batch *b;
    fr_dump dump = {0};
    double lr = fr_lr_at(&r->setup.settings.lr, r->setup.settings.optim.lr, r->at.step);
    FR_TRY(fr__feeder_peek(&r->feeder, &b));
    FR_TRY(fr__dump_begin(&r->setup, r->engine, &r->folder, b, r->o->dump_step, lr, &dump));
    fr_status status = train_call(r);
    if (status == FR_OK && r->has_last) status = fr__dump_end(&dump, r->last.loss);
    fr__dump_abort(&dump);
    return status;
}

static fr_status save(run *r)
{
    r->at.elapsed_s = elapsed_s(r);
    FR_TRY(fr__metrics_sync(&r->metrics));
    FR_TRY(fr__checkpoint_save(&r->setup, r->engine, &r->folder, &r->at, r->checkpoint,
                               r->result.weights_sha256));
    r->saved_step = r->at.step;
    return FR_OK;
}

static fr_status evaluate(run *r)
{
    return fr__evaluate(&r->setup, r->engine, (int)r->setup.settings.batch, r->o->stop,
                        &r->result.eval_loss, &r->result.eval_accuracy);
}

/* After the mini-batch that ends a call: evaluation, metrics, checkpoint, progress. */
static fr_status report_last(run *r)
{
    const fr_settings *t = &r->setup.settings;
    fr_progress *p = &r->last;
    bool is_last = r->at.step == r->setup.n_steps;
    if (has_eval(r) && (is_last || is_due(t->eval_every, r->at.step))) {
        FR_TRY(evaluate(r));
        p->eval_loss = r->result.eval_loss;
        p->eval_accuracy = r->result.eval_accuracy;
    }
    FR_TRY(write_line(r, p));
    if (is_last || is_due(t->checkpoint_every, r->at.step)) {
        FR_TRY(save(r));
        p->checkpoint = r->checkpoint;
    }
    if (r->o->progress) r->o->progress(r->o->user, p);
    return FR_OK;
}

static fr_status train_on(run *r)
{
    r->call_end = next_stop(r);
    FR_TRY(r->at.step + 1 == r->o->dump_step ? train_dumped(r) : train_call(r));
    return r->has_last ? report_last(r) : FR_OK; /* else stopped before its end */
}

/* --- end ------------------------------------------------------------------------------------ */

static void fill_result(run *r)
{
    fr_run_result *q = &r->result;
    q->steps = r->at.step, q->samples = r->at.samples;
    q->train_loss = r->at.epoch_targets ? r->at.epoch_loss / (double)r->at.epoch_targets : NAN;
    bool has_rest = r->timed_samples > 0; /* else the run was too short to leave a tenth out */
    double seconds = has_rest ? r->timed_s : r->first_tenth_s;
    int64_t samples = has_rest ? r->timed_samples : r->first_tenth_samples;
    q->samples_per_s = samples ? (double)samples / seconds : NAN;
    q->wall_s = elapsed_s(r);
}

static fr_status summarize(run *r, const char *status)
{
    fr_bubble bubble;
    fill_result(r);
    FR_TRY(
        fr__observe_bubble(&r->setup, r->engine, r->at.step - r->first_step, r->n_calls, &bubble));
    if (strcmp(status, "failed") != 0) fr__tell_end(&r->setup, r->engine, &bubble);
    const fr_loader *loader = r->feeder.loader;
    fr_summary sum = {.result = &r->result,
                      .config = r->o->config,
                      .status = status,
                      .checkpoint = r->checkpoint,
                      .bubble = &bubble,
                      .data_wait_s = loader ? (double)fr_loader_wait_ns(loader) * 1e-9 : 0};
    return fr__summary_write(&r->setup, r->engine, &r->folder, &sum);
}

static fr_status finish(run *r, const char *status)
{
    if (r->saved_step != r->at.step) {
        FR_TRY(save(r));
    } else if (!r->result.weights_sha256[0]) { /* resumed, nothing left to do */
        FR_TRY(fr__weights_sha256(&r->setup, r->engine, r->result.weights_sha256));
        if (has_eval(r)) FR_TRY(evaluate(r));
    }
    FR_TRY(fr__ledger_close(&r->ledger));
    FR_TRY(summarize(r, status));
    /* Last, for it is large: if the disk fills up, all else is there. */
    return fr__observe_trace(&r->setup, r->engine, &r->folder);
}

/* The engine has left the weights as they were before the mini-batch that failed. They are worth
 * keeping unless an earlier update has spoilt them already. */
static fr_status finish_diverged(run *r)
{
    bool is_finite;
    fr_status status = fr__weights_finite(&r->setup, r->engine, &is_finite);
    if (status == FR_OK && is_finite) status = finish(r, "diverged");
    if (status == FR_OK && r->checkpoint[0])
        fr_log(r->ctx, FR_LOG_WARN, "the last good weights are in %s; --resume goes on from there",
               r->checkpoint);
    return FR_DIVERGED; /* whatever happened here, this came first */
}

/* A worker failed, hung or was lost: what the others hold is of no version. */
static fr_status finish_failed(run *r)
{
    char what[1600];
    r->result.weights_sha256[0] = '\0';
    (void)summarize(r, "failed"); /* whatever happens here, the failure came first */
    snprintf(what, sizeof what, "%s", fr_ctx_error(r->ctx));
    fr_ctx_clear(r->ctx);
    if (!r->checkpoint[0])
        return fr_fail(r->ctx, FR_PEER,
                       "%s; nothing was saved before (run.checkpoint_every: N saves every N "
                       "updates)",
                       what);
    return fr_fail(r->ctx, FR_PEER, "%s; %s is whole, --resume goes on from there", what,
                   r->checkpoint);
}

static fr_status train(run *r)
{
    FR_TRY(start(r));
    r->start_ns = fr__now_ns();
    fr_status status = FR_OK;
    while (status == FR_OK && r->at.step < r->setup.n_steps && !(r->o->stop && *r->o->stop))
        status = train_on(r);
    if (status == FR_DIVERGED) return finish_diverged(r);
    if (status == FR_PEER) return finish_failed(r);
    if (status != FR_OK) return status;
    if (r->at.step >= r->setup.n_steps) return finish(r, "done");
    FR_TRY(finish(r, "interrupted"));
    return fr_fail(r->ctx, FR_INTERRUPTED,
                   "interrupted after %lld of %lld updates; %s holds them, continue with --resume",
                   (long long)r->at.step, (long long)r->setup.n_steps, r->checkpoint);
}

fr_status fr_train(fr_ctx *ctx, const fr_run_options *o, fr_run_result *result)
{
    run *r = FR_NEW(run);
    if (!r) return fr__no_memory(ctx, sizeof *r, "training run");
    r->ctx = ctx, r->o = o;
    r->saved_step = -1;
    r->folder.lock_fd = -1;
    r->result.train_loss = r->result.eval_loss = r->result.eval_accuracy = NAN;
    fr_status status = train(r);
    fr_status closed = fr__ledger_close(&r->ledger);
    if (status == FR_OK) status = closed;
    if (result) *result = r->result;
    fr_engine_free(r->engine); /* its workers use the loader */
    fr__feeder_close(&r->feeder);
    fr__metrics_close(&r->metrics);
    fr__folder_close(&r->folder);
    fr__setup_close(&r->setup);
    fr__free(r);
    return status;
}
