/* lab.h -- an engine made from a config, trained for a few mini-batches without files. */
#ifndef TESTS_SUPPORT_LAB_H
#define TESTS_SUPPORT_LAB_H

#include "checkpoint/checkpoint.h"
#include "run/feeder.h"
#include "support/run_fixture.h"

typedef struct lab {
    fr__setup s;
    fr_engine *e;
    fr__feeder feeder;
} lab;

static inline void lab_close(lab *l)
{
    fr_engine_free(l->e);
    fr__feeder_close(&l->feeder);
    fr__setup_close(&l->s);
    memset(l, 0, sizeof *l);
}

/* The config at f->config with n overrides. On failure there is nothing to close. */
static inline fr_status lab_open(fixture *f, int n_sets, const char *const *sets, bool want_ledger,
                                 lab *l)
{
    memset(l, 0, sizeof *l);
    fr_run_options o = {
        .size = sizeof o, .config = f->config, .n_sets = n_sets, .sets = sets, .out = f->out};
    FR_TRY(fr__setup_open(f->ctx, &o, &l->s));
    fr_loader_desc d = {.data = l->s.data,
                        .batch = (int)l->s.settings.batch,
                        .seed = l->s.settings.seed,
                        .n_steps = l->s.n_steps};
    fr_status status = fr__setup_pipeline(&l->s);
    if (status == FR_OK) {
        fr_engine_desc engine = fr__setup_train_desc(&l->s, false, want_ledger);
        status = fr_engine_create(f->ctx, &engine, &l->e);
    }
    if (status == FR_OK) status = fr__feeder_open(f->ctx, &d, l->e, &l->feeder);
    if (status != FR_OK) lab_close(l);
    return status;
}

/* All the mini-batches of the config. */
static inline fr_status lab_train(lab *l, fr_batch_fn report, void *user)
{
    int64_t n_done;
    fr_source source = fr__feeder_source(&l->feeder);
    return fr_engine_train(l->e, 0, l->s.n_steps, &source, report, user, NULL, &n_done);
}

#endif
