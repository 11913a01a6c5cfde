/* test_exact_sum.c -- exact sums: the plan against a direct recursion, blocks counted by hand,
 * replicas against one worker, bit for bit. */
#include "exec/exact_sum.h"

#include "backend/device.h"
#include "base/philox.h"

#include <string.h>

#include "support/test.h"

enum { COUNT = 37, STRIDE = 40, MAX_N = 64 };

/* Numbers of very different sizes, so that the order of additions affects the bits. */
static float grad(int micro, int i)
{
    uint32_t r[4];
    fr__random4(5, FR_STREAM_SYNTHETIC, (uint32_t)micro, (uint64_t)i, 0, r);
    float size = (float)(1u << (r[1] % 24));
    return (2 * fr__unit_float(r[0]) - 1) * size;
}

static float direct(int n, int a, int s, int i)
{
    if (a + s >= n) return grad(a, i);
    return direct(n, a, 2 * s, i) + direct(n, a + s, 2 * s, i);
}

/* The additions of a worker with micro-batches first, first + step, ... */
static void run(const fr__tree *t, int first, int step, float out[COUNT])
{
    static float blocks[(MAX_N + 1) * STRIDE];
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) blocks[i] = 1e30f;
    for (int j = 0; j < t->n; j++) {
        float *to = blocks + (size_t)t->block[j] * STRIDE;
        for (int i = 0; i < COUNT; i++) to[i] = grad(first + j * step, i);
        for (int m = t->first_merge[j]; m < t->first_merge[j + 1]; m++)
            for (int i = 0; i < COUNT; i++)
                blocks[t->merges[m].to * STRIDE + i] += blocks[t->merges[m].from * STRIDE + i];
    }
    for (int b = t->n_blocks; b <= MAX_N; b++) /* nothing beyond the last block */
        for (int i = 0; i < STRIDE; i++) assert_true(blocks[b * STRIDE + i] == 1e30f);
    memcpy(out, blocks, COUNT * sizeof(float));
}

static void plan_is_the_recursion(void **unused)
{
    (void)unused;
    for (int n = 1; n <= MAX_N; n++) {
        fr_arena arena = {0};
        fr__tree t;
        float expected[COUNT], sum[COUNT];
        assert_true(fr__tree_plan(&arena, n, &t));
        assert_true(t.n == n && t.block[0] == 0 && t.first_merge[0] == 0 &&
                    t.first_merge[n] == n - 1);
        for (int i = 0; i < COUNT; i++) expected[i] = direct(n, 0, 1, i);
        run(&t, 0, 1, sum);
        assert_memory_equal(sum, expected, sizeof sum);
        fr__arena_fini(&arena);
    }
}

static int last_of(int n, int a, int s) { return a + (n - 1 - a) / s * s; }

/* Subtrees that are complete before micro-batch j, and not part of a larger complete one. */
static int whole_before(int n, int a, int s, int j)
{
    if (last_of(n, a, s) < j) return 1;
    if (a + s >= n) return 0;
    return whole_before(n, a, 2 * s, j) + whole_before(n, a + s, 2 * s, j);
}

/* The minimum: adding along the tree needs these blocks and the one that is written. */
static void blocks_are_few(void **unused)
{
    (void)unused;
    for (int n = 1; n <= MAX_N; n++) {
        fr_arena arena = {0};
        fr__tree t;
        int most = 1;
        assert_true(fr__tree_plan(&arena, n, &t));
        for (int j = 0; j < n; j++) {
            int held = whole_before(n, 0, 1, j) + 1;
            if (held > most) most = held;
        }
        assert_int_equal(t.n_blocks, most);
        if (n > 1 && (n & (n - 1)) == 0) assert_int_equal(t.n_blocks, n / 2 + 1);
        fr__arena_fini(&arena);
    }
}

/* Each of R replicas adds its share, then the transport adds the replicas. */
static void replicas_give_the_same_bits(void **unused)
{
    (void)unused;
    int n_compared = 0;
    for (int n = 1; n <= MAX_N; n++)
        for (int r = 1; r <= 8 && r <= n; r *= 2) {
            if (n % r) continue;
            fr_arena arena = {0};
            fr__tree whole, share;
            float one[COUNT], part[8][COUNT], all[COUNT];
            const float *from[8];
            assert_true(fr__tree_plan(&arena, n, &whole) && fr__tree_plan(&arena, n / r, &share));
            run(&whole, 0, 1, one);
            for (int q = 0; q < r; q++) {
                run(&share, q, r, part[q]);
                from[q] = part[q];
            }
            fr__tree_sum(all, from, r, COUNT);
            assert_memory_equal(all, one, sizeof one);
            n_compared++;
            fr__arena_fini(&arena);
        }
    assert_int_equal(n_compared, 64 + 32 + 16 + 8);
}

/* The order matters: adding one after the other gives other bits. */
static void order_matters(void **unused)
{
    (void)unused;
    int n_different = 0;
    for (int i = 0; i < COUNT; i++) {
        float sum = grad(0, i);
        for (int j = 1; j < 8; j++) sum += grad(j, i);
        n_different += sum != direct(8, 0, 1, i);
    }
    assert_true(n_different > COUNT / 4);
}

static void memory_runs_out(void **unused)
{
    (void)unused;
    fr__tree t;
    fr_arena arena = {0};
    fr__alloc_fail_after(0);
    bool is_made = fr__tree_plan(&arena, 5, &t);
    fr__alloc_fail_after(-1);
    assert_false(is_made);
    fr__arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_is_the_recursion),
        cmocka_unit_test(blocks_are_few),
        cmocka_unit_test(replicas_give_the_same_bits),
        cmocka_unit_test(order_matters),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
