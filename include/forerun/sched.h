/* sched.h -- schedules as data: for each worker a list of instructions, for one segment.
 *
 * Life of a schedule: a generator emits computation only (F, B, or I and W); lowering adds
 * steps, reductions and transfers, hoists receives and decides which slot and which buffer each
 * micro-batch uses; fr_schedule_check proves it. A schedule is never changed once it is returned,
 * so any thread may read it: the engine walks it, the clock times it, text forms print it. The
 * struct is public because its lists are what a program wants of it: each member would need an
 * accessor, and a walk over instructions would be a call for each.
 *
 * A segment is n_batches mini-batches between two drains. Flush schedules have one mini-batch and
 * are walked again and again. A longer segment may be cut short by leaving out everything that
 * belongs to mini-batches from some number on: what is left is still valid. */
#ifndef FORERUN_SCHED_H
#define FORERUN_SCHED_H

#include <forerun/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fr_action {
    FR_DO_F,      /* forward */
    FR_DO_B,      /* backward: input and weight gradients */
    FR_DO_I,      /* input gradients only, W comes later */
    FR_DO_W,      /* weight gradients */
    FR_DO_SEND_F, /* this stage's outputs to stage `peer` */
    FR_DO_RECV_F, /* this stage's inputs from stage `peer` */
    FR_DO_SEND_B, /* gradients to stage `peer` */
    FR_DO_RECV_B, /* gradients from stage `peer` */
    FR_DO_REDUCE, /* hand in gradients that others must see before the step; does not wait */
    FR_DO_STEP,   /* the optimizer, after what was handed in for this mini-batch has come back: by
                     all stages where the schedule flushes, else by the replicas of this one */
    FR_DO_R,      /* the forward again, for a backward; in no list: fr_schedule_recompute */
    FR_N_ACTIONS
} fr_action;

typedef struct fr_instr {
    uint8_t action; /* fr_action */
    int stage;
    int micro; /* micro-batch of the segment, from 0; fr_is_of_batch: mini-batch of the segment */
    int peer;  /* transfers: the stage at the other end; else -1 */
} fr_instr;

static inline bool fr_is_of_batch(int action)
{
    return action == FR_DO_REDUCE || action == FR_DO_STEP;
}

/* A tensor goes from one stage to another: values from a lower to a higher stage (forward links),
 * gradients from a higher to a lower one (backward links). */
typedef fr_stage_link fr_link;

typedef struct fr_instr_list {
    int n;
    fr_instr *at;
} fr_instr_list;

typedef struct fr_schedule {
    char name[64]; /* of the generator, or of the file */
    int n_stages, n_workers, n_micro, n_batches;
    bool is_flush;        /* one mini-batch: all weights are of one version */
    bool is_forward_only; /* evaluation: F and transfers, nothing else */
    bool is_split;        /* I and W instead of B */
    bool is_lowered;
    /* A stage is held by one worker or by several alike, its replicas; micro-batch m goes to
     * replica m mod replicas[stage], on worker worker_of[stage] + replica. */
    int *worker_of; /* [stage]: of replica 0 */
    int *replicas;  /* [stage]: each divides n_micro */
    int n_forward, n_backward;
    fr_link *forward, *backward;
    fr_instr_list
        *lists; /* [worker]: what its micro-batches need; REDUCE and STEP on each replica */
    /* From here on filled by lowering. */
    int *n_slots;   /* [stage]: of each replica */
    int *slot_of;   /* [stage][micro]: n_stages rows of n_batches * n_micro */
    int *n_buffers; /* [backward link]: for each pair of replicas that talk */
    int *buffer_of; /* [backward link][micro] */
    int *lead;      /* [stage]: see fr_schedule_lead */
    void *arena;
} fr_schedule;

typedef struct fr_schedule_desc {
    const char *name;       /* NULL: of the generator */
    int n_stages, chunks;   /* stages of a worker; 0 = 1, in a V 2 */
    int n_micro, n_batches; /* n_batches: 0 = 1 */
    const int *worker_of;   /* [stage]; NULL: fr_generator_worker */
    /* Which stages talk: NULL with n 0 means a chain, k -> k + 1 and back. */
    int n_forward, n_backward;
    const fr_link *forward, *backward;
    /* [stage]; NULL: 1. Stages of one worker have equally many; workers count up by stage, then by
     * replica. Different numbers only where the generator says any_replicas. */
    const int *replicas;
    bool must_reduce; /* a REDUCE before each STEP; always where there are replicas */
    int lead;         /* where the generator has_lead (gen_1f1b.c); 0 = 1 */
    bool reorder;     /* where the generator has_reorder: a shorter fill and drain */
    const int *depth; /* [stage]: workers on its longest way to the end; filled in */
} fr_schedule_desc;

/* Micro-batches that a worker has in flight, about: one for each stage from its own on, one, its
 * share of a mini-batch, up to a mini-batch for each stage. */
typedef enum fr_ahead { FR_AHEAD_STAGES, FR_AHEAD_ONE, FR_AHEAD_BATCH, FR_AHEAD_BATCHES } fr_ahead;

/* A way to order the work; fr_generator_list names them all. */
typedef struct fr_generator {
    const char *name, *summary;
    bool is_flush, is_forward_only, is_split;
    bool has_chunks;    /* takes desc.chunks > 1 */
    bool any_placement; /* takes desc.worker_of */
    bool is_v; /* two stages a worker, down and up again: worker w has w and n_stages - 1 - w */
    bool any_replicas; /* takes stages with different numbers of replicas */
    bool has_lead;     /* takes desc.lead > 1 */
    bool has_reorder;  /* takes desc.reorder */
    fr_ahead ahead;
    /* NULL if it can, else what is wrong: "interleaved needs micro to be a multiple of ..." */
    const char *(*check)(const fr_schedule_desc *d);
    /* Asynchronous: fr_schedule_lead; d->n_micro is one replica's share. NULL: it is measured. */
    int (*lead)(const fr_schedule_desc *d, int stage);
    /* Append the computation of worker w. Lists are made one after the other, w = 0, 1, ... */
    bool (*emit)(const fr_schedule_desc *d, int w, fr_schedule *s); /* false: out of memory */
} fr_generator;

FR_API const fr_generator *const *fr_generator_list(void); /* NULL-terminated */
FR_API const fr_generator *fr_generator_find(const char *name);
/* The worker of a stage (without replicas) where the description does not say. */
static inline int fr_generator_worker(const fr_generator *g, int n_workers, int stage)
{
    return g->is_v && stage >= n_workers ? 2 * n_workers - 1 - stage : stage % n_workers;
}

/* Generated and lowered, but not checked. */
FR_API FR_MUST_USE fr_status fr_schedule_create(fr_ctx *ctx, const fr_generator *g,
                                                const fr_schedule_desc *d, const fr_schedule **out);
FR_API void fr_schedule_free(const fr_schedule *s);
/* Proof: every F and B (or I, then W) once per stage and micro-batch, gradients in micro-batch
 * order, dependencies, matching sends and receives in the same order, one step per stage and
 * mini-batch after its last gradient, nothing of a flush across mini-batches, no deadlock, slots
 * and buffers never used by two at once. The first fault is named by worker, step and instruction:
 * "worker 2, step 17 (2B5): ...". */
FR_API FR_MUST_USE fr_status fr_schedule_check(fr_ctx *ctx, const fr_schedule *s);

static inline int fr_schedule_worker(const fr_schedule *s, int stage, int micro)
{
    return s->worker_of[stage] + micro % s->replicas[stage];
}
/* Micro-batches that a replica of the stage has in flight, at most, when a forward begins; without
 * a flush: when the first forward of a mini-batch begins, in a pipeline that is full. 1F1B without
 * replicas: N - 1 - k. */
static inline int fr_schedule_lead(const fr_schedule *s, int stage) { return s->lead[stage]; }

static inline int fr_schedule_slot(const fr_schedule *s, int stage, int micro)
{
    return s->slot_of[(size_t)stage * (size_t)(s->n_batches * s->n_micro) + (size_t)micro];
}
static inline int fr_schedule_buffer(const fr_schedule *s, int backward_link, int micro)
{
    return s
        ->buffer_of[(size_t)backward_link * (size_t)(s->n_batches * s->n_micro) + (size_t)micro];
}
/* The R that goes before instruction i if its stage recomputes activations. False: none. */
FR_API bool fr_schedule_recompute(const fr_instr_list *list, int i, fr_instr *out);
FR_API int fr_schedule_find_link(int n, const fr_link *links, int from, int to); /* -1: none */

typedef struct fr_clock fr_clock; /* times of a schedule (clock.h) */

/* --- text forms; made with one allocation, freed by fr_text_free ---------------------------------
 * text: everything, round trip. csv: one row a worker as PyTorch writes it ("0F0,0F1,1SEND_F3"), no
 * STEP and REDUCE unless the lists differ from what lowering would add. grid: for people, one
 * column a time unit, at most `columns` characters wide (0: any). json: the contract of `forerun
 * schedule --format json`. NULL: out of memory. */
FR_API char *fr_schedule_to_text(const fr_schedule *s);
FR_API char *fr_schedule_to_csv(const fr_schedule *s);
FR_API char *fr_schedule_to_grid(const fr_schedule *s, const fr_clock *c, int columns,
                                 bool in_colour);
FR_API char *fr_schedule_to_json(const fr_schedule *s, const fr_clock *c);
/* A few characters for each computation of a drawing: instruction i of worker w. */
typedef struct fr_notes {
    void (*text)(void *user, int w, int i, char *text, size_t room);
    void *user;
    const char *legend; /* what they mean */
} fr_notes;
/* notes may be NULL. */
FR_API char *fr_schedule_to_svg(const fr_schedule *s, const fr_clock *c, const fr_notes *notes);
FR_API void fr_text_free(char *text);
/* "2SEND_F5", or "2SEND_F5>4" where the peer is not the neighbour. Returns buffer. */
FR_API const char *fr_instr_text(const fr_instr *i, char buffer[48]);

/* Read text or csv (distinguished by the first line). n_micro: micro-batches of a mini-batch, 0 =
 * as the file says, or all of them. Links as in fr_schedule_desc, or the file's, or a chain.
 * Lowered. d->replicas (with n_stages 0: replicas[0] for every stage): a file of one pipeline, with
 * n_micro / replicas micro-batches, is made into so many. Errors name file, line and entry. */
FR_API FR_MUST_USE fr_status fr_schedule_read(fr_ctx *ctx, const char *path, int n_micro,
                                              const fr_schedule_desc *d, const fr_schedule **out);

#ifdef __cplusplus
}
#endif
#endif
