/* engine.h -- inside the engine: what an engine, its workers and their stages hold.
 *
 * A part is one stage on its worker: programs, blocks, slots. A wire is one link of the schedule:
 * where its tensors lie and, between workers, the channel they change hands through. A record is
 * one mini-batch under way: its data, what the loss said, how many stages have stepped.
 *
 *     engine.c    create, free; jobs for workers      train.c    a call of train or eval, reports
 *     part.c      programs, sizes, blocks of a stage  worker.c   the walk along a list
 *     wires.c     links -> tensors and channels       passes.c   F, B, I, W of one micro-batch
 *     records.c   mini-batches under way              update.c   REDUCE and STEP
 *     params.c    parameters in and out               watch.c    faults, stalls, who to blame */
#ifndef FR_ENGINE_ENGINE_H
#define FR_ENGINE_ENGINE_H

#include <forerun/state.h>

#include "base/arena.h"
#include "base/thread.h"

#include <stdatomic.h>

typedef struct fr_worker fr_worker;
typedef struct fr_part fr_part;
typedef struct fr_record fr_record;

/* Training and evaluation have programs, wires and slots of their own. */
typedef enum fr_mode { FR_MODE_TRAIN, FR_MODE_EVAL, FR_N_MODES } fr_mode;

/* --- links ---------------------------------------------------------------------------------- */

/* A link of the schedule. Forward: the outputs of stage `from`, which lie in its slots, one buffer
 * a slot. Backward: gradients, in buffers of their own. */
typedef struct fr_wire {
    fr_part *from, *to;
    fr_channel *channel; /* NULL: both on one worker */
    int n_buffers;
    size_t bytes, stride;
    char *memory;      /* [n_buffers], of the sender */
    const void **data; /* [buffer]: where the receiver reads it */
} fr_wire;

/* Where a tensor is on a wire. */
typedef struct fr_tap {
    int wire; /* -1: none */
    size_t offset;
} fr_tap;

/* What a program wants at an input port. */
typedef enum fr_role { FR_ROLE_INPUT, FR_ROLE_TARGET, FR_ROLE_LENGTH, FR_ROLE_WIRE } fr_role;

typedef struct fr_in_port {
    fr_role role;
    fr_tap value; /* FR_ROLE_WIRE: on a forward wire */
    fr_tap grad;  /* where its gradient goes: a backward wire */
    fr_tap seed;  /* where the gradient of later readers comes from */
    size_t bytes;
} fr_in_port;

typedef struct fr_out_port {
    size_t offset; /* in the outputs part of a slot */
    fr_tap grad;   /* where its gradient comes from */
} fr_out_port;

/* --- a stage -------------------------------------------------------------------------------- */

/* A program with its ports tied to wires, and room for the pointers of one pass. */
typedef struct fr_bound {
    fr_program *program; /* NULL: none */
    fr_in_port *in;
    fr_out_port *out;
    int loss_port, logits_port; /* -1: not here */
    const void **inputs, **output_grads;
    void **outputs, **input_grads;
    size_t slot_bytes;   /* of the program, aligned: the outputs lie behind */
    size_t output_bytes; /* of all outputs */
    size_t stride;       /* of a slot */
    int n_slots;
    char *slots;
} fr_bound;

/* A piece of a parameter's gradient whose squares are summed at one go. */
typedef struct fr_norm_block {
    size_t offset, count; /* floats */
} fr_norm_block;

#define FR_MAX_BLOCKS 16

struct fr_part {
    fr_engine *engine;
    fr_worker *worker;
    int stage;
    fr_stage bounds;
    fr_bound bound[FR_N_MODES];
    fr_program *layout; /* how parameters lie in the blocks */
    fr_store *store;    /* NULL: evaluation only */
    size_t n_weights, n_grads, n_buffers;
    float *weights; /* the store's blocks, or the only one */
    size_t weight_stride;
    int n_weight_blocks;
    float *grads;
    float *state[FR_MAX_OPTIM_STATE];
    float *drift;
    float *buffers; /* running statistics, then n_snaps copies: at the start of a mini-batch */
    int n_snaps;
    int64_t begun;                   /* mini-batches whose first forward has begun */
    bool is_ridden;                  /* the update rides on the last backward */
    size_t n_norm_blocks, n_updated; /* floats that an update must reach */
    fr_norm_block *norm_blocks;
    double *norm_sums;      /* (n_norm_blocks) */
    size_t grad_wire_bytes; /* buffers of the backward wires that leave this stage */
    char *grad_wires;
    fr_stage_times times;
    _Atomic uint64_t ride_ns;
};

/* --- a worker ------------------------------------------------------------------------------- */

typedef fr_status (*fr_job)(fr_worker *w, void *arg);

struct fr_worker {
    fr_engine *engine;
    int index;
    pthread_t thread;
    bool has_thread, is_lost;
    fr_device *dev;
    int n_parts;
    fr_part **parts; /* ascending stages */
    char *workspace;
    size_t workspace_bytes;
    struct {
        void *at;
        size_t bytes;
    } * blocks;
    int n_blocks, max_blocks;
    fr_memory_use predicted;

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
    fr_worker_times times;
    uint64_t wait_ns; /* in the instruction under way */
    fr_event *events;
    int n_events;
};

/* --- a mini-batch under way ------------------------------------------------------------------ */

struct fr_record {
    int64_t batch; /* of the run */
    fr_feed feed;
    int n_open, n_unstepped; /* stages that still read the data; that have not stepped */
    fr_tally tally;
    double norm_sq;  /* of the whole gradient, or NaN */
    double *part_sq; /* [stage] */
    uint64_t done_ns;
    int *n_rows;         /* [stage] */
    fr_ledger_row *rows; /* [stage][2 * n_micro] */
};

struct fr_engine {
    fr_ctx *ctx;
    fr_engine_desc desc;
    fr_arena arena;
    const fr_transport *transport;
    fr_group *group;
    const fr_schedule *schedule[FR_N_MODES];
    fr_schedule *eval_schedule; /* owned */
    int n_stages, n_workers;
    fr_stage *stages;
    fr_part *parts;     /* [stage] */
    fr_worker *workers; /* [worker] */
    fr_wire *forward[FR_N_MODES];
    fr_wire *backward;
    int *home_of, *placement_of; /* [param]: stage and placement of its own values or copy; -1 */
    bool has_reduce;             /* the schedule has: ties inside a stage are added there */
    bool must_sum;               /* gradients or their norm are combined before a step */
    fr_board *norm_board, *tie_board;
    size_t *tie_room;    /* bytes of board a worker holds */
    int n_tied, *tied;   /* params in groups that span stages, owners and copies, ascending */
    float **tie_scratch; /* [worker] */
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
    fr_record *records; /* ring */
    int n_records;
    int64_t n_reported;
    float *logits;
    struct {
        bool is_set;
        int64_t batch;
        int micro; /* -1: of the whole mini-batch */
        const char *what;
        double value;
    } diverged;
    int failed_worker; /* the first; -1 */
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

static inline const fr_schedule *fr__schedule(const fr_engine *e) { return e->schedule[e->mode]; }

/* part.c: one job a worker each; sizes into w->predicted, then blocks. */
fr_status fr__part_compile(fr_worker *w, void *arg);
fr_status fr__part_measure(fr_engine *e);
fr_status fr__part_allocate(fr_worker *w, void *arg);
fr_status fr__part_make_store(fr_part *p);
void fr__part_release(fr_worker *w);

/* wires.c: taps and sizes before allocation, memory and channels after it. */
fr_status fr__wires_plan(fr_engine *e);
fr_status fr__wires_open(fr_engine *e);

/* params.c */
fr_status fr__params_find(fr_engine *e);
fr_status fr__params_init(fr_engine *e);

/* records.c */
fr_status fr__records_create(fr_engine *e);
void fr__records_begin(fr_engine *e);
/* With feed_lock held: workers that wait for data or for room look again. */
void fr__feed_changed(fr_engine *e);
/* Whether the segment that begins with mini-batch `base` of this call is to be walked. */
bool fr__segment_enter(fr_engine *e, int64_t base);
/* First touch of a mini-batch by a worker. *is_dead: it is beyond the limit, compute nothing. */
fr_status fr__record_open(fr_worker *w, int64_t batch, bool *is_dead);
/* The stage will not read the mini-batch's data again. */
void fr__record_close(fr_part *p, int64_t batch);
/* The stage has made its update; norm_sq: of its gradient, NaN if unknown. */
void fr__record_stepped(fr_part *p, int64_t batch, double norm_sq);
/* The next mini-batch to report, if it is through; and that it has been. */
fr_record *fr__record_through(fr_engine *e);
void fr__record_reported(fr_engine *e);
void fr__record_row(fr_part *p, int64_t batch, int micro, char pass, const fr_view *v);
/* The version at the update goes into the rows of its backwards. */
void fr__record_live(fr_part *p, int64_t batch, int64_t version);
/* No mini-batch that is not open yet is computed. */
void fr__stop_soon(fr_engine *e);
void fr__diverge(fr_engine *e, int64_t batch, int micro, const char *what, double value);

/* worker.c */
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
fr_status fr__update_reduce(fr_part *p, int64_t batch, bool is_dead);
fr_status fr__update_step(fr_part *p, int64_t batch, fr_event *event);
/* In place of a step beyond the limit: others may be waiting for what it would have handed in. */
fr_status fr__update_skip(fr_part *p, int64_t batch);

/* watch.c */
fr_status fr__fault_now(fr_worker *w, const fr_instr *i, int64_t batch);
bool fr__fault_is_nan(const fr_worker *w, int64_t batch, int micro);
/* End everybody's waits; worker: the one that failed, -1: none did. */
void fr__give_up(fr_engine *e, int worker);
void fr__blame_stall(fr_engine *e, double seconds);
fr_status fr__blame_failure(fr_engine *e);

/* With the lock held; n_running counts the workers that are not done. */
void fr__job_start(fr_worker *w, fr_job job);
/* Run a job on every worker at once (or one after the other) and wait. */
fr_status fr__jobs_run(fr_engine *e, fr_job job, bool one_by_one);

#endif
