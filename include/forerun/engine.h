/* engine.h -- the engine: a model cut into stages, workers that walk a schedule.
 *
 * One worker is one thread on one device and owns the stages that the schedule gives it. The engine
 * makes the workers, gives them mini-batches, detects stalls, and collects the results of each
 * mini-batch. One worker with one stage is the special case of a
 * schedule with one list. All calls on an engine come from one thread; callbacks say on which
 * thread they run.
 *
 * With a team the workers are spread over its processes, equally many in each, in order. Every
 * process creates an engine from the same description and makes the same calls in the same order;
 * calls return the same status everywhere. Reports go to rank 0. */
#ifndef FORERUN_ENGINE_H
#define FORERUN_ENGINE_H

#include <forerun/cost.h>
#include <forerun/events.h>
#include <forerun/exec.h>
#include <forerun/sched.h>
#include <forerun/transport.h>
#include <forerun/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_engine fr_engine;

typedef struct fr_engine_desc {
    fr_team *team; /* NULL: this process alone */
    fr_graph *graph;
    int n_stages;           /* 0: the whole model is one */
    const fr_stage *stages; /* [n_stages], of fr_graph_cut; copied */
    /* Training, made for the links of these stages (fr_graph_links); NULL: an engine that only
     * evaluates. */
    const fr_schedule *schedule;
    const fr_policy *policy; /* NULL: live */
    fr_policy_options policy_options;
    const fr_transport *transport; /* NULL: threads, or mpi with a team */
    fr_sync_options sync;
    /* Gradients of micro-batches are added along a fixed binary tree (that of fr_sum_desc) and not
     * one after the other: with a power of two of replicas the bits are those of one worker. Costs
     * up to n_micro / 2 more gradient blocks. */
    bool exact_sum;
    /* [node of the graph]: its values are not kept, the backward computes them again; NULL: none.
     * Read by fr_engine_create only. */
    const bool *recompute;
    /* Emulation of training, one process only: an instruction that takes t by this timing takes t *
     * scale seconds of the wall clock, messages and sums likewise; results are those of the
     * computation itself. NULL: as fast as it goes, as evaluation does. Times that the engine
     * reports are then emulated. It lives as long as the engine. */
    const fr_timing *timing;
    double scale; /* 0 = 1 */
    const fr_backend *backend;
    int n_threads;   /* kernel threads of a worker; 0 = the cores shared out among the workers */
    bool pin;        /* each worker on cores of its own, if there are enough */
    int micro_batch; /* samples */
    int n_micro;     /* of a mini-batch that is evaluated (training: the schedule's) */
    const fr_optimizer *optimizer;
    fr_optim_options options; /* options.lr: base rate */
    fr_lr_options lr;
    fr_param_groups groups; /* n = 0: none; lives as long as the engine */
    double clip_norm;       /* 0 = none; of the whole model, or of a stage if there is no flush */
    bool clip_late; /* no flush: by the norm of the whole model too, as late as it is known */
    bool want_norm; /* compute the gradient norm of every mini-batch */
    uint64_t seed;
    bool keep_grads; /* gradients survive the update (for dumps): no update on the fly */
    int logits_node; /* whose value evaluation returns; 0, which is an INPUT: none */
    double stall_s;  /* seconds without progress before the call fails; 0: 30 */
    const struct fr_fault *fault; /* for tests of the library; NULL */
    bool want_ledger;
    int n_events;          /* trace: most events kept for each worker; 0 = none */
    int n_samples;         /* weights of a stage watched for the prediction error; 0 = none */
    bool want_snapshots;   /* their memory is taken at once, else with the first one */
    size_t snapshot_bytes; /* larger ones are no copy (state.h); 0: FR_SNAPSHOT_BYTES */
} fr_engine_desc;

FR_API FR_MUST_USE fr_status fr_engine_create(fr_ctx *ctx, const fr_engine_desc *desc,
                                              fr_engine **out);
/* The first half of it: sizes are known, no memory is taken; desc->timing is not looked at. */
FR_API FR_MUST_USE fr_status fr_engine_plan(fr_ctx *ctx, const fr_engine_desc *desc,
                                            fr_engine **out);
/* The second: memory and starting values. timing, scale: as in the description. After a failure the
 * engine can only be freed. */
FR_API FR_MUST_USE fr_status fr_engine_take(fr_engine *e, const fr_timing *timing, double scale);
FR_API void fr_engine_free(fr_engine *e);
/* Memory of all workers ([worker]) by a plan that is then dropped. One process. */
FR_API FR_MUST_USE fr_status fr_engine_forecast(fr_ctx *ctx, const fr_engine_desc *desc,
                                                fr_memory_use *out);
/* Nanoseconds on a clock that never jumps: emulated ones in an emulation. */
FR_API uint64_t fr_engine_now(const fr_engine *e);
FR_API int fr_engine_n_workers(const fr_engine *e);
FR_API int fr_engine_n_stages(const fr_engine *e);
FR_API const fr_stage *fr_engine_stage(const fr_engine *e, int stage);
FR_API int fr_engine_n_replicas(const fr_engine *e, int stage);
FR_API int fr_engine_worker_of(const fr_engine *e, int stage, int replica);
FR_API int fr_engine_rank_of(const fr_engine *e, int worker);
/* What follows, of all workers: first bring what other processes noted to rank 0, so far. Without a
 * team it does nothing. */
FR_API FR_MUST_USE fr_status fr_engine_collect(fr_engine *e);
FR_API const fr_memory_use *fr_engine_predicted(const fr_engine *e, int worker);
FR_API size_t fr_engine_peak_bytes(const fr_engine *e,
                                   int worker); /* what the device really gave out */
FR_API const char *fr_engine_about(const fr_engine *e);
FR_API const fr_worker_times *fr_engine_times(const fr_engine *e, int worker);
FR_API const fr_prediction_error *fr_engine_prediction(const fr_engine *e, int stage);
/* Recorded so far; valid until the next call of train or eval. Clock of rank 0. */
FR_API const fr_event *fr_engine_events(const fr_engine *e, int worker, int *n);
FR_API const fr_stage_times *fr_engine_stage_times(const fr_engine *e,
                                                   int stage); /* of replica 0 */
/* Without the first mini-batch, which finds caches and memory cold, if there are others. */
FR_API fr_stage_times fr_engine_warm_times(const fr_engine *e, int stage);
FR_API fr_overrun fr_engine_overrun(const fr_engine *e);
FR_API fr_traffic fr_engine_traffic(const fr_engine *e);

/* Source of mini-batches: called in order, one call at a time, on any worker's thread. At
 * most fr_engine_window mini-batches are held at once. */
typedef struct fr_source {
    void *user;
    fr_status (*next)(void *user, fr_feed *out);
    void (*release)(void *user); /* the oldest one held */
} fr_source;
FR_API int fr_engine_window(const fr_engine *e);
FR_API bool fr_engine_reads_data(const fr_engine *e); /* false: the source is not called here */

/* A mini-batch is through: all stages have stepped. On the caller's thread, in order, on rank 0. */
typedef struct fr_batch_report {
    int64_t step; /* of the run, from 0 */
    fr_tally tally;
    double grad_norm; /* of the whole gradient before clipping; NaN: not computed */
    uint64_t done_ns; /* clock of fr_engine_now */
    /* want_ledger: by stage, by replica, each in the order it ran; else NULL */
    const fr_ledger_row *ledger;
    size_t n_ledger;
} fr_batch_report;
/* false: stop as soon as possible: mini-batches already begun are finished, no more begin. */
typedef bool (*fr_batch_fn)(void *user, const fr_batch_report *r);

/* Mini-batches first_step .. first_step + n - 1; the pipeline is empty before and after, and all
 * replicas of a stage hold the same. `stop` of any rank counts. *n_done
 * counts those whose updates every stage has applied: all parameters are of that version, also when
 * the call fails with FR_DIVERGED (loss or norm not finite). `stop` (may be NULL) is a flag set
 * by a signal handler. FR_PEER: a worker failed, hung or was lost; the engine can only be freed.
 * After an error that is not FR_DIVERGED stages may be of different versions, and a worker that
 * hung and comes back later still reads graph, schedule, context and source: keep them. */
FR_API FR_MUST_USE fr_status fr_engine_train(fr_engine *e, int64_t first_step, int64_t n,
                                             const fr_source *source, fr_batch_fn report,
                                             void *user, const volatile int *stop, int64_t *n_done);
/* Forward only through the same pipeline, running statistics used. *tally is set. logits (host,
 * fp32, may be NULL): n * batch x the logits node's shape. */
FR_API FR_MUST_USE fr_status fr_engine_eval(fr_engine *e, int64_t n, const fr_source *source,
                                            fr_tally *tally, void *logits);

#ifdef __cplusplus
}
#endif
#endif
