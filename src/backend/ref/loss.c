/* loss.c -- softmax cross entropy of logits (..., K) against class numbers (...).
 *
 * With label smoothing e, a target asks for probability q = (1 - e) [is it the class] + e / K.
 * Loss: -sum q log p; gradient: (p - q) * loss_scale. Ignored targets contribute to neither. Output
 * of a sample: sum of losses, targets that counted, of them hit by the largest logit. */
#include <math.h>

#include "backend/check.h"
#include "backend/ref/ref.h"

/* log(sum(exp(z))), and the first largest. */
static double log_sum(const float *z, int64_t n, int64_t *largest)
{
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < n; i++)
        if (z[i] > z[best]) best = i;
    for (int64_t i = 0; i < n; i++) sum += exp((double)z[i] - (double)z[best]);
    *largest = best;
    return (double)z[best] + log(sum);
}

static fr_status cross_entropy_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const fr_node *logits = fr__ref_input(k, 0);
    int64_t n = fr__cols(logits), rows = fr__rows(logits, k->batch) / k->batch;
    double smooth = (double)k->node->attrs.loss.label_smoothing;
    const int32_t *target = a->x[1]; /* (N, rows) */
    FR_TRY(fr__check_targets(k, a));
    for (int64_t s = 0; s < k->batch; s++) {
        double loss = 0, counted = 0, correct = 0;
        for (int64_t r = s * rows; r < (s + 1) * rows; r++) {
            if (!fr__target_counts(k->node, target[r])) continue;
            const float *z = (const float *)a->x[0] + r * n;
            int64_t largest;
            double total = log_sum(z, n, &largest), mean = 0;
            for (int64_t i = 0; i < n; i++) mean += (double)z[i] / (double)n;
            loss += (1 - smooth) * (total - (double)z[target[r]]) + smooth * (total - mean);
            counted += 1;
            correct += largest == target[r];
        }
        float *y = (float *)a->y + 3 * s;
        y[0] = (float)loss, y[1] = (float)counted, y[2] = (float)correct;
    }
    return FR_OK;
}

static fr_status cross_entropy_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const fr_node *logits = fr__ref_input(k, 0);
    int64_t n = fr__cols(logits), rows = fr__rows(logits, k->batch);
    double smooth = (double)k->node->attrs.loss.label_smoothing;
    const int32_t *target = a->x[1];
    for (int64_t r = 0; r < rows; r++) {
        const float *z = (const float *)a->x[0] + r * n;
        float *dz = (float *)a->dx[0] + r * n;
        bool counts = fr__target_counts(k->node, target[r]);
        int64_t largest;
        double total = log_sum(z, n, &largest);
        for (int64_t i = 0; i < n; i++) {
            double q = (i == target[r] ? 1 - smooth : 0) + smooth / (double)n;
            double g = (exp((double)z[i] - total) - q) * (double)a->pass->loss_scale;
            fr__ref_put(&dz[i], counts ? g : 0, a->add_dx[0]);
        }
    }
    return FR_OK;
}

fr_status fr__ref_cross_entropy(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = cross_entropy_forward,
                                       .backward_input = cross_entropy_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->needs_x = 3;
    return FR_OK;
}
