/* dummy.c -- data that is valid for every kernel: token numbers within the vocabulary, targets
 * within the classes, full lengths. All other inputs are noise, so that no number is denormal and
 * no branch is always taken. */
#include "probe/rig.h"

#include "base/bf16.h"

#include <math.h>

/* The limit of the integers that a node makes: that of the narrowest of their readers, including
 * readers behind a slice or similar. *is_length: an operator over time reads them. */
static int64_t limit_of(const fr_graph *g, int node, bool *is_length)
{
    int64_t least = INT32_MAX;
    for (int i = node + 1; i < fr_graph_n_nodes(g); i++) {
        const fr_node *user = fr_graph_node(g, i);
        for (int k = 0; k < user->n_inputs; k++) {
            if (user->inputs[k] != node) continue;
            /* A target comes after its logits, a length after its sequence. */
            const fr_shape *x = &fr_graph_node(g, user->inputs[k > 0 ? k - 1 : 0])->shape;
            int64_t limit;
            if (user->op == FR_OP_EMBEDDING)
                limit = user->attrs.embedding.vocab;
            else if (user->op == FR_OP_CROSS_ENTROPY)
                limit = x->n_dims ? x->dim[x->n_dims - 1] : 1;
            else if (user->dtype == FR_I32)
                limit = limit_of(g, i, is_length);
            else
                *is_length = true, limit = x->n_dims ? x->dim[0] : 1;
            if (limit < least) least = limit;
        }
    }
    return least;
}

static uint32_t next(uint32_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
    return *state;
}

void fr__dummy_noise(void *to, fr_dtype type, size_t n, float scale)
{
    uint32_t state = 0x9E3779B9u;
    for (size_t i = 0; i < n; i++) {
        float value = scale * ((float)(next(&state) >> 8) * 0x1p-23f - 1 + 0x1p-24f);
        if (type == FR_BF16)
            ((uint16_t *)to)[i] = fr__bf16_of(value);
        else
            ((float *)to)[i] = value;
    }
}

/* Floats that a loss reads: bce takes 0 .. 1. */
static bool is_target(const fr_graph *g, int node)
{
    int loss = fr_graph_find_loss(g);
    return loss >= 0 && fr_graph_node(g, loss)->inputs[1] == node;
}

void fr__dummy_fill(const fr_graph *g, int node, int batch, void *data)
{
    const fr_node *n = fr_graph_node(g, node);
    size_t count = (size_t)fr_shape_count(&n->shape) * (size_t)batch;
    if (n->dtype != FR_I32) {
        fr__dummy_noise(data, n->dtype, count, 1);
        if (is_target(g, node))
            for (float *t = data; t < (float *)data + count; t++) *t = fabsf(*t);
        return;
    }
    bool is_length = false;
    int64_t limit = limit_of(g, node, &is_length);
    uint32_t state = 0x9E3779B9u;
    int32_t *to = data;
    for (size_t i = 0; i < count; i++)
        to[i] = is_length ? (int32_t)limit : (int32_t)(next(&state) % (uint64_t)limit);
}
