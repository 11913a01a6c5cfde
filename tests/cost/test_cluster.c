/* test_cluster.c -- cluster files: meaning, errors with positions, round trips, the examples. */
#include "support/test.h"

#include "base/alloc.h"

#include <forerun/cost.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/forerun-cluster-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    static const char *const files[] = {"cluster.yaml", "bad.yaml", "back.yaml"};
    for (int i = 0; i < 3; i++) unlink(files[i]);
    return chdir("/") == 0 ? rmdir(folder) : -1;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
}

static fr_cluster *read_text(fr_ctx *ctx, const char *text)
{
    fr_cluster *c = NULL;
    write_text("cluster.yaml", text);
    fr_status status = fr_cluster_read(ctx, "cluster.yaml", &c);
    if (status != FR_OK) print_error("%s\n", fr_ctx_error(ctx));
    assert_int_equal(status, FR_OK);
    return c;
}

static void reads_units_and_counts(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_cluster *c = read_text(ctx, "name: x\n"
                                   "device: {name: gpu, flops: 10 TFLOP/s, memory: 16 GiB}\n"
                                   "topology:\n"
                                   "  bandwidth: 10 Gbit/s\n"
                                   "  latency: 5 us\n"
                                   "  groups:\n"
                                   "    - {count: 2, name: box, bandwidth: 12 GB/s, shared: true,\n"
                                   "       devices: 2}\n"
                                   "    - name: odd\n"
                                   "      bandwidth: 100\n"
                                   "      latency: 0.5ms\n"
                                   "      device: {efficiency: 0.25}\n"
                                   "      devices:\n"
                                   "        - {name: slow, speed: 0.5, memory: 2000}\n"
                                   "        - {count: 2}\n");
    assert_int_equal(c->n_devices, 7);
    assert_int_equal(c->n_groups, 4);
    assert_string_equal(c->groups[2].name, "box-1");
    assert_string_equal(c->devices[3].name, "box-1/gpu-1");
    assert_string_equal(c->devices[4].name, "odd/slow");
    assert_string_equal(c->devices[6].name, "odd/gpu-2");
    assert_true(c->groups[0].bandwidth == 1.25e9 && c->groups[0].latency == 5e-6);
    assert_true(c->groups[1].bandwidth == 12e9 && c->groups[1].is_shared);
    assert_true(c->groups[3].bandwidth == 100 && fabs(c->groups[3].latency - 0.5e-3) < 1e-15);
    assert_int_equal(c->groups[3].parent, 0);
    assert_int_equal(c->devices[2].group, 2);
    assert_true(c->devices[0].flops == 5e12 && c->devices[0].speed == 0);
    assert_int_equal(c->devices[0].memory, (int64_t)16 << 30);
    assert_true(c->devices[4].speed == 0.5 && c->devices[4].flops == 0);
    assert_int_equal(c->devices[4].memory, 2000);
    assert_true(c->devices[5].flops == 2.5e12);
    fr_cluster_free(c);
    fr_ctx_free(ctx);
}

static void says_speeds(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_cluster *c = read_text(ctx, "topology: {bandwidth: free, devices: [{}, {speed: 2},\n"
                                   "  {flops: 1 TFLOP/s, efficiency: 1}]}\n");
    fr_profile_node node = {.forward_s = 1, .backward_s = 3, .flops = 2e12};
    fr_profile p = {.n_nodes = 1, .nodes = &node};
    assert_true(fr_cluster_speed(c, 0, NULL) == 1);
    assert_true(fr_cluster_speed(c, 1, &p) == 2);
    assert_true(fr_cluster_speed(c, 2, &p) == 2); /* 1e12 against 2e12 in 4 s */
    assert_true(isnan(fr_cluster_speed(c, 2, NULL)));
    fr_cluster_free(c);
    fr_ctx_free(ctx);
}

#define LONG "0123456789012345678901234567890123456789"

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *place, *about;
    } cases[] = {
        {"name: x\n", "cluster.yaml", "topology"},
        {"topology: {bandwidth: 1, devices: 0}\n", ":1:35", "devices"},
        {"topology: {bandwidth: 1, devices: []}\n", ":1:26", "without devices"},
        {"topology: {bandwidth: 1, groups: []}\n", ":1:26", "at least one"},
        {"topology: {devices: 2}\n", ":1:1", "bandwidth"},
        {"topology:\n  bandwidth: 0\n  devices: 2\n", ":2:14", "bandwidth"},
        {"topology:\n  bandwidth: -1 GB/s\n  devices: 2\n", ":2:14", "bandwidth"},
        {"topology:\n  bandwidth: 10 GB\n  devices: 2\n", ":2:14", "a rate"},
        {"topology:\n  bandwidth: 1\n  latency: 5 kg\n  devices: 2\n", ":3:12", "a time"},
        {"topology:\n  bandwidth: 1\n", ":1:1", "neither"},
        {"topology:\n  bandwidth: 1\n  devices: 2\n  groups: [{}]\n", ":4:3", "both"},
        {"topology:\n  bandwith: 1\n  devices: 2\n", ":1:1", "bandwidth"},
        {"topology:\n  bandwidth: 1\n  devises: 2\n  devices: 2\n", ":3:3", "devices"},
        {"device: {speed: 1, flops: 1}\ntopology: {bandwidth: 1, devices: 2}\n", ":1:17", "both"},
        {"device: {efficiency: 1}\ntopology: {bandwidth: 1, devices: 2}\n", ":1:22", "flops"},
        {"device: {flops: 1, efficiency: 2}\ntopology: {bandwidth: 1, devices: 2}\n", ":1:32",
         "from"},
        {"device: {memory: -5}\ntopology: {bandwidth: 1, devices: 2}\n", ":1:18", "memory"},
        {"topology: {bandwidth: 1, groups: [{count: 2000, bandwidth: 1, devices: 2000}]}\n", ":1:1",
         "4000000 devices"},
        {"topology: {bandwidth: 1, devices: 2000000}\n", ":1:35", "devices"},
        {"topology: {name: '', bandwidth: 1, devices: 2}\n", ":1:19", "1 to 64"},
        {"device: {name: " LONG LONG "}\ntopology: {bandwidth: 1, devices: 2}\n", ":1:16",
         "a name of 80 bytes"},
        {"topology: {bandwidth: 1, groups: [{count: 1000, name: " LONG ", bandwidth: 1, groups: "
         "[{name: " LONG ", bandwidth: 1, devices: 1000}]}]}\n",
         ":1:1", "names of"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_ctx *ctx = fr_ctx_create();
        fr_cluster *c;
        write_text("bad.yaml", cases[i].text);
        assert_int_equal(fr_cluster_read(ctx, "bad.yaml", &c), FR_INVALID);
        assert_null(c);
        const char *said = fr_ctx_error(ctx);
        const char *place = strcmp(cases[i].place, "cluster.yaml") ? cases[i].place : "bad.yaml";
        if (!strstr(said, place) || !strstr(said, cases[i].about))
            fail_msg("case %zu: %s", i, said);
        fr_ctx_free(ctx);
    }
}

static void is_same(const fr_cluster *a, const fr_cluster *b)
{
    assert_string_equal(a->name, b->name);
    assert_true(a->overhead_s == b->overhead_s);
    assert_int_equal(a->n_devices, b->n_devices);
    assert_int_equal(a->n_groups, b->n_groups);
    for (int i = 0; i < a->n_devices; i++) {
        const fr_cluster_device *x = &a->devices[i], *y = &b->devices[i];
        assert_string_equal(x->name, y->name);
        assert_true(x->speed == y->speed && x->flops == y->flops && x->memory == y->memory &&
                    x->group == y->group);
    }
    for (int i = 0; i < a->n_groups; i++) {
        const fr_cluster_group *x = &a->groups[i], *y = &b->groups[i];
        assert_string_equal(x->name, y->name);
        assert_true(x->bandwidth == y->bandwidth && x->latency == y->latency &&
                    x->is_shared == y->is_shared && x->parent == y->parent);
    }
}

static void there_and_back(fr_ctx *ctx, const fr_cluster *c)
{
    fr_cluster *back = NULL;
    fr_status status = fr_cluster_write(ctx, c, "back.yaml");
    if (status == FR_OK) status = fr_cluster_read(ctx, "back.yaml", &back);
    if (status != FR_OK) print_error("%s: %s\n", c->name, fr_ctx_error(ctx));
    assert_int_equal(status, FR_OK);
    is_same(c, back);
    fr_cluster_free(back);
}

static void writes_what_it_reads(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_cluster *c = read_text(
        ctx,
        "name: \"a: b\"\n"
        "topology:\n"
        "  name: all\n"
        "  bandwidth: 12345.678\n"
        "  latency: 0.1 us\n"
        "  groups:\n"
        "    - {bandwidth: free, devices: [{name: x-0}, {name: x-1}, {count: 2, name: x}, {}]}\n"
        "    - {count: 3, name: g, bandwidth: 3, shared: true, groups: [\n"
        "        {name: in, bandwidth: 0.1 GB/s, devices: [{speed: 0.3}, {memory: 7}]},\n"
        "        {bandwidth: 1 MiB/s, latency: 1e-7, devices: 3}]}\n");
    there_and_back(ctx, c);
    fr_cluster_free(c);
    assert_int_equal(fr_cluster_flat(ctx, 7, 0, 0.1, &c), FR_OK);
    assert_int_equal(c->n_devices, 7);
    there_and_back(ctx, c);
    fr_cluster_free(c);
    assert_int_equal(fr_cluster_flat(ctx, 0, 0, 0, &c), FR_INVALID);
    fr_ctx_free(ctx);
}

static void examples_load(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n_devices, n_groups;
        double first, last; /* bytes/s of 1 MB between the first two, and first and last device */
    } examples[] = {
        {"p40x4-pcie", 4, 1, 12e9, 12e9},
        {"slow-link-x4", 4, 1, 980e6, 980e6},
        {"v100-1x8", 8, 1, 150e9, 150e9},
        {"v100-8x8-ethernet", 64, 9, 150e9, 1.25e9},
        {"k80-heterogeneous", 16, 5, 12e9, 54.54e9 / 8},
        {"cluster-64", 64, 9, 300e9, 200e9},
        {"cluster-1024", 1024, 137, 300e9, 200e9},
        {"cluster-4096", 4096, 545, 300e9, 200e9},
    };
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        fr_ctx *ctx = fr_ctx_create();
        fr_cluster *c;
        fr_links *l;
        char path[512];
        snprintf(path, sizeof path, "%s/examples/clusters/%s.yaml", FR_SOURCE_DIR,
                 examples[i].name);
        fr_status status = fr_cluster_read(ctx, path, &c);
        if (status != FR_OK) print_error("%s\n", fr_ctx_error(ctx));
        assert_int_equal(status, FR_OK);
        assert_string_equal(c->name, examples[i].name);
        assert_int_equal(c->n_devices, examples[i].n_devices);
        assert_int_equal(c->n_groups, examples[i].n_groups);
        there_and_back(ctx, c);
        assert_int_equal(fr_links_create(ctx, c, &l), FR_OK);
        const int to[2] = {1, c->n_devices - 1};
        const double rate[2] = {examples[i].first, examples[i].last};
        for (int k = 0; k < 2; k++) {
            double more =
                fr_links_send_time(l, 0, to[k], 2000000) - fr_links_send_time(l, 0, to[k], 1000000);
            assert_true(fabs(more * rate[k] / 1e6 - 1) < 1e-9);
        }
        fr_links_free(l);
        fr_cluster_free(c);
        fr_ctx_free(ctx);
    }
}

/* Let the 1st, 2nd, ... allocation fail until it all succeeds. */
static void survives_without_memory(void **state)
{
    (void)state;
    write_text("cluster.yaml", "topology: {bandwidth: 1, groups: [{count: 2, bandwidth: 2,\n"
                               "  devices: [{speed: 2}, {count: 3}]}]}\n");
    int n_failed = 0;
    for (int64_t n = 0;; n++, n_failed++) {
        fr_ctx *ctx = fr_ctx_create();
        fr_cluster *c = NULL;
        fr_links *l = NULL;
        fr__alloc_fail_after(n);
        fr_status status = fr_cluster_read(ctx, "cluster.yaml", &c);
        if (status == FR_OK) status = fr_links_create(ctx, c, &l);
        if (status == FR_OK) status = fr_cluster_write(ctx, c, "back.yaml");
        fr__alloc_fail_after(-1);
        if (status != FR_OK && status != FR_NO_MEMORY) fail_msg("%s", fr_ctx_error(ctx));
        fr_links_free(l);
        fr_cluster_free(c);
        fr_ctx_free(ctx);
        if (status == FR_OK) break;
    }
    assert_true(n_failed > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_units_and_counts),
        cmocka_unit_test(says_speeds),
        cmocka_unit_test(refuses),
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(examples_load),
        cmocka_unit_test(survives_without_memory),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
