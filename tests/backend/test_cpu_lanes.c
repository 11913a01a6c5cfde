/* test_cpu_lanes.c -- Forerun's own kernels give the same bits for row-major tensors and for blocks
 * of 8 and of 16 channels, whichever this machine prefers. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "support/harness.h"
#include "support/test.h"

enum { BATCH = 3, MAX_NUMBERS = 1 << 16 };

/* The output of a kernel, row-major. */
typedef struct result {
    float y[MAX_NUMBERS], dx[MAX_NUMBERS], dw[2][MAX_NUMBERS], running[2][64];
} result;

static fr_ctx *ctx;
static fr_device *dev;

static int setup(void **state)
{
    (void)state;
    const fr_device_desc desc = {.n_threads = 2};
    ctx = fr_ctx_create();
    return ctx && fr_device_open(ctx, &fr__backend_cpu, &desc, &dev) == FR_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    fr_device_close(dev);
    fr_ctx_free(ctx);
    return 0;
}

/* A block of NaN, like used memory, filled from row-major numbers if given. */
static float *laid_out(const fr__layout *layout, const float *plain, size_t n)
{
    float *at = fr__alloc(layout->bytes);
    assert_non_null(at);
    memset(at, 0xff, layout->bytes);
    const fr__layout row_major = {.bytes = n * sizeof(float)};
    if (plain)
        assert_int_equal(fr__backend_cpu.relayout(dev, &row_major, plain, layout, at), FR_OK);
    return at;
}

/* Convert to row-major. All padding must be zero, because oneDNN's kernels read it. */
static void read_back(const fr__layout *layout, const float *at, float *plain, size_t n)
{
    assert_true(n <= MAX_NUMBERS);
    const fr__layout row_major = {.bytes = n * sizeof(float)};
    assert_int_equal(fr__backend_cpu.relayout(dev, layout, at, &row_major, plain), FR_OK);
    float *again = laid_out(layout, plain, n);
    assert_memory_equal(at, again, layout->bytes);
    fr__free(again);
}

static void run_passes(fr__kernel *k, fr__kernel_args *a, const float *dy_plain, size_t n_y)
{
    const fr__kernel_ops *ops = k->ops;
    assert_int_equal(ops->forward(k, a), FR_OK);
    float *dy = laid_out(&k->y, dy_plain, n_y);
    a->dy = dy;
    if (ops->prepare_dy) assert_int_equal(ops->prepare_dy(k, a, dy), FR_OK);
    assert_int_equal(ops->backward_input(k, a), FR_OK);
    if (ops->backward_weight) assert_int_equal(ops->backward_weight(k, a), FR_OK);
    fr__free(dy);
}

static void run_kernel(fr__kernel *k, const fr__layout *x_layout, size_t n_x, size_t n_y,
                       result *out)
{
    static float x[MAX_NUMBERS], dy[MAX_NUMBERS], w[MAX_NUMBERS];
    harness_random(1, 1, x, n_x);
    harness_random(1, 2, dy, n_y);
    fr__kernel_args a = {.y = laid_out(&k->y, NULL, 0), .dx[0] = laid_out(x_layout, NULL, 0)};
    float *given = laid_out(x_layout, x, n_x);
    a.x[0] = given;
    a.saved = fr__alloc(k->saved_bytes);
    a.scratch = fr__alloc(k->scratch_bytes);
    a.cache = fr__alloc(k->cache_bytes);
    assert_true(a.saved && a.scratch && a.cache);
    for (int i = 0; i < k->node->n_params; i++) {
        const fr_param *p = fr_graph_param(k->graph, k->node->params[i]);
        size_t n = (size_t)fr_shape_count(&p->shape);
        harness_random(2, (uint32_t)i, w, n);
        float *values = laid_out(&k->w[i], w, n);
        a.w[i] = values;
        if (p->is_buffer)
            a.buffers[i] = values;
        else
            a.dw[i] = laid_out(&k->w[i], NULL, 0);
    }
    run_passes(k, &a, dy, n_y);
    read_back(&k->y, a.y, out->y, n_y);
    read_back(x_layout, a.dx[0], out->dx, n_x);
    for (int i = 0; i < k->node->n_params; i++) {
        size_t n = (size_t)fr_shape_count(&fr_graph_param(k->graph, k->node->params[i])->shape);
        if (a.dw[i]) read_back(&k->w[i], a.dw[i], out->dw[i], n);
        if (a.buffers[i]) memcpy(out->running[i - 2], a.buffers[i], n * sizeof(float));
        fr__free(a.dw[i]);
        fr__free((void *)(uintptr_t)a.w[i]);
    }
    fr__free(a.saved), fr__free(a.scratch), fr__free(a.cache);
    fr__free(a.y), fr__free(a.dx[0]), fr__free(given);
}

/* The net's operators are one group. */
static void run_with_lanes(const char *line, int lanes, result *out)
{
    net n;
    fr_arena arena = {0};
    net_build(&n, line);
    fr__kernel_spec spec = {.ctx = ctx,
                            .dev = dev,
                            .graph = n.graph,
                            .batch = BATCH,
                            .training = true,
                            .n_inputs = 1,
                            .need_dx = {true}};
    for (int i = n.stage.first; i < n.stage.last; i++) spec.nodes[spec.n_nodes++] = i;
    const fr_node *node = fr_graph_node(n.graph, spec.nodes[0]);
    const fr_node *in = fr_graph_node(n.graph, node->inputs[0]);
    const fr__kernel any = {.ctx = ctx, .dev = dev, .node = node, .batch = BATCH};
    spec.inputs[0] = node->inputs[0];
    fr__layout x = {.dtype = FR_F32};
    assert_int_equal(fr__layout_with_lanes(&any, in, lanes, &x), FR_OK);
    spec.x[0] = &x;
    fr__kernel *k = NULL;
    if (fr__backend_cpu.makers[node->op](&spec, &arena, &k) != FR_OK)
        fail_msg("%s", fr_ctx_error(ctx));
    run_kernel(k, &x, (size_t)fr_shape_count(&in->shape) * BATCH,
               (size_t)fr_shape_count(&node->shape) * BATCH, out);
    if (k->ops->destroy) k->ops->destroy(k);
    fr__arena_fini(&arena);
    net_free(&n);
}

static void lanes_keep_bits(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "a = x 32,5,4; b = max_pool a kernel=3,2 stride=2,1 pad=1,0",
        "a = x 20,5,4; b = max_pool a kernel=2,2",
        "a = x 32,5,4; b = batch_norm a; c = relu b",
        "a = x 20,5,4; b = batch_norm a",
        "a = x 6,5,4; b = batch_norm a; c = relu b",
        "a = x 32,5,4; b = conv2d a out=48 kernel=3,3 pad=1,1; c = relu b",
        "a = x 32,2,2; b = conv2d a out=48 kernel=3,3 pad=1,1; c = relu b",
    };
    static result row_major, blocked;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        memset(&row_major, 0, sizeof row_major);
        run_with_lanes(lines[i], 1, &row_major);
        for (int lanes = 8; lanes <= 16; lanes += 8) {
            memset(&blocked, 0, sizeof blocked);
            run_with_lanes(lines[i], lanes, &blocked);
            if (memcmp(&blocked, &row_major, sizeof blocked) != 0)
                fail_msg("%s: blocks of %d channels differ from row-major", lines[i], lanes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lanes_keep_bits)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
