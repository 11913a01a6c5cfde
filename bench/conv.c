/* conv.c -- speed of the convolutions of a vgg16 (32 x 32 images), and its limit.
 *
 *     bench_conv [threads [repeats [batch [f32 or bf16 [step]]]]]
 *
 * limit: every pass of every convolution alone, in the best of all layouts and implementations of
 * oneDNN for the type, best of `repeats` runs, without relu and reorders. step: forward and
 * backward of the whole network as a program of the cpu backend; with the
 * word `step` this alone. With one thread, times are CPU
 * time, which other processes disturb less; otherwise they are wall-clock time. Prints one JSON
 * object. */
#include <forerun/forerun.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/dnnl.h"

typedef struct shape {
    int in, out, size,
        count; /* input channels, output channels, height = width, number of such layers */
} shape;

static const shape layers[] = {{3, 64, 32, 1},    {64, 64, 32, 1},  {64, 128, 16, 1},
                               {128, 128, 16, 1}, {128, 256, 8, 1}, {256, 256, 8, 2},
                               {256, 512, 4, 1},  {512, 512, 4, 2}, {512, 512, 2, 3}};
enum { N_LAYERS = sizeof layers / sizeof *layers };
typedef enum pass { FORWARD, BACK_INPUT, BACK_WEIGHT, N_PASSES } pass;
static const char *const pass_names[] = {"forward", "back_input", "back_weight"};

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static int n_threads = 1, batch = 32, repeats = 5;
static fr_dtype precision = FR_F32;
static float *pool; /* memory for all tensors, one after the other */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void must(unsigned status, const char *what)
{
    if (status == 0) return;
    fprintf(stderr, "bench_conv: %s failed (%u)\n", what, status);
    exit(1);
}

static const int pass_args[N_PASSES][4] = {
    {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
    {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC, 0},
    {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS}};

/* Best time of one implementation, in ms. */
static double time_one(const_dnnl_primitive_desc_t desc, pass which, double give_up_ms)
{
    dnnl_primitive_t prim;
    if (dnnl_primitive_create(&prim, desc) != dnnl_success) return 1e9;
    dnnl_exec_arg_t args[5];
    int n = 0;
    float *at = pool;
    for (int i = 0; i < 5; i++) {
        int id = i < 4 ? pass_args[which][i] : DNNL_ARG_SCRATCHPAD;
        fr__md md = id ? dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, id) : NULL;
        if (fr__md_view_of(md).n_dims == 0) continue;
        args[n].arg = id;
        must(dnnl_memory_create(&args[n++].memory, md, engine, at), "memory");
        at += (dnnl_memory_desc_get_size(md) + 4095) / 4096 * 1024;
    }
    double best = 1e9;
    for (int r = 0; r <= repeats && (r < 2 || best < 2 * give_up_ms); r++) {
        double start = now_ms();
        must(dnnl_primitive_execute(prim, stream, n, args), "execution");
        must(dnnl_stream_wait(stream), "execution");
        double ms = now_ms() - start;
        if (ms < best) best = ms;
    }
    while (n--) dnnl_memory_destroy(args[n].memory);
    dnnl_primitive_destroy(prim);
    return best;
}

static fr__md describe(int n_dims, const dnnl_dim_t *dims, dnnl_format_tag_t tag, fr_dtype type)
{
    fr__md floats, md;
    must(fr__md_make(n_dims, dims, tag, NULL, &floats), "a layout");
    must(fr__md_copy_as(floats, type == FR_BF16 ? dnnl_bf16 : dnnl_f32, &md), "a layout");
    fr__md_drop(floats);
    return md;
}

/* Best over layouts and implementations, except the slow reference code. */
static double time_way(const shape *s, pass which, fr__cpu_device *cpu, dnnl_format_tag_t tag,
                       double best, char name[64])
{
    static const dnnl_prop_kind_t kinds[] = {dnnl_forward_training, dnnl_backward_data,
                                             dnnl_backward_weights};
    const dnnl_dims_t x_dims = {batch, s->in, s->size, s->size}, w_dims = {s->out, s->in, 3, 3};
    const dnnl_dims_t y_dims = {batch, s->out, s->size, s->size}, b_dims = {s->out};
    const fr__window window = {.size = {3, 3}, .stride = {1, 1}, .before = {1, 1}, .after = {1, 1}};
    fr__conv_op op = {.pass = dnnl_forward_training, .window = &window};
    op.x = describe(4, x_dims, s->in == 3 ? dnnl_nchw : tag, precision);
    op.w = describe(4, w_dims, dnnl_format_tag_any, precision);
    op.b = describe(1, b_dims, dnnl_x, precision);
    op.y = describe(4, y_dims, tag, precision);
    const fr__md dw = describe(4, w_dims, dnnl_format_tag_any, FR_F32);
    const fr__md db = describe(1, b_dims, dnnl_x, FR_F32);
    const fr__md mds[] = {op.x, op.w, op.b, op.y, dw, db};
    dnnl_primitive_desc_t forward, desc;
    if (fr__conv_desc(cpu, &op, 0, NULL, &forward) != dnnl_success) return best;
    op.pass = kinds[which];
    if (which == BACK_WEIGHT) op.w = dw, op.b = db;
    const_dnnl_primitive_desc_t hint = which == FORWARD ? NULL : forward;
    for (int nth = 0; fr__conv_desc(cpu, &op, nth, hint, &desc) == dnnl_success; nth++) {
        const char *impl = "";
        dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &impl);
        if (!strstr(impl, "ref") && !strstr(impl, "sse")) {
            double ms = time_one(desc, which, best);
            if (ms < best) {
                best = ms;
                snprintf(name, 64, "%s", impl);
            }
        }
        dnnl_primitive_desc_destroy(desc);
    }
    dnnl_primitive_desc_destroy(forward);
    for (int i = 0; i < 6; i++) fr__md_drop(mds[i]);
    return best;
}

static double time_pass(const shape *s, pass which, fr__cpu_device *cpu, char name[64])
{
    double best = time_way(s, which, cpu, dnnl_format_tag_any, 1e9, name);
    return time_way(s, which, cpu, dnnl_nhwc, best, name);
}

static double print_limits(fr__cpu_device *cpu)
{
    double total = 0;
    printf(" \"layers\": [\n");
    for (int i = 0; i < N_LAYERS; i++) {
        const shape *s = &layers[i];
        double gflop = 18e-9 * batch * s->in * s->out * s->size * s->size;
        printf("  {\"in\": %d, \"out\": %d, \"size\": %d, \"count\": %d", s->in, s->out, s->size,
               s->count);
        for (pass p = FORWARD; p < N_PASSES; p++) {
            if (p == BACK_INPUT && i == 0) continue; /* the gradient of the image is not needed */
            char name[64] = "";
            double ms = time_pass(s, p, cpu, name);
            total += ms * s->count;
            printf(",\n   \"%s\": {\"ms\": %.3f, \"gflops\": %.1f, \"impl\": \"%s\"}",
                   pass_names[p], ms, gflop / ms * 1e3, name);
        }
        printf("}%s\n", i + 1 < N_LAYERS ? "," : "");
        fflush(stdout);
    }
    printf(" ],\n");
    return total;
}

static double sgemm_gflops(void)
{
    enum { N = 1024 };
    double best = 1e9;
    for (int i = 0; i < 3 * N * N; i++) pool[i] = 1;
    for (int r = 0; r <= repeats; r++) {
        double start = now_ms();
        must(dnnl_sgemm('N', 'N', N, N, N, 1, pool, N, pool + N * N, N, 0, pool + 2 * N * N, N),
             "sgemm");
        double s = (now_ms() - start) * 1e-3;
        if (s < best) best = s;
    }
    return 2e-9 * (double)(N * N * N) / best;
}

/* ---- The whole network ---- */

static int add(fr_graph *g, fr_operator op, const char *prefix, int n, const fr_attrs *attrs, int a,
               int b)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", prefix, n);
    return fr_graph_add(g, op, name, attrs, b >= 0 ? 2 : a >= 0, (const int[]){a, b});
}

static fr_graph *build(fr_ctx *ctx)
{
    fr_graph *g;
    must(fr_graph_create(ctx, "vgg16", &g), "graph");
    must(fr_graph_set_precision(g, precision), "precision");
    const fr_attrs image = {.input = {.shape = FR_SHAPE(3, 32, 32)}};
    const fr_attrs label = {.input = {.shape = {0}, .dtype = FR_I32}};
    const fr_attrs half = {.pool = {.kernel = {2, 2}}}, classes = {.linear = {.out = 10}};
    int x = add(g, FR_OP_INPUT, "image", 0, &image, -1, -1), n = 0;
    for (int i = 0; i < N_LAYERS; i++) {
        if (i > 0 && layers[i].size < layers[i - 1].size)
            x = add(g, FR_OP_MAX_POOL, "pool", i, &half, x, -1);
        const fr_attrs conv = {.conv2d = {.out = layers[i].out, .kernel = {3, 3}, .pad = {1, 1}}};
        for (int k = 0; k < layers[i].count; k++, n++) {
            x = add(g, FR_OP_CONV2D, "conv", n, &conv, x, -1);
            x = add(g, FR_OP_RELU, "relu", n, NULL, x, -1);
        }
    }
    x = add(g, FR_OP_MAX_POOL, "pool", N_LAYERS, &half, x, -1);
    x = add(g, FR_OP_FLATTEN, "flat", 0, NULL, x, -1);
    x = add(g, FR_OP_LINEAR, "logits", 0, &classes, x, -1);
    int target = add(g, FR_OP_INPUT, "target", 0, &label, -1, -1);
    add(g, FR_OP_CROSS_ENTROPY, "loss", 0, NULL, x, target);
    if (fr_graph_finish(g) != FR_OK) {
        fprintf(stderr, "bench_conv: %s\n", fr_ctx_error(ctx));
        exit(1);
    }
    return g;
}

static void *block(fr_device *dev, size_t bytes)
{
    void *at;
    must(fr_device_alloc(dev, bytes, "a block", &at), "memory");
    return at;
}

static double time_step(fr_ctx *ctx, fr_device *dev)
{
    fr_graph *g = build(ctx);
    fr_program *p;
    const fr_program_desc desc = {.graph = g, .batch = batch, .training = true};
    must(fr_program_create(ctx, dev, &desc, &p), "program");
    const fr_program_sizes *sizes = fr_program_sizes_of(p);
    float *weights = block(dev, sizes->n_weights * 4), *plain = block(dev, sizes->n_weights * 4);
    for (int i = 0; i < fr_program_n_placements(p); i++) {
        fr_graph_init_param(g, fr_program_placement(p, i)->param, 1, plain);
        must(fr_program_write_param(p, weights, i, plain), "weights");
    }
    void *working = block(dev, sizes->n_weights * fr_dtype_bytes(precision));
    must(fr__device_convert(dev, precision, working, FR_F32, weights, sizes->n_weights), "weights");
    float *image = block(dev, fr_program_input(p, 0)->bytes), loss[3 * 1024];
    for (size_t i = 0; i < fr_program_input(p, 0)->bytes / 4; i++) image[i] = (float)(i % 7) - 3;
    const void *inputs[] = {image, block(dev, fr_program_input(p, 1)->bytes)};
    void *outputs[] = {loss}, *no_grads[] = {NULL, NULL};
    fr_pass now = {.weights = working,
                   .grads = block(dev, sizes->n_grads * 4),
                   .slot = block(dev, sizes->slot_bytes),
                   .workspace = block(dev, sizes->workspace_bytes),
                   .inputs = inputs,
                   .outputs = outputs,
                   .output_grads = (const void *const *)no_grads,
                   .input_grads = no_grads,
                   .loss_scale = 1};
    double best = 1e9;
    for (int r = 0; r <= repeats; r++) {
        double start = now_ms();
        must(fr_program_forward(p, &now), "forward");
        must(fr_program_backward(p, &now, FR_GRAD_BOTH), "backward");
        double ms = now_ms() - start;
        if (ms < best) best = ms;
    }
    fr_program_free(p);
    fr_graph_free(g);
    return best;
}

int main(int argc, char **argv)
{
    if (argc > 1) n_threads = atoi(argv[1]);
    if (argc > 2) repeats = atoi(argv[2]);
    if (argc > 3) batch = atoi(argv[3]);
    if (argc > 4 && strcmp(argv[4], "bf16") == 0) precision = FR_BF16;
    fr_ctx *ctx = fr_ctx_create();
    fr_device *dev = NULL;
    const fr_device_desc desc = {.n_threads = n_threads};
    must(!ctx || fr_device_open(ctx, fr_backend_find("cpu"), &desc, &dev), "device");
    engine = fr__cpu(dev)->engine;
    stream = fr__cpu(dev)->stream;
    pool = block(dev, (size_t)1 << 29);
    printf("{\"about\": \"%s\", \"batch\": %d, \"precision\": \"%s\", \"sgemm_gflops\": %.1f,\n",
           fr_device_about(dev), batch, precision == FR_BF16 ? "bf16" : "f32", sgemm_gflops());
    double limit = argc > 5 ? 0 : print_limits(fr__cpu(dev)), step = time_step(ctx, dev);
    if (limit > 0)
        printf(" \"limit_ms\": %.1f, \"limit_samples_per_s\": %.1f,\n", limit, batch / limit * 1e3);
    printf(" \"step_ms\": %.1f, \"step_samples_per_s\": %.1f}\n", step, batch / step * 1e3);
    return 0;
}
