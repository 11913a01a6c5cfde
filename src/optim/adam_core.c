/* adam_core.c -- the one sweep behind adam, adamw and nadam.
 *
 *     d = g + l2 * w                        adam and nadam: weight decay in the gradient
 *     m = m + (1 - beta1) * (d - m)         means of d and of d * d, in the form that
 *     v = v + (1 - beta2) * (d * d - v)     needs no rounded beta
 *     w = keep * w - (rate_grad * d + rate_mean * m) / (sqrt(v) * unbias2 + eps)
 *
 * The three differ in coefficients only: adam and adamw do not use d directly, adamw shrinks the
 * weights by `keep`, nadam mixes d and m. The sweep is memory-bound, so terms that are zero or one
 * cost nothing.
 *
 * Predictions move along m / (sqrt(v) * unbias2 + eps); the distance depends on the extrapolation:
 *
 *     applied    the quotient above with d, which is unknown for future updates, replaced by
 *                its estimate m / (1 - beta1^t): for adam and adamw mhat / (sqrt(vhat) + eps)
 *     constant   corrections of update 1: (m / (1 - beta1)) / (sqrt(v / (1 - beta2)) + eps)
 *     decay      d = 0 from now on: m shrinks by beta1 per update, the denominator stays
 *
 * Predictions ignore decoupled weight decay. */
#include "optim/optim.h"
#include "optim/sweep.h"

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

void fr__adam_shares(const fr_optim_options *o, int64_t t, double *by_grad, double *by_mean)
{
    *by_grad = 0;
    *by_mean = 1 / (1 - pow(o->beta1, (double)t));
}

void fr__adam_fill(const fr_optim_options *o, int64_t t, fr__adam_shares_fn shares,
                   fr_optim_coef *c)
{
    double by_grad, by_mean;
    shares(o, t, &by_grad, &by_mean);
    c->gain1 = (float)(1 - o->beta1);
    c->gain2 = (float)(1 - o->beta2);
    c->eps = (float)o->eps;
    c->unbias2 = (float)(1 / sqrt(1 - pow(o->beta2, (double)t)));
    c->rate_grad = (float)(o->lr * by_grad);
    c->rate_mean = (float)(o->lr * by_mean);
}

FR_INLINE void sweep(const fr_optim_coef k, const fr_prediction_coef coef, size_t n, bool in_place,
                     bool has_drift, bool is_bf16, int n_ahead, const float *restrict other,
                     float *restrict to, const float *restrict g, float *restrict m,
                     float *restrict v, float *restrict drift, void *restrict a0, void *restrict a1)
{
    const float *w = in_place ? to : other;
    for (size_t i = 0; i < n; i++) {
        float old = w[i];
        float d = k.grad_scale * g[i] + k.l2 * old;
        float mean = m[i] + k.gain1 * (d - m[i]);
        float square = v[i] + k.gain2 * (d * d - v[i]);
        float above = k.rate_grad * d + k.rate_mean * mean;
        float root = sqrtf(square);
        float now = k.keep * old - above / (root * k.unbias2 + k.eps);
        m[i] = mean;
        v[i] = square;
        to[i] = now;
        float toward = 0;
        if (has_drift)
            toward = drift[i] = coef.keep * drift[i] + (1 - coef.keep) * (now - old);
        else if (n_ahead > 0)
            toward = mean / (root * coef.unbias2 + coef.eps);
        if (n_ahead > 0) fr__put_ahead(is_bf16, a0, i, now, coef.by[0], toward);
        if (n_ahead > 1) fr__put_ahead(is_bf16, a1, i, now, coef.by[1], toward);
    }
}

FR_SIMD(extern, fr__adam_step, (const fr_optim_coef *c, const fr_sweep *s), (c, s))
{
#define LOOP(in_place, has_drift, is_bf16, n_ahead)                                                \
    sweep(*c, s->ahead_coef, s->n, in_place, has_drift, is_bf16, n_ahead, s->from, s->to, s->grad, \
          s->state[0], s->state[1], s->drift, s->ahead[0], s->ahead[1])
    FR_SWEEP_KINDS(s, LOOP);
#undef LOOP
}

FR_INLINE void extrapolate(const fr_prediction_coef coef, size_t n, bool is_bf16, int n_ahead,
                           const float *restrict w, const float *restrict m,
                           const float *restrict v, void *restrict a0, void *restrict a1)
{
    for (size_t i = 0; i < n; i++) {
        float toward = m[i] / (sqrtf(v[i]) * coef.unbias2 + coef.eps);
        fr__put_ahead(is_bf16, a0, i, w[i], coef.by[0], toward);
        if (n_ahead > 1) fr__put_ahead(is_bf16, a1, i, w[i], coef.by[1], toward);
    }
}

FR_SIMD(static, predict, (const fr_sweep *s), (s))
{
    const float *m = s->state[0], *v = s->state[1];
#define LOOP(is_bf16, n_ahead) \
    extrapolate(s->ahead_coef, s->n, is_bf16, n_ahead, s->from, m, v, s->ahead[0], s->ahead[1])
    FR_PREDICT_KINDS(s, LOOP);
#undef LOOP
}

void fr__adam_predict(const fr_sweep *s)
{
    if (s->drift)
        fr__predict_along(s, s->drift);
    else
        predict(s);
}

double fr__adam_distance_by(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t,
                            int n, const double *lr, fr__adam_shares_fn shares)
{
    double sum = 0, left = 1; /* of m, in update t + i without gradients */
    for (int i = 1; i <= n; i++) {
        double by_grad, by_mean, along = 1 / (1 - o->beta1);
        left *= o->beta1;
        shares(o, extrapolation == FR_EXTRAPOLATE_DECAY ? t + i : t, &by_grad, &by_mean);
        if (extrapolation == FR_EXTRAPOLATE_APPLIED)
            along = by_grad / (1 - pow(o->beta1, (double)t)) + by_mean;
        else if (extrapolation == FR_EXTRAPOLATE_DECAY)
            along = left * by_mean;
        sum += lr[i - 1] * along;
    }
    return sum;
}

double fr__adam_distance(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t,
                         int n, const double *lr)
{
    return fr__adam_distance_by(o, extrapolation, t, n, lr, fr__adam_shares);
}
