/* run_predict.c -- outputs of the network for samples of the caller.
 *
 * Samples pass through the training pipeline, one mini-batch at a time. The last mini-batch is
 * padded with zeros. */
#include "base/alloc.h"
#include "run/run.h"

#include <string.h>

/* The samples of the caller as mini-batches, one after the other. No target counts. */
typedef struct samples {
    const char *input;
    const int32_t *length;
    const void *target;
    size_t input_bytes; /* of a mini-batch */
    int64_t batch;
    int64_t n_given;
} samples;

static fr_status give(void *user, fr_feed *out)
{
    samples *s = user;
    int64_t k = s->n_given++;
    *out = (fr_feed){.input = s->input + (size_t)k * s->input_bytes,
                     .target = s->target,
                     .length = s->length ? s->length + k * s->batch : NULL,
                     .n_targets = 1};
    return FR_OK;
}

static void take_back(void *user) { (void)user; } /* the samples are the caller's */

int64_t fr_run_output_count(const fr_run *r)
{
    return fr_shape_count(&fr_graph_node(r->setup.graph, r->setup.logits)->shape);
}

static fr_status check(fr_run *r, int64_t n, const void *input, const int32_t *length,
                       const float *outputs)
{
    if (r->team)
        return fr_fail(r->ctx, FR_UNSUPPORTED,
                       "fr_run_predict works in one process; save a checkpoint and open it there");
    if (!r->o.want_outputs)
        return fr_fail(r->ctx, FR_INVALID,
                       "the run was opened without want_outputs: it keeps no outputs");
    if (n < 0 || (n > 0 && (!input || !outputs)))
        return fr_fail(r->ctx, FR_INVALID,
                       "fr_run_predict: %lld samples, expected inputs and room for the outputs",
                       (long long)n);
    if (n > 0 && !length && r->setup.length >= 0)
        return fr_fail(r->ctx, FR_INVALID, "model %s reads the length of each sample: give them",
                       fr_graph_name(r->setup.graph));
    return FR_OK;
}

/* A mini-batch for the remaining samples. */
typedef struct rest {
    char *input;
    int32_t *length, *target;
    float *outputs;
} rest;

static void rest_free(rest *t)
{
    fr__free(t->input);
    fr__free(t->length);
    fr__free(t->target);
    fr__free(t->outputs);
}

static fr_status rest_make(fr_run *r, int64_t batch, size_t input_bytes, rest *t)
{
    const fr_graph *g = r->setup.graph;
    int64_t n_target = batch * fr_shape_count(&fr_graph_node(g, r->setup.target)->shape);
    int64_t n_outputs = batch * fr_run_output_count(r);
    *t = (rest){.input = fr__alloc(input_bytes),
                .length = FR_NEW_ARRAY(int32_t, batch),
                .target = FR_NEW_ARRAY(int32_t, n_target),
                .outputs = FR_NEW_ARRAY(float, n_outputs)};
    if (!t->input || !t->length || !t->target || !t->outputs)
        return fr__no_memory(r->ctx, input_bytes + (size_t)n_outputs * sizeof(float), "outputs");
    memset(t->target, 0xff, (size_t)n_target * sizeof *t->target); /* ignored, or NaN */
    for (int64_t i = 0; i < batch; i++) t->length[i] = 1;
    return FR_OK;
}

static fr_status pass(fr_run *r, int64_t n_batches, samples s, float *outputs)
{
    fr_tally tally;
    fr_source source = {.user = &s, .next = give, .release = take_back};
    return fr_engine_eval(r->engine, n_batches, &source, &tally, outputs);
}

static fr_status predict(fr_run *r, int64_t n, const void *input, const int32_t *length,
                         float *outputs, rest *t)
{
    const fr_node *in = fr_graph_node(r->setup.graph, r->setup.input);
    int64_t batch = r->setup.settings.batch, whole = n / batch, left = n % batch;
    size_t sample = fr_node_bytes(in);
    size_t n_outputs = (size_t)fr_run_output_count(r);
    FR_TRY(rest_make(r, batch, (size_t)batch * sample, t));
    samples s = {.input = input,
                 .length = r->setup.length < 0 ? NULL : length,
                 .target = t->target,
                 .input_bytes = (size_t)batch * sample,
                 .batch = batch};
    FR_TRY(pass(r, whole, s, outputs));
    if (left == 0) return FR_OK;
    memcpy(t->input, s.input + (size_t)whole * s.input_bytes, (size_t)left * sample);
    if (s.length) memcpy(t->length, s.length + whole * batch, (size_t)left * sizeof *length);
    s.input = t->input;
    if (s.length) s.length = t->length;
    FR_TRY(pass(r, 1, s, t->outputs));
    memcpy(outputs + (size_t)(whole * batch) * n_outputs, t->outputs,
           (size_t)left * n_outputs * sizeof(float));
    return FR_OK;
}

fr_status fr_run_predict(fr_run *r, int64_t n, const void *input, const int32_t *length,
                         float *outputs)
{
    rest t = {0};
    FR_TRY(fr__run_check_whole(r));
    FR_TRY(check(r, n, input, length, outputs));
    fr_status status = predict(r, n, input, length, outputs, &t);
    rest_free(&t);
    return status;
}
