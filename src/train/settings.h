/* settings.h -- the `train`, `parallel` and `run` sections of a config as one plain struct. */
#ifndef FR_TRAIN_SETTINGS_H
#define FR_TRAIN_SETTINGS_H

#include <forerun/backend.h>
#include <forerun/io.h>
#include <forerun/optim.h>
#include <forerun/train.h>

typedef struct fr_settings {
    /* train */
    int64_t batch, micro;  /* samples in an update; micro-batches it is split into */
    int64_t epochs, steps; /* steps > 0 wins */
    uint64_t seed;
    const fr_optimizer *optimizer;
    fr_optim_options optim;
    fr_lr_options lr; /* lr.total is set when the number of updates is known */
    double clip_norm; /* 0: none */
    /* parallel */
    const fr_method *method;
    int stages, replicas;
    int threads; /* of a worker; 0: all cores */
    const fr_backend *backend;
    /* run */
    const char *out;          /* lives as long as the config */
    int64_t checkpoint_every; /* updates; 0: at the end only */
    int64_t eval_every;       /* updates; 0: at the end only; -1: never */
    int64_t keep;             /* checkpoints that stay */
    bool grad_norm;           /* report it even without clipping */
} fr_settings;

/* Reads the three sections. `out` (may be NULL) replaces run.out. Errors name file, line, column.
 */
fr_status fr__settings_read(fr_conf *root, const char *config_path, const char *out,
                            fr_settings *s);

/* Updates of the whole run, n_train samples an epoch: `steps`, or `epochs` in whole mini-batches.
 * Also sets s->lr.total. */
int64_t fr__settings_n_steps(fr_settings *s, int64_t n_train);

#endif
