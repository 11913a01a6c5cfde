/* test_replicas.c -- replicas of stages: with exact_sum the bits of one worker for powers of two,
 * equal to rounding otherwise; whatever the schedule, the cut and the number of replicas of each
 * stage. */
#include "engine/rig.h"

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
    {"interleaved", 2, {4, 4}, 2}, {"1f1b", 3, {2, 2, 2}, 0},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_sums_have_the_bits_of_one_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
