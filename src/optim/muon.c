/* muon.c -- Muon (Jordan et al. 2024, in the form of PyTorch 2.9): matrices by orthogonalised
 * momentum, all other weights by adamw.
 *
 *     m = m + (1 - momentum) * (g - m)
 *     u = m                                  nesterov: g + momentum * (m - g)
 *     O = u with all singular values near 1  (fr__device_orthogonalise)
 *     w = (1 - lr * weight_decay) * w - lr * scale * O
 *
 * scale is 0.2 * sqrt(max(rows, cols)), which gives O the root mean square of adamw's steps (Liu et
 * al. 2025), so one rate serves both kinds of weights; or sqrt(max(1, rows / cols)), the original.
 *
 * Matrices use the state blocks of adamw: the first holds m, the second u and then O, where adamw
 * has the mean of squares. Predictions move along O, the last step, for `lr * scale` per update.
 * O does not depend on the size of u, so gradients that are assumed to be zero shorten nothing, and
 * there are no bias corrections: every extrapolation of the state is the same. */
#include "optim/optim.h"
#include "optim/sweep.h"

#include <math.h>

static void defaults(fr_optim_options *o)
{
    *o = (fr_optim_options){.lr = 1e-3,
                            .weight_decay = 0.1,
                            .momentum = 0.95,
                            .nesterov = true,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .eps = 1e-8,
                            .adamw_factor = 1,
                            .match_rms_adamw = true};
}

static const char *check(const fr_optim_options *o)
{
    const char *wrong = fr__adam_check(o);
    if (wrong) return wrong;
    if (!(o->momentum >= 0 && o->momentum < 1)) return "momentum must be in [0, 1)";
    if (!(o->adamw_factor >= 0 && isfinite(o->adamw_factor)))
        return "adamw_factor must be at least 0";
    return NULL;
}

/* --- weights outside of matrices -------------------------------------------------------------- */

static void prepare(const fr_optim_options *o, int64_t t, fr_optim_coef *c)
{
    fr_optim_options adamw = *o;
    adamw.lr *= o->adamw_factor;
    fr__optim_adamw.prepare(&adamw, t, c);
}

static double distance(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t, int n,
                       const double *lr)
{
    return o->adamw_factor * fr__adam_distance(o, extrapolation, t, n, lr);
}

/* --- matrices --------------------------------------------------------------------------------- */

static void prepare_matrix(const fr_optim_options *o, int64_t t, fr_optim_coef *c)
{
    (void)t;
    c->gain1 = (float)(1 - o->momentum);
    c->use_grad = o->nesterov ? (float)(1 - o->momentum) : 0;
    c->use_buffer = o->nesterov ? (float)o->momentum : 1;
    c->keep = (float)(1 - o->lr * o->weight_decay);
}

static double scale(const fr_optim_options *o, int64_t rows, int64_t cols)
{
    double r = (double)rows, c = (double)cols;
    return o->match_rms_adamw ? 0.2 * sqrt(fmax(r, c)) : sqrt(fmax(1, r / c));
}

static double distance_matrix(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t,
                              int n, const double *lr)
{
    double sum = 0;
    (void)o, (void)extrapolation, (void)t;
    for (int i = 0; i < n; i++) sum += lr[i];
    return sum;
}

FR_INLINE void gather_range(const fr_optim_coef k, size_t n, const float *restrict g,
                            float *restrict m, float *restrict u)
{
    for (size_t i = 0; i < n; i++) {
        float d = k.grad_scale * g[i];
        float mean = m[i] + k.gain1 * (d - m[i]);
        m[i] = mean;
        u[i] = k.use_grad * d + k.use_buffer * mean;
    }
}

FR_SIMD(static, gather, (const fr_optim_coef *c, const fr_sweep *s), (c, s))
{
    gather_range(*c, s->n, s->grad, s->state[0], s->state[1]);
}

FR_INLINE void sweep(const fr_optim_coef k, const fr_prediction_coef coef, size_t n, bool in_place,
                     bool has_drift, bool is_bf16, int n_ahead, const float *restrict other,
                     float *restrict to, const float *restrict o, float *restrict drift,
                     void *restrict a0, void *restrict a1)
{
    const float *w = in_place ? to : other;
    for (size_t i = 0; i < n; i++) {
        float old = w[i];
        float now = k.keep * old - k.lr * o[i];
        float toward = o[i];
        to[i] = now;
        if (has_drift) toward = drift[i] = coef.keep * drift[i] + (1 - coef.keep) * (now - old);
        if (n_ahead > 0) fr__put_ahead(is_bf16, a0, i, now, coef.by[0], toward);
        if (n_ahead > 1) fr__put_ahead(is_bf16, a1, i, now, coef.by[1], toward);
    }
}

FR_SIMD(static, apply, (const fr_optim_coef *c, const fr_sweep *s), (c, s))
{
#define LOOP(in_place, has_drift, is_bf16, n_ahead)                                       \
    sweep(*c, s->ahead_coef, s->n, in_place, has_drift, is_bf16, n_ahead, s->from, s->to, \
          s->state[1], s->drift, s->ahead[0], s->ahead[1])
    FR_SWEEP_KINDS(s, LOOP);
#undef LOOP
}

static void predict(const fr_sweep *s) { fr__predict_along(s, s->drift ? s->drift : s->state[1]); }

static const fr_matrix_rule matrices = {
    .gather = &(const fr_optimizer){.name = "muon", .n_state = 2, .step = gather},
    .apply = &(const fr_optimizer){.name = "muon",
                                   .n_state = 2,
                                   .prepare = prepare_matrix,
                                   .step = apply,
                                   .predict = predict,
                                   .distance = distance_matrix},
    .scale = scale,
};

const fr_optimizer fr__optim_muon = {
    .name = "muon",
    .summary = "matrices of hidden layers by orthogonalised momentum, the rest by adamw",
    .bounds_steps = true,
    .n_state = 2,
    .state_names = {"exp_avg", "square_or_step"},
    .keys = (const char *const[]){"weight_decay", "momentum", "nesterov", "match_rms_adamw",
                                  "adamw_factor", "beta1", "beta2", "eps", NULL},
    .defaults = defaults,
    .check = check,
    .prepare = prepare,
    .step = fr__adam_step,
    .predict = fr__adam_predict,
    .distance = distance,
    .matrices = &matrices,
};
