/* lion.c -- Lion (Chen et al., NeurIPS 2023): the sign of a mean of gradients.
 *
 *     u = sign(beta1 * m + (1 - beta1) * g)
 *     m = beta2 * m + (1 - beta2) * g
 *     w = (1 - lr * weight_decay) * w - lr * u
 *
 * One state block. Every weight moves by the rate or, with u = 0, not at all.
 *
 * Predictions move along sign(m). The gradient of the next update is unknown; while gradients
 * change slowly it is about m, and u is sign(m). If future gradients are assumed to be zero, m
 * shrinks and keeps its sign, and there are no bias corrections: every extrapolation of the state
 * is the same. */
#include "optim/optim.h"
#include "optim/sweep.h"

static void defaults(fr_optim_options *o)
{
    *o = (fr_optim_options){.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99};
}

static const char *check(const fr_optim_options *o)
{
    const char *wrong = fr__optim_check_common(o);
    if (wrong) return wrong;
    if (!(o->beta1 >= 0 && o->beta1 < 1)) return "beta1 must be in [0, 1)";
    if (!(o->beta2 >= 0 && o->beta2 < 1)) return "beta2 must be in [0, 1)";
    return NULL;
}

static void prepare(const fr_optim_options *o, int64_t t, fr_optim_coef *c)
{
    (void)t;
    c->gain1 = (float)(1 - o->beta2); /* of the mean, as in other rules */
    c->gain2 = (float)(1 - o->beta1);
    /* The argument of the sign by g and the new m: what the linear model of stability reads. */
    c->use_buffer = o->beta2 > 0 ? (float)(o->beta1 / o->beta2) : 0;
    c->use_grad = 1 - c->use_buffer;
    c->keep = (float)(1 - o->lr * o->weight_decay);
}

static double distance(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t, int n,
                       const double *lr)
{
    double sum = 0;
    (void)o, (void)extrapolation, (void)t;
    for (int i = 0; i < n; i++) sum += lr[i];
    return sum;
}

FR_INLINE float sign_of(float x) { return (x > 0 ? 1.0f : 0.0f) - (x < 0 ? 1.0f : 0.0f); }

FR_INLINE void sweep(const fr_optim_coef k, const fr_prediction_coef coef, size_t n, bool in_place,
                     bool has_drift, bool is_bf16, int n_ahead, const float *restrict other,
                     float *restrict to, const float *restrict g, float *restrict m,
                     float *restrict drift, void *restrict a0, void *restrict a1)
{
    const float *w = in_place ? to : other;
    for (size_t i = 0; i < n; i++) {
        float old = w[i];
        float fresh = k.grad_scale * g[i] - m[i];
        float mean = m[i] + k.gain1 * fresh;
        float now = k.keep * old - k.lr * sign_of(m[i] + k.gain2 * fresh);
        float toward = sign_of(mean);
        m[i] = mean;
        to[i] = now;
        if (has_drift) toward = drift[i] = coef.keep * drift[i] + (1 - coef.keep) * (now - old);
        if (n_ahead > 0) fr__put_ahead(is_bf16, a0, i, now, coef.by[0], toward);
        if (n_ahead > 1) fr__put_ahead(is_bf16, a1, i, now, coef.by[1], toward);
    }
}

FR_SIMD(static, step, (const fr_optim_coef *c, const fr_sweep *s), (c, s))
{
#define LOOP(in_place, has_drift, is_bf16, n_ahead)                                                \
    sweep(*c, s->ahead_coef, s->n, in_place, has_drift, is_bf16, n_ahead, s->from, s->to, s->grad, \
          s->state[0], s->drift, s->ahead[0], s->ahead[1])
    FR_SWEEP_KINDS(s, LOOP);
#undef LOOP
}

FR_INLINE void extrapolate(const fr_prediction_coef coef, size_t n, bool is_bf16, int n_ahead,
                           const float *restrict w, const float *restrict m, void *restrict a0,
                           void *restrict a1)
{
    for (size_t i = 0; i < n; i++) {
        fr__put_ahead(is_bf16, a0, i, w[i], coef.by[0], sign_of(m[i]));
        if (n_ahead > 1) fr__put_ahead(is_bf16, a1, i, w[i], coef.by[1], sign_of(m[i]));
    }
}

FR_SIMD(static, predict_by_sign, (const fr_sweep *s), (s))
{
#define LOOP(is_bf16, n_ahead)                                                            \
    extrapolate(s->ahead_coef, s->n, is_bf16, n_ahead, s->from, s->state[0], s->ahead[0], \
                s->ahead[1])
    FR_PREDICT_KINDS(s, LOOP);
#undef LOOP
}

static void predict(const fr_sweep *s)
{
    if (s->drift)
        fr__predict_along(s, s->drift);
    else
        predict_by_sign(s);
}

const fr_optimizer fr__optim_lion = {
    .name = "lion",
    .summary = "steps of the rate by the sign of a mean of gradients; one state block",
    .bounds_steps = true,
    .n_state = 1,
    .state_names = {"exp_avg"},
    .keys = (const char *const[]){"weight_decay", "beta1", "beta2", NULL},
    .defaults = defaults,
    .check = check,
    .prepare = prepare,
    .step = step,
    .predict = predict,
    .distance = distance,
};
