/* conv_plan.h -- the pixels of one map that read pixels of another, and their taps.
 *
 * Made once for a convolution, for y from x and for dx from dy; any size, stride and padding. */
#ifndef FR_BACKEND_CPU_CONV_PLAN_H
#define FR_BACKEND_CPU_CONV_PLAN_H

#include "backend/kernel.h"

#define FR_MAX_TAPS 64

typedef struct fr__map_size {
    int height, width;
} fr__map_size;

/* A tap and the source pixel it reads, counted from the origin of the pixel that is made. */
typedef struct fr__tap {
    int tap, shift;
} fr__tap;

/* Pixels that read the same taps at the same offsets: all inner ones, each corner, ... */
typedef struct fr__pixel_group {
    int n_pixels, n_taps;
    int *pixels, *origins; /* [n_pixels]: pixel made, and its origin on the source map */
    const fr__tap *taps;   /* [n_taps] */
} fr__pixel_group;

typedef struct fr__conv_plan {
    int n_groups;
    fr__pixel_group *groups;
} fr__conv_plan;

/* Uses of one tap: pixels of y, ascending, and the pixels of x that they read through it. */
typedef struct fr__tap_pixels {
    int n;
    int *y, *x;
} fr__tap_pixels;

/* node: the convolution. is_forward: `to` is the map of y and `from` that of x; else of dx and dy.
 * The arena owns the result. */
fr_status fr__conv_plan_make(fr_ctx *ctx, fr_arena *arena, const fr_node *node, bool is_forward,
                             fr__map_size to, fr__map_size from, fr__conv_plan *plan);
/* One for each tap. */
fr_status fr__conv_meetings(fr_ctx *ctx, fr_arena *arena, const fr_node *node, fr__map_size y,
                            fr__map_size x, fr__tap_pixels **out);

#endif
