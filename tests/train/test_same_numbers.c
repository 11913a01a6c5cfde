/* test_same_numbers.c -- flush schedules give the weights of one worker, to the bit.
 *
 * Networks with everything that crosses a cut in its own way (skips, branches, running statistics,
 * dropout, recurrence, tied parameters), cut into 1, 2, 3, 4 and 8 stages, a mini-batch in 1, 2, 4
 * and 8 micro-batches, under every flush method and a schedule written by hand. What cannot be run
 * must be refused with a reason. */
#include "train/lab.h"

typedef struct network {
    const char *name, *yaml;
    int most_micro; /* larger ones take too long */
} network;

#define REST                                                                         \
    "train: {batch: 8, steps: 2, optimizer: {name: sgd, lr: 0.05, momentum: 0.9}}\n" \
    "parallel: {threads: 1, pin: false}\n"                                           \
    "run: {trace: 0, prediction_samples: 0}\n"

static const network networks[] = {
    {"mlp",
     "model: {name: mlp, inputs: 12, depth: 8, width: 16, classes: 4}\n"
     "data: {name: synthetic, n: 32, n_eval: 0}\n" REST,
     8},
    {"vgg",
     "model: {name: vgg16, image: 32, channels: 3, classes: 4, width_factor: 0.06}\n"
     "data: {name: synthetic, n: 32, n_eval: 0}\n" REST,
     8},
    {"resnet",
     "model: {name: resnet50, image: 32, channels: 3, classes: 4, width_factor: 0.06}\n"
     "data: {name: synthetic, n: 32, n_eval: 0}\n" REST,
     8},
    {"inception",
     "model: {name: inception3, image: 75, channels: 3, classes: 4, width_factor: 0.05}\n"
     "data: {name: synthetic, n: 32, n_eval: 0}\n" REST,
     8},
    {"gpt",
     "model: {name: gpt, layers: 3, width: 16, heads: 2, context: 8, vocab: 11, dropout: 0.2}\n"
     "data: {name: synthetic, n: 32, n_eval: 0}\n" REST,
     8},
    {"tied gpt",
     "model: {name: gpt, layers: 3, width: 16, heads: 2, context: 8, vocab: 11, dropout: 0.2, "
     "tied: true}\n"
     "data: {name: synthetic, n: 32, n_eval: 0}\n" REST,
     8},
    {"reslstm",
     "model: {name: reslstm, layers: 4, width: 16, context: 6, vocab: 11, classes: 3}\n"
     "data: {name: synthetic, n: 32, n_eval: 0}\n" REST,
     8},
};

/* The hash of the weights after the run, or why there is none. */
static fr_status hash_of(fixture *f, int n_sets, const char *const *sets, char sha[65])
{
    lab l;
    FR_TRY(lab_open(f, n_sets, sets, false, &l));
    fr_status status = lab_train(&l, NULL, NULL);
    if (status == FR_OK) status = fr__weights_sha256(&l.s, l.e, sha);
    lab_close(&l);
    return status;
}

/* By hand, as PyTorch writes it: 1F1B with twice the usual lead, computation only. */
static void write_csv(const char *path, int n_stages, int n_micro)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int k = 0; k < n_stages; k++) {
        int lead = 2 * (n_stages - 1 - k);
        if (lead > n_micro) lead = n_micro;
        for (int i = 0; i < n_micro + lead; i++) {
            if (i < n_micro) fprintf(file, "%s%dF%d", i ? "," : "", k, i);
            if (i >= lead) fprintf(file, ",%dB%d", k, i - lead);
        }
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

/* One combination: the same weights as `single`, or a reason that the config gives. */
static bool compare(fixture *f, const network *net, const char *method, int stages, int micro,
                    const char *single)
{
    char sets[3][200], sha[65];
    const char *list[] = {sets[0], sets[1], sets[2]};
    bool by_file = strcmp(method, "csv") == 0;
    snprintf(sets[0], sizeof *sets, "parallel.method=%s", method);
    if (by_file) {
        snprintf(sets[0], sizeof *sets, "parallel.schedule_file=%s/by-hand.csv", f->dir);
        write_csv(strchr(sets[0], '=') + 1, stages, micro);
    }
    snprintf(sets[1], sizeof *sets, "parallel.stages=%d", stages);
    snprintf(sets[2], sizeof *sets, "train.micro=%d", micro);
    fr_status status = hash_of(f, 3, list, sha);
    if (strcmp(method, "interleaved") == 0) {
        int n_workers = stages / 2;
        if (stages % 2 != 0) {
            assert_failed(f, status, FR_INVALID, "--set parallel.stages", "multiple", "chunks");
            return false;
        }
        if (micro % n_workers != 0) {
            assert_failed(f, status, FR_INVALID, "--set parallel.method", "interleaved",
                          "multiple");
            return false;
        }
    }
    if (status != FR_OK)
        fail_msg("%s, %s, %d stages, %d micro-batches: %s", net->name, method, stages, micro,
                 fr_ctx_error(f->ctx));
    if (strcmp(sha, single) != 0)
        fail_msg("%s, %s, %d stages, %d micro-batches: other weights than single", net->name,
                 method, stages, micro);
    return true;
}

static void check_network(fixture *f, const network *net)
{
    static const char *const methods[] = {"naive-mp",    "gpipe", "1f1b",
                                          "interleaved", "zb-h1", "csv"};
    static const int stages[] = {1, 2, 3, 4, 8};
    int n_same = 0, n_refused = 0;
    char different[4][65];
    write_text(f->config, net->yaml);
    for (int m = 0, micro = 1; micro <= net->most_micro; micro *= 2, m++) {
        char set[32];
        const char *one[] = {set};
        snprintf(set, sizeof set, "train.micro=%d", micro);
        assert_done(f, hash_of(f, 1, one, different[m]));
        for (int s = 0; s < 5; s++)
            for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
                ++*(compare(f, net, methods[i], stages[s], micro, different[m]) ? &n_same
                                                                                : &n_refused);
    }
    print_message("%s: %d combinations the same, %d refused\n", net->name, n_same, n_refused);
}

static void test_mlp(void **state) { check_network(*state, &networks[0]); }
static void test_vgg(void **state) { check_network(*state, &networks[1]); }
static void test_resnet(void **state) { check_network(*state, &networks[2]); }
static void test_inception(void **state) { check_network(*state, &networks[3]); }
static void test_gpt(void **state) { check_network(*state, &networks[4]); }
static void test_tied_gpt(void **state) { check_network(*state, &networks[5]); }
static void test_reslstm(void **state) { check_network(*state, &networks[6]); }

/* Whoever waits for whom does not matter; nor does an asynchronous method on one stage. */
static void test_jitter_and_one_stage(void **state)
{
    fixture *f = *state;
    char single[65], sha[65];
    write_text(f->config, networks[0].yaml);
    const char *micro = "train.micro=4";
    assert_done(f, hash_of(f, 1, &micro, single));
    static const char *const flush[] = {"gpipe", "1f1b", "interleaved", "zb-h1"};
    for (int i = 0; i < 8; i++) {
        char method[64], fault[64];
        snprintf(method, sizeof method, "parallel.method=%s", flush[i % 4]);
        snprintf(fault, sizeof fault, "run.fault=\"jitter:ms=2,seed=%d\"", i);
        const char *sets[] = {micro, method, fault, "parallel.stages=4"};
        assert_done(f, hash_of(f, 4, sets, sha));
        assert_string_equal(sha, single);
    }
    for (const fr_method *const *m = fr_method_list(); *m; m++) {
        char method[64];
        snprintf(method, sizeof method, "parallel.method=%s", (*m)->name);
        const char *sets[] = {micro, method, "parallel.chunks=1"};
        assert_done(f, hash_of(f, 3, sets, sha));
        if (strcmp(sha, single) != 0) fail_msg("%s with one stage is not single", (*m)->name);
    }
}

/* Clipping and the norm are of the whole model. */
static void test_clipping(void **state)
{
    fixture *f = *state;
    char single[65], plain[65], sha[65];
    write_text(f->config, networks[0].yaml);
    const char *sets[] = {"train.micro=4", "train.clip_norm=0.05", "parallel.stages=4",
                          "parallel.method=1f1b"};
    assert_done(f, hash_of(f, 1, sets, plain));
    assert_done(f, hash_of(f, 2, sets, single));
    assert_string_not_equal(plain, single);
    assert_done(f, hash_of(f, 4, sets, sha));
    assert_string_equal(sha, single);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_mlp, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_vgg, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_resnet, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_inception, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_gpt, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_tied_gpt, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_reslstm, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_jitter_and_one_stage, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_clipping, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
