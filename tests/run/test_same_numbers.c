/* test_same_numbers.c -- flush schedules give the weights of one worker, to the bit.
 *
 * Networks with everything that crosses a cut in its own way (skips, branches, running
 * statistics, dropout, recurrence, tied parameters), cut into 1, 2, 3, 4 and 8 stages, a mini-batch
 * in 1, 2, 4 and 8 micro-batches, under every flush method and a schedule written by hand: each of
 * these combinations on a third of the networks. Invalid ones must be refused with a reason. */
#include "support/lab.h"
#include "support/v_csv.h"

typedef struct network {
    const char *name, *yaml;
    bool is_large; /* a published network: a few combinations suffice */
} network;

#define SOME_DATA "data: {name: synthetic, n: 32, n_eval: 0}\n"
#define REST                                                                                   \
    SOME_DATA "train: {batch: 8, steps: 2, optimizer: {name: sgd, lr: 0.05, momentum: 0.9}}\n" \
              "parallel: {threads: 1, pin: false}\n"                                           \
              "run: {trace: 0, prediction_samples: 0}\n"
#define NODE(text) "    - {" text "}\n"
#define CONV(name, from, out, kernel, more) \
    NODE("name: " name ", op: conv2d, inputs: [" from "], out: " out ", kernel: " kernel more)
#define NORM(name) NODE("name: " name ".n, op: batch_norm") NODE("name: " name ", op: relu")

/* clang-format off */
/* A projected and a plain block of residual learning. */
static const char small_resnet[] =
    "model:\n  nodes:\n"
    NODE("name: in, op: input, shape: [3, 8, 8]")
    CONV("c0", "in", "6", "3", ", pad: 1") NORM("r0")
    CONV("c1", "r0", "4", "1", "") NORM("r1")
    CONV("c2", "r1", "8", "3", ", pad: 1, stride: 2") NODE("name: n2, op: batch_norm")
    CONV("side", "r0", "8", "1", ", stride: 2")
    NODE("name: sum1, op: add, inputs: [n2, side]") NODE("name: r2, op: relu")
    CONV("c3", "r2", "8", "3", ", pad: 1") NODE("name: n3, op: batch_norm")
    NODE("name: sum2, op: add, inputs: [n3, r2]") NODE("name: r3, op: relu")
    NODE("name: pool, op: global_pool")
    NODE("name: head, op: linear, out: 4") REST;

/* Two blocks of branches that are joined again. */
static const char small_inception[] =
    "model:\n  nodes:\n"
    NODE("name: in, op: input, shape: [3, 8, 8]")
    CONV("stem", "in", "6", "3", ", pad: 1") NORM("s")
    CONV("a1", "s", "4", "1", "") NORM("a2")
    CONV("b1", "s", "3", "1", "") NORM("b2")
    CONV("b3", "b2", "4", "3", ", pad: 1") NORM("b4")
    NODE("name: c1, op: avg_pool, inputs: [s], kernel: 3, stride: 1, pad: 1")
    CONV("c2", "c1", "2", "1", "") NORM("c3")
    NODE("name: join1, op: concat, inputs: [a2, b4, c3]")
    NODE("name: d1, op: max_pool, inputs: [join1], kernel: 2")
    CONV("e1", "join1", "4", "3", ", stride: 2, pad: 1") NORM("e2")
    NODE("name: join2, op: concat, inputs: [d1, e2]")
    NODE("name: pool, op: global_pool")
    NODE("name: head, op: linear, out: 4") REST;
/* clang-format on */

static const network mlp = {
    "mlp", "model: {name: mlp, inputs: 12, depth: 8, width: 16, classes: 4}\n" REST, false};
static const network vgg = {
    "vgg16", "model: {name: vgg16, image: 32, channels: 3, classes: 4, width_factor: 0.06}\n" REST,
    false};
static const network resnet = {"a small resnet", small_resnet, false};
static const network resnet50 = {
    "resnet50",
    "model: {name: resnet50, image: 32, channels: 3, classes: 4, width_factor: 0.06}\n" REST, true};
static const network inception = {"a small inception", small_inception, false};
static const network inception3 = {
    "inception3",
    "model: {name: inception3, image: 75, channels: 3, classes: 4, width_factor: 0.05}\n" REST,
    true};
#define GPT "name: gpt, layers: 3, width: 16, heads: 2, context: 8, vocab: 11, dropout: 0.2"
static const network gpt = {"gpt", "model: {" GPT "}\n" REST, false};
static const network tied_gpt = {"tied gpt", "model: {" GPT ", tied: true}\n" REST, false};
static const network reslstm = {
    "reslstm",
    "model: {name: reslstm, layers: 4, width: 16, context: 6, vocab: 11, classes: 3}\n" REST,
    false};

static const network gnmt = {
    "gnmt", "model: {name: gnmt, layers: 3, width: 8, context: 5, vocab: 11, dropout: 0.2}\n" REST,
    false};
static const network biglstm = {
    "biglstm",
    "model: {name: biglstm, layers: 6, width: 12, projection: 8, context: 5, vocab: 11}\n" REST,
    false};

/* The hash of the weights after the run, or the reason why there is none. */
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

static void check_network(fixture *f, const network *net, int nth)
{
    static const char *const methods[] = {"naive-mp",    "gpipe", "1f1b",
                                          "interleaved", "zb-h1", "csv"};
    enum { INTERLEAVED = 3 };
    static const int stages[] = {1, 2, 3, 4, 8};
    int n_same = 0, n_refused = 0;
    /* Further runs, with other instruction sets or on the slow kernels of `ref`, have half of the
     * combinations; the slow ones have one combination of large networks. */
    const char *backend = getenv("FR_BACKEND");
    bool is_slow = backend && strcmp(backend, "cpu") != 0;
    bool is_large = net->is_large || (net == &vgg && backend);
    int every = backend ? 6 : 3;
    write_text(f->config, net->yaml);
    for (int m = 0; m < 4; m++) {
        int micro = 1 << m;
        char set[32], single[65];
        const char *one[] = {set};
        if (is_large && micro != 2) continue;
        snprintf(set, sizeof set, "train.micro=%d", micro);
        assert_done(f, hash_of(f, 1, one, single));
        for (int s = 0; s < 5; s++)
            for (int i = 0; i < 6; i++) {
                if (is_large ? stages[s] % 4 != 0 || i % 2 == 0 : (nth + m + s + i) % every != 0)
                    continue;
                if (is_large && is_slow && (stages[s] != 4 || i != INTERLEAVED)) continue;
                bool is_same = compare(f, net, methods[i], stages[s], micro, single);
                n_same += is_same, n_refused += !is_same;
            }
    }
    print_message("%s: %d combinations the same, %d refused\n", net->name, n_same, n_refused);
}

#define TEST_OF(net, nth) \
    static void test_##net(void **state) { check_network(*state, &net, nth); }
TEST_OF(mlp, 0)
TEST_OF(vgg, 1)
TEST_OF(resnet, 2)
TEST_OF(inception, 0)
TEST_OF(gpt, 1)
TEST_OF(tied_gpt, 2)
TEST_OF(reslstm, 0)
TEST_OF(gnmt, 1)
TEST_OF(biglstm, 2)
TEST_OF(resnet50, 0)
TEST_OF(inception3, 0)

/* --- without a bubble ------------------------------------------------------------------------ */

/* One worker with `micro` micro-batches of two samples, or p workers of a method. An odd number of
 * micro-batches also has another order of fill and drain, if the method has one. */
static fr_status hash_in_twos(fixture *f, const char *method, int stages, int micro, char sha[65])
{
    char sets[4][64];
    const char *list[] = {sets[0], sets[1], sets[2], sets[3], "parallel.reorder=true"};
    bool reorders = fr_generator_find(fr_method_find(method)->generator)->has_reorder;
    snprintf(sets[0], sizeof *sets, "train.micro=%d", micro);
    snprintf(sets[1], sizeof *sets, "train.batch=%d", 2 * micro);
    snprintf(sets[2], sizeof *sets, "parallel.method=%s", method);
    snprintf(sets[3], sizeof *sets, "parallel.stages=%d", stages);
    return hash_of(f, reorders && micro % 2 ? 5 : 4, list, sha);
}

/* Up to 12 micro-batches on 2, 3 and 4 workers; each pair of them with some of the methods. */
static void check_without_bubble(fixture *f, const network *net, int nth)
{
    static const char *const methods[] = {"zb-h2", "zbv", "v-half", "v-min", "dualpipev"};
    int n_same = 0, every = getenv("FR_BACKEND") ? 5 : net == &mlp ? 1 : 3;
    write_text(f->config, net->yaml);
    for (int micro = 1; micro <= (net == &vgg ? 6 : 12); micro++) {
        char single[65], sha[65];
        assert_done(f, hash_in_twos(f, "single", 1, micro, single));
        for (int i = 0; i < 5 * 3; i++) {
            int workers = 2 + i / 5;
            const char *method = methods[i % 5];
            if ((nth + micro + i) % every != 0) continue;
            fr_status status = hash_in_twos(f, method, i % 5 ? 2 * workers : workers, micro, sha);
            if (i % 5 == 4 && micro < 2 * workers) {
                assert_failed(f, status, FR_INVALID, "--set parallel.method", "dualpipev",
                              "two for each worker");
                continue;
            }
            if (status != FR_OK || strcmp(sha, single) != 0)
                fail_msg("%s, %s, %d workers, %d micro-batches: %s", net->name, method, workers,
                         micro, status == FR_OK ? "other weights" : fr_ctx_error(f->ctx));
            n_same++;
        }
    }
    print_message("%s: %d combinations the same\n", net->name, n_same);
}

static void test_without_bubble(void **state)
{
    static const network *const nets[] = {&mlp, &vgg, &resnet, &gpt, &reslstm};
    for (int i = 0; i < 5; i++) check_without_bubble(*state, nets[i], i);
    fixture *f = *state;
    char sha[65], single[65], set[200], path[160];
    write_text(f->config, mlp.yaml);
    assert_done(f, hash_in_twos(f, "single", 1, 4, single));
    snprintf(path, sizeof path, "%s/dumped.csv", f->dir);
    snprintf(set, sizeof set, "parallel.schedule_file=%s", path);
    for (int i = 0; i < 2; i++) {
        const char *sets[] = {"train.micro=4", "train.batch=8", set};
        write_text(path, i ? dualpipev_csv : zbv_csv);
        assert_done(f, hash_of(f, 3, sets, sha));
        assert_string_equal(sha, single);
    }
    assert_done(f, hash_in_twos(f, "single", 1, 2, single));
    const char *lowered[] = {"train.micro=2", "train.batch=4", set};
    write_text(path, zbv_lowered_csv);
    assert_done(f, hash_of(f, 3, lowered, sha));
    assert_string_equal(sha, single);
    assert_failed(f, hash_in_twos(f, "zbv", 5, 4, sha), FR_INVALID, "--set parallel.stages",
                  "5 stages", "2 chunks");
    const char *chunks[] = {"parallel.method=zbv", "parallel.stages=6", "parallel.chunks=3"};
    assert_failed(f, hash_of(f, 3, chunks, sha), FR_INVALID, "--set parallel.chunks", "zbv",
                  "two stages");
}

/* The order of waits does not matter; nor does an asynchronous method on one stage. */
static void test_jitter_and_one_stage(void **state)
{
    fixture *f = *state;
    char single[65], sha[65];
    write_text(f->config, mlp.yaml);
    const char *micro = "train.micro=4";
    assert_done(f, hash_of(f, 1, &micro, single));
    static const char *const flush[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                        "zb-h2", "zbv",  "v-half",      "dualpipev"};
    for (int i = 0; i < 12; i++) {
        char method[64], fault[64];
        snprintf(method, sizeof method, "parallel.method=%s", flush[i % 8]);
        snprintf(fault, sizeof fault, "run.fault=\"jitter:ms=2,seed=%d\"", i);
        const char *sets[] = {micro, method, fault, "parallel.stages=4"};
        assert_done(f, hash_of(f, 4, sets, sha));
        assert_string_equal(sha, single);
    }
    for (const fr_method *const *m = fr_method_list(); *m; m++) {
        char method[64];
        snprintf(method, sizeof method, "parallel.method=%s", (*m)->name);
        bool is_v = fr_generator_find((*m)->generator)->is_v; /* two stages of one worker */
        const char *sets[] = {micro, method, is_v ? "parallel.stages=2" : "parallel.chunks=1"};
        assert_done(f, hash_of(f, 3, sets, sha));
        if (strcmp(sha, single) != 0) fail_msg("%s with one stage is not single", (*m)->name);
    }
}

/* Clipping and the norm are of the whole model. */
static void test_clipping(void **state)
{
    fixture *f = *state;
    char single[65], plain[65], sha[65];
    write_text(f->config, mlp.yaml);
    const char *sets[] = {"train.micro=4", "train.clip_norm=0.05", "parallel.stages=4",
                          "parallel.method=1f1b"};
    assert_done(f, hash_of(f, 1, sets, plain));
    assert_done(f, hash_of(f, 2, sets, single));
    assert_string_not_equal(plain, single);
    assert_done(f, hash_of(f, 4, sets, sha));
    assert_string_equal(sha, single);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_mlp),       RUN(test_vgg),
        RUN(test_resnet),    RUN(test_resnet50),
        RUN(test_inception), RUN(test_inception3),
        RUN(test_gpt),       RUN(test_tied_gpt),
        RUN(test_reslstm),   RUN(test_gnmt),
        RUN(test_biglstm),   RUN(test_jitter_and_one_stage),
        RUN(test_clipping),  RUN(test_without_bubble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
