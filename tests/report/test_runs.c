/* test_runs.c -- the runs of a report and their names. */
#include "report/runs.h"

#include "report/folders.h"

static char home[4096]; /* folder at the start: the tests use relative names */

/* Create a run in each folder, then find them. */
static void find(int n, const char *const *folders, fr__runs *r)
{
    for (int i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s", folders[i]);
        for (char *t = path; (t = strchr(t + 1, '/'));) *t = '\0', mkdir(path, 0777), *t = '/';
        put_file(folders[i], "metrics.jsonl", "");
    }
    assert_ok(ctx, fr__runs_find(ctx, n, folders, r));
    assert_int_equal(r->list.n, n);
}

static void names_are_what_differs(void **state)
{
    (void)state;
    static const struct {
        int n;
        const char *folders[3], *names[3];
    } cases[] = {
        {1, {"a/b/c"}, {"c"}},
        {1, {"a/b/c///"}, {"c"}},
        {2, {"a/x", "a/y"}, {"x", "y"}},
        {2, {"a/x/seed-1", "a/y/seed-1"}, {"x", "y"}},
        {3, {"a/x/seed-1", "a/x/seed-2", "a/y/seed-1"}, {"x/seed-1", "x/seed-2", "y/seed-1"}},
        {3, {"p/a", "q/a", "q/b"}, {"p/a", "q/a", "q/b"}},
        {2, {"u", "v/u"}, {"u", "v/u"}},
        {2, {"s", "s/s"}, {"s", "s/s"}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        fr__runs r;
        find(cases[k].n, cases[k].folders, &r);
        for (int i = 0; i < cases[k].n; i++) {
            assert_string_equal(r.list.at[i].folder, cases[k].folders[i]);
            assert_string_equal(r.list.at[i].name, cases[k].names[i]);
        }
        fr__runs_fini(&r);
    }
}

/* A folder given by dots has its normal name. */
static void dots_are_no_names(void **state)
{
    fr__runs r;
    const char *folders[] = {"dots/in/..", "dots/in/."};
    find(2, folders, &r);
    assert_string_equal(r.list.at[0].name, "dots");
    assert_string_equal(r.list.at[1].name, "in");
    fr__runs_fini(&r);
    put_file(".", "metrics.jsonl", "");
    const char *here[] = {"."};
    assert_ok(ctx, fr__runs_find(ctx, 1, here, &r));
    assert_string_equal(r.list.at[0].name, *state);
    fr__runs_fini(&r);
    remove("metrics.jsonl");
}

static void names_are_text_and_never_the_same(void **state)
{
    (void)state;
    fr__runs r;
    const char *folders[] = {"bad/a\xFFz", "bad/a\xFEz", "bad/a\xEF\xBF\xBDz (2)"};
    find(3, folders, &r);
    for (int i = 0; i < 3; i++) {
        json_t *text = json_string(r.list.at[i].name); /* NULL of what is not UTF-8 */
        assert_non_null(text);
        json_decref(text);
        for (int k = 0; k < i; k++) assert_string_not_equal(r.list.at[i].name, r.list.at[k].name);
    }
    fr__runs_fini(&r);
    const char *twice[] = {"bad/a\xFFz", "bad/a\xFFz", "bad/../bad/a\xFFz"};
    assert_ok(ctx, fr__runs_find(ctx, 3, twice, &r));
    assert_int_equal(r.list.n, 2); /* the same path is the same run */
    assert_string_not_equal(r.list.at[0].name, r.list.at[1].name);
    fr__runs_fini(&r);
}

static void a_comparison_is_its_runs(void **state)
{
    (void)state;
    fr__runs r;
    const char *runs[] = {"cmp/dp/seed-1", "cmp/1f1b/seed-1"}, *folder[] = {"cmp"};
    find(2, runs, &r);
    fr__runs_fini(&r);
    put_file("cmp", "compare.json",
             "{\"title\": \"T\", \"cases\": [{\"runs\": [\"dp/seed-1\"]}, {\"runs\": []},\n"
             " {\"runs\": [\"1f1b/seed-1\", \"1f1b/seed-2\"]}, {\"name\": \"simulated\"}]}");
    assert_ok(ctx, fr__runs_find(ctx, 1, folder, &r));
    assert_int_equal(r.list.n, 2); /* seed-2 has not started */
    assert_string_equal(r.list.at[0].name, "dp");
    assert_string_equal(r.list.at[1].name, "1f1b");
    assert_string_equal(r.compare, "cmp/compare.json");
    assert_string_equal(r.title, "T");
    fr__runs_fini(&r);

    /* Together with a run, it is still the only comparison, but does not give the title. */
    const char *both[] = {"cmp", "a/x"};
    put_file("a/x", "summary.json", "{}");
    assert_ok(ctx, fr__runs_find(ctx, 2, both, &r));
    assert_int_equal(r.list.n, 3);
    assert_true(r.compare && !r.title);
    fr__runs_fini(&r);

    put_file("cmp2", "compare.json", "{\"cases\": []}");
    const char *two[] = {"cmp", "cmp2"};
    assert_ok(ctx, fr__runs_find(ctx, 2, two, &r));
    assert_true(r.list.n == 2 && !r.compare && !r.title);
    fr__runs_fini(&r);
    assert_ok(ctx, fr__runs_find(ctx, 1, &two[1], &r));
    assert_true(r.list.n == 0 && r.compare);
    fr__runs_fini(&r);
}

static void what_is_no_run_is_refused(void **state)
{
    (void)state;
    fr__runs r;
    const char *folders[] = {"nothing", "above", "broken", "wrong", "file"};
    mkdir("above", 0777);
    put_file("above/run", "metrics.jsonl", "");
    put_file("broken", "compare.json", "{\"cases\": [\n{\"runs\" []}]}");
    put_file("wrong", "compare.json", "{\"cases\": [{\"runs\": [7]}]}");
    support_write("file", "", 0);
    assert_fails(ctx, fr__runs_find(ctx, 1, folders, &r), FR_INVALID, "cannot open folder nothing");
    assert_fails(ctx, fr__runs_find(ctx, 1, folders + 1, &r), FR_INVALID,
                 "above: not a run (no metrics.jsonl, no summary.json) and not a comparison "
                 "(compare.json); there are runs in its subfolders");
    assert_fails(ctx, fr__runs_find(ctx, 1, folders + 2, &r), FR_INVALID, "broken/compare.json:2:");
    assert_fails(ctx, fr__runs_find(ctx, 1, folders + 3, &r), FR_INVALID,
                 "wrong/compare.json: exp");
    assert_fails(ctx, fr__runs_find(ctx, 1, folders + 4, &r), FR_INVALID,
                 "cannot open folder file");
}

static int enter(void **state)
{
    ctx = fr_ctx_create();
    return ctx && support_dir_make(state) == 0 && getcwd(home, sizeof home) && !chdir(*state) ? 0
                                                                                              : -1;
}

static int leave(void **state)
{
    fr_ctx_free(ctx);
    return chdir(home) == 0 ? support_dir_remove(state) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_what_differs),
        cmocka_unit_test(dots_are_no_names),
        cmocka_unit_test(names_are_text_and_never_the_same),
        cmocka_unit_test(a_comparison_is_its_runs),
        cmocka_unit_test(what_is_no_run_is_refused),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
