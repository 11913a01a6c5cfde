/* gemm.c -- products of a layer, and sums over columns in a fixed number of row blocks. */
#include "backend/cpu/gemm.h"

#include "backend/cpu/cpu.h"
#include "base/simd.h"

void fr__multiply(fr_device *dev, const fr__product *p)
{
    if (fr__multiply_few(dev, p)) return;
    fr__gemm(p->rows, p->is_dx ? p->w.in : p->w.out, p->is_dx ? p->w.out : p->w.in,
             (fr__matrix){p->from, p->ld_from, false}, (fr__matrix){p->w.at, p->w.ld, !p->is_dx},
             p->to, p->ld_to, p->add);
}

void fr__weight_grad(fr_device *dev, const fr__weight_grad_args *g)
{
    if (fr__weight_grad_few(dev, g)) return;
    fr__gemm(g->out, g->in, g->rows, (fr__matrix){g->dy, g->ld_dy, true},
             (fr__matrix){g->x, g->in, false}, g->dw, g->ld_dw, g->add);
}

typedef struct column_job {
    fr__source x; /* (rows, cols) */
    int64_t rows, cols;
    float *partials; /* (FR_ROW_BLOCKS, cols) */
} column_job;

FR_SIMD_RANGE(sum_blocks)
{
    const column_job *job = arg;
    float room[FR_PIECE];
    for (size_t b = begin; b < end; b++) {
        float *restrict sum = job->partials + b * (size_t)job->cols;
        int64_t last = fr__row_block(job->rows, b + 1);
        for (int64_t c = 0; c < job->cols; c++) sum[c] = 0.0f;
        for (int64_t r = fr__row_block(job->rows, b); r < last; r++) {
            const size_t first = (size_t)(r * job->cols), n = (size_t)job->cols;
            for (size_t c = 0; c < n; c += FR_PIECE) {
                const size_t piece = fr__piece(c, n);
                const float *restrict row = fr__read(job->x, first + c, piece, room);
                for (size_t i = 0; i < piece; i++) sum[c + i] += row[i];
            }
        }
    }
}

FR_SIMD(extern, fr__add_partials, (const float *partials, int64_t cols, float *sums, bool add),
        (partials, cols, sums, add))
{
    float *restrict s = sums;
    for (int64_t c = 0; c < cols && !add; c++) s[c] = 0.0f;
    for (int b = 0; b < FR_ROW_BLOCKS; b++) {
        const float *restrict p = partials + b * cols;
        for (int64_t c = 0; c < cols; c++) s[c] += p[c];
    }
}

void fr__column_sums(fr_device *dev, fr__source x, int64_t rows, int64_t cols, float *sums,
                     bool add, float *scratch)
{
    column_job job = {.x = x, .rows = rows, .cols = cols, .partials = scratch};
    fr__cpu_parallel(dev, FR_ROW_BLOCKS, 1, sum_blocks, &job);
    fr__add_partials(scratch, cols, sums, add);
}
