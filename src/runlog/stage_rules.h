/* stage_rules.h -- the update rule of each stage, where the weight policy changes that of the run:
 * for the files that report it. */
#ifndef FR_RUNLOG_STAGE_RULES_H
#define FR_RUNLOG_STAGE_RULES_H

#include "config/setup.h"

typedef struct fr__stage_rules {
    const fr_policy *policy;         /* NULL: not known */
    const fr_optim_options *options; /* of the run */
    int n_stages;
    const fr_policy_context *context; /* [stage] */
} fr__stage_rules;

fr__stage_rules fr__setup_stage_rules(const fr__setup *s);
/* Of a stage: its rate in update t, from 0, over that of the run (a policy with lr_factor); its
 * momentum or beta1 (with adapt); updates that its forwards are predicted ahead, once the pipeline
 * is full. */
double fr__stage_lr_factor(const fr__stage_rules *r, int stage, int64_t t);
double fr__stage_momentum(const fr__stage_rules *r, int stage);
int fr__stage_ahead(const fr__stage_rules *r, int stage);

#endif
