/* nadam.c -- Adam with Nesterov momentum (Dozat, ICLR workshop 2016).
 *
 *     mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2)
 *     w = w - lr * ((1 - mu_t) / (1 - mu_1...mu_t) * d
 *                   + mu_t+1 / (1 - mu_1...mu_t+1) * m) / (sqrt(vhat) + eps)
 *
 * as the paper, PyTorch's documentation and its foreach loop have it. The default loop of PyTorch
 * 1.13 multiplies mu_t into the second product twice; later releases do not, nor do we.
 *
 * Other implementations carry the product of momenta from update to update. Here it is recomputed:
 * all factors are below 1, and after about 60 factors the product is below half a unit in the last
 * place of 1 and no longer counts. So an update is a pure function of t. */
#include "optim/optim.h"

#include <float.h>
#include <math.h>

static void defaults(fr_optim_options *o)
{
    *o = (fr_optim_options){
        .lr = 2e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 4e-3};
}

static const char *check(const fr_optim_options *o)
{
    if (!(o->momentum_decay >= 0 && isfinite(o->momentum_decay)))
        return "momentum_decay must be at least 0";
    return fr__adam_check(o);
}

static double momentum_at(const fr_optim_options *o, int64_t t)
{
    return o->beta1 * (1 - 0.5 * pow(0.96, (double)t * o->momentum_decay));
}

static void shares(const fr_optim_options *o, int64_t t, double *by_grad, double *by_mean)
{
    double product = 1;
    for (int64_t i = 1; i <= t && product > DBL_EPSILON / 4; i++) product *= momentum_at(o, i);
    double now = momentum_at(o, t), next = momentum_at(o, t + 1);
    *by_grad = (1 - now) / (1 - product);
    *by_mean = next / (1 - product * next);
}

static void prepare(const fr_optim_options *o, int64_t t, fr_optim_coef *c)
{
    c->l2 = (float)o->weight_decay;
    fr__adam_fill(o, t, shares, c);
}

static double distance(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t, int n,
                       const double *lr)
{
    return fr__adam_distance_by(o, extrapolation, t, n, lr, shares);
}

const fr_optimizer fr__optim_nadam = {
    .name = "nadam",
    .summary = "adam with nesterov momentum; decay in the gradient",
    .bounds_steps = true,
    .n_state = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .keys = (const char *const[]){"weight_decay", "beta1", "beta2", "eps", "momentum_decay", NULL},
    .defaults = defaults,
    .check = check,
    .prepare = prepare,
    .step = fr__adam_step,
    .predict = fr__adam_predict,
    .distance = distance,
};
