/* weight_versions.c -- the weights that each pass reads, from the execution plan, for printing. */
#include "weight_versions.h"

#include <stdio.h>
#include <stdlib.h>

struct weight_versions {
    const fr_schedule *s;
    fr_exec_plan *plan;
    int n_micro;                          /* of the segment */
    fr_weight_read *forwards, *backwards; /* [stage][micro] */
};

/* Limit the output to what a reader can use and one second can compute. */
static fr_status check_size(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *d)
{
    enum { MOST_STAGES = 10000, MOST_COMPUTATIONS = 1 << 17 };
    int64_t n_batches = d->n_batches ? d->n_batches : 1, n_workers = 0;
    for (int k = 0; k < d->n_stages && n_workers <= MOST_COMPUTATIONS; k++)
        n_workers += d->replicas ? d->replicas[k] : 1;
    if (d->n_stages <= MOST_STAGES && n_workers <= MOST_COMPUTATIONS &&
        d->n_micro <= MOST_COMPUTATIONS / n_batches / d->n_stages)
        return FR_OK;
    return fr_fail(ctx, FR_INVALID,
                   "%s: %d stages x %d micro-batches x %lld mini-batches are too many to show; the "
                   "limits are %d stages, %d for the product and %d workers",
                   g->name, d->n_stages, d->n_micro, (long long)n_batches, MOST_STAGES,
                   MOST_COMPUTATIONS, MOST_COMPUTATIONS);
}

fr_status versions_set_batches(fr_ctx *ctx, const fr_generator *g, fr_schedule_desc *d)
{
    const fr_schedule *s;
    int ahead = 0, share = d->n_micro;
    FR_TRY(check_size(ctx, g, d));
    if (d->n_batches || g->is_flush || g->is_forward_only || d->n_micro < 1) return FR_OK;
    d->n_batches = d->n_stages + 1;
    FR_TRY(check_size(ctx, g, d));
    FR_TRY(fr_schedule_create(ctx, g, d, &s));
    for (int i = 0; i < s->lists[0].n && s->lists[0].at[i].action != FR_DO_B; i++)
        ahead += s->lists[0].at[i].action == FR_DO_F;
    share /= s->replicas[0];
    fr_schedule_free(s);
    d->n_batches = 1 + (ahead + d->n_stages + share - 1) / share;
    return FR_OK;
}

static fr_weight_read *at(const weight_versions *r, fr_weight_read *table, int stage, int micro)
{
    return &table[(size_t)stage * (size_t)r->n_micro + (size_t)micro];
}

fr_status versions_create(fr_ctx *ctx, const fr_schedule *s, const fr_policy *policy,
                          const fr_policy_options *options, weight_versions **out)
{
    weight_versions *r = *out = calloc(1, sizeof *r);
    if (!r) return fr_fail(ctx, FR_NO_MEMORY, "out of memory for the passes of %s", s->name);
    *r = (weight_versions){.s = s, .n_micro = s->n_batches * s->n_micro};
    size_t n = (size_t)s->n_stages * (size_t)r->n_micro;
    r->forwards = calloc(n, sizeof *r->forwards);
    r->backwards = calloc(n, sizeof *r->backwards);
    fr_exec_desc d = {.schedule = s, .policy = policy};
    if (options) d.policy_options = *options;
    fr_status status = FR_OK;
    if (!r->forwards || !r->backwards)
        status = fr_fail(ctx, FR_NO_MEMORY, "out of memory for the passes of %s", s->name);
    if (status == FR_OK) status = fr_exec_plan_create(ctx, &d, &r->plan, NULL);
    if (status == FR_OK) status = fr_exec_plan_reads(ctx, r->plan, r->forwards, r->backwards);
    if (status == FR_OK) return FR_OK;
    versions_free(r);
    *out = NULL;
    return status;
}

void versions_free(weight_versions *r)
{
    if (!r) return;
    fr_exec_plan_free(r->plan);
    free(r->forwards);
    free(r->backwards);
    free(r);
}

void versions_at(const weight_versions *r, int w, int i, int *version, int *ahead)
{
    const fr_instr *x = &r->s->lists[w].at[i];
    const fr_weight_read *p =
        at(r, x->action == FR_DO_F ? r->forwards : r->backwards, x->stage, x->micro);
    *version = p->version, *ahead = p->ahead;
}

const fr_policy_context *versions_context(const weight_versions *r, int stage)
{
    return &r->plan->context[stage];
}

int versions_n_copies(const weight_versions *r, int stage)
{
    return r->plan->n_weight_blocks[stage];
}

const char *versions_legend(const weight_versions *r)
{
    size_t n = (size_t)r->s->n_stages * (size_t)r->n_micro;
    bool predicts = false;
    for (size_t i = 0; i < n; i++) predicts |= r->forwards[i].ahead || r->backwards[i].ahead;
    if (!predicts) return "below: updates in the weights that it reads";
    return r->plan->policy->extrapolation == FR_EXTRAPOLATE_DRIFT
               ? "2-1: reads weights with 2 updates, walked back by 1"
               : "2+1: reads weights with 2 updates, 1 more predicted";
}

void versions_text(void *user, int w, int i, char *text, size_t room)
{
    const weight_versions *r = user;
    int version, ahead;
    versions_at(r, w, i, &version, &ahead);
    bool is_back = r->plan->policy->extrapolation == FR_EXTRAPOLATE_DRIFT;
    if (ahead)
        snprintf(text, room, "%d%c%d", version, is_back ? '-' : '+', ahead);
    else
        snprintf(text, room, "%d", version);
}
