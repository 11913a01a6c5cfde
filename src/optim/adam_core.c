/* adam_core.c -- the one sweep behind adam, adamw and nadam.
 *
 *     d = g + l2 * w                        adam and nadam: weight decay in the gradient
 *     m = m + (1 - beta1) * (d - m)         means of d and of d * d, in the form that
 *     v = v + (1 - beta2) * (d * d - v)     needs no rounded beta
 *     w = keep * w - (rate_grad * d + rate_mean * m) / (sqrt(v) * unbias2 + eps)
 *
 * The three differ in coefficients only: adam and adamw take nothing of d itself, adamw shrinks
 * the weights by `keep`, nadam mixes d and m. The sweep is bound by memory, so the terms that are
 * zero or one for some of them are free.
 *
 * Direction: the same quotient with d, which is unknown for an update to come, replaced by its
 * estimate m / (1 - beta1^t). For adam and adamw that is mhat / (sqrt(vhat) + eps) (PipeOptim);
 * decoupled weight decay is left out. */
#include "base/simd.h"
#include "optim/optim.h"

#include <math.h>

const char *fr__adam_check(const fr_optim_options *o)
{
    const char *wrong = fr__optim_check_common(o);
    if (wrong) return wrong;
    if (!(o->beta1 >= 0 && o->beta1 < 1)) return "beta1 must be in [0, 1)";
    if (!(o->beta2 >= 0 && o->beta2 < 1)) return "beta2 must be in [0, 1)";
    /* A weight that never had a gradient would become 0 / 0. */
    if (!((float)o->eps > 0 && isfinite((float)o->eps)))
        return "eps must be above 0 (1e-8 is usual)";
    return NULL;
}

/* by_grad, by_mean: weights of d and m in the update, before the learning rate. */
void fr__adam_fill(const fr_optim_options *o, int64_t t, double by_grad, double by_mean,
                   fr_optim_coef *c)
{
    c->gain1 = (float)(1 - o->beta1);
    c->gain2 = (float)(1 - o->beta2);
    c->eps = (float)o->eps;
    c->unbias2 = (float)(1 / sqrt(1 - pow(o->beta2, (double)t)));
    c->rate_grad = (float)(o->lr * by_grad);
    c->rate_mean = (float)(o->lr * by_mean);
    c->along = (float)(by_grad / (1 - pow(o->beta1, (double)t)) + by_mean);
}

FR_INLINE void sweep(const fr_optim_coef k, size_t n, float *restrict w, const float *restrict g,
                     float *restrict m, float *restrict v)
{
    for (size_t i = 0; i < n; i++) {
        float d = k.grad_scale * g[i] + k.l2 * w[i];
        float mean = m[i] + k.gain1 * (d - m[i]);
        float square = v[i] + k.gain2 * (d * d - v[i]);
        float above = k.rate_grad * d + k.rate_mean * mean;
        float below = sqrtf(square) * k.unbias2 + k.eps;
        m[i] = mean;
        v[i] = square;
        w[i] = k.keep * w[i] - above / below;
    }
}

FR_SIMD void fr__adam_step(const fr_optim_coef *c, size_t n, float *w, const float *g,
                           float *const state[])
{
    sweep(*c, n, w, g, state[0], state[1]);
}

FR_INLINE void extrapolate(const fr_optim_coef k, size_t n, const float *restrict m,
                           const float *restrict v, float *restrict u)
{
    for (size_t i = 0; i < n; i++) u[i] = k.along * m[i] / (sqrtf(v[i]) * k.unbias2 + k.eps);
}

FR_SIMD void fr__adam_direction(const fr_optim_coef *c, size_t n, float *const state[], float *u)
{
    extrapolate(*c, n, state[0], state[1], u);
}
