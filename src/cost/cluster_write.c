/* cluster_write.c -- writes a cluster as YAML that fr_cluster_read reads back unchanged.
 *
 * Neighbours that differ only in the number after their name are written once, with a count, so a
 * file of thousands of devices stays readable. */
#include "cost/profile.h"
#include "io/conf.h"
#include "io/number.h"
#include "io/units.h"

#include <stdio.h>
#include <string.h>

typedef struct writer {
    const fr_cluster *c;
    fr__text out;
    /* Children of group g: groups child[first[g]] to child[first[g + 1] - 1], and devices. */
    int *first, *child;
    int *first_device, *n_devices; /* [group] */
} writer;

/* --- the tree, from the top -------------------------------------------------------------------*/

static fr_status bad_cluster(fr_ctx *ctx, const char *what, int i)
{
    return fr_fail(
        ctx, FR_INVALID,
        "cannot write the cluster: %s %d is out of order; parents must come first, devices of a "
        "group must be adjacent, and a group must have either devices or groups",
        what, i);
}

static fr_status index_tree(fr_ctx *ctx, fr_arena *a, writer *w)
{
    const fr_cluster *c = w->c;
    w->first = FR_ARENA_ARRAY(a, int, c->n_groups + 2);
    w->child = FR_ARENA_ARRAY(a, int, c->n_groups + 1);
    w->first_device = FR_ARENA_ARRAY(a, int, c->n_groups + 1);
    w->n_devices = FR_ARENA_ARRAY(a, int, c->n_groups + 1);
    if (!w->first || !w->child || !w->first_device || !w->n_devices)
        return fr__no_memory(ctx, (size_t)c->n_groups * sizeof(int), "a cluster's tree");
    for (int g = 0; g < c->n_groups; g++) {
        int parent = c->groups[g].parent;
        if (g == 0 ? parent != -1 : parent < 0 || parent >= g) return bad_cluster(ctx, "group", g);
        if (g > 0) w->first[parent + 2]++;
    }
    for (int g = 0; g < c->n_groups; g++) w->first[g + 2] += w->first[g + 1];
    for (int g = 1; g < c->n_groups; g++) w->child[w->first[c->groups[g].parent + 1]++] = g;
    for (int d = 0; d < c->n_devices; d++) {
        int g = c->devices[d].group;
        if (g < 0 || g >= c->n_groups) return bad_cluster(ctx, "device", d);
        if (w->n_devices[g]++ == 0) w->first_device[g] = d;
        if (w->first_device[g] + w->n_devices[g] != d + 1) return bad_cluster(ctx, "device", d);
    }
    for (int g = 0; g < c->n_groups; g++)
        if ((w->n_devices[g] > 0) == (w->first[g + 1] > w->first[g]))
            return bad_cluster(ctx, "group", g);
    return FR_OK;
}

/* --- entries that can be merged --------------------------------------------------------------- */

/* The name relative to its group, and its length without the suffix "-7" of child 7. */
static const char *own_name(const fr_cluster *c, int parent, const char *name, int child,
                            size_t *base)
{
    char number[16];
    size_t above = parent > 0 ? strlen(c->groups[parent].name) : 0;
    if (above && strncmp(name, c->groups[parent].name, above) == 0 && name[above] == '/')
        name += above + 1;
    size_t n = strlen(name), tail = (size_t)snprintf(number, sizeof number, "-%d", child);
    *base = n > tail && strcmp(name + n - tail, number) == 0 ? n - tail : n;
    return name;
}

/* Do children i and k of a group have the names that a count would give them? */
static bool is_counted(const fr_cluster *c, int parent, const char *a, int i, const char *b, int k)
{
    size_t base_a, base_b;
    a = own_name(c, parent, a, i, &base_a);
    b = own_name(c, parent, b, k, &base_b);
    return base_a == base_b && a[base_a] && b[base_b] && strncmp(a, b, base_a) == 0;
}

static bool is_same_device(const fr_cluster_device *a, const fr_cluster_device *b)
{
    return a->speed == b->speed && a->flops == b->flops && a->memory == b->memory;
}

static bool is_same_name(const fr_cluster *c, int parent_a, const char *a, int parent_b,
                         const char *b)
{
    size_t base;
    return strcmp(own_name(c, parent_a, a, -1, &base), own_name(c, parent_b, b, -1, &base)) == 0;
}

/* Compare two groups except their own names. */
static bool is_same_group(const writer *w, int a, int b)
{
    const fr_cluster *c = w->c;
    const fr_cluster_group *ga = &c->groups[a], *gb = &c->groups[b];
    int n = w->first[a + 1] - w->first[a];
    if (ga->bandwidth != gb->bandwidth || ga->latency != gb->latency ||
        ga->is_shared != gb->is_shared || w->n_devices[a] != w->n_devices[b] ||
        n != w->first[b + 1] - w->first[b])
        return false;
    for (int i = 0; i < w->n_devices[a]; i++) {
        const fr_cluster_device *da = &c->devices[w->first_device[a] + i];
        const fr_cluster_device *db = &c->devices[w->first_device[b] + i];
        if (!is_same_device(da, db) || !is_same_name(c, a, da->name, b, db->name)) return false;
    }
    for (int i = 0; i < n; i++) {
        int ca = w->child[w->first[a] + i], cb = w->child[w->first[b] + i];
        if (!is_same_group(w, ca, cb) ||
            !is_same_name(c, a, c->groups[ca].name, b, c->groups[cb].name))
            return false;
    }
    return true;
}

/* --- writing ----------------------------------------------------------------------------------*/

static void put_amount(writer *w, const char *key, double value, fr__amount_unit unit)
{
    char text[48];
    fr__amount_format(value, unit, text);
    fr__text_printf(&w->out, "%s%s", key, text);
}

/* "name: box", and if count > 1 `between` and "count: 3". */
static void put_name(writer *w, int parent, const char *name, int child, int count,
                     const char *between)
{
    char base[256];
    size_t n;
    name = own_name(w->c, parent, name, child, &n);
    if (count < 2) n = strlen(name);
    snprintf(base, sizeof base, "%.*s", n < sizeof base ? (int)n : (int)sizeof base - 1, name);
    fr__text_put(&w->out, "name: ");
    fr__conf_put_text(&w->out, base);
    if (count > 1) fr__text_printf(&w->out, "%scount: %d", between, count);
}

static void put_devices(writer *w, int g, int indent)
{
    const fr_cluster_device *at = &w->c->devices[w->first_device[g]];
    fr__text_printf(&w->out, "%*sdevices:\n", indent, "");
    for (int i = 0, k; i < w->n_devices[g]; i = k) {
        for (k = i + 1; k < w->n_devices[g] && is_same_device(&at[i], &at[k]) &&
                        is_counted(w->c, g, at[i].name, i, at[k].name, k);)
            k++;
        fr__text_printf(&w->out, "%*s  - {", indent, "");
        put_name(w, g, at[i].name, i, k - i, ", ");
        char number[32];
        if (at[i].speed > 0) {
            fr__real_format(at[i].speed, number);
            fr__text_printf(&w->out, ", speed: %s", number);
        } else {
            put_amount(w, ", flops: ", at[i].flops, FR_UNIT_FLOPS);
            fr__text_put(&w->out, ", efficiency: 1");
        }
        if (at[i].memory > 0) put_amount(w, ", memory: ", (double)at[i].memory, FR_UNIT_BYTES);
        fr__text_put(&w->out, "}\n");
    }
}

/* Write the rest of a group whose first line is started; its keys are at column `indent`. */
static void put_group(writer *w, int g, int child, int count, int indent)
{
    const fr_cluster_group *at = &w->c->groups[g];
    char between[64];
    snprintf(between, sizeof between, "\n%*s", indent, "");
    put_name(w, at->parent, at->name, child, count, between);
    fr__text_put(&w->out, between);
    if (at->bandwidth > 0)
        put_amount(w, "bandwidth: ", at->bandwidth, FR_UNIT_RATE);
    else
        fr__text_put(&w->out, "bandwidth: free");
    fr__text_put(&w->out, between);
    put_amount(w, "latency: ", at->latency, FR_UNIT_SECONDS);
    fr__text_put(&w->out, "\n");
    if (at->is_shared) fr__text_printf(&w->out, "%*sshared: true\n", indent, "");
    if (w->n_devices[g] > 0) {
        put_devices(w, g, indent);
        return;
    }
    const int *children = &w->child[w->first[g]];
    int n = w->first[g + 1] - w->first[g];
    fr__text_printf(&w->out, "%*sgroups:\n", indent, "");
    for (int i = 0, k; i < n; i = k) {
        const char *name = w->c->groups[children[i]].name;
        for (k = i + 1; k < n && is_same_group(w, children[i], children[k]) &&
                        is_counted(w->c, g, name, i, w->c->groups[children[k]].name, k);)
            k++;
        fr__text_printf(&w->out, "%*s  - ", indent, "");
        put_group(w, children[i], i, k - i, indent + 4);
    }
}

fr_status fr_cluster_write(fr_ctx *ctx, const fr_cluster *c, const char *path)
{
    fr_arena scratch = {0};
    writer w = {.c = c};
    fr_status status = index_tree(ctx, &scratch, &w);
    if (status == FR_OK) {
        fr__text_put(&w.out, "name: ");
        fr__conf_put_text(&w.out, c->name);
        if (c->overhead_s > 0) put_amount(&w, "\noverhead: ", c->overhead_s, FR_UNIT_SECONDS);
        fr__text_put(&w.out, "\ntopology:\n  ");
        put_group(&w, 0, -1, 1, 2);
        status = w.out.failed ? fr__no_memory(ctx, w.out.n, path)
                              : fr__profile_put(ctx, path, w.out.at, w.out.n);
    }
    fr__text_fini(&w.out);
    fr__arena_fini(&scratch);
    return status;
}
