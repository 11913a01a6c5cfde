/* rig.h -- an engine over one of the small nets, made in one line, for tests.
 *
 * Its source returns copies of the net's mini-batches, chosen by their number in the run, and
 * overwrites a copy as soon as it is released: a late reader gets other numbers. */
#ifndef TESTS_ENGINE_RIG_H
#define TESTS_ENGINE_RIG_H

#include "engine/small_nets.h"

#include "base/alloc.h"
#include "base/philox.h"
#include "base/thread.h"
#include "engine/fault.h"
#include "io/sha256.h"
#include "support/backend.h"
#include "support/check.h"

#include <stdatomic.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif
/* Steps of long loops over stages: sanitizers are slow, and a few cases suffice for them. */
enum { STRIDE = IS_SANITIZED ? 5 : 1 };

enum { MAX_STAGES = 16, MAX_LINKS = MAX_STAGES * MAX_STAGES, RING = 64, MAX_NOTED = 256 };
enum { MAX_NODES = 256 };

typedef struct rig_options {
    const char *generator; /* NULL: sequential */
    const char *file;      /* a schedule to read instead */
    const char *policy;    /* NULL: live */
    const char *optimizer; /* NULL: sgd with momentum */
    const char *backend;   /* NULL: rig_backend */
    int n_stages;          /* 0: 1; cut by fr_graph_balance, unless cuts are given */
    const int *cuts, *worker_of;
    const int *replicas; /* [stage] */
    int chunks, n_micro, n_batches, lead;
    double lr, weight_decay, clip_norm, stall_s;
    uint64_t seed; /* 0: 7 */
    bool clip_late, want_norm, keep_grads, want_ledger, exact, want_logits, evaluates_only;
    bool exact_sum, want_snapshots;
    fr_sync_options sync;
    int n_threads, n_events, n_samples;
    const char *fault;
    bool (*freezes)(const fr_graph *g, int param); /* parameters that are frozen; NULL: none */
} rig_options;

typedef struct rig rig;
struct rig {
    bench b;
    int cuts[MAX_STAGES];
    fr_stage stages[MAX_STAGES];
    const fr_schedule *schedule;
    fr_engine_desc desc;
    struct fr_fault fault; /* of desc */
    bool recompute[MAX_NODES];
    fr_engine *engine;

    minibatch ring[RING];
    int64_t first_fed, fails_at; /* fails_at: mini-batch of the run, -1 = none */
    _Atomic int64_t n_taken, n_returned;
    atomic_bool is_overdrawn; /* more held than the window, or returned than taken */

    int n_reports;
    fr_tally tally[MAX_NOTED];
    double norm[MAX_NOTED];
    bool (*on_report)(rig *p, const fr_batch_report *r); /* may be NULL */
    void *user;
    const volatile int *stop;
};

/* ThreadSanitizer does not see through OpenMP, so the backend is `ref` there; FR_BACKEND chooses.*/
static inline const fr_backend *rig_backend(void)
{
#ifdef __SANITIZE_THREAD__
    return test_backend("ref");
#else
    return test_backend(fr_backend_name(fr_backend_list()[0]));
#endif
}

/* --- making one ----------------------------------------------------------------------------- */

static inline bool is_tied(const fr_graph *g)
{
    for (int i = 0; i < fr_graph_n_params(g); i++)
        if (fr_graph_param(g, i)->tied_to >= 0) return true;
    return false;
}

static inline fr_status rig_schedule(rig *p, const rig_options *o, int n_stages)
{
    fr_link forward[MAX_LINKS], backward[MAX_LINKS];
    fr_schedule_desc d = {.n_stages = n_stages,
                          .chunks = o->chunks,
                          .lead = o->lead,
                          .n_micro = o->n_micro ? o->n_micro : 1,
                          .n_batches = o->n_batches,
                          .worker_of = o->worker_of,
                          .replicas = o->replicas,
                          .forward = forward,
                          .backward = backward,
                          .must_reduce = o->clip_norm > 0 || o->want_norm || is_tied(p->b.graph)};
    FR_TRY(fr_graph_cut(p->b.graph, n_stages - 1, p->cuts, p->stages));
    FR_TRY(fr_graph_links(p->b.graph, n_stages, p->stages, &d.n_forward, forward, &d.n_backward,
                          backward));
    if (o->file) return fr_schedule_read(p->b.ctx, o->file, d.n_micro, &d, &p->schedule);
    const fr_generator *g = fr_generator_find(o->generator ? o->generator : "sequential");
    assert_non_null(g);
    d.must_reduce &= g->is_flush && n_stages > 1;
    return fr_schedule_create(p->b.ctx, g, &d, &p->schedule);
}

static inline fr_status rig_freeze(rig *p, const rig_options *o)
{
    fr_graph *frozen;
    bool which[MAX_NODES] = {false};
    assert_true(fr_graph_n_params(p->b.graph) <= MAX_NODES);
    for (int i = 0; i < fr_graph_n_params(p->b.graph); i++) which[i] = o->freezes(p->b.graph, i);
    FR_TRY(fr_graph_freeze(p->b.ctx, p->b.graph, which, &frozen));
    fr_graph_free(p->b.graph);
    p->b.graph = frozen;
    return FR_OK;
}

/* Everything but the engine; desc may still be changed before fr_engine_create. */
static inline fr_status rig_prepare(rig *p, int which, const rig_options *o)
{
    memset(p, 0, sizeof *p);
    p->fails_at = -1;
    bench_init(&p->b, which);
    if (o->freezes) FR_TRY(rig_freeze(p, o));
    int n_stages = o->n_stages ? o->n_stages : 1;
    if (o->cuts)
        memcpy(p->cuts, o->cuts, sizeof *o->cuts * (size_t)(n_stages - 1));
    else
        FR_TRY(fr_graph_balance(p->b.graph, n_stages, p->cuts));
    FR_TRY(rig_schedule(p, o, n_stages));
    const fr_optimizer *opt = fr_optim_find(o->optimizer ? o->optimizer : "sgd");
    assert_non_null(opt);
    fr_engine_desc *e = &p->desc;
    *e = (fr_engine_desc){
        .graph = p->b.graph,
        .n_stages = n_stages,
        .stages = p->stages,
        .schedule = o->evaluates_only ? NULL : p->schedule,
        .policy = o->policy ? fr_policy_find(o->policy) : NULL,
        .policy_options = {.exact = o->exact, .lr_warmup = 10, .bounded_steps = opt->bounds_steps},
        .backend = o->backend ? fr_backend_find(o->backend) : rig_backend(),
        .n_threads = o->n_threads ? o->n_threads : 1,
        .micro_batch = BATCH / (o->n_micro ? o->n_micro : 1),
        .n_micro = o->n_micro ? o->n_micro : 1,
        .optimizer = opt,
        .clip_norm = o->clip_norm,
        .clip_late = o->clip_late,
        .want_norm = o->want_norm,
        .seed = o->seed ? o->seed : 7,
        .keep_grads = o->keep_grads,
        .logits_node = o->want_logits ? fr_graph_find(p->b.graph, "logits") : 0,
        .stall_s = o->stall_s,
        .want_ledger = o->want_ledger,
        .n_events = o->n_events,
        .n_samples = o->n_samples,
        .exact_sum = o->exact_sum,
        .sync = o->sync,
        .want_snapshots = o->want_snapshots};
    if (o->policy) assert_non_null(e->policy);
    if (o->fault) assert_null(fr__fault_parse(o->fault, &p->fault));
    e->fault = &p->fault;
    opt->defaults(&e->options);
    e->options.lr = o->lr > 0 ? o->lr : 0.05;
    e->options.weight_decay = o->weight_decay;
    if (!o->optimizer) e->options.momentum = 0.9;
    fr_lr_defaults(&e->lr);
    e->lr.name = "constant";
    e->lr.total = 1000;
    return FR_OK;
}

/* All nodes of these stages are recomputed: bit k for stage k. */
static inline void rig_recompute_stages(rig *p, unsigned stages)
{
    memset(p->recompute, 0, sizeof p->recompute);
    p->desc.recompute = p->recompute;
    assert_true(fr_graph_n_nodes(p->b.graph) <= MAX_NODES);
    for (int k = 0; k < p->desc.n_stages; k++)
        for (int i = p->stages[k].first; i < p->stages[k].last; i++)
            p->recompute[i] = stages >> k & 1;
}

/* A random half of all nodes. */
static inline void rig_recompute_some(rig *p, uint32_t seed)
{
    p->desc.recompute = p->recompute;
    assert_true(fr_graph_n_nodes(p->b.graph) <= MAX_NODES);
    for (int i = 0; i < fr_graph_n_nodes(p->b.graph); i++) {
        uint32_t words[4];
        fr__random4(seed, FR_STREAM_SYNTHETIC, (uint32_t)i, 0, 0, words);
        p->recompute[i] = words[0] % 2;
    }
}

static inline fr_status rig_open(rig *p, int which, const rig_options *o)
{
    FR_TRY(rig_prepare(p, which, o));
    return fr_engine_create(p->b.ctx, &p->desc, &p->engine);
}

static inline void rig_close(rig *p)
{
    fr_engine_free(p->engine);
    fr_schedule_free(p->schedule);
    bench_fini(&p->b);
}

/* "tied: 1f1b, spectrain, adam, 3 stages, 4 micro-batches: " and what the context says. */
static inline const char *rig_about(const rig *p, const rig_options *o)
{
    static char text[1024];
    snprintf(text, sizeof text, "%s: %s, %s, %s, %d stages, %d micro-batches: %s", p->b.net->name,
             o->generator ? o->generator : "sequential", o->policy ? o->policy : "live",
             o->optimizer ? o->optimizer : "sgd", o->n_stages, o->n_micro, fr_ctx_error(p->b.ctx));
    return text;
}

/* --- data in, reports out ------------------------------------------------------------------- */

/* On a worker's thread. */
static inline fr_status rig_next(void *user, fr_feed *out)
{
    rig *p = user;
    int64_t n = atomic_load(&p->n_taken), step = p->first_fed + n;
    if (step == p->fails_at) return fr_fail(p->b.ctx, FR_IO, "the disk is on fire");
    minibatch *m = &p->ring[n % RING];
    *m = p->b.data[step % N_DATA];
    *out = feed_of(p->b.net, m);
    atomic_store(&p->n_taken, n + 1);
    int64_t held = n + 1 - atomic_load(&p->n_returned);
    if (held > fr_engine_window(p->engine) || held > RING) atomic_store(&p->is_overdrawn, true);
    return FR_OK;
}

static inline void rig_return(void *user)
{
    rig *p = user;
    int64_t n = atomic_fetch_add(&p->n_returned, 1);
    minibatch *m = &p->ring[n % RING];
    if (n >= atomic_load(&p->n_taken)) atomic_store(&p->is_overdrawn, true);
    memset(m, 0, sizeof *m);
    if (!p->b.net->is_tokens) memset(&m->input, 0xff, sizeof m->input); /* NaN */
}

static inline bool rig_report(void *user, const fr_batch_report *r)
{
    rig *p = user;
    int n = p->n_reports++;
    if (n < MAX_NOTED) p->tally[n] = r->tally, p->norm[n] = r->grad_norm;
    return p->on_report ? p->on_report(p, r) : true;
}

static inline fr_source rig_source(rig *p, int64_t first)
{
    p->first_fed = first;
    atomic_store(&p->n_taken, 0);
    atomic_store(&p->n_returned, 0);
    return (fr_source){.user = p, .next = rig_next, .release = rig_return};
}

/* A run that ends normally releases all data; a lost worker may keep some. */
static inline void rig_check_data(rig *p, fr_status status)
{
    assert_false(atomic_load(&p->is_overdrawn));
    if (status != FR_PEER) assert_int_equal(atomic_load(&p->n_taken), atomic_load(&p->n_returned));
}

static inline fr_status rig_train(rig *p, int64_t first, int64_t n, int64_t *n_done)
{
    fr_source source = rig_source(p, first);
    int before = p->n_reports;
    fr_status status =
        fr_engine_train(p->engine, first, n, &source, rig_report, p, p->stop, n_done);
    rig_check_data(p, status);
    assert_int_equal(p->n_reports - before, *n_done);
    return status;
}

static inline fr_status rig_eval(rig *p, int64_t n, fr_tally *tally, float *logits)
{
    fr_source source = rig_source(p, 0);
    fr_status status = fr_engine_eval(p->engine, n, &source, tally, logits);
    rig_check_data(p, status);
    return status;
}

/* The usual case: every call must succeed. Returns the loss of the last mini-batch per target. */
static inline double rig_steps(rig *p, int64_t first, int64_t n)
{
    int64_t n_done = 0;
    assert_ok(p->b.ctx, rig_train(p, first, n, &n_done));
    assert_int_equal(n_done, n);
    const fr_tally *last = &p->tally[(p->n_reports - 1) % MAX_NOTED];
    return last->loss / (double)last->targets;
}

/* --- what came out -------------------------------------------------------------------------- */

/* Hash of all parameters and optimizer state, with or without running statistics. */
static inline void rig_sha_of(rig *p, bool with_buffers, char text[65])
{
    static float plain[MAX_PARAM];
    fr__sha256 h;
    fr__sha256_init(&h);
    for (int i = 0; i < fr_graph_n_params(p->b.graph); i++) {
        size_t n = count_of(&p->b, i);
        assert_true(n <= MAX_PARAM);
        if (fr_graph_param(p->b.graph, i)->is_buffer && !with_buffers) continue;
        assert_ok(p->b.ctx, fr_engine_get_param(p->engine, i, plain));
        fr__sha256_update(&h, plain, n * sizeof(float));
        if (fr_graph_param(p->b.graph, i)->is_buffer || !p->desc.schedule) continue;
        for (int s = 0; s < p->desc.optimizer->n_state; s++) {
            assert_ok(p->b.ctx, fr_engine_get_state(p->engine, s, i, plain));
            fr__sha256_update(&h, plain, n * sizeof(float));
        }
    }
    fr__sha256_final(&h, text);
}

static inline void rig_sha(rig *p, char text[65]) { rig_sha_of(p, true, text); }

/* The largest difference of any two parameters. */
static inline double rig_distance(rig *a, rig *b)
{
    static float x[MAX_PARAM], y[MAX_PARAM];
    double most = 0;
    for (int i = 0; i < fr_graph_n_params(a->b.graph); i++) {
        assert_ok(a->b.ctx, fr_engine_get_param(a->engine, i, x));
        assert_ok(b->b.ctx, fr_engine_get_param(b->engine, i, y));
        for (size_t k = 0; k < count_of(&a->b, i); k++) {
            double d = fabs((double)x[k] - (double)y[k]);
            if (!(d <= most)) most = d;
        }
    }
    return most;
}

/* The final state of an undisturbed run of n steps. */
static inline void rig_clean_sha(int which, const rig_options *o, int64_t n, char sha[65])
{
    rig p;
    rig_options clean = *o;
    clean.fault = NULL;
    if (rig_open(&p, which, &clean) != FR_OK) fail_msg("%s", rig_about(&p, &clean));
    if (n > 0) rig_steps(&p, 0, n);
    rig_sha(&p, sha);
    rig_close(&p);
}

#endif
