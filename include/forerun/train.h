/* train.h -- around training runs (run.h): methods, config keys, files, forecasts, generation. */
#ifndef FORERUN_TRAIN_H
#define FORERUN_TRAIN_H

#include <forerun/cost.h>
#include <forerun/run.h>
#include <forerun/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A way to spread a run over workers (`parallel.method`): a schedule and a weight policy. */
typedef struct fr_method {
    const char *name, *summary;
    const char *generator; /* of fr_generator_list */
    const char *policy;    /* of fr_policy_list */
    const char *optimizer; /* that it is made for; NULL: any */
    int max_stages;        /* 0: as many as the model can be cut into */
    int chunks;            /* stages of a worker unless the config says; 0 = 1 */
    const char *sync;      /* of fr_sync_list; NULL: allreduce */
    bool wants_replicas;   /* makes sense with several only */
    /* Of methods that take the same time `forerun plan` takes one with a flush, then: */
    bool is_preferred; /* this one before others */
    bool is_by_name;   /* never unasked: stale weights, or an accuracy that nobody has shown here */
} fr_method;

FR_API const fr_method *const *fr_method_list(void); /* NULL-terminated */
FR_API const fr_method *fr_method_find(const char *name);

/* Files of a run's folder; NULL name: the end. */
typedef struct fr_run_file {
    const char *name;   /* N, K, *: numbers and the like */
    const char *writer; /* verb */
    const char *when;   /* key or option that asks for it or leaves it out; NULL: always there */
    const char *about;
} fr_run_file;
FR_API const fr_run_file *fr_run_files(void);

/* Key i of all that a config (and a cluster file) may have, NULL after the last. One path may have
 * several, of different users. */
FR_API const fr_key *fr_key_at(int i);
FR_API const char *fr_key_kind_name(fr_key_kind kind);
/* Into `text`, and returned: names of those that read it ("": all), and what it may be. */
FR_API const char *fr_key_users(const fr_key *key, char *text, size_t room);
FR_API const char *fr_key_range(const fr_key *key, char *text, size_t room);

/* What fr_train would do with these options, for those who start runs: all that can be refused
 * without training is. */
typedef struct fr_run_facts {
    char out[4096];
    int n_workers; /* over all stages and replicas */
    int n_ranks;   /* processes that the config asks for */
    int64_t n_steps;
} fr_run_facts;
FR_API FR_MUST_USE fr_status fr_run_look(fr_ctx *ctx, const fr_run_options *o, fr_run_facts *facts);
/* How a config updates weights: the keys that need neither its model nor its data, which are not
 * looked at. Without a config: the defaults, and o->sets. */
typedef struct fr_update_rule {
    const fr_optimizer *optimizer;
    fr_optim_options options;
    fr_policy_options policy_options;
    int stages;
    int micro; /* micro-batches of an update on each replica of the first stage */
} fr_update_rule;
FR_API FR_MUST_USE fr_status fr_run_update_rule(fr_ctx *ctx, const fr_run_options *o,
                                                fr_update_rule *out);
/* Updates in the newest checkpoint of a run's folder; -1: it has none. */
FR_API FR_MUST_USE fr_status fr_run_newest(fr_ctx *ctx, const char *out, int64_t *step);

/* True if a checkpoint is whole: all its files are as they were written, all values finite. */
typedef struct fr_verdict {
    const char *path;   /* folder of the checkpoint */
    int64_t step;       /* of its state.json; -1: that cannot be read */
    int64_t format;     /* of its state.json; 1: has no hashes of files */
    const char *damage; /* file and reason; NULL: whole */
} fr_verdict;
/* Of all checkpoints of a run's folder or a checkpoint folder, the newest first, or of one step-N.
 * FR_OK: all were looked at, damaged or not. */
FR_API FR_MUST_USE fr_status fr_checkpoint_verify(fr_ctx *ctx, const char *folder,
                                                  void (*each)(void *user, const fr_verdict *v),
                                                  void *user);

/* What planning and simulation must know about a run: the model, the mini-batch, and what its nodes
 * cost here. */
typedef struct fr_run_model fr_run_model;
/* profile: a file to go by instead of measuring; NULL: measure. */
FR_API FR_MUST_USE fr_status fr_run_model_open(fr_ctx *ctx, const fr_run_options *o,
                                               const char *profile, fr_run_model **out);
FR_API void fr_run_model_free(fr_run_model *m);
FR_API const fr_graph *fr_run_model_graph(const fr_run_model *m); /* kept by the model */
FR_API int fr_run_model_batch(const fr_run_model *m);             /* samples of a mini-batch */
FR_API int fr_run_model_micro(const fr_run_model *m); /* of a micro-batch, as the config has it */
/* Profiles are measured, whatever the config says: so many workers at once (0: as many as there are
 * cores), for about so long (0: some tenths of a second). Before the first profile. */
FR_API void fr_run_model_measure(fr_run_model *m, int n_workers, double seconds);
/* Of a micro-batch of so many samples: measured at the first call (with as many at once as there
 * are cores), then kept by the model. Of type fr_profile_fn; user: the fr_run_model. */
FR_API FR_MUST_USE fr_status fr_run_model_profile(void *user, int batch, const fr_profile **out);
/* FLOP/s of matrix products of a worker, measured within a second, with as many at once. */
FR_API FR_MUST_USE fr_status fr_run_model_peak(fr_run_model *m, double *flops_per_s);

/* A config that begins with a comment that begins with this is a plan; runs of it keep the comment.
 */
#define FR_PLAN_MARK "A plan by `forerun plan"
/* The config as `o` resolves it, o->sets included, as a file that `train` runs from any folder;
 * comment: lines for its top, without #. */
FR_API FR_MUST_USE fr_status fr_run_save_config(fr_ctx *ctx, const fr_run_options *o,
                                                const char *comment, const char *path);

typedef struct fr_forecast {
    int n_workers;
    double s_per_batch, samples_per_s, bubble, makespan;
    double sum_bytes, message_bytes; /* a mini-batch */
    double *busy_s, *wait_s;         /* [worker] */
    size_t *memory;                  /* [worker]: exact */
    bool fits;                       /* the memory of the cluster's devices */
    double *limit;                   /* [worker]: that memory; 0: any */
    void *arena;
} fr_forecast;
/* The run on a virtual clock: cluster NULL: this machine. n_batches 0: the run's, 200 at most.
 * trace: file for its trace.json; NULL: none. *out is freed by fr_forecast_free. */
FR_API FR_MUST_USE fr_status fr_run_simulate(fr_ctx *ctx, const fr_run_options *o,
                                             const char *cluster, const char *profile,
                                             int64_t n_batches, const char *trace,
                                             fr_forecast *out);
FR_API void fr_forecast_free(fr_forecast *f);

typedef struct fr_generate_options {
    const char *prompt;
    int64_t n_tokens;
    double temperature; /* 0: the most likely token */
    int64_t top_k;      /* 0: all */
    uint64_t seed;
    void (*emit)(void *user, const char *text, size_t n); /* as tokens come */
    void *user;
} fr_generate_options;
/* Continue a text with a model that predicts next tokens. */
FR_API FR_MUST_USE fr_status fr_generate(fr_ctx *ctx, const fr_run_options *o,
                                         const fr_generate_options *g);

#ifdef __cplusplus
}
#endif
#endif
