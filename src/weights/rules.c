/* rules.c -- the coefficients of an update and of predictions, by group of parameters.
 *
 * Rule 0 is that of weights in no group, rule g + 1 that of group g. They differ in rate and weight
 * decay, so a prediction goes as far as the updates to come will. Frozen weights have no rule. */
#include "weights/store.h"

#include "base/alloc.h"

/* NULL: none; a store that counts blocks has no optimizer. */
static const fr_optimizer *matrix_rule(const fr_store *s)
{
    const fr_optimizer *opt = s->d.optimizer;
    return opt && opt->matrices ? opt->matrices->apply : NULL;
}

fr_status fr__rules_create(fr_store *s)
{
    s->n_rules = 1 + s->d.n_groups;
    s->rules = FR_NEW_ARRAY(fr__rule, s->n_rules);
    if (!s->rules) return fr__no_memory(s->ctx, sizeof *s->rules, "a weight store");
    for (int r = 0; r < s->n_rules; r++) {
        const fr_param_group *g = r > 0 ? &s->d.groups[r - 1] : NULL;
        s->rules[r].options = s->d.options;
        s->rules[r].lr_factor = g ? g->lr_factor : 1;
        if (g) s->rules[r].options.weight_decay = g->weight_decay;
    }
    return FR_OK;
}

void fr__rules_begin(fr_store *s, int64_t batch, double grad_scale)
{
    for (int r = 0; r < s->n_rules && !s->counts; r++) {
        fr__rule *rule = &s->rules[r];
        const double lr = fr_store_lr(s, batch) * rule->lr_factor;
        fr_optim_prepare(s->d.optimizer, &rule->options, batch + 1, lr, grad_scale, &rule->coef);
        if (matrix_rule(s))
            fr_optim_prepare(matrix_rule(s), &rule->options, batch + 1, lr, grad_scale,
                             &rule->matrix_coef);
        rule->ahead.keep = rule->matrix_ahead.keep = s->drift_keep;
    }
}

/* Prediction j of a rule: `ahead` updates past a version. */
static void aim(fr_store *s, const fr__rule *rule, int64_t version, int ahead, int j,
                fr_prediction_coef *plain, fr_prediction_coef *of_matrix)
{
    const fr_extrapolation how = s->d.policy->extrapolation;
    for (int i = 0; i < ahead; i++) s->rates[i] = fr_store_lr(s, version + i) * rule->lr_factor;
    fr_optim_prepare_prediction(s->d.optimizer, &rule->options, how, version, ahead, s->rates, j,
                                plain);
    if (matrix_rule(s))
        fr_optim_prepare_prediction(matrix_rule(s), &rule->options, how, version, ahead, s->rates,
                                    j, of_matrix);
    plain->keep = of_matrix->keep = s->drift_keep;
}

void fr__rules_aim(fr_store *s, int ahead, int j)
{
    for (int r = 0; r < s->n_rules && !s->counts; r++) {
        fr__rule *rule = &s->rules[r];
        aim(s, rule, s->batch + 1, ahead, j, &rule->ahead, &rule->matrix_ahead);
    }
}

void fr__rules_aim_alone(fr_store *s, int ahead)
{
    for (int r = 0; r < s->n_rules; r++) {
        fr__rule *rule = &s->rules[r];
        aim(s, rule, s->version, ahead, 0, &rule->alone, &rule->matrix_alone);
    }
}

/* The first range that ends behind `at`. */
static const fr_group_range *next_range(const fr_store *s, size_t at)
{
    int low = 0, high = s->d.n_ranges;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->d.ranges[middle].at + s->d.ranges[middle].n <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->d.n_ranges ? &s->d.ranges[low] : NULL;
}

fr__piece fr__store_piece(fr_store *s, size_t at, size_t n)
{
    fr__piece p = {.rule = &s->rules[0]};
    p.n = fr__store_matrix_at(s, at, n, &p.matrix);
    const fr_group_range *next = next_range(s, at);
    if (!next) return p;
    const bool is_in = next->at <= at;
    const size_t end = is_in ? next->at + next->n : next->at;
    if (end - at < p.n) p.n = end - at;
    if (is_in) p.rule = next->group == FR_FROZEN ? NULL : &s->rules[next->group + 1];
    return p;
}
