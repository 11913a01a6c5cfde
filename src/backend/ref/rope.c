/* rope.c -- rotary position embedding (Su et al., RoFormer, 2021).
 *
 * A row (D) of step t has `heads` heads. Numbers i and i + w/2 of a head, w = rotated_width, are
 * turned by the angle t * base^(-2i / w); the rest stays. (The paper turns neighbours, 2i and
 * 2i + 1; halves are the order of Llama's published weights.) The gradient is turned back. */
#include <math.h>

#include "backend/ref/ref.h"

static void turn(const fr__kernel *k, const float *x, float *y, double sign, bool add)
{
    const fr_attrs *a = &k->node->attrs;
    const int64_t time = k->node->shape.dim[0], width = k->node->shape.dim[1];
    const int64_t head = width / a->rope.heads, half = a->rope.rotated_width / 2;
    const int64_t n = fr__ref_count(k, k->node);
    for (int64_t at = 0; at < n; at++) {
        const int64_t t = at / width % time, h = at % width / head, i = at % width % head;
        if (h >= a->rope.rotated_heads || i >= 2 * half) {
            fr__ref_put(&y[at], (double)x[at], add);
            continue;
        }
        if (i >= half) continue; /* done with its partner */
        const double angle = (double)t * pow((double)a->rope.base, -(double)i / (double)half);
        const double c = cos(angle), s = sign * sin(angle);
        const double x1 = (double)x[at], x2 = (double)x[at + half];
        fr__ref_put(&y[at], x1 * c - x2 * s, add);
        fr__ref_put(&y[at + half], x2 * c + x1 * s, add);
    }
}

static fr_status rope_forward(fr__kernel *k, const fr__kernel_args *a)
{
    turn(k, a->x[0], a->y, 1, false);
    return FR_OK;
}

static fr_status rope_backward(fr__kernel *k, const fr__kernel_args *a)
{
    turn(k, a->dy, a->dx[0], -1, a->add_dx[0]);
    return FR_OK;
}

fr_status fr__ref_rope(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = rope_forward, .backward_input = rope_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->can_overwrite_x0 = true;
    (*out)->can_overwrite_dy = true;
    return FR_OK;
}
