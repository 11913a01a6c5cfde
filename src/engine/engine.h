/* engine.h -- inside the engine: its members, and the calls between its files.
 *
 * A part is one stage on one of its workers; replicas of a stage are parts of the same stage.
 * Each part has an executor (exec/exec.h), which holds its tensors. A link of the schedule has one
 * channel for each pair of parts that it connects. A record is one mini-batch in flight.
 *
 * With a team, an engine lists all workers, parts and channels but holds those of its own process
 * only; rank 0 collects the records.
 *
 *     engine.c       create, free                  engine_call.c    a call of train or eval
 *     worker.c       a worker's thread and list    passes.c         F, B, I, W of one micro-batch
 *     parts.c        executors, their replicas     records.c        mini-batches in flight
 *     stage_io.c     tensors between stages        links.c          links to buffers and channels
 *     update.c       REDUCE and STEP               ties.c           gradients tied across stages
 *     params.c       parameters in and out         snapshot.c       a copy for a checkpoint
 *     coordinator.c  one call, several processes   collect.c        notes of all workers to rank 0
 *     tie_links.c    ties without a flush          faults.c         injected faults, stalls */
#ifndef FR_ENGINE_ENGINE_H
#define FR_ENGINE_ENGINE_H

#include "base/thread.h"
#include "emulate/emulation.h"
#include "engine/fault.h"
#include "engine/links.h"
#include "engine/records.h"
#include "engine/worker.h"

typedef struct fr__tie_link fr__tie_link;

struct fr_engine {
    fr_ctx *ctx;
    fr_engine_desc desc;
    fr_fault fault;
    fr_arena arena;
    const fr_transport *transport, *inner_transport; /* they differ in an emulation */
    fr_group *group, *inner_group;                   /* the inner one is opened and closed */
    const fr_schedule *schedule[FR_N_MODES];
    fr_exec_plan *plan;               /* of training; NULL: evaluation only */
    const fr_schedule *eval_schedule; /* owned */
    int rank, n_ranks;
    int n_stages, n_parts, n_workers;
    int first_worker, n_local; /* workers of this process */
    int n_local_parts;
    fr_stage *stages;
    fr__stage_io *stage_io[FR_N_MODES];    /* [stage] */
    int *first_part;                       /* [stage] */
    fr__part *parts;                       /* by stage, by replica */
    fr__exec **execs;                      /* [part] */
    fr__worker *workers;                   /* [worker] */
    fr__link_buffers *forward[FR_N_MODES]; /* [link] */
    fr__link_buffers *backward;
    int *home_of;      /* [param]: stage of its own values or copy */
    int *n_own;        /* [stage]: trained parameters that it owns */
    bool has_replicas; /* some stage has several */
    bool reads_data;   /* some part here has samples, targets or lengths as its input */
    bool must_sum;     /* gradients or their norm are combined before a step */
    int sync_slack;    /* mini-batches by which one replica may be ahead of another */
    fr_board *norm_board, *tie_board;
    fr_board **late_boards;   /* [plan->norm_lag], in turn */
    fr__timer clock, watch;   /* of emulation and of finished mini-batches; of stalls */
    fr__emulation *emulation; /* NULL: none */
    size_t *tie_room;         /* bytes of board per worker */
    int64_t n_tie_pieces;     /* rounds of that board per mini-batch */
    int n_copies; /* tied parameters in another stage than their owners; `tied` lacks frozen ones */
    int *copies;
    int n_tied, *tied;       /* params in groups that span stages, owners and copies, ascending */
    const void **tie_pieces; /* [worker][tied]: of the current sum */
    int n_tie_links;         /* without a flush */
    fr__tie_link *tie_links;
    bool is_broken;

    pthread_mutex_t lock;
    pthread_cond_t caller_wakes;
    bool must_quit;
    int n_running;

    /* The current call. */
    fr__mode mode;
    int64_t first, n;      /* mini-batches: first .. first + n - 1 */
    _Atomic int64_t limit; /* from this mini-batch of the run on, nothing is computed */
    const fr_source *source;
    pthread_mutex_t feed_lock;       /* guards the members below, up to the records */
    int64_t n_opened, n_fed, n_held; /* mini-batches of this call */
    int64_t n_entered;               /* up to here, some worker has begun the segments */
    bool is_feeding;                 /* some worker is fetching one */
    int window;
    fr_status feed_status;
    char feed_error[1024];
    fr__record *records; /* ring */
    int n_records;
    fr_tally tally;     /* of those reported */
    int64_t n_reported; /* to the caller; in another process than rank 0: to rank 0 */
    char *logits;
    struct {
        bool is_set;
        int64_t batch;
        int micro; /* -1: of the whole mini-batch */
        const char *what;
        double value;
    } diverged;
    int failed_worker;            /* the first; -1 */
    char failure[1024];           /* its error text */
    fr__coordinator *coordinator; /* NULL: one process */
    fr_snapshot *snapshot;
    void *scratch; /* (largest parameter), in processes other than rank 0 */
};

static inline fr__record *fr__record_of(fr_engine *e, int64_t batch)
{
    return &e->records[(batch - e->first) % e->n_records];
}

/* Bytes of a parameter as plain floats, and the parameter that holds its values. */
static inline size_t fr__plain_bytes(const fr_engine *e, int param)
{
    return (size_t)fr_shape_count(&fr_graph_param(e->desc.graph, param)->shape) * sizeof(float);
}
static inline int fr__owner_of(const fr_engine *e, int param)
{
    int owner = fr_graph_param(e->desc.graph, param)->tied_to;
    return owner < 0 ? param : owner;
}

static inline fr__part *fr__part_at(const fr_engine *e, int stage, int replica)
{
    return &e->parts[e->first_part[stage] + replica];
}
static inline fr__exec *const *fr__replicas(const fr_engine *e, int stage)
{
    return &e->execs[e->first_part[stage]];
}

/* Whether the current call is emulated; the current time on a worker's clock. */
static inline bool fr__is_emulated(const fr_engine *e) { return fr__emulation_is_on(e->emulation); }
static inline uint64_t fr__worker_now(const fr__worker *w)
{
    const fr_engine *e = w->engine;
    return fr__is_emulated(e) ? fr__emulation_now_ns(e->emulation, w->index) : fr__now_ns();
}

static inline const fr_schedule *fr__schedule(const fr_engine *e) { return e->schedule[e->mode]; }

/* params.c */
fr_status fr__params_find(fr_engine *e);
fr_status fr__params_init(fr_engine *e);
size_t fr__params_largest(const fr_engine *e); /* bytes, plain */
/* Values of an item in the layout of this process. Not there: the policy has no valid state now. */
bool fr__item_is_there(const fr_engine *e, const fr_item *item);
fr_status fr__item_read(fr_engine *e, const fr_item *item, void *plain);
fr__part *fr__item_part(const fr_engine *e, const fr_item *item); /* that it is read from */

/* snapshot.c: sizes; memory; engines that only evaluate have none. */
fr_status fr__snapshot_plan(fr_engine *e);
fr_status fr__snapshot_take(fr_engine *e);
void fr__snapshot_free(fr_engine *e);

/* update.c */
fr_status fr__update_plan(fr_engine *e);
fr_status fr__update_open(fr_engine *e);
fr_status fr__board_wait(fr__worker *w, fr_board *board, int64_t round);
fr_status fr__update_reduce(fr__part *p, int64_t batch, bool is_dead);
fr_status fr__update_step(fr__part *p, int64_t batch, fr_event *event);
/* Instead of a step beyond the limit: other replicas may be waiting for its post. */
fr_status fr__update_skip(fr__part *p, int64_t batch);
/* After the last step of a call. */
fr_status fr__update_close(fr__worker *w);

/* ties.c: groups that span stages, bytes of the board, the board. */
fr_status fr__ties_find(fr_engine *e);
void fr__ties_measure(fr_engine *e);
fr_status fr__ties_open(fr_engine *e);
size_t fr__tie_scratch_bytes(const fr__worker *w);
size_t fr__tie_copies_bytes(const fr_engine *e);
bool fr__ties_on(const fr__worker *w); /* the worker has a tied parameter */
/* The sums replace the worker's own gradients. *is_dead: there is no sum. */
fr_status fr__ties_sum(fr__worker *w, int64_t batch, bool *is_dead);

/* tie_links.c: channels, their memory; a call begins. */
fr_status fr__tie_links_plan(fr_engine *e);
fr_status fr__tie_links_open(fr_engine *e);
void fr__tie_links_begin(fr_engine *e);
/* Around a forward, for the first one of a mini-batch: receive the weights of owners elsewhere
 * (*is_dead: there are none); send the ones that the forward read (view NULL: it did not run). */
fr_status fr__tie_borrow(fr__part *p, int64_t batch, bool *is_dead);
fr_status fr__tie_lend(fr__part *p, int64_t batch, const fr_view *view);
/* Before a step, or in its place: gradients of copies go to their owners. */
fr_status fr__tie_grads(fr__part *p, int64_t batch, bool is_dead);
fr_status fr__tie_settle(fr__worker *w); /* a call ends */

/* parts.c: replicas of a stage. */
fr_status fr__replicas_plan(fr_engine *e);
fr_status fr__replicas_open(fr_engine *e);
fr__exec_hooks fr__part_hooks(fr__part *p);
fr_status fr__replicas_begin(fr__worker *w);                /* a call begins */
fr_status fr__replicas_stepped(fr__part *p, int64_t batch); /* or has skipped the step */
/* coordinator.c: one call in several processes. Without a coordinator they do nothing. */
fr_status fr__coordinator_create(fr_engine *e);
void fr__coordinator_free(fr_engine *e);
void fr__coordinator_reset(fr_engine *e);      /* a call is being set up */
fr_status fr__coordinator_begin(fr_engine *e); /* wait until it is set up in all processes */
/* Regularly, and after each event, while workers walk. */
void fr__coordinator_tick(fr_engine *e, bool is_stopping);
/* All processes have ended the call and have its outcome. With the lock held. */
bool fr__coordinator_is_over(fr_engine *e);
void fr__coordinator_done(fr_engine *e, const fr__record *r); /* to rank 0 */
void fr__coordinator_diverged(fr_engine *e);                  /* likewise; with feed_lock held */
/* With feed_lock held: mini-batches of this call that may be opened; whether that is the end. */
int64_t fr__coordinator_granted(const fr_engine *e, bool *is_final);
/* This process gives up, for the reason in the context, and notifies the others. */
void fr__coordinator_failed(fr_engine *e);

/* faults.c */
fr_status fr__fault_now(fr__worker *w, const fr_instr *i, int64_t batch);
bool fr__fault_is_nan(const fr__part *p, int64_t batch, int micro);
/* End all waits; worker: the one that failed, -1: none did. */
void fr__give_up(fr_engine *e, int worker);
void fr__blame_stall(fr_engine *e, double seconds);
fr_status fr__blame_failure(fr_engine *e);

#endif
