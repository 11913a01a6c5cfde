/* build.c -- the layers that model builders use. */
#include "models/build.h"

#include <math.h>
#include <stdio.h>

enum { NAME_ROOM = 256 };

/* The caller's format and arguments into text. */
#define FORMAT_NAME(text, format)                    \
    do {                                             \
        va_list args;                                \
        va_start(args, format);                      \
        vsnprintf(text, sizeof(text), format, args); \
        va_end(args);                                \
    } while (0)

int fr__layer(fr_graph *g, fr_operator op, int x, const fr_attrs *attrs, const char *name, ...)
{
    char text[NAME_ROOM];
    FORMAT_NAME(text, name);
    return fr_graph_add(g, op, text, attrs, 1, &x);
}

int fr__join(fr_graph *g, fr_operator op, int a, int b, const char *name, ...)
{
    char text[NAME_ROOM];
    FORMAT_NAME(text, name);
    return fr_graph_add(g, op, text, NULL, 2, (int[]){a, b});
}

int fr__linear(fr_graph *g, int x, int64_t out, fr_init init, const char *name, ...)
{
    char text[NAME_ROOM];
    FORMAT_NAME(text, name);
    fr_attrs a = {.weight_init = init, .linear = {.out = out}};
    return fr_graph_add(g, FR_OP_LINEAR, text, &a, 1, &x);
}

int fr__dropout(fr_graph *g, int x, double p, const char *name, ...)
{
    char text[NAME_ROOM];
    if (p == 0) return x;
    FORMAT_NAME(text, name);
    fr_attrs a = {.dropout = {(float)p}};
    return fr_graph_add(g, FR_OP_DROPOUT, text, &a, 1, &x);
}

int fr__conv(fr_graph *g, int x, int64_t out, fr__layer_window w, bool has_bias, const char *name,
             ...)
{
    char text[NAME_ROOM];
    FORMAT_NAME(text, name);
    fr_attrs a = {.weight_init = {FR_INIT_HE_OUT, 0},
                  .conv2d = {.out = out,
                             .kernel = {w.height, w.width},
                             .stride = {w.stride, w.stride},
                             .pad = {w.pad_height, w.pad_width},
                             .no_bias = !has_bias}};
    return fr_graph_add(g, FR_OP_CONV2D, text, &a, 1, &x);
}

int fr__pool(fr_graph *g, fr_operator op, int x, fr__layer_window w, const char *name, ...)
{
    char text[NAME_ROOM];
    FORMAT_NAME(text, name);
    fr_attrs a = {.pool = {.kernel = {w.height, w.width},
                           .stride = {w.stride, w.stride},
                           .pad = {w.pad_height, w.pad_width}}};
    return fr_graph_add(g, op, text, &a, 1, &x);
}

int64_t fr__channels(const fr_model_options *o, int64_t published)
{
    int64_t n = llround((double)published * o->width_factor);
    return n > 0 ? n : 1;
}

int fr__input(const fr_graph *g) { return fr_graph_find(g, "input"); }

void fr__add_loss(fr_graph *g, int output, const fr_model_options *o)
{
    if (output < 0) return; /* the failure is in the graph */
    const fr_operator op = o->loss ? o->loss : FR_OP_CROSS_ENTROPY;
    const bool reads_classes = op == FR_OP_CROSS_ENTROPY;
    fr_shape shape = fr_graph_node(g, output)->shape;
    if (reads_classes && shape.n_dims > 0) shape.dim[--shape.n_dims] = 0;
    fr_attrs in = {.input = {shape, reads_classes ? FR_I32 : FR_F32}};
    fr_attrs loss = {.loss = {.label_smoothing = reads_classes ? (float)o->label_smoothing : 0,
                              .beta = (float)o->beta}};
    int target = fr_graph_add(g, FR_OP_INPUT, "target", &in, 0, NULL);
    fr_graph_add(g, op, "loss", &loss, 2, (int[]){output, target});
}

/* Dropout, if any, is after each part. */
static int add_block(fr_graph *g, int x, const fr_model_options *o, bool causal, int length,
                     long long i)
{
    /* Two parts per block add to the stream: keep its variance constant over depth. */
    fr_init into_stream = {FR_INIT_NORMAL, (float)(0.02 / sqrt(2. * (double)o->layers))};
    fr_attrs attention = {.attention = {.heads = (int)o->heads, .causal = causal}};
    char name[NAME_ROOM];
    snprintf(name, sizeof name, "h.%lld.attn", i);

    int y = fr__layer(g, FR_OP_LAYER_NORM, x, NULL, "h.%lld.ln_1", i);
    y = fr__linear(g, y, 3 * o->width, FR_INIT_GPT, "h.%lld.attn.qkv", i);
    y = fr_graph_add(g, FR_OP_ATTENTION, name, &attention, length < 0 ? 1 : 2, (int[]){y, length});
    y = fr__linear(g, y, o->width, into_stream, "h.%lld.attn.proj", i);
    y = fr__dropout(g, y, o->dropout, "h.%lld.attn.drop", i);
    x = fr__join(g, FR_OP_ADD, x, y, "h.%lld.add_1", i);
    y = fr__layer(g, FR_OP_LAYER_NORM, x, NULL, "h.%lld.ln_2", i);
    y = fr__linear(g, y, 4 * o->width, FR_INIT_GPT, "h.%lld.mlp.up", i);
    y = fr__layer(g, FR_OP_GELU, y, NULL, "h.%lld.mlp.gelu", i);
    y = fr__linear(g, y, o->width, into_stream, "h.%lld.mlp.down", i);
    y = fr__dropout(g, y, o->dropout, "h.%lld.mlp.drop", i);
    return fr__join(g, FR_OP_ADD, x, y, "h.%lld.add_2", i);
}

int fr__transformer(fr_graph *g, const fr_model_options *o, bool causal, int length)
{
    fr_attrs embed = {.embedding = {o->vocab, o->width, o->positions ? o->positions : o->context}};
    int x = fr__layer(g, FR_OP_EMBEDDING, fr__input(g), &embed, "embed");
    x = fr__dropout(g, x, o->dropout, "drop");
    for (int64_t i = 0; i < o->layers; i++) x = add_block(g, x, o, causal, length, i);
    return fr__layer(g, FR_OP_LAYER_NORM, x, NULL, "ln_f");
}
