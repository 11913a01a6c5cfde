/* preflight.c -- checks of a run and its facts before it is started; its newest checkpoint. */
#include "checkpoint/folder.h"
#include "config/parallel_checks.h"
#include "config/setup.h"

static fr_status look(fr__setup *s, const fr_run_options *o, fr_run_facts *facts)
{
    const fr__settings *t = &s->settings;
    fr_conf *parallel;
    FR_TRY(fr__folder_check(s->ctx, t->out, o->resume));
    FR_TRY(fr__pipeline_open(s->ctx, s->conf, t, s->graph, s->n_steps, 0, &s->pipeline));
    facts->n_workers = s->pipeline.schedule->n_workers;
    facts->n_ranks = (facts->n_workers + t->workers_per_rank - 1) / t->workers_per_rank;
    FR_TRY(fr_conf_section(s->conf, "parallel", &parallel));
    FR_TRY(fr__parallel_check_ranks(parallel, t, &s->pipeline, facts->n_ranks));
    facts->n_steps = s->n_steps;
    return fr__path(s->ctx, facts->out, "%s", t->out);
}

fr_status fr_run_look(fr_ctx *ctx, const fr_run_options *o, fr_run_facts *facts)
{
    fr__setup s;
    fr_run_options own;
    FR_TRY(fr__run_options_take(ctx, o, &own));
    FR_TRY(fr__setup_open(ctx, &own, &s));
    fr_status status = look(&s, &own, facts);
    fr__setup_close(&s);
    return status;
}

fr_status fr_run_newest(fr_ctx *ctx, const char *out, int64_t *step)
{
    char path[FR_PATH];
    fr__steps steps;
    FR_TRY(fr__path(ctx, path, "%s/checkpoint", out));
    fr_status status = fr__folder_steps(ctx, path, &steps);
    *step = status == FR_OK && steps.n ? steps.at[0] : -1;
    fr__vec_fini(&steps);
    return status;
}
