/* test_parallel_checks.c -- replicas and processes: what goes together, and what is said of the
 * rest. */
#include "config/parallel_checks.h"
#include "config/setup.h"
#include "support/run_fixture.h"

static const char net[] = "model: {name: mlp, inputs: 12, depth: 4, width: 16, classes: 4}\n"
                          "data: {name: synthetic, n: 100, n_eval: 50}\n"
                          "train: {batch: 48, micro: 12, steps: 4}\n"
                          "parallel: {backend: ref, threads: 1}\n";

/* The schedule of a config; closed by fr__setup_close, also after a failure. */
static fr_status open_with(fixture *f, const char *parallel, const char *set, fr__setup *s)
{
    const char *sets[] = {parallel, set};
    fr_run_options o = {.size = sizeof o, .config = f->config, .n_sets = set ? 2 : 1, .sets = sets};
    memset(s, 0, sizeof *s);
    write_text(f->config, net);
    FR_TRY(fr__setup_open(f->ctx, &o, s));
    return fr__setup_pipeline(s);
}

static void test_layouts(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *parallel, *text;
        int n_workers, replicas[3];
    } cases[] = {
        {"parallel={method: dp, replicas: 4}", "1 stage x 4 replicas", 4, {4}},
        {"parallel={method: 1f1b, stages: 3}", "3 stages", 3, {1, 1, 1}},
        {"parallel={method: zb-h1, stages: 2, replicas: 3}", "2 stages x 3 replicas", 6, {3, 3}},
        {"parallel={method: gpipe, replicas: [3, 1, 2]}",
         "3 stages with 3, 1, 2 replicas",
         6,
         {3, 1, 2}},
        {"parallel={method: interleaved, stages: 4, replicas: 2}",
         "4 stages x 2 replicas",
         4,
         {2, 2, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr__setup s;
        char text[128];
        assert_done(f, open_with(f, cases[i].parallel, NULL, &s));
        const fr_schedule *plan = s.pipeline.schedule;
        assert_string_equal(fr__parallel_text(plan, text, sizeof text), cases[i].text);
        assert_int_equal(plan->n_workers, cases[i].n_workers);
        for (int k = 0; k < plan->n_stages && k < 3; k++)
            assert_int_equal(plan->replicas[k], cases[i].replicas[k]);
        fr__setup_close(&s);
    }
}

static void test_refused(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *parallel, *set, *words[3];
    } cases[] = {
        {"parallel={method: interleaved, stages: 4, replicas: [2, 1, 2, 1]}",
         NULL,
         {"stage 0 has 2", "interleaved", "1f1b"}},
        {"parallel={method: zb-h1, stages: 2, lead: 2}", NULL, {"lead", "zb-h1", "1f1b"}},
        {"parallel={method: zbv, stages: 2, reorder: true}", NULL, {"reorder", "zbv", "v-half"}},
        {"parallel={method: zb-h1, replicas: [2, 1]}", NULL, {"--set", "replicas", "zb-h1"}},
        {"parallel={method: 1f1b, replicas: [2, 1], sync: {name: average}}",
         NULL,
         {"average", "whole pipeline", "allreduce"}},
        {"parallel={method: 1f1b, stages: 2, replicas: 2, sync: {name: wsp}}",
         "train.clip_norm=1",
         {"clip_norm", "wsp", "allreduce"}},
        {"parallel={method: 1f1b, stages: 2, replicas: 2, sync: {name: average}}",
         "model={name: gpt, layers: 2, width: 16, heads: 2, context: 8, vocab: 11, tied: true}",
         {"tied", "average", "allreduce"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr__setup s;
        assert_failed(f, open_with(f, cases[i].parallel, cases[i].set, &s), FR_INVALID,
                      cases[i].words[0], cases[i].words[1], cases[i].words[2]);
        fr__setup_close(&s);
    }
}

/* A single stage computes its norm alone. */
static void test_alone_with_one_stage(void **state)
{
    fixture *f = *state;
    fr__setup s;
    assert_done(f, open_with(f, "parallel={method: model-averaging, replicas: 2}",
                             "train.clip_norm=1", &s));
    assert_true(s.pipeline.sync.every == 1);
    fr__setup_close(&s);
}

/* A wave has as many updates as a pipeline has mini-batches in flight. */
static void test_waves(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *parallel, *set;
        int every;
    } cases[] = {
        {"parallel={method: spectrain, stages: 4, sync: {name: wsp}}", "train.micro=1", 4},
        {"parallel={method: spectrain, stages: 4, sync: {name: wsp}}", "train.micro=2", 2},
        {"parallel={method: spectrain, stages: 4, sync: {name: wsp}}", "train.micro=4", 1},
        {"parallel={method: spectrain, stages: 4, replicas: 2, sync: {name: wsp}}", "train.micro=4",
         2},
        {"parallel={method: 1f1b, stages: 4, sync: {name: wsp}}", "train.micro=1", 1},
        {"parallel={method: spectrain, stages: 4, sync: {name: wsp, every: 7}}", "train.micro=1",
         7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr__setup s;
        assert_done(f, open_with(f, cases[i].parallel, cases[i].set, &s));
        if (s.pipeline.sync.every != cases[i].every)
            fail_msg("%s, %s: waves of %d", cases[i].parallel, cases[i].set, s.pipeline.sync.every);
        fr__setup_close(&s);
    }
}

static void test_processes(void **state)
{
    fixture *f = *state;
    fr__setup s;
    fr_conf *c;
    assert_done(f, open_with(f, "parallel={method: 1f1b, stages: 2, replicas: 2}", NULL, &s));
    assert_done(f, fr_conf_section(s.conf, "parallel", &c));
    assert_done(f, fr__parallel_check_ranks(c, &s.settings, &s.pipeline, 1));
    assert_done(f, fr__parallel_check_ranks(c, &s.settings, &s.pipeline, 4));
    assert_failed(f, fr__parallel_check_ranks(c, &s.settings, &s.pipeline, 2), FR_INVALID,
                  "4 workers (2 stages x 2 replicas), 2 processes were started with 1 worker each: "
                  "mpirun -n 4, or parallel.workers_per_rank: 2",
                  "--set parallel");
    assert_failed(f, fr__parallel_check_ranks(c, &s.settings, &s.pipeline, 3), FR_INVALID,
                  "3 processes", "each: mpirun -n 4");
    s.settings.workers_per_rank = 2;
    assert_done(f, fr__parallel_check_ranks(c, &s.settings, &s.pipeline, 2));
    assert_failed(f, fr__parallel_check_ranks(c, &s.settings, &s.pipeline, 4), FR_INVALID,
                  "2 workers each: mpirun -n 2, or parallel.workers_per_rank: 1");
    s.settings.transport = fr_transport_find("threads");
    assert_failed(f, fr__parallel_check_ranks(c, &s.settings, &s.pipeline, 2), FR_INVALID,
                  "threads", "one process", "2 were started");
    assert_done(f, fr__parallel_check_ranks(c, &s.settings, &s.pipeline, 1));
    fr__setup_close(&s);
}

static void test_warnings(void **state)
{
    fixture *f = *state;
    fr__setup s;
    assert_done(f, open_with(f, "parallel={method: dp}", NULL, &s));
    fr__setup_close(&s);
    assert_non_null(strstr(f->log, "method dp is for several replicas"));
    f->log[0] = '\0';
    assert_done(f, open_with(f, "parallel={method: dp, replicas: 3}", "train.exact_sum=true", &s));
    fr__setup_close(&s);
    assert_non_null(strstr(f->log, "not a power of two"));
    f->log[0] = '\0';
    assert_done(f, open_with(f, "parallel={method: dp, replicas: 4}", "train.exact_sum=true", &s));
    fr__setup_close(&s);
    assert_string_equal(f->log, "");
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

/* forerun looks as far ahead as all stages allow if a batch norm follows every layer (the last
 * excepted) or the optimizer bounds its steps. */
static void test_robust(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *set;
        bool is_robust, is_scale_free;
    } cases[] = {{"model={name: resnet50, image: 32, width_factor: 0.0625}", true, true},
                 {"model={name: alexnet, image: 64, width_factor: 0.0625}", false, false},
                 {"model.width=8", false, false},
                 {"train.optimizer={name: adamw}", true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr__setup s;
        fr_want want;
        assert_done(f, open_with(f, "parallel={method: forerun, stages: 4}", cases[i].set, &s));
        const fr_policy_context *last = &s.pipeline.plan->context[3];
        assert_int_equal(last->is_robust, cases[i].is_robust);
        assert_int_equal(last->is_scale_free, cases[i].is_scale_free);
        s.settings.policy->forward(last, 0, &want);
        assert_int_equal(want.ahead, cases[i].is_robust ? 2 : 1);
        fr__setup_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_layouts), RUN(test_refused),   RUN(test_alone_with_one_stage),
        RUN(test_waves),   RUN(test_processes), RUN(test_warnings),
        RUN(test_robust),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
