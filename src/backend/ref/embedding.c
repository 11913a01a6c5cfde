/* embedding.c -- row `id` of a table, plus row t of a table of positions if the node has one. */
#include "backend/check.h"
#include "backend/ref/ref.h"

static fr_status embedding_forward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), width = fr__cols(k->node);
    int64_t n_steps = rows / k->batch;
    const int32_t *ids = a->x[0];                                   /* (N, T) */
    const float *table = a->w[0];                                   /* (vocab, width) */
    const float *position = k->node->n_params > 1 ? a->w[1] : NULL; /* (positions, width) */
    float *y = a->y;                                                /* (N, T, width) */
    FR_TRY(fr__check_ids(k, a));
    for (int64_t r = 0; r < rows; r++) {
        const float *row = table + ids[r] * width;
        const float *place = position ? position + r % n_steps * width : NULL;
        for (int64_t i = 0; i < width; i++) y[r * width + i] = row[i] + (place ? place[i] : 0);
    }
    return FR_OK;
}

static fr_status embedding_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), width = fr__cols(k->node);
    int64_t n_steps = rows / k->batch;
    const int32_t *ids = a->x[0];
    const float *dy = a->dy;
    for (int i = 0; i < k->node->n_params && !a->add_dw; i++) {
        const fr_param *p = fr_graph_param(k->graph, k->node->params[i]);
        memset(a->dw[i], 0, (size_t)fr_shape_count(&p->shape) * sizeof(float));
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < width; i++) {
            a->dw[0][ids[r] * width + i] += dy[r * width + i];
            if (k->node->n_params > 1) a->dw[1][r % n_steps * width + i] += dy[r * width + i];
        }
    }
    return FR_OK;
}

fr_status fr__ref_embedding(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = embedding_forward,
                                       .backward_weight = embedding_backward_weight};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->needs_x = 1;
    return FR_OK;
}
