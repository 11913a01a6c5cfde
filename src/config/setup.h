/* setup.h -- from a config to the objects of a run: settings, data set, graph, engine. */
#ifndef FR_CONFIG_SETUP_H
#define FR_CONFIG_SETUP_H

#include <forerun/data.h>
#include <forerun/engine.h>

#include "config/pipeline.h"

typedef struct fr__setup {
    fr_ctx *ctx;
    fr_team *team; /* NULL: this process alone */
    fr_conf *conf;
    fr__settings settings;
    fr_dataset *data;
    fr_graph *graph;
    bool is_data_given, is_graph_given; /* owned by the caller */
    bool want_outputs;                  /* the training engine returns logits */
    const char *data_name;              /* lives as long as conf */
    const char *weights;                /* model.weights, as data_name; NULL: none */
    bool is_weights_strict;
    int input, target, length;  /* INPUT nodes; length -1 where the model has none */
    int loss, logits;           /* nodes */
    int64_t n_steps;            /* updates of the whole run */
    fr_param_group *groups;     /* [settings.n_groups] */
    int *group_of;              /* [param]: as fr_param_groups; NULL: there are no groups */
    fr__pipeline pipeline;      /* after fr__setup_pipeline; the engine uses it */
    const char *system_root;    /* tests: prefix of /proc and /sys; NULL: none */
    bool has_warned_proportion; /* that times of this micro-batch size are scaled, not measured */
} fr__setup;

/* The caller's options as this version has them: first in each public function that takes them. */
fr_status fr__run_options_take(fr_ctx *ctx, const fr_run_options *given, fr_run_options *own);

/* Reads the config, opens the data, builds the model, checks that they fit each other and that no
 * key is unknown. Writes nothing. On failure everything is released. */
fr_status fr__setup_open(fr_ctx *ctx, const fr_run_options *o, fr__setup *s);
void fr__setup_close(fr__setup *s); /* a zeroed or closed setup is fine */

/* Does the graph accept samples of the data set? Errors name both sides and the remedy. */
fr_status fr__setup_check_fit(fr__setup *s, fr_conf *model);

/* groups.c: who is in which group of train.groups; the graph with what they freeze. */
fr_status fr__setup_groups(fr__setup *s);
fr_param_groups fr__setup_param_groups(const fr__setup *s);

/* Cuts and schedules the model, with all checks. */
fr_status fr__setup_pipeline(fr__setup *s);

/* Engines of this setup, to be freed before it is closed. One that evaluates only, `batch` samples
 * at a time, all on one worker; want_logits: it can return them. */
fr_engine_desc fr__setup_eval_desc(const fr__setup *s, int batch, bool want_logits);
/* One that trains the config. After fr__setup_pipeline. */
fr_engine_desc fr__setup_train_desc(const fr__setup *s, bool keep_grads, bool want_ledger);
/* Memory of the workers of the latter, [worker], all in one process. */
fr_status fr__setup_forecast(const fr__setup *s, fr_memory_use *out);

/* A loader of its data from the first mini-batch on. */
fr_loader_desc fr__setup_loader_desc(const fr__setup *s, fr_split split, int batch);

/* Number of floats of the largest parameter. */
size_t fr__setup_largest_param(const fr_graph *g);

#endif
