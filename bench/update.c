/* update.c -- cost of an update, and the additional cost of predictions.
 *
 *     bench_update [--weights N] [--threads N] [--repeats N] [--backend NAME]
 *
 * Prints one JSON object: for each optimizer and kind of pass, the time per weight of the best
 * repeat, and the bytes read and written per second (a write counts once, although a cache may read
 * the line first). `extra` is the time in addition to the plain step in place. */
#include <forerun/backend.h>
#include <forerun/optim.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAIN = 1024 };
enum { FROM, TO, GRAD, STATE_0, STATE_1, DRIFT, AHEAD_0, AHEAD_1, N_BLOCKS };

static const struct kind {
    const char *name;
    bool is_step, in_place, has_drift;
    int n_ahead;
} kinds[] = {
    {"in place", true, true, false, 0},          {"in place, 1 ahead", true, true, false, 1},
    {"in place, 2 ahead", true, true, false, 2}, {"in place, drift, 1 ahead", true, true, true, 1},
    {"out of place", true, false, false, 0},     {"out of place, 1 ahead", true, false, false, 1},
    {"predict 1", false, true, false, 1},        {"predict 2", false, true, false, 2},
};
#define N_KINDS ((int)(sizeof kinds / sizeof *kinds))

typedef struct pass {
    const fr_optimizer *opt;
    const struct kind *kind;
    fr_optim_coef coef;
    fr_prediction_coef ahead_coef;
    float *const *blocks; /* [N_BLOCKS] of (n) */
} pass;

static void run_range(void *arg, size_t begin, size_t end)
{
    const pass *p = arg;
    float *const *b = p->blocks;
    fr_sweep s = {.n = end - begin,
                  .from = b[p->kind->in_place ? TO : FROM] + begin,
                  .to = b[TO] + begin,
                  .grad = b[GRAD] + begin,
                  .state = {b[STATE_0] + begin, b[STATE_1] + begin},
                  .drift = p->kind->has_drift ? b[DRIFT] + begin : NULL,
                  .n_ahead = p->kind->n_ahead,
                  .ahead = {b[AHEAD_0] + begin, b[AHEAD_1] + begin},
                  .ahead_coef = p->ahead_coef};
    if (p->kind->is_step)
        p->opt->step(&p->coef, &s);
    else
        p->opt->predict(&s);
}

/* Floats read and written for one weight. */
static int streams(const fr_optimizer *opt, const struct kind *k)
{
    if (!k->is_step) return 1 + opt->n_state + k->n_ahead;
    return 3 + 2 * opt->n_state + (k->has_drift ? 2 : 0) + k->n_ahead;
}

static double seconds(fr_device *dev, pass *p, size_t n, int repeats)
{
    double best = 1e9;
    for (int r = -1; r < repeats; r++) { /* round -1: warm-up */
        uint64_t start = fr__now_ns();
        fr_device_parallel(dev, n, GRAIN, run_range, p);
        double time = (double)(fr__now_ns() - start) * 1e-9;
        if (r >= 0 && time < best) best = time;
    }
    return best;
}

static void measure(fr_device *dev, const fr_optimizer *opt, float *const *blocks, size_t n,
                    int repeats)
{
    fr_optim_options o;
    const double rate = 1e-4;
    opt->defaults(&o);
    o.momentum = 0.9;
    printf("  \"%s\": {", opt->name);
    double plain = 0;
    for (int k = 0; k < N_KINDS; k++) {
        pass p = {.opt = opt, .kind = &kinds[k], .ahead_coef = {.keep = 0.5f}, .blocks = blocks};
        fr_optim_prepare(opt, &o, 100, rate, 1, &p.coef);
        for (int j = 0; j < FR_MAX_AHEAD; j++)
            fr_optim_prepare_prediction(
                opt, &o, kinds[k].has_drift ? FR_EXTRAPOLATE_DRIFT : FR_EXTRAPOLATE_APPLIED, 100, 1,
                &rate, j, &p.ahead_coef);
        double time = seconds(dev, &p, n, repeats);
        if (k == 0) plain = time;
        printf("%s\n    \"%s\": {\"ns_per_weight\": %.4f, \"gb_per_s\": %.2f, \"extra\": %.3f}",
               k ? "," : "", kinds[k].name, time / (double)n * 1e9,
               4.0 * streams(opt, &kinds[k]) * (double)n / time * 1e-9, time / plain - 1);
    }
    printf("}");
}

static int bench(fr_ctx *ctx, size_t n, int threads, int repeats, const fr_backend *backend)
{
    fr_device *dev;
    if (fr_device_open(ctx, backend, &(fr_device_desc){.n_threads = threads}, &dev) != FR_OK)
        return 1;
    float *blocks[N_BLOCKS] = {NULL};
    fr_status status = FR_OK;
    for (int b = 0; b < N_BLOCKS && status == FR_OK; b++) {
        void *at;
        status = fr_device_alloc(dev, n * sizeof(float), "a block", &at);
        blocks[b] = at;
        for (size_t i = 0; status == FR_OK && i < n; i++) {
            uint32_t r[4];
            fr__random4(1, FR_STREAM_SYNTHETIC, (uint32_t)b, i, 0, r);
            blocks[b][i] = fr__unit_float(r[0]) + 0.01f; /* no denormals, no negative squares */
        }
    }
    if (status == FR_OK) {
        printf("{\"weights\": %zu, \"threads\": %d, \"about\": \"%s\",\n", n, threads,
               fr_device_about(dev));
        for (const fr_optimizer *const *o = fr_optim_list(); *o; o++) {
            measure(dev, *o, blocks, n, repeats);
            printf("%s\n", o[1] ? "," : "}");
        }
    }
    for (int b = 0; b < N_BLOCKS; b++) fr_device_release(dev, blocks[b], n * sizeof(float));
    fr_device_close(dev);
    return status != FR_OK;
}

int main(int argc, char **argv)
{
    long n = 4 << 20, threads = 1, repeats = 20;
    const char *backend = "cpu";
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--weights") == 0) n = atol(argv[i + 1]);
        if (strcmp(argv[i], "--threads") == 0) threads = atol(argv[i + 1]);
        if (strcmp(argv[i], "--repeats") == 0) repeats = atol(argv[i + 1]);
        if (strcmp(argv[i], "--backend") == 0) backend = argv[i + 1];
    }
    const fr_backend *b = fr_backend_find(backend);
    if (argc % 2 == 0 || n < 1 || threads < 1 || repeats < 1 || !b) {
        fprintf(stderr, "usage: bench_update [--weights N] [--threads N] [--repeats N] "
                        "[--backend NAME]\n");
        return 2;
    }
    fr_ctx *ctx = fr_ctx_create();
    if (!ctx) return 1;
    int code = bench(ctx, (size_t)n, (int)threads, (int)repeats, b);
    if (code) fprintf(stderr, "bench_update: %s\n", fr_ctx_error(ctx));
    fr_ctx_free(ctx);
    return code;
}
