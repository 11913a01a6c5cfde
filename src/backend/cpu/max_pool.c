/* max_pool.c -- the maximum of each window, in any layout whose last dimension is channels.
 *
 * A tensor is treated as planes (sample and block of channels) of pixels of `lanes` channels: 1
 * for row-major, 8 or 16 for blocked ones. Lanes are computed in parallel. The tap of the maximum
 * (the first of equals) is saved for the backward. A NaN counts as larger than any number, so that
 * a diverged run is noticed. Planes of bf16 are widened, one at a time, into a room of the thread.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/lanes.h"

typedef struct max_pool {
    fr__kernel base;
    fr_dtype x_type;
    size_t planes;
    int lanes, height, width, out_height, out_width;
    int size[2], stride[2], pad[2];
} max_pool;

typedef struct call {
    const max_pool *p;
    fr__source from; /* x or dy */
    fr__sink to;     /* y or dx */
    uint16_t *won;   /* (planes, out pixels, lanes), NULL: not needed */
    float *rooms;    /* (threads, in + out) */
} call;

/* The window of one output pixel: its start, and its taps on the map. */
typedef struct window {
    int y, x, first_row, last_row, first_column, last_column;
} window;

static inline window window_at(const max_pool *p, int oy, int ox)
{
    window w = {.y = oy * p->stride[0] - p->pad[0], .x = ox * p->stride[1] - p->pad[1]};
    w.first_row = w.y < 0 ? -w.y : 0;
    w.first_column = w.x < 0 ? -w.x : 0;
    w.last_row = p->height - w.y < p->size[0] ? p->height - w.y : p->size[0];
    w.last_column = p->width - w.x < p->size[1] ? p->width - w.x : p->size[1];
    return w;
}

/* Eight lanes of a pixel, or one and zeros. */
FR_INLINE void load(fr__v8 *to, const float *from, bool is_dense)
{
    *to = is_dense ? FR_LOAD8(from) : (fr__v8){*from};
}

FR_INLINE void take_max(const max_pool *p, const float *x, bool is_dense, int oy, int ox, float *y,
                        uint16_t *won)
{
    const window w = window_at(p, oy, ox);
    fr__v8 best, value;
    fr__i8 at = {0};
    at += w.first_row * p->size[1] + w.first_column;
    load(&best, x + ((w.y + w.first_row) * p->width + w.x + w.first_column) * p->lanes, is_dense);
    for (int r = w.first_row; r < w.last_row; r++) {
        for (int c = w.first_column; c < w.last_column; c++) {
            load(&value, x + ((w.y + r) * p->width + w.x + c) * p->lanes, is_dense);
            /* Not "smaller or equal": true for larger ones and, once, for a NaN. */
            const fr__i8 wins = ~(value <= best) & (best == best);
            best = FR_SELECT8(wins, value, best);
            at = (wins & (r * p->size[1] + c)) | (~wins & at);
        }
    }
    if (is_dense)
        FR_STORE8(y, best);
    else
        *y = best[0];
    for (int l = 0; won && l < (is_dense ? FR_LANES : 1); l++) won[l] = (uint16_t)at[l];
}

FR_INLINE void give_back(const max_pool *p, const float *dy, bool is_dense, const uint16_t *won,
                         int oy, int ox, float *dx)
{
    const window w = window_at(p, oy, ox);
    fr__v8 value, old;
    fr__i8 at = {0};
    load(&value, dy, is_dense);
    for (int l = 0; l < (is_dense ? FR_LANES : 1); l++) at[l] = won[l];
    for (int r = w.first_row; r < w.last_row; r++) {
        for (int c = w.first_column; c < w.last_column; c++) {
            float *to = dx + ((w.y + r) * p->width + w.x + c) * p->lanes;
            const fr__i8 is_it = at == r * p->size[1] + c;
            load(&old, to, is_dense);
            old += FR_SELECT8(is_it, value, FR_ALL8(0));
            if (is_dense)
                FR_STORE8(to, old);
            else
                *to = old[0];
        }
    }
}

static size_t in_plane(const max_pool *p) { return (size_t)(p->height * p->width * p->lanes); }

static size_t out_plane(const max_pool *p)
{
    return (size_t)(p->out_height * p->out_width * p->lanes);
}

static float *own_room(const call *k)
{
    return k->rooms + (size_t)fr__cpu_thread() * (in_plane(k->p) + out_plane(k->p));
}

/* is_dense: lanes is a multiple of FR_LANES, else 1. A plane of 16 lanes is processed twice. */
FR_INLINE void forward_planes(const call *k, bool is_dense, size_t begin, size_t end)
{
    const max_pool *p = k->p;
    const size_t in = in_plane(p), out = out_plane(p);
    float *room = own_room(k);
    for (size_t i = begin; i < end; i++) {
        const float *x = fr__read(k->from, i * in, in, room);
        float *y = fr__place(k->to, i * out, room + in);
        for (int lane = 0; lane < p->lanes; lane += FR_LANES) {
            size_t to = (size_t)lane;
            for (int oy = 0; oy < p->out_height; oy++) {
                for (int ox = 0; ox < p->out_width; ox++, to += (size_t)p->lanes)
                    take_max(p, x + lane, is_dense, oy, ox, y + to,
                             k->won ? k->won + i * out + to : NULL);
            }
        }
        fr__store(k->to, i * out, out, y);
    }
}

FR_INLINE void backward_planes(const call *k, bool is_dense, size_t begin, size_t end)
{
    const max_pool *p = k->p;
    const size_t in = in_plane(p), out = out_plane(p);
    float *room = own_room(k);
    for (size_t i = begin; i < end; i++) {
        const float *dy = fr__read(k->from, i * out, out, room + in);
        float *dx = fr__place(k->to, i * in, room);
        memset(dx, 0, in * sizeof(float));
        for (int lane = 0; lane < p->lanes; lane += FR_LANES) {
            size_t from = (size_t)lane;
            for (int oy = 0; oy < p->out_height; oy++) {
                for (int ox = 0; ox < p->out_width; ox++, from += (size_t)p->lanes)
                    give_back(p, dy + from, is_dense, k->won + i * out + from, oy, ox, dx + lane);
            }
        }
        fr__store(k->to, i * in, in, dx);
    }
}

FR_SIMD_RANGE(forward_range)
{
    if (((call *)arg)->p->lanes > 1)
        forward_planes(arg, true, begin, end);
    else
        forward_planes(arg, false, begin, end);
}

FR_SIMD_RANGE(backward_range)
{
    if (((call *)arg)->p->lanes > 1)
        backward_planes(arg, true, begin, end);
    else
        backward_planes(arg, false, begin, end);
}

static fr_status max_pool_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const max_pool *p = (const max_pool *)k;
    call c = {.p = p,
              .from = {a->x[0], p->x_type},
              .to = {a->y, k->y.dtype},
              .won = k->training ? a->saved : NULL,
              .rooms = a->scratch};
    fr__cpu_parallel(k->dev, p->planes, 1, forward_range, &c);
    return FR_OK;
}

static fr_status max_pool_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const max_pool *p = (const max_pool *)k;
    call c = {.p = p,
              .from = {a->dy, k->y.dtype},
              .to = {a->dx[0], p->x_type},
              .won = a->saved,
              .rooms = a->scratch};
    fr__cpu_parallel(k->dev, p->planes, 1, backward_range, &c);
    return FR_OK;
}

static const fr__kernel_ops max_pool_ops = {.forward = max_pool_forward,
                                            .backward_input = max_pool_backward_input};

fr_status fr__cpu_max_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    int lanes = fr__layout_lanes(spec->x[0]);
    if (lanes == 0 || (lanes > 1 && spec->plain_output))
        return fr__cpu_wrap_plain(spec, arena, fr__cpu_max_pool, out);
    fr__kernel *k = fr__kernel_new(spec, arena, sizeof(max_pool), &max_pool_ops);
    if (!k) return FR_NO_MEMORY;
    *out = k;
    max_pool *p = (max_pool *)k;
    const fr_node *in = fr_graph_node(spec->graph, spec->inputs[0]);
    const int64_t *from = in->shape.dim, *to = k->node->shape.dim;
    p->lanes = lanes;
    p->x_type = spec->x[0]->dtype;
    p->planes = (size_t)k->batch * (size_t)((from[0] + lanes - 1) / lanes);
    p->height = (int)from[1], p->width = (int)from[2];
    p->out_height = (int)to[1], p->out_width = (int)to[2];
    for (int i = 0; i < 2; i++) {
        p->size[i] = k->node->attrs.pool.kernel[i];
        p->stride[i] = k->node->attrs.pool.stride[i];
        p->pad[i] = k->node->attrs.pool.pad[i];
    }
    if ((int64_t)p->size[0] * p->size[1] > UINT16_MAX)
        return fr_fail(k->ctx, FR_UNSUPPORTED, "node %s: a window of %d x %d is too large",
                       k->node->name, p->size[0], p->size[1]);
    if (lanes > 1) FR_TRY(fr__layout_with_lanes(k, k->node, lanes, &k->y));
    if (fr__spec_has_bf16(spec))
        k->scratch_bytes = (in_plane(p) + out_plane(p)) * (size_t)k->dev->n_threads * sizeof(float);
    if (k->training) k->saved_bytes = fr__layout_count(&k->y) * sizeof(uint16_t);
    return FR_OK;
}
