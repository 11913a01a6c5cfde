/* conv_plan.c -- pixels and taps of a convolution, sorted into groups. */
#include "backend/cpu/conv_plan.h"

#include <string.h>

/* The source pixel that `tap` of pixel `at` reads along one axis, and the origin it is counted
 * from. False: none. */
static bool find_source(bool is_forward, int at, int tap, int stride, int pad, int length,
                        int *origin, int *source)
{
    *origin = is_forward ? at * stride - pad : (at + pad) / stride;
    *source = is_forward ? *origin + tap : (at + pad - tap) / stride;
    if (!is_forward && (at + pad < tap || (at + pad - tap) % stride != 0)) return false;
    return *source >= 0 && *source < length;
}

/* Taps of one pixel into `taps`; returns their number. */
static int find_taps(const fr_node *node, bool is_forward, fr__map_size from, int y, int x,
                     fr__tap *taps, int *origin)
{
    const int *size = node->attrs.conv2d.kernel, *stride = node->attrs.conv2d.stride;
    const int *pad = node->attrs.conv2d.pad;
    int n = 0, oy = 0, ox = 0, sy, sx;
    for (int t = 0; t < size[0] * size[1]; t++) {
        bool is_in =
            find_source(is_forward, y, t / size[1], stride[0], pad[0], from.height, &oy, &sy);
        is_in &= find_source(is_forward, x, t % size[1], stride[1], pad[1], from.width, &ox, &sx);
        if (is_in) taps[n++] = (fr__tap){t, (sy - oy) * from.width + sx - ox};
    }
    *origin = oy * from.width + ox;
    return n;
}

static fr__pixel_group *find_group(fr__conv_plan *p, int n_taps, const fr__tap *taps)
{
    for (int i = 0; i < p->n_groups; i++) {
        fr__pixel_group *g = &p->groups[i];
        if (g->n_taps == n_taps && memcmp(g->taps, taps, sizeof *taps * (size_t)n_taps) == 0)
            return g;
    }
    return NULL;
}

static fr__pixel_group *add_group(fr_arena *arena, fr__conv_plan *p, int n_pixels, int n_taps,
                                  const fr__tap *taps)
{
    fr__pixel_group *g = &p->groups[p->n_groups++];
    fr__tap *copy = FR_ARENA_ARRAY(arena, fr__tap, n_taps ? n_taps : 1);
    g->pixels = FR_ARENA_ARRAY(arena, int, n_pixels);
    g->origins = FR_ARENA_ARRAY(arena, int, n_pixels);
    if (!copy || !g->pixels || !g->origins) return NULL;
    memcpy(copy, taps, sizeof *taps * (size_t)n_taps);
    g->taps = copy;
    g->n_taps = n_taps;
    return g;
}

fr_status fr__conv_plan_make(fr_ctx *ctx, fr_arena *arena, const fr_node *node, bool is_forward,
                             fr__map_size to, fr__map_size from, fr__conv_plan *plan)
{
    const int n_pixels = to.height * to.width;
    plan->groups = FR_ARENA_ARRAY(arena, fr__pixel_group, n_pixels);
    if (!plan->groups) return fr__no_memory(ctx, (size_t)n_pixels, "a convolution");
    for (int i = 0; i < n_pixels; i++) {
        fr__tap taps[FR_MAX_TAPS];
        int origin,
            n = find_taps(node, is_forward, from, i / to.width, i % to.width, taps, &origin);
        fr__pixel_group *g = find_group(plan, n, taps);
        if (!g) g = add_group(arena, plan, n_pixels, n, taps);
        if (!g) return fr__no_memory(ctx, (size_t)n_pixels, "a convolution");
        g->pixels[g->n_pixels] = i;
        g->origins[g->n_pixels++] = origin;
    }
    return FR_OK;
}

fr_status fr__conv_meetings(fr_ctx *ctx, fr_arena *arena, const fr_node *node, fr__map_size y,
                            fr__map_size x, fr__tap_pixels **out)
{
    const int n_taps = node->attrs.conv2d.kernel[0] * node->attrs.conv2d.kernel[1];
    const int n_pixels = y.height * y.width;
    fr__tap_pixels *all = FR_ARENA_ARRAY(arena, fr__tap_pixels, n_taps);
    if (!all) return fr__no_memory(ctx, (size_t)n_taps, "a convolution");
    for (int t = 0; t < n_taps; t++) {
        all[t].y = FR_ARENA_ARRAY(arena, int, n_pixels);
        all[t].x = FR_ARENA_ARRAY(arena, int, n_pixels);
        if (!all[t].y || !all[t].x) return fr__no_memory(ctx, (size_t)n_pixels, "a convolution");
    }
    for (int i = 0; i < n_pixels; i++) {
        fr__tap taps[FR_MAX_TAPS];
        int origin, n = find_taps(node, true, x, i / y.width, i % y.width, taps, &origin);
        for (int k = 0; k < n; k++) {
            fr__tap_pixels *m = &all[taps[k].tap];
            m->y[m->n] = i;
            m->x[m->n++] = origin + taps[k].shift;
        }
    }
    *out = all;
    return FR_OK;
}
