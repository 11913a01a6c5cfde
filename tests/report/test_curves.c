/* test_curves.c -- metrics.jsonl as curves: few lines unchanged, a million merged, all kinds of
 * lines, and incomplete ones. */
#include "report/curves.h"

#include "report/folders.h"
#include "report/reader.h"

#include <math.h>

static fr_status read_text(void **state, const char *text, int max_points, fr__curves *c)
{
    place p = put_file(*state, "metrics.jsonl", text);
    return fr__curves_read(ctx, p.path, max_points, c);
}

static void few_lines_are_points(void **state)
{
    fr__curves c;
    assert_ok(ctx, read_text(state,
                             "{\"step\": 1, \"samples\": 8, \"loss\": 2.5, \"lr\": 1e-3, "
                             "\"samples_per_s\": 100, \"elapsed_s\": 0.25}\n"
                             "{\"step\": 2, \"samples\": 16, \"loss\": null, \"lr\": 2e-3, "
                             "\"samples_per_s\": 200, \"elapsed_s\": 0.5, \"grad_norm\": 7, "
                             "\"eval_loss\": 1.5, \"eval_accuracy\": 0.5}\n",
                             10, &c));
    assert_int_equal(c.n_steps, 2);
    assert_int_equal(c.n_points, 2);
    assert_true(c.points[0].step == 1 && c.points[1].samples == 16);
    assert_true(c.points[0].low == 2.5 && c.points[0].high == 2.5);
    assert_true(c.points[0].sum[FR_MEAN_LOSS] == 2.5 && c.points[0].n[FR_MEAN_LOSS] == 1);
    assert_true(isnan(c.points[1].low) && c.points[1].n[FR_MEAN_LOSS] == 0);
    assert_true(c.points[1].sum[FR_MEAN_LR] == 2e-3 && c.points[1].sum[FR_MEAN_RATE] == 200);
    assert_true(c.points[0].n[FR_MEAN_NORM] == 0 && c.points[1].sum[FR_MEAN_NORM] == 7);
    assert_int_equal(c.evals.n, 1);
    assert_true(c.evals.at[0].step == 2 && c.evals.at[0].accuracy == 0.5);
    fr__curves_fini(&c);
}

/* Each point against the mean of its range, by the formula of the lines. */
static void a_million_lines_become_few_points(void **state)
{
    enum { N = 1000000, MOST = 1000 };
    fr__curves c;
    put_metrics(*state, N);
    place p = below(state, "metrics.jsonl");
    uint64_t before = fr__alloc_count();
    assert_ok(ctx, fr__curves_read(ctx, p.path, MOST, &c));
    assert_true(fr__alloc_count() - before < 10); /* memory does not follow the file */
    assert_int_equal(c.n_steps, N);
    assert_true(c.n_points > MOST / 2 && c.n_points <= MOST);
    int64_t first = 1;
    for (int i = 0; i < c.n_points; i++) {
        const fr__point *q = &c.points[i];
        double sum = 0;
        assert_true(q->n_steps == c.stretch || i == c.n_points - 1);
        for (int64_t k = first; k < first + q->n_steps; k++) sum += 1.0 / (double)k;
        assert_true(fabs(q->sum[FR_MEAN_LOSS] - sum) < 1e-9 * sum);
        assert_true(q->n[FR_MEAN_LOSS] == q->n_steps);
        assert_true(fabs(q->high - 1.0 / (double)first) < 1e-12);
        first += q->n_steps;
        assert_true(q->step == (double)(first - 1) && q->elapsed_s == 0.125 * q->step);
        assert_true(fabs(q->low - 1.0 / (double)(first - 1)) < 1e-12);
    }
    assert_int_equal(first, N + 1);
    fr__curves_fini(&c);
    remove(p.path);
}

/* For all lengths around those at which points are merged. */
static void no_line_is_lost(void **state)
{
    for (int n = 0; n < 70; n++) {
        fr__curves c;
        int64_t n_steps = 0;
        put_metrics(*state, n);
        assert_ok(ctx, fr__curves_read(ctx, below(state, "metrics.jsonl").path, 7, &c));
        assert_true(c.n_points <= 7 && c.n_steps == n);
        for (int i = 0; i < c.n_points; i++) n_steps += c.points[i].n_steps;
        assert_int_equal(n_steps, n);
        if (n) assert_true(c.points[c.n_points - 1].step == n);
        fr__curves_fini(&c);
    }
}

static void a_torn_line_is_left_out(void **state)
{
    static const char *const ends[] = {"{\"step\": 2, \"lo", "{", "{\"step\": 2, \"loss\": 1.",
                                       "{\"step"};
    char text[256];
    fr__curves c;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(text, sizeof text, "{\"step\": 1, \"loss\": 1}\n%s", ends[i]);
        assert_ok(ctx, read_text(state, text, 10, &c));
        assert_int_equal(c.n_steps, 1);
        fr__curves_fini(&c);
    }
    /* Complete except for the end of its line. */
    assert_ok(ctx, read_text(state, "{\"step\": 1}\n{\"step\": 2}", 10, &c));
    assert_int_equal(c.n_steps, 2);
    fr__curves_fini(&c);
    assert_ok(ctx, read_text(state, "", 10, &c));
    assert_int_equal(c.n_steps, 0);
    fr__curves_fini(&c);
}

static void bad_lines_are_told(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"{\"step\": 1}\n{\"step\": 2, \"lo\n{\"step\": 3}\n", "metrics.jsonl:2: "},
               {"{\"step\": 1}\n\n{\"step\": 3}\n", "metrics.jsonl:2: "},
               {"{\"step\": 1}\n{\"step\": 2} x\n", "metrics.jsonl:2: "},
               {"{\"step\": 1}\n{\"step\": 1.2.3}\n", "metrics.jsonl:2: "},
               {"{\"step\": 1}\n{\"step\": nul}\n", "metrics.jsonl:2: "},
               {"{\"step\": 1}\n{\"step\": 2,}\n", "metrics.jsonl:2: "},
               {"[1]\n", "metrics.jsonl:1: expected the numbers of a mini-batch: expected an obj"},
               {"{\"loss\": 1}\n", "metrics.jsonl:1: a mini-batch without its step"}};
    fr__curves c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(ctx, read_text(state, bad[i].text, 10, &c), FR_INVALID, bad[i].says);
    char *line = calloc(1, 400000);
    assert_non_null(line);
    memset(line, ' ', 399999);
    assert_fails(ctx, read_text(state, line, 10, &c), FR_INVALID,
                 "metrics.jsonl:1: no end of line");
    free(line);
}

/* Jansson reads the lines that the fast path does not support. */
static void any_json_will_do(void **state)
{
    static const char *const lines[] = {
        "{\"\\u0073tep\": 4, \"loss\": 0.5}\n", "{\"step\": 4, \"tags\": [1, 2], \"loss\": 0.5}\n",
        "  { \"step\" :4 , \"loss\":5E-1 , \"x\": {\"y\": \"}\"}, \"t\": true}\r\n",
        "{\"note\": \"a \\\" quote\", \"loss\": 0.5, \"step\": 4}\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        fr__curves c;
        assert_ok(ctx, read_text(state, lines[i], 10, &c));
        assert_true(c.n_points == 1 && c.points[0].step == 4);
        assert_true(c.points[0].low == 0.5);
        fr__curves_fini(&c);
    }
}

static void many_evaluations_are_thinned(void **state)
{
    enum { N = 1000, MOST = 16 };
    place p = put_file(*state, "metrics.jsonl", "");
    for (int n = 1; n <= N; n += n < 40 ? 1 : 67) {
        fr__curves c;
        FILE *f = fopen(p.path, "w");
        for (int i = 1; i <= n; i++) fprintf(f, "{\"step\": %d, \"eval_loss\": %d}\n", i, i);
        fclose(f);
        assert_ok(ctx, fr__curves_read(ctx, p.path, MOST, &c));
        assert_true(c.evals.n <= MOST && (n > MOST || c.evals.n == (size_t)n));
        assert_true(n <= MOST || c.evals.n >= MOST / 2);
        assert_true(c.evals.at[0].step == 1 && c.evals.at[c.evals.n - 1].step == n);
        for (size_t i = 1; i + 1 < c.evals.n; i++)
            assert_true(c.evals.at[i].step == 1 + (double)(c.eval_stride * (int64_t)i));
        fr__curves_fini(&c);
    }
}

/* Numbers against strtod, over all magnitudes. */
static void numbers_are_read(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < 100000; i++) {
        char text[64];
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        double v;
        memcpy(&v, &seed, sizeof v);
        if (!isfinite(v)) continue;
        int n = snprintf(text, sizeof text, "{\"x\": %.*g}", 1 + i % 17, v);
        double want = strtod(text + 6, NULL);
        fr__fields f;
        fr__field field;
        fr__fields_open(&f, text, (size_t)n);
        assert_true(fr__fields_next(&f, &field));
        /* pow rounds once, and numbers far out use it twice */
        double slack = 8 * 0x1p-53 * fabs(want) + 0x1p-1074;
        if (!(fabs(field.real - want) <= slack) && isfinite(want))
            fail_msg("%s: %.17g, expected %.17g", text, field.real, want);
        assert_false(fr__fields_next(&f, &field));
        assert_true(f.is_over && !f.failed);
    }
}

/* Any file is read or refused, equally by the fast path and by Jansson. */
static void noise_is_survived(void **state)
{
    static const char line[] =
        "{\"step\": 12, \"loss\": 2.5e-3, \"lr\": null, \"grad_norm\": -7.25, "
        "\"x\": {\"y\": \"\\u0041\"}, \"eval_loss\": 1}";
    int n_read = 0, n_same = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        char noisy[2 * sizeof line];
        fr__curves c;
        spoil(line, seed, noisy, sizeof noisy - 1);
        json_t *o = strchr(noisy, '\n') ? NULL : json_loads(noisy, JSON_REJECT_DUPLICATES, NULL);
        strcat(noisy, "\n");
        fr_status status = read_text(state, noisy, 4, &c);
        assert_true(status == FR_OK || status == FR_INVALID);
        fr_ctx_clear(ctx);
        n_read += status == FR_OK;
        const json_t *step = json_object_get(o, "step"), *loss = json_object_get(o, "loss");
        if (json_is_number(step) && json_is_number(loss)) {
            assert_int_equal(status, FR_OK);
            double want = json_number_value(loss);
            assert_true(c.points[0].step == json_number_value(step));
            assert_true(fabs(c.points[0].low - want) <= 1e-15 * fabs(want));
            n_same++;
        }
        json_decref(o);
        if (status == FR_OK) fr__curves_fini(&c);
    }
    assert_true(n_same > 20 && n_read < 1600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_lines_are_points),
        cmocka_unit_test(a_million_lines_become_few_points),
        cmocka_unit_test(no_line_is_lost),
        cmocka_unit_test(a_torn_line_is_left_out),
        cmocka_unit_test(bad_lines_are_told),
        cmocka_unit_test(any_json_will_do),
        cmocka_unit_test(many_evaluations_are_thinned),
        cmocka_unit_test(numbers_are_read),
        cmocka_unit_test(noise_is_survived),
    };
    return cmocka_run_group_tests(tests, folders_enter, folders_leave);
}
