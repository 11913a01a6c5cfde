/* eval.c -- evaluation, inside a training run and as a command of its own. */
#include "train/eval.h"

#include "base/thread.h"
#include "io/file.h"
#include "train/checkpoint.h"

#include <math.h>
#include <string.h>

static bool is_stopped(const volatile int *stop) { return stop && *stop; }

static fr_status run_through(fr_loader *loader, fr_worker *w, const volatile int *stop,
                             fr_tally *sum)
{
    while (!is_stopped(stop)) {
        const fr_batch *b;
        FR_TRY(fr_loader_next(loader, &b));
        if (!b) return FR_OK;
        fr_tally t = {0};
        fr_feed feed = {.step = b->step,
                        .input = b->input,
                        .target = b->target,
                        .length = b->length,
                        .n_targets = b->n_targets};
        fr_status status = fr_worker_eval(w, &feed, &t, NULL);
        fr_loader_release(loader, b);
        if (status != FR_OK) return status;
        sum->loss += t.loss, sum->targets += t.targets, sum->correct += t.correct;
    }
    *sum = (fr_tally){0}; /* a part would look like the whole */
    return FR_OK;
}

fr_status fr__evaluate(fr_setup *s, fr_worker *w, int batch, const volatile int *stop, double *loss,
                       double *accuracy)
{
    fr_loader *loader;
    fr_tally sum = {0};
    fr_loader_desc desc = {.data = s->data, .split = FR_EVAL, .batch = batch};
    *loss = *accuracy = NAN;
    FR_TRY(fr_loader_create(s->ctx, &desc, &loader));
    fr_status status = run_through(loader, w, stop, &sum);
    fr_loader_free(loader);
    if (status != FR_OK || sum.targets == 0) return status;
    *loss = sum.loss / (double)sum.targets;
    *accuracy = (double)sum.correct / (double)sum.targets;
    return FR_OK;
}

fr_status fr__load_weights(fr_setup *s, fr_worker *w, const char *from)
{
    char path[FR_PATH], sha256[65];
    bool is_damaged;
    if (!from) from = s->settings.out;
    FR_TRY(fr__path(s->ctx, path, "%s/model.safetensors", from));
    if (fr__file_exists(path)) return fr__checkpoint_load_model(s, w, from, sha256, &is_damaged);
    FR_TRY(fr__path(s->ctx, path, "%s/checkpoint", from));
    const char *root = fr__dir_exists(path) ? path : from;
    char found[FR_PATH];
    FR_TRY(fr__checkpoint_load_newest(s, w, root, NULL, found));
    if (found[0]) return FR_OK;
    return fr_fail(s->ctx, FR_INVALID,
                   "%s: no checkpoint there; give the folder of a run, or one of its "
                   "checkpoint/step-N, by --checkpoint",
                   from);
}

static fr_status evaluate(fr_setup *s, const fr_run_options *o, fr_worker *w, int batch,
                          fr_run_result *r)
{
    FR_TRY(fr__load_weights(s, w, o->checkpoint));
    FR_TRY(fr__weights_sha256(s, w, r->weights_sha256));
    uint64_t start = fr__now_ns();
    FR_TRY(fr__evaluate(s, w, batch, o->stop, &r->eval_loss, &r->eval_accuracy));
    if (is_stopped(o->stop)) return fr_fail(s->ctx, FR_INTERRUPTED, "interrupted");
    r->samples = fr_dataset_info(s->data)->n_eval;
    r->wall_s = (double)(fr__now_ns() - start) * 1e-9;
    r->samples_per_s = (double)r->samples / r->wall_s;
    return FR_OK;
}

fr_status fr_eval(fr_ctx *ctx, const fr_run_options *o, fr_run_result *result)
{
    fr_setup s;
    fr_worker *w = NULL;
    fr_run_result r = {.train_loss = NAN, .eval_loss = NAN, .eval_accuracy = NAN};
    FR_TRY(fr__setup_open(ctx, o, &s));
    int batch = (int)(s.settings.batch / s.settings.micro);
    fr_status status = FR_OK;
    if (fr_dataset_info(s.data)->n_eval == 0)
        status = fr_fail(ctx, FR_INVALID, "data %s has no evaluation part", s.data_name);
    if (status == FR_OK) status = fr__setup_eval_worker(&s, batch, false, &w);
    if (status == FR_OK) status = evaluate(&s, o, w, batch, &r);
    fr_worker_free(w);
    fr__setup_close(&s);
    if (result) *result = r;
    return status;
}
