/* time.c -- from a sequence to one row: the mean of the valid steps, or the last valid one.
 * A sample of length 0 gives zeros. */
#include "backend/ref/ref.h"

/* Weight of step t in the output: it is the same for all features. */
typedef double (*step_weight)(int64_t t, int64_t length);

static double mean_weight(int64_t t, int64_t length) { return t < length ? 1 / (double)length : 0; }
static double last_weight(int64_t t, int64_t length) { return t == length - 1 ? 1 : 0; }

static void reduce(fr__kernel *k, const fr__kernel_args *a, step_weight weight)
{
    int64_t n_steps = fr__ref_input(k, 0)->shape.dim[0], width = fr__cols(k->node);
    for (int64_t s = 0; s < k->batch; s++) {
        const float *x = (const float *)a->x[0] + s * n_steps * width; /* (T, D) */
        float *y = (float *)a->y + s * width;
        int64_t length = fr__ref_length(k, a, s, n_steps);
        for (int64_t i = 0; i < width; i++) {
            double sum = 0;
            for (int64_t t = 0; t < length; t++)
                sum += weight(t, length) * (double)x[t * width + i];
            y[i] = (float)sum;
        }
    }
}

static void spread(fr__kernel *k, const fr__kernel_args *a, step_weight weight)
{
    int64_t n_steps = fr__ref_input(k, 0)->shape.dim[0], width = fr__cols(k->node);
    for (int64_t s = 0; s < k->batch; s++) {
        const float *dy = (const float *)a->dy + s * width;
        float *dx = (float *)a->dx[0] + s * n_steps * width;
        int64_t length = fr__ref_length(k, a, s, n_steps);
        for (int64_t t = 0; t < n_steps; t++)
            for (int64_t i = 0; i < width; i++)
                fr__ref_put(&dx[t * width + i], weight(t, length) * (double)dy[i], a->add_dx[0]);
    }
}

static fr_status mean_time_forward(fr__kernel *k, const fr__kernel_args *a)
{
    reduce(k, a, mean_weight);
    return FR_OK;
}

static fr_status mean_time_backward(fr__kernel *k, const fr__kernel_args *a)
{
    spread(k, a, mean_weight);
    return FR_OK;
}

static fr_status last_time_forward(fr__kernel *k, const fr__kernel_args *a)
{
    reduce(k, a, last_weight);
    return FR_OK;
}

static fr_status last_time_backward(fr__kernel *k, const fr__kernel_args *a)
{
    spread(k, a, last_weight);
    return FR_OK;
}

fr_status fr__ref_mean_time(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = mean_time_forward,
                                       .backward_input = mean_time_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->needs_x = (*out)->node->n_inputs > 1 ? 2 : 0;
    return FR_OK;
}

fr_status fr__ref_last_time(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = last_time_forward,
                                       .backward_input = last_time_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->needs_x = (*out)->node->n_inputs > 1 ? 2 : 0;
    return FR_OK;
}
