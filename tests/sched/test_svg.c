/* test_svg.c -- the drawing of a schedule against its clock: every computation has its place and
 * length, none overlap, none are outside; names that need escaping; huge sizes. */
#include "sched/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct block {
    char class[3];
    double x, y, width, height;
} block;

/* The next computation at or after *at; false: none. */
static bool next_block(const char **at, block *b)
{
    while ((*at = strstr(*at, "<rect class=\""))) {
        *at += strlen("<rect class=\"");
        int n =
            sscanf(*at, "%2[fbiw01]\" x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\" rx=\"2\"/>",
                   b->class, &b->x, &b->y, &b->width, &b->height);
        if (n == 5 && b->height > 12) return true; /* smaller ones belong to the legend */
    }
    return false;
}

static void draws_what_the_clock_says(const char *name, int n_stages, int n_micro, int n_batches)
{
    fr_schedule *s = make(name, n_stages, 0, n_micro, n_batches);
    fr_clock c = timed(s, NULL);
    char *text = fr_schedule_to_svg(s, &c, NULL);
    assert_non_null(text);
    const char *at = text;
    block b;
    double scale = 0, left = 0, width = atof(strstr(text, "viewBox=\"0 0 ") + 13);
    for (int w = 0; w < s->n_workers; w++) {
        double end = 0, row = 0;
        for (int i = 0; i < s->lists[w].n; i++) {
            if (s->lists[w].at[i].action > FR_DO_W) continue;
            assert_true(next_block(&at, &b));
            assert_int_equal(b.class[0], "fbiw"[s->lists[w].at[i].action]);
            assert_true(b.x >= end && b.x + b.width <= width);
            assert_true(row == 0 || b.y == row);
            end = b.x + b.width, row = b.y;
            if (scale == 0) scale = b.width + 1, left = b.x; /* the first forward: time 0 to 1 */
            assert_true(fabs(b.x - left - c.start[w][i] * scale) < 0.6);
            assert_true(fabs(b.width + 1 - (c.end[w][i] - c.start[w][i]) * scale) < 0.6);
        }
    }
    assert_false(next_block(&at, &b));
    fr_text_free(text);
    fr_clock_free(&c);
    fr_schedule_free(s);
}

static void to_scale(void **state)
{
    (void)state;
    draws_what_the_clock_says("1f1b", 4, 8, 1);
    draws_what_the_clock_says("gpipe", 3, 1, 1);
    draws_what_the_clock_says("zb-h1", 4, 6, 1);
    draws_what_the_clock_says("zbv", 8, 8, 1);
    draws_what_the_clock_says("dualpipev", 4, 4, 1);
    draws_what_the_clock_says("1f1b-async", 4, 2, 5);
    draws_what_the_clock_says("sequential", 1, 1, 1);
}

/* Two stages per worker: their numbers beside the worker; labels name the stage if there is room,
 * else small letters are the second. */
static void two_stages_a_worker(void **state)
{
    (void)state;
    for (int m = 1; m <= 8; m += 7) {
        fr_schedule *s = make("zbv", 8, 2, m, 1);
        fr_clock c = timed(s, NULL);
        char *text = fr_schedule_to_svg(s, &c, NULL);
        assert_non_null(strstr(text, ">1, 6</text>"));
        assert_int_equal(strstr(text, ">6F0</text>") != NULL, m == 1);
        assert_int_equal(strstr(text, ">f0</text>") != NULL, m == 8);
        assert_int_equal(strstr(text, "small letters: second stage") != NULL, m == 8);
        fr_text_free(text);
        fr_clock_free(&c);
        fr_schedule_free(s);
    }
}

static void names_are_escaped(void **state)
{
    (void)state;
    fr_schedule *s = make("1f1b", 2, 1, 2, 1);
    fr_clock c = timed(s, NULL);
    snprintf(s->name, sizeof s->name, "a<b&c");
    char *text = fr_schedule_to_svg(s, &c, NULL);
    assert_non_null(strstr(text, "a&lt;b&amp;c"));
    assert_null(strstr(text, "a<b"));
    fr_text_free(text);
    fr_clock_free(&c);
    fr_schedule_free(s);
}

static void long_ones_are_cut(void **state)
{
    (void)state;
    fr_schedule *s = make("1f1b", 4, 1, 3000, 1);
    fr_clock c = timed(s, NULL);
    char *text = fr_schedule_to_svg(s, &c, NULL);
    assert_non_null(strstr(text, "cut off at time 2000"));
    assert_true(strlen(text) < 3000000);
    fr_text_free(text);
    fr_clock_free(&c);
    fr_schedule_free(s);
}

static void note(void *user, int w, int i, char *text, size_t room)
{
    snprintf(text, room, "%s%d.%d", (const char *)user, w, i);
}

static void notes_are_there(void **state)
{
    (void)state;
    static char mark[] = "n";
    fr_schedule *s = make("1f1b", 2, 1, 2, 1);
    fr_clock c = timed(s, NULL);
    fr_notes notes = {.text = note, .user = mark, .legend = "what they mean"};
    char *text = fr_schedule_to_svg(s, &c, &notes), *bare = fr_schedule_to_svg(s, &c, NULL);
    assert_non_null(strstr(text, "weights n0.0<"));
    assert_non_null(strstr(text, ">n0.0</text>"));
    assert_non_null(strstr(text, "what they mean"));
    assert_null(strstr(bare, "what they mean"));
    fr_text_free(text);
    fr_text_free(bare);
    fr_clock_free(&c);
    fr_schedule_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(to_scale),          cmocka_unit_test(two_stages_a_worker),
        cmocka_unit_test(names_are_escaped), cmocka_unit_test(long_ones_are_cut),
        cmocka_unit_test(notes_are_there),
    };
    ctx = fr_ctx_create();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
