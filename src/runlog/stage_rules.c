/* stage_rules.c -- asks a weight policy for the rate, momentum and distance of a stage. */
#include "runlog/stage_rules.h"

fr__stage_rules fr__setup_stage_rules(const fr__setup *s)
{
    return (fr__stage_rules){.policy = s->settings.policy,
                             .options = &s->settings.optim,
                             .n_stages = s->pipeline.n_stages,
                             .context = s->pipeline.plan->context};
}

double fr__stage_lr_factor(const fr__stage_rules *r, int stage, int64_t t)
{
    return r->policy->lr_factor(&r->context[stage], t);
}

double fr__stage_momentum(const fr__stage_rules *r, int stage)
{
    fr_optim_options own = *r->options;
    r->policy->adapt(&r->context[stage], &own);
    return r->options->beta1 > 0 ? own.beta1 : own.momentum;
}

int fr__stage_ahead(const fr__stage_rules *r, int stage)
{
    fr_want want;
    r->policy->forward(&r->context[stage], 0, &want);
    return want.ahead;
}
