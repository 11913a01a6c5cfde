/* cluster.c -- reads clusters from YAML, and makes uniform clusters from numbers.
 *
 *     name: two-boxes
 *     device: {name: V100, flops: 15.7 TFLOP/s, efficiency: 0.5, memory: 16 GB}
 *     topology:
 *       bandwidth: 10 Gbit/s
 *       latency: 30 us
 *       groups:
 *         - {count: 2, name: box, bandwidth: 150 GB/s, latency: 2 us, devices: 8}
 *
 * The file is read into a tree of patterns, one per mapping. Counts are expanded afterwards, so a
 * thousand equal boxes are read once. */
#include <forerun/cost.h>

#include "io/conf.h"
#include "io/key.h"
#include "io/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 1000000, MAX_NAME = 64 /* bytes */, MAX_NAMES = 1 << 26 /* of all */ };

typedef struct device_pattern {
    const char *name;
    int count; /* 0: one, without a number behind its name */
    double speed, peak, efficiency, memory;
} device_pattern;

typedef struct group_pattern {
    const char *name;
    int count; /* likewise */
    double bandwidth, latency;
    bool is_shared;
    int n_devices, n_groups; /* of one of the two */
    device_pattern *devices;
    struct group_pattern *groups;
} group_pattern;

/* Keys of a cluster file (`parallel.cluster`, --cluster). Paths begin with "cluster:", because it
 * is a separate file. A device has the same keys in every place: for all, for a group, for items of
 * a list. */
#define DEVICE "cluster:device."
#define GROUP "cluster:topology."

static const fr_key keys[] = {
    FR_TEXT("cluster:name", "cluster", "for people"),
    FR_AMOUNT("cluster:overhead", "0 s", FR_UNIT_SECONDS, 0, 1e6,
              "overhead of a worker per instruction"),
    FR_TEXT(DEVICE "name", "device", "for people; -0, -1, ... follow where there are several"),
    FR_REAL(DEVICE "speed", "1", 1e-9, 1e9, "times as fast as the machine that was profiled",
            FR_AT(device_pattern, speed)),
    FR_AMOUNT(DEVICE "flops", NULL, FR_UNIT_FLOPS, 1, 1e24,
              "instead of speed: peak rate, as 15 TFLOPS", FR_AT(device_pattern, peak)),
    FR_REAL(DEVICE "efficiency", "0.5", 1e-6, 1, "share of flops that training reaches",
            FR_AT(device_pattern, efficiency)),
    FR_AMOUNT(DEVICE "memory", "0", FR_UNIT_BYTES, 0, 1e18, "as 16 GB; 0: any amount",
              FR_AT(device_pattern, memory)),
    FR_TEXT(GROUP "name", "cluster", "for people; of a group in a list: group"),
    FR_AMOUNT(GROUP "bandwidth", "", FR_UNIT_RATE, 1e-3, 1e18,
              "of each port in each direction, or of the bus, as 12 GB/s; free: latency only"),
    FR_AMOUNT(GROUP "latency", "0 s", FR_UNIT_SECONDS, 0, 1e6, "of a message through this group",
              FR_AT(group_pattern, latency)),
    FR_BOOL(GROUP "shared", "false",
            "its children share one bus; otherwise each has a port in and a port out",
            FR_AT(group_pattern, is_shared)),
    FR_INT(GROUP "devices", NULL, 1, MAX_DEVICES,
           "number of devices that it connects, or a list of them"),
    FR_INT(GROUP "devices[].count", "1", 1, MAX_DEVICES,
           "number of equal devices; the keys of device are allowed beside it"),
    FR_ITEMS(GROUP "groups", NULL,
             "instead of devices: the groups that it connects, each with the keys of topology"),
    FR_INT(GROUP "groups[].count", "1", 1, MAX_DEVICES, "number of equal groups"),
    FR_ITEMS(GROUP "device", NULL, "common to all devices of this group: the keys of device"),
    FR_KEY_END,
};

const fr_key *fr_cluster_keys(void) { return keys; }

static fr_status read_key(fr_conf *c, const char *section, const char *key, void *to)
{
    return fr__key_read(c, fr__key_find(keys, section, key, NULL), to);
}

typedef struct reader {
    fr_ctx *ctx;
    const char *path;
    fr_arena *scratch;
} reader;

static fr_status no_memory(const reader *r)
{
    return fr__no_memory(r->ctx, sizeof(group_pattern), r->path);
}

/* --- reading ----------------------------------------------------------------------------------*/

static fr_status read_name(fr_conf *c, const char **name)
{
    FR_TRY(read_key(c, GROUP, "name", name));
    size_t n = strlen(*name);
    if (n >= 1 && n <= MAX_NAME) return FR_OK;
    return fr_conf_fail(c, "name", "a name of %zu bytes; expected 1 to %d", n, MAX_NAME);
}

/* Values that the mapping does not give keep their value in *d. */
static fr_status read_device(fr_conf *c, device_pattern *d)
{
    bool has_speed = fr_conf_has(c, "speed"), has_flops = fr_conf_has(c, "flops");
    bool has_efficiency = fr_conf_has(c, "efficiency");
    double speed = d->speed;
    FR_TRY(read_name(c, &d->name));
    FR_TRY(fr__keys_read(c, keys, DEVICE, NULL, d));
    if (!has_speed) d->speed = speed; /* 0: neither it nor flops are given */
    if (has_speed && (has_flops || has_efficiency))
        return fr_conf_fail(c, "speed",
                            "a device has a speed (times the machine of the profile) "
                            "or flops with an efficiency, not both");
    if (has_speed) d->peak = 0;
    if (has_flops) d->speed = 0;
    if (has_efficiency && d->peak == 0)
        return fr_conf_fail(c, "efficiency", "efficiency is a share of flops, which are missing");
    return FR_OK;
}

static fr_status read_count(fr_conf *c, int *count)
{
    int64_t n = 0;
    FR_TRY(read_key(c, GROUP "devices[].", "count", &n));
    *count = fr_conf_has(c, "count") ? (int)n : 0;
    return FR_OK;
}

static fr_status read_devices(const reader *r, fr_conf *c, const device_pattern *preset,
                              group_pattern *g)
{
    int n = fr_conf_list_length(c, "devices");
    if (n == 0) return fr_conf_fail(c, "devices", "a group without devices; name at least one");
    g->n_devices = n < 0 ? 1 : n;
    g->devices = FR_ARENA_ARRAY(r->scratch, device_pattern, g->n_devices);
    if (!g->devices) return no_memory(r);
    for (int i = 0; i < g->n_devices; i++) g->devices[i] = *preset;
    if (n < 0) {
        int64_t count = 0;
        FR_TRY(read_key(c, GROUP, "devices", &count));
        g->devices[0].count = (int)count;
    }
    for (int i = 0; i < n; i++) {
        fr_conf *item;
        FR_TRY(fr_conf_list_item(c, "devices", i, &item));
        FR_TRY(read_count(item, &g->devices[i].count));
        FR_TRY(read_device(item, &g->devices[i]));
    }
    return FR_OK;
}

static fr_status read_bandwidth(fr_conf *c, double *out)
{
    const char *text;
    FR_TRY(fr_conf_text(c, "bandwidth", NULL, &text));
    if (strcmp(text, "free") != 0) return read_key(c, GROUP, "bandwidth", out);
    *out = 0;
    return FR_OK;
}

static fr_status read_group(const reader *r, fr_conf *c, device_pattern preset, group_pattern *g)
{
    bool has_devices = fr_conf_has(c, "devices"), has_groups = fr_conf_has(c, "groups");
    fr_conf *device, *item;
    FR_TRY(read_name(c, &g->name));
    FR_TRY(read_bandwidth(c, &g->bandwidth));
    FR_TRY(fr__keys_read(c, keys, GROUP, NULL, g));
    FR_TRY(fr_conf_section(c, "device", &device));
    FR_TRY(read_device(device, &preset));
    if (has_devices == has_groups)
        return fr_conf_fail(
            c, has_devices ? "groups" : NULL,
            "group %s has %s: a group connects devices (devices: 8, or a list) or groups (a list)",
            g->name, has_devices ? "both devices and groups" : "neither devices nor groups");
    if (has_devices) return read_devices(r, c, &preset, g);
    g->n_groups = fr_conf_list_length(c, "groups");
    if (g->n_groups < 1)
        return fr_conf_fail(c, "groups", "group %s: expected a list of at least one group",
                            g->name);
    g->groups = FR_ARENA_ARRAY(r->scratch, group_pattern, g->n_groups);
    if (!g->groups) return no_memory(r);
    for (int i = 0; i < g->n_groups; i++) {
        g->groups[i].name = "group";
        FR_TRY(fr_conf_list_item(c, "groups", i, &item));
        FR_TRY(read_count(item, &g->groups[i].count));
        FR_TRY(read_group(r, item, preset, &g->groups[i]));
    }
    return FR_OK;
}

/* --- expansion of counts ---------------------------------------------------------------------- */

static double at_least_one(int count) { return count > 0 ? count : 1; }

/* In doubles: products of counts may exceed any integer. */
typedef struct census {
    double devices, groups;
    double name_bytes; /* approximate: a name includes those of all enclosing groups */
} census;

static void count_all(const group_pattern *g, double above, census *all)
{
    enum { NUMBER = 8 }; /* "-123456" and the terminator, or a slash */
    double times = at_least_one(g->count), name = above + (double)strlen(g->name) + NUMBER;
    census inside = {.groups = 1, .name_bytes = name};
    for (int i = 0; i < g->n_devices; i++) {
        double n = at_least_one(g->devices[i].count);
        inside.devices += n;
        inside.name_bytes += n * (name + (double)strlen(g->devices[i].name) + NUMBER);
    }
    for (int i = 0; i < g->n_groups; i++) count_all(&g->groups[i], name, &inside);
    all->devices += times * inside.devices;
    all->groups += times * inside.groups;
    all->name_bytes += times * inside.name_bytes;
}

/* "box-1/V100-3": path below the root; entries with a count have numbers. */
static const char *full_name(fr_cluster *c, int parent, const char *name, int count, int child)
{
    bool is_top = parent <= 0;
    const char *above = is_top ? "" : c->groups[parent].name, *slash = is_top ? "" : "/";
    if (count == 0) return fr__arena_printf(c->arena, "%s%s%s", above, slash, name);
    return fr__arena_printf(c->arena, "%s%s%s-%d", above, slash, name, child);
}

static bool add_device(fr_cluster *c, int group, const device_pattern *d, int child)
{
    bool is_unknown = d->speed == 0 && d->peak == 0;
    fr_cluster_device *to = &c->devices[c->n_devices++];
    *to = (fr_cluster_device){.name = full_name(c, group, d->name, d->count, child),
                              .speed = is_unknown ? 1 : d->speed,
                              .flops = d->peak * d->efficiency,
                              .memory = (int64_t)d->memory,
                              .group = group};
    return to->name != NULL;
}

/* One instance of a pattern: child `child` of `parent`. */
static bool add_group(fr_cluster *c, int parent, const group_pattern *g, int child)
{
    int self = c->n_groups++, n = 0;
    c->groups[self] = (fr_cluster_group){.name = full_name(c, parent, g->name, g->count, child),
                                         .bandwidth = g->bandwidth,
                                         .latency = g->latency,
                                         .is_shared = g->is_shared,
                                         .parent = parent};
    if (!c->groups[self].name) return false;
    for (int i = 0; i < g->n_devices; i++)
        for (int k = 0; k < at_least_one(g->devices[i].count); k++)
            if (!add_device(c, self, &g->devices[i], n++)) return false;
    for (int i = 0; i < g->n_groups; i++)
        for (int k = 0; k < at_least_one(g->groups[i].count); k++)
            if (!add_group(c, self, &g->groups[i], n++)) return false;
    return true;
}

/* Allocate room for the given numbers; the cluster is still empty. */
static fr_status cluster_new(fr_ctx *ctx, const char *name, const char *path, int n_devices,
                             int n_groups, fr_cluster **out)
{
    fr_cluster *c = *out = FR_NEW(fr_cluster);
    if (c) c->arena = FR_NEW(fr_arena);
    if (c && c->arena) {
        c->name = fr__arena_strdup(c->arena, name);
        c->path = fr__arena_strdup(c->arena, path);
        c->devices = FR_ARENA_ARRAY(c->arena, fr_cluster_device, n_devices);
        c->groups = FR_ARENA_ARRAY(c->arena, fr_cluster_group, n_groups);
        if (c->name && c->path && c->devices && c->groups) return FR_OK;
    }
    fr_cluster_free(c);
    *out = NULL;
    return fr__no_memory(ctx, (size_t)n_devices * sizeof(fr_cluster_device), "a cluster");
}

void fr_cluster_free(fr_cluster *c)
{
    if (!c) return;
    fr__arena_free(c->arena);
    fr__free(c);
}

static fr_status multiply_out(const reader *r, fr_conf *top, const char *name,
                              const group_pattern *root, fr_cluster **out)
{
    census all = {0};
    count_all(root, 0, &all);
    if (fmax(all.devices, all.groups) > (double)MAX_DEVICES)
        return fr_conf_fail(top, "topology", "%.0f devices in %.0f groups; at most %d of either",
                            all.devices, all.groups, MAX_DEVICES);
    if (all.name_bytes > (double)MAX_NAMES)
        return fr_conf_fail(top, "topology",
                            "%.0f devices in %.0f groups have names of %.0f MB; use shorter names, "
                            "or fewer levels",
                            all.devices, all.groups, all.name_bytes / 1e6);
    FR_TRY(cluster_new(r->ctx, name, r->path, (int)all.devices, (int)all.groups, out));
    if (add_group(*out, -1, root, 0)) return FR_OK;
    fr_cluster_free(*out);
    *out = NULL;
    return no_memory(r);
}

static fr_status read_top(const reader *r, fr_conf *top, fr_cluster **out)
{
    device_pattern preset = {.name = "device", .efficiency = 0.5};
    group_pattern root = {.name = "cluster"};
    const char *name = NULL;
    double overhead = 0;
    fr_conf *device, *topology;
    FR_TRY(read_key(top, "cluster:", "name", &name));
    FR_TRY(read_key(top, "cluster:", "overhead", &overhead));
    FR_TRY(fr_conf_section(top, "device", &device));
    FR_TRY(read_device(device, &preset));
    if (!fr_conf_has(top, "topology"))
        return fr_conf_fail(top, NULL,
                            "topology is missing: it connects the devices, for example topology: "
                            "{bandwidth: 12 GB/s, latency: 5 us, devices: 4}");
    FR_TRY(fr_conf_section(top, "topology", &topology));
    FR_TRY(read_group(r, topology, preset, &root));
    FR_TRY(fr_conf_finish(top));
    FR_TRY(multiply_out(r, top, name, &root, out));
    (*out)->overhead_s = overhead;
    return FR_OK;
}

fr_status fr_cluster_read(fr_ctx *ctx, const char *path, fr_cluster **out)
{
    fr_arena scratch = {0};
    reader r = {ctx, path, &scratch};
    fr_conf *top;
    *out = NULL;
    FR_TRY(fr_conf_load(ctx, path, 0, NULL, &top));
    fr_status status = read_top(&r, top, out);
    fr_conf_free(top);
    fr__arena_fini(&scratch);
    return status;
}

/* --- by numbers -------------------------------------------------------------------------------*/

fr_status fr_cluster_flat(fr_ctx *ctx, int n, double bandwidth, double latency, fr_cluster **out)
{
    *out = NULL;
    if (n < 1 || n > MAX_DEVICES || !(bandwidth >= 0) || !(latency >= 0))
        return fr_fail(ctx, FR_INVALID,
                       "a cluster of %d devices, %g bytes/s, %g s: expected 1 to %d devices and no "
                       "negative number",
                       n, bandwidth, latency, MAX_DEVICES);
    device_pattern device = {.name = "device", .count = n};
    group_pattern root = {.name = "cluster",
                          .bandwidth = bandwidth,
                          .latency = latency,
                          .n_devices = 1,
                          .devices = &device};
    FR_TRY(cluster_new(ctx, "flat", "", n, 1, out));
    if (add_group(*out, -1, &root, 0)) return FR_OK;
    fr_cluster_free(*out);
    *out = NULL;
    return fr__no_memory(ctx, (size_t)n, "the names of a cluster");
}

double fr_cluster_speed(const fr_cluster *c, int device, const fr_profile *p)
{
    const fr_cluster_device *d = &c->devices[device];
    double flops = 0, seconds = 0;
    if (d->speed > 0) return d->speed;
    for (int i = 0; p && i < p->n_nodes; i++) {
        flops += p->nodes[i].flops;
        seconds += p->nodes[i].forward_s + p->nodes[i].backward_s;
    }
    return flops > 0 && seconds > 0 ? d->flops / (flops / seconds) : NAN;
}
