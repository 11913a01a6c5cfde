/* test_replicas.c -- replicas of stages: with exact_sum the bits of one worker for powers of two,
 * equal to rounding otherwise; for any schedule, cut and number of replicas per stage. */
#include "engine/engine.h"
#include "engine/rig.h"
#include "exec/stage.h"

enum { N_STEPS = 5, MOST = 4 };

typedef struct layout {
    const char *generator;
    int n_stages, replicas[MOST], chunks;
} layout;

static const layout layouts[] = {
    {"sequential", 1, {2}, 0},     {"sequential", 1, {4}, 0},    {"gpipe", 1, {2}, 0},
    {"gpipe", 2, {2, 2}, 0},       {"1f1b", 2, {2, 2}, 0},       {"1f1b", 2, {2, 1}, 0},
    {"1f1b", 2, {1, 2}, 0},        {"1f1b", 2, {4, 2}, 0},       {"gpipe", 2, {4, 1}, 0},
    {"zb-h1", 2, {2, 2}, 0},       {"sequential", 2, {2, 1}, 0}, {"1f1b", 3, {1, 2, 1}, 0},
    {"interleaved", 2, {4, 4}, 2}, {"1f1b", 3, {2, 2, 2}, 0},    {"zbv", 4, {2, 2, 2, 2}, 2},
};

static void train(int which, const layout *l, bool exact_sum, bool norm, const char *fault,
                  char sha[65], double *losses)
{
    rig p;
    rig_options o = {.generator = l ? l->generator : NULL,
                     .n_stages = l ? l->n_stages : 1,
                     .replicas = l ? l->replicas : NULL,
                     .chunks = l ? l->chunks : 0,
                     .n_micro = 4,
                     .want_norm = norm,
                     .exact_sum = exact_sum,
                     .fault = fault};
    fr_status status = rig_open(&p, which, &o);
    if (status != FR_OK) fail_msg("%s", rig_about(&p, &o));
    int64_t n_done;
    if (rig_train(&p, 0, N_STEPS, &n_done) != FR_OK || n_done != N_STEPS)
        fail_msg("%s", rig_about(&p, &o));
    for (int i = 0; i < N_STEPS; i++) {
        losses[i] = p.tally[i].loss;
        if (norm) losses[N_STEPS + i] = p.norm[i];
    }
    rig_sha_of(&p, false, sha);
    rig_close(&p);
}

static void exact_sums_have_the_bits_of_one_worker(void **state)
{
    (void)state;
    for (int which = 0; which < N_NETS; which++)
        for (int norm = 0; norm < 2; norm++) {
            char one[65], many[65];
            double a[2 * N_STEPS], b[2 * N_STEPS];
            train(which, NULL, true, norm, NULL, one, a);
            for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
                const layout *l = &layouts[i];
                train(which, l, true, norm, i % 3 ? NULL : "jitter:ms=1,seed=3", many, b);
                if (strcmp(one, many) != 0)
                    fail_msg("net %s, layout %zu (%s, %d stages): weights differ", nets[which].name,
                             i, l->generator, l->n_stages);
                for (int k = 0; k < N_STEPS * (1 + norm); k++)
                    if (a[k] != b[k])
                        fail_msg("net %s, layout %zu: number %d is %.17g, of one worker %.17g",
                                 nets[which].name, i, k, b[k], a[k]);
            }
        }
}

/* The blocks of all replicas of each stage, byte for byte. */
static void expect_equal_replicas(const rig *p, const char *about)
{
    const fr_engine *e = p->engine;
    for (int k = 0; k < e->n_stages; k++) {
        const fr__part *a = fr__part_at(e, k, 0);
        for (int q = 1; q < a->n_replicas; q++) {
            const fr__part *b = fr__part_at(e, k, q);
            fr_device *left = a->exec->dev, *right = b->exec->dev;
            if (!device_same(left, fr_store_newest(a->exec->store), right,
                             fr_store_newest(b->exec->store), a->exec->n_weights))
                fail_msg("%s, stage %d: the weights of replica %d differ", about, k, q);
            if (!device_same(left, a->exec->buffers, right, b->exec->buffers, a->exec->n_buffers))
                fail_msg("%s, stage %d: the statistics of replica %d differ", about, k, q);
            for (int i = 0; i < p->desc.optimizer->n_state; i++)
                if (!device_same(left, a->exec->state[i], right, b->exec->state[i],
                                 a->exec->n_weights))
                    fail_msg("%s, stage %d: the state of replica %d differs", about, k, q);
        }
    }
}

static void asynchronous_replicas_stay_equal(void **state)
{
    static const int replicas[][3] = {{2, 2, 2}, {2, 1, 1}, {1, 2, 1}, {4, 2, 1}};
    static const char *const policies[] = {"live",      "stash",    "double-buffer", "spectrain",
                                           "pipeoptim", "pipemare", "spectrain-v2",  "xpipe"};
    (void)state;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        for (size_t k = 0; k < sizeof replicas / sizeof *replicas; k++)
            for (int adam = 0; adam < 2; adam++) {
                rig p;
                char first[65], again[65];
                rig_options o = {.generator = "1f1b-async",
                                 .policy = policies[i],
                                 .optimizer = adam ? "adam" : NULL,
                                 .lr = 0.01,
                                 .n_stages = 3,
                                 .n_micro = 8,
                                 .n_batches = 6,
                                 .replicas = replicas[k]};
                for (int run = 0; run < 2; run++) {
                    o.fault = run ? "jitter:ms=1,seed=5" : NULL;
                    if (rig_open(&p, i % 2 ? CNN : CHAIN, &o) != FR_OK)
                        fail_msg("%s", rig_about(&p, &o));
                    rig_steps(&p, 0, 9);
                    expect_equal_replicas(&p, rig_about(&p, &o));
                    rig_sha(&p, run ? again : first);
                    rig_close(&p);
                }
                assert_string_equal(first, again);
            }
}

static bool stop_after_three(rig *p, const fr_batch_report *r)
{
    (void)p;
    return r->step < 2;
}

/* A NaN loss on any worker, or a stop: every replica of every stage ends with the same updates. */
static void early_ends_are_the_same_everywhere(void **state)
{
    static const struct {
        const char *generator, *policy;
        int n_stages, replicas[3];
    } cases[] = {{"sequential", "live", 1, {4}},        {"1f1b", "live", 2, {2, 2}},
                 {"1f1b", "live", 2, {4, 1}},           {"1f1b-async", "spectrain", 2, {2, 2}},
                 {"1f1b-async", "stash", 3, {1, 2, 1}}, {"zb-h1", "live", 2, {2, 2}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_options o = {.generator = cases[i].generator,
                         .policy = cases[i].policy,
                         .n_stages = cases[i].n_stages,
                         .replicas = cases[i].replicas,
                         .n_micro = 4,
                         .n_batches = strcmp(cases[i].generator, "1f1b-async") == 0 ? 8 : 1};
        int n_workers = 0;
        for (int k = 0; k < o.n_stages; k++) n_workers += o.replicas[k];
        for (int worker = 0; worker <= n_workers; worker++) {
            rig p;
            char fault[64], wanted[65], got[65];
            int64_t n_done;
            snprintf(fault, sizeof fault, "nan:worker=%d,step=3", worker);
            o.fault = worker < n_workers ? fault : NULL;
            if (rig_open(&p, CNN, &o) != FR_OK) fail_msg("%s", rig_about(&p, &o));
            if (worker == n_workers) p.on_report = stop_after_three;
            fr_status status = rig_train(&p, 0, 12, &n_done);
            if (status != (o.fault ? FR_DIVERGED : FR_OK) || (o.fault && n_done != 3))
                fail_msg("worker %d, status %d, %d done: %s", worker, (int)status, (int)n_done,
                         rig_about(&p, &o));
            expect_equal_replicas(&p, rig_about(&p, &o));
            rig_sha(&p, got);
            rig_close(&p);
            o.fault = NULL;
            assert_ok(p.b.ctx, rig_open(&p, CNN, &o));
            rig_steps(&p, 0, n_done);
            rig_sha(&p, wanted);
            rig_close(&p);
            if (strcmp(wanted, got) != 0)
                fail_msg("case %zu, worker %d: not the weights after %d updates", i, worker,
                         (int)n_done);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_sums_have_the_bits_of_one_worker),
        cmocka_unit_test(asynchronous_replicas_stay_equal),
        cmocka_unit_test(early_ends_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
