/* gnmt.c -- an LSTM encoder-decoder with attention that translates (Wu et al. 2016, GNMT).
 *
 *     source ids -> embed -> lstm both ways, side by side -> lstm -> lstm + ... -> k|v
 *     target ids -> embed -> lstm -> q -> attention over k|v = context
 *                            lstm [x, context] -> lstm [x, context] + x -> ... -> head
 *
 * As published, the lowest encoder layer is bidirectional, residual connections start at the third
 * layer of either side, and the context of the lowest decoder layer goes to all layers above it.
 * Unlike the paper, attention is a scaled dot product of learned projections, computed from the
 * decoder's output of the same step, so one operator serves all steps. A sample is the source, then
 * the target shifted by one, each with `context` ids. Training uses teacher forcing. */
#include "models/build.h"

#include <stdio.h>

typedef struct side {
    fr_graph *g;
    const fr_model_options *o;
    const char *name; /* "encoder" or "decoder" */
} side;

static int embed(const side *s, int64_t from)
{
    fr_attrs part = {.slice = {.from = from, .to = from + s->o->context}};
    fr_attrs table = {.weight_init = {FR_INIT_UNIFORM, 0.1f},
                      .embedding = {s->o->vocab, s->o->width, 0}};
    int x = fr__layer(s->g, FR_OP_SLICE, fr__input(s->g), &part, "%s.ids", s->name);
    x = fr__layer(s->g, FR_OP_EMBEDDING, x, &table, "%s.embed", s->name);
    return fr__dropout(s->g, x, s->o->dropout, "%s.drop", s->name);
}

/* Concatenate (T, D1) and (T, D2) to (T, D1 + D2). */
static int beside(fr_graph *g, int a, int b, const char *name)
{
    return fr_graph_add(g, FR_OP_CONCAT, name, &(fr_attrs){.concat = {.axis = 1}}, 2,
                        (int[]){a, b});
}

static int lstm(const side *s, int x, long long i)
{
    fr_attrs a = {.lstm = {.hidden = s->o->width}};
    int y = fr__layer(s->g, FR_OP_LSTM, x, &a, "%s.%lld.lstm", s->name, i);
    return fr__dropout(s->g, y, s->o->dropout, "%s.%lld.drop", s->name, i);
}

/* A backward LSTM: reverse the valid tokens, run, reverse again. */
static int lstm_backwards(const side *s, int x)
{
    fr_attrs a = {.lstm = {.hidden = s->o->width}};
    int length = fr_graph_find(s->g, "length");
    x = fr__join(s->g, FR_OP_REVERSE_TIME, x, length, "%s.0.reverse", s->name);
    x = fr__layer(s->g, FR_OP_LSTM, x, &a, "%s.0.lstm_back", s->name);
    x = fr__join(s->g, FR_OP_REVERSE_TIME, x, length, "%s.0.restore", s->name);
    return fr__dropout(s->g, x, s->o->dropout, "%s.0.drop_back", s->name);
}

static int encode(fr_graph *g, const fr_model_options *o)
{
    side s = {g, o, "encoder"};
    int x = embed(&s, 0);
    int back =
        lstm_backwards(&s, x); /* not as arguments: their order of evaluation is unspecified */
    int ahead = lstm(&s, x, 0);
    x = beside(g, ahead, back, "encoder.0.both");
    for (long long i = 1; i < o->layers; i++) {
        int y = lstm(&s, x, i);
        x = i < 2 ? y : fr__join(g, FR_OP_ADD, x, y, "encoder.%lld.add", i);
    }
    return fr__linear(g, x, 2 * o->width, FR_INIT_NONE, "attention.kv");
}

static int decode(fr_graph *g, const fr_model_options *o, int keys)
{
    side s = {g, o, "decoder"};
    char name[48];
    int x = lstm(&s, embed(&s, o->context), 0);
    int query = fr__linear(g, x, o->width, FR_INIT_NONE, "attention.q");
    int context =
        fr_graph_add(g, FR_OP_CROSS_ATTENTION, "attention", &(fr_attrs){.attention = {.heads = 1}},
                     3, (int[]){query, keys, fr_graph_find(g, "length")});
    for (long long i = 1; i < o->layers; i++) {
        snprintf(name, sizeof name, "decoder.%lld.in", i);
        int y = lstm(&s, beside(g, x, context, name), i);
        x = i < 2 ? y : fr__join(g, FR_OP_ADD, x, y, "decoder.%lld.add", i);
    }
    return o->layers > 1 ? x : beside(g, x, context, "decoder.out");
}

static fr_status gnmt_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    int x = decode(g, o, encode(g, o));
    fr__linear(g, x, o->vocab, FR_INIT_NONE, "head");
    return FR_OK;
}

static const char *const keys[] = {"layers",  "width",           "vocab", "context",
                                   "dropout", "label_smoothing", NULL};

const fr_model fr__model_gnmt = {
    .name = "gnmt",
    .summary = "LSTM encoder-decoder with attention that translates",
    .input = FR_MODEL_PAIR,
    .keys = keys,
    .defaults =
        &(fr_model_options){
            .layers = 4, .width = 1024, .context = 50, .vocab = 32000, .dropout = 0.2},
    .build = gnmt_build,
};
