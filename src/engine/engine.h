/* engine.h -- inside the engine: what an engine, its workers and their stages hold.
 *
 * A part is one stage on one of its workers: programs, blocks, slots; replicas of a stage are parts
 * of the same stage. A route is one link of the schedule, a wire the piece of it between two parts:
 * where its tensors lie and, between workers, the channel they change hands through. A record is
 * one mini-batch under way: its data, what the loss said, how many parts have stepped.
 *
 * With a team, an engine knows all workers, parts and wires by name but holds those of its own
 * process only; rank 0 collects the records.
 *
 *     engine.c    create, free                        train.c    a call of train or eval, reports
 *     jobs.c      work for the workers' threads       worker.c   the walk along a list
 *     border.c    what crosses between stages         passes.c   F, B, I, W of one micro-batch
 *     part.c      programs, sizes, blocks of a stage  gather.c   gradients of a stage, of replicas
 *     wires.c     links -> tensors and channels       update.c   REDUCE and STEP
 *     records.c   mini-batches under way              crew.c     one call in several processes
 *     params.c    parameters in and out               watch.c    faults, stalls, who to blame
 *     snapshot.c  a copy for a checkpoint             collect.c  notes of all workers to rank 0
 *     drain.c     replicas agree after a call         tree.c     the order of an exact sum
 *     sync.h      rules of replicas, sync_*.c         peers.c    such a rule in the engine
 *     areas.c     where activations lie, recompute    pace.c     emulation: clocks, links */
#ifndef FR_ENGINE_ENGINE_H
#define FR_ENGINE_ENGINE_H

#include <forerun/exec_plan.h>
#include <forerun/state.h>

#include "base/thread.h"
#include "exec/update.h"

#include <stdatomic.h>

typedef struct fr_worker fr_worker;
typedef struct fr_part fr_part;
typedef struct fr_record fr_record;
typedef struct fr_crew fr_crew;
typedef struct fr_pace fr_pace;
typedef struct fr_meeting fr_meeting;

/* The time of an engine, in nanoseconds; that of the machine unless a test sets another one. */
typedef struct fr_timer {
    uint64_t (*now_ns)(void *user);
    /* On a worker's thread: at that moment, or earlier. Only emulation sleeps. */
    void (*sleep_until)(void *user, int worker, uint64_t ns);
    void *user;
} fr_timer;

/* --- links ---------------------------------------------------------------------------------- */

/* Forward: the outputs of part `from`, which lie in its slots, one buffer a slot. Backward:
 * gradients, in buffers of their own. */
typedef struct fr_wire {
    fr_part *from, *to;
    bool is_used;        /* some micro-batch goes this way */
    fr_channel *channel; /* NULL: both on one worker */
    char *memory;        /* [n_buffers], of the sender */
    const void **data;   /* [n_buffers]: where the receiver reads it */
    /* Emulation, [n_buffers]: when what was sent is there; when it was given back. Written before,
     * read after it changes hands. */
    double *arrival, *freed;
} fr_wire;

/* A link of the schedule. */
typedef struct fr_route {
    int from, to;     /* stages */
    int n_from, n_to; /* replicas of them */
    int n_buffers;    /* of each wire */
    size_t bytes, stride;
    fr_wire *wires; /* [n_from][n_to] */
} fr_route;

static inline fr_wire *fr__wire(const fr_route *r, int micro)
{
    return &r->wires[micro % r->n_from * r->n_to + micro % r->n_to];
}

/* What a stage gives to others, known without compiling it: values in order of nodes, and the
 * gradients of its inputs. */
typedef struct fr_border {
    size_t output_bytes;  /* of all outputs, aligned */
    size_t *value_offset; /* [node of the stage]: among the outputs; SIZE_MAX: not one */
    fr__tensor_ref *grad; /* [input of fr_stage]: where its gradient goes, on a backward route */
} fr_border;

/* --- a stage -------------------------------------------------------------------------------- */

struct fr_part {
    fr_engine *engine;
    fr_worker *worker;
    int index, stage, replica, n_replicas;
    int n_micro; /* micro-batches of a mini-batch that come here */
    fr__exec *exec;
    /* Buffers of the micro-batch of the pass under way, by link: it reads values and gradients, and
     * writes gradients. */
    const void **values, **grads;
    void **sent_grads;
    double *param_sums;  /* (own parameters of the stage) */
    uint64_t *posted_ns; /* [bucket] of the reduction of gradients */
    /* Emulation only: of the buckets, of the sums of a rule. */
    fr_meeting **meetings, **sync_meetings;
    fr_stage_times times, cold; /* cold: the first mini-batch's share of them */
    int64_t cold_batch;         /* -1: nothing has been trained */
    bool has_error;             /* collected: */
    fr_prediction_error error;  /* of predictions, in another process */
};

/* --- a worker ------------------------------------------------------------------------------- */

typedef fr_status (*fr_job)(fr_worker *w, void *arg);

struct fr_worker {
    fr_engine *engine;
    int index;
    bool is_local; /* of this process; others have numbers and notes only */
    pthread_t thread;
    bool has_thread, is_lost;
    fr__exec_device *device;
    int n_parts;
    fr_part **parts; /* ascending stages */
    fr_memory_use predicted;
    size_t peak_bytes; /* collected */

    /* Conditions with one waiter each: glibc up to 2.40 may lose the wake-up of one of several
     * (its bug 25847). `wakes` goes with engine.lock, `fed` with engine.feed_lock. */
    pthread_cond_t wakes, fed;
    fr_job job; /* under engine.lock; NULL: idle */
    void *job_arg;
    fr_status job_status;

    /* What it does now: written by the worker, read by whoever watches. */
    _Atomic uint64_t n_beats;
    _Atomic int64_t doing_batch;
    _Atomic int doing_at; /* position in its list; -1: nothing */
    _Atomic int is_waiting;
    int64_t opened; /* mini-batches of this call it has begun */
    int64_t summed; /* mini-batch whose gradients were last summed over all stages */
    double norm_sq; /* of that sum */
    fr_traffic traffic;
    fr_worker_times times;
    uint64_t wait_ns; /* in the instruction under way */
    uint64_t wait_from_ns;
    /* Emulation: virtual seconds; those of the instruction under way that it waited, those that its
     * backward should take; awake or not. */
    double clock, waited, span;
    _Atomic int is_pacing;
    fr_overrun overrun;
    fr_event *events;
    int n_events;
};

/* --- a mini-batch under way ------------------------------------------------------------------ */

struct fr_record {
    int64_t batch; /* of the run */
    fr_feed feed;
    int n_open, n_unstepped; /* parts here that still read the data; that have not stepped */
    int n_missing;           /* processes that have not said that they are through */
    fr_tally *tally;         /* [micro] */
    double *part_sq;         /* [part]: of the whole gradient, or NaN */
    uint64_t done_ns;
    int *n_rows;         /* [part] */
    fr_ledger_row *rows; /* [part][2 * its micro-batches], side by side: 2 * n_stages * n_micro */
};

struct fr_engine {
    fr_ctx *ctx;
    fr_engine_desc desc;
    fr_arena arena;
    const fr_transport *transport;
    fr_group *group;
    const fr_schedule *schedule[FR_N_MODES];
    fr_exec_plan *plan;         /* of training; NULL: evaluation only */
    fr_schedule *eval_schedule; /* owned */
    int rank, n_ranks;
    int n_stages, n_parts, n_workers;
    int first_worker, n_local; /* workers of this process */
    int n_local_parts;
    fr_stage *stages;
    fr_border *borders[FR_N_MODES]; /* [stage] */
    int *first_part;                /* [stage] */
    fr_part *parts;                 /* by stage, by replica */
    fr__exec **execs;               /* [part] */
    fr_worker *workers;             /* [worker] */
    fr_route *forward[FR_N_MODES];  /* [link] */
    fr_route *backward;
    int *home_of;      /* [param]: stage of its own values or copy */
    int *n_own;        /* [stage]: trained parameters that it owns */
    bool has_replicas; /* some stage has several */
    bool reads_data;   /* some part here has samples, targets or lengths as its input */
    bool must_sum;     /* gradients or their norm are combined before a step */
    int sync_slack;    /* mini-batches that one replica may be ahead of another */
    fr_board *norm_board, *tie_board;
    fr_meeting *norm_meeting, *tie_meeting; /* emulation only */
    fr_timer clock, watch;   /* of emulation and of finished mini-batches; of stalls */
    fr_pace *pace;           /* NULL: no emulation */
    fr_pace *paced;          /* the same in a call that is emulated, else NULL */
    size_t *tie_room;        /* bytes of board a worker holds */
    int64_t n_tie_pieces;    /* rounds of that board for a mini-batch */
    int n_tied, *tied;       /* params in groups that span stages, owners and copies, ascending */
    const void **tie_pieces; /* [worker][tied]: of the sum under way */
    bool is_broken;

    pthread_mutex_t lock;
    pthread_cond_t caller_wakes;
    bool must_quit;
    int n_running;

    /* The call under way. */
    fr_mode mode;
    int64_t first, n;      /* mini-batches: first .. first + n - 1 */
    _Atomic int64_t limit; /* from this mini-batch of the run on, nothing is computed */
    const fr_source *source;
    pthread_mutex_t feed_lock;       /* for what follows, up to the records */
    int64_t n_opened, n_fed, n_held; /* mini-batches of this call */
    int64_t n_entered;               /* up to here, segments have been begun by somebody */
    bool is_feeding;                 /* some worker is fetching one */
    int window;
    fr_status feed_status;
    char feed_error[1024];
    fr_record *records; /* ring */
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
    int failed_worker;  /* the first; -1 */
    char failure[1024]; /* what it met, in its own words */
    fr_crew *crew;      /* NULL: one process */
    fr_snapshot *snapshot;
    void *scratch; /* (largest parameter), in processes other than rank 0 */
};

static inline fr_record *fr__record(fr_engine *e, int64_t batch)
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

static inline fr_part *fr__part(const fr_engine *e, int stage, int replica)
{
    return &e->parts[e->first_part[stage] + replica];
}
static inline fr__exec *const *fr__replicas(const fr_engine *e, int stage)
{
    return &e->execs[e->first_part[stage]];
}
/* The part of this stage that a micro-batch goes to. */
static inline fr_part *fr__part_for(const fr_engine *e, int stage, int micro)
{
    return fr__part(e, stage, micro % e->eval_schedule->replicas[stage]);
}

/* pace.c: emulation. What follows is called only where engine.paced is there, but for the first
 * two.
 */
fr_status fr__pace_create(fr_engine *e);
void fr__pace_free(fr_engine *e);
void fr__pace_begin(fr_engine *e); /* a call begins */
void fr__pace_enter(void);         /* on a worker's thread */
/* Nanoseconds as they are told: of virtual seconds, of a moment of the wall clock. */
uint64_t fr__pace_ns(const fr_pace *p, double seconds);
uint64_t fr__pace_told(const fr_pace *p, uint64_t wall_ns);
/* What an instruction should take; and that it be so, computed it is. */
double fr__pace_seconds(const fr_part *p, fr_action action);
void fr__pace_spend(fr_worker *w, double seconds);
void fr__pace_advance(fr_worker *w, double seconds); /* the clock only */
void fr__pace_wait(fr_worker *w, double until);
/* Before sending, after receiving. */
void fr__pace_send(fr_worker *w, fr_wire *wire, int buffer, size_t bytes);
void fr__pace_receive(fr_worker *w, const fr_wire *wire, int buffer);
/* Members (workers) that hand in, round after round, and get on when all have and the links have
 * carried the sum of `bytes`. Posts go before the transport's, takes behind its wait. */
fr_status fr__pace_meeting(fr_engine *e, int n, const int *members, size_t bytes, fr_meeting **out);
/* The links get a sum of the same round only when the one before it is through. */
void fr__pace_follow(fr_meeting *m, fr_meeting *before);
void fr__pace_post(fr_worker *w, fr_meeting *m, double at, bool is_alive);
void fr__pace_take(fr_worker *w, fr_meeting *m);

/* The machine's clock. */
extern const fr_timer fr__machine_clock;
static inline uint64_t fr__clock_ns(const fr_timer *c) { return c->now_ns(c->user); }

/* Now, as a worker notes it. */
static inline uint64_t fr__worker_now(const fr_worker *w)
{
    const fr_pace *paced = w->engine->paced;
    return paced ? fr__pace_ns(paced, w->clock) : fr__now_ns();
}

static inline const fr_schedule *fr__schedule(const fr_engine *e) { return e->schedule[e->mode]; }

/* border.c: the borders of all stages, before anything is compiled. */
fr_status fr__borders_find(fr_engine *e);
int fr__maker_of(const fr_engine *e, int node); /* stage */
/* The gradient of `node` as stage `reader` sends it down; the nearest reader above `stage`, or -1.
 */
fr__tensor_ref fr__grad_tap(const fr_engine *e, int reader, int node);
int fr__reader_above(const fr_engine *e, int stage, int node);

/* parts.c: executors of this process, in the order of these calls. */
fr_status fr__parts_create(fr_engine *e);
fr_status fr__parts_measure(fr_engine *e); /* into w->predicted */
fr_status fr__parts_allocate(fr_engine *e);
fr_status fr__parts_open_sums(fr_engine *e);
void fr__parts_release(fr_worker *w);
/* After a call of train: what lies beyond the limit is undone; replicas agree. */
fr_status fr__parts_undo(fr_engine *e);
fr_status fr__parts_drain(fr_engine *e);

/* wires.c: taps and sizes before allocation, memory and channels after it. */
fr_status fr__wires_plan(fr_engine *e);
fr_status fr__wires_open(fr_engine *e);

/* params.c */
fr_status fr__params_find(fr_engine *e);
fr_status fr__params_init(fr_engine *e);
size_t fr__params_largest(const fr_engine *e); /* bytes, plain */
/* Values of an item as they lie here. Not there: the policy remembers nothing now. */
bool fr__item_is_there(const fr_engine *e, const fr_item *item);
fr_status fr__item_read(fr_engine *e, const fr_item *item, void *plain);
fr_part *fr__item_part(const fr_engine *e, const fr_item *item); /* that it is read from */

/* snapshot.c: sizes; memory; engines that only evaluate have none. */
fr_status fr__snapshot_plan(fr_engine *e);
fr_status fr__snapshot_take(fr_engine *e);
void fr__snapshot_free(fr_engine *e);

/* records.c */
void fr__records_plan(fr_engine *e); /* how many */
fr_status fr__records_create(fr_engine *e);
void fr__records_begin(fr_engine *e);
/* With feed_lock held: workers that wait for data or for room look again. */
void fr__feed_changed(fr_engine *e);
/* With feed_lock held: wait for such a change. False: the group is aborted. */
bool fr__feed_wait(fr_worker *w);
/* Whether the segment that begins with mini-batch `base` of this call is to be walked. */
bool fr__segment_enter(fr_worker *w, int64_t base);
/* First touch of a mini-batch by a worker. *is_dead: it is beyond the limit, compute nothing. */
fr_status fr__record_open(fr_worker *w, int64_t batch, bool *is_dead);
/* The part will not read the mini-batch's data again. */
void fr__record_close(fr_part *p, int64_t batch);
/* The part has made its update; norm_sq: of its gradient, NaN if unknown. */
void fr__record_stepped(fr_part *p, int64_t batch, double norm_sq);
/* A process is through with it. */
void fr__record_arrived(fr_engine *e, fr_record *r);
/* The next mini-batch to report, if it is through; and that it has been. */
fr_record *fr__record_through(fr_engine *e);
void fr__record_reported(fr_engine *e);
void fr__record_row(fr_part *p, int64_t batch, int micro, char pass, const fr_view *v);
/* The version at the update goes into the rows of its backwards. */
void fr__record_live(fr_part *p, int64_t batch, int64_t version);
fr_ledger_row *fr__record_rows(const fr_record *r, const fr_part *p);
/* No mini-batch that is not open yet is computed. */
void fr__stop_soon(fr_engine *e);
void fr__lower_limit(fr_engine *e, int64_t batch);
void fr__diverge(fr_engine *e, int64_t batch, int micro, const char *what, double value);

/* worker.c */
void fr__push_event(fr_worker *w, const fr_event *event);
fr_status fr__worker_walk(fr_worker *w, void *arg);

/* passes.c */
fr_status fr__pass_forward(fr_part *p, int64_t batch, int micro, int in_segment, fr_event *event);
fr_status fr__pass_backward(fr_part *p, int64_t batch, int micro, int in_segment, int what,
                            fr_event *event);
/* Wait until the reader is done with a buffer; noted as waiting. */
fr_status fr__acquire(fr_worker *w, fr_wire *wire, int buffer);
/* What others may use again. */
void fr__release_inputs(fr_part *p, fr_mode mode, int in_segment);
void fr__release_grads(fr_part *p, int in_segment);

/* update.c */
fr_status fr__update_plan(fr_engine *e);
fr_status fr__update_open(fr_engine *e);
/* meeting: who waits there, in emulation; NULL: they meet later. */
fr_status fr__board_wait(fr_worker *w, fr_board *board, int64_t round, fr_meeting *meeting);
fr_status fr__update_reduce(fr_part *p, int64_t batch, bool is_dead);
fr_status fr__update_step(fr_part *p, int64_t batch, fr_event *event);
/* In place of a step beyond the limit: others may be waiting for what it would have handed in. */
fr_status fr__update_skip(fr_part *p, int64_t batch);

/* ties.c: groups that span stages, bytes of the board, the board. */
fr_status fr__ties_find(fr_engine *e);
void fr__ties_measure(fr_engine *e);
fr_status fr__ties_open(fr_engine *e);
size_t fr__tie_scratch_bytes(const fr_worker *w);
size_t fr__tie_copies_bytes(const fr_engine *e);
bool fr__ties_on(const fr_worker *w); /* the worker has a tied parameter */
/* The sums take the place of the worker's own gradients. *is_dead: there is no sum. */
fr_status fr__ties_sum(fr_worker *w, int64_t batch, bool *is_dead);

/* peers.c: replicas of a stage. */
fr_status fr__peers_plan(fr_engine *e);
fr_status fr__peers_open(fr_engine *e);
fr__exec_hooks fr__part_hooks(fr_part *p);
fr_status fr__peers_begin(fr_worker *w);                /* a call begins */
fr_status fr__peers_stepped(fr_part *p, int64_t batch); /* or has skipped the step */
/* A worker waits for others: noted. */
void fr__wait_begin(fr_worker *w);
void fr__wait_end(fr_worker *w);

/* crew.c: one call in several processes. Without a crew they do nothing. */
fr_status fr__crew_create(fr_engine *e);
void fr__crew_free(fr_engine *e);
void fr__crew_reset(fr_engine *e);      /* a call is being set up */
fr_status fr__crew_begin(fr_engine *e); /* it is: wait until it is everywhere */
/* From time to time, and when something happened, while workers walk. */
void fr__crew_tick(fr_engine *e, bool is_stopping);
/* Everybody is through, and knows how it ended. With the lock held. */
bool fr__crew_is_over(fr_engine *e);
void fr__crew_done(fr_engine *e, const fr_record *r); /* to rank 0 */
void fr__crew_diverged(fr_engine *e);                 /* likewise; with feed_lock held */
/* With feed_lock held: mini-batches of this call that may be opened; whether that is the end. */
int64_t fr__crew_granted(const fr_engine *e, bool *is_final);
/* This process gives up, for the reason in the context: the others are told. */
void fr__crew_failed(fr_engine *e);

/* watch.c */
fr_status fr__fault_now(fr_worker *w, const fr_instr *i, int64_t batch);
bool fr__fault_is_nan(const fr_part *p, int64_t batch, int micro);
/* End everybody's waits; worker: the one that failed, -1: none did. */
void fr__give_up(fr_engine *e, int worker);
void fr__blame_stall(fr_engine *e, double seconds);
fr_status fr__blame_failure(fr_engine *e);

/* jobs.c. With the lock held; n_running counts the workers that are not done. */
void *fr__worker_main(void *worker);
void fr__job_start(fr_worker *w, fr_job job);
/* Run a job on every worker of this process at once (or one after the other) and wait. */
fr_status fr__jobs_run(fr_engine *e, fr_job job, bool one_by_one);

#endif
