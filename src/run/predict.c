/* predict.c -- fr_predict: samples of a file, or the evaluation data, through the stages of a
 * config, and the values of one node into a file.
 *
 * The engine evaluates only, so it has no gradients and no optimizer state. The last mini-batch is
 * padded with zeros, whose outputs are not written. */
#include <forerun/predict.h>

#include "base/alloc.h"
#include "data/source.h"
#include "forecast/memory.h"
#include "run/eval.h"
#include "run/feeder.h"
#include "run/predict_file.h"

#include <string.h>

static const size_t room_bytes = (size_t)16 << 20; /* for outputs, if a mini-batch has fewer */

typedef struct prediction {
    fr__setup s;
    const fr_run_options *o;
    const fr_predict_options *p;
    fr_engine *engine;
    int node;
    int64_t n, batch;
    fr__feeder feeder; /* of the evaluation data; or: */
    fr__inputs inputs;
    int64_t n_given; /* mini-batches of them */
    char *last;      /* (batch, input) */
    void *target;    /* (batch, target): none counts */
    float *outputs;  /* (n_piece, batch, node) */
    int64_t n_piece; /* mini-batches of a call of the engine */
    fr__predict_file file;
} prediction;

static fr_status give(void *user, fr_feed *out)
{
    prediction *q = user;
    const size_t sample = fr_node_bytes(fr_graph_node(q->s.graph, q->s.input));
    const int64_t first = q->n_given++ * q->batch, left = q->n - first;
    *out = (fr_feed){.input = (const char *)q->inputs.values + (size_t)first * sample,
                     .target = q->target,
                     .n_targets = 1};
    if (left >= q->batch) return FR_OK;
    memcpy(q->last, out->input, (size_t)left * sample);
    out->input = q->last;
    return FR_OK;
}

static void take_back(void *user) { (void)user; } /* the samples stay */

static fr_status find_node(prediction *q)
{
    const fr_graph *g = q->s.graph;
    const char *name = q->p->node;
    q->node = name ? fr_graph_find(g, name) : q->s.logits;
    if (q->node < 0)
        return fr_fail(q->s.ctx, FR_INVALID, "model %s has no node '%s'; its output is '%s'",
                       fr_graph_name(g), name, fr_graph_node(g, q->s.logits)->name);
    const fr_node *node = fr_graph_node(g, q->node);
    if (node->op != FR_OP_INPUT && node->dtype != FR_I32) return FR_OK;
    return fr_fail(q->s.ctx, FR_INVALID, "node '%s' holds data, not values that model %s computes",
                   node->name, fr_graph_name(g));
}

static fr_status open_samples(prediction *q)
{
    const fr_graph *g = q->s.graph;
    const fr_node *in = fr_graph_node(g, q->s.input);
    if (!q->p->input) {
        q->n = fr_dataset_info(q->s.data)->n_eval;
        if (q->n > 0) return FR_OK;
        return fr_fail(q->s.ctx, FR_INVALID, "data %s has no evaluation part; give --input FILE",
                       q->s.data_name);
    }
    if (q->s.length >= 0)
        return fr_fail(q->s.ctx, FR_UNSUPPORTED,
                       "model %s reads the length of each sample, which %s does not have; predict "
                       "the evaluation data",
                       fr_graph_name(g), q->p->input);
    FR_TRY(fr__inputs_load(q->s.data, q->p->input, in, &q->inputs));
    q->n = q->inputs.n;
    size_t last = (size_t)q->batch * fr_node_bytes(in);
    size_t target = (size_t)q->batch * fr_node_bytes(fr_graph_node(g, q->s.target));
    q->last = fr__alloc(last), q->target = fr__alloc(target);
    if (!q->last || !q->target) return fr__no_memory(q->s.ctx, last + target, "inputs");
    memset(q->target, 0xff, target); /* FR_TARGET_IGNORE, or NaN */
    return FR_OK;
}

/* The stages of the config, each on a worker of its own; replicas have nothing to add. */
static fr_status make_engine(prediction *q)
{
    fr__footprint f;
    FR_TRY(fr__setup_pipeline(&q->s));
    const fr_engine_desc t = fr__setup_train_desc(&q->s, false, false);
    fr_engine_desc d = fr__setup_eval_desc(&q->s, t.micro_batch, false);
    d.graph = t.graph, d.n_stages = t.n_stages, d.stages = t.stages;
    d.n_micro = t.n_micro;
    d.logits_node = q->node;
    FR_TRY(fr__memory_plan(&q->s, &d, &f, &q->engine));
    return fr_engine_take(q->engine, NULL, 0);
}

static fr_status make_room(prediction *q)
{
    const fr_node *node = fr_graph_node(q->s.graph, q->node);
    size_t bytes =
        fr__array_bytes((size_t)q->batch, (size_t)fr_shape_count(&node->shape) * sizeof(float));
    q->n_piece = 8 + 8 * fr_engine_n_stages(q->engine);
    if ((size_t)q->n_piece > room_bytes / bytes) q->n_piece = (int64_t)(room_bytes / bytes);
    if (q->n_piece < 1) q->n_piece = 1;
    q->outputs = fr__alloc(fr__array_bytes((size_t)q->n_piece, bytes));
    return q->outputs ? FR_OK : fr__no_memory(q->s.ctx, bytes * (size_t)q->n_piece, "outputs");
}

static fr_status run_through(prediction *q, fr_source source)
{
    for (int64_t done = 0; done < q->n;) {
        fr_tally unused;
        int64_t left = (q->n - done + q->batch - 1) / q->batch;
        int64_t n = left < q->n_piece ? left : q->n_piece, rows = n * q->batch;
        if (q->o->stop && *q->o->stop) return fr_fail(q->s.ctx, FR_INTERRUPTED, "interrupted");
        FR_TRY(fr_engine_eval(q->engine, n, &source, &unused, q->outputs));
        if (rows > q->n - done) rows = q->n - done;
        FR_TRY(fr__predict_file_write(&q->file, q->outputs, rows));
        done += rows;
        if (q->p->progress) q->p->progress(q->p->user, done, q->n);
    }
    return fr__predict_file_end(&q->file);
}

static fr_status predict(prediction *q)
{
    fr_source source = {.user = q, .next = give, .release = take_back};
    q->batch = q->s.settings.batch;
    FR_TRY(find_node(q));
    FR_TRY(open_samples(q));
    FR_TRY(make_engine(q));
    FR_TRY(fr__load_weights(&q->s, q->engine, q->o->checkpoint));
    FR_TRY(make_room(q));
    const fr_node *node = fr_graph_node(q->s.graph, q->node);
    FR_TRY(fr__predict_file_open(q->s.ctx, q->p->out, node->name, &node->shape, q->n, &q->file));
    if (!q->inputs.values) {
        fr_loader_desc d = fr__setup_loader_desc(&q->s, FR_EVAL, (int)q->batch);
        FR_TRY(fr__feeder_open(q->s.ctx, &d, q->engine, &q->feeder));
        source = fr__feeder_source(&q->feeder);
    }
    return run_through(q, source);
}

fr_status fr_predict(fr_ctx *ctx, const fr_run_options *o, const fr_predict_options *p, int64_t *n)
{
    prediction q = {.p = p, .file = {.fd = -1}};
    fr_run_options own;
    if (n) *n = 0;
    FR_TRY(fr__run_options_take(ctx, o, &own));
    if (!p->out) return fr_fail(ctx, FR_INVALID, "predict needs a file for its outputs");
    if (own.team)
        return fr_fail(ctx, FR_UNSUPPORTED,
                       "predict works in one process; start it without mpirun");
    q.o = &own;
    FR_TRY(fr__setup_open(ctx, &own, &q.s));
    fr_status status = predict(&q);
    if (status == FR_OK && n) *n = q.n;
    fr__predict_file_abort(&q.file);
    fr_engine_free(q.engine);
    fr__feeder_close(&q.feeder);
    fr__free(q.inputs.values);
    fr__free(q.last);
    fr__free(q.target);
    fr__free(q.outputs);
    fr__setup_close(&q.s);
    return status;
}
