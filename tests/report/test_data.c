/* test_data.c -- the data of a report: one run, twenty, unfinished runs, hostile texts; and the
 * page around them. */
#include "report/folders.h"

#include "io/file.h"
#include "report/page.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static void one_run_is_all_there(void **state)
{
    place run = below(state, "one");
    const char *folders[] = {run.path};
    put_run(run.path, 3);
    put_file(run.path, "config.yaml",
             "# A plan by `forerun plan`\n#\n#  why\nmodel: 1\n# not me\n");
    put_trace(run.path, 2, 4);
    json_t *d = data_of(1, folders, NULL);
    assert_true(real_at(d, "format") == 1);
    assert_string_equal(text_at(d, "forerun"), fr_version());
    assert_string_equal(text_at(d, "title"), "one: mlp on digits");
    assert_true(json_is_false(item(d, "live")) && json_is_null(item(d, "compare")));
    assert_int_equal(length_at(d, "runs"), 1);
    assert_string_equal(text_at(d, "runs.0.name"), "one");
    assert_string_equal(text_at(d, "runs.0.folder"), run.path);
    assert_string_equal(text_at(d, "runs.0.kind"), "measured");
    assert_string_equal(text_at(d, "runs.0.summary.status"), "done");
    assert_string_equal(text_at(d, "runs.0.plan"), "A plan by `forerun plan`\n\n why");
    assert_non_null(strstr(text_at(d, "runs.0.config"), "model: 1\n# not me\n"));
    assert_true(real_at(d, "runs.0.n_steps") == 3);
    assert_true(real_at(d, "runs.0.metrics.loss.2") == 0.333333333); /* nine digits */
    assert_true(real_at(d, "runs.0.metrics.loss_low.1") == 0.5);
    assert_true(real_at(d, "runs.0.metrics.samples.2") == 24);
    assert_null(json_object_get(item(d, "runs.0.metrics"), "grad_norm"));
    assert_int_equal(length_at(d, "runs.0.eval.step"), 1);
    assert_true(real_at(d, "runs.0.eval.accuracy.0") == 0.75);
    assert_true(real_at(d, "runs.0.timeline.n_events") == 8);
    assert_string_equal(text_at(d, "runs.0.timeline.workers.1.name"), "worker 1");
    static const double event[] = {20.25, 7.5, 0, 0, 1, 2, 0, 2, 2};
    json_t *got = item(d, "runs.0.timeline.workers.1.events.2");
    assert_int_equal(json_array_size(got), 9);
    for (size_t i = 0; i < 9; i++)
        assert_true(json_number_value(json_array_get(got, i)) == event[i]);
    assert_string_equal(text_at(d, "runs.0.timeline.actions.11"), "sum");
    json_decref(d);
}

/* A run that has just started, one that was killed, one that was emulated. */
static void missing_files_are_null(void **state)
{
    place run = below(state, "begun");
    const char *folders[] = {run.path};
    put_file(run.path, "metrics.jsonl", "{\"st");
    json_t *d = data_of(1, folders, NULL);
    assert_true(json_is_null(item(d, "runs.0.summary")) && json_is_null(item(d, "runs.0.plan")));
    assert_true(json_is_null(item(d, "runs.0.timeline")));
    assert_int_equal(length_at(d, "runs.0.metrics.loss"), 0);
    assert_int_equal(length_at(d, "runs.0.eval.step"), 0);
    assert_string_equal(text_at(d, "title"), "begun");
    json_decref(d);

    put_file(run.path, "config.yaml", "parallel:\n  cluster: some.yaml\n");
    d = data_of(1, folders, NULL);
    assert_string_equal(text_at(d, "runs.0.kind"), "emulated");
    json_decref(d);
    put_file(run.path, "config.yaml", "parallel:\n  stages: 2\n");
    put_file(run.path, "summary.json", "{\"emulated\": {\"cluster\": \"c\"}}");
    d = data_of(1, folders, NULL);
    assert_string_equal(text_at(d, "runs.0.kind"), "emulated");
    json_decref(d);

    /* Resumed and shown live: the summary is that of the previous session. */
    d = data_of(1, folders, &(fr_report_options){.live = true});
    assert_true(json_is_true(item(d, "live")) && json_is_null(item(d, "runs.0.summary")));
    json_decref(d);
}

static void twenty_runs_share_the_events(void **state)
{
    place runs[20];
    const char *folders[20];
    int n_kept = 0;
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "twenty/%d", i);
        mkdir(below(state, "twenty").path, 0777);
        runs[i] = below(state, name);
        folders[i] = runs[i].path;
        put_run(runs[i].path, 50);
        put_trace(runs[i].path, 4, i < 18 ? 5 : 2000); /* two of them have many events */
    }
    json_t *d = data_of(20, folders, &(fr_report_options){.max_events = 4000, .max_points = 10});
    assert_int_equal(length_at(d, "runs"), 20);
    assert_string_equal(text_at(d, "title"), "0, 1 and 18 more: mlp on digits");
    for (int i = 0; i < 20; i++) {
        json_t *r = json_array_get(item(d, "runs"), (size_t)i);
        for (int w = 0; w < 4; w++)
            n_kept += (int)json_array_size(
                item(json_array_get(item(r, "timeline.workers"), (size_t)w), "events"));
        assert_true(length_at(r, "timeline.workers.0.events") >= (i < 18 ? 5 : 400));
        assert_true(length_at(r, "metrics.loss") <= 10 && length_at(r, "metrics.loss") >= 5);
        assert_true(real_at(r, "n_steps") == 50);
    }
    assert_true(n_kept <= 4000);
    json_decref(d);
}

/* No text can end the script or break the JSON. */
static void hostile_texts_stay_inside(void **state)
{
    static const char evil[] = "</script><!--<script>\xE2\x80\xA8\xE2\x80\xA9\xFF\x01\" \\ & ]]>";
    char name[256], text[1024], *all;
    size_t n;
    snprintf(name, sizeof name, "<script>\xFF\"'&\n");
    place run = below(state, name);
    const char *folders[] = {run.path};
    put_metrics(run.path, 2);
    snprintf(text, sizeof text, "# %s\nmodel: {}\n", evil);
    put_file(run.path, "config.yaml", text);
    put_file(run.path, "summary.json",
             "{\"model\": \"</script> <!-- \xE2\x80\xA8\", \"data\": \"a\\\\\\\" b\\u003c\"}");
    put_file(
        run.path, "trace.json",
        "{\"traceEvents\": [{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": 1, "
        "\"args\": {\"name\": \"</script>\\\"\"}}]}");
    json_t *d = data_of(1, folders, &(fr_report_options){.title = evil});
    assert_string_equal(text_at(d, "runs.0.summary.model"), "</script> <!-- \xE2\x80\xA8");
    assert_string_equal(text_at(d, "runs.0.summary.data"), "a\\\" b<");
    assert_string_equal(text_at(d, "runs.0.timeline.workers.0.name"), "</script>\"");
    assert_string_equal(text_at(d, "runs.0.name"), "<script>\xEF\xBF\xBD\"'&\n");
    assert_non_null(strstr(text_at(d, "title"), "</script><!--<script>"));
    json_decref(d);
    assert_ok(ctx, fr_report_data(ctx, 1, folders, &(fr_report_options){.title = evil}, &all, &n));
    assert_null(strchr(all, '<'));
    assert_null(strstr(all, "\xE2\x80\xA8"));
    assert_null(strstr(all, "\xE2\x80\xA9"));
    fr_report_free_text(all);

    /* The page has one data script and one title, both properly closed. */
    place page = below(state, "evil.html");
    unsigned char *html;
    fr_report_options o = {.title = evil};
    assert_ok(ctx, fr_report_write(ctx, 1, folders, &o, page.path));
    assert_ok(ctx, fr__file_read(ctx, page.path, 1 << 28, &html, &n));
    char *title = strstr((char *)html, "<title>");
    assert_non_null(title);
    assert_int_equal(strncmp(title + 7, "&lt;/script&gt;&lt;!--", 21), 0);
    char *data = strstr((char *)html, "id=\"data\">");
    assert_non_null(data);
    size_t length = strcspn(data + 10, "<");
    assert_int_equal(strncmp(data + 10 + length, "</script>", 9), 0);
    json_t *inside = json_loadb(data + 10, length, 0, NULL);
    assert_non_null(inside);
    json_decref(inside);
    fr__free(html);
}

static void the_comparison_comes_along(void **state)
{
    place home = below(state, "cmp"), run = below(state, "cmp/a"), other = below(state, "free");
    const char *folders[] = {home.path}, *loose[] = {other.path};
    mkdir(home.path, 0777);
    put_run(run.path, 2);
    put_run(other.path, 2);
    place file = put_file(home.path, "compare.json",
                          "{\"title\": \"All of them\", \"cases\": [{\"runs\": [\"a\"]}]}");
    json_t *d = data_of(1, folders, NULL);
    assert_string_equal(text_at(d, "title"), "All of them");
    assert_string_equal(text_at(d, "compare.title"), "All of them");
    assert_string_equal(text_at(d, "runs.0.name"), "a");
    json_decref(d);
    d = data_of(1, loose, &(fr_report_options){.compare = file.path});
    assert_string_equal(text_at(d, "compare.cases.0.runs.0"), "a");
    assert_string_equal(text_at(d, "runs.0.name"), "free");
    json_decref(d);
    d = data_of(0, NULL, &(fr_report_options){.compare = file.path});
    assert_int_equal(length_at(d, "runs"), 0);
    json_decref(d);
    char *text;
    assert_fails(ctx, fr_report_data(ctx, 0, NULL, NULL, &text, NULL), FR_INVALID, "needs a run");
    put_file(home.path, "compare.json", "{\"cases\": []}"); /* all simulated */
    d = data_of(1, folders, NULL);
    assert_int_equal(length_at(d, "runs"), 0);
    json_decref(d);
}

static void broken_files_are_told(void **state)
{
    static const struct {
        const char *file, *text, *says;
    } bad[] = {{"summary.json", "{\n  \"status\": }", "summary.json:2:"},
               {"summary.json", "[]", "summary.json: expected an object"},
               {"trace.json", "{\"traceEvents\": [", "trace.json:1: ends early"},
               {"metrics.jsonl", "{}\n", "metrics.jsonl:1:"},
               {"config.yaml", "parallel: [", "config.yaml:2:"}};
    place run = below(state, "broken");
    const char *folders[] = {run.path};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text;
        size_t n;
        place whole = put_file(run.path, "metrics.jsonl", "");
        place p = put_file(run.path, bad[i].file, bad[i].text);
        assert_fails(ctx, fr_report_data(ctx, 1, folders, NULL, &text, &n), FR_INVALID,
                     bad[i].says);
        assert_null(text);
        remove(p.path);
        remove(whole.path);
    }
}

/* The two placeholders are at their given offsets; with null data it is the live page. */
static void the_page_has_its_holes(void **state)
{
    (void)state;
    size_t n;
    const char *live = fr_report_live_page(&n);
    const fr__page_parts *p = &fr__page;
    assert_int_equal(strlen(live), n);
    assert_int_equal(strncmp(live + p->title - 7, "<title>", 7), 0);
    assert_int_equal(strncmp(live + p->title_end, "</title>", 8), 0);
    assert_int_equal(strncmp(live + p->data - 10, "id=\"data\">null</script>", 23), 0);
    assert_int_equal(p->data_end - p->data, 4);
    assert_null(strstr(live, "<!-- style -->"));
    assert_null(strstr(live, "<!-- script -->"));
    assert_null(strstr(live, "src=\"http"));
}

/* If a new page cannot be written, the old one stays, and no other file is left. */
static void a_full_disk_is_told(void **state)
{
    place run = below(state, "full"), page = below(state, "full/report.html");
    const char *folders[] = {run.path};
    struct rlimit before, small;
    put_run(run.path, 10);
    put_file(run.path, "report.html", "before");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before, small.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    fr_status status = fr_report_write(ctx, 1, folders, NULL, page.path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_fails(ctx, status, FR_IO, "cannot write");
    unsigned char *text;
    size_t n;
    assert_ok(ctx, fr__file_read(ctx, page.path, 100, &text, &n));
    assert_string_equal((char *)text, "before");
    fr__free(text);
    char command[600];
    snprintf(command, sizeof command, "ls -A '%s' | grep -q tmp", run.path);
    assert_int_not_equal(system(command), 0);
    assert_ok(ctx, fr_report_write(ctx, 1, folders, NULL, page.path));
    place nowhere = below(state, "no/such/folder.html");
    assert_fails(ctx, fr_report_write(ctx, 1, folders, NULL, nowhere.path), FR_INVALID, "cannot");
}

static fr_status write_again(fr_ctx *c, void *user)
{
    const char *const *folders = user;
    return fr_report_write(c, 2, folders, NULL, folders[2]);
}

static void survives_without_memory(void **state)
{
    place a = below(state, "memory"), b = below(state, "memory2"), page = below(state, "m.html");
    const char *folders[] = {a.path, b.path, page.path};
    put_run(a.path, 5);
    put_trace(a.path, 3, 5);
    put_metrics(b.path, 3);
    put_file(b.path, "config.yaml", "# plan\nparallel: {stages: 2}\n");
    assert_true(support_walk_memory(write_again, folders) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_run_is_all_there),         cmocka_unit_test(missing_files_are_null),
        cmocka_unit_test(twenty_runs_share_the_events), cmocka_unit_test(hostile_texts_stay_inside),
        cmocka_unit_test(the_comparison_comes_along),   cmocka_unit_test(broken_files_are_told),
        cmocka_unit_test(the_page_has_its_holes),       cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(survives_without_memory),
    };
    return cmocka_run_group_tests(tests, folders_enter, folders_leave);
}
