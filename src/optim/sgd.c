/* sgd.c -- stochastic gradient descent with momentum (Sutskever et al., ICML 2013, as PyTorch
 * has it).
 *
 *     d = g + weight_decay * w
 *     v = momentum * v + (1 - dampening) * d        first update: v = d
 *     w = w - lr * v                                nesterov: w - lr * (d + momentum * v)
 *
 * v starts at zero, so "v = d" is the same line with dampening off. With momentum 0 the buffer
 * holds the last gradient, which costs memory but keeps a direction to predict with.
 *
 * Direction: u = v. That is what plain momentum applies. With nesterov the gradient of the next
 * update is unknown; while gradients change slowly d is about (1 - momentum) * v (v is the
 * geometric sum of them), and then d + momentum * v is v again. */
#include "base/simd.h"
#include "optim/optim.h"

#include <string.h>

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
    c->fresh = o->momentum > 0 && t > 1 ? (float)(1 - o->dampening) : 1;
    c->use_grad = o->nesterov ? 1 : 0;
    c->use_buffer = o->nesterov ? (float)o->momentum : 1;
}

FR_INLINE void sweep(const fr_optim_coef k, size_t n, float *restrict w, const float *restrict g,
                     float *restrict v)
{
    for (size_t i = 0; i < n; i++) {
        float d = k.grad_scale * g[i] + k.l2 * w[i];
        float buffer = k.momentum * v[i] + k.fresh * d;
        float u = k.use_grad * d + k.use_buffer * buffer;
        v[i] = buffer;
        w[i] -= k.lr * u;
    }
}

FR_SIMD static void step(const fr_optim_coef *c, size_t n, float *w, const float *g,
                         float *const state[])
{
    sweep(*c, n, w, g, state[0]);
}

static void direction(const fr_optim_coef *c, size_t n, float *const state[], float *u)
{
    (void)c;
    memcpy(u, state[0], n * sizeof *u);
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
    .direction = direction,
};
