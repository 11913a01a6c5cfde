/* test_profile.c -- profile files: both formats round trip, and errors name file and line. */
#include <forerun/cost.h>

#include "support/check.h"

#include <math.h>

#define PD(f, b, a, p)                                                                \
    " -- forward_compute_time=" f ", backward_compute_time=" b ", activation_size=" a \
    ", parameter_size=" p "\n"

static fr_status read_text(fr_ctx *ctx, void **state, const char *text, const fr_profile **out)
{
    const char *path = support_path(state, "in");
    support_write(path, text, strlen(text));
    return fr_profile_read(ctx, path, out);
}

static void assert_same(const fr_profile *a, const fr_profile *b)
{
    assert_int_equal(a->n_nodes, b->n_nodes);
    for (int i = 0; i < a->n_nodes; i++) {
        const fr_profile_node *x = &a->nodes[i], *y = &b->nodes[i];
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->about, y->about);
        assert_true(fabs(x->forward_s - y->forward_s) <= 1e-15 * x->forward_s);
        assert_true(fabs(x->backward_s - y->backward_s) <= 1e-15 * x->backward_s);
        assert_int_equal(x->output_bytes, y->output_bytes);
        assert_int_equal(x->param_bytes, y->param_bytes);
        assert_int_equal(x->is_input, y->is_input);
        assert_int_equal(x->n_inputs, y->n_inputs);
        for (int k = 0; k < x->n_inputs; k++) assert_int_equal(x->inputs[k], y->inputs[k]);
    }
}

static void json_round_trip(void **state)
{
    fr_ctx *ctx = fr_ctx_create();
    int one[] = {0}, two[] = {1, 0};
    fr_profile_node nodes[] = {
        {.name = "x",
         .about = "input (3)",
         .output_bytes = 12,
         .is_input = true,
         .back_input_s = NAN,
         .back_weight_s = NAN},
        {.name = "a \"b\"",
         .about = "linear",
         .forward_s = 0.1,
         .backward_s = 1e-9 / 3,
         .back_input_s = 0.25,
         .back_weight_s = 1e-30,
         .update_s = 7,
         .output_bytes = 1,
         .kept_bytes = 1LL << 60,
         .param_bytes = 3,
         .flops = 1e18,
         .n_inputs = 1,
         .inputs = one},
        {.forward_s = 2, .backward_s = 3, .n_inputs = 2, .inputs = two},
    };
    fr_profile by_hand = {.model = "m",
                          .machine = "k",
                          .batch = 32,
                          .n_nodes = 3,
                          .nodes = nodes,
                          .n_micro = 4,
                          .step_s = 0.5,
                          .accounted = 0.97,
                          .jitter = 0.125,
                          .workspace_bytes = 1e6,
                          .state_per_weight = 1,
                          .precision = FR_BF16};
    const fr_profile *p, *q;
    assert_ok(ctx, fr_profile_copy(ctx, &by_hand, &p));
    assert_string_equal(p->nodes[2].name, "node2");
    assert_ok(ctx, fr_profile_write_json(ctx, p, support_path(state, "p.json")));
    assert_ok(ctx, fr_profile_read(ctx, support_path(state, "p.json"), &q));
    assert_same(p, q);
    assert_string_equal(q->model, "m");
    assert_string_equal(q->machine, "k");
    assert_int_equal(q->batch, 32);
    assert_int_equal(q->n_micro, 4);
    assert_true(q->step_s == 0.5 && q->accounted == 0.97 && q->workspace_bytes == 1e6);
    assert_true(q->jitter == 0.125);
    assert_true(q->state_per_weight == 1 && q->precision == FR_BF16);
    assert_true(q->nodes[1].back_input_s == 0.25 && q->nodes[1].back_weight_s == 1e-30);
    assert_true(q->nodes[1].update_s == 7 && q->nodes[1].flops == 1e18);
    assert_int_equal(q->nodes[1].kept_bytes, 1LL << 60);
    assert_true(isnan(q->nodes[2].back_input_s));
    fr_profile_free(p);
    fr_profile_free(q);
    fr_ctx_free(ctx);
}

/* Numbers out of order, a list of sizes, stage ids, an edge before its nodes. */
static const char pipedream[] =
    "\tnode1 -- node3\n"
    "node3 -- Conv2d(3, 64) -- forward_compute_time=2.500, backward_compute_time=5.000, "
    "activation_size=[100.0; 28.0], parameter_size=64.000 -- stage_id=1\n"
    "node10 -- Add" PD("1.0", "0.5", "10.000", "0.0") "node1 -- Input0" PD(
        "635.9", "0.000", "154140672.000",
        "0.000") "node2 -- Input embedding" PD("1", "1", "1",
                                               "8") "\n\tnode3 -- node2\r\n"
                                                    "\tnode2 -- node10\n\tnode3 -- node10\n";

static void text_is_sorted(void **state)
{
    fr_ctx *ctx = fr_ctx_create();
    const fr_profile *p, *q, *r;
    assert_ok(ctx, read_text(ctx, state, pipedream, &p));
    static const char *const order[] = {"node1", "node3", "node2", "node10"};
    assert_int_equal(p->n_nodes, 4);
    for (int i = 0; i < 4; i++) assert_string_equal(p->nodes[i].name, order[i]);
    assert_true(p->nodes[0].is_input && !p->nodes[2].is_input);
    assert_int_equal(p->nodes[1].output_bytes, 128);
    assert_int_equal(p->nodes[1].param_bytes, 64);
    assert_true(p->nodes[1].forward_s == 0.0025 && p->nodes[1].backward_s == 0.005);
    assert_string_equal(p->nodes[1].about, "Conv2d(3, 64)");
    assert_int_equal(p->nodes[3].n_inputs, 2);
    assert_int_equal(p->nodes[3].inputs[0], 1);
    assert_int_equal(p->nodes[3].inputs[1], 2);

    assert_ok(ctx, fr_profile_write_pipedream(ctx, p, support_path(state, "p.txt")));
    assert_ok(ctx, fr_profile_read(ctx, support_path(state, "p.txt"), &q));
    assert_same(p, q);
    assert_ok(ctx, fr_profile_write_json(ctx, p, support_path(state, "p.json")));
    assert_ok(ctx, fr_profile_read(ctx, support_path(state, "p.json"), &r));
    assert_same(p, r);
    fr_profile_free(p);
    fr_profile_free(q);
    fr_profile_free(r);
    fr_ctx_free(ctx);
}

/* Our own names become numbers; inputs stay inputs. */
static void foreign_names(void **state)
{
    fr_ctx *ctx = fr_ctx_create();
    int one[] = {0};
    fr_profile_node nodes[] = {
        {.name = "x", .about = "input (3)", .is_input = true},
        {.name = "fc", .about = "linear -- (4)\n", .forward_s = 1, .n_inputs = 1, .inputs = one}};
    fr_profile by_hand = {.n_nodes = 2, .nodes = nodes};
    const fr_profile *p, *q;
    assert_ok(ctx, fr_profile_copy(ctx, &by_hand, &p));
    assert_ok(ctx, fr_profile_write_pipedream(ctx, p, support_path(state, "p.txt")));
    assert_ok(ctx, fr_profile_read(ctx, support_path(state, "p.txt"), &q));
    assert_string_equal(q->nodes[0].name, "node1");
    assert_string_equal(q->nodes[0].about, "Input x input (3)");
    assert_true(q->nodes[0].is_input);
    assert_string_equal(q->nodes[1].about, "fc linear -_ (4)_");
    fr_profile_free(p);
    fr_profile_free(q);
    fr_ctx_free(ctx);
}

struct bad {
    const char *text, *says;
};

static void assert_refused(void **state, const struct bad *cases, size_t n)
{
    fr_ctx *ctx = fr_ctx_create();
    const fr_profile *p;
    for (size_t i = 0; i < n; i++) {
        assert_fails(ctx, read_text(ctx, state, cases[i].text, &p), FR_INVALID, cases[i].says);
        assert_null(p);
    }
    fr_ctx_free(ctx);
}

static void bad_text(void **state)
{
    static const struct bad cases[] = {
        {"", "in:1: no nodes"},
        {"node1 -- A -- forward_compute_time=1", "in:1: backward_compute_time is missing"},
        {"node1 -- A", "in:1: expected NODE -- DESCRIPTION"},
        {"\n\nnode1 -- A" PD("-1", "0", "0", "0"), "in:3: forward_compute_time: expected"},
        {"node1 -- A" PD("nan", "0", "0", "0"), "in:1: forward_compute_time: expected"},
        {"node1 -- A" PD("1", "inf", "0", "0"), "in:1: backward_compute_time: expected"},
        {"node1 -- A" PD("1", "1", "[1.0; x]", "0"), "in:1: activation_size: expected"},
        {"node1 -- A" PD("1", "1", "[1.0", "0"), "in:1: activation_size: the list has no end"},
        {"node1 -- A" PD("1", "1", "1", "1e30"), "in:1: a size beyond"},
        {"node1 -- A" PD("1", "1", "1", "1, x=3"), "in:1: \"x\""},
        {"node1 -- A" PD("1", "1", "1", "1 -- stage=3"), "in:1: expected stage_id=NUMBER"},
        {"node1 -- A" PD("1", "0", "0", "0") "node1 -- B" PD("1", "0", "0", "0"),
         "in:2: duplicate node \"node1\", first on line 1"},
        {"node1 -- A" PD("1", "0", "0", "0") "\tnode1 -- node7\n",
         "in:2: there is no node \"node7\""},
        {"node1 -- A" PD("1", "0", "0", "0") "\tnode1 -- no", "in:2: there is no node \"no\""},
        {"node1 -- A" PD("1", "0", "0", "0") "\tnode1\n", "in:2: expected an edge"},
        {"node1 -- A" PD("1", "0", "0", "0") "node2 -- B" PD("1", "0", "0", "0") "node3 -- C" PD(
             "1", "0", "0", "0") "\tnode3 -- node2\n\tnode2 -- node3\n\tnode1 -- node2\n",
         "in:2: nodes form a cycle: node2 -> node3 -> node2"},
        {"node1 -- A" PD("1", "0", "0", "0") "\tnode1 -- node1\n",
         "in:1: nodes form a cycle: node1 -> node1"},
        {"node1 -- Input" PD("1", "0", "0", "0"), "no node computes"},
    };
    assert_refused(state, cases, sizeof cases / sizeof *cases);
}

#define NODE(rest) \
    "{\"name\": \"a\", \"forward_s\": 1, \"backward_s\": 2, \"output_bytes\": 4, \
\"param_bytes\": 8" rest "}"
#define FILE_OF(nodes) "{\"format\": 1,\n\"model\": \"{[\\\"\",\n\"nodes\": [\n" nodes "\n]}\n"

static void bad_json(void **state)
{
    static const struct bad cases[] = {
        {"{\"format\": 1,\n \"nodes\": [", "in:2:"},
        {"{}", "in:1: format: expected a number"},
        {"{\"format\": 2}", "in:1: format is 2"},
        {"{\"format\": 1}", "in:1: nodes: expected a list"},
        {"{\"format\": 1, \"colour\": 1, \"nodes\": []}", "in:1: unknown key \"colour\""},
        {"{\"format\": 1, \"batch\": 1.5, \"nodes\": []}", "in:1: batch: expected a whole number"},
        {FILE_OF(NODE("") ",\n" NODE("")), "in:5: node 1: node 0 has the same name \"a\""},
        {FILE_OF("7"), "node 0: expected an object"},
        {FILE_OF("\n{}"), "in:5: node 0: name: expected a text"},
        {FILE_OF("{\"name\": \"a\"}"), "in:4: node 0: forward_s: expected a number"},
        {FILE_OF(NODE(", \"update_s\": -1")), "in:4: node 0: update_s: expected a number"},
        {FILE_OF(NODE(", \"update_s\": \"1\"")), "found something else"},
        {FILE_OF(NODE(", \"kept_bytes\": 1.5")), "kept_bytes: expected a whole number"},
        {FILE_OF(NODE(", \"shape\": 1")), "in:4: node 0: unknown key \"shape\""},
        {FILE_OF(NODE(", \"inputs\": [\"b\"]")), "in:4: node 0: input \"b\" is not an earlier"},
        {FILE_OF(NODE(", \"inputs\": [0]")), "in:4: node 0: inputs: expected names or numbers"},
        {FILE_OF(NODE(", \"inputs\": 0")), "in:4: node 0: inputs: expected a list"},
        {FILE_OF(NODE(", \"is_input\": 1")), "is_input: expected true or false"},
        {FILE_OF(NODE("") ","), "in:5:1: "},
        {FILE_OF(NODE("") "7"), "in:4:"},
        {FILE_OF(NODE("") ",\n{\"name\" \"b\"}"), "in:5:"},
        {FILE_OF(NODE("") "], \"nodes\": ["), "in:4:93: duplicate object key"},
        {FILE_OF(NODE("") "]], [["), "in:4:85: '}' expected"},
        {FILE_OF(" "), "in:1: nodes: expected a list of at least one"},
        {"{\"format\": 1, \"model\": \"nodes\", \"nodes\": {\"a\": [1]}}",
         "in:1: nodes: expected a list of at least one"},
    };
    assert_refused(state, cases, sizeof cases / sizeof *cases);
    fr_ctx *ctx = fr_ctx_create();
    const fr_profile *p;
    assert_ok(ctx, read_text(ctx, state, FILE_OF(NODE("")), &p));
    assert_int_equal(p->nodes[0].kept_bytes, 4);
    assert_true(isnan(p->nodes[0].back_weight_s));
    fr_profile_free(p);
    /* The nodes may stand before the rest, and under a name with an escape. */
    static const char *const texts[] = {
        "{\"nodes\":[" NODE("") "],\"batch\":3,\"format\":1}",
        "{\"format\":1,\"batch\":3,\"\\u006eodes\":[" NODE("") "]}"};
    for (int i = 0; i < 2; i++) {
        assert_ok(ctx, read_text(ctx, state, texts[i], &p));
        assert_int_equal(p->batch, 3);
        assert_string_equal(p->nodes[0].name, "a");
        fr_profile_free(p);
    }
    assert_int_not_equal(fr_profile_read(ctx, support_path(state, "nowhere"), &p), FR_OK);
    fr_ctx_free(ctx);
}

static void scaled(void **state)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_profile_node node = {.forward_s = 1,
                            .backward_s = 2,
                            .back_input_s = NAN,
                            .back_weight_s = 1,
                            .update_s = 3,
                            .output_bytes = 10,
                            .kept_bytes = 20,
                            .param_bytes = 30,
                            .flops = 40};
    fr_profile by_hand = {
        .batch = 4, .n_nodes = 1, .nodes = &node, .step_s = 9, .workspace_bytes = 100};
    const fr_profile *p, *q;
    (void)state;
    assert_ok(ctx, fr_profile_copy(ctx, &by_hand, &p));
    assert_ok(ctx, fr_profile_scaled(ctx, p, 6, &q));
    const fr_profile_node *n = &q->nodes[0];
    assert_true(n->forward_s == 1.5 && n->backward_s == 3 && n->back_weight_s == 1.5);
    assert_true(isnan(n->back_input_s) && n->update_s == 3 && n->flops == 60);
    assert_int_equal(n->output_bytes, 15);
    assert_int_equal(n->kept_bytes, 30);
    assert_int_equal(n->param_bytes, 30);
    assert_true(q->batch == 6 && q->step_s == 0 && q->workspace_bytes == 150);
    fr_profile_free(p);
    fr_profile_free(q);
    by_hand.batch = 0;
    assert_ok(ctx, fr_profile_copy(ctx, &by_hand, &p));
    assert_fails(ctx, fr_profile_scaled(ctx, p, 6, &q), FR_INVALID, "cannot be scaled");
    fr_profile_free(p);
    fr_ctx_free(ctx);
}

#define SIZE(batch, forward_s, bytes)                                                         \
    "{\"format\": 1, \"batch\": " batch ", \"workspace_bytes\": " bytes                       \
    ",\n\"nodes\": [{\"name\": \"a\", \"forward_s\": " forward_s                              \
    ", \"backward_s\": 8,\n\"output_bytes\": " bytes ", \"param_bytes\": 8, \"update_s\": 1}" \
    "]}\n"

/* Known sizes are used unchanged, others are interpolated, and larger ones are proportional. */
static void sizes(void **state)
{
    static const struct {
        int batch;
        double forward_s;
        int64_t bytes;
        bool is_known;
    } cases[] = {{8, 10, 80, true},  {4, 7, 40, true},           {1, 6, 10, true},
                 {6, 8.5, 60, true}, {2, 6 + 1.0 / 3, 20, true}, {16, 20, 160, false}};
    fr_ctx *ctx = fr_ctx_create();
    const fr_profile *p, *q, *one;
    const char *path = support_path(state, "sizes.json");
    assert_ok(ctx,
              read_text(ctx, state,
                        SIZE("8", "10", "80") "\n" SIZE("1", "6", "10") SIZE("4", "7", "40"), &p));
    assert_int_equal(p->n_sizes, 2);
    assert_ok(ctx, fr_profile_write_json(ctx, p, path));
    assert_ok(ctx, fr_profile_read(ctx, path, &q));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(fr_profile_knows(q, cases[i].batch) == cases[i].is_known);
        assert_ok(ctx, fr_profile_scaled(ctx, q, cases[i].batch, &one));
        assert_int_equal(one->batch, cases[i].batch);
        assert_int_equal(one->n_sizes, 0);
        assert_true(fabs(one->nodes[0].forward_s - cases[i].forward_s) < 1e-12);
        assert_true(one->nodes[0].update_s == 1 && one->nodes[0].param_bytes == 8);
        assert_int_equal(one->nodes[0].output_bytes, cases[i].bytes);
        assert_true(fabs(one->workspace_bytes - (double)cases[i].bytes) < 1e-9);
        fr_profile_free(one);
    }
    fr_profile_free(p);
    fr_profile_free(q);
    fr_ctx_free(ctx);
}

static void bad_sizes(void **state)
{
    static const struct bad cases[] = {
        {SIZE("8", "1", "1") SIZE("8", "1", "1"), "in: profile of : two of 8 samples"},
        {SIZE("8", "1", "1") SIZE("2", "1", "1") SIZE("2", "1", "1"), "two of 2 samples"},
        {SIZE("8", "1", "1") SIZE("0", "1", "1"), "does not give its size"},
        {SIZE("0", "1", "1") SIZE("8", "1", "1"), "does not give its size"},
        {SIZE("8", "1", "1") "{\"format\": 1, \"batch\": 2, \"nodes\": [{\"name\": \"b\", "
                             "\"forward_s\": 1, \"backward_s\": 1, \"output_bytes\": 1, "
                             "\"param_bytes\": 1}]}",
         "node 0, a with 8 samples, differs with 2 (b)"},
        {SIZE("8", "1", "1") SIZE("4", "-1", "1"), "in:5: node 0: forward_s: expected"},
        {SIZE("8", "1", "1") "\n{\"format\": 1,\n oh}", "in:6:"},
        {SIZE("8", "1", "1") "oh", "in:4:"},
    };
    assert_refused(state, cases, sizeof cases / sizeof *cases);
}

struct walk {
    const char *text;
    void **state;
};

static fr_status read_and_write(fr_ctx *ctx, void *user)
{
    const struct walk *w = user;
    const fr_profile *p;
    FR_TRY(read_text(ctx, w->state, w->text, &p));
    fr_stage_cost cost;
    fr_status status = fr_profile_stage(ctx, p, 0, p->n_nodes, NULL, &cost);
    if (status == FR_OK) status = fr_profile_write_json(ctx, p, support_path(w->state, "o"));
    if (status == FR_OK) status = fr_profile_write_pipedream(ctx, p, support_path(w->state, "o"));
    fr_profile_free(p);
    return status;
}

static void no_memory(void **state)
{
    struct walk text = {pipedream, state}, json = {FILE_OF(NODE("")), state};
    struct walk several = {SIZE("8", "1", "1") SIZE("2", "1", "1"), state};
    assert_true(support_walk_memory(read_and_write, &text) > 10);
    assert_true(support_walk_memory(read_and_write, &json) > 10);
    assert_true(support_walk_memory(read_and_write, &several) > 20);
}

/* The profile that PipeDream publishes, if it is available. */
static void alexnet(void **state)
{
    const char *data = getenv("FR_DATA_DIR");
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s/pipedream-profiles/alexnet.txt", data ? data : "");
    if (!data || access(path, R_OK) != 0) skip_because("a published profile of PipeDream", NO_DATA);
    fr_ctx *ctx = fr_ctx_create();
    const fr_profile *p;
    fr_stage_cost cost;
    assert_ok(ctx, fr_profile_read(ctx, path, &p));
    assert_int_equal(p->n_nodes, 23);
    assert_true(p->nodes[0].is_input);
    for (int i = 0; i < 23; i++) assert_int_equal(atoi(p->nodes[i].name + 4), i + 1);
    assert_ok(ctx, fr_profile_stage(ctx, p, 0, 23, NULL, &cost));
    assert_int_equal(cost.param_bytes, 244403360);
    assert_true(fabs(cost.forward + cost.backward - 0.088) < 0.01);
    fr_profile_free(p);
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_round_trip), cmocka_unit_test(text_is_sorted),
        cmocka_unit_test(foreign_names),   cmocka_unit_test(bad_text),
        cmocka_unit_test(bad_json),        cmocka_unit_test(scaled),
        cmocka_unit_test(no_memory),       cmocka_unit_test(alexnet),
        cmocka_unit_test(sizes),           cmocka_unit_test(bad_sizes),
    };
    return cmocka_run_group_tests(tests, support_dir_make, support_dir_remove);
}
