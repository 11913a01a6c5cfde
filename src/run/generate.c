/* generate.c -- text from a language model, one token at a time.
 *
 * The window is the last `context` tokens, padded on the right while there are fewer. Attention
 * is causal, so the logits at the last token do not depend on the padding. Each draw is a function
 * of (seed, token number), so the same seed gives the same text. */
#include "base/alloc.h"
#include "base/philox.h"
#include "run/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct choice {
    float logit;
    int32_t id;
} choice;

typedef struct writer {
    fr__setup s;
    const fr_generate_options *g;
    fr_engine *engine;
    int64_t context, vocab;
    int64_t n_ids, room;
    int32_t *ids;    /* (room) prompt, then drawn tokens */
    int32_t *window; /* (context) */
    int32_t *target; /* (context), all ignored */
    float *logits;   /* (context, vocab) */
    choice *choices; /* (vocab) */
} writer;

/* The larger logit first; equal logits by id, so the order is always the same. */
static int by_logit(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Draws one id from softmax(logits / temperature) among the top_k most likely. */
static int32_t draw(writer *w, const float *logits, int64_t number)
{
    for (int64_t i = 0; i < w->vocab; i++) w->choices[i] = (choice){logits[i], (int32_t)i};
    qsort(w->choices, (size_t)w->vocab, sizeof *w->choices, by_logit);
    if (w->g->temperature <= 0) return w->choices[0].id;
    int64_t n = w->g->top_k > 0 && w->g->top_k < w->vocab ? w->g->top_k : w->vocab;
    double sum = 0, best = w->choices[0].logit;
    for (int64_t i = 0; i < n; i++) sum += exp((w->choices[i].logit - best) / w->g->temperature);
    uint32_t lot[4];
    fr__random4(w->g->seed, FR_STREAM_SAMPLE, 0, (uint64_t)number, 0, lot);
    double at = ((double)lot[0] * 0x1p-32 + (double)lot[1] * 0x1p-64) * sum;
    for (int64_t i = 0; i < n; i++) {
        at -= exp((w->choices[i].logit - best) / w->g->temperature);
        if (at < 0) return w->choices[i].id;
    }
    return w->choices[n - 1].id;
}

static fr_status give_window(void *user, fr_feed *out)
{
    const writer *w = user;
    *out = (fr_feed){.input = w->window, .target = w->target, .n_targets = 1};
    return FR_OK;
}

static void take_back(void *user) { (void)user; } /* nothing to release: the window is ours */

static fr_status next_token(writer *w, int64_t number)
{
    int64_t n = w->n_ids < w->context ? w->n_ids : w->context;
    memset(w->window, 0, (size_t)w->context * sizeof *w->window);
    memcpy(w->window, w->ids + w->n_ids - n, (size_t)n * sizeof *w->window);
    fr_tally tally;
    fr_source source = {.user = w, .next = give_window, .release = take_back};
    FR_TRY(fr_engine_eval(w->engine, 1, &source, &tally, w->logits));
    const float *logits = w->logits + (n - 1) * w->vocab;
    for (int64_t i = 0; i < w->vocab; i++)
        if (!isfinite(logits[i]))
            return fr_fail(w->s.ctx, FR_DIVERGED,
                           "the model's output is not finite; train it again with a lower rate");
    int32_t id = draw(w, logits, number);
    w->ids[w->n_ids++] = id;
    size_t bytes = 0;
    const char *text = fr_dataset_token_text(w->s.data, id, &bytes);
    if (text && w->g->emit) w->g->emit(w->g->user, text, bytes);
    return FR_OK;
}

static fr_status check_model(writer *w)
{
    const fr_shape *in = &fr_graph_node(w->s.graph, w->s.input)->shape;
    const fr_shape *out = &fr_graph_node(w->s.graph, w->s.logits)->shape;
    if (in->n_dims != 1 || out->n_dims != 2 || in->dim[0] != out->dim[0] || w->s.length >= 0)
        return fr_fail(w->s.ctx, FR_INVALID,
                       "model %s does not predict the next token of a text; generate needs one "
                       "that does (gpt)",
                       fr_graph_name(w->s.graph));
    w->context = out->dim[0], w->vocab = out->dim[1];
    return FR_OK;
}

static fr_status allocate(writer *w)
{
    size_t n_context = (size_t)w->context, n_vocab = (size_t)w->vocab;
    /* a token for each byte at most; the normal form of a text has up to three times its bytes */
    w->room = 3 * (int64_t)strlen(w->g->prompt) + 2 + w->g->n_tokens;
    w->ids = FR_NEW_ARRAY(int32_t, w->room);
    w->window = FR_NEW_ARRAY(int32_t, n_context);
    w->target = FR_NEW_ARRAY(int32_t, n_context);
    w->logits = FR_NEW_ARRAY(float, n_context *n_vocab);
    w->choices = FR_NEW_ARRAY(choice, n_vocab);
    if (!w->ids || !w->window || !w->target || !w->logits || !w->choices)
        return fr__no_memory(w->s.ctx, n_context * n_vocab * sizeof(float), "generation");
    for (size_t i = 0; i < n_context; i++) w->target[i] = FR_TARGET_IGNORE;
    return FR_OK;
}

static fr_status encode_prompt(writer *w)
{
    w->n_ids = fr_dataset_encode(w->s.data, w->g->prompt, strlen(w->g->prompt), w->ids,
                                 w->room - w->g->n_tokens);
    if (w->n_ids < 0)
        return fr_fail(w->s.ctx, FR_INVALID, "data %s cannot turn text into tokens",
                       w->s.data_name);
    if (w->n_ids == 0)
        return fr_fail(w->s.ctx, FR_INVALID,
                       "the prompt holds no token; give at least one by "
                       "--prompt");
    for (int64_t i = 0; i < w->n_ids; i++)
        if (w->ids[i] < 0 || w->ids[i] >= w->vocab)
            return fr_fail(w->s.ctx, FR_INVALID,
                           "token %lld of the prompt is %d, the model has tokens 0 to %lld",
                           (long long)i, w->ids[i], (long long)w->vocab - 1);
    return FR_OK;
}

static fr_status generate(writer *w, const fr_run_options *o)
{
    if (!w->g->prompt || w->g->n_tokens < 0 || w->g->n_tokens > INT32_MAX || w->g->top_k < 0 ||
        !(w->g->temperature >= 0 && isfinite(w->g->temperature)))
        return fr_fail(w->s.ctx, FR_INVALID,
                       "generate needs a prompt, and tokens, top-k and temperature of at least 0");
    FR_TRY(check_model(w));
    FR_TRY(allocate(w));
    FR_TRY(encode_prompt(w));
    FR_TRY(fr__eval_engine(&w->s, 1, true, &w->engine));
    FR_TRY(fr__load_weights(&w->s, w->engine, o->checkpoint));
    for (int64_t i = 0; i < w->g->n_tokens; i++) {
        if (o->stop && *o->stop) return fr_fail(w->s.ctx, FR_INTERRUPTED, "interrupted");
        FR_TRY(next_token(w, i));
    }
    return FR_OK;
}

fr_status fr_generate(fr_ctx *ctx, const fr_run_options *o, const fr_generate_options *g)
{
    writer w = {.g = g};
    fr_run_options own;
    FR_TRY(fr__run_options_take(ctx, o, &own));
    FR_TRY(fr__setup_open(ctx, &own, &w.s));
    fr_status status = generate(&w, &own);
    fr_engine_free(w.engine);
    fr__free(w.ids);
    fr__free(w.window);
    fr__free(w.target);
    fr__free(w.logits);
    fr__free(w.choices);
    fr__setup_close(&w.s);
    return status;
}
