/* test_settings.c -- what a config says, and what is wrong with it. */
#include "config/settings.h"
#include "support/run_fixture.h"

static fr_status read_settings(fixture *f, const char *yaml, fr__settings *s, fr_conf **conf)
{
    *conf = NULL;
    FR_TRY(fr_conf_parse(f->ctx, yaml, strlen(yaml), "net.yaml", conf));
    FR_TRY(fr__settings_read(*conf, "some/where/net.yaml", NULL, s));
    return fr_conf_finish(*conf);
}

static void test_defaults(void **state)
{
    fixture *f = *state;
    fr__settings s;
    fr_conf *conf;
    assert_done(f, read_settings(f, "{}", &s, &conf));
    assert_int_equal(s.batch, 128);
    assert_int_equal(s.micro, 1);
    assert_int_equal(s.epochs, 1);
    assert_int_equal(s.keep, 3);
    assert_string_equal(s.out, "runs/net");
    assert_string_equal(s.optimizer->name, "sgd");
    assert_string_equal(s.method->name, "single");
    assert_string_equal(s.policy->name, "live");
    assert_null(s.schedule_file);
    assert_true(s.stages == 1 && s.chunks == 1 && s.n_replicas == 1 && s.n_cuts == 0);
    assert_true(s.pin && s.segment == 256 && s.n_events == 2500 && s.n_samples == 1024);
    assert_true(s.stall_s == 30 && s.fault.kind == FR_FAULT_NONE);
    assert_ptr_equal(s.backend, fr_backend_list()[0]);
    assert_int_equal(fr__settings_n_steps(&s, 1000), 7); /* 1000 / 128 */
    assert_int_equal(s.lr.total, 7);
    assert_int_equal(fr__settings_n_steps(&s, 1), 1);
    fr_conf_free(conf);
}

static void test_values(void **state)
{
    fixture *f = *state;
    fr__settings s;
    fr_conf *conf;
    assert_done(f, read_settings(f,
                                 "train: {batch: 32, micro: 4, epochs: 9, steps: 50, seed: 7, "
                                 "clip_norm: 1.5, optimizer: {name: adamw, lr: 0.5, beta1: 0.8, "
                                 "weight_decay: 0.25}, schedule: {name: cosine, warmup: 5, "
                                 "min_ratio: 0.1}}\n"
                                 "parallel: {threads: 2, backend: ref}\n"
                                 "run: {out: x/y, checkpoint_every: 3, eval_every: -1, keep: 1, "
                                 "grad_norm: true}\n",
                                 &s, &conf));
    assert_int_equal(fr__settings_n_steps(&s, 1000), 50); /* steps win */
    assert_int_equal(s.seed, 7);
    assert_true(s.clip_norm == 1.5 && s.optim.lr == 0.5 && s.optim.beta1 == 0.8);
    assert_true(s.optim.beta2 == 0.999 && s.optim.weight_decay == 0.25);
    assert_int_equal(s.lr.warmup, 5);
    assert_true(s.lr.min_ratio == 0.1);
    assert_string_equal(fr_backend_name(s.backend), "ref");
    assert_string_equal(s.out, "x/y");
    assert_true(s.grad_norm && s.keep == 1 && s.eval_every == -1 && s.checkpoint_every == 3);
    fr_conf_free(conf);
}

static void test_pipeline_values(void **state)
{
    fixture *f = *state;
    fr__settings s;
    fr_conf *conf;
    assert_done(f, read_settings(f,
                                 "parallel: {method: xpipe, cuts: [a, b, c], segment: 7, pin: "
                                 "false, xpipe: {exact: true}, pipemare: {warmup: 9}}\n"
                                 "run: {stall_timeout: 2.5, trace: 0, prediction_samples: 5, "
                                 "fault: \"hang:worker=1,step=3\"}\n",
                                 &s, &conf));
    assert_string_equal(s.policy->name, "xpipe");
    assert_int_equal(s.stages, 4); /* as the cuts have it */
    assert_string_equal(s.cuts[2], "c");
    assert_true(s.exact && s.lr_warmup == 9 && s.segment == 7 && !s.pin);
    assert_true(s.stall_s == 2.5 && s.n_events == 0 && s.n_samples == 5);
    assert_true(s.fault.kind == FR_FAULT_HANG && s.fault.worker == 1 && s.fault.step == 3);
    fr_conf_free(conf);
    assert_done(f, read_settings(f, "parallel: {method: interleaved, stages: 4}", &s, &conf));
    assert_int_equal(s.chunks, 2);
    fr_conf_free(conf);
    assert_done(
        f, read_settings(f, "parallel: {method: paci, weights: stash, cuts: only}", &s, &conf));
    assert_string_equal(s.policy->name, "stash");
    assert_int_equal(s.stages, 2);
    fr_conf_free(conf);
}

static void test_replicas(void **state)
{
    fixture *f = *state;
    fr__settings s;
    fr_conf *conf;
    assert_done(f, read_settings(f, "parallel: {method: dp, replicas: 4}", &s, &conf));
    assert_int_equal(s.stages, 1);
    assert_int_equal(fr__settings_replicas(&s, 0), 4);
    assert_true(s.micro == 4 && s.is_micro_chosen); /* the smallest number that divides evenly */
    assert_string_equal(s.sync.name, "allreduce");
    assert_true(s.workers_per_rank == 1 && !s.transport && !s.exact_sum);
    fr_conf_free(conf);
    assert_done(f, read_settings(f,
                                 "parallel: {method: 1f1b, replicas: [4, 6], workers_per_rank: 5, "
                                 "transport: threads, sync: {name: wsp, distance: 2}}\n"
                                 "train: {batch: 48, exact_sum: true}",
                                 &s, &conf));
    assert_int_equal(s.stages, 2); /* as the list has it */
    assert_true(fr__settings_replicas(&s, 0) == 4 && fr__settings_replicas(&s, 1) == 6);
    assert_true(s.micro == 12 && s.exact_sum && s.workers_per_rank == 5);
    assert_ptr_equal(s.transport, fr_transport_find("threads"));
    assert_true(s.sync.every == 0 && s.sync.distance == 2); /* a wave: derived from the pipeline */
    assert_done(f, fr_conf_save(conf, f->config));
    fr_conf_free(conf);
    char *text = read_text(f->config, NULL);
    assert_non_null(strstr(text, "micro: 12")); /* chosen, and said */
    free(text);
    assert_done(f, fr_conf_load(f->ctx, f->config, 0, NULL, &conf)); /* and read back */
    assert_done(f, fr__settings_read(conf, f->config, NULL, &s));
    assert_true(s.stages == 2 && s.micro == 12 && !s.is_micro_chosen && s.sync.every == 0);
    fr_conf_free(conf);
    assert_done(f, read_settings(f, "parallel: {method: model-averaging}", &s, &conf));
    assert_true(strcmp(s.sync.name, "average") == 0 && s.sync.every == 1);
    fr_conf_free(conf);
    assert_done(
        f, read_settings(f, "parallel: {method: model-averaging, sync: {every: 7}}", &s, &conf));
    assert_true(strcmp(s.sync.name, "average") == 0 && s.sync.every == 7);
    fr_conf_free(conf);
}

/* Defaults that depend on the method are not saved, so a saved config can be run with another
 * method. */
static void test_saved_config_takes_another_method(void **state)
{
    fixture *f = *state;
    fr__settings s;
    fr_conf *conf;
    assert_done(f, read_settings(f, "parallel: {method: interleaved, stages: 4}", &s, &conf));
    assert_done(f, fr_conf_save(conf, f->config));
    fr_conf_free(conf);
    const char *other = "parallel.method=spectrain";
    assert_done(f, fr_conf_load(f->ctx, f->config, 1, &other, &conf));
    assert_done(f, fr__settings_read(conf, f->config, NULL, &s));
    assert_done(f, fr_conf_finish(conf));
    assert_true(s.stages == 4 && s.chunks == 1 && strcmp(s.policy->name, "spectrain") == 0);
    fr_conf_free(conf);
}

/* Beside the config that names it, and by its absolute path in the config that a run saves. */
static void test_schedule_file_is_found(void **state)
{
    fixture *f = *state;
    fr__settings s;
    fr_conf *conf;
    char path[128], saved[128];
    snprintf(path, sizeof path, "%s/by-hand.csv", f->dir);
    snprintf(saved, sizeof saved, "%s/sub.yaml", f->dir);
    write_text(path, "0F0,0B0\n");
    write_text(f->config, "parallel: {schedule_file: by-hand.csv, stages: 3}\n");
    assert_done(f, fr_conf_load(f->ctx, f->config, 0, NULL, &conf));
    assert_done(f, fr__settings_read(conf, f->config, NULL, &s));
    assert_string_equal(s.schedule_file, path);
    assert_int_equal(s.stages, 3); /* the file decides, not the method */
    assert_done(f, fr_conf_save(conf, saved));
    fr_conf_free(conf);
    char *text = read_text(saved, NULL);
    assert_non_null(strstr(text, path));
    free(text);
}

static void test_out_option_wins(void **state)
{
    fixture *f = *state;
    fr__settings s;
    fr_conf *conf;
    const char *yaml = "run: {out: here}", *odd = "a: b/# \"c\" \xc3\xa4";
    assert_done(f, fr_conf_parse(f->ctx, yaml, strlen(yaml), "net.yaml", &conf));
    assert_done(f, fr__settings_read(conf, "net.yaml", odd, &s));
    assert_string_equal(s.out, odd);
    assert_done(f, fr_conf_finish(conf));
    fr_conf_free(conf);
}

static void test_errors(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *yaml, *words[3];
    } cases[] = {
        {"train: {batch: 30, micro: 4}", {"net.yaml:1", "batch 30", "multiple of train.micro"}},
        {"train: {batch: 0}", {"train.batch", "from 1", "\"0\""}},
        {"train: {batch: many}", {"train.batch", "integer", "many"}},
        {"train: {epochs: 0}", {"epochs", "steps", "both 0"}},
        {"train: {optimizer: {name: sdg}}", {"sdg", "sgd", "adamw"}},
        {"train: {optimizer: {name: adam, momentum: 0.9}}", {"momentum", "unknown", "net.yaml:1"}},
        {"train: {optimizer: {name: sgd, momentum: 1.5}}", {"momentum", "1.5", "net.yaml:1"}},
        {"train: {optimizer: {name: sgd, nesterov: true}}", {"nesterov", "momentum", "sgd"}},
        {"train: {optimizer: {lr: -1}}", {"lr", "-1", "net.yaml:1"}},
        {"train: {optimizer: {name: muon, momentum: 1}}", {"muon", "momentum", "[0, 1)"}},
        {"train: {optimizer: {name: muon, adamw_factor: -1}}", {"adamw_factor", "-1", "from 0"}},
        {"train: {optimizer: {name: muon, match_rms_adamw: 3}}", {"match_rms_adamw", "3", "true"}},
        {"train: {optimizer: {name: muon, dampening: 0}}", {"dampening", "unknown", "net.yaml:1"}},
        {"train: {optimizer: {name: adamw, adamw_factor: 1}}", {"adamw_factor", "unknown"}},
        {"train: {schedule: {name: cosinus}}", {"cosinus", "cosine", "constant"}},
        {"train: {schedule: {name: constant, gamma: 1}}", {"gamma", "unknown", "net.yaml:1"}},
        {"train: {schedule: {name: step, gamma: 0}}", {"gamma", "(0, 1]", "net.yaml:1"}},
        {"train: {schedule: {name: polynomial, power: 0}}", {"power", "above 0", "net.yaml:1"}},
        {"train: {sede: 1}", {"sede", "seed", "unknown"}},
        {"parallel: {method: spectrian}", {"spectrian", "this build", "spectrain"}},
        {"parallel: {stages: 4}", {"net.yaml:1", "at most 1", "forerun methods"}},
        {"parallel: {stages: 0}", {"parallel.stages", "from 1", "\"0\""}},
        {"parallel: {replicas: 0}", {"parallel.replicas", "from 1", "\"0\""}},
        {"parallel: {method: 1f1b, replicas: []}", {"net.yaml:1", "empty", "each stage"}},
        {"parallel: {method: 1f1b, replicas: [2, 0]}", {"net.yaml:1", "0 replicas", "stage 1"}},
        {"parallel: {method: 1f1b, replicas: [2, 1], stages: 3}",
         {"2 numbers", "3 stages", "one number for all"}},
        {"parallel: {method: 1f1b, replicas: [2, 1], cuts: [a, b]}",
         {"2 numbers", "3 stages", "net.yaml:1"}},
        {"parallel: {method: 1f1b, replicas: [2, 3]}\ntrain: {micro: 4}",
         {"net.yaml:2", "4 micro-batches", "multiple of 6"}},
        {"parallel: {method: dp, replicas: 3}", {"batch 128", "3 equal", "replicas need"}},
        {"parallel: {method: dp, stages: 2}", {"'dp'", "at most 1", "2"}},
        {"parallel: {sync: {name: gossip}}", {"gossip", "allreduce", "average, wsp"}},
        {"parallel: {sync: {name: allreduce, every: 2}}", {"every", "unknown", "net.yaml:1"}},
        {"parallel: {sync: {name: average, distance: 2}}", {"distance", "unknown", "net.yaml:1"}},
        {"parallel: {sync: {name: wsp, every: 0}}", {"every", "from 1", "\"0\""}},
        {"parallel: {sync: {nome: wsp}}", {"nome", "name", "unknown"}},
        {"parallel: {transport: pigeon}", {"pigeon", "this build", "auto, threads"}},
        {"parallel: {workers_per_rank: 0}", {"workers_per_rank", "from 1", "\"0\""}},
        {"parallel: {method: interleaved, stages: 3}", {"3 stages", "2 chunks", "multiple"}},
        {"parallel: {method: gpipe, stages: 4, cuts: [a, b]}", {"2 cuts", "3 stages", "is 4"}},
        {"parallel: {weights: stale}", {"stale", "stash", "spectrain"}},
        {"parallel: {schedule_file: gone.csv}", {"gone.csv", "schedule file", "net.yaml:1"}},
        {"parallel: {schedule_file: x, chunks: 2}", {"chunks", "leave", "net.yaml:1"}},
        {"parallel: {segment: 0}", {"segment", "from 1", "\"0\""}},
        {"parallel: {xpipe: {exakt: true}}", {"exakt", "exact", "unknown"}},
        {"run: {fault: 'boom:worker=1'}", {"boom", "hang", "net.yaml:1"}},
        {"run: {fault: 'hang:who=1'}", {"hang:who=1", "worker=", "net.yaml:1"}},
        {"run: {stall_timeout: 0}", {"stall_timeout", "from 0.01", "\"0\""}},
        {"parallel: {backend: cuda}", {"cuda", "ref", "no backend"}},
        {"run: {out: ''}", {"folder", "no name", "net.yaml:1"}},
        {"run: {keep: 0}", {"run.keep", "from 1", "\"0\""}},
        {"run: 7", {"run", "mapping", "7"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr__settings s;
        fr_conf *conf;
        assert_failed(f, read_settings(f, cases[i].yaml, &s, &conf), FR_INVALID, cases[i].words[0],
                      cases[i].words[1], cases[i].words[2]);
        fr_conf_free(conf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_values, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_pipeline_values, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_replicas, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_saved_config_takes_another_method, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_schedule_file_is_found, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_out_option_wins, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_errors, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
