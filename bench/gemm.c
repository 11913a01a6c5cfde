/* gemm.c -- speed of the products of a layer with weights (out, in), by number of rows.
 *
 *     bench_gemm [threads [in out [rows ...]]]
 *
 * y = x W^T, dx = dy W, dW = dy^T x and dW += dy^T x: GF/s of oneDNN's sgemm and of the kernels of
 * the cpu backend, in turns, the best turn of each. Weights and their gradients come from memory,
 * as in training: the bench cycles through several sets. Rows of a multiple of 2 KB are spaced as
 * in linear.c. */
#include <forerun/forerun.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/cpu/gemm.h"

enum { TURNS = 5, LEAST_MS = 20, SETS_FLOATS = 16 << 20 };
typedef enum which { Y, Y_OURS, DX, DX_OURS, DW, DW_OURS, DW_ADD, DW_ADD_OURS, N_PRODUCTS } which;

static fr_device *dev;
static int64_t rows, in, out, ld, n_sets;
static float *x, *y, *sets; /* (rows, in), (rows, out), (n_sets, out, ld) */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static float *numbers(int64_t n)
{
    void *at;
    if (fr_device_alloc(dev, (size_t)n * sizeof(float), "numbers", &at) != FR_OK) {
        fprintf(stderr, "bench_gemm: no memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < n; i++) ((float *)at)[i] = (float)(i % 1013) / 1013 - 0.5f;
    return at;
}

static void run(which what, float *w)
{
    fr__product p = {{w, out, in, ld}, false, false, rows, x, y, in, out};
    if (what == DX_OURS) p.is_dx = true, p.from = y, p.ld_from = out, p.to = x, p.ld_to = in;
    switch (what) {
    case Y:
        fr__gemm(rows, out, in, (fr__matrix){x, in, false}, (fr__matrix){w, ld, true}, y, out,
                 false);
        break;
    case DX:
        fr__gemm(rows, in, out, (fr__matrix){y, out, false}, (fr__matrix){w, ld, false}, x, in,
                 false);
        break;
    case DW:
    case DW_ADD:
        fr__gemm(out, in, rows, (fr__matrix){y, out, true}, (fr__matrix){x, in, false}, w, ld,
                 what == DW_ADD);
        break;
    case DW_OURS:
    case DW_ADD_OURS:
        fr__weight_grad(
            dev, &(fr__weight_grad_args){y, x, w, rows, out, in, out, ld, what == DW_ADD_OURS});
        break;
    default: fr__multiply(dev, &p);
    }
}

/* The minimum time of one product, in ms. */
static double time_of(which what)
{
    double best = 1e9, stop = now_ms() + LEAST_MS;
    do {
        double start = now_ms();
        for (int64_t i = 0; i < n_sets; i++) run(what, sets + i * out * ld);
        double ms = (now_ms() - start) / (double)n_sets;
        if (ms < best) best = ms;
    } while (now_ms() < stop);
    return best;
}

int main(int argc, char **argv)
{
    static char *usual[] = {"1", "4", "8", "16", "32", "64", "128", "256"};
    const fr_device_desc desc = {.n_threads = argc > 1 ? atoi(argv[1]) : 1};
    in = argc > 3 ? atoi(argv[2]) : 2048;
    out = argc > 3 ? atoi(argv[3]) : 2048;
    char **list = argc > 4 ? argv + 4 : usual;
    const int n = argc > 4 ? argc - 4 : (int)(sizeof usual / sizeof *usual);
    fr_ctx *ctx = fr_ctx_create();
    if (!ctx || fr_device_open(ctx, fr_backend_find("cpu"), &desc, &dev) != FR_OK) {
        fprintf(stderr, "bench_gemm: %s\n", ctx ? fr_ctx_error(ctx) : "no memory");
        return 1;
    }
    ld = in % 512 == 0 ? in + 16 : in;
    n_sets = 1 + SETS_FLOATS / (out * ld);
    sets = numbers(n_sets * out * ld);
    printf("%s; in %d, out %d; GF/s\n rows | y sgemm  ours | dx sgemm  ours | dW sgemm  ours | dW "
           "add sgemm  ours\n",
           fr_device_about(dev), (int)in, (int)out);
    for (int i = 0; i < n; i++) {
        rows = atoi(list[i]);
        double best[N_PRODUCTS], gflop = 2e-9 * (double)(rows * in * out);
        x = numbers(rows * in);
        y = numbers(rows * out);
        for (int turn = 0; turn < TURNS; turn++) {
            for (which p = Y; p < N_PRODUCTS; p++) {
                double ms = time_of(p);
                if (turn == 0 || ms < best[p]) best[p] = ms;
            }
        }
        printf("%5d |", (int)rows);
        for (which p = Y; p < N_PRODUCTS; p++)
            printf(" %6.1f%s", gflop / best[p] * 1e3, p % 2 ? " | " : "  ");
        printf("\n");
        fr_device_release(dev, x, (size_t)(rows * in) * sizeof(float));
        fr_device_release(dev, y, (size_t)(rows * out) * sizeof(float));
    }
    return 0;
}
