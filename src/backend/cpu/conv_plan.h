/* conv_plan.h -- which pixels of one map read which pixels of another, through which tap.
 *
 * Made once for a convolution, for y from x and for dx from dy; any size, stride and padding. */
#ifndef FR_BACKEND_CPU_CONV_PLAN_H
#define FR_BACKEND_CPU_CONV_PLAN_H

#include "backend/kernel.h"

#define FR_MAX_TAPS 64

typedef struct fr_map {
    int height, width;
} fr_map;

/* A tap and the source pixel it reads, counted from the origin of the pixel that is made. */
typedef struct fr_reach {
    int tap, shift;
} fr_reach;

/* Pixels that see the same taps at the same distances: all inner ones, each corner, ... */
typedef struct fr_pixel_group {
    int n_pixels, n_taps;
    int *pixels, *origins; /* [n_pixels]: pixel made, and its origin on the source map */
    const fr_reach *taps;  /* [n_taps] */
} fr_pixel_group;

typedef struct fr_conv_plan {
    int n_groups;
    fr_pixel_group *groups;
} fr_conv_plan;

/* Where one tap is used: pixels of y, ascending, and those of x that they read through it. */
typedef struct fr_meetings {
    int n;
    int *y, *x;
} fr_meetings;

/* node: the convolution. is_forward: `to` is the map of y and `from` that of x; else of dx and dy.
 * What is made belongs to the arena. */
fr_status fr__conv_plan(fr_ctx *ctx, fr_arena *arena, const fr_node *node, bool is_forward,
                        fr_map to, fr_map from, fr_conv_plan *plan);
/* One for each tap. */
fr_status fr__conv_meetings(fr_ctx *ctx, fr_arena *arena, const fr_node *node, fr_map y, fr_map x,
                            fr_meetings **out);

#endif
