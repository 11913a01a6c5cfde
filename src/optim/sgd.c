/* sgd.c -- stochastic gradient descent with momentum (Sutskever et al., ICML 2013, in PyTorch's
 * form).
 *
 *     d = g + weight_decay * w
 *     v = momentum * v + (1 - dampening) * d        first update: v = d
 *     w = w - lr * v                                nesterov: w - lr * (d + momentum * v)
 *
 * v starts at zero, so "v = d" is the same line with dampening off. With momentum 0 the buffer
 * holds the last gradient, which costs memory but keeps a direction to predict with.
 *
 * Predictions move along v, which plain momentum applies. With nesterov the gradient of the next
 * update is unknown. While gradients change slowly, d is about (1 - momentum) * v (v is their
 * geometric sum), and d + momentum * v is again v. If future gradients are assumed to be zero,
 * update i applies momentum^i * v, and nesterov multiplies by momentum once more. */
#include "optim/optim.h"
#include "optim/sweep.h"

static void defaults(fr_optim_options *o) { *o = (fr_optim_options){.lr = 0.01}; }

static const char *check(const fr_optim_options *o)
{
    const char *wrong = fr__optim_check_common(o);
    if (wrong) return wrong;
    if (!(o->momentum >= 0 && o->momentum < 1)) return "momentum must be in [0, 1)";
    if (!(o->dampening >= 0 && o->dampening < 1)) return "dampening must be in [0, 1)";
    if (o->nesterov && (o->momentum <= 0 || o->dampening > 0))
        return "nesterov needs momentum above 0 and dampening 0";
    return NULL;
}

static void prepare(const fr_optim_options *o, int64_t t, fr_optim_coef *c)
{
    c->l2 = (float)o->weight_decay;
    c->momentum = (float)o->momentum;
    bool is_dampened = o->momentum > 0 && (t > 1 || o->dampens_first);
    c->fresh = is_dampened ? (float)(1 - o->dampening) : 1;
    c->use_grad = o->nesterov ? c->fresh : 0;
    c->use_buffer = o->nesterov ? (float)o->momentum : 1;
}

FR_INLINE void sweep(const fr_optim_coef k, const fr_prediction_coef coef, size_t n, bool in_place,
                     bool has_drift, bool is_bf16, int n_ahead, const float *restrict other,
                     float *restrict to, const float *restrict g, float *restrict v,
                     float *restrict drift, void *restrict a0, void *restrict a1)
{
    const float *w = in_place ? to : other;
    for (size_t i = 0; i < n; i++) {
        float old = w[i];
        float d = k.grad_scale * g[i] + k.l2 * old;
        float buffer = k.momentum * v[i] + k.fresh * d;
        float u = k.use_grad * d + k.use_buffer * buffer;
        float now = old - k.lr * u;
        float toward = buffer;
        v[i] = buffer;
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
                           const float *restrict w, const float *restrict v, void *restrict a0,
                           void *restrict a1)
{
    for (size_t i = 0; i < n; i++) {
        fr__put_ahead(is_bf16, a0, i, w[i], coef.by[0], v[i]);
        if (n_ahead > 1) fr__put_ahead(is_bf16, a1, i, w[i], coef.by[1], v[i]);
    }
}

FR_SIMD(extern, fr__predict_along, (const fr_sweep *s, const float *toward), (s, toward))
{
#define LOOP(is_bf16, n_ahead) \
    extrapolate(s->ahead_coef, s->n, is_bf16, n_ahead, s->from, toward, s->ahead[0], s->ahead[1])
    FR_PREDICT_KINDS(s, LOOP);
#undef LOOP
}

static void predict(const fr_sweep *s) { fr__predict_along(s, s->drift ? s->drift : s->state[0]); }

static double distance(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t, int n,
                       const double *lr)
{
    (void)t;
    double sum = 0, left = o->nesterov ? o->momentum : 1; /* of v, in update i without gradients */
    for (int i = 0; i < n; i++) {
        left *= o->momentum;
        sum += lr[i] * (extrapolation == FR_EXTRAPOLATE_DECAY ? left : 1);
    }
    return sum;
}

const fr_optimizer fr__optim_sgd = {
    .name = "sgd",
    .summary = "stochastic gradient descent: momentum, dampening, nesterov, weight decay",
    .n_state = 1,
    .state_names = {"momentum"},
    .keys = (const char *const[]){"weight_decay", "momentum", "dampening", "nesterov", NULL},
    .defaults = defaults,
    .check = check,
    .prepare = prepare,
    .step = step,
    .predict = predict,
    .distance = distance,
};
