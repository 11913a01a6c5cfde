/* embedding.c -- row `id` of a table, plus row t of a table of positions if the node has one. */
#include "backend/ref/ref.h"

/* The id at flat index `at` of the micro-batch, if it names a row of the table. */
static fr_status id_at(fr_kernel *k, const fr_kernel_args *a, int64_t at, int64_t *id)
{
    int64_t n_steps = fr_shape_count(&fr__ref_input(k, 0)->shape);
    int64_t vocab = k->node->attrs.embedding.vocab;
    *id = ((const int32_t *)a->x[0])[at];
    if (*id >= 0 && *id < vocab) return FR_OK;
    return fr_fail(k->ctx, FR_INVALID,
                   "node %s: sample %lld, position %lld: id %lld is outside 0..%lld; was the data "
                   "made with a larger vocabulary than the model?",
                   k->node->name, (long long)(a->pass->first_sample + at / n_steps),
                   (long long)(at % n_steps), (long long)*id, (long long)(vocab - 1));
}

static fr_status embedding_forward(fr_kernel *k, const fr_kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), width = fr__cols(k->node);
    int64_t n_steps = rows / k->batch;
    const float *table = a->w[0];                                   /* (vocab, width) */
    const float *position = k->node->n_params > 1 ? a->w[1] : NULL; /* (positions, width) */
    float *y = a->y;                                                /* (N, T, width) */
    for (int64_t r = 0; r < rows; r++) {
        int64_t id;
        FR_TRY(id_at(k, a, r, &id));
        const float *place = position ? position + r % n_steps * width : NULL;
        for (int64_t i = 0; i < width; i++)
            y[r * width + i] = table[id * width + i] + (place ? place[i] : 0);
    }
    return FR_OK;
}

static fr_status embedding_backward_weight(fr_kernel *k, const fr_kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), width = fr__cols(k->node);
    int64_t n_steps = rows / k->batch;
    const float *dy = a->dy;
    for (int i = 0; i < k->node->n_params && !a->add_dw; i++) {
        const fr_param *p = fr_graph_param(k->graph, k->node->params[i]);
        memset(a->dw[i], 0, (size_t)fr_shape_count(&p->shape) * sizeof(float));
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t id;
        FR_TRY(id_at(k, a, r, &id));
        for (int64_t i = 0; i < width; i++) {
            a->dw[0][id * width + i] += dy[r * width + i];
            if (k->node->n_params > 1) a->dw[1][r % n_steps * width + i] += dy[r * width + i];
        }
    }
    return FR_OK;
}

fr_status fr__ref_embedding(const fr_kernel_spec *spec, fr_arena *arena, fr_kernel **out)
{
    static const fr_kernel_ops ops = {.forward = embedding_forward,
                                      .backward_weight = embedding_backward_weight};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr_kernel), &ops, out));
    (*out)->needs_x = 1;
    return FR_OK;
}
