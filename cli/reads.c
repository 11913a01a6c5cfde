/* reads.c -- the policy's three wishes, applied along the lists of a schedule. */
#include "reads.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct pass {
    int version, ahead;
} pass;

struct reads {
    const fr_schedule *s;
    const fr_policy *policy;
    int n_micro;                /* of the segment */
    pass *forwards, *backwards; /* [stage][micro] */
};

fr_policy_context reads_context(const fr_schedule *s, int stage)
{
    bool has_replicas = false;
    for (int k = 0; k < s->n_stages; k++) has_replicas |= s->replicas[k] > 1;
    return (fr_policy_context){.stage = stage,
                               .n_stages = s->n_stages,
                               .lead = has_replicas ? fr_schedule_lead(s, stage) : 0,
                               .n_micro = s->n_micro / s->replicas[stage],
                               .n_slots = s->n_slots ? s->n_slots[stage] : 1};
}

/* What is printed is for people, and a second of work. */
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
                   "%s: %d stages x %d micro-batches x %lld mini-batches are too many to show; at "
                   "most %d stages, %d of their product and %d workers are",
                   g->name, d->n_stages, d->n_micro, (long long)n_batches, MOST_STAGES,
                   MOST_COMPUTATIONS, MOST_COMPUTATIONS);
}

fr_status reads_batches(fr_ctx *ctx, const fr_generator *g, fr_schedule_desc *d)
{
    fr_schedule *s;
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

static pass *at(const reads *r, pass *table, int stage, int micro)
{
    return &table[(size_t)stage * (size_t)r->n_micro + (size_t)micro];
}

/* What one pass of micro-batch `micro` gets when its stage has made `newest` updates. `same` are
 * the passes of its kind, so that one may do as the first of its mini-batch did. */
static pass answer(const reads *r, const fr_want *want, int stage, int micro, int newest,
                   pass *same)
{
    const fr_schedule *s = r->s;
    int batch = micro / s->n_micro, replicas = s->replicas[stage];
    int first = batch * s->n_micro + micro % replicas; /* of this replica */
    switch (want->base) {
    case FR_NEWEST: return (pass){newest, want->ahead};
    case FR_AS_FORWARD: return *at(r, r->forwards, stage, micro);
    case FR_AS_FIRST:
        return micro == first ? (pass){newest, want->ahead} : *at(r, same, stage, first);
    case FR_PREVIOUS: return (pass){batch > 0 ? batch - 1 : 0, 0};
    }
    return (pass){0, 0};
}

static void walk(reads *r, int worker, int *newest)
{
    const fr_schedule *s = r->s;
    const fr_instr_list *l = &s->lists[worker];
    for (int k = 0; k < s->n_stages; k++) newest[k] = 0;
    for (int i = 0; i < l->n; i++) {
        const fr_instr *x = &l->at[i];
        fr_policy_context context = reads_context(s, x->stage);
        fr_want want;
        int micro = x->micro % s->n_micro / s->replicas[x->stage];
        if (x->action == FR_DO_F) {
            r->policy->forward(&context, micro, &want);
            *at(r, r->forwards, x->stage, x->micro) =
                answer(r, &want, x->stage, x->micro, newest[x->stage], r->forwards);
        } else if (x->action == FR_DO_B || x->action == FR_DO_I) {
            r->policy->backward(&context, micro, &want);
            *at(r, r->backwards, x->stage, x->micro) =
                answer(r, &want, x->stage, x->micro, newest[x->stage], r->backwards);
        } else if (x->action == FR_DO_STEP) {
            newest[x->stage]++;
        }
    }
}

reads *reads_create(const fr_schedule *s, const fr_policy *policy)
{
    reads *r = calloc(1, sizeof *r);
    int *newest = calloc((size_t)s->n_stages, sizeof *newest);
    if (r) {
        size_t n = (size_t)s->n_stages * (size_t)(s->n_batches * s->n_micro);
        *r = (reads){.s = s, .policy = policy, .n_micro = s->n_batches * s->n_micro};
        r->forwards = calloc(n, sizeof *r->forwards);
        r->backwards = calloc(n, sizeof *r->backwards);
    }
    if (!r || !newest || !r->forwards || !r->backwards) {
        free(newest);
        reads_free(r);
        return NULL;
    }
    for (int w = 0; w < s->n_workers; w++) walk(r, w, newest);
    free(newest);
    return r;
}

void reads_free(reads *r)
{
    if (!r) return;
    free(r->forwards);
    free(r->backwards);
    free(r);
}

void reads_at(const reads *r, int w, int i, int *version, int *ahead)
{
    const fr_instr *x = &r->s->lists[w].at[i];
    const pass *p = at(r, x->action == FR_DO_F ? r->forwards : r->backwards, x->stage, x->micro);
    *version = p->version, *ahead = p->ahead;
}

const char *reads_legend(const reads *r)
{
    size_t n = (size_t)r->s->n_stages * (size_t)r->n_micro;
    bool predicts = false;
    for (size_t i = 0; i < n; i++) predicts |= r->forwards[i].ahead || r->backwards[i].ahead;
    if (!predicts) return "below: updates in the weights that it reads";
    return r->policy->course == FR_COURSE_DRIFT
               ? "2-1: reads weights with 2 updates, walked back by 1"
               : "2+1: reads weights with 2 updates, 1 more predicted";
}

void reads_text(void *user, int w, int i, char *text, size_t room)
{
    const reads *r = user;
    int version, ahead;
    reads_at(r, w, i, &version, &ahead);
    bool is_back = r->policy->course == FR_COURSE_DRIFT;
    if (ahead)
        snprintf(text, room, "%d%c%d", version, is_back ? '-' : '+', ahead);
    else
        snprintf(text, room, "%d", version);
}
