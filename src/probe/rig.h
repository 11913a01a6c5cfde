/* rig.h -- a stage executor without neighbours, run in the same way as by a worker of the engine.
 *
 * A rig belongs to the thread that created it. */
#ifndef FR_PROBE_RIG_H
#define FR_PROBE_RIG_H

#include <forerun/probe.h>

#include "exec/update.h"

#include <stdatomic.h>

typedef struct fr__rig {
    fr_ctx *ctx;
    const fr_probe_desc *d;
    fr_stage stage;
    fr_arena arena;
    fr__exec_device *device;
    fr__exec *exec;
    fr_policy_context context;
    bool update_in_backward;
    int n_slots; /* micro-batches in flight at most, each with memory of its own */
    int64_t n_forward, n_backward;

    int n_in, n_out;
    fr__in_port *in;
    fr__out_port *out;
    const void **values; /* [slot][link] */
    const void **grads;  /* [buffer][link] */
    void **sent_grads;   /* [link] */
    int n_feeds;
    fr_feed *feeds;

    /* Of the current mini-batch. */
    fr_node_time *times;                      /* [node of the graph] */
    double fetch_forward_s, fetch_backward_s; /* getting weights, predicting them */
    double store_s;                           /* other work on weights; fused updates aside */

    /* Of all passes after the warm-up: */
    double *last_s;          /* [forward, backward][micro] of the mini-batch before; 0: none */
    double pass_s, change_s; /* sums: of times with a predecessor, of differences from it */
} fr__rig;

/* Memory shared by concurrent rigs: bytes available before, bytes requested. */
typedef struct fr__rig_room {
    uint64_t left;
    _Atomic uint64_t wanted;
} fr__rig_room;
fr_status fr__rig_create(fr_ctx *ctx, const fr_probe_desc *d, fr__rig_room *room, fr__rig **out);
void fr__rig_free(fr__rig *r);
/* Run until the end of the next update; times, fetch_forward_s, fetch_backward_s and store_s start
 * at 0. */
fr_status fr__rig_step(fr__rig *r);

/* dummy.c: numbers that are valid for every operator, for an input port of a program. */
void fr__dummy_fill(const fr_graph *g, int node, int batch, void *data);
void fr__dummy_noise(void *to, fr_dtype type, size_t n, float scale);

#endif
