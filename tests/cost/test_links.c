/* test_links.c -- times of messages and reductions on links, against the rules of docs/cluster.md,
 * computed by hand. */
#include <forerun/cost.h>

#include <math.h>
#include <stdlib.h>

#include "support/test.h"

/* Two boxes of two devices: 10 bytes/s and 0.5 s in a box, 2 bytes/s and 1 s between. */
static fr_cluster_device devices[] = {
    {.name = "a0", .speed = 1, .group = 1},
    {.name = "a1", .speed = 1, .group = 1},
    {.name = "b0", .speed = 1, .group = 2},
    {.name = "b1", .speed = 1, .group = 2},
};
static fr_cluster_group groups[] = {
    {.name = "root", .bandwidth = 2, .latency = 1, .parent = -1},
    {.name = "a", .bandwidth = 10, .latency = 0.5, .parent = 0},
    {.name = "b", .bandwidth = 10, .latency = 0.5, .parent = 0},
};

static fr_cluster boxes(void)
{
    return (fr_cluster){.name = "boxes",
                        .path = "",
                        .n_devices = 4,
                        .n_groups = 3,
                        .devices = devices,
                        .groups = groups};
}

static fr_links *links_of(const fr_cluster *c)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_links *l = NULL;
    assert_int_equal(fr_links_create(ctx, c, &l), FR_OK);
    fr_ctx_free(ctx);
    return l;
}

static void is_near(double a, double b) { assert_true(fabs(a - b) <= 1e-9 * (1 + fabs(b))); }

static void routes_by_hand(void **state)
{
    (void)state;
    fr_cluster c = boxes();
    fr_links *l = links_of(&c);
    is_near(fr_links_send(l, 1, 1, 100, 3), 3);
    is_near(fr_links_send_time(l, 0, 1, 20), 2 + 0.5);
    is_near(fr_links_send_time(l, 0, 2, 20), 10 + 0.5 + 1 + 0.5);
    /* Up through box a: its port at the root is busy until 10, the port of a0 until 2 only. */
    is_near(fr_links_send(l, 0, 2, 20, 0), 12);
    is_near(fr_links_send(l, 0, 1, 20, 0), 2 + 2 + 0.5);
    is_near(fr_links_send(l, 1, 3, 20, 0), 10 + 12);
    is_near(fr_links_send(l, 3, 1, 20, 0), 4 + 12); /* the port into a1 is busy until 4 */
    fr_links_reset(l);                              /* and directions are independent: */
    is_near(fr_links_send(l, 0, 2, 20, 5), 17);
    is_near(fr_links_send(l, 2, 0, 20, 5), 17);
    assert_true(isnan(fr_links_send(l, 0, 4, 1, 0)));
    fr_links_free(l);
}

static void a_bus_serves_one(void **state)
{
    (void)state;
    fr_cluster c = boxes();
    fr_cluster_group bus = {
        .name = "bus", .bandwidth = 10, .latency = 0.5, .is_shared = true, .parent = -1};
    fr_cluster_device on_bus[3] = {{.speed = 1}, {.speed = 1}, {.speed = 1}};
    c.n_groups = 1, c.groups = &bus, c.n_devices = 3, c.devices = on_bus;
    fr_links *l = links_of(&c);
    is_near(fr_links_send(l, 0, 1, 20, 0), 2.5);
    is_near(fr_links_send(l, 1, 0, 20, 0), 4.5);
    is_near(fr_links_send(l, 2, 0, 20, 9), 11.5);
    /* Three edges of 4/3 * 30 bytes on one bus; tree and ring: 4 latencies. */
    is_near(fr_links_sum_time(l, 3, (int[]){0, 1, 2}, 30), 3 * 40 / 10. + 4 * 0.5);
    is_near(fr_links_sum(l, 3, (int[]){0, 1, 2}, 30, 0), 11 + 12 + 2);
    fr_links_free(l);
}

static void sums_go_round_a_ring(void **state)
{
    (void)state;
    fr_cluster c = boxes();
    fr_links *l = links_of(&c);
    is_near(fr_links_sum_time(l, 1, (int[]){2}, 1000), 0);
    is_near(fr_links_sum_time(l, 2, (int[]){0, 1}, 20), 2 + 2 * 0.5);
    /* Each edge 1.5 * 20 bytes; one edge leaves each box: 30 bytes at 2 a second. 4 latencies of
     * the longest way (2 s): two trees of depth 2. In any order, and each device once. */
    is_near(fr_links_sum_time(l, 4, (int[]){0, 1, 2, 3}, 20), 15 + 4 * 2);
    is_near(fr_links_sum_time(l, 6, (int[]){2, 0, 3, 0, 1, 1}, 20), 15 + 4 * 2);
    /* A later message waits for the port at the root; one inside a box waits for its own port. */
    is_near(fr_links_sum(l, 4, (int[]){0, 1, 2, 3}, 20, 1), 1 + 23);
    is_near(fr_links_send(l, 1, 3, 20, 0), 16 + 12);
    is_near(fr_links_send(l, 0, 1, 20, 0), 1 + 3 + 2.5);
    assert_true(isnan(fr_links_sum(l, 2, (int[]){0, 9}, 20, 0)));
    is_near(fr_links_sum_time(l, 2, (int[]){0, 1}, 20), 3);
    fr_links_free(l);
}

static void free_links_take_latency_only(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_cluster *c;
    assert_int_equal(fr_cluster_flat(ctx, 5, 0, 0.25, &c), FR_OK);
    fr_links *l = links_of(c);
    for (int i = 0; i < 3; i++) is_near(fr_links_send(l, 0, 1, 1u << 30, 1), 1.25);
    is_near(fr_links_sum(l, 5, (int[]){0, 1, 2, 3, 4}, 1u << 30, 1), 1 + 6 * 0.25);
    fr_links_free(l);
    fr_cluster_free(c);
    fr_ctx_free(ctx);
}

static void refuses_what_is_no_tree(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_cluster c = boxes();
    fr_links *l;
    fr_cluster_group turned[3] = {groups[1], groups[0], groups[2]};
    c.groups = turned;
    assert_int_equal(fr_links_create(ctx, &c, &l), FR_INVALID);
    assert_null(l);
    fr_ctx_clear(ctx);
    c = boxes();
    c.n_groups = 2;
    assert_int_equal(fr_links_create(ctx, &c, &l), FR_INVALID);
    fr_ctx_free(ctx);
}

/* Messages of one port leave in the order of calls and never overlap. No message is faster than on
 * idle links. */
static void messages_queue(void **state)
{
    (void)state;
    fr_cluster c = boxes();
    fr_links *l = links_of(&c);
    uint64_t seed = 7;
    double last = 0, ready = 0;
    for (int i = 0; i < 2000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int to = 1 + (int)((seed >> 33) % 3);
        size_t bytes = (size_t)((seed >> 40) % 50);
        ready += (double)((seed >> 50) % 4);
        double alone = fr_links_send_time(l, 0, to, bytes);
        double there = fr_links_send(l, 0, to, bytes, ready);
        assert_true(there >= ready + alone - 1e-9);
        double left = there - alone;
        assert_true(left >= last - 1e-6);
        last = left + (double)bytes / 10;
    }
    fr_links_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_by_hand),          cmocka_unit_test(a_bus_serves_one),
        cmocka_unit_test(sums_go_round_a_ring),    cmocka_unit_test(free_links_take_latency_only),
        cmocka_unit_test(refuses_what_is_no_tree), cmocka_unit_test(messages_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
