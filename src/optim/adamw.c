/* adamw.c -- Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019): the weights
 * shrink by lr * weight_decay, which does not enter the means. */
#include "optim/optim.h"

static void defaults(fr_optim_options *o)
{
    *o = (fr_optim_options){
        .lr = 1e-3, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
}

static void prepare(const fr_optim_options *o, int64_t t, fr_optim_coef *c)
{
    c->keep = (float)(1 - o->lr * o->weight_decay);
    fr__adam_fill(o, t, fr__adam_shares, c);
}

const fr_optimizer fr__optim_adamw = {
    .name = "adamw",
    .summary = "adam with weight decay separate from the gradient",
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
