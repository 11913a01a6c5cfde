/* embedding.c -- rows of a table by id, learned positions added.
 *
 * The gradient scatters rows; threads split the columns, not the rows, so that each element is
 * summed in the order of the samples for any number of threads. */
#include "backend/check.h"
#include "backend/cpu/cpu.h"
#include "base/simd.h"

#include <string.h>

typedef struct embedding {
    fr__kernel k;
    int64_t vocab, width, time;
    bool has_positions;
} embedding;

typedef struct row_job {
    const embedding *e;
    const int32_t *ids;          /* (batch, time) */
    fr__source table, positions; /* (vocab, width), (positions, width) or NULL */
    fr__sink y;                  /* (batch, time, width) */
    fr__source dy;
    float *d_table, *d_positions;
} row_job;

FR_SIMD_RANGE(gather_rows)
{
    const row_job *job = arg;
    const size_t width = (size_t)job->e->width, time = (size_t)job->e->time;
    float row_room[FR_PIECE], at_room[FR_PIECE], y_room[FR_PIECE];
    for (size_t r = begin; r < end; r++) {
        const size_t id = (size_t)job->ids[r];
        for (size_t c = 0, n; c < width; c += n) {
            n = fr__piece(c, width);
            const float *restrict row = fr__read(job->table, id * width + c, n, row_room);
            float *restrict y = fr__place(job->y, r * width + c, y_room);
            if (job->positions.at) {
                const float *restrict at =
                    fr__read(job->positions, r % time * width + c, n, at_room);
                for (size_t i = 0; i < n; i++) y[i] = row[i] + at[i];
            } else {
                for (size_t i = 0; i < n; i++) y[i] = row[i];
            }
            fr__store(job->y, r * width + c, n, y);
        }
    }
}

FR_SIMD_RANGE(scatter_columns)
{
    const row_job *job = arg;
    const int64_t width = job->e->width, rows = job->e->time * job->e->k.batch;
    float room[FR_PIECE];
    for (int64_t r = 0; r < rows; r++) {
        for (size_t c = begin, n; c < end; c += n) {
            n = fr__piece(c, end);
            const float *restrict dy = fr__read(job->dy, (size_t)(r * width) + c, n, room);
            float *restrict row = job->d_table + job->ids[r] * width + c;
            for (size_t i = 0; i < n; i++) row[i] += dy[i];
            if (!job->d_positions) continue;
            float *restrict at = job->d_positions + r % job->e->time * width + c;
            for (size_t i = 0; i < n; i++) at[i] += dy[i];
        }
    }
}

static fr_status embedding_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const embedding *e = (const embedding *)k;
    FR_TRY(fr__check_ids(k, a));
    row_job job = {.e = e,
                   .ids = a->x[0],
                   .table = {a->w[0], k->w_type},
                   .positions = {e->has_positions ? a->w[1] : NULL, k->w_type},
                   .y = {a->y, k->y.dtype}};
    fr__cpu_parallel(k->dev, (size_t)(e->time * k->batch), 1, gather_rows, &job);
    return FR_OK;
}

static fr_status embedding_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    const embedding *e = (const embedding *)k;
    if (!a->add_dw) {
        memset(a->dw[0], 0, k->w[0].bytes);
        if (e->has_positions) memset(a->dw[1], 0, k->w[1].bytes);
    }
    row_job job = {.e = e,
                   .ids = a->x[0],
                   .dy = {a->dy, k->y.dtype},
                   .d_table = a->dw[0],
                   .d_positions = e->has_positions ? a->dw[1] : NULL};
    fr__cpu_parallel(k->dev, (size_t)e->width, 64, scatter_columns, &job);
    return FR_OK;
}

static const fr__kernel_ops embedding_ops = {.forward = embedding_forward,
                                             .backward_weight = embedding_backward_weight};

fr_status fr__cpu_embedding(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    embedding *e = (embedding *)fr__kernel_new(spec, arena, sizeof *e, &embedding_ops);
    if (!e) return FR_NO_MEMORY;
    e->vocab = e->k.node->attrs.embedding.vocab;
    e->width = fr__cols(e->k.node);
    e->time = fr_shape_count(&e->k.node->shape) / e->width;
    e->has_positions = e->k.node->attrs.embedding.positions > 0;
    e->k.needs_x = 1;
    *out = &e->k;
    return FR_OK;
}
