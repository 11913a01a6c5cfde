/* test_efficiency.c -- epochs to a quality: crossings, trials that are not done twice, and the time
 * model against numbers worked out by hand. */
#include "support/run_fixture.h"

static const char net[] =
    "model: {name: mlp, inputs: 12, depth: 2, width: 16, classes: 4}\n"
    "data: {name: synthetic, n: 256, n_eval: 64}\n"
    "train: {batch: 8, epochs: 2, seed: 3, optimizer: {name: sgd, lr: 0.02},\n"
    "        schedule: {name: step, every: 16, gamma: 0.9, warmup: 8}}\n"
    "parallel: {backend: ref, threads: 1}\n";

static int setup(void **state)
{
    fixture_setup(state);
    fixture *f = *state;
    write_text(f->config, net);
    return 0;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * fabs(b))) fail_msg("%.17g is not %.17g", a, b);
}

static void crossings(void **state)
{
    (void)state;
    fr_eval_point p[] = {{0.5, 4, 0.1}, {1, 2, 0.5}, {1.5, 3, 0.4}, {2, 1, 0.9}};
    fr_trial t = {.n_points = 4, .points = p};
    fr_goal goal = {FR_GOAL_LOSS, 2.5};
    near(fr_trial_epochs(&t, &goal), 0.5 + 0.5 * 1.5 / 2); /* the first one counts */
    goal.value = 1.5;
    near(fr_trial_epochs(&t, &goal), 1.5 + 0.5 * 0.75);
    goal.value = 1;
    near(fr_trial_epochs(&t, &goal), 2);
    goal.value = 5; /* met by the first evaluation: then, at the latest */
    near(fr_trial_epochs(&t, &goal), 0.5);
    goal.value = 0.9;
    assert_true(isnan(fr_trial_epochs(&t, &goal)));
    goal = (fr_goal){FR_GOAL_ACCURACY, 0.6};
    near(fr_trial_epochs(&t, &goal), 1.5 + 0.5 * 0.2 / 0.5);
    p[2].accuracy = p[2].loss = NAN;
    near(fr_trial_epochs(&t, &goal), 2);
    assert_true(fr_goal_parse("loss=1.5", &goal) && goal.kind == FR_GOAL_LOSS);
    assert_true(fr_goal_parse("accuracy=0.25", &goal) && goal.value == 0.25);
    assert_false(fr_goal_parse("loss=", &goal));
    assert_false(fr_goal_parse("bleu=30", &goal));
    fr_lr_rule rule;
    assert_true(fr_lr_rule_parse("sqrt", &rule) && rule == FR_LR_RULE_SQRT);
    assert_false(fr_lr_rule_parse("cubic", &rule));
}

/* b = 10, T_1 = 2. E: 4 up to a batch of 40, 8 at 160, 32 at 640. */
static void time_model(void **state)
{
    (void)state;
    fr_efficiency_row rows[] = {{.batch = 10, .epochs = 4},
                                {.batch = 40, .epochs = 4},
                                {.batch = 160, .epochs = 8},
                                {.batch = 640, .epochs = 32}};
    fr_efficiency e = {.n_rows = 4, .rows = rows};
    near(fr_efficiency_epochs(&e, 5), 4);
    near(fr_efficiency_epochs(&e, 20), 4);
    near(fr_efficiency_epochs(&e, 80), 4 * sqrt(2));
    near(fr_efficiency_epochs(&e, 320), 16);
    assert_true(isnan(fr_efficiency_epochs(&e, 641)));
    fr_scaling_point points[] = {
        {1, 2, NAN}, {2, 2.5, 1.25}, {16, 4, 2}, {64, 4, 2.5}, {128, 5, 3}};
    fr_scaling s = {.ways = 2, .n_points = 5, .points = points};
    fr_time_row r[5];
    fr_time_verdict v;
    fr_time_to_accuracy(&e, &s, r, &v);
    assert_int_equal(v.crossover, 16);
    assert_true(v.dp_devices == 16 &&
                v.hybrid_devices == 64); /* the first of equals; 6.4 of 5.33 */
    near(v.dp_speedup, 4);
    near(v.hybrid_speedup, 6.4);
    near(r[0].dp_speedup, 1);
    assert_true(isnan(r[0].hybrid_speedup));
    near(r[1].dp_efficiency, 0.8);
    near(r[1].dp_speedup, 1.6);             /* SE 0.8, N 2, E the same */
    near(r[1].hybrid_speedup, 1.6);         /* one pipeline, 1.6 times as fast: no winner */
    near(r[2].dp_speedup, 4);               /* 0.5 * 16 / 2 */
    near(r[2].hybrid_speedup, 4 * sqrt(2)); /* 8 pipelines as fast as a device, E(80) */
    assert_int_equal(r[2].hybrid_batch, 80);
    near(r[3].dp_speedup, 4);            /* 0.5 * 64 / 8 */
    near(r[3].hybrid_speedup, 6.4);      /* 32 * 0.8 / 4 */
    assert_true(isnan(r[4].dp_speedup)); /* batch 1280 was not measured */
    near(r[4].hybrid_speedup, 64 * (2 / 3.) / 8);
    points[3].hybrid_s = 5; /* 3.2: data parallel is ahead again, and nothing known follows */
    fr_time_to_accuracy(&e, &s, r, &v);
    assert_int_equal(v.crossover, 0);
}

static void scaling_files(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "no lines"},
               {"devices,dp_s,hybrid_s\n", "no lines"},
               {"2,1,1\n", "first line must be that of one device"},
               {"1,,1\n", "one device are missing"},
               {"1,1\n2,x\n", ":2: expected devices, dp_s, hybrid_s"},
               {"1,1\n2,1,1,1\n", ":2: expected"},
               {"1,1\n2,-1\n", ":2: expected"},
               {"1,1\n1,1\n", ":2: expected a number of devices above 1"}};
    fr_scaling s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(f->out, bad[i].text);
        assert_failed(f, fr_scaling_read(f->ctx, f->out, 2, &s), FR_INVALID, bad[i].says);
    }
    write_text(f->out, "devices,dp_s,hybrid_s\r\n1, 0.5,\n\n4,0.75 , 0.5\n8,,0.25");
    assert_done(f, fr_scaling_read(f->ctx, f->out, 4, &s));
    assert_int_equal(s.n_points, 3);
    assert_true(s.points[0].dp_s == 0.5 && isnan(s.points[0].hybrid_s));
    assert_true(s.points[1].devices == 4 && s.points[1].dp_s == 0.75 && s.ways == 4);
    assert_true(isnan(s.points[2].dp_s) && s.points[2].hybrid_s == 0.25);
    fr_scaling_free(&s);
}

typedef struct watch {
    int n_steps, n_ended;
    int64_t stop_at; /* step */
    volatile int stop;
    fr_eval_point last;
    double lr; /* of the last step */
} watch;

static void tell(void *user, const fr_trial *t, const fr_progress *p)
{
    watch *w = user;
    w->n_steps += p != NULL;
    w->n_ended += p == NULL;
    if (p) w->lr = p->lr;
    if (p && w->stop_at && w->n_steps == w->stop_at) w->stop = 1;
    if (t->n_points > 0) w->last = t->points[t->n_points - 1];
}

static fr_status measure(fixture *f, watch *w, fr_efficiency_options o, const char *batches,
                         fr_efficiency *e)
{
    int64_t sizes[8];
    fr_run_options run = {
        .size = sizeof run, .config = f->config, .out = f->out, .dump_step = -1, .stop = &w->stop};
    for (o.n_batches = 0; *batches; batches += *batches == ',') {
        char *end;
        sizes[o.n_batches++] = strtoll(batches, &end, 10);
        batches = end;
    }
    o.run = &run, o.batches = sizes, o.tell = tell, o.user = w;
    fr_status status = fr_efficiency_measure(f->ctx, &o, e);
    return status;
}

static void trials_are_kept(void **state)
{
    fixture *f = *state;
    fr_efficiency e, again;
    watch w = {0}, w2 = {0}, w3 = {0};
    fr_efficiency_options o = {.max_epochs = 12, .n_seeds = 2};
    assert_done(f, measure(f, &w, o, "64,8,8", &e));
    assert_int_equal(e.n_rows, 2);
    assert_int_equal(e.goal.kind, FR_GOAL_LOSS);
    assert_true(e.rows[0].batch == 8 && e.rows[1].batch == 64);
    assert_true(e.rows[0].n_reached == 2 && e.rows[1].n_reached == 2);
    assert_true(e.rows[0].epochs > 0 && e.rows[0].least <= e.rows[0].epochs);
    assert_true(e.rows[0].ratio == 1 && e.rows[1].lr == 0.02 * 8);
    near(e.rows[1].ratio, e.rows[0].epochs / e.rows[1].epochs);
    /* the first trial made the goal: its best loss in two epochs and a hundredth */
    assert_true(w.n_ended == 5 && w.n_steps > 64);
    assert_done(f, measure(f, &w2, o, "8,64", &again));
    assert_int_equal(w2.n_steps, 0);
    assert_true(again.rows[1].epochs == e.rows[1].epochs && again.goal.value == e.goal.value);
    fr_efficiency_free(&again);
    /* one more batch, an easier goal: only what is new runs */
    o.goal = (fr_goal){FR_GOAL_LOSS, e.goal.value * 1.01};
    o.n_seeds = 1;
    assert_done(f, measure(f, &w3, o, "8,32,64", &again));
    assert_true(w3.n_steps > 0 && w3.n_steps <= 12 * 8);
    assert_true(again.n_rows == 3 && again.rows[2].epochs < e.rows[1].most);
    fr_efficiency_free(&again);
    fr_efficiency_free(&e);
    o.max_epochs = 13;
    assert_failed(f, measure(f, &w2, o, "8", &e), FR_INVALID, "--max-epochs", "another --out");
    o.max_epochs = 12, o.lr_rule = FR_LR_RULE_NONE;
    assert_failed(f, measure(f, &w2, o, "8", &e), FR_INVALID, "--scale-lr");
    o.lr_rule = FR_LR_RULE_LINEAR;
    write_text(f->config, "# changed\n");
    FILE *file = fopen(f->config, "a");
    fputs(net, file);
    fclose(file);
    assert_failed(f, measure(f, &w2, o, "8", &e), FR_INVALID, "another config");
}

/* A trial is a run of the config with that batch, micro-batches of the same size, and what counts
 * in updates scaled with it. */
static void a_trial_is_a_run(void **state)
{
    fixture *f = *state;
    fr_efficiency e;
    watch w = {0};
    fr_run_result r;
    fr_efficiency_options o = {
        .max_epochs = 3, .goal = {FR_GOAL_LOSS, 1e-9}, .lr_rule = FR_LR_RULE_SQRT};
    assert_done(f, measure(f, &w, o, "32", &e));
    assert_true(e.rows[0].n_reached == 0 && isnan(e.rows[0].epochs));
    assert_int_equal(w.n_steps, 3 * 8);
    fr_efficiency_free(&e);
    static const char *const sets[] = {"train.batch=32",         "train.micro=4",
                                       "train.epochs=3",         "train.optimizer.lr=0.04",
                                       "train.schedule.every=4", "train.schedule.warmup=2"};
    char out[160];
    snprintf(out, sizeof out, "%s/plain", f->dir);
    fr_run_options plain = {
        .size = sizeof plain, .config = f->config, .n_sets = 6, .sets = sets, .out = out};
    assert_done(f, fr_train(f->ctx, &plain, &r));
    assert_true(r.eval_loss == w.last.loss && r.eval_accuracy == w.last.accuracy);
    assert_true(w.last.epochs == 3);
}

static void stopped_and_refused(void **state)
{
    fixture *f = *state;
    fr_efficiency e;
    watch w = {.stop_at = 40}, w2 = {0};
    fr_efficiency_options o = {.max_epochs = 1, .goal = {FR_GOAL_ACCURACY, 1.5}};
    assert_failed(f, measure(f, &w, o, "8,16", &e), FR_INTERRUPTED, "1 finished",
                  "efficiency.json");
    assert_done(f, measure(f, &w2, o, "8,16", &e));
    assert_int_equal(w2.n_steps, 16); /* of the second batch, from its start */
    fr_efficiency_free(&e);
    assert_failed(f, measure(f, &w2, o, "8,12", &e), FR_INVALID, "batch 12 is not a multiple of 8");
    assert_failed(f, measure(f, &w2, o, "8,512", &e), FR_INVALID, "512", "256 training samples");
    assert_failed(f, measure(f, &w2, o, "", &e), FR_INVALID, "0 batch sizes");
    write_text(f->config, "model: {name: mlp, inputs: 4}\n"
                          "data: {name: synthetic, n_eval: 0}\n");
    assert_failed(f, measure(f, &w2, o, "128", &e), FR_INVALID, "no evaluation part");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crossings), cmocka_unit_test(time_model), T(scaling_files),
        T(trials_are_kept),          T(a_trial_is_a_run),          T(stopped_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
