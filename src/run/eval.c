/* eval.c -- evaluation, during a training run and by itself (fr_eval). */
#include "run/eval.h"

#include "base/thread.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/given.h"
#include "forecast/memory.h"
#include "io/file.h"
#include "run/feeder.h"
#include "run/scorer.h"

#include <math.h>
#include <string.h>

static bool is_stopped(const volatile int *stop) { return stop && *stop; }

/* Whether `stop` is set on rank 0; all ranks get the same answer. */
static fr_status ask_for_stop(fr__setup *s, const volatile int *stop, int32_t *is_set)
{
    *is_set = is_stopped(stop);
    return fr_team_share(s->team, is_set, sizeof *is_set);
}

/* The pipeline is drained after each piece of the data. Pieces are short enough to stop between
 * them and long enough for the cost of drains not to matter. */
static fr_status run_through(fr__setup *s, fr_engine *e, fr__feeder *f, int64_t n_batches,
                             const volatile int *stop, fr__scorer *scorer, fr_tally *sum)
{
    const int64_t piece = scorer ? scorer->n_piece : 8 + 8 * fr_engine_n_stages(e);
    fr_source source = fr__feeder_source(f);
    if (scorer) source = fr__scorer_tap(scorer, source);
    for (int64_t done = 0; done < n_batches; done += piece) {
        fr_tally t = {0};
        int32_t is_over;
        int64_t n = n_batches - done < piece ? n_batches - done : piece;
        FR_TRY(ask_for_stop(s, stop, &is_over));
        if (is_over) {
            *sum = (fr_tally){0}; /* a partial result would look like a complete one */
            return FR_OK;
        }
        FR_TRY(fr_engine_eval(e, n, &source, &t, scorer ? scorer->outputs : NULL));
        if (scorer) fr__scorer_add(scorer);
        sum->loss += t.loss, sum->targets += t.targets;
        sum->correct += t.correct, sum->error += t.error;
    }
    return FR_OK;
}

static const fr__scores no_scores = {NAN, NAN, NAN, NAN};

fr_run_result fr__no_result(void)
{
    fr_run_result r = {.train_loss = NAN};
    fr__scores_put(&no_scores, &r);
    return r;
}

void fr__scores_put(const fr__scores *s, fr_run_result *r)
{
    r->eval_loss = s->loss, r->eval_accuracy = s->accuracy;
    r->eval_mae = s->mae, r->eval_perplexity = s->perplexity;
    r->eval_top5 = r->eval_f1 = r->eval_r2 = NAN;
}

/* With smoothed labels the loss is not that of the targets, and has no perplexity. */
static fr__scores scores_of(const fr__setup *s, const fr_tally *sum)
{
    const fr_node *loss = fr_graph_node(s->graph, s->loss);
    const bool is_language = fr_graph_node(s->graph, s->target)->shape.n_dims > 0;
    const double n = (double)sum->targets;
    fr__scores out = no_scores;
    if (sum->targets == 0) return out;
    out.loss = sum->loss / n;
    switch (loss->op) {
    case FR_OP_CROSS_ENTROPY:
        out.accuracy = (double)sum->correct / n;
        if (is_language && loss->attrs.loss.label_smoothing == 0) out.perplexity = exp(out.loss);
        break;
    case FR_OP_BCE: out.accuracy = (double)sum->correct / n; break;
    case FR_OP_MSE:
    case FR_OP_SMOOTH_L1: out.mae = sum->error / n; break;
    default: break;
    }
    return out;
}

/* scorer: NULL, or of an engine that returns outputs. */
static fr_status evaluate_with(fr__setup *s, fr_engine *e, int batch, const volatile int *stop,
                               fr__scorer *scorer, fr__scores *out)
{
    fr__feeder feeder;
    fr_tally sum = {0};
    fr_loader_desc desc = fr__setup_loader_desc(s, FR_EVAL, batch);
    int64_t n_batches = (fr_dataset_info(s->data)->n_eval + batch - 1) / batch;
    *out = no_scores;
    fr_status status = fr_team_agree(s->team, fr__feeder_open(s->ctx, &desc, e, &feeder));
    if (status == FR_OK) status = run_through(s, e, &feeder, n_batches, stop, scorer, &sum);
    fr__feeder_close(&feeder);
    if (status == FR_OK) *out = scores_of(s, &sum);
    return status;
}

fr_status fr__evaluate(fr__setup *s, fr_engine *e, int batch, const volatile int *stop,
                       fr__scores *out)
{
    return evaluate_with(s, e, batch, stop, NULL, out);
}

fr_status fr__load_weights(fr__setup *s, fr_engine *e, const char *from)
{
    char path[FR_PATH];
    bool is_damaged;
    bool is_own = !from;
    if (is_own) from = s->settings.out;
    FR_TRY(fr__path(s->ctx, path, "%s/model.safetensors", from));
    if (fr__file_exists(path)) return fr__checkpoint_load_model(s, e, from, &is_damaged);
    FR_TRY(fr__path(s->ctx, path, "%s/checkpoint", from));
    const char *root = fr__dir_exists(path) ? path : from;
    char found[FR_PATH];
    FR_TRY(fr__checkpoint_load_newest(s, e, root, NULL, found));
    if (found[0]) return FR_OK;
    if (is_own && s->weights) return fr__given_load(s, e);
    return fr_fail(s->ctx, FR_INVALID,
                   "%s: no checkpoint there; give the folder of a run, or one of its "
                   "checkpoint/step-N, by --checkpoint",
                   from);
}

fr_status fr__eval_engine(fr__setup *s, int batch, bool want_logits, fr_engine **out)
{
    fr__footprint f;
    fr_engine_desc d = fr__setup_eval_desc(s, batch, want_logits);
    FR_TRY(fr__memory_plan(s, &d, &f, out));
    fr_status status = fr_engine_take(*out, NULL, 0);
    if (status == FR_OK) return FR_OK;
    fr_engine_free(*out);
    *out = NULL;
    return status;
}

static fr_status evaluate(fr__setup *s, const fr_run_options *o, fr_engine *e, int batch,
                          fr__scorer *scorer, fr_run_result *r)
{
    FR_TRY(fr__load_weights(s, e, o->checkpoint));
    FR_TRY(fr__weights_sha256(s, e, r->weights_sha256));
    fr__scores scores;
    uint64_t start = fr__now_ns();
    FR_TRY(evaluate_with(s, e, batch, o->stop, scorer, &scores));
    fr__scores_put(&scores, r);
    if (scorer) fr__scorer_result(scorer, &r->eval_top5, &r->eval_f1, &r->eval_r2);
    if (is_stopped(o->stop)) return fr_fail(s->ctx, FR_INTERRUPTED, "interrupted");
    r->samples = fr_dataset_info(s->data)->n_eval;
    r->wall_s = (double)(fr__now_ns() - start) * 1e-9;
    r->samples_per_s = (double)r->samples / r->wall_s;
    return FR_OK;
}

fr_status fr_eval(fr_ctx *ctx, const fr_run_options *o, fr_run_result *result)
{
    fr__setup s;
    fr_engine *e = NULL;
    fr_run_result r = fr__no_result();
    fr_run_options own;
    FR_TRY(fr__run_options_take(ctx, o, &own));
    FR_TRY(fr__setup_open(ctx, &own, &s));
    int batch = (int)(s.settings.batch / s.settings.micro);
    fr_status status = FR_OK;
    if (fr_dataset_info(s.data)->n_eval == 0)
        status = fr_fail(ctx, FR_INVALID, "data %s has no evaluation part", s.data_name);
    const bool has_scorer = fr__scorer_fits(&s);
    fr__scorer scorer = {0};
    if (status == FR_OK) status = fr__eval_engine(&s, batch, has_scorer, &e);
    if (status == FR_OK && has_scorer) status = fr__scorer_open(&s, batch, &scorer);
    if (status == FR_OK) status = evaluate(&s, &own, e, batch, has_scorer ? &scorer : NULL, &r);
    fr_engine_free(e);
    fr__scorer_close(&scorer);
    fr__setup_close(&s);
    if (result) *result = r;
    return status;
}
