/* test_buckets.c -- replicas of a stage whose gradients fill several buckets: the sum has the bits
 * of one worker, for any buckets, and in emulation they are sent while the backward still runs. */
#include "engine/clocks.h"
#include "engine/small_nets.h"
#include "exec/stage.h"

#include "base/alloc.h"
#include "support/check.h"

#include <forerun/sim.h>

enum { WIDE = 1024, MOST_LAYERS = 4, CLASSES = 3, SAMPLES = 4, STEPS = 3 };

typedef struct desk {
    fr_ctx *ctx;
    fr_graph *graph;
    const fr_schedule *schedule;
    fr_stage stages[2];
    fr_engine_desc desc;
    fr_engine *engine;
    float input[SAMPLES * WIDE];
    int32_t target[SAMPLES];
    uint64_t done[STEPS];
} desk;

static void build(fr_graph *g, int layers)
{
    char name[16];
    int x = feed_node(g, "x", FR_SHAPE(WIDE), FR_F32);
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "l%d", i);
        x = linear(g, name, x, WIDE);
    }
    x = linear(g, "logits", x, CLASSES);
    put(g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, feed_node(g, "y", (fr_shape){0}, FR_I32));
}

/* One stage of two layers, or a stage of one layer before one of three. */
static void prepare(desk *d, int n_stages, int replicas)
{
    static const int cut = 2;
    memset(d, 0, sizeof *d);
    d->ctx = fr_ctx_create();
    assert_ok(d->ctx, fr_graph_create(d->ctx, "wide", &d->graph));
    build(d->graph, n_stages == 1 ? 2 : MOST_LAYERS);
    assert_ok(d->ctx, fr_graph_finish(d->graph));
    const int of_stage[2] = {replicas, replicas};
    fr_schedule_desc s = {.n_stages = n_stages, .n_micro = 2, .replicas = of_stage};
    assert_ok(d->ctx, fr_schedule_create(d->ctx, fr_generator_find("1f1b"), &s, &d->schedule));
    assert_ok(d->ctx, fr_graph_cut(d->graph, n_stages - 1, &cut, d->stages));
    d->desc = (fr_engine_desc){.graph = d->graph,
                               .n_stages = n_stages,
                               .stages = d->stages,
                               .schedule = d->schedule,
                               .backend = fr_backend_list()[0],
                               .n_threads = 1,
                               .micro_batch = SAMPLES / 2,
                               .exact_sum = true,
                               .optimizer = fr_optim_find("sgd"),
                               .seed = 3,
                               .scale = 1};
    d->desc.optimizer->defaults(&d->desc.options);
    d->desc.options.lr = 0.05;
    fr_lr_defaults(&d->desc.lr);
    for (int i = 0; i < SAMPLES * WIDE; i++) d->input[i] = 2 * fr__unit_float(draw(1, i)) - 1;
    for (int i = 0; i < SAMPLES; i++) d->target[i] = i % CLASSES;
}

static fr_status next(void *user, fr_feed *out)
{
    desk *d = user;
    *out = (fr_feed){.input = d->input, .target = d->target, .n_targets = SAMPLES};
    return FR_OK;
}

static bool report(void *user, const fr_batch_report *r)
{
    ((desk *)user)->done[r->step] = r->done_ns;
    return true;
}

static void train(desk *d)
{
    int64_t n_done;
    fr_source source = {.user = d, .next = next};
    virtual_clock clock;
    assert_ok(d->ctx, fr_engine_create(d->ctx, &d->desc, &d->engine));
    if (d->desc.timing) use_virtual_clock(d->engine, &clock);
    assert_ok(d->ctx, fr_engine_train(d->engine, 0, STEPS, &source, report, d, NULL, &n_done));
    assert_int_equal(n_done, STEPS);
    assert_true(fr_engine_overrun(d->engine).late_s == 0);
}

static void finish(desk *d)
{
    fr_engine_free(d->engine);
    fr_schedule_free(d->schedule);
    fr_graph_free(d->graph);
    fr_ctx_free(d->ctx);
}

static void the_bits_of_one_worker(void **unused)
{
    (void)unused;
    static desk one, two;
    float *a = fr__alloc(WIDE * WIDE * sizeof *a), *b = fr__alloc(WIDE * WIDE * sizeof *b);
    prepare(&one, 1, 1);
    prepare(&two, 1, 2);
    train(&one);
    train(&two);
    const fr__grad_reduction *g = &two.engine->execs[0]->reduction;
    assert_int_equal(g->n_buckets, 3);
    for (int i = 1; i < 3; i++)
        assert_int_equal((g->edge[i + 1] - g->edge[i]) * sizeof(float), FR_BUCKET_BYTES);
    for (int i = 0; i < fr_graph_n_params(one.graph); i++) {
        size_t n = (size_t)fr_shape_count(&fr_graph_param(one.graph, i)->shape);
        assert_ok(one.ctx, fr_engine_get_param(one.engine, i, a));
        assert_ok(two.ctx, fr_engine_get_param(two.engine, i, b));
        assert_memory_equal(a, b, n * sizeof *a);
    }
    finish(&one);
    finish(&two);
    fr__free(a);
    fr__free(b);
}

/* Milliseconds of a mini-batch, from the first one's end on. */
static double beat(const desk *d)
{
    return (double)(d->done[STEPS - 1] - d->done[0]) / (STEPS - 1) * 1e-6;
}

/* Milliseconds of a mini-batch with F = 20, B = 60, STEP = 10, and `bucket` for a bucket. */
static double timed(bool overlaps, double bucket)
{
    static desk d;
    fr_stage_cost cost = {.forward = 20e-3, .backward = 60e-3, .step = 10e-3};
    fr_timing timing = {.cost = &cost};
    fr_cluster *cluster;
    prepare(&d, 1, 2);
    assert_ok(d.ctx, fr_cluster_flat(d.ctx, 2, FR_BUCKET_BYTES / (bucket * 1e-3), 0, &cluster));
    timing.cluster = cluster;
    d.desc.timing = &timing;
    d.desc.scale = 1;
    d.desc.exact_sum = false;
    d.desc.want_norm = !overlaps;
    train(&d);
    double ms = beat(&d);
    finish(&d);
    fr_cluster_free(cluster);
    return ms;
}

/* Expected times leave out the first bucket, which is very small. */
static void assert_near(double ms, double expected)
{
    if (!(fabs(ms - expected) < 0.015 * expected))
        fail_msg("%g ms a mini-batch, expected %g", ms, expected);
}

static void assert_takes(bool overlaps, double bucket, double expected)
{
    assert_near(timed(overlaps, bucket), expected);
}

/* The last two buckets of the block, B0 and B1 here, are 4 MB of 8.01 each: final at 30 and 60 ms
 * of the backward, if gradients become final evenly; the first is very small. */
static void buckets_travel_beside(void **unused)
{
    (void)unused;
    /* short ones: B1 is submitted at the end, and takes 12; each is stepped on arrival, the last
     * half after it */
    assert_takes(true, 12, 20 + 60 + 12 + 5);
    /* long ones: B0 goes from 30 to 80, then B1 to 130 */
    assert_takes(true, 50, 20 + 30 + 50 + 50 + 5);
    /* the norm needs all of them: one step after the last */
    assert_takes(false, 50, 20 + 30 + 50 + 50 + 10);
}

/* Four buckets of the second stage, 30 ms each but the last, and a gradient for the first, as the
 * simulator has it: it is sent after the current bucket. */
static void messages_pass_between(void **unused)
{
    (void)unused;
    static desk d;
    fr_stage_cost cost[2];
    size_t bytes = WIDE * sizeof(float);
    fr_cluster *cluster;
    fr_sim_result out;
    prepare(&d, 2, 2);
    assert_ok(d.ctx, fr_cluster_flat(d.ctx, 4, FR_BUCKET_BYTES / 30e-3, 0, &cluster));
    fr_timing timing = {
        .cost = cost, .cluster = cluster, .forward_bytes = &bytes, .backward_bytes = &bytes};
    for (int k = 0; k < 2; k++)
        cost[k] = (fr_stage_cost){.forward = 10e-3,
                                  .backward = 40e-3,
                                  .step = 5e-3,
                                  .param_bytes = 4 * WIDE * (WIDE + 1) * (k ? 3 : 1)};
    cost[1].param_bytes += 4 * CLASSES * (WIDE + 1);
    const fr_sim_desc sim = {
        .schedule = d.schedule, .timing = timing, .n_batches = STEPS, .overlaps = true};
    assert_ok(d.ctx, fr_simulate(d.ctx, &sim, &out));
    double expected = (out.done[STEPS - 1] - out.done[0]) / (STEPS - 1) * 1e3;
    fr_sim_free(&out);
    d.desc.timing = &timing;
    d.desc.scale = 1;
    d.desc.exact_sum = false;
    train(&d);
    assert_int_equal(d.engine->execs[2]->reduction.n_buckets, 4);
    assert_near(beat(&d), expected);
    finish(&d);
    fr_cluster_free(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_one_worker),
        cmocka_unit_test(buckets_travel_beside),
        cmocka_unit_test(messages_pass_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
