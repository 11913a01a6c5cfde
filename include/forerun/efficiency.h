/* efficiency.h -- time to accuracy (Pal et al. 2019): how many epochs a quality takes at each
 * global batch, and, with the speed of so many devices, how long: data parallel against hybrid.
 *
 * A larger global batch has fewer, better updates; from some size on an epoch of them brings less.
 * That is measured on one device, by gradients added up over several micro-batches before an update
 * ("delayed update"). One thread uses these at a time. */
#ifndef FORERUN_EFFICIENCY_H
#define FORERUN_EFFICIENCY_H

#include <forerun/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the learning rate of the config, which is for its own batch, follows the batch. */
#define FR_LR_RULE_LIST(X) X(LINEAR, "linear") X(SQRT, "sqrt") X(NONE, "none")
typedef enum fr_lr_rule {
#define FR_X(name, text) FR_LR_RULE_##name,
    FR_LR_RULE_LIST(FR_X)
#undef FR_X
        FR_LR_RULE_COUNT
} fr_lr_rule;
FR_API const char *fr_lr_rule_name(fr_lr_rule rule);
FR_API bool fr_lr_rule_parse(const char *name, fr_lr_rule *rule);

typedef enum fr_goal_kind {
    FR_GOAL_OWN, /* what the smallest batch reaches in the config's epochs: its best loss + 1 % */
    FR_GOAL_LOSS,
    FR_GOAL_ACCURACY
} fr_goal_kind;

typedef struct fr_goal { /* of the evaluation data */
    fr_goal_kind kind;
    double value;
} fr_goal;
/* "loss=1.5", "accuracy=0.9". */
FR_API bool fr_goal_parse(const char *text, fr_goal *goal);

typedef struct fr_eval_point {
    double epochs, loss, accuracy;
} fr_eval_point;

/* One training, from the start until it has reached the goal or `max_epochs`. */
typedef struct fr_trial {
    int64_t batch;
    uint64_t seed;
    double lr;
    bool is_whole; /* ended by itself, not because it reached the goal */
    bool diverged;
    int n_points, room;
    fr_eval_point *points;
} fr_trial;

/* Epochs at which the quality is met, linear between two evaluations; NaN: it is not. */
FR_API double fr_trial_epochs(const fr_trial *t, const fr_goal *goal);

typedef struct fr_efficiency_options {
    const fr_run_options *run; /* config, sets, stop; out: folder of the results, required */
    int n_batches;
    const int64_t *batches; /* each a multiple of the config's micro-batch */
    int n_seeds;            /* the config's seed and the next ones; 0 = 1 */
    fr_lr_rule lr_rule;
    fr_goal goal;
    double max_epochs;     /* 0: three times the config's; schedules that end have this length */
    int evals;             /* an epoch; 0 = 4 */
    bool keep_checkpoints; /* of the trials */
    /* After each mini-batch; p NULL: the trial has ended, or was found done. NULL allowed. */
    void (*tell)(void *user, const fr_trial *t, const fr_progress *p);
    void *user;
} fr_efficiency_options;

typedef struct fr_efficiency_row {
    int64_t batch;
    double lr;
    int n_seeds, n_reached;
    double epochs;      /* mean over seeds; NaN: not all reached the goal */
    double least, most; /* of those that did */
    double ratio;       /* epochs of the smallest batch / epochs: 1 is perfect, less is waste */
} fr_efficiency_row;

typedef struct fr_efficiency {
    fr_goal goal; /* never FR_GOAL_OWN */
    int64_t n_train;
    int n_rows;
    fr_efficiency_row *rows; /* by batch, ascending */
    void *arena;
} fr_efficiency;

/* Trials one after the other, into OUT/batch-B-seed-S; what is done is kept in OUT/efficiency.json
 * and not done again by a later call with the same config and options (batches, seeds and goal may
 * differ). FR_INTERRUPTED: run->stop was set; the trial under way is lost. *out is freed by
 * fr_efficiency_free. */
FR_API FR_MUST_USE fr_status fr_efficiency_measure(fr_ctx *ctx, const fr_efficiency_options *o,
                                                   fr_efficiency *out);
FR_API void fr_efficiency_free(fr_efficiency *e);
/* Epochs at any batch: on a straight line between measured ones, both scales logarithmic; below the
 * smallest as for that; NaN above the largest, or where the goal was not reached. */
FR_API double fr_efficiency_epochs(const fr_efficiency *e, int64_t batch);

/* What OUT/efficiency.json says about one batch. path: the file, or OUT. */
typedef struct fr_efficiency_result {
    const fr_method *method;
    int stages;
    fr_goal goal;
    double epochs; /* mean over seeds; NaN: not all reached the goal */
} fr_efficiency_result;
FR_API FR_MUST_USE fr_status fr_efficiency_read(fr_ctx *ctx, const char *path, int64_t batch,
                                                fr_efficiency_result *out);

/* Seconds of an update on so many devices, each (or each pipeline of `ways` devices) with the
 * smallest batch for itself. NaN: not known. */
typedef struct fr_scaling_point {
    int devices;
    double dp_s, hybrid_s;
} fr_scaling_point;

typedef struct fr_scaling {
    int ways; /* stages of a pipeline */
    int n_points;
    fr_scaling_point *points; /* by devices, ascending; the first is one device */
    void *arena;
} fr_scaling;
/* CSV: a line "devices,dp_s,hybrid_s", then numbers; an empty field is not known. *out is freed by
 * fr_scaling_free. */
FR_API FR_MUST_USE fr_status fr_scaling_read(fr_ctx *ctx, const char *path, int ways,
                                             fr_scaling *out);
typedef struct fr_scaling_options {
    const fr_run_options *run; /* config, sets, stop; out: folder for profiles */
    int64_t batch;             /* of a device, and of a pipeline */
    int ways;                  /* stages of a pipeline */
    int n_micro;         /* micro-batches of a pipeline; 0: as many as divide it, up to 4 a stage */
    int max_devices;     /* 0: all of the cluster */
    const char *cluster; /* file */
    const char *profile; /* file; NULL: measured, and kept as OUT/profile-MICRO_BATCH.json */
} fr_scaling_options;
/* On the virtual clock: 1, 2, 4, ... devices of a cluster, and all. Freed likewise. */
FR_API FR_MUST_USE fr_status fr_scaling_simulate(fr_ctx *ctx, const fr_scaling_options *o,
                                                 fr_scaling *out);
FR_API void fr_scaling_free(fr_scaling *s);

typedef struct fr_time_row {
    int devices;
    int64_t dp_batch, hybrid_batch;    /* global */
    double dp_efficiency;              /* SE_N = T_1 / T_N */
    double dp_epochs, hybrid_epochs;   /* E */
    double dp_speedup, hybrid_speedup; /* of the time to the goal, over one device; NaN: unknown */
} fr_time_row;

typedef struct fr_time_verdict {
    int crossover; /* devices from which on hybrid is faster wherever both are known; 0: never */
    int dp_devices, hybrid_devices;    /* of the best of each; 0: none is known */
    double dp_speedup, hybrid_speedup; /* of the best */
} fr_time_verdict;
/* rows: [s->n_points]. SU_N = SE_N * N * E_1 / E_N, hybrid with R pipelines of M = ways devices
 * SU^M * SE_R * R * E_1 / E_R, where SU^M * SE_R = T_1 / T_hybrid. */
FR_API void fr_time_to_accuracy(const fr_efficiency *e, const fr_scaling *s, fr_time_row *rows,
                                fr_time_verdict *verdict);

#ifdef __cplusplus
}
#endif
#endif
