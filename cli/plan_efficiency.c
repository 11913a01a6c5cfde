/* plan_efficiency.c -- forerun plan --efficiency: which asynchronous methods learn as well as a
 * method with the weights of one worker, by results of forerun efficiency. */
#include "plan.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* As well: with a mean number of epochs that is at most so much larger. */
#define MOST_EPOCHS 1.02

static bool is_flush(const fr_method *m) { return fr_generator_find(m->generator)->is_flush; }

static fr_status judge_one(fr_ctx *ctx, const fr_efficiency_result *r,
                           const fr_efficiency_result *one, plan_evidence *out)
{
    if (r->goal.kind != one->goal.kind || r->goal.value != one->goal.value)
        return fr_fail(ctx, FR_INVALID,
                       "--efficiency: the results of %s and %s have different targets, %g and %g; "
                       "measure both with one --target",
                       r->method->name, one->method->name, r->goal.value, one->goal.value);
    if (is_flush(r->method)) return FR_OK;
    plan_learned *to = &out->at[out->n++];
    *to = (plan_learned){.method = r->method, .max_stages = r->stages};
    double more = r->epochs / one->epochs;
    if (isnan(more))
        snprintf(to->why, sizeof to->why, "asynchronous: did not reach the target");
    else if (more > MOST_EPOCHS)
        snprintf(to->why, sizeof to->why, "asynchronous: took %.3g %% more epochs than %s",
                 100 * (more - 1), one->method->name);
    return FR_OK;
}

static fr_status judge(fr_ctx *ctx, int n, const fr_efficiency_result *results, plan_evidence *out)
{
    const fr_efficiency_result *one = NULL;
    for (int i = 0; i < n; i++)
        if (is_flush(results[i].method) && !isnan(results[i].epochs)) one = &results[i];
    if (!one)
        return fr_fail(ctx, FR_INVALID,
                       "--efficiency: no result in which a method with the weights of one worker "
                       "reaches the target; give one of single, or of a flush method, too");
    for (int i = 0; i < n; i++) FR_TRY(judge_one(ctx, &results[i], one, out));
    return FR_OK;
}

fr_status cli_plan_read_evidence(fr_ctx *ctx, const char *paths, int batch, plan_evidence *out)
{
    fr_efficiency_result results[PLAN_MOST_RESULTS];
    char path[PATH_MAX];
    int n = 0;
    *out = (plan_evidence){0};
    for (const char *at = paths; *at; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (length >= sizeof path || n == PLAN_MOST_RESULTS)
            return fr_fail(ctx, FR_INVALID, "--efficiency: expected at most %d files or folders",
                           PLAN_MOST_RESULTS);
        snprintf(path, sizeof path, "%.*s", (int)length, at);
        FR_TRY(fr_efficiency_read(ctx, path, batch, &results[n++]));
        at += length;
    }
    return judge(ctx, n, results, out);
}

const plan_learned *cli_plan_learned(const plan_evidence *e, const fr_method *m)
{
    for (int i = 0; i < e->n; i++)
        if (e->at[i].method == m) return &e->at[i];
    return NULL;
}
