/* registry.c -- the tables of optimizers and schedules, and their common code. */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

static const fr_optimizer *const optimizers[] = {
    &fr__optim_sgd,
    &fr__optim_adam,
    &fr__optim_adamw,
    &fr__optim_nadam,
    &fr__optim_muon,
    &fr__optim_lion,
    NULL,
};

static const fr_lr_schedule *const schedules[] = {
    &fr__lr_constant, &fr__lr_step,      &fr__lr_cosine,       &fr__lr_polynomial,
    &fr__lr_wsd,      &fr__lr_one_cycle, &fr__lr_inverse_sqrt, NULL,
};

const fr_optimizer *const *fr_optim_list(void) { return optimizers; }

const fr_lr_schedule *const *fr_lr_list(void) { return schedules; }

const fr_optimizer *fr_optim_find(const char *name)
{
    for (const fr_optimizer *const *o = optimizers; *o; o++)
        if (strcmp((*o)->name, name) == 0) return *o;
    return NULL;
}

const fr_lr_schedule *fr_lr_find(const char *name)
{
    for (const fr_lr_schedule *const *s = schedules; *s; s++)
        if (strcmp((*s)->name, name) == 0) return *s;
    return NULL;
}

const char *fr__optim_check_common(const fr_optim_options *o)
{
    if (!(o->lr >= 0 && isfinite(o->lr))) return "lr must be at least 0";
    if (!(o->weight_decay >= 0 && isfinite(o->weight_decay)))
        return "weight_decay must be at least 0";
    return NULL;
}

void fr_optim_prepare(const fr_optimizer *opt, const fr_optim_options *o, int64_t t, double lr,
                      double grad_scale, fr_optim_coef *c)
{
    fr_optim_options now = *o;
    now.lr = lr;
    *c = (fr_optim_coef){.grad_scale = (float)grad_scale, .lr = (float)lr, .keep = 1};
    opt->prepare(&now, t, c);
}

void fr_optim_prepare_prediction(const fr_optimizer *opt, const fr_optim_options *o,
                                 fr_extrapolation extrapolation, int64_t t, int n, const double *lr,
                                 int j, fr_prediction_coef *coef)
{
    /* Before the first update, state and directions are zero; a correction by 1 - beta^0 would give
     * 0 / 0. */
    int64_t last = extrapolation == FR_EXTRAPOLATE_CONSTANT || t < 1 ? 1 : t;
    coef->eps = (float)o->eps;
    coef->unbias2 = (float)(1 / sqrt(1 - pow(o->beta2, (double)last)));
    if (extrapolation == FR_EXTRAPOLATE_DRIFT)
        coef->by[j] = (float)n;
    else
        coef->by[j] = t < 1 ? 0 : (float)opt->distance(o, extrapolation, t, n, lr);
}
