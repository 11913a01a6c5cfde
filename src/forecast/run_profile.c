/* run_profile.c -- the model and mini-batch of a run for planners, with one profile per micro-batch
 * size, each measured once. */
#include "base/vec.h"
#include "forecast/forecast.h"

struct fr_run_model {
    fr__setup setup;
    FR_VEC(const fr_profile *) profiles;
    int n_workers; /* that measure at once; 0: one per core */
    double seconds;
};

fr_status fr_run_model_open(fr_ctx *ctx, const fr_run_options *o, const char *profile,
                            fr_run_model **out)
{
    fr_run_options own;
    *out = NULL;
    FR_TRY(fr__run_options_take(ctx, o, &own));
    fr_run_model *m = FR_NEW(fr_run_model);
    if (!m) return fr__no_memory(ctx, sizeof *m, "a model");
    fr_status status = fr__setup_open(ctx, &own, &m->setup);
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

const fr_graph *fr_run_model_graph(const fr_run_model *m) { return m->setup.graph; }

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
    const fr_profile *p;
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

fr_status fr_run_model_peak(fr_run_model *m, double *flops_per_s)
{
    return fr__run_peak(&m->setup, m->n_workers, flops_per_s);
}
