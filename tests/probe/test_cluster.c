/* test_cluster.c -- this machine as a cluster: measured links, existing devices, and a file with
 * the same content. */
#include <forerun/probe.h>

#include "base/thread.h"
#include "support/check.h"

#include <math.h>

static void threads(void **state)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_cluster *c, *again;
    fr_links *links;
    const char *path = support_path(state, "here.yaml");
    assert_ok(ctx, fr_probe_cluster(ctx, fr_transport_find("threads"), NULL, 0, &c));
    assert_int_equal(c->n_devices, fr__cpu_count());
    fr_cluster_free(c);
    assert_ok(ctx, fr_probe_cluster(ctx, fr_transport_find("threads"), NULL, 3, &c));
    assert_int_equal(c->n_devices, 3);
    assert_int_equal(c->n_groups, 1);
    double latency = c->groups[0].latency;
    assert_true(latency > 0 && isfinite(latency));
    assert_true(c->groups[0].bandwidth >= 0);
    for (int i = 0; i < 3; i++) assert_true(c->devices[i].speed == 1 && c->devices[i].memory > 0);
    assert_ok(ctx, fr_links_create(ctx, c, &links));
    assert_true(fabs(fr_links_send_time(links, 0, 2, 0) - latency) < 1e-9);
    fr_links_free(links);
    assert_ok(ctx, fr_cluster_write(ctx, c, path));
    assert_ok(ctx, fr_cluster_read(ctx, path, &again));
    assert_int_equal(again->n_devices, 3);
    assert_int_equal(again->devices[2].memory, c->devices[2].memory);
    assert_true(fabs(again->groups[0].latency - latency) <= 1e-6 * latency);
    assert_true(fabs(again->groups[0].bandwidth - c->groups[0].bandwidth) <=
                1e-6 * c->groups[0].bandwidth);
    fr_cluster_free(c);
    fr_cluster_free(again);
    fr_ctx_free(ctx);
}

static fr_status probe_once(fr_ctx *ctx, void *user)
{
    fr_cluster *c;
    fr_status status = fr_probe_cluster(ctx, user, NULL, 2, &c);
    fr_cluster_free(c);
    return status;
}

static void no_memory(void **state)
{
    (void)state;
    union {
        const fr_transport *in;
        void *out;
    } transport = {fr_transport_find("threads")};
    assert_true(support_walk_memory(probe_once, transport.out) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads), cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, support_dir_make, support_dir_remove);
}
