/* test_update.c -- updates of the weights: fused or in a sweep at the end, clipped, tied, and by
 * the rules of the optimizers. */
#include "engine/rig.h"

enum { MAX_PARAMS = 20 };

static void open_rig(rig *r, int which, const rig_options *o)
{
    if (rig_open(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
}

static void get(rig *r, int param, float *plain)
{
    assert_ok(r->b.ctx, fr_engine_get_param(r->engine, param, plain));
}

static void get_grad(rig *r, int param, float *plain)
{
    assert_ok(r->b.ctx, fr_engine_get_grad(r->engine, param, plain));
}

/* Keeping the gradients forces the sweep at the end; the bits must not change. */
static void on_the_fly_same_bits(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++)
        for (int i = 0; fr_optim_list()[i]; i++) {
            int n = 1 + (which + i) % 3;
            rig_options o = {.optimizer = fr_optim_list()[i]->name,
                             .weight_decay = 0.01,
                             .generator = "1f1b",
                             .n_stages = n,
                             .n_micro = n < 3 ? n : 4,
                             .n_threads = n == 2 ? 2 : 1,
                             .backend = fr_backend_name(*backend)};
            char fly[65], end[65];
            rig_clean_sha(which, &o, 3, fly);
            o.keep_grads = true;
            rig_clean_sha(which, &o, 3, end);
            assert_string_equal(fly, end);
        }
}

/* Squares of all gradients, as kept. */
static double squares_of(rig *r)
{
    static float grad[MAX_PARAM];
    double sum = 0;
    for (int i = 0; i < fr_graph_n_params(r->b.graph); i++) {
        const fr_param *p = fr_graph_param(r->b.graph, i);
        if (p->is_buffer || p->tied_to >= 0) continue;
        get_grad(r, i, grad);
        for (size_t k = 0; k < count_of(&r->b, i); k++) sum += (double)grad[k] * (double)grad[k];
    }
    return sum;
}

/* One plain sgd step must be before - lr * min(1, clip / norm) * gradient. */
static void check_clipping(int which, rig_options o)
{
    static float before[MAX_PARAMS][MAX_PARAM], after[MAX_PARAM], grad[MAX_PARAM];
    rig r;
    o.optimizer = "sgd", o.lr = 0.5, o.keep_grads = true;
    open_rig(&r, which, &o);
    int n_params = fr_graph_n_params(r.b.graph);
    assert_true(n_params <= MAX_PARAMS);
    for (int i = 0; i < n_params; i++) get(&r, i, before[i]);
    rig_steps(&r, 0, 1);
    double norm = sqrt(squares_of(&r));
    assert_true(norm > 0.05); /* else nothing is clipped */
    assert_true(fabs(r.norm[0] - norm) < 1e-9 * norm);
    double scale = o.clip_norm > 0 && norm > o.clip_norm ? o.clip_norm / (norm + 1e-6) : 1;
    for (int i = 0; i < n_params; i++) {
        const fr_param *p = fr_graph_param(r.b.graph, i);
        if (p->is_buffer) continue;
        get_grad(&r, i, grad);
        get(&r, i, after);
        for (size_t k = 0; k < count_of(&r.b, i); k++) {
            double want = (double)before[i][k] - o.lr * scale * (double)grad[k];
            if (!(fabs((double)after[k] - want) < 1e-6))
                fail_msg("%s%s[%zu]: %g, expected %g", rig_about(&r, &o), p->name, k,
                         (double)after[k], want);
        }
    }
    rig_close(&r);
}

static void clipping(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++)
        for (int n = 1; n <= 3; n++)
            for (int variant = 0; variant < 3; variant++) /* bites, does not, only measured */
                check_clipping(which, (rig_options){.clip_norm = variant == 0   ? 0.05
                                                                 : variant == 1 ? 1e6
                                                                                : 0,
                                                    .want_norm = variant == 2,
                                                    .generator = "gpipe",
                                                    .n_stages = n,
                                                    .n_micro = n,
                                                    .backend = fr_backend_name(*backend)});
}

static void norm_only_if_asked(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 3; n++) {
        rig r;
        open_rig(&r, MLP, &(rig_options){.generator = "1f1b", .n_stages = n});
        rig_steps(&r, 0, 2);
        assert_true(isnan(r.norm[0]) && isnan(r.norm[1]));
        rig_close(&r);
    }
}

/* Without a flush the parts of the norm are of different times, but the norm is reported. */
static void norm_without_flush(void **unused)
{
    (void)unused;
    rig r, one;
    rig_options o = {.generator = "1f1b-async", .n_stages = 3, .n_batches = 6, .want_norm = true};
    open_rig(&r, MLP, &o);
    o.n_stages = 1;
    open_rig(&one, MLP, &o);
    rig_steps(&r, 0, 6);
    rig_steps(&one, 0, 6);
    assert_true(fabs(r.norm[0] - one.norm[0]) < 1e-6 * one.norm[0]); /* before any update */
    for (int i = 1; i < 6; i++) assert_true(r.norm[i] > 0.5 * one.norm[i]);
    rig_close(&r), rig_close(&one);
}

/* The gradient of a shared matrix holds both its uses: against finite differences of the loss. */
static void tied_gradient_is_the_sum(void **unused)
{
    (void)unused;
    static float w0[MAX_PARAM], w1[MAX_PARAM], grad[MAX_PARAM];
    FOR_EACH_BACKEND(backend)
    for (int n = 1; n <= 3; n++) {
        rig r;
        rig_options o = {.optimizer = "sgd",
                         .keep_grads = true,
                         .generator = "1f1b",
                         .n_stages = n,
                         .n_micro = 2,
                         .lr = 1e-30, /* the weights stay */
                         .backend = fr_backend_name(*backend)};
        open_rig(&r, TIED, &o);
        int owner = fr_graph_find_param(r.b.graph, "embed.weight");
        int tied = fr_graph_find_param(r.b.graph, "logits.weight");
        size_t bytes = count_of(&r.b, owner) * sizeof(float);
        assert_true(fr_graph_param(r.b.graph, tied)->tied_to == owner);
        rig_steps(&r, 0, 1);
        get(&r, owner, w0), get(&r, tied, w1);
        assert_memory_equal(w0, w1, bytes);
        get_grad(&r, owner, grad), get_grad(&r, tied, w1);
        assert_memory_equal(grad, w1, bytes);
        for (size_t k = 0; k < count_of(&r.b, owner); k += 5) {
            const float h = 0.01f;
            fr_tally t[2];
            for (int side = 0; side < 2; side++) {
                memcpy(w1, w0, bytes);
                w1[k] += side ? h : -h;
                assert_ok(r.b.ctx, fr_engine_set_param(r.engine, side ? tied : owner, w1));
                assert_ok(r.b.ctx, rig_eval(&r, 1, &t[side], NULL));
            }
            double slope = (t[1].loss - t[0].loss) / (double)(2 * h) / (double)t[0].targets;
            if (!(fabs(slope - (double)grad[k]) < 2e-3 * (0.1 + fabs(slope))))
                fail_msg("[%zu]: gradient %g, slope %g", k, (double)grad[k], slope);
        }
        rig_close(&r);
    }
}

/* --- optimizers by the book ----------------------------------------------------------------- */

/* Weights of one parameter followed in double: update t = 1, 2, ... by gradient g. */
typedef struct track {
    double w, m, v;
} track;

static void sgd_rule(track *x, double g, double lr, int t)
{
    (void)t;
    x->m = 0.9 * x->m + g;
    x->w -= lr * x->m;
}

static void adam_rule(track *x, double g, double lr, int t)
{
    x->m = 0.9 * x->m + 0.1 * g;
    x->v = 0.999 * x->v + 0.001 * g * g;
    double mean = x->m / (1 - pow(0.9, t)), square = x->v / (1 - pow(0.999, t));
    x->w -= lr * mean / (sqrt(square) + 1e-8);
}

static void follow(int which, const char *optimizer, void (*rule)(track *, double, double, int))
{
    static track tracks[MAX_PARAMS][MAX_PARAM];
    static float plain[MAX_PARAM];
    rig_options o = {.optimizer = optimizer,
                     .generator = "zb-h1",
                     .n_stages = 2,
                     .n_micro = 2,
                     .lr = 0.01,
                     .keep_grads = true};
    rig r;
    open_rig(&r, which, &o);
    memset(tracks, 0, sizeof tracks);
    for (int t = 0; t <= 8; t++) {
        if (t > 0) rig_steps(&r, t - 1, 1);
        for (int i = 0; i < fr_graph_n_params(r.b.graph); i++) {
            if (fr_graph_param(r.b.graph, i)->is_buffer) continue;
            for (size_t k = 0; t > 0 && k < count_of(&r.b, i); k++) {
                if (k == 0) get_grad(&r, i, plain);
                rule(&tracks[i][k], (double)plain[k], o.lr, t);
            }
            get(&r, i, plain);
            for (size_t k = 0; k < count_of(&r.b, i); k++) {
                if (t == 0) tracks[i][k].w = (double)plain[k];
                if (!(fabs(tracks[i][k].w - (double)plain[k]) < 2e-5))
                    fail_msg("%s update %d: %g, expected %g", rig_about(&r, &o), t,
                             (double)plain[k], tracks[i][k].w);
            }
        }
    }
    rig_close(&r);
}

static void optimizers_by_the_book(void **unused)
{
    (void)unused;
    for (int which = 0; which < N_NETS; which++) {
        follow(which, NULL, sgd_rule);
        follow(which, "adam", adam_rule);
    }
}

/* muon updates the weights of linear layers, except the last one and tied ones; all others get the
 * bits of adamw. */
static void muon_takes_hidden_matrices(void **unused)
{
    (void)unused;
    static float by_muon[MAX_PARAM], by_adamw[MAX_PARAM];
    int n_matrices = 0, n_others = 0;
    for (int which = 0; which < N_NETS; which++) {
        rig_options o = {.optimizer = "muon", .weight_decay = 0.01};
        rig muon, adamw;
        open_rig(&muon, which, &o);
        o.optimizer = "adamw";
        open_rig(&adamw, which, &o);
        rig_steps(&muon, 0, 1), rig_steps(&adamw, 0, 1);
        const fr_graph *g = muon.b.graph;
        int head = -1;
        for (int i = 0; i < fr_graph_n_nodes(g); i++)
            if (fr_graph_node(g, i)->op == FR_OP_LINEAR) head = i;
        for (int i = 0; i < fr_graph_n_params(g); i++) {
            const fr_param *p = fr_graph_param(g, i);
            bool is_tied = p->tied_to >= 0 || p->has_ties;
            bool is_matrix = fr_graph_node(g, p->node)->op == FR_OP_LINEAR && p->node != head &&
                             !is_tied && strstr(p->name, ".weight");
            if (p->is_buffer) continue;
            get(&muon, i, by_muon), get(&adamw, i, by_adamw);
            bool is_same = memcmp(by_muon, by_adamw, count_of(&muon.b, i) * sizeof(float)) == 0;
            if (is_same == is_matrix)
                fail_msg("%s: %s is updated by %s", nets[which].name, p->name,
                         is_matrix ? "adamw" : "muon");
            *(is_matrix ? &n_matrices : &n_others) += 1;
        }
        rig_close(&muon), rig_close(&adamw);
    }
    assert_true(n_matrices > 5 && n_others > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_fly_same_bits),       cmocka_unit_test(clipping),
        cmocka_unit_test(norm_only_if_asked),         cmocka_unit_test(norm_without_flush),
        cmocka_unit_test(tied_gradient_is_the_sum),   cmocka_unit_test(optimizers_by_the_book),
        cmocka_unit_test(muon_takes_hidden_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
