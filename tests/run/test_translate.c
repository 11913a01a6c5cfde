/* test_translate.c -- gnmt learns to translate on two stages, whose bits are those of one.
 *
 * The language: words a .. h, each with one translation, and the order of words is kept. The most
 * frequent target is right in about a fifth of all places; a model that does not read the source
 * can only guess words. */
#include "support/run_fixture.h"

static const char net[] = "model: {name: gnmt, layers: 2, width: 32, context: 6, dropout: 0}\n"
                          "data: {name: pairs, train: [%s/x, %s/y], eval: [%s/ex, %s/ey]}\n"
                          "train: {batch: 32, micro: 2, steps: 800, seed: 2, clip_norm: 1.0,\n"
                          "        optimizer: {name: adam, lr: 0.01}}\n"
                          "parallel: {threads: 1, pin: false}\n"
                          "run: {trace: 0, prediction_samples: 0}\n";

static void write_pairs(const char *dir, const char *source, const char *target, unsigned seed,
                        int n)
{
    char path[2][160];
    FILE *file[2];
    snprintf(path[0], sizeof path[0], "%s/%s", dir, source);
    snprintf(path[1], sizeof path[1], "%s/%s", dir, target);
    for (int i = 0; i < 2; i++) assert_non_null(file[i] = fopen(path[i], "w"));
    for (int line = 0; line < n; line++) {
        seed = seed * 1664525 + 1013904223;
        int words = 2 + (int)(seed >> 28) % 4;
        for (int i = 0; i < words; i++) {
            seed = seed * 1664525 + 1013904223;
            char letter = (char)('a' + (seed >> 24) % 8);
            fprintf(file[0], "%s%c", i ? " " : "", letter);
            fprintf(file[1], "%s%c%c", i ? " " : "", letter, letter);
        }
        for (int i = 0; i < 2; i++) fputc('\n', file[i]);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(fclose(file[i]), 0);
}

typedef struct losses {
    double first, last;
} losses;

static void on_progress(void *user, const fr_progress *p)
{
    losses *l = user;
    if (p->step == 1) l->first = p->loss;
    l->last = p->loss;
}

static fr_run_result train(fixture *f, const char *out, int n_sets, const char *const *sets,
                           losses *l)
{
    fr_run_result r;
    char folder[160];
    snprintf(folder, sizeof folder, "%s/%s", f->dir, out);
    fr_run_options o = {.size = sizeof o,
                        .config = f->config,
                        .n_sets = n_sets,
                        .sets = sets,
                        .out = folder,
                        .progress = on_progress,
                        .user = l};
    assert_done(f, fr_train(f->ctx, &o, &r));
    return r;
}

static void gnmt_learns(void **state)
{
    fixture *f = *state;
    char yaml[1024];
    losses l;
    write_pairs(f->dir, "x", "y", 1, 600);
    write_pairs(f->dir, "ex", "ey", 2, 100);
    snprintf(yaml, sizeof yaml, net, f->dir, f->dir, f->dir, f->dir);
    write_text(f->config, yaml);
    static const char *const sets[] = {"parallel.method=1f1b", "parallel.stages=2",
                                       "train.steps=20"};
    fr_run_result one = train(f, "one", 1, &sets[2], &l), r = train(f, "two", 3, sets, &l);
    assert_string_equal(r.weights_sha256, one.weights_sha256);
    assert_true(r.eval_accuracy == one.eval_accuracy);
    r = train(f, "long", 2, sets, &l);
    print_message("loss %.3f to %.3f, accuracy on other texts %.3f\n", l.first, l.last,
                  r.eval_accuracy);
    assert_true(l.last < 0.5 * l.first);
    assert_true(r.eval_accuracy > 0.9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gnmt_learns, fixture_setup, fixture_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
