/* run.c -- the mini-batches of a training run.
 *
 * One call of the engine trains all mini-batches up to the next evaluation, checkpoint or dump,
 * where the pipeline must be empty. Each complete mini-batch is reported: a line of metrics,
 * progress. The report of the last mini-batch of a call is made after the evaluation, so its line
 * contains it, and before the checkpoint, so the line of a checkpoint always exists. A snapshot is
 * taken while the pipeline is empty. Small state is written while the next mini-batches run; a
 * later report names the checkpoint when it is whole. */
#include "run/run.h"

#include "checkpoint/rank0_rpc.h"
#include "run/eval.h"
#include "runlog/run_log.h"

#include <math.h>
#include <string.h>

static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

double fr__run_elapsed_s(const fr_run *r)
{
    return r->earlier_s + (double)(fr_engine_now(r->engine) - r->start_ns) * 1e-9;
}

fr_status fr__run_agree(fr_run *r, fr_status mine)
{
    fr_status all = fr_team_agree(r->team, mine);
    bool is_of_all = all == FR_OK || all == FR_DIVERGED || all == FR_INTERRUPTED;
    return mine != FR_OK || is_of_all ? all : FR_PEER;
}

/* --- checkpoints ----------------------------------------------------------------------------- */

fr_status fr__run_take_checkpoint(fr_run *r)
{
    bool is_begun = r->saver.is_begun;
    FR_TRY(fr__saver_wait(&r->saver));
    if (!is_begun || !r->leads) return FR_OK;
    memcpy(r->checkpoint, r->saver.job.path, sizeof r->checkpoint);
    memcpy(r->result.weights_sha256, r->saver.job.sha256, sizeof r->result.weights_sha256);
    return FR_OK;
}

fr_status fr__run_settle(fr_run *r) { return fr__run_agree(r, fr__run_take_checkpoint(r)); }

fr_status fr__run_save(fr_run *r)
{
    fr_status status = fr__run_take_checkpoint(r);
    if (status == FR_OK && r->leads) status = fr__metrics_flush(&r->metrics);
    FR_TRY(fr__run_agree(r, status));
    r->at.elapsed_s = fr__run_elapsed_s(r);
    FR_TRY(fr__saver_begin(&r->saver, &r->at));
    r->saved_step = r->at.step;
    r->has_saved = true;
    return FR_OK;
}

/* --- one mini-batch ------------------------------------------------------------------------- */

/* Losses are added to the epoch in which a mini-batch begins. So train_loss depends only on the
 * position in the data, not on where a run was interrupted and resumed. */
static void add_to_epoch(fr_run *r, const fr_tally *t)
{
    int64_t n_train = fr_dataset_info(r->setup.data)->n_train, batch = r->setup.settings.batch;
    int64_t step = r->at.step; /* updates before this one */
    if (step > 0 && step * batch / n_train != (step - 1) * batch / n_train)
        r->at.epoch_loss = 0, r->at.epoch_targets = 0;
    r->at.epoch_loss += t->loss;
    r->at.epoch_targets += t->targets;
}

/* If no target counts, the loss is 0 for any weights. Reported after one pass over the data, or at
 * the end of a shorter run. */
static fr_status check_targets(const fr_run *r)
{
    int64_t n_train = fr_dataset_info(r->setup.data)->n_train, batch = r->setup.settings.batch;
    int64_t seen = r->at.step * batch;
    bool is_first_epoch = seen - batch < n_train;
    bool is_all = seen >= n_train || r->at.step == r->setup.n_steps;
    if (r->at.epoch_targets > 0 || !is_first_epoch || !is_all) return FR_OK;
    return fr_fail(r->ctx, FR_INVALID,
                   "data %s: no target of the first %lld samples counts (each is %d, NaN or the "
                   "loss's ignore_index): nothing was learnt; check the targets",
                   r->setup.data_name, (long long)(seen < n_train ? seen : n_train),
                   FR_TARGET_IGNORE);
}

/* The first tenth of the mini-batches of this session is a warm-up and does not count for speed. */
static void add_time(fr_run *r, int64_t n_samples, double seconds)
{
    int64_t tenth = (r->setup.n_steps - r->first_step + 9) / 10;
    bool is_first = r->at.step - r->first_step < tenth;
    *(is_first ? &r->first_tenth_s : &r->timed_s) += seconds;
    *(is_first ? &r->first_tenth_samples : &r->timed_samples) += n_samples;
}

/* Adds the times that are known only when the line is written. */
static fr_status write_line(fr_run *r, fr_progress *p)
{
    double session_s = fr__run_elapsed_s(r) - r->earlier_s;
    p->elapsed_s = r->earlier_s + session_s;
    p->left_s =
        session_s / (double)(p->step - r->first_step) * (double)(r->setup.n_steps - p->step);
    return r->has_folder ? fr__metrics_write(&r->metrics, p) : FR_OK;
}

/* Reports a mini-batch in the middle of a call, and a checkpoint that has become whole. */
static fr_status report(fr_run *r, fr_progress *p)
{
    if (fr__saver_is_done(&r->saver)) {
        FR_TRY(fr__run_take_checkpoint(r));
        p->checkpoint = r->checkpoint;
    }
    FR_TRY(write_line(r, p));
    if (r->o.progress) r->o.progress(r->o.user, p);
    return FR_OK;
}

/* If the stages were not measured, the first mini-batches give the forecast for the rest. */
static void update_forecast(fr_run *r, double seconds)
{
    fr__time_forecast *f = &r->forecast;
    int64_t n_left = r->setup.n_steps - r->at.step;
    bool was_late_made = f->is_late_made;
    if (n_left == 0) return;
    fr__forecast_by_run(f, r->at.step - r->first_step, seconds);
    if (f->is_late_made && !was_late_made) fr__log_late_forecast(&r->setup, f, n_left);
}

/* A mini-batch is complete; others may be in flight. */
static bool on_batch(void *user, const fr_batch_report *b)
{
    fr_run *r = user;
    const fr__settings *t = &r->setup.settings;
    double seconds = (double)(b->done_ns - r->done_ns) * 1e-9;
    r->done_ns = b->done_ns;
    add_to_epoch(r, &b->tally);
    add_time(r, t->batch, seconds);
    r->at.step++;
    r->at.samples += t->batch;
    r->last =
        (fr_progress){.step = r->at.step,
                      .n_steps = r->setup.n_steps,
                      .samples = r->at.samples,
                      .loss = b->tally.loss / (double)(b->tally.targets > 0 ? b->tally.targets : 1),
                      .lr = fr_lr_at(&t->lr, t->optim.lr, b->step),
                      .samples_per_s = (double)t->batch / seconds,
                      .grad_norm = b->grad_norm,
                      .eval_loss = NAN,
                      .eval_accuracy = NAN,
                      .eval_mae = NAN,
                      .eval_perplexity = NAN,
                      .out = r->folder.path};
    update_forecast(r, seconds);
    fr_status status = check_targets(r);
    if (status == FR_OK) status = fr__ledger_write(&r->ledger, b->ledger, b->n_ledger);
    if (status == FR_OK && r->at.step != r->call_end) status = report(r, &r->last);
    if (r->report_says == FR_OK) r->report_says = status;
    return r->report_says == FR_OK;
}

/* --- a call of the engine ------------------------------------------------------------------- */

bool fr__run_has_eval(const fr_run *r)
{
    return r->setup.settings.eval_every >= 0 && fr_dataset_info(r->setup.data)->n_eval > 0;
}

static int64_t earlier(int64_t a, int64_t b) { return b < a ? b : a; }

/* Number of updates at which the pipeline must next be empty, at most `end`. */
static int64_t next_stop(const fr_run *r, int64_t end)
{
    const fr__settings *t = &r->setup.settings;
    int64_t now = r->at.step, dump = r->o.dump_step;
    if (t->checkpoint_every > 0)
        end = earlier(end, (now / t->checkpoint_every + 1) * t->checkpoint_every);
    if (t->eval_every > 0 && fr__run_has_eval(r))
        end = earlier(end, (now / t->eval_every + 1) * t->eval_every);
    if (dump - 1 > now) end = earlier(end, dump - 1);
    if (dump - 1 == now) end = dump;
    return end;
}

/* Rank 0 has counted its reports; the other ranks take the number from the engine. */
static fr_status count(fr_run *r, int64_t first, int64_t n_done)
{
    if (r->leads && r->at.step != first + n_done)
        return fr_fail(r->ctx, FR_INTERNAL, "%lld mini-batches were reported, %lld done",
                       (long long)(r->at.step - first), (long long)n_done);
    r->at.step = first + n_done;
    r->at.samples = r->at.step * r->setup.settings.batch;
    r->has_last = r->at.step == r->call_end;
    if (!r->has_last) r->is_stopped = true;
    return FR_OK;
}

static fr_status train_call(fr_run *r)
{
    int64_t first = r->at.step, n_done = 0;
    fr_source source = fr__feeder_source(&r->feeder);
    r->has_last = false;
    r->report_says = FR_OK;
    r->n_calls++;
    r->done_ns = fr_engine_now(r->engine);
    fr_status status = fr_engine_train(r->engine, first, r->call_end - first, &source, on_batch, r,
                                       r->o.stop, &n_done);
    if (status != FR_OK && status != FR_DIVERGED) return status;
    fr_status counted = count(r, first, n_done);
    if (status != FR_OK) return status;
    return fr__run_agree(r, r->report_says != FR_OK ? r->report_says : counted);
}

static fr_status begin_dump(void *run)
{
    fr_run *r = run;
    const fr_batch *b;
    double lr = fr_lr_at(&r->setup.settings.lr, r->setup.settings.optim.lr, r->at.step);
    FR_TRY(fr__feeder_peek(&r->feeder, &b));
    return fr__dump_begin(&r->setup, r->engine, &r->folder, b, r->o.dump_step, lr, &r->dump);
}

static fr_status end_dump(void *run)
{
    fr_run *r = run;
    return fr__dump_end(&r->dump, r->last.loss);
}

/* The mini-batch --dump-step is a call of its own: the pipeline is empty before and after. */
static fr_status train_dumped(fr_run *r)
{
    FR_TRY(fr__run_settle(r)); /* the dump reads values the way a checkpoint does */
    FR_TRY(fr__rank0_work(&r->setup, r->engine, begin_dump, r));
    fr_status status = train_call(r);
    if (status == FR_OK && r->has_last) status = fr__rank0_work(&r->setup, r->engine, end_dump, r);
    fr__dump_abort(&r->dump);
    return status;
}

fr_status fr__run_evaluate(fr_run *r)
{
    fr__scores scores;
    FR_TRY(fr__evaluate(&r->setup, r->engine, (int)r->setup.settings.batch, r->o.stop, &scores));
    fr__scores_put(&scores, &r->result);
    return FR_OK;
}

/* After the mini-batch that ends a call: evaluation, metrics, checkpoint, progress. */
static fr_status report_last(fr_run *r)
{
    const fr__settings *t = &r->setup.settings;
    fr_progress *p = &r->last;
    bool is_last = r->at.step == r->setup.n_steps, is_best = false;
    if (fr__run_has_eval(r) && (is_last || is_due(t->eval_every, r->at.step))) {
        FR_TRY(fr__run_evaluate(r));
        p->eval_loss = r->result.eval_loss;
        p->eval_accuracy = r->result.eval_accuracy;
        p->eval_mae = r->result.eval_mae;
        p->eval_perplexity = r->result.eval_perplexity;
        FR_TRY(fr__run_judge(r, &is_best));
        is_last = r->at.step == r->setup.n_steps;
    }
    is_best = is_best && t->keep_best;
    bool is_saved =
        r->has_folder && (is_last || is_best || is_due(t->checkpoint_every, r->at.step));
    FR_TRY(fr__run_agree(r, r->leads ? write_line(r, p) : FR_OK));
    bool is_new = r->saver.is_begun; /* the previous one: saving waits for it */
    if (is_saved) FR_TRY(fr__run_save(r));
    if (is_last) FR_TRY(fr__run_settle(r));
    if (is_saved && (is_last || is_new)) p->checkpoint = r->checkpoint;
    if (r->leads && r->o.progress) r->o.progress(r->o.user, p);
    return FR_OK;
}

/* Between two calls rank 0 decides whether to stop; during a call the engine asks all ranks. */
static fr_status ask_for_stop(fr_run *r)
{
    int32_t stop = r->o.stop && *r->o.stop;
    FR_TRY(fr_team_share(r->team, &stop, sizeof stop));
    if (stop) r->is_stopped = true;
    return FR_OK;
}

fr_status fr__run_train(fr_run *r, int64_t end)
{
    FR_TRY(ask_for_stop(r));
    if (r->is_stopped) return FR_OK;
    r->call_end = next_stop(r, end);
    FR_TRY(r->at.step + 1 == r->o.dump_step ? train_dumped(r) : train_call(r));
    return r->has_last ? report_last(r) : FR_OK; /* else stopped before its end */
}
