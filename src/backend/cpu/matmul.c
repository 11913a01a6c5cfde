/* matmul.c -- products of two inputs, matrix by matrix: c (M, N) = a (M, K) b (K, N).
 *
 * Many matrices are dealt to threads, one each; the products of a few are computed by all threads
 * together. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"

typedef struct matmul {
    fr__kernel base;
    int64_t count, m, n, k; /* matrices of a micro-batch, and their sizes */
} matmul;

typedef struct job {
    const matmul *p;
    const fr__kernel_args *a;
    bool is_back;
} job;

static void multiply(void *arg, size_t begin, size_t end)
{
    const job *j = arg;
    const matmul *p = j->p;
    const fr__kernel_args *args = j->a;
    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++) {
        const float *a = (const float *)args->x[0] + i * p->m * p->k,
                    *b = (const float *)args->x[1] + i * p->k * p->n;
        if (!j->is_back) {
            fr__gemm(p->m, p->n, p->k, (fr__matrix){a, p->k, false}, (fr__matrix){b, p->n, false},
                     (float *)args->y + i * p->m * p->n, p->n, false);
            continue;
        }
        const fr__matrix dy = {(const float *)args->dy + i * p->m * p->n, p->n, false};
        if (args->dx[0])
            fr__gemm(p->m, p->k, p->n, dy, (fr__matrix){b, p->n, true},
                     (float *)args->dx[0] + i * p->m * p->k, p->k, false);
        if (args->dx[1])
            fr__gemm(p->k, p->n, p->m, (fr__matrix){a, p->k, true}, dy,
                     (float *)args->dx[1] + i * p->k * p->n, p->n, false);
    }
}

static fr_status run(fr__kernel *k, const fr__kernel_args *a, bool is_back)
{
    job j = {.p = (const matmul *)k, .a = a, .is_back = is_back};
    if (j.p->count >= fr_device_n_threads(k->dev))
        fr__cpu_parallel(k->dev, (size_t)j.p->count, 1, multiply, &j);
    else
        multiply(&j, 0, (size_t)j.p->count);
    return FR_OK;
}

static fr_status matmul_forward(fr__kernel *k, const fr__kernel_args *a)
{
    return run(k, a, false);
}

static fr_status matmul_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    return run(k, a, true);
}

static const fr__kernel_ops matmul_ops = {.forward = matmul_forward,
                                          .backward_input = matmul_backward_input};

fr_status fr__cpu_matmul(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    matmul *p = (matmul *)fr__kernel_new(spec, arena, sizeof *p, &matmul_ops);
    if (!p) return FR_NO_MEMORY;
    const fr_shape *y = &p->base.node->shape;
    p->m = y->dim[y->n_dims - 2], p->n = y->dim[y->n_dims - 1];
    p->k = fr__cols(fr_graph_node(spec->graph, spec->inputs[0]));
    p->count = fr_shape_count(y) / (p->m * p->n) * spec->batch;
    p->base.needs_x = 3;
    *out = &p->base;
    return FR_OK;
}
