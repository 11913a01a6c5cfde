/* test_groups.c -- frozen parameters and groups: what is frozen stays, has no gradient and no part
 * in the norm, is predicted as itself, and the rest is trained with the bits of one worker; a group
 * of all parameters is a run with its rate and weight decay. */
#include "engine/rig.h"

enum { STEPS = 4 };

/* The last one with weights of its own. */
static int last_node(const fr_graph *g)
{
    int i = fr_graph_n_params(g) - 1;
    while (fr_graph_param(g, i)->tied_to >= 0 || fr_graph_param(g, i)->is_buffer) i--;
    return fr_graph_param(g, i)->node;
}

static bool first_layer(const fr_graph *g, int i)
{
    return fr_graph_param(g, i)->node == fr_graph_param(g, 0)->node;
}

static bool all_but_last(const fr_graph *g, int i)
{
    return fr_graph_param(g, i)->node != last_node(g);
}

static bool biases(const fr_graph *g, int i)
{
    return fr_graph_param(g, i)->shape.n_dims < 2 && fr_graph_param(g, i)->node != last_node(g);
}

static bool some_layers(const fr_graph *g, int i)
{
    return fr_graph_param(g, i)->node % 3 == 0 && fr_graph_param(g, i)->node != last_node(g);
}

typedef bool (*choice)(const fr_graph *g, int param);
static const choice choices[] = {first_layer, all_but_last, biases, some_layers};
enum { N_CHOICES = sizeof choices / sizeof *choices };

static int n_frozen(const fr_graph *g)
{
    int n = 0;
    for (int i = 0; i < fr_graph_n_params(g); i++) n += fr_graph_param(g, i)->is_frozen;
    return n;
}

/* Frozen parameters have their starting values, others have not. */
static void assert_held(rig *r, const rig_options *o)
{
    static float now[MAX_PARAM], start[MAX_PARAM];
    int n_moved = 0;
    for (int i = 0; i < fr_graph_n_params(r->b.graph); i++) {
        const fr_param *p = fr_graph_param(r->b.graph, i);
        if (p->is_buffer || p->tied_to >= 0) continue;
        assert_ok(r->b.ctx, fr_engine_get_param(r->engine, i, now));
        fr_graph_init_param(r->b.graph, i, r->desc.seed, start);
        bool is_same = memcmp(now, start, count_of(&r->b, i) * sizeof *now) == 0;
        if (p->is_frozen && !is_same) fail_msg("%s: %s has moved", rig_about(r, o), p->name);
        n_moved += !is_same;
    }
    assert_true(n_moved > 0);
}

typedef struct outcome {
    char sha[65];
    fr_tally tally[2 * STEPS], eval;
    double norm[2 * STEPS];
} outcome;

static void run(int which, const rig_options *o, outcome *out)
{
    rig r;
    memset(out, 0, sizeof *out);
    if (rig_open(&r, which, o) != FR_OK) fail_msg("%s", rig_about(&r, o));
    rig_steps(&r, 0, STEPS);
    assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &out->eval, NULL));
    rig_steps(&r, STEPS, STEPS);
    memcpy(out->tally, r.tally, sizeof out->tally);
    for (int i = 0; i < 2 * STEPS; i++) out->norm[i] = isnan(r.norm[i]) ? -1 : r.norm[i];
    if (n_frozen(r.b.graph) > 0) assert_held(&r, o);
    for (int w = 0; w < fr_engine_n_workers(r.engine); w++)
        assert_int_equal(fr_engine_peak_bytes(r.engine, w),
                         fr_engine_predicted(r.engine, w)->total);
    rig_sha(&r, out->sha);
    rig_close(&r);
}

/* Every flush schedule, with clipping and without, has the bits of one worker. */
static void flush_schedules_have_the_bits_of_one(void **unused)
{
    (void)unused;
    static const char *const generators[] = {"gpipe", "1f1b", "zb-h1"};
    static const char *const optimizers[] = {NULL, "adamw", "muon"};
    for (int which = 0; which < N_NETS; which++)
        for (int c = 0; c < N_CHOICES; c += STRIDE) {
            outcome one, other;
            rig_options o = {.freezes = choices[c],
                             .n_micro = 4,
                             .clip_norm = c % 2 ? 0.1 : 0,
                             .weight_decay = 0.01,
                             .optimizer = optimizers[(which + c) % 3]};
            run(which, &o, &one);
            for (int g = 0; g < 3; g++) {
                o.generator = generators[g];
                o.n_stages = 2 + (which + g) % 3;
                if (o.n_stages > most_stages(which)) o.n_stages = most_stages(which);
                run(which, &o, &other);
                if (memcmp(&one, &other, sizeof one) != 0)
                    fail_msg("%s, choice %d: %s with %d stages differs from one worker",
                             nets[which].name, c, o.generator, o.n_stages);
            }
        }
}

/* Gradients of the rest are those of a run without frozen parameters; frozen layers have none. The
 * norm is that of the rest. */
static void gradients_of_the_rest(void **unused)
{
    (void)unused;
    static float mine[MAX_PARAM], full[MAX_PARAM];
    for (int which = 0; which < N_NETS; which++)
        for (int c = 0; c < N_CHOICES; c++) {
            rig_options o = {.keep_grads = true, .want_norm = true, .freezes = choices[c]};
            rig r, whole;
            double sum = 0;
            assert_ok(r.b.ctx, rig_open(&r, which, &o));
            o.freezes = NULL;
            assert_ok(whole.b.ctx, rig_open(&whole, which, &o));
            rig_steps(&r, 0, 1), rig_steps(&whole, 0, 1);
            for (int i = 0; i < fr_graph_n_params(r.b.graph); i++) {
                const fr_param *p = fr_graph_param(r.b.graph, i);
                if (p->is_buffer || p->tied_to >= 0) continue;
                assert_ok(r.b.ctx, fr_engine_get_grad(r.engine, i, mine));
                assert_ok(whole.b.ctx, fr_engine_get_grad(whole.engine, i, full));
                size_t n = count_of(&r.b, i);
                if (!p->is_frozen && memcmp(mine, full, n * sizeof *mine) != 0)
                    fail_msg("%s, choice %d: another gradient of %s", nets[which].name, c, p->name);
                for (size_t k = 0; k < n; k++) {
                    if (!p->is_frozen) sum += (double)mine[k] * (double)mine[k];
                    if (choices[c] == all_but_last && p->is_frozen) assert_true(mine[k] == 0);
                }
            }
            assert_true(fabs(r.norm[0] - sqrt(sum)) <= 1e-6 * sqrt(sum));
            if (n_frozen(r.b.graph) > 0) assert_true(r.norm[0] < whole.norm[0]);
            rig_close(&r), rig_close(&whole);
        }
}

/* Work and memory that are saved: a layer below which nothing is trained has no backward. */
static void saves_work(void **unused)
{
    (void)unused;
    rig r, whole;
    rig_options o = {.freezes = all_but_last, .n_stages = 2, .generator = "1f1b", .n_micro = 2};
    assert_ok(r.b.ctx, rig_open(&r, CHAIN, &o));
    o.freezes = NULL;
    assert_ok(whole.b.ctx, rig_open(&whole, CHAIN, &o));
    for (int i = 0; i < fr_graph_n_nodes(r.b.graph); i++) {
        const fr_node *n = fr_graph_node(r.b.graph, i);
        bool is_behind = i >= last_node(r.b.graph);
        assert_int_equal(n->needs_grad, is_behind && n->op != FR_OP_INPUT);
        if (!is_behind) assert_true(n->flops_back_input == 0 && n->flops_back_weight == 0);
    }
    assert_int_equal(r.schedule->n_backward, 0); /* no gradient goes from stage 1 to stage 0 */
    assert_int_equal(whole.schedule->n_backward, 1);
    assert_true(fr_engine_predicted(r.engine, 0)->slots <
                fr_engine_predicted(whole.engine, 0)->slots);
    rig_steps(&r, 0, 2);
    assert_held(&r, &o);
    rig_close(&r), rig_close(&whole);
}

static void open_grouped(rig *r, int which, const rig_options *o, const fr_param_groups *groups)
{
    if (rig_prepare(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
    if (groups) r->desc.groups = *groups;
    if (fr_engine_create(r->b.ctx, &r->desc, &r->engine) != FR_OK) fail_msg("%s", rig_about(r, o));
}

static void halve_frozen(const rig *by, rig *r)
{
    static float plain[MAX_PARAM];
    for (int i = 0; i < fr_graph_n_params(r->b.graph); i++) {
        const fr_param *p = fr_graph_param(by->b.graph, i);
        if (!p->is_frozen || p->tied_to >= 0) continue;
        assert_ok(r->b.ctx, fr_engine_get_param(r->engine, i, plain));
        for (size_t k = 0; k < count_of(&r->b, i); k++) plain[k] *= 0.5f;
        assert_ok(r->b.ctx, fr_engine_set_param(r->engine, i, plain));
    }
}

/* Weights of rate 0 without decay stay, too, and are predicted as themselves: all others have the
 * bits that they have beside frozen ones. */
static void frozen_is_rate_zero(int which, rig_options o, choice freezes)
{
    static int of[MAX_NODES];
    const fr_param_group still = {.lr_factor = 0, .weight_decay = 0};
    const fr_param_groups groups = {.n = 1, .at = &still, .of = of};
    rig frozen, zero;
    o.clip_norm = 0, o.freezes = freezes;
    open_grouped(&frozen, which, &o, NULL);
    for (int i = 0; i < fr_graph_n_params(frozen.b.graph); i++)
        of[i] = fr_graph_param(frozen.b.graph, i)->is_frozen ? 0 : -1;
    o.freezes = NULL;
    open_grouped(&zero, which, &o, &groups);
    rig_steps(&frozen, 0, STEPS), rig_steps(&zero, 0, STEPS);
    assert_held(&frozen, &o);
    halve_frozen(&frozen, &frozen), halve_frozen(&frozen, &zero); /* as weights that are loaded */
    rig_steps(&frozen, STEPS, STEPS), rig_steps(&zero, STEPS, STEPS);
    if (rig_distance(&frozen, &zero) > 0)
        fail_msg("%s: frozen weights are read otherwise", rig_about(&frozen, &o));
    rig_close(&frozen), rig_close(&zero);
}

/* A group of all parameters is a run with another rate and weight decay, to the bit, for every
 * policy: updates and predictions have the same coefficients. */
static void every_policy(void **unused)
{
    (void)unused;
    static const char *const optimizers[] = {NULL, "adamw", "muon", "nadam", "lion", "adam"};
    static const int used[] = {MLP, BRANCHES, TIED};
    static int all[MAX_NODES];
    const fr_param_group half = {.lr_factor = 0.5, .weight_decay = 0.02};
    const fr_param_groups groups = {.n = 1, .at = &half, .of = all};
    int nth = 0;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int k = 0; k < 3; k++, nth++) {
            rig grouped, plain;
            char a[65], b[65];
            rig_options o = {.generator = "1f1b-async",
                             .policy = (*p)->name,
                             .optimizer = optimizers[nth % 6],
                             .n_stages = 3,
                             .n_micro = 4,
                             .n_batches = STEPS,
                             .lr = 0.01,
                             .clip_norm = nth % 2 ? 0.5 : 0,
                             .weight_decay = 0.3};
            open_grouped(&grouped, used[k], &o, &groups);
            o.lr = 0.005, o.weight_decay = 0.02;
            open_grouped(&plain, used[k], &o, NULL);
            rig_steps(&grouped, 0, STEPS), rig_steps(&plain, 0, STEPS);
            rig_sha(&grouped, a), rig_sha(&plain, b);
            if (strcmp(a, b) != 0)
                fail_msg("%s: the group is updated otherwise", rig_about(&plain, &o));
            rig_close(&grouped), rig_close(&plain);
            frozen_is_rate_zero(used[k], o, choices[nth % N_CHOICES]);
        }
}

/* Two groups and weights in none: after one update of sgd each moved by its own rate and decay. */
static void first_update(void **unused)
{
    (void)unused;
    static float now[MAX_PARAM], start[MAX_PARAM], grad[MAX_PARAM];
    static int of[MAX_NODES];
    const fr_param_group two[] = {{.lr_factor = 0.1, .weight_decay = 0},
                                  {.lr_factor = 3, .weight_decay = 0.5}};
    const fr_param_groups groups = {.n = 2, .at = two, .of = of};
    for (int which = 0; which < N_NETS; which++) {
        rig r;
        rig_options o = {.keep_grads = true, .weight_decay = 0.1, .lr = 0.05};
        for (int i = 0; i < MAX_NODES; i++) of[i] = i % 3 - 1;
        if (rig_prepare(&r, which, &o) != FR_OK) fail_msg("%s", rig_about(&r, &o));
        if (is_tied(r.b.graph)) {
            rig_close(&r);
            continue;
        }
        r.desc.groups = groups;
        assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
        rig_steps(&r, 0, 1);
        for (int i = 0; i < fr_graph_n_params(r.b.graph); i++) {
            if (fr_graph_param(r.b.graph, i)->is_buffer) continue;
            const double lr = 0.05 * (of[i] < 0 ? 1 : two[of[i]].lr_factor);
            const double decay = of[i] < 0 ? 0.1 : two[of[i]].weight_decay;
            assert_ok(r.b.ctx, fr_engine_get_param(r.engine, i, now));
            assert_ok(r.b.ctx, fr_engine_get_grad(r.engine, i, grad));
            fr_graph_init_param(r.b.graph, i, r.desc.seed, start);
            for (size_t k = 0; k < count_of(&r.b, i); k++) {
                double w = (double)start[k], expected = w - lr * ((double)grad[k] + decay * w);
                if (!(fabs((double)now[k] - expected) <= 1e-6 * (1 + fabs(expected))))
                    fail_msg("%s, %s: %.9g, expected %.9g", nets[which].name,
                             fr_graph_param(r.b.graph, i)->name, (double)now[k], expected);
            }
        }
        rig_close(&r);
    }
}

/* With replicas that sum their gradients along the fixed tree the bits are those of one worker. */
static void replicas(void **unused)
{
    (void)unused;
    static const int two[] = {2, 2};
    for (int c = 0; c < N_CHOICES; c++) {
        outcome one, other;
        rig_options o = {.freezes = choices[c], .n_micro = 4, .exact_sum = true};
        run(CHAIN, &o, &one);
        o.generator = "1f1b", o.n_stages = 2, o.replicas = two;
        run(CHAIN, &o, &other);
        if (memcmp(&one, &other, sizeof one) != 0) fail_msg("choice %d: replicas differ", c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flush_schedules_have_the_bits_of_one),
        cmocka_unit_test(gradients_of_the_rest),
        cmocka_unit_test(saves_work),
        cmocka_unit_test(every_policy),
        cmocka_unit_test(first_update),
        cmocka_unit_test(replicas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
