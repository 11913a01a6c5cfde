/* test_refuse.c -- refusals with a text: wrong use, wrong settings, gradients that are not finite,
 * no memory. */
#include "engine/rig.h"
#include "sched/read.h"

static void open_rig(rig *r, int which, const rig_options *o)
{
    if (rig_open(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
}

/* A finite loss with a gradient that is not: all stages detect it when the norm is computed. */
static void infinite_gradient_is_seen(void **unused)
{
    (void)unused;
    static float before[MAX_PARAM], after[MAX_PARAM];
    FOR_EACH_BACKEND(backend)
    for (int n = 1; n <= 3; n++) {
        rig r;
        rig_options o = {.optimizer = "sgd",
                         .clip_norm = 1,
                         .generator = "1f1b",
                         .n_stages = n,
                         .backend = fr_backend_name(*backend)};
        int64_t n_done = 9;
        open_rig(&r, MASKED, &o);
        int embed = fr_graph_find_param(r.b.graph, "embed.weight");
        int head = fr_graph_find_param(r.b.graph, "logits.weight");
        memset(before, 0, sizeof before);
        assert_ok(r.b.ctx, fr_engine_set_param(r.engine, embed, before));
        /* Activations of zero, weights near the largest float: logits 0, but the gradient of a
         * sample of class 0 is 2 * 6/7 of 3e38. */
        for (size_t i = 0; i < count_of(&r.b, head); i++) before[i] = i < 8 ? 3e38f : -3e38f;
        assert_ok(r.b.ctx, fr_engine_set_param(r.engine, head, before));
        for (int i = 0; i < N_DATA; i++) r.b.data[i].target[0] = 0, r.b.data[i].n_targets = 1;
        assert_fails(r.b.ctx, rig_train(&r, 0, 3, &n_done), FR_DIVERGED,
                     "mini-batch 0: the gradient norm is");
        assert_int_equal(n_done, 0);
        assert_ok(r.b.ctx, fr_engine_get_param(r.engine, head, after));
        assert_memory_equal(before, after, 4 * count_of(&r.b, head));
        /* and the run can continue from there */
        memset(before, 0, sizeof before);
        assert_ok(r.b.ctx, fr_engine_set_param(r.engine, head, before));
        for (int i = 0; i < N_DATA; i++) fill_minibatch(r.b.net, i, &r.b.data[i]);
        rig_steps(&r, 0, 3);
        rig_close(&r);
    }
}

static void wrong_use(void **unused)
{
    (void)unused;
    static float plain[MAX_PARAM];
    rig r;
    int64_t n_done;
    fr_tally tally;
    open_rig(&r, CNN, &(rig_options){.optimizer = "adam", .generator = "1f1b", .n_stages = 2});
    fr_ctx *ctx = r.b.ctx;
    int mean = fr_graph_find_param(r.b.graph, "norm.running_mean");
    assert_fails(ctx, fr_engine_get_param(r.engine, -1, plain), FR_INVALID, "parameter -1");
    assert_fails(ctx, fr_engine_set_param(r.engine, 99, plain), FR_INVALID, "parameter 99");
    assert_fails(ctx, fr_engine_get_state(r.engine, 2, 0, plain), FR_INVALID, "adam has 2");
    assert_fails(ctx, fr_engine_set_state(r.engine, 0, mean, plain), FR_INVALID,
                 "norm.running_mean is not trained");
    assert_fails(ctx, fr_engine_get_grad(r.engine, 0, plain), FR_INVALID, "keep_grads");
    assert_fails(ctx, rig_eval(&r, 1, &tally, plain), FR_INVALID, "logits_node");
    rig_steps(&r, 0, 1); /* none of that did any harm */
    rig_close(&r);

    open_rig(&r, CNN, &(rig_options){.evaluates_only = true, .n_stages = 2});
    ctx = r.b.ctx;
    assert_fails(ctx, rig_train(&r, 0, 1, &n_done), FR_INVALID, "cannot train");
    assert_fails(ctx, fr_engine_get_state(r.engine, 0, 0, plain), FR_INVALID, "no optimizer state");
    rig_close(&r);
}

static void wrong_settings(void **unused)
{
    (void)unused;
    rig r;
    rig_options o = {.optimizer = "adam", .generator = "1f1b", .n_stages = 2};
    assert_int_equal(rig_prepare(&r, MLP, &o), FR_OK);
    fr_ctx *ctx = r.b.ctx;
    const fr_engine_desc good = r.desc;
    fr_engine_desc d = good;
    d.options.beta1 = 2;
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "beta1");
    assert_null(r.engine);
    d = good, d.micro_batch = 0;
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "0 samples");
    d = good, d.clip_norm = -1;
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "clip_norm");
    d = good, d.stages = &good.stages[1];
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "no cut of graph mlp");
    d = good, d.n_stages = 1;
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "no cut of graph mlp");
    d = good, d.n_stages = -1;
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "no cut of graph mlp");
    d = good, d.n_stages = 0;
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "2 stages");
    d = good, d.graph = NULL;
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "no graph");
    d = good, d.optimizer = NULL;
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "no optimizer");
    d = good, d.clip_norm = 1; /* made without a norm in mind */
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "no reductions");
    d = good, d.policy = fr_policy_find("double-buffer");
    assert_fails(ctx, fr_engine_create(ctx, &d, &r.engine), FR_INVALID, "double-buffer");
    rig_close(&r);
}

/* Ties without a flush: the step of the owner's stage waits for the gradient of the other one. */
static void ties_that_would_wait(void **unused)
{
    (void)unused;
    static const char head[] = "forerun-schedule 1\nname x\nmicro 1\nbatches 2\nflush no\n";
    static const struct {
        const char *lists, *text;
    } cases[] = {
        {"worker 0: 0F0 0B0 0F1 0B1\nworker 1: 1F0 1B0 1F1 1B1\n", NULL},
        {"worker 0: 0F0 0B0 0STEP0 0F1 0B1 0STEP1\nworker 1: 1F0 1B0 1F1 1STEP0 1B1 1STEP1\n",
         "logits.weight is tied to embed.weight, and x runs stage 1 further ahead than stage 0"},
        {"worker 0: 0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1\n", "worker 0 has stages 0 and 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        char file[512];
        fr_schedule *schedule = NULL;
        rig_options o = {.generator = "1f1b-async", .n_stages = 2, .n_batches = 2};
        assert_int_equal(rig_prepare(&r, TIED, &o), FR_OK);
        snprintf(file, sizeof file, "%s%s", head, cases[i].lists);
        assert_ok(r.b.ctx, fr__schedule_parse(r.b.ctx, "file", file, strlen(file), 1,
                                              &(fr_schedule_desc){.n_stages = 2}, &schedule));
        r.desc.schedule = schedule;
        fr_status status = fr_engine_create(r.b.ctx, &r.desc, &r.engine);
        if (cases[i].text)
            assert_fails(r.b.ctx, status, FR_UNSUPPORTED, cases[i].text);
        else
            assert_ok(r.b.ctx, status);
        rig_close(&r);
        fr_schedule_free(schedule);
    }
}

/* A schedule for a chain of stages, but a value skips one. */
static void missing_link(void **unused)
{
    (void)unused;
    rig r;
    const fr_schedule *chain = NULL;
    rig_options o = {.generator = "1f1b", .n_stages = 6};
    assert_int_equal(rig_prepare(&r, BRANCHES, &o), FR_OK);
    fr_schedule_desc d = {.n_stages = 6, .n_micro = 1};
    assert_ok(r.b.ctx, fr_schedule_create(r.b.ctx, fr_generator_find("1f1b"), &d, &chain));
    r.desc.schedule = chain;
    assert_fails(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine), FR_INVALID,
                 "has no such link");
    fr_schedule_free(chain);
    rig_close(&r);
}

static void missing_input(void **unused)
{
    (void)unused;
    net without = nets[MASKED];
    for (int n = 1; n <= 2; n++) {
        rig r;
        int64_t n_done;
        open_rig(&r, MASKED, &(rig_options){.generator = "1f1b", .n_stages = n});
        without.has_length = false;
        r.b.net = &without;
        fr_source source = rig_source(&r, 0);
        fr_status status = fr_engine_train(r.engine, 0, 2, &source, NULL, NULL, NULL, &n_done);
        assert_int_equal(status, n > 1 ? FR_PEER : FR_INVALID);
        assert_non_null(strstr(fr_ctx_error(r.b.ctx), "input n is not in the data"));
        rig_close(&r);
    }
}

static void no_loss(void **unused)
{
    (void)unused;
    bench b = {.ctx = fr_ctx_create()};
    rig r;
    fr_engine *e;
    assert_int_equal(fr_graph_create(b.ctx, "headless", &b.graph), FR_OK);
    linear(b.graph, "a", feed_node(b.graph, "x", FR_SHAPE(4), FR_F32), 3);
    assert_int_equal(fr_graph_finish(b.graph), FR_OK);
    assert_int_equal(rig_prepare(&r, MLP, &(rig_options){0}), FR_OK);
    fr_engine_desc d = r.desc;
    d.graph = b.graph;
    assert_fails(b.ctx, fr_engine_create(b.ctx, &d, &e), FR_INVALID, "does not end in a loss");
    rig_close(&r);
    bench_fini(&b);
}

static void faults_are_parsed(void **unused)
{
    (void)unused;
    fr_fault f;
    assert_null(fr__fault_parse("hang:worker=1,step=3", &f));
    assert_true(f.kind == FR_FAULT_HANG && f.worker == 1 && f.step == 3);
    assert_null(fr__fault_parse("jitter:ms=0.5,seed=7", &f));
    assert_true(f.kind == FR_FAULT_JITTER && f.ms > 0.49 && f.ms < 0.51 && f.seed == 7);
    assert_null(fr__fault_parse("none", &f));
    assert_true(f.kind == FR_FAULT_NONE);
    static const char *const wrong[] = {"",
                                        "hangs",
                                        "hang:worker",
                                        "hang:who=1",
                                        "hang:worker=-1",
                                        "slow:ms=x",
                                        "nan:step=1;worker=2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_non_null(fr__fault_parse(wrong[i], &f));
}

/* --- no memory ------------------------------------------------------------------------------ */

static fr_status create_once(fr_ctx *ctx, void *user)
{
    fr_engine *e = NULL;
    fr_status status = fr_engine_create(ctx, user, &e);
    assert_true((status == FR_OK) == (e != NULL));
    fr_engine_free(e);
    return status;
}

/* Every allocation that a new engine makes fails once. */
static void out_of_memory(void **unused)
{
    (void)unused;
    static const struct {
        int which;
        rig_options o;
    } cases[] = {
        {CNN, {.optimizer = "adam"}},
        {CNN, {.evaluates_only = true, .n_stages = 2}},
        {CNN, {.optimizer = "adam", .generator = "1f1b", .n_stages = 3, .clip_norm = 1}},
        {TIED, {.generator = "zb-h1", .n_stages = 3, .want_norm = true}},
        {TIED, {.generator = "1f1b-async", .n_stages = 3, .n_batches = 4}},
        {MLP,
         {.generator = "1f1b-async",
          .policy = "pipemare",
          .n_stages = 4,
          .n_batches = 4,
          .want_ledger = true,
          .n_events = 10,
          .n_samples = 4}},
        {MLP,
         {.generator = "1f1b-async",
          .policy = "spectrain",
          .n_stages = 3,
          .n_batches = 4,
          .n_samples = 4}},
    };
    FOR_EACH_BACKEND(backend)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        rig_options o = cases[i].o;
        o.backend = fr_backend_name(*backend);
        assert_int_equal(rig_prepare(&r, cases[i].which, &o), FR_OK);
        assert_true(support_walk_memory(create_once, &r.desc) > 10);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinite_gradient_is_seen),
        cmocka_unit_test(wrong_use),
        cmocka_unit_test(wrong_settings),
        cmocka_unit_test(ties_that_would_wait),
        cmocka_unit_test(missing_link),
        cmocka_unit_test(missing_input),
        cmocka_unit_test(no_loss),
        cmocka_unit_test(faults_are_parsed),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
