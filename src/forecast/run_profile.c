/* run_profile.c -- a run as planners see it: the model, the mini-batch, and profiles of its
 * micro-batches, each measured once. */
#include "base/vec.h"
#include "forecast/forecast.h"
#include "io/conf.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

struct fr_run_model {
    fr_setup setup;
    FR_VEC(fr_profile *) profiles;
    int n_workers; /* that measure at once; 0: all cores */
    double seconds;
};

fr_status fr_run_model_open(fr_ctx *ctx, const fr_run_options *o, const char *profile,
                            fr_run_model **out)
{
    *out = NULL;
    fr_run_model *m = FR_NEW(fr_run_model);
    if (!m) return fr__no_memory(ctx, sizeof *m, "a model");
    fr_status status = fr__setup_open(ctx, o, &m->setup);
    if (status != FR_OK) {
        fr__free(m);
        return status;
    }
    if (profile) m->setup.settings.profile = profile;
    *out = m;
    return FR_OK;
}

void fr_run_model_free(fr_run_model *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->profiles.n; i++) fr_profile_free(m->profiles.at[i]);
    fr__vec_fini(&m->profiles);
    fr__setup_close(&m->setup);
    fr__free(m);
}

int fr_run_model_batch(const fr_run_model *m) { return (int)m->setup.settings.batch; }

int fr_run_model_micro(const fr_run_model *m)
{
    return (int)(m->setup.settings.batch / m->setup.settings.micro);
}

void fr_run_model_measure(fr_run_model *m, int n_workers, double seconds)
{
    m->setup.settings.profile = NULL;
    m->n_workers = n_workers;
    m->seconds = seconds;
}

fr_status fr_run_model_profile(void *user, int batch, const fr_profile **out)
{
    fr_run_model *m = user;
    fr_profile *p;
    *out = NULL;
    for (size_t i = 0; i < m->profiles.n; i++)
        if (m->profiles.at[i]->batch == batch) return *out = m->profiles.at[i], FR_OK;
    FR_TRY(fr__run_profile(&m->setup, batch, m->n_workers, m->seconds, &p));
    if (!fr__vec_push(&m->profiles, p)) {
        fr_profile_free(p);
        return fr__no_memory(m->setup.ctx, sizeof p, "a profile");
    }
    *out = p;
    return FR_OK;
}

/* Everything that can be refused is, so that what is written runs. */
static fr_status save(fr_setup *s, const char *comment, const char *path)
{
    struct fr_conf_out text = {0};
    FR_TRY(fr__pipeline_open(s->ctx, s->conf, &s->settings, s->graph, s->n_steps, 0, &s->pipeline));
    for (const char *line = comment; line && *line;) {
        size_t n = strcspn(line, "\n");
        char piece[512];
        snprintf(piece, sizeof piece, "# %.*s\n", n < 500 ? (int)n : 500, line);
        fr__conf_put(&text, piece);
        line += n + (line[n] != '\0');
    }
    fr__conf_format(s->conf, &text);
    fr_status status = text.failed ? fr__no_memory(s->ctx, text.text.n, "config")
                                   : fr__file_replace(s->ctx, path, text.text.at, text.text.n);
    fr__vec_fini(&text.text);
    return status;
}

fr_status fr_run_save_config(fr_ctx *ctx, const fr_run_options *o, const char *comment,
                             const char *path)
{
    fr_setup s;
    FR_TRY(fr__setup_open(ctx, o, &s));
    fr_status status = save(&s, comment, path);
    fr__setup_close(&s);
    return status;
}
