/* run.c -- a training run: resume, the loop, the end.
 *
 * A step is: mini-batch from the loader, forward and backward and update by the worker, evaluation
 * where due, a line of metrics, a checkpoint where due, progress. The line comes before the
 * checkpoint, so that a checkpoint always finds its line. However the run ends (done, stopped,
 * diverged), the folder holds a checkpoint of the last good weights and a summary. */
#include "base/thread.h"
#include "io/file.h"
#include "train/checkpoint.h"
#include "train/dump.h"
#include "train/eval.h"
#include "train/metrics.h"
#include "train/summary.h"

#include <math.h>
#include <string.h>

typedef struct run {
    fr_ctx *ctx;
    const fr_run_options *o;
    fr_setup setup;
    fr_worker *worker;
    fr_folder folder;
    fr_metrics metrics;
    fr_loader *loader;
    fr_position at;
    int64_t first_step; /* where this session began */
    int64_t saved_step; /* of the last checkpoint; -1: none */
    char checkpoint[FR_PATH];
    uint64_t start_ns;
    double earlier_s;              /* elapsed in earlier sessions */
    double timed_s, first_tenth_s; /* inside mini-batches, waiting for data included */
    int64_t timed_samples, first_tenth_samples;
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
    FR_TRY(fr__checkpoint_load_newest(&r->setup, r->worker, r->folder.checkpoints, &r->at,
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

static void announce(const run *r)
{
    const fr_settings *t = &r->setup.settings;
    fr_log(r->ctx, FR_LOG_INFO,
           "%s: %.2f M parameters, %.1f MB on %s; %lld updates of %lld samples",
           fr_graph_name(r->setup.graph), (double)fr_graph_param_count(r->setup.graph) * 1e-6,
           (double)fr_worker_predicted(r->worker)->total * 1e-6, fr_worker_about(r->worker),
           (long long)r->setup.n_steps, (long long)t->batch);
}

static fr_status start(run *r)
{
    const fr_run_options *o = r->o;
    const fr_settings *t = &r->setup.settings;
    FR_TRY(fr__setup_open(r->ctx, o, &r->setup));
    FR_TRY(fr__folder_check(r->ctx, t->out, o->resume));
    FR_TRY(check_dump_step(r));
    FR_TRY(fr__setup_train_worker(&r->setup, o->dump_step > 0, &r->worker));
    FR_TRY(fr__folder_open(r->ctx, t->out, o->resume, &r->folder));
    snprintf(r->result.out, sizeof r->result.out, "%s", r->folder.path);
    announce(r);
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
    return left > 0 ? fr_loader_create(r->ctx, &desc, &r->loader) : FR_OK;
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
static void add_time(run *r, int n_samples, double seconds)
{
    int64_t tenth = (r->setup.n_steps - r->first_step + 9) / 10;
    bool is_first = r->at.step - r->first_step < tenth;
    *(is_first ? &r->first_tenth_s : &r->timed_s) += seconds;
    *(is_first ? &r->first_tenth_samples : &r->timed_samples) += n_samples;
}

static fr_status train_batch(run *r, const fr_batch *b, double lr, fr_tally *tally, double *norm)
{
    int64_t step = r->at.step + 1;
    fr_dump dump = {0};
    fr_feed feed = {.step = r->at.step,
                    .input = b->input,
                    .target = b->target,
                    .length = b->length,
                    .n_targets = b->n_targets,
                    .lr = lr,
                    .want_norm = r->setup.settings.grad_norm};
    bool is_dumped = step == r->o->dump_step;
    if (is_dumped) FR_TRY(fr__dump_begin(&r->setup, r->worker, &r->folder, b, step, lr, &dump));
    fr_status status = fr_worker_train(r->worker, &feed, tally, norm);
    if (is_dumped && status == FR_OK)
        status = fr__dump_end(&dump, tally->loss / (double)tally->targets);
    fr__dump_abort(&dump);
    return status;
}

/* After a mini-batch: evaluation, metrics, checkpoint, progress. */
static fr_status report(run *r, fr_progress *p)
{
    const fr_settings *t = &r->setup.settings;
    bool is_last = r->at.step == r->setup.n_steps;
    if (t->eval_every >= 0 && fr_dataset_info(r->setup.data)->n_eval > 0 &&
        (is_last || is_due(t->eval_every, r->at.step))) {
        FR_TRY(fr__evaluate(&r->setup, r->worker, (int)t->batch, r->o->stop, &p->eval_loss,
                            &p->eval_accuracy));
        r->result.eval_loss = p->eval_loss;
        r->result.eval_accuracy = p->eval_accuracy;
    }
    double session_s = elapsed_s(r) - r->earlier_s;
    p->elapsed_s = r->earlier_s + session_s;
    p->left_s =
        session_s / (double)(r->at.step - r->first_step) * (double)(r->setup.n_steps - r->at.step);
    FR_TRY(fr__metrics_write(&r->metrics, p));
    if (is_last || is_due(t->checkpoint_every, r->at.step)) {
        r->at.elapsed_s = elapsed_s(r);
        FR_TRY(fr__metrics_sync(&r->metrics));
        FR_TRY(fr__checkpoint_save(&r->setup, r->worker, &r->folder, &r->at, r->checkpoint,
                                   r->result.weights_sha256));
        r->saved_step = r->at.step;
        p->checkpoint = r->checkpoint;
    }
    if (r->o->progress) r->o->progress(r->o->user, p);
    return FR_OK;
}

static fr_status one_step(run *r)
{
    const fr_batch *b;
    fr_tally tally = {0};
    fr_progress p = {
        .n_steps = r->setup.n_steps, .grad_norm = NAN, .eval_loss = NAN, .eval_accuracy = NAN};
    uint64_t start = fr__now_ns();
    FR_TRY(fr_loader_next(r->loader, &b));
    if (!b) return fr_fail(r->ctx, FR_INTERNAL, "the data ended before the run");
    p.lr = fr_lr_at(&r->setup.settings.lr, r->setup.settings.optim.lr, r->at.step);
    int n_samples = b->n_samples;
    fr_status status = train_batch(r, b, p.lr, &tally, &p.grad_norm);
    fr_loader_release(r->loader, b);
    if (status != FR_OK) return status;
    double seconds = (double)(fr__now_ns() - start) * 1e-9;
    p.loss = tally.loss / (double)(tally.targets > 0 ? tally.targets : 1);
    add_to_epoch(r, &tally);
    add_time(r, n_samples, seconds);
    r->at.step++;
    r->at.samples += n_samples;
    p.step = r->at.step, p.samples = r->at.samples;
    p.samples_per_s = n_samples / seconds;
    return report(r, &p);
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

static fr_status finish(run *r, const char *status)
{
    const fr_settings *t = &r->setup.settings;
    if (r->saved_step != r->at.step) {
        r->at.elapsed_s = elapsed_s(r);
        FR_TRY(fr__metrics_sync(&r->metrics));
        FR_TRY(fr__checkpoint_save(&r->setup, r->worker, &r->folder, &r->at, r->checkpoint,
                                   r->result.weights_sha256));
        r->saved_step = r->at.step;
    } else if (!r->result.weights_sha256[0]) { /* resumed, nothing left to do */
        FR_TRY(fr__weights_sha256(&r->setup, r->worker, r->result.weights_sha256));
        if (t->eval_every >= 0 && fr_dataset_info(r->setup.data)->n_eval > 0)
            FR_TRY(fr__evaluate(&r->setup, r->worker, (int)t->batch, r->o->stop,
                                &r->result.eval_loss, &r->result.eval_accuracy));
    }
    fill_result(r);
    fr_summary sum = {.result = &r->result,
                      .config = r->o->config,
                      .status = status,
                      .checkpoint = r->checkpoint,
                      .wait_s = r->loader ? (double)fr_loader_wait_ns(r->loader) * 1e-9 : 0};
    return fr__summary_write(&r->setup, r->worker, &r->folder, &sum);
}

/* The worker has left the weights as they were before the mini-batch that failed. They are worth
 * keeping unless an earlier update has spoilt them already. */
static fr_status finish_diverged(run *r)
{
    bool is_finite;
    fr_status status = fr__weights_finite(&r->setup, r->worker, &is_finite);
    if (status == FR_OK && is_finite) status = finish(r, "diverged");
    if (status == FR_OK && r->checkpoint[0])
        fr_log(r->ctx, FR_LOG_WARN, "the last good weights are in %s", r->checkpoint);
    return FR_DIVERGED; /* whatever happened here, this came first */
}

static fr_status train(run *r)
{
    FR_TRY(start(r));
    r->start_ns = fr__now_ns();
    fr_status status = FR_OK;
    while (status == FR_OK && r->at.step < r->setup.n_steps && !(r->o->stop && *r->o->stop))
        status = one_step(r);
    if (status == FR_DIVERGED) return finish_diverged(r);
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
    if (result) *result = r->result;
    fr_loader_free(r->loader);
    fr__metrics_close(&r->metrics);
    fr_worker_free(r->worker);
    fr__folder_close(&r->folder);
    fr__setup_close(&r->setup);
    fr__free(r);
    return status;
}
