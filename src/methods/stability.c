/* stability.c -- the largest stable learning rate of a plan, as the gain margin of a loop.
 *
 * Stage k holds one weight x_k. In update u its gradient is L times the mean, over the stages that
 * share the direction and over the micro-batches, of the weights that forwards read: x_k of version
 * u - lag, moved on by a prediction. All stages of the direction get the same gradient g. With
 * d = 1 / z, a delay of one update, an optimizer answers g by
 *
 *     buffer   m = B g,     B = fresh * d / (1 - momentum * d)
 *     weight   x = -A g,    A = (by_grad * d + by_buffer * B) / (1 - d)
 *     drift    -D g,        D = (1 - keep) * (1 - d) / (1 - keep * d) * A
 *
 * and a read is -(A + by * B) * d^lag * g, or -(A - by * D) * d^lag * g with the drift. The mean of
 * all reads is -F(z) * g: the loop is 1 + lr L F(z) = 0. F has a simple pole at z = 1 with a
 * positive residue, all others are inside the unit circle, so a small lr L is stable. As lr L
 * grows, a root reaches the circle where F is real and negative, at lr L = -1 / F: the limit is the
 * smallest such value. Larger rates may be stable again, which helps nobody. */
#include <forerun/stability.h>

#include "methods/methods.h"

#include <complex.h>
#include <math.h>

static const double PI = 3.14159265358979323846;

/* A number of updates after which bias corrections and the momentum of nadam are constant. */
enum { LATE = 100000 };

/* Micro-batches whose forwards read the same weights. */
typedef struct read_group {
    int lag, ahead;
    double by, share; /* distance of the prediction, in buffers or drifts; part of all reads */
} read_group;

/* The answer of one stage. */
typedef struct response {
    double momentum, fresh, by_grad, by_buffer;
    double keep;
    bool has_drift;
    int n_groups;
    read_group *groups;
} response;

/* --- the loop --------------------------------------------------------------------------------- */

static double complex answer(const response *r, double angle)
{
    double complex d = cexp(-I * angle), sum = 0;
    double complex buffer = r->fresh * d / (1 - r->momentum * d);
    double complex weight = (r->by_grad * d + r->by_buffer * buffer) / (1 - d);
    double complex toward =
        r->has_drift ? -(1 - r->keep) * (1 - d) / (1 - r->keep * d) * weight : buffer;
    for (int i = 0; i < r->n_groups; i++) {
        const read_group *g = &r->groups[i];
        sum += g->share * cexp(-I * angle * g->lag) * (weight + g->by * toward);
    }
    return sum;
}

static double complex loop(const response *r, int n, double angle)
{
    double complex sum = 0;
    for (int k = 0; k < n; k++) sum += answer(&r[k], angle);
    return sum / n;
}

static double limit_at(double complex f) { return creal(f) < 0 ? -1 / creal(f) : INFINITY; }

/* Between two angles where F is on different sides of the real axis. */
static double limit_between(const response *r, int n, double low, double high, bool is_above)
{
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if ((cimag(loop(r, n, middle)) > 0) == is_above)
            low = middle;
        else
            high = middle;
    }
    return limit_at(loop(r, n, high));
}

/* Steps by a hundredth near 0, where slow momentum has its crossings, and at most by a small part
 * of a turn of the longest delay. */
static double find_limit(const response *r, int n)
{
    int longest = 0;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < r[k].n_groups; i++)
            if (r[k].groups[i].lag > longest) longest = r[k].groups[i].lag;
    double most = PI / (16 * (longest + 2)), limit = limit_at(loop(r, n, PI)), angle = 1e-7, next;
    bool is_above = cimag(loop(r, n, angle)) > 0;
    for (; angle < PI; angle = next) {
        next = angle + fmin(angle / 100, most);
        if (next >= PI) break; /* F is real at PI */
        bool will_be = cimag(loop(r, n, next)) > 0;
        if (will_be != is_above) limit = fmin(limit, limit_between(r, n, angle, next, is_above));
        is_above = will_be;
    }
    return limit;
}

/* --- a stage ---------------------------------------------------------------------------------- */

/* Coefficients of a late update, of rate 1: the buffer is a sum with momentum, or a running mean
 * (gain1). */
static response respond(const fr_optimizer *optimizer, const fr_optim_options *o, double lr,
                        fr_optim_coef *c)
{
    fr_optim_prepare(optimizer, o, LATE, lr, 1, c);
    bool is_mean = c->gain1 > 0;
    return (response){.momentum = is_mean ? 1 - c->gain1 : c->momentum,
                      .fresh = is_mean ? c->gain1 : c->fresh,
                      .by_grad = c->rate_grad + c->lr * c->use_grad,
                      .by_buffer = c->rate_mean + c->lr * c->use_buffer};
}

static void group(response *r, const fr_weight_read *reads, int n, int batch)
{
    for (int j = 0; j < n; j++) {
        int lag = batch - reads[j].version, i = 0;
        while (i < r->n_groups && (r->groups[i].lag != lag || r->groups[i].ahead != reads[j].ahead))
            i++;
        if (i == r->n_groups) r->groups[r->n_groups++] = (read_group){lag, reads[j].ahead, 0, 0};
        r->groups[i].share += 1.0 / n;
    }
}

/* A prediction may divide by another root of the mean square than the update does (unbias2). */
static void aim(response *r, const fr_exec_plan *p, const fr_optimizer *optimizer,
                const fr_optim_options *o, const fr_optim_coef *c, const double *rates)
{
    for (int i = 0; i < r->n_groups; i++) {
        fr_prediction_coef to;
        fr_optim_prepare_prediction(optimizer, o, p->policy->extrapolation, LATE,
                                    r->groups[i].ahead, rates, 0, &to);
        r->groups[i].by =
            to.by[0] * (c->unbias2 > 0 && !r->has_drift ? c->unbias2 / to.unbias2 : 1);
    }
}

typedef struct scratch {
    fr_weight_read *reads; /* [stage][micro] */
    read_group *groups;    /* the same */
    response *stages;      /* [stage] */
    double *rates;         /* of as many updates as a prediction may span */
} scratch;

static void fill_stage(const fr_exec_plan *p, int k, const fr_optimizer *optimizer,
                       const fr_optim_options *options, int batch, int farthest, scratch *to)
{
    int n_micro = p->schedule->n_micro;
    const fr_policy_context *context = &p->context[k];
    double lr = p->policy->lr_factor ? p->policy->lr_factor(context, INT64_MAX) : 1;
    fr_optim_options own = *options;
    if (p->policy->adapt) p->policy->adapt(context, &own);
    fr_optim_coef c;
    response r = respond(optimizer, &own, lr, &c);
    r.groups = to->groups + (size_t)k * (size_t)n_micro;
    r.has_drift = p->policy->extrapolation == FR_EXTRAPOLATE_DRIFT;
    if (p->policy->drift_keep) r.keep = p->policy->drift_keep(context);
    for (int i = 0; i < farthest; i++) to->rates[i] = lr;
    group(&r, to->reads + (size_t)k * (size_t)n_micro, n_micro, batch);
    aim(&r, p, optimizer, &own, &c, to->rates);
    to->stages[k] = r;
}

/* The farthest prediction, or a failure: weights from before the first update. */
static fr_status survey(fr_ctx *ctx, const fr_schedule *s, const fr_weight_read *reads, int batch,
                        int *farthest)
{
    *farthest = 0;
    for (int i = 0; i < s->n_stages * s->n_micro; i++) {
        if (batch > 0 && reads[i].version == 0)
            return fr_fail(ctx, FR_UNSUPPORTED,
                           "stability: the segment of schedule %s, %d mini-batches, ends before "
                           "the pipeline is full",
                           s->name, batch + 1);
        if (reads[i].ahead > *farthest) *farthest = reads[i].ahead;
    }
    return FR_OK;
}

static fr_status judge(fr_ctx *ctx, const fr_exec_plan *p, const fr_optimizer *optimizer,
                       const fr_optim_options *options, fr_arena *arena, fr_stability *out)
{
    const fr_schedule *s = p->schedule;
    int batch, farthest;
    size_t n = (size_t)s->n_stages * (size_t)s->n_micro;
    scratch to = {.reads = FR_ARENA_ARRAY(arena, fr_weight_read, n),
                  .groups = FR_ARENA_ARRAY(arena, read_group, n),
                  .stages = FR_ARENA_ARRAY(arena, response, s->n_stages)};
    if (!to.reads || !to.groups || !to.stages)
        return fr__no_memory(ctx, n * sizeof *to.groups, "the reads of a schedule");
    FR_TRY(fr__steady_forwards(ctx, p, to.reads, &batch));
    FR_TRY(survey(ctx, s, to.reads, batch, &farthest));
    to.rates = FR_ARENA_ARRAY(arena, double, farthest + 1);
    if (!to.rates) return fr__no_memory(ctx, (size_t)farthest * sizeof *to.rates, "rates");

    fr_optim_coef c;
    response one = respond(optimizer, options, 1, &c);
    one.n_groups = 1, one.groups = &(read_group){.share = 1};
    *out = (fr_stability){.one_worker = find_limit(&one, 1), .within = INFINITY};
    for (int k = 0; k < s->n_stages; k++) {
        fill_stage(p, k, optimizer, options, batch, farthest, &to);
        double limit = find_limit(&to.stages[k], 1);
        if (limit < out->within) out->within = limit, out->stage = k;
    }
    out->shared = find_limit(to.stages, s->n_stages);
    return FR_OK;
}

fr_status fr_exec_plan_stability(fr_ctx *ctx, const fr_exec_plan *p, const fr_optimizer *optimizer,
                                 const fr_optim_options *options, fr_stability *out)
{
    fr_arena arena = {0};
    fr_status status = judge(ctx, p, optimizer, options, &arena, out);
    fr__arena_fini(&arena);
    return status;
}

double fr_stability_factor(const fr_stability *s) { return s->one_worker / s->shared; }
