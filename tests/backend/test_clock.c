/* test_clock.c -- programs that time their steps: the same bits as without, every step's time
 * assigned to a node that computes, and all bytes of slots assigned to nodes. */
#include "base/thread.h"
#include "support/check.h"
#include "support/harness.h"

#include <time.h>

static const char line[] =
    "a = x 4,8,8; n = batch_norm a; b = conv2d n out=6 kernel=3,3 pad=1,1; c = relu b; "
    "d = conv2d c out=6 kernel=1,1; e = add d c; f = flatten e; "
    "g = linear f out=10";

static void same_bits(void **state)
{
    (void)state;
    for (const fr_backend *const *b = fr_backend_list(); *b; b++)
        for (int split = 0; split < 2; split++) {
            net n;
            harness plain, timed;
            verdict v;
            fr_node_time times[NET_MAX_NODES] = {{0}};
            harness_options o = {.backend = *b, .batch = 2, .split = split, .transient = true};
            net_build(&n, line);
            assert_int_equal(harness_open(&plain, &n, &o), FR_OK);
            assert_int_equal(harness_open(&timed, &n, &o), FR_OK);
            harness_fill(&plain, &n, 3);
            harness_fill(&timed, &n, 3);
            fr_program_time(timed.program, times);
            assert_ok(plain.ctx, harness_run(&plain));
            assert_ok(timed.ctx, harness_run(&timed));
            if (!harness_same(&v, &timed, &plain, 0)) fail_msg("%s", v.text);

            for (const char *name = "bdeg"; *name; name++) {
                const fr_node_time *t = &times[fr_graph_find(n.graph, (char[2]){*name, 0})];
                assert_true(t->forward > 0);
                bool is_trained = *name != 'e';
                assert_true((t->back_weight > 0) == is_trained && (t->ready > 0) == is_trained);
                assert_true(is_trained ? t->back_input > 0 : t->back_weight == 0);
            }
            const fr_program_sizes *sizes = fr_program_sizes_of(timed.program);
            size_t kept = 0, fixed = 0, values = 0, scratch = 0;
            for (int i = 0; i < fr_graph_n_nodes(n.graph); i++) {
                size_t alive = fr_program_values_bytes(timed.program, i);
                size_t own = fr_program_scratch_bytes(timed.program, i);
                values = alive > values ? alive : values;
                scratch = own > scratch ? own : scratch;
                kept += fr_program_kept_bytes(timed.program, i);
                fixed += fr_program_fixed_bytes(timed.program, i);
            }
            assert_int_equal(fixed, sizes->cache_bytes + sizes->n_buffers * sizeof(float));
            assert_int_equal(kept, sizes->slot_bytes);
            assert_true(kept > 0);
            assert_true(split || values > 0);
            assert_int_equal(values + scratch, sizes->workspace_bytes);

            fr_node_time before = times[fr_graph_find(n.graph, "g")];
            fr_program_time(timed.program, NULL);
            assert_ok(timed.ctx, harness_run(&timed));
            fr_node_time after = times[fr_graph_find(n.graph, "g")];
            assert_memory_equal(&before, &after, sizeof after);
            harness_close(&plain);
            harness_close(&timed);
            net_free(&n);
        }
}

static void slow_ready(void *user, size_t offset, size_t count, const float *grad)
{
    (void)user, (void)offset, (void)count, (void)grad;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* The time of grad_ready counts for the update, not for the node. */
static void ready_is_apart(void **state)
{
    (void)state;
    net n;
    harness h;
    fr_node_time times[NET_MAX_NODES] = {{0}};
    harness_options o = {.backend = fr_backend_list()[0], .batch = 2, .zeroed = true};
    net_build(&n, "a = x 4; b = linear a out=10");
    assert_int_equal(harness_open(&h, &n, &o), FR_OK);
    harness_fill(&h, &n, 3);
    assert_ok(h.ctx, harness_run(&h));
    fr_program_time(h.program, times);
    h.pass.grad_ready = slow_ready;
    uint64_t start = fr__now_ns();
    assert_ok(h.ctx, fr_program_backward(h.program, &h.pass, FR_GRAD_BOTH));
    double took = (double)(fr__now_ns() - start) * 1e-9;
    const fr_node_time *b = &times[fr_graph_find(n.graph, "b")];
    assert_true(b->ready >= 0.04); /* weight and bias */
    assert_true(b->back_weight >= 0 && b->back_weight + b->ready <= took);
    harness_close(&h);
    net_free(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits),
                                       cmocka_unit_test(ready_is_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
