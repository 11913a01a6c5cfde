/* settings.h -- the `train`, `parallel` and `run` sections of a config as one plain struct.
 * Texts live as long as the config. */
#ifndef FR_CONFIG_SETTINGS_H
#define FR_CONFIG_SETTINGS_H

#include "engine/fault.h"
#include "io/key.h"
#include <forerun/engine.h>
#include <forerun/io.h>
#include <forerun/train.h>

enum { FR_MAX_STAGES = 1024, FR_MAX_REPLICAS = 1024 };

enum { FR_MAX_PARAM_GROUPS = 64 };

/* An entry of train.groups. */
typedef struct fr__group_settings {
    const char *match; /* pattern of names */
    double lr_factor, weight_decay;
    bool freeze, has_weight_decay;
    int64_t n_params, n_weights; /* that it decides about, once the model is known */
} fr__group_settings;

typedef struct fr__settings {
    /* train */
    int64_t batch, micro;  /* samples in an update; micro-batches it is split into */
    int64_t epochs, steps; /* steps > 0 wins */
    uint64_t seed;
    const fr_optimizer *optimizer;
    fr_optim_options optim;
    fr_lr_options lr;        /* lr.total is set when the number of updates is known */
    const char *stop_metric; /* "loss" or "accuracy": what is better */
    int64_t stop_patience;   /* evaluations without a better one until the run ends; 0: never */
    double stop_min_delta;
    bool keep_best; /* the checkpoint of the best evaluation */
    int n_groups;
    fr__group_settings groups[FR_MAX_PARAM_GROUPS];
    double clip_norm; /* 0: none */
    const char *clip;
    bool clip_late;
    bool exact_sum;
    const char *precision_name;
    bool is_precision_given; /* else a graph that the caller gives has its own */
    fr_dtype precision;
    bool is_micro_chosen; /* micro was not given; it was derived from the replicas */
    /* parallel */
    const fr_method *method;
    const fr_policy *policy;   /* parallel.weights, or the method's */
    const char *schedule_file; /* absolute path, replaces the method's schedule; or NULL */
    int stages;                /* 0: from the schedule file */
    int chunks;
    int lead;            /* of the schedule; 1 */
    bool reorder;        /* of the schedule */
    int n_replicas;      /* numbers in the list: 1 for all stages, or one for each */
    const int *replicas; /* fr__settings_replicas */
    int workers_per_rank;
    const fr_transport *transport; /* NULL: chosen by the number of processes */
    fr_sync_options sync;          /* every 0: derived from the pipeline */
    int segment;                   /* mini-batches between two drains, asynchronous methods */
    /* parallel.messages is given: bf16, fp32 */
    bool has_short_messages, has_long_messages;
    int n_cuts;        /* 0: found by balance */
    const char **cuts; /* [n_cuts] names of nodes that begin a stage */
    int threads;       /* per worker; 0: an equal share of the cores */
    bool pin;
    bool exact;        /* xpipe.exact */
    int64_t lr_warmup; /* pipemare.warmup */
    const fr_backend *backend;
    const char *cluster;  /* absolute path of the emulated cluster; or NULL */
    const char *profile;  /* absolute path of the profile; NULL: measure */
    int n_devices;        /* 0: worker w is on device w */
    const int *devices;   /* [n_devices], by worker */
    double worker_memory; /* bytes that a worker may take; 0: as its device has */
    double scale;         /* wall-clock seconds per emulated second; 0: chosen */
    bool recompute_auto;  /* chosen at the start of a run; else: */
    bool recomputes_all;  /* else: */
    int n_recompute;
    const char **recompute; /* [n_recompute] numbers of stages, names or patterns of nodes */
    /* run */
    const char *out;
    int64_t checkpoint_every; /* updates; 0: at the end only */
    int64_t eval_every;       /* updates; 0: at the end only; -1: never */
    int64_t keep;             /* checkpoints to keep */
    bool grad_norm;           /* report it even without clipping */
    bool report;              /* report.html, too */
    bool csv, tensorboard;    /* metrics.csv, events.out.tfevents.* beside metrics.jsonl */
    double stall_s;
    fr_fault fault;
    const char *memory;
    bool is_memory_binding; /* run.memory: refuse a run that needs more memory than is available */
    double forecast_s;      /* seconds for measuring stages; 0: by the length of the run */
    bool forecasts;         /* forecast the time of a mini-batch before the first one */
    int n_events;           /* per worker, for trace.json; 0: none */
    int n_samples;          /* weights per stage sampled for the prediction error */
} fr__settings;

/* Reads the three sections. `out` (may be NULL) replaces run.out. Errors name file, line, column.
 */
fr_status fr__settings_read(fr_conf *root, const char *config_path, const char *out,
                            fr__settings *s);
/* The `parallel` section alone. */
fr_status fr__settings_parallel(fr_conf *c, fr__settings *s);
/* train.groups, after the optimizer. */
fr_status fr__settings_groups(fr_conf *train, fr__settings *s);
/* Its keys about the emulated cluster, the profile and recompute. */
fr_status fr__settings_cluster(fr_conf *c, fr__settings *s);

static inline fr_policy_options fr__settings_policy_options(const fr__settings *s)
{
    return (fr_policy_options){.exact = s->exact,
                               .lr_warmup = s->lr_warmup,
                               .bounded_steps = s->optimizer && s->optimizer->bounds_steps};
}

/* The rows of keys.c. The other two read one row: into its member of *s, or into *name. */
const fr_key *fr__settings_keys(void);
fr_status fr__setting(fr_conf *c, const char *section, const char *key, fr__settings *s);
fr_status fr__setting_name(fr_conf *c, const char *section, const char *key, const char **name);

/* "fp32", "bf16": as train.precision and parallel.messages have it. */
static inline const char *fr__type_name(fr_dtype type) { return type == FR_BF16 ? "bf16" : "fp32"; }

/* Number of replicas of a stage. */
static inline int fr__settings_replicas(const fr__settings *s, int stage)
{
    return s->replicas[s->n_replicas > 1 ? stage : 0];
}
/* The smallest number of micro-batches that the replicas of every stage divide. */
int64_t fr__settings_least_micro(const fr__settings *s);

/* Updates of the whole run, with n_train samples per epoch: `steps`, or `epochs` in whole
 * mini-batches. Also sets s->lr.total. */
int64_t fr__settings_n_steps(fr__settings *s, int64_t n_train);

/* Names of a NULL-terminated list of records. */
#define FR_APPEND_NAMES(text, list) \
    for (int i = 0; (list)[i]; i++) fr__append_name(text, sizeof(text), (list)[i]->name)

#endif
