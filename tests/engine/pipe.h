/* pipe.h -- an engine over one of the small nets, made in one line, for tests. */
#ifndef TESTS_ENGINE_PIPE_H
#define TESTS_ENGINE_PIPE_H

#include "engine/small_nets.h"

#include "io/sha256.h"

typedef struct pipe_options {
    const char *generator; /* NULL: sequential */
    const char *policy;    /* NULL: live */
    const char *optimizer; /* NULL: sgd with momentum */
    const char *backend;   /* NULL: the default */
    int n_stages;          /* 0: 1; cut by fr_graph_balance, unless cuts are given */
    const int *cuts;
    int chunks, n_micro, n_batches;
    double lr, clip_norm, stall_s;
    bool want_norm, keep_grads, want_ledger, exact;
    int n_events, n_samples;
    const char *fault;
} pipe_options;

typedef struct pipe {
    bench b;
    fr_schedule *schedule;
    fr_engine *engine;
    int n_reports;
    fr_batch_report last;
} pipe;

static fr_status pipe_open(pipe *p, int which, const pipe_options *o)
{
    memset(p, 0, sizeof *p);
    bench_init(&p->b, which);
    int n_stages = o->n_stages ? o->n_stages : 1, cuts[64];
    if (o->cuts)
        memcpy(cuts, o->cuts, sizeof *cuts * (size_t)(n_stages - 1));
    else
        FR_TRY(fr_graph_balance(p->b.graph, n_stages, cuts));
    fr_stage stages[64];
    FR_TRY(fr_graph_cut(p->b.graph, n_stages - 1, cuts, stages));
    fr_stage_link forward[512], backward[512];
    fr_link f[512], b[512];
    fr_schedule_desc d = {.n_stages = n_stages,
                          .chunks = o->chunks,
                          .n_micro = o->n_micro ? o->n_micro : 1,
                          .n_batches = o->n_batches,
                          .forward = f,
                          .backward = b};
    FR_TRY(fr_graph_links(p->b.graph, n_stages, stages, &d.n_forward, forward, &d.n_backward,
                          backward));
    for (int i = 0; i < d.n_forward; i++) f[i] = (fr_link){forward[i].from, forward[i].to};
    for (int i = 0; i < d.n_backward; i++) b[i] = (fr_link){backward[i].from, backward[i].to};
    const fr_generator *g = fr_generator_find(o->generator ? o->generator : "sequential");
    assert_non_null(g);
    d.must_reduce =
        g->is_flush && n_stages > 1 && (o->clip_norm > 0 || o->want_norm || which == TIED);
    FR_TRY(fr_schedule_create(p->b.ctx, g, &d, &p->schedule));
    const fr_optimizer *opt = fr_optim_find(o->optimizer ? o->optimizer : "sgd");
    fr_engine_desc e = {.graph = p->b.graph,
                        .n_cuts = n_stages - 1,
                        .cuts = cuts,
                        .schedule = p->schedule,
                        .policy = o->policy ? fr_policy_find(o->policy) : NULL,
                        .seat = {.exact = o->exact},
                        .backend = o->backend ? fr_backend_find(o->backend) : fr_backend_list()[0],
                        .n_threads = 1,
                        .micro_batch = BATCH / d.n_micro,
                        .optimizer = opt,
                        .clip_norm = o->clip_norm,
                        .want_norm = o->want_norm,
                        .seed = 7,
                        .keep_grads = o->keep_grads,
                        .logits_node = -1,
                        .stall_s = o->stall_s,
                        .want_ledger = o->want_ledger,
                        .n_events = o->n_events,
                        .n_samples = o->n_samples};
    if (o->fault) assert_null(fr_fault_parse(o->fault, &e.fault));
    opt->defaults(&e.options);
    e.options.lr = o->lr > 0 ? o->lr : 0.05;
    if (!o->optimizer) e.options.momentum = 0.9;
    fr_lr_defaults(&e.lr);
    e.lr.name = "constant";
    e.lr.total = 1000;
    return fr_engine_create(p->b.ctx, &e, &p->engine);
}

static void pipe_close(pipe *p)
{
    fr_engine_free(p->engine);
    fr_schedule_free(p->schedule);
    bench_fini(&p->b);
}

static fr_status pipe_next(void *user, fr_feed *out)
{
    *out = ((pipe *)user)->b.feed;
    return FR_OK;
}

static bool pipe_report(void *user, const fr_batch_report *r)
{
    pipe *p = user;
    p->n_reports++;
    p->last = *r;
    return true;
}

static inline fr_status pipe_train(pipe *p, int64_t first, int64_t n, int64_t *n_done)
{
    fr_source source = {.user = p, .next = pipe_next};
    return fr_engine_train(p->engine, first, n, &source, pipe_report, p, NULL, n_done);
}

/* Of all parameters and running statistics. */
static inline void pipe_sha(pipe *p, char text[65])
{
    static float plain[1 << 16];
    fr_sha256 h;
    fr__sha256_init(&h);
    for (int i = 0; i < fr_graph_n_params(p->b.graph); i++) {
        const fr_param *param = fr_graph_param(p->b.graph, i);
        if (param->tied_to >= 0) continue;
        assert_int_equal(fr_engine_get_param(p->engine, i, plain), FR_OK);
        fr__sha256_update(&h, plain, (size_t)fr_shape_count(&param->shape) * sizeof(float));
    }
    fr__sha256_final(&h, text);
}

#endif
