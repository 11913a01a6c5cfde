/* test_same.c -- flush schedules give the bits of one worker, however the graph is cut. */
#include "engine/pipe.h"

enum { STEPS = 5 };

static void train(int which, const pipe_options *o, char sha[65])
{
    pipe p;
    int64_t n_done = 0;
    if (pipe_open(&p, which, o) != FR_OK || pipe_train(&p, 0, STEPS, &n_done) != FR_OK)
        fail_msg("%s, %s, %d stages, %d micro: %s", nets[which].name,
                 o->generator ? o->generator : "single", o->n_stages, o->n_micro,
                 fr_ctx_error(p.b.ctx));
    assert_int_equal(n_done, STEPS);
    assert_int_equal(p.n_reports, STEPS);
    pipe_sha(&p, sha);
    pipe_close(&p);
}

/* How many stages a net can be cut into. */
static int most_stages(int which)
{
    bench b;
    bench_init(&b, which);
    int cuts[64], n = 1;
    while (n < 16 && fr_graph_balance(b.graph, n + 1, cuts) == FR_OK) n++;
    bench_fini(&b);
    return n;
}

static void all_equal_one_worker(void **unused)
{
    (void)unused;
    static const char *const generators[] = {"sequential", "gpipe", "1f1b", "zb-h1", "interleaved"};
    for (int which = 0; which < N_NETS; which++) {
        int most = most_stages(which);
        for (int n_micro = 1; n_micro <= BATCH; n_micro *= 2) {
            char one[65], other[65];
            train(which, &(pipe_options){.n_micro = n_micro}, one);
            for (size_t g = 0; g < sizeof generators / sizeof *generators; g++)
                for (int n = 1; n <= most; n++) {
                    pipe_options o = {
                        .generator = generators[g], .n_micro = n_micro, .n_stages = n};
                    if (g == 4) o.chunks = 2;
                    if (g == 4 && (n % 2 || n_micro % (n / 2))) continue;
                    train(which, &o, other);
                    if (strcmp(one, other) != 0)
                        fail_msg("%s: %s with %d stages, %d micro-batches differs from one worker",
                                 nets[which].name, generators[g], n, n_micro);
                }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_equal_one_worker)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
