/* levels.c -- a cluster as levels: so many devices in a box, so many boxes in a rack. */
#include "plan/internal.h"

#include <math.h>

/* Where a child hangs: devices first, then groups (children of a level are all of one kind). */
static int parent_of(const fr_cluster *c, bool are_devices, int i)
{
    return are_devices ? c->devices[i].group : c->groups[i].parent;
}

/* Children of a group among the items of a level. */
static int count(const fr_cluster *c, bool are_devices, int n, const bool *is_item, int group)
{
    int children = 0;
    for (int i = 0; i < n; i++) children += is_item[i] && parent_of(c, are_devices, i) == group;
    return children;
}

/* The level above `item`s: 0 if its groups differ; else children of each, and is_item becomes those
 * groups. */
static int climb(const fr_cluster *c, bool are_devices, bool *is_item, bool *is_group,
                 double *bandwidth)
{
    int n = are_devices ? c->n_devices : c->n_groups, children = 0;
    *bandwidth = -1;
    for (int g = 0; g < c->n_groups; g++) {
        int own = count(c, are_devices, n, is_item, g);
        double b = c->groups[g].bandwidth > 0 ? c->groups[g].bandwidth : INFINITY;
        is_group[g] = own > 0;
        if (!own) continue;
        if (c->groups[g].is_shared) b /= own;
        if (children && (own != children || (own > 1 && b != *bandwidth))) return 0;
        children = own, *bandwidth = b;
    }
    return children;
}

int fr__levels_of(const fr_cluster *c, int n[FR__MAX_LEVELS], double bandwidth[FR__MAX_LEVELS])
{
    int most = c->n_devices > c->n_groups ? c->n_devices : c->n_groups, n_levels = 0, total = 1;
    bool *items = FR_NEW_ARRAY(bool, most), *groups = FR_NEW_ARRAY(bool, most);
    bool are_devices = true, is_fine = items && groups;
    for (int i = 0; is_fine && i < c->n_devices; i++) items[i] = true;
    while (is_fine && total < c->n_devices) {
        double b;
        int children = climb(c, are_devices, items, groups, &b);
        if (children == 0 || n_levels == FR__MAX_LEVELS) {
            is_fine = false;
        } else if (children > 1) {
            n[n_levels] = children, bandwidth[n_levels++] = b;
            total *= children;
        }
        bool *swap = items;
        items = groups, groups = swap, are_devices = false;
    }
    fr__free(items), fr__free(groups);
    return is_fine ? n_levels : 0;
}
