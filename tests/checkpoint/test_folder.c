/* test_folder.c -- a run's folder: refusals, lock, leftovers, the list of checkpoints. */
#include "checkpoint/folder.h"
#include "support/run_fixture.h"

static void path_in(const fixture *f, const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", f->out, name);
}

static void put_file(const fixture *f, const char *name)
{
    char path[256];
    path_in(f, name, path);
    write_text(path, "x");
}

static bool is_there(const fixture *f, const char *name)
{
    char path[256];
    path_in(f, name, path);
    return access(path, F_OK) == 0;
}

static void make_dir(const fixture *f, const char *name)
{
    char path[256];
    path_in(f, name, path);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void test_refuses_a_used_folder(void **state)
{
    fixture *f = *state;
    fr__folder folder;
    assert_int_equal(mkdir(f->out, 0777), 0);
    put_file(f, "notes.txt"); /* other files are no reason */
    assert_done(f, fr__folder_check(f->ctx, f->out, false));
    put_file(f, "config.yaml");
    assert_failed(f, fr__folder_open(f->ctx, f->out, false, &folder), FR_INVALID, f->out,
                  "config.yaml", "--resume", "--out");
    assert_failed(f, fr__folder_open(f->ctx, f->out, true, &folder), FR_INVALID, "no run", "--out");
    put_file(f, "metrics.jsonl"); /* now it is a run */
    assert_done(f, fr__folder_open(f->ctx, f->out, true, &folder));
    fr__folder_close(&folder);
    assert_true(is_there(f, "notes.txt"));
}

static void test_one_writer(void **state)
{
    fixture *f = *state;
    fr__folder a, b;
    assert_done(f, fr__folder_open(f->ctx, f->out, false, &a));
    assert_failed(f, fr__folder_open(f->ctx, f->out, true, &b), FR_INVALID, "another run", "--out");
    fr__folder_close(&a);
    assert_done(f, fr__folder_open(f->ctx, f->out, true, &b));
    fr__folder_close(&b);
}

static void test_unwritable(void **state)
{
    fixture *f = *state;
    fr__folder folder;
    char path[256];
    write_text(f->out, "a file");
    assert_failed(f, fr__folder_open(f->ctx, f->out, false, &folder), FR_INVALID, f->out);
    path_in(f, "below", path);
    assert_failed(f, fr__folder_open(f->ctx, path, false, &folder), FR_INVALID, f->out);
}

static void test_leftovers_go(void **state)
{
    fixture *f = *state;
    fr__folder folder;
    assert_int_equal(mkdir(f->out, 0777), 0);
    make_dir(f, "checkpoint");
    make_dir(f, "checkpoint/step-3");
    put_file(f, "checkpoint/step-3/model.safetensors");
    make_dir(f, "checkpoint/.tmp-step-4");
    put_file(f, "checkpoint/.tmp-step-4/model.safetensors");
    make_dir(f, "checkpoint/.old-step-1");
    put_file(f, "config.yaml.123.tmp");
    put_file(f, ".tmp-step-2.safetensors");
    assert_done(f, fr__folder_open(f->ctx, f->out, true, &folder));
    assert_true(is_there(f, "checkpoint/step-3/model.safetensors"));
    assert_false(is_there(f, "checkpoint/.tmp-step-4"));
    assert_false(is_there(f, "checkpoint/.old-step-1"));
    assert_false(is_there(f, "config.yaml.123.tmp"));
    assert_false(is_there(f, ".tmp-step-2.safetensors"));
    fr__folder_close(&folder);
}

static void test_steps_newest_first(void **state)
{
    fixture *f = *state;
    fr__steps steps;
    static const char *const names[] = {"step-9", "step-10", "step-0",       "step-010", "step-x",
                                        "step-",  "step--1", ".tmp-step-11", "other"};
    assert_done(f, fr__folder_steps(f->ctx, f->out, &steps)); /* no folder, no steps */
    assert_int_equal(steps.n, 0);
    assert_int_equal(mkdir(f->out, 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) make_dir(f, names[i]);
    assert_done(f, fr__folder_steps(f->ctx, f->out, &steps));
    assert_int_equal(steps.n, 3);
    assert_int_equal(steps.at[0], 10);
    assert_int_equal(steps.at[1], 9);
    assert_int_equal(steps.at[2], 0);
    fr__vec_fini(&steps);
    put_file(f, "step-9/model.safetensors");
    assert_done(f, fr__folder_discard(f->ctx, -1, f->out, "step-9"));
    assert_false(is_there(f, "step-9"));
    assert_false(is_there(f, ".old-step-9"));
}

/* The lock belongs to the folder, and the path may lead to another one. */
static void test_the_path_is_watched(void **state)
{
    fixture *f = *state;
    fr__folder a, b;
    char path[FR_PATH], away[256];
    snprintf(away, sizeof away, "%s/away", f->dir);
    assert_done(f, fr__folder_open(f->ctx, f->out, false, &a));
    assert_done(f, fr__folder_file(f->ctx, &a, "x", path));
    assert_int_equal(rename(f->out, away), 0);
    assert_failed(f, fr__folder_held(f->ctx, &a), FR_IO, f->out, "moved, removed or replaced");
    assert_failed(f, fr__folder_file(f->ctx, &a, "x", path), FR_IO, f->out);
    assert_failed(f, fr__folder_open(f->ctx, away, true, &b), FR_INVALID, "another run");
    assert_done(f,
                fr__folder_open(f->ctx, f->out, false, &b)); /* another process takes the place */
    assert_false(fr__folder_is_held(&a));
    assert_true(fr__folder_is_held(&b));
    fr__folder_close(&b);
    fr__folder_close(&a);
}

static void test_steps_of_paths(void **state)
{
    (void)state;
    int64_t step;
    assert_true(fr__folder_step_of("run/checkpoint/step-12", &step) && step == 12);
    assert_true(fr__folder_step_of("step-0//", &step) && step == 0);
    static const char *const others[] = {"",     "/",     "step-1/x", "step-01",
                                         "best", "step-", "astep-1"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(fr__folder_step_of(others[i], &step));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refuses_a_used_folder, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_one_writer, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_the_path_is_watched, fixture_setup, fixture_teardown),
        cmocka_unit_test(test_steps_of_paths),
        cmocka_unit_test_setup_teardown(test_unwritable, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_leftovers_go, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_steps_newest_first, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
