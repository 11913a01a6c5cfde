/* best.c -- the best evaluation of a run: when to end early, and which checkpoint to keep.
 *
 * Rank 0 judges, and all ranks take over its verdict. What it needs is part of the position that a
 * checkpoint has, so a resumed run ends where an uninterrupted one does. */
#include "run/run.h"

#include <math.h>
#include <string.h>

static bool judges(const fr__settings *t) { return t->stop_patience > 0 || t->keep_best; }

static bool is_better(const fr_run *r, double value)
{
    const fr__settings *t = &r->setup.settings;
    const bool is_loss = strcmp(t->stop_metric, "loss") == 0;
    if (!isfinite(value)) return false;
    if (r->at.best_step == 0) return true;
    return (is_loss ? r->at.best - value : value - r->at.best) > t->stop_min_delta;
}

static bool is_exhausted(const fr_run *r)
{
    const int64_t patience = r->setup.settings.stop_patience;
    return patience > 0 && r->at.n_worse >= patience;
}

/* No further updates. The learning rate keeps to the length that the config has. */
static void end_here(fr_run *r)
{
    if (r->at.step >= r->setup.n_steps) return;
    r->setup.n_steps = r->last.n_steps = r->at.step;
    r->has_ended_early = true;
    if (!r->leads) return;
    fr_log(r->ctx, FR_LOG_INFO,
           "ends early after %lld updates: %lld evaluation%s without a better %s than %g after "
           "update %lld (train.stop.patience)",
           (long long)r->at.step, (long long)r->at.n_worse, r->at.n_worse == 1 ? "" : "s",
           r->setup.settings.stop_metric, r->at.best, (long long)r->at.best_step);
}

/* An evaluation that was interrupted has no result, and is made again by the resumed run. */
static bool is_interrupted(const fr_run *r, double value)
{
    return isnan(value) && r->o.stop && *r->o.stop;
}

typedef struct verdict {
    double value;
    int32_t is_missing;
} verdict;

fr_status fr__run_judge(fr_run *r, bool *is_best)
{
    const fr__settings *t = &r->setup.settings;
    const bool by_loss = strcmp(t->stop_metric, "loss") == 0;
    verdict v = {.value = by_loss ? r->result.eval_loss : r->result.eval_accuracy};
    *is_best = false;
    if (!judges(t)) return FR_OK;
    v.is_missing = is_interrupted(r, v.value);
    FR_TRY(fr_team_share(r->team, &v, sizeof v));
    if (v.is_missing) return FR_OK;
    if (isnan(v.value) && !by_loss)
        return fr_fail(r->ctx, FR_INVALID,
                       "train.stop.metric: the loss of model %s has no accuracy; use loss",
                       fr_graph_name(r->setup.graph));
    r->at.judged_step = r->at.step;
    *is_best = is_better(r, v.value);
    if (*is_best)
        r->at.best = v.value, r->at.best_step = r->at.step, r->at.n_worse = 0;
    else
        r->at.n_worse++;
    if (is_exhausted(r)) end_here(r);
    return FR_OK;
}

fr_status fr__run_check_best(fr_run *r)
{
    if (judges(&r->setup.settings) && fr_dataset_info(r->setup.data)->n_eval == 0)
        return fr_fail(r->ctx, FR_INVALID,
                       "data %s has no evaluation part, by which train.stop.patience and "
                       "run.keep_best would judge",
                       r->setup.data_name);
    return FR_OK;
}

fr_status fr__run_resume_best(fr_run *r)
{
    const fr__settings *t = &r->setup.settings;
    bool is_best;
    if (judges(t) && r->at.step > 0 && r->at.step % t->eval_every == 0 &&
        r->at.judged_step != r->at.step) {
        FR_TRY(fr__run_evaluate(r));
        FR_TRY(fr__run_judge(r, &is_best)); /* the checkpoint that it is about exists */
    }
    if (is_exhausted(r)) end_here(r);
    return FR_OK;
}
