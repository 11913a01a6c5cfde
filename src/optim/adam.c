/* adam.c -- Adam (Kingma and Ba, ICLR 2015): steps of mhat / (sqrt(vhat) + eps); weight decay,
 * if any, is added to the gradient. */
#include "optim/optim.h"

static void defaults(fr_optim_options *o)
{
    *o = (fr_optim_options){.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
}

static void prepare(const fr_optim_options *o, int64_t t, fr_optim_coef *c)
{
    c->l2 = (float)o->weight_decay;
    fr__adam_fill(o, t, fr__adam_shares, c);
}

const fr_optimizer fr__optim_adam = {
    .name = "adam",
    .summary = "steps scaled by running means of gradient and square; decay in the gradient",
    .bounds_steps = true,
    .n_state = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .keys = (const char *const[]){"weight_decay", "beta1", "beta2", "eps", NULL},
    .defaults = defaults,
    .check = fr__adam_check,
    .prepare = prepare,
    .step = fr__adam_step,
    .predict = fr__adam_predict,
    .distance = fr__adam_distance,
};
