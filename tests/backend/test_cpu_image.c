/* test_cpu_image.c -- the image operators of the cpu backend: correct in every layout, with the
 * same bits whether fused, split or cut. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernel.h"
#include "support/harness.h"
#include "support/test.h"

/* Shapes that lead oneDNN to different layouts and implementations. No bias before a batch norm:
 * its gradient is zero except for rounding. */
static const char *const nets[] = {
    /* first layers: one and three channels */
    "a = x 3,8,8; b = conv2d a out=16 kernel=3,3 pad=1,1; c = relu b",
    "a = x 1,9,7; b = conv2d a out=5 kernel=3,2 pad=1,1 stride=2,2; c = relu b",
    /* blocks of channels that do not divide, groups, depthwise */
    "a = x 12,5,5; b = conv2d a out=20 kernel=5,5 pad=2,2",
    "a = x 4,9,7; b = conv2d a out=6 kernel=3,2 pad=1,1 stride=2,3 groups=2; c = relu b",
    "a = x 16,9,7; b = conv2d a out=32 kernel=3,3 pad=1,1 groups=2",
    "a = x 8,9,7; b = conv2d a out=8 kernel=3,3 pad=1,1 groups=8 no_bias=1",
    /* maps smaller than the kernel, strides with a remainder, long thin kernels */
    "a = x 64,2,2; b = conv2d a out=64 kernel=3,3 pad=1,1; c = relu b",
    "a = x 64,8,8; b = conv2d a out=32 kernel=1,1 stride=2,2",
    "a = x 16,8,8; b = conv2d a out=32 kernel=1,7 pad=0,3; c = relu b; "
    "d = conv2d c out=16 kernel=7,1 pad=3,0",
    /* taps only on padding, strides beyond the kernel, sources that are not read */
    "a = x 32,1,1; b = conv2d a out=16 kernel=3,3 pad=1,1; c = relu b",
    "a = x 16,9,7; b = conv2d a out=48 kernel=3,2 pad=1,0 stride=2,3; c = relu b",
    "a = x 32,8,8; b = conv2d a out=32 kernel=2,2 stride=3,3 no_bias=1",
    "a = x 16,3,5; b = conv2d a out=16 kernel=5,5 pad=3,2; c = relu b; "
    "d = conv2d c out=32 kernel=3,3",
    "a = data 16,6,6; b = conv2d a out=16 kernel=3,3",
    "a = x 16,21,21; b = conv2d a out=16 kernel=3,3 pad=1,1; c = relu b",
    "a = data 8,6,6; b = conv2d a out=8 kernel=3,3",
    "a = x 16,8,8; b = batch_norm a; c = relu b",
    "a = x 5,3,3; b = batch_norm a",
    "a = data 16,4,4; b = batch_norm a; c = relu b",
    "a = x 7; b = batch_norm a; c = relu b",
    "a = x 16,8,8; b = max_pool a kernel=3,3 stride=2,2 pad=1,1",
    "a = x 5,7,9; b = max_pool a kernel=3,2 stride=2,2 pad=1,0",
    "a = x 16,7,9; b = avg_pool a kernel=3,2 stride=2,2 pad=1,1",
    "a = x 16,7,9; b = avg_pool a kernel=3,2 stride=2,2 pad=1,1 count_valid=1",
    "a = x 5,7,9; b = global_pool a",
    "a = x 16,7,9; b = global_pool a",
    "a = x 16,4,4; b = x 8,4,4; c = concat a b",
    /* blocked inside, row-major at the borders */
    "a = x 3,16,16; b = conv2d a out=16 kernel=3,3 pad=1,1; c = relu b; d = max_pool c kernel=2,2; "
    "e = conv2d d out=24 kernel=3,3 pad=1,1 no_bias=1; f = batch_norm e; g = relu f; "
    "h = avg_pool g kernel=3,3 stride=2,2 pad=1,1; i = flatten h",
    "a = x 8,8,8; b = conv2d a out=20 kernel=3,3 no_bias=1; c = batch_norm b; d = relu c; "
    "e = max_pool d kernel=2,2; f = conv2d e out=50 kernel=3,3; g = global_pool f",
    "a = x 5,4,4; b = x 8,4,4; c = conv2d a out=8 kernel=1,1; d = conv2d b out=16 kernel=1,1; "
    "e = concat c d; f = conv2d e out=8 kernel=1,1",
    "a = x 5,4,4; b = x 8,4,4; c = conv2d a out=5 kernel=1,1; d = conv2d b out=16 kernel=1,1; "
    "e = concat c d c; f = conv2d e out=8 kernel=1,1; g = flatten f",
};
enum { N_NETS = sizeof nets / sizeof *nets };

static void open_on(harness *h, const net *n, const harness_options *options)
{
    if (harness_open(h, n, options) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
    harness_fill(h, n, 1);
}

static void run(harness *h)
{
    if (harness_run(h) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
}

/* Runs the line on a, with its options, and on b; the results must agree. */
static void compare(const char *line, const harness_options *a, const harness_options *b,
                    bool accumulate, double tolerance)
{
    net n;
    harness one, two;
    verdict v;
    net_build(&n, line);
    open_on(&one, &n, a);
    open_on(&two, &n, b);
    one.pass.accumulate = two.pass.accumulate = accumulate;
    for (int i = 0; i < one.n_params && accumulate; i++) {
        if (!one.dw[i]) continue;
        harness_random(5, (uint32_t)i, one.dw[i], one.n_w[i]);
        memcpy(two.dw[i], one.dw[i], one.n_w[i] * sizeof(float));
    }
    run(&one);
    run(&two);
    if (!harness_same(&v, &one, &two, tolerance)) fail_msg("%s: %s", line, v.text);
    harness_close(&one);
    harness_close(&two);
    net_free(&n);
}

static void agrees_with_ref(void **state)
{
    (void)state;
    for (int i = 0; i < N_NETS; i++) {
        for (int threads = 1; threads <= 2; threads++) {
            harness_options cpu = {.backend = &fr__backend_cpu, .batch = 4, .n_threads = threads};
            harness_options ref = {.backend = &fr__backend_ref, .batch = 4};
            compare(nets[i], &cpu, &ref, false, 2e-5);
            compare(nets[i], &cpu, &ref, true, 2e-5);
            cpu.eval = ref.eval = true;
            compare(nets[i], &cpu, &ref, false, 2e-5);
        }
    }
}

static void split_backward_keeps_bits(void **state)
{
    (void)state;
    for (int i = 0; i < N_NETS; i++) {
        harness_options joint = {.backend = &fr__backend_cpu, .batch = 3};
        harness_options split = {.backend = &fr__backend_cpu, .batch = 3, .split = true};
        compare(nets[i], &split, &joint, false, 0);
    }
}

/* Sums of Forerun's own kernels do not depend on the number of threads. */
static void threads_keep_bits(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "a = x 32,5,5; b = conv2d a out=48 kernel=3,3 pad=1,1; c = batch_norm b; d = relu c",
        "a = x 16,2,2; b = conv2d a out=16 kernel=3,3 pad=1,1; c = max_pool b kernel=2,2",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        for (int threads = 2; threads <= 5; threads++) {
            harness_options one = {.backend = &fr__backend_cpu, .batch = 7, .n_threads = 1};
            harness_options many = {.backend = &fr__backend_cpu, .batch = 7, .n_threads = threads};
            compare(lines[i], &many, &one, false, 0);
        }
    }
}

/* The relu computed on the host, the rest without it: same bits as the fused group. */
static void fused_relu_keeps_bits(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "a = x 16,8,8; b = conv2d a out=16 kernel=3,3 pad=1,1",
        "a = x 12,5,5; b = conv2d a out=20 kernel=3,3 pad=1,1",
        "a = x 16,8,8; b = batch_norm a",
        "a = x 5,3,3; b = batch_norm a",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char with_relu[128];
        strcat(strcpy(with_relu, lines[i]), "; c = relu b");
        harness_options options = {.backend = &fr__backend_cpu, .batch = 4};
        net n_fused, n_alone;
        harness fused, alone;
        verdict v;
        net_build(&n_fused, with_relu);
        net_build(&n_alone, lines[i]);
        open_on(&fused, &n_fused, &options);
        open_on(&alone, &n_alone, &options);
        run(&fused);
        for (size_t j = 0; j < fused.n_y[0]; j++)
            alone.dy[0][j] = fused.y[0][j] > 0 ? fused.dy[0][j] : 0;
        run(&alone);
        for (size_t j = 0; j < alone.n_y[0]; j++)
            if (!(alone.y[0][j] > 0)) alone.y[0][j] = 0;
        if (!harness_same(&v, &fused, &alone, 0)) fail_msg("%s: %s", with_relu, v.text);
        harness_close(&fused);
        harness_close(&alone);
        net_free(&n_fused);
        net_free(&n_alone);
    }
}

/* Parameter gradients of a part against those of the whole, by name. */
static void same_grads(const harness *part, const harness *whole)
{
    for (int i = 0; i < part->n_params; i++) {
        int param = fr_program_placement(part->program, i)->param, j = 0;
        while (fr_program_placement(whole->program, j)->param != param) j++;
        if (part->dw[i])
            assert_memory_equal(part->dw[i], whole->dw[j], part->n_w[i] * sizeof(float));
    }
}

/* At every cut a tensor becomes row-major, which must not change a bit. */
static void cut_keeps_bits(void **state)
{
    (void)state;
    const harness_options options = {.backend = &fr__backend_cpu, .batch = 4};
    net n;
    harness whole, head, tail;
    net_build(&n, "a = x 3,16,16; b = conv2d a out=16 kernel=3,3 pad=1,1; c = batch_norm b; "
                  "d = max_pool c kernel=2,2; e = conv2d d out=32 kernel=1,1; "
                  "f = avg_pool e kernel=3,3 stride=2,2 pad=1,1; g = conv2d f out=64 kernel=3,3; "
                  "h = batch_norm g; i = global_pool h");
    open_on(&whole, &n, &options);
    run(&whole);
    for (int cut = n.stage.first + 1; cut < n.stage.last; cut++) {
        const fr_stage first = {.first = n.stage.first, .last = cut};
        const fr_stage second = {.first = cut, .last = n.stage.last};
        assert_int_equal(harness_open_graph(&head, n.graph, &first, &options), FR_OK);
        assert_int_equal(harness_open_graph(&tail, n.graph, &second, &options), FR_OK);
        harness_fill(&head, &n, 1);
        harness_fill(&tail, &n, 1);
        assert_int_equal(harness_forward(&head), FR_OK);
        memcpy(tail.x[0], head.y[0], head.n_y[0] * sizeof(float));
        run(&tail);
        memcpy(head.dy[0], tail.dx[0], head.n_y[0] * sizeof(float));
        run(&head);
        assert_memory_equal(tail.y[0], whole.y[0], whole.n_y[0] * sizeof(float));
        assert_memory_equal(head.dx[0], whole.dx[0], whole.n_x[0] * sizeof(float));
        same_grads(&head, &whole);
        same_grads(&tail, &whole);
        harness_close(&head);
        harness_close(&tail);
    }
    harness_close(&whole);
    net_free(&n);
}

/* Programs for other batches, and for evaluation, share the weights: the same bytes in each. */
static void weights_lie_alike(void **state)
{
    (void)state;
    for (int i = 0; i < N_NETS; i++) {
        net n;
        harness h[3];
        float *block[3] = {NULL};
        net_build(&n, nets[i]);
        for (int k = 0; k < 3; k++) {
            const harness_options options = {
                .backend = &fr__backend_cpu, .batch = k == 0 ? 1 : 16 * k, .eval = k != 1};
            open_on(&h[k], &n, &options);
            block[k] = calloc(fr_program_sizes_of(h[k].program)->n_weights + 1, sizeof(float));
            assert_non_null(block[k]);
            for (int p = 0; p < h[k].n_params; p++)
                if (h[k].dw[p])
                    assert_int_equal(fr_program_write_param(h[k].program, block[k], p, h[k].w[p]),
                                     FR_OK);
        }
        size_t count = fr_program_sizes_of(h[0].program)->n_weights;
        for (int k = 1; k < 3; k++) {
            assert_int_equal(fr_program_sizes_of(h[k].program)->n_weights, count);
            if (memcmp(block[k], block[0], count * sizeof(float)) != 0) fail_msg("%s", nets[i]);
        }
        for (int k = 0; k < 3; k++) {
            free(block[k]);
            harness_close(&h[k]);
        }
        net_free(&n);
    }
}

/* The weights that backward_input caches in its own layout are reused for the same id only. */
static void derived_weights_follow_their_id(void **state)
{
    (void)state;
    const harness_options options = {.backend = &fr__backend_cpu, .batch = 2};
    net n;
    harness kept, fresh;
    verdict v;
    net_build(&n, "a = x 16,21,21; b = conv2d a out=32 kernel=3,3 pad=1,1");
    open_on(&kept, &n, &options);
    open_on(&fresh, &n, &options);
    for (uint64_t id = 1; id <= 3; id++) {
        for (int i = 0; i < kept.n_params; i++) {
            harness_random(id, (uint32_t)i, kept.w[i], kept.n_w[i]);
            memcpy(fresh.w[i], kept.w[i], kept.n_w[i] * sizeof(float));
        }
        for (int again = 0; again < 2; again++) {
            kept.pass.weights_id = id;
            run(&kept);
            run(&fresh);
            if (!harness_same(&v, &kept, &fresh, 0)) fail_msg("%s", v.text);
        }
    }
    harness_close(&kept);
    harness_close(&fresh);
    net_free(&n);
}

/* A NaN spreads as in ref: fused relus and maxima pass it on. */
static void nan_is_seen(void **state)
{
    (void)state;
    for (int i = 0; i < N_NETS; i++) {
        harness_options options = {.backend = &fr__backend_cpu, .batch = 2, .eval = true};
        net n;
        harness cpu, ref;
        net_build(&n, nets[i]);
        open_on(&cpu, &n, &options);
        options.backend = &fr__backend_ref;
        open_on(&ref, &n, &options);
        ((float *)cpu.x[0])[cpu.n_x[0] / 3] = ((float *)ref.x[0])[ref.n_x[0] / 3] = NAN;
        assert_int_equal(harness_forward(&cpu), FR_OK);
        assert_int_equal(harness_forward(&ref), FR_OK);
        for (size_t j = 0; j < cpu.n_y[0]; j++)
            if (isnan(cpu.y[0][j]) != isnan(ref.y[0][j])) fail_msg("%s: y[%zu]", nets[i], j);
        harness_close(&cpu);
        harness_close(&ref);
        net_free(&n);
    }
}

/* All image operators, with reorders between layouts. */
static const char everything[] =
    "a = x 3,12,12; b = x 8,12,12; c = conv2d a out=20 kernel=3,3 pad=1,1; d = batch_norm c; "
    "e = relu d; f = conv2d b out=8 kernel=1,1; g = concat e f; h = max_pool g kernel=2,2; "
    "i = avg_pool h kernel=3,3 stride=1,1 pad=1,1; j = conv2d i out=32 kernel=1,1; "
    "k = conv2d j out=16 kernel=3,3; l = relu k; m = global_pool l; n = flatten l";

/* Each allocation fails once, on a device that has made nothing yet. */
static void memory_may_run_out(void **state)
{
    (void)state;
    const fr_device_desc desc = {.n_threads = 1};
    net n;
    net_build(&n, everything);
    fr_ctx *ctx = fr_ctx_create();
    const fr_program_desc wanted = {
        .graph = n.graph, .stage = &n.stage, .batch = 2, .training = true};
    int n_allowed = 0;
    for (fr_status status = FR_NO_MEMORY; status != FR_OK; n_allowed++) {
        fr_device *dev;
        fr_program *program = NULL;
        assert_int_equal(fr_device_open(ctx, &fr__backend_cpu, &desc, &dev), FR_OK);
        uint64_t before = fr__alloc_count();
        fr__alloc_fail_after(n_allowed);
        status = fr_program_create(ctx, dev, &wanted, &program);
        fr__alloc_fail_after(-1);
        if (status == FR_OK)
            assert_int_equal(fr__alloc_count() - before, n_allowed);
        else
            assert_int_equal(status, FR_NO_MEMORY);
        fr_ctx_clear(ctx);
        fr_program_free(program);
        assert_int_equal(fr_device_bytes(dev), 0);
        fr_device_close(dev);
    }
    assert_true(n_allowed > 1);
    fr_ctx_free(ctx);
    net_free(&n);
}

static void runs_allocate_nothing(void **state)
{
    (void)state;
    const harness_options options = {.backend = &fr__backend_cpu, .batch = 2};
    net n;
    harness h;
    net_build(&n, everything);
    open_on(&h, &n, &options);
    run(&h);
    uint64_t before = fr__alloc_count();
    assert_int_equal(fr_program_forward(h.program, &h.pass), FR_OK);
    assert_int_equal(fr_program_backward(h.program, &h.pass, FR_GRAD_BOTH), FR_OK);
    assert_int_equal(fr__alloc_count(), before);
    harness_close(&h);
    net_free(&n);
}

static void refuses_one_value_a_channel(void **state)
{
    (void)state;
    const harness_options options = {.backend = &fr__backend_cpu, .batch = 1};
    net n;
    harness h;
    net_build(&n, "a = x 7; b = batch_norm a");
    assert_int_equal(harness_open(&h, &n, &options), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(h.ctx), "node b"));
    harness_close(&h);
    net_free(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_ref),
        cmocka_unit_test(split_backward_keeps_bits),
        cmocka_unit_test(threads_keep_bits),
        cmocka_unit_test(fused_relu_keeps_bits),
        cmocka_unit_test(cut_keeps_bits),
        cmocka_unit_test(derived_weights_follow_their_id),
        cmocka_unit_test(weights_lie_alike),
        cmocka_unit_test(nan_is_seen),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(runs_allocate_nothing),
        cmocka_unit_test(refuses_one_value_a_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
