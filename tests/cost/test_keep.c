/* test_keep.c -- the cheapest nodes to recompute: against every subset of small stages, whose bytes
 * are counted here set by set and area by area, and against a table over seconds for long ones. */
#include "cost/keep.h"

#include "base/philox.h"
#include "support/check.h"

#include <math.h>
#include <string.h>

enum { MOST = 14, LONG = 300 };

static struct {
    uint64_t number;
    uint32_t drawn;
} dice;

static int roll(int least, int most)
{
    uint32_t out[4];
    fr__random4(11, FR_STREAM_SAMPLE, 3, dice.number, dice.drawn++, out);
    return least + (int)(out[0] % (uint32_t)(most - least + 1));
}

struct model {
    fr_profile_node nodes[LONG + 1];
    int inputs[LONG + 1][2];
};

/* An input and n nodes, each of which reads the one before it and sometimes another of the last
 * eight. */
static const fr_profile *draw_profile(fr_ctx *ctx, struct model *m, int n, bool is_measured)
{
    memset(m, 0, sizeof *m);
    m->nodes[0] = (fr_profile_node){.is_input = true, .output_bytes = 3};
    for (int i = 1; i <= n; i++) {
        fr_profile_node *node = &m->nodes[i];
        node->output_bytes = roll(1, 9), node->param_bytes = roll(0, 1);
        node->kept_bytes = roll(0, 2) ? node->output_bytes + roll(0, 1) * roll(0, 9) : roll(0, 1);
        node->forward_s = roll(1, 20), node->backward_s = 1;
        if (is_measured) node->values_bytes = 1;
        if (is_measured && i > 1 && roll(0, 3) == 0) /* part of the kernel before it */
            node->forward_s = node->backward_s = 0, node->values_bytes = 0;
        m->inputs[i][0] = i - 1, m->inputs[i][1] = roll(i > 8 ? i - 8 : 0, i - 1);
        node->inputs = m->inputs[i];
        node->n_inputs = m->inputs[i][1] < i - 1 && roll(0, 2) == 0 ? 2 : 1;
    }
    const fr_profile *p;
    const fr_profile by_hand = {.n_nodes = n + 1, .nodes = m->nodes};
    assert_ok(ctx, fr_profile_copy(ctx, &by_hand, &p));
    return p;
}

/* --- the engine's allocation, value by value -------------------------------------------------- */

static bool is_read_behind(const fr_profile *p, int node, int last)
{
    bool is_read = false, is_used = false;
    for (int i = node + 1; i < p->n_nodes; i++)
        for (int k = 0; k < p->nodes[i].n_inputs; k++) {
            is_used = is_used || p->nodes[i].inputs[k] == node;
            is_read = is_read || (i >= last && p->nodes[i].inputs[k] == node);
        }
    return is_read || !is_used;
}

static bool is_read_again(const fr_profile *p, int node, int last, const bool *again)
{
    for (int i = node + 1; i < last; i++)
        for (int k = 0; k < p->nodes[i].n_inputs; k++)
            if (again[i] && p->nodes[i].inputs[k] == node) return true;
    return false;
}

static double count(const fr__keep_stage *s, const bool *again)
{
    int64_t slot = 0, area = 0;
    for (int i = s->first; i < s->last; i++) {
        const fr_profile_node *n = &s->profile->nodes[i];
        if (n->is_input) continue;
        const bool is_output = is_read_behind(s->profile, i, s->last);
        const bool has_output = n->kept_bytes >= n->output_bytes;
        int64_t inner = n->kept_bytes - (is_output && has_output ? n->output_bytes : 0);
        if (s->is_split && n->param_bytes > 0) inner += n->output_bytes;
        if (is_output) slot += n->output_bytes;
        if (again[i]) {
            area += inner + (is_output ? n->output_bytes : 0);
            continue;
        }
        slot += inner;
        if (!is_output && !has_output && is_read_again(s->profile, i, s->last, again))
            slot += n->output_bytes;
    }
    return (double)(s->n_sets * slot + s->n_areas * area);
}

static bool is_whole(const fr__keep_stage *s, const bool *again)
{
    for (int i = s->first + 1; i < s->last; i++) {
        const fr_profile_node *n = &s->profile->nodes[i];
        bool is_part = n->forward_s == 0 && n->n_inputs > 0 && i > 1;
        if (is_part && again[i] != again[i - 1]) return false;
    }
    return true;
}

static double least_of_all(const fr__keep_stage *s, double room)
{
    double least = INFINITY;
    const int n = s->last - s->first;
    for (int mask = 0; mask < 1 << n; mask++) {
        bool again[MOST + 2] = {false};
        double seconds = 0;
        for (int i = s->first; i < s->last; i++) {
            again[i] = mask >> (i - s->first) & 1;
            seconds += again[i] ? s->profile->nodes[i].forward_s : 0;
        }
        if (seconds < least && is_whole(s, again) && count(s, again) <= room) least = seconds;
    }
    return least;
}

static void equals_enumeration(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    int n_partial = 0, n_none = 0;
    for (int round = 0; round < 600; round++) {
        dice.number = (uint64_t)round, dice.drawn = 0;
        struct model m;
        const int n = roll(1, round % 30 == 0 ? MOST : 9);
        const fr_profile *p = draw_profile(ctx, &m, n, round % 3 == 0);
        fr__keep_stage s = {.profile = p,
                            .first = roll(0, 1),
                            .last = n + 1 - (n > 3 ? roll(0, 2) : 0),
                            .n_sets = roll(1, 5),
                            .is_split = roll(0, 3) == 0};
        s.n_areas = roll(0, s.n_sets < 3 ? s.n_sets : 3);
        bool again[MOST + 2] = {false};
        fr__keep_set set = {.recompute = again};
        const double whole = count(&s, again), room = floor(whole * roll(10, 105) / 100);
        assert_true(fr__keep_bytes(&s, NULL) == whole);
        assert_ok(ctx, fr__keep_in_stage(ctx, &s, room, &set));
        const double least = least_of_all(&s, room);
        if (set.seconds != least)
            fail_msg("case %d: %g s recomputed, the least of all subsets is %g", round, set.seconds,
                     least);
        assert_true(set.is_least);
        double seconds = isfinite(least) ? 0 : INFINITY;
        for (int i = s.first; i < s.last; i++) seconds += again[i] ? p->nodes[i].forward_s : 0;
        n_partial += seconds > 0 && isfinite(least), n_none += !isfinite(least);
        assert_true(seconds == least && is_whole(&s, again));
        assert_true(count(&s, again) <= room || !isfinite(least));
        assert_true(count(&s, again) == fr__keep_bytes(&s, again));
        fr_profile_free(p);
    }
    assert_true(n_partial > 200 && n_none > 20); /* the cases are cases */
    fr_ctx_free(ctx);
}

/* Whole seconds: the most bytes for so many seconds, by a table. */
static void equals_a_table_for_300_nodes(void **state)
{
    (void)state;
    enum { MOST_S = 20 * LONG };
    static fr__keep_node nodes[LONG];
    static double most[MOST_S + 1];
    static bool again[LONG];
    fr_ctx *ctx = fr_ctx_create();
    for (int round = 0; round < 10; round++) {
        dice.number = (uint64_t)(1000 + round), dice.drawn = 0;
        double sum = 0, least = INFINITY;
        memset(most, 0, sizeof most);
        for (int i = 0; i < LONG; i++) {
            int seconds = roll(1, 20), bytes = roll(1, 1000000);
            nodes[i] = (fr__keep_node){.seconds = seconds, .freed = bytes};
            sum += bytes;
            for (int t = MOST_S; t >= seconds; t--)
                most[t] = fmax(most[t], most[t - seconds] + bytes);
        }
        const double to_free = floor(sum * (round + 1) / 12);
        for (int t = MOST_S; t >= 0; t--)
            if (most[t] >= to_free) least = t;
        fr__keep_set set = {.recompute = again};
        assert_ok(ctx, fr__keep_least(ctx, LONG, nodes, to_free, &set));
        assert_true(set.is_least);
        if (set.seconds != least) fail_msg("%g s, by the table %g", set.seconds, least);
    }
    fr_ctx_free(ctx);
}

/* Models of many alike layers with times that differ a little, as they are measured. */
static void proves_300_measured_nodes(void **state)
{
    (void)state;
    static struct model m;
    static bool again[LONG + 1];
    fr_ctx *ctx = fr_ctx_create();
    dice.number = 2000, dice.drawn = 0;
    const fr_profile *p = draw_profile(ctx, &m, LONG, true);
    for (int i = 1; i <= LONG; i++)
        if (p->nodes[i].forward_s > 0) p->nodes[i].forward_s *= 1 + 1e-4 * roll(0, 1000);
    fr__keep_stage s = {.profile = p, .last = LONG + 1, .n_sets = 4, .n_areas = 1};
    const double none = fr__keep_bytes(&s, NULL);
    for (int tenth = 3; tenth <= 10; tenth++) {
        fr__keep_set set = {.recompute = again};
        assert_ok(ctx, fr__keep_in_stage(ctx, &s, none * tenth / 10, &set));
        assert_true(set.is_least);
        assert_true(!isfinite(set.seconds) || fr__keep_bytes(&s, again) <= none * tenth / 10);
    }
    fr_profile_free(p);
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_enumeration),
        cmocka_unit_test(equals_a_table_for_300_nodes),
        cmocka_unit_test(proves_300_measured_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
