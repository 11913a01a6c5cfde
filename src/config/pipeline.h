/* pipeline.h -- settings and graph -> cuts, stages, links between stages, and a checked schedule.
 */
#ifndef FR_CONFIG_PIPELINE_H
#define FR_CONFIG_PIPELINE_H

#include <forerun/exec_plan.h>

#include "base/arena.h"
#include "config/settings.h"

typedef struct fr__pipeline {
    fr_graph *graph;     /* that is cut: the model's, or own_graph */
    fr_graph *own_graph; /* the model with messages of another type; NULL: they have the model's */
    int n_stages;
    int *cuts;        /* (n_stages - 1) nodes that begin a stage, after the first */
    fr_stage *stages; /* (n_stages) */
    int n_forward, n_backward;
    fr_link *forward, *backward;
    bool has_far_ties;           /* a tied parameter and its owner are in different stages */
    const fr_schedule *schedule; /* has the number of replicas per stage */
    fr_exec_plan *plan;
    fr_sync_options sync;
    bool *recompute; /* [node]: its values are not kept; NULL: none */
    fr_arena arena;
} fr__pipeline;

/* Checks the `parallel` section of `root` against this graph; failures name file and line. Writes
 * nothing. n_steps: updates of the whole run; n_ranks: number of processes, 0: not yet known. */
fr_status fr__pipeline_open(fr_ctx *ctx, fr_conf *root, const fr__settings *t, fr_graph *g,
                            int64_t n_steps, int n_ranks, fr__pipeline *p);
void fr__pipeline_close(fr__pipeline *p); /* a zeroed one is fine */

/* recompute.c: requires the stages; fills p->recompute from parallel.recompute. */
fr_status fr__pipeline_find_recompute(fr_conf *parallel, const fr__settings *t, const fr_graph *g,
                                      fr__pipeline *p);

/* "before fc.1, fc.2": names of the nodes that begin a stage; "" for one stage. Returns text. */
const char *fr__pipeline_cuts_text(const fr__pipeline *p, const fr_graph *g, char *text,
                                   size_t room);

#endif
