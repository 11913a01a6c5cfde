/* test_balance.c -- cuts against brute force on small random graphs, cuts by name, and the links
 * between stages. Every model of the registry is cut in tests/models/test_cuts.c. */
#include "base/alloc.h"
#include "base/philox.h"
#include "graph/common.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { MAX_NODES = 16, MAX_STAGES = 6 };

static uint32_t draw(uint32_t seed, uint32_t i)
{
    uint32_t r[4];
    fr__random4(seed, FR_STREAM_SYNTHETIC, 7, i, 0, r);
    return r[0];
}

/* A chain with skips: linear layers of random width, activations, additions of an earlier value of
 * the same shape, inputs in between. */
static world random_graph(uint32_t seed, bool with_skips)
{
    world w = world_create();
    int n = 4 + (int)(draw(seed, 0) % 8);
    int at = add_input(w.g, "x", FR_SHAPE(4), FR_F32);
    for (int i = 1; i <= n; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        uint32_t kind = draw(seed, (uint32_t)(2 * i)) % 8, r = draw(seed, (uint32_t)(2 * i + 1));
        int other = (int)(r % (uint32_t)(at + 1));
        if (kind == 0) {
            char input[16];
            snprintf(input, sizeof input, "in%d", i);
            add_input(w.g, input, FR_SHAPE(3), FR_F32);
        }
        if (kind < 3)
            at = ADD(w.g, kind == 1 ? FR_OP_RELU : FR_OP_DROPOUT, name, NULL, at);
        else if (with_skips && kind < 5 && other != at &&
                 fr_graph_node(w.g, other)->shape.dim[0] == fr_graph_node(w.g, at)->shape.dim[0])
            at = ADD(w.g, FR_OP_ADD, name, NULL, at, other);
        else
            at = add_linear(w.g, name, 1 + (int64_t)(r % 3) * 3, at);
    }
    int target = add_input(w.g, "target", (fr_shape){0}, FR_I32);
    at = add_linear(w.g, "last", 5, at);
    ADD(w.g, FR_OP_CROSS_ENTROPY, "loss", NULL, at, target);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    return w;
}

/* --- balance against brute force ------------------------------------------------------------- */

/* The criteria of a partition, in this order. */
typedef struct score {
    int n_flaws;
    double work, bytes;
} score;

static int compare(score a, score b)
{
    if (a.n_flaws != b.n_flaws) return a.n_flaws < b.n_flaws ? -1 : 1;
    if (a.work < b.work * (1 - 1e-12) || a.work > b.work * (1 + 1e-12))
        return a.work < b.work ? -1 : 1;
    return (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static double works[MAX_NODES]; /* by node */

static score judge(const fr_graph *g, int n_cuts, const int *cuts)
{
    score s = {0};
    for (int k = 0; k <= n_cuts; k++) {
        int first = k ? cuts[k - 1] : 0, last = k < n_cuts ? cuts[k] : fr_graph_n_nodes(g);
        double work = 0;
        bool has_params = false;
        for (int i = first; i < last; i++) {
            work += works[i];
            has_params |= fr_graph_node(g, i)->n_params > 0;
        }
        s.n_flaws += !has_params;
        s.n_flaws += k && fr_graph_node(g, first)->op == FR_OP_RELU &&
                     fr_graph_node(g, first)->inputs[0] == first - 1;
        if (work > s.work) s.work = work;
        if (k) s.bytes += (double)fr_graph_cut_bytes(g, first);
    }
    return s;
}

/* A second implementation of the measure. */
static double work_of(const fr_graph *g, int node)
{
    const fr_node *n = fr_graph_node(g, node);
    double bytes = 4 * (double)fr_shape_count(&n->shape), per_byte = 0;
    if (n->op == FR_OP_INPUT) return 0;
    for (int i = 0; i < n->n_inputs; i++)
        bytes += 4 * (double)fr_shape_count(&fr_graph_node(g, n->inputs[i])->shape);
    if (n->op == FR_OP_RELU) per_byte = 2;
    if (n->op == FR_OP_DROPOUT) per_byte = 32;
    if (n->op == FR_OP_ADD) per_byte = 1;
    if (n->op == FR_OP_CROSS_ENTROPY) per_byte = 15;
    return n->flops_forward + n->flops_back_input + n->flops_back_weight +
           per_byte * bytes * (n->needs_grad ? 3 : 1);
}

static score best_of_all(fr_graph *g, int n_stages,
                         score (*judge_one)(const fr_graph *, int, const int *))
{
    int n = fr_graph_n_nodes(g), cuts[MAX_STAGES];
    score best = {1000, DBL_MAX, DBL_MAX};
    for (int set = 0; set < 1 << (n - 1); set++) {
        int n_cuts = 0;
        if (__builtin_popcount((unsigned)set) != n_stages - 1) continue;
        for (int i = 1; i < n; i++)
            if (set >> (i - 1) & 1) cuts[n_cuts++] = i;
        bool is_legal = true;
        for (int k = 0; k <= n_cuts; k++) {
            bool has_work = false;
            for (int i = k ? cuts[k - 1] : 0; i < (k < n_cuts ? cuts[k] : n); i++)
                has_work |= fr_graph_node(g, i)->op != FR_OP_INPUT;
            is_legal &= has_work;
        }
        score s = judge_one(g, n_cuts, cuts);
        if (is_legal && compare(s, best) < 0) best = s;
    }
    return best;
}

static void equals_brute_force(void **state)
{
    (void)state;
    int n_compared = 0;
    for (uint32_t seed = 0; seed < 60; seed++) {
        world w = random_graph(seed, seed % 2);
        int n = fr_graph_n_nodes(w.g);
        if (n > MAX_NODES) n = 0; /* too many to try them all */
        for (int i = 0; i < n; i++) works[i] = work_of(w.g, i);
        for (int stages = 1; n && stages <= MAX_STAGES; stages++) {
            int cuts[MAX_STAGES];
            fr_stage s[MAX_STAGES];
            if (fr_graph_balance(w.g, stages, cuts) != FR_OK) {
                assert_says(w.ctx, "computing nodes", "stages are possible");
                fr_ctx_clear(w.ctx);
                continue;
            }
            assert_int_equal(fr_graph_cut(w.g, stages - 1, cuts, s), FR_OK);
            score got = judge(w.g, stages - 1, cuts), best = best_of_all(w.g, stages, judge);
            if (compare(got, best) != 0)
                fail_msg("seed %u, %d stages: %d flaws, work %g, %g bytes; possible %d, %g, %g",
                         seed, stages, got.n_flaws, got.work, got.bytes, best.n_flaws, best.work,
                         best.bytes);
            n_compared++;
        }
        world_free(&w);
    }
    assert_true(n_compared > 150);
}

/* --- a V: stages s and n - 1 - s are on one worker -------------------------------------------- */

/* work: of the slowest worker, plus an eighth of the difference of its stages. */
static score judge_v(const fr_graph *g, int n_cuts, const int *cuts)
{
    double work[MAX_STAGES] = {0};
    score s = judge(g, n_cuts, cuts);
    for (int k = 0; k <= n_cuts; k++)
        for (int i = k ? cuts[k - 1] : 0; i < (k < n_cuts ? cuts[k] : fr_graph_n_nodes(g)); i++)
            work[k] += works[i];
    s.work = 0;
    for (int k = 0; k < (n_cuts + 1) / 2; k++) {
        double a = work[k], b = work[n_cuts - k];
        s.work = fmax(s.work, a + b + fabs(a - b) / 8);
    }
    return s;
}

/* The slowest worker of two is within 1/64 of the best; of more it is no slower than with balanced
 * stages, which are the answer where flaws cannot be avoided. */
static void a_v_is_near_brute_force(void **state)
{
    (void)state;
    int n_compared = 0, n_better = 0;
    for (uint32_t seed = 0; seed < 60; seed++) {
        world w = random_graph(seed, seed % 2);
        int n = fr_graph_n_nodes(w.g);
        if (n > MAX_NODES) n = 0;
        for (int i = 0; i < n; i++) works[i] = work_of(w.g, i);
        for (int stages = 2; n && stages <= MAX_STAGES; stages += 2) {
            int cuts[MAX_STAGES], plain[MAX_STAGES];
            fr_stage s[MAX_STAGES];
            if (fr_graph_balance(w.g, stages, plain) != FR_OK) {
                assert_int_equal(fr_graph_balance_v(w.g, stages, cuts), FR_INVALID);
                fr_ctx_clear(w.ctx);
                continue;
            }
            assert_int_equal(fr_graph_balance_v(w.g, stages, cuts), FR_OK);
            assert_int_equal(fr_graph_cut(w.g, stages - 1, cuts, s), FR_OK);
            score got = judge_v(w.g, stages - 1, cuts), before = judge_v(w.g, stages - 1, plain);
            score best = best_of_all(w.g, stages, judge_v);
            assert_int_equal(got.n_flaws, best.n_flaws);
            if (best.n_flaws > 0) {
                assert_memory_equal(cuts, plain, sizeof(int) * (size_t)(stages - 1));
                continue;
            }
            if (got.work > before.work ||
                (stages <= 4 && got.work > best.work * (1 + 1.0 / 64) * (1 + 1e-12)))
                fail_msg("seed %u, %d stages: work %g, possible %g", seed, stages, got.work,
                         best.work);
            n_better += got.work < before.work;
            n_compared++;
        }
        world_free(&w);
    }
    assert_true(n_compared > 50);
    assert_true(n_better > 15);
}

static void a_v_balances_workers(void **state)
{
    (void)state;
    /* Seven equal layers have 20 units of work, since the first one makes no gradient of its input.
     * Balanced stages leave 8 and 12 to the workers; 11 and 9 are possible. */
    const int64_t widths[] = {64, 64, 64, 64, 64, 64, 64};
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(64), FR_F32), cuts[3];
    for (int i = 0; i < 7; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        x = add_linear(w.g, name, widths[i], x);
    }
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    for (int i = 0; i < 8; i++) works[i] = work_of(w.g, i);
    assert_int_equal(fr_graph_balance_v(w.g, 4, cuts), FR_OK);
    score got = judge_v(w.g, 3, cuts), best = best_of_all(w.g, 4, judge_v);
    assert_true(got.work <= best.work * (1 + 1.0 / 64));
    assert_int_equal(fr_graph_balance(w.g, 4, cuts), FR_OK);
    assert_true(judge_v(w.g, 3, cuts).work > 1.05 * got.work);
    for (int n = 0; n < 3; n++) {
        fr__alloc_fail_after(n);
        fr_status status = fr_graph_balance_v(w.g, 4, cuts);
        fr__alloc_fail_after(-1);
        assert_int_equal(status, n < 2 ? FR_NO_MEMORY : FR_OK);
        fr_ctx_clear(w.ctx);
    }
    world_free(&w);
}

static void too_many_stages_are_refused(void **state)
{
    (void)state;
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(4), FR_F32), cuts[8];
    x = ADD(w.g, FR_OP_RELU, "r", NULL, add_linear(w.g, "a", 4, x));
    assert_int_equal(fr_graph_balance(w.g, 1, cuts), FR_INVALID);
    assert_says(w.ctx, "must be finished", "");
    fr_ctx_clear(w.ctx);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    assert_int_equal(fr_graph_balance(w.g, 1, cuts), FR_OK);
    assert_int_equal(fr_graph_balance(w.g, 2, cuts), FR_OK);
    assert_int_equal(cuts[0], 2); /* a stage without parameters is unavoidable */
    for (int n = 0; n <= 3; n += 3) {
        assert_int_equal(fr_graph_balance(w.g, n, cuts), FR_INVALID);
        assert_says(w.ctx, "it has 2 computing nodes", "1 to 2 stages are possible");
        fr_ctx_clear(w.ctx);
    }
    for (int n = 0; n < 3; n++) {
        fr__alloc_fail_after(n);
        fr_status status = fr_graph_balance(w.g, 2, cuts);
        fr__alloc_fail_after(-1);
        assert_int_equal(status, n == 0 ? FR_NO_MEMORY : FR_OK); /* all of it fits one chunk */
        fr_ctx_clear(w.ctx);
    }
    world_free(&w);
}

/* --- cuts by name ---------------------------------------------------------------------------- */

static void cuts_by_name(void **state)
{
    (void)state;
    const struct {
        const char *names[3];
        const char *says, *says_too;
    } cases[] = {
        {{"b"}, NULL, NULL},
        {{"b", "c", "loss"}, NULL, NULL},
        {{"b", "target"}, NULL, NULL}, /* a cut before an input that the stage uses is equivalent */
        {{"z"}, "no node \"z\"", "forerun models test"},
        {{"x"}, "cut \"x\"", "first possible node here is \"b\""},
        {{"a"}, "cut \"a\"", "first possible node here is \"b\""},
        {{"c", "b"}, "cut \"b\"", "does not come after cut \"c\""},
        {{"b", "b"}, "cut \"b\"", "name each once"},
        {{"b", "loss", "loss"}, "cut \"loss\"", "name each once"},
        {{"target", "loss"}, "begins at \"loss\"", "remove this cut"},
    };
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(4), FR_F32), cuts[3];
    x = add_linear(w.g, "c", 4, add_linear(w.g, "b", 4, add_linear(w.g, "a", 4, x)));
    int target = add_input(w.g, "target", (fr_shape){0}, FR_I32);
    ADD(w.g, FR_OP_CROSS_ENTROPY, "loss", NULL, x, target);
    assert_int_equal(fr_graph_find_cuts(w.g, 1, cases[0].names, cuts), FR_INVALID);
    assert_says(w.ctx, "must be finished", "");
    fr_ctx_clear(w.ctx);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = 0;
        fr_stage s[4];
        while (n < 3 && cases[i].names[n]) n++;
        fr_status status = fr_graph_find_cuts(w.g, n, cases[i].names, cuts);
        if (cases[i].says) {
            assert_int_equal(status, FR_INVALID);
            assert_says(w.ctx, cases[i].says, cases[i].says_too);
            fr_ctx_clear(w.ctx);
            continue;
        }
        if (status != FR_OK) fail_msg("case %zu: %s", i, fr_ctx_error(w.ctx));
        for (int k = 0; k < n; k++)
            assert_int_equal(cuts[k], fr_graph_find(w.g, cases[i].names[k]));
        assert_int_equal(fr_graph_cut(w.g, n, cuts, s), FR_OK);
    }
    assert_int_equal(fr_graph_find_cuts(w.g, 0, NULL, cuts), FR_OK);
    world_free(&w);
}

/* --- links ----------------------------------------------------------------------------------- */

static void assert_links(int n, const fr_stage_link *links, const char *expected)
{
    char text[128] = "", *at = text;
    for (int i = 0; i < n; i++)
        at += sprintf(at, "%s%d>%d", i ? " " : "", links[i].from, links[i].to);
    assert_string_equal(text, expected);
}

/*  0 x --> 2 a --> 3 b --> 4 c --> 5 d (adds a) --> 6 e (adds a) --> 7 f (adds data) --> 9 loss
 *     \--> 1 data, a relu of an input: it has no gradient                8 target */
static void links_follow_values_and_relay_gradients(void **state)
{
    (void)state;
    const struct {
        int n_cuts, cuts[6];
        const char *forward, *backward;
    } cases[] = {
        {0, {0}, "", ""},
        {1, {4}, "0>1", "1>0"},
        {2, {4, 5}, "0>1 0>2 1>2", "1>0 2>0 2>1"},
        {3, {4, 5, 6}, "0>1 0>2 0>3 1>2 2>3", "1>0 2>0 2>1 3>2"},
        {4, {3, 4, 5, 6}, "0>1 0>3 0>4 1>2 2>3 3>4", "1>0 2>1 3>1 3>2 4>3"},
        {5, {3, 4, 5, 6, 7}, "0>1 0>3 0>4 0>5 1>2 2>3 3>4 4>5", "1>0 2>1 3>1 3>2 4>3 5>4"},
    };
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(4), FR_F32);
    int data = ADD(w.g, FR_OP_RELU, "data", NULL, x);
    int a = add_linear(w.g, "a", 4, x), b = add_linear(w.g, "b", 4, a);
    int c = add_linear(w.g, "c", 4, b), d = ADD(w.g, FR_OP_ADD, "d", NULL, c, a);
    int e = ADD(w.g, FR_OP_ADD, "e", NULL, d, a), f = ADD(w.g, FR_OP_ADD, "f", NULL, e, data);
    int target = add_input(w.g, "target", (fr_shape){0}, FR_I32);
    assert_int_equal(ADD(w.g, FR_OP_CROSS_ENTROPY, "loss", NULL, f, target), 9);
    int n_forward, n_backward;
    fr_stage_link forward[15], backward[15];
    fr_stage s[6] = {{0}};
    assert_int_equal(fr_graph_links(w.g, 1, s, &n_forward, forward, &n_backward, backward),
                     FR_INVALID);
    fr_ctx_clear(w.ctx);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(fr_graph_cut(w.g, cases[i].n_cuts, cases[i].cuts, s), FR_OK);
        assert_int_equal(
            fr_graph_links(w.g, cases[i].n_cuts + 1, s, &n_forward, forward, &n_backward, backward),
            FR_OK);
        assert_links(n_forward, forward, cases[i].forward);
        assert_links(n_backward, backward, cases[i].backward);
    }
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_brute_force),
        cmocka_unit_test(a_v_is_near_brute_force),
        cmocka_unit_test(a_v_balances_workers),
        cmocka_unit_test(too_many_stages_are_refused),
        cmocka_unit_test(cuts_by_name),
        cmocka_unit_test(links_follow_values_and_relay_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
