/* test_json.c -- with --json a verb prints one JSON value and nothing else, not even on stderr;
 * with
 * --quiet it says nothing there, either. Runs the command that was built beside the tests. */
#include "support/run_fixture.h"

#include <jansson.h>

static int setup(void **state)
{
    fixture_setup(state);
    fixture *f = *state;
    write_text(f->config, "model: {name: mlp, inputs: 12, depth: 2, width: 16, classes: 4}\n"
                          "data: {name: synthetic, n: 100, n_eval: 50}\n"
                          "train: {batch: 8, micro: 2, steps: 5}\n"
                          "parallel: {threads: 1}\n");
    return 0;
}

/* Both streams of `../forerun WORDS`, where $N is the config, $O the run's folder, $D the scratch
 * folder. */
static FILE *start(fixture *f, const char *words)
{
    char command[1024];
    snprintf(command, sizeof command,
             "N=%s O=%s D=%s OMP_WAIT_POLICY=passive; export OMP_WAIT_POLICY; "
             "exec ../forerun %s 2>&1",
             f->config, f->out, f->dir, words);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    return pipe;
}

static json_t *parse(fixture *f, const char *words)
{
    json_error_t error;
    FILE *pipe = start(f, words);
    json_t *root = json_loadf(pipe, 0, &error);
    if (!root) fail_msg("forerun %s: line %d: %s", words, error.line, error.text);
    assert_int_equal(pclose(pipe), 0);
    return root;
}

static void test_json(void **state)
{
    /* a command, and a key that its object, or the first of its list, has */
    static const char *const wanted[][2] = {
        {"train $N --out $O --json --quiet", "weights_sha256"},
        {"eval $N --checkpoint $O --json", "eval_accuracy"},
        {"checkpoint verify $O --json", "whole"},
        {"profile $N --seconds 0.05 --json", "nodes"},
        {"simulate $N --json", "samples_per_s"},
        {"schedule 1f1b --stages 2 --micro 2 --json", "makespan"},
        {"models --json", "activation_bytes"},
        {"models mlp --json", "nodes"},
        {"methods --json", "optimizers"},
        {"keys train --json", "path"},
        {"info --json", "backends"},
        {"report $O --data", "runs"},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        json_t *root = parse(f, wanted[i][0]);
        json_t *object = json_is_array(root) ? json_array_get(root, 0) : root;
        if (!json_object_get(object, wanted[i][1]))
            fail_msg("forerun %s: no %s", wanted[i][0], wanted[i][1]);
        json_decref(root);
    }
}

static void test_plan(void **state)
{
    fixture *f = *state;
    FILE *pipe = start(f, "profile $N --seconds 0.05 --json --out $D/p.json");
    assert_int_equal(fgetc(pipe), EOF);
    assert_int_equal(pclose(pipe), 0);
    json_decref(
        parse(f, "plan --profile $D/p.json --machines 2 --bandwidth 1e9 --planner dapple --json"));
}

static void test_quiet(void **state)
{
    fixture *f = *state;
    char text[512];
    FILE *pipe = start(f, "train $N --out $O --quiet");
    assert_null(fgets(text, sizeof text, pipe));
    assert_int_equal(pclose(pipe), 0);
    pipe = start(f, "eval $N --checkpoint $O --quiet");
    assert_non_null(fgets(text, sizeof text, pipe)); /* its result, on one line */
    assert_non_null(strstr(text, "50 samples: loss"));
    assert_null(fgets(text, sizeof text, pipe));
    assert_int_equal(pclose(pipe), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_json, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_plan, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_quiet, setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
