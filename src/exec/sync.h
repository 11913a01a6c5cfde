/* sync.h -- sync rules: how replicas of a stage synchronise if they do not sum their gradients.
 *
 * A rule is a const record. Between updates it exchanges weights, or their changes, by sums of
 * the transport. A rule accesses a replica through an fr__syncing, which does not depend on the
 * engine. Its life cycle: plan (sizes), place (its memory), open (the sums, for all replicas of the
 * stage), then in every call of train: begin, stepped after each mini-batch, drain. From begin to
 * drain an fr__syncing belongs to the thread of its worker. */
#ifndef FR_EXEC_SYNC_H
#define FR_EXEC_SYNC_H

#include <forerun/exec.h>
#include <forerun/transport.h>
#include <forerun/weights.h>

#include "backend/device.h"
#include "base/arena.h"
#include "exec/hooks.h"

typedef struct fr__syncing fr__syncing;

typedef struct fr__sync_rule {
    fr_sync about;
    /* The slots below are empty for allreduce, which is in grad_reduction.c. */
    int (*n_sums)(const fr_sync_options *o);   /* in progress at the same time */
    int (*n_blocks)(const fr_sync_options *o); /* of floats, besides what the sums need */
    int (*slack)(
        const fr_sync_options *o);      /* updates by which one replica can be ahead of another */
    fr_status (*begin)(fr__syncing *s); /* optional; all replicas are alike */
    /* Mini-batch `batch` is over; is_alive: its update was made. Called for every mini-batch, dead
     * or not, on every replica. *all_alive false: some replica has stopped. */
    fr_status (*stepped)(fr__syncing *s, int64_t batch, bool is_alive, bool *all_alive);
    /* All replicas have ended at the same update: make their newest weights equal. */
    fr_status (*drain)(fr__syncing *s);
} fr__sync_rule;

extern const fr__sync_rule fr__sync_allreduce, fr__sync_average, fr__sync_wsp;
const fr__sync_rule *fr__sync_find(const char *name); /* NULL name: allreduce; NULL: none */
/* NULL, or what is wrong. */
const char *fr__sync_check(const fr__sync_rule *rule, const fr_sync_options *o);

struct fr__syncing {
    /* Filled in before fr__sync_plan. */
    const fr__sync_rule *rule; /* NULL: replicas have no sync rule */
    fr_sync_options options;
    const fr_transport *transport;
    fr_group *group;
    int nth, n_members;
    const int *members; /* [n_members] of the group */
    size_t n;           /* floats of a block, some */
    int n_state;
    fr_device *device; /* NULL: of another process */
    const fr__exec_hooks *hooks;
    /* Filled in before fr__sync_begin. */
    fr_store *store;
    float *state[FR_MAX_OPTIM_STATE];
    float *scratch; /* (n_scratch) of the device; used with bf16 only */
    size_t n_scratch;

    /* By fr__sync_plan. */
    size_t bytes; /* of memory */
    size_t stride, room_bytes;
    int n_sums, n_blocks, n_buckets;
    size_t *edge;        /* [n_buckets + 1] */
    fr_device **devices; /* [n_members]; at first the own one only */
    /* By fr__sync_place and fr__sync_open. */
    float **posted; /* [n_sums] (n): what a sum adds up */
    float **blocks; /* [n_blocks] (n) */
    char **room;    /* [n_sums] */
    fr_sum **sums;  /* [n_sums] */
    int64_t round;  /* of this call: sums posted */
    int64_t taken;  /* of these: waited for */
    void *to;       /* (n) where a mean goes ... */
    fr_dtype type;  /* ... as this */
};

bool fr__sync_plan(fr__syncing *s, fr_arena *arena); /* false: out of memory */
void fr__sync_place(fr__syncing *s, char *memory);
/* The sums of one stage. of: [n_members] its replicas, NULL for those in other processes; any: one
 * of them, or, if none is in this process, one that is only planned. All processes call it, for the
 * same stages in the same order. */
fr_status fr__sync_open(fr_ctx *ctx, fr_arena *arena, fr__syncing *const *of,
                        const fr__syncing *any);

/* All three do nothing without a rule. */
fr_status fr__sync_begin(fr__syncing *s);
fr_status fr__sync_stepped(fr__syncing *s, int64_t batch, bool is_alive, bool *all_alive);
/* Afterwards weights, optimizer state and policy state are equal on all replicas, and of that
 * version. */
fr_status fr__sync_drain(fr__syncing *s, int64_t version);

/* --- for rules ---------------------------------------------------------------------------------*/

/* Submit s->posted[k]; wait for sum k. `take` receives its pieces: a range of floats of a block,
 * and their sum over replicas. *is_alive false: some replica submitted nothing, and nothing was
 * taken. */
typedef fr_status (*fr__sync_take_fn)(fr__syncing *s, size_t offset, size_t count,
                                      const float *sum);
void fr__sync_post(fr__syncing *s, int k, bool is_alive);
fr_status fr__sync_wait(fr__syncing *s, int k, fr__sync_take_fn take, bool *is_alive);
/* block := its mean over replicas, by sum 0, which is not in progress. */
fr_status fr__sync_mean(fr__syncing *s, fr_dtype type, void *block, bool is_given, bool *is_alive);

#endif
