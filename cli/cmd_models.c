/* cmd_models.c -- forerun models: sizes and costs of the models, as a table or node by node. */
#include "cli.h"
#include "json.h"

#include <stdio.h>
#include <string.h>

typedef struct sizes {
    int64_t image, classes, context;
    bool want_json;
} sizes;

static bool has_key(const fr_model *m, const char *key)
{
    for (const char *const *k = m->keys; *k; k++)
        if (strcmp(*k, key) == 0) return true;
    return false;
}

static fr_status build(fr_ctx *ctx, const fr_model *m, const sizes *s, fr_graph **g)
{
    fr_model_options o = {0};
    if (s->image > 0 && has_key(m, "image")) o.image = s->image;
    if (s->classes > 0 && has_key(m, "classes")) o.classes = s->classes;
    if (s->context > 0 && has_key(m, "context")) o.context = s->context;
    return fr_model_build(ctx, m, &o, g);
}

static double flops_of(const fr_graph *g)
{
    double sum = 0;
    for (int i = 0; i < fr_graph_n_nodes(g); i++) sum += fr_graph_node(g, i)->flops_forward;
    return sum;
}

static void print_keys(const fr_model *m)
{
    for (int i = 0; m->keys[i]; i++) printf("%s%s", i ? ", " : "", m->keys[i]);
    printf("\n");
}

static const char *input_text(const fr_graph *g, char *text, size_t room)
{
    int input = fr_graph_find(g, "input");
    return input < 0 ? "" : fr_shape_text(&fr_graph_node(g, input)->shape, text, room);
}

static fr_status print_table(fr_ctx *ctx, const sizes *s)
{
    char a[32], b[32], c[32], in[64];
    printf("%-12s %-14s %10s %14s %14s  %s\n", "model", "input", "parameters", "FLOP/sample",
           "bytes/sample", "keys");
    for (const fr_model *const *m = fr_model_list(); *m; m++) {
        fr_graph *g;
        FR_TRY(build(ctx, *m, s, &g));
        printf("%-12s %-14s %10s %14s %14s  ", (*m)->name, input_text(g, in, sizeof in),
               cli_short((double)fr_graph_param_count(g), a, sizeof a),
               cli_short(flops_of(g), b, sizeof b),
               cli_short((double)fr_model_activation_bytes(g), c, sizeof c));
        print_keys(*m);
        fr_graph_free(g);
    }
    printf("\nFLOP of one forward (a multiply-add counts 2); bytes of all activations, fp32.\n"
           "Sizes are the defaults; forerun models NAME shows one model node by node.\n");
    return FR_OK;
}

static int64_t node_params(const fr_graph *g, const fr_node *n)
{
    int64_t sum = 0;
    for (int i = 0; i < n->n_params; i++) {
        const fr_param *p = fr_graph_param(g, n->params[i]);
        if (!p->is_buffer && p->tied_to < 0) sum += fr_shape_count(&p->shape);
    }
    return sum;
}

static void print_nodes(const fr_graph *g)
{
    char a[32], b[32], shape[64];
    printf("%5s  %-28s %-14s %-18s %10s %10s  %s\n", "node", "name", "operator", "output",
           "parameters", "FLOP", "inputs");
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        const fr_node *n = fr_graph_node(g, i);
        printf("%5d  %-28s %-14s %-18s %10s %10s ", i, n->name, fr_operator_name(n->op),
               fr_shape_text(&n->shape, shape, sizeof shape),
               cli_short((double)node_params(g, n), a, sizeof a),
               cli_short(n->flops_forward, b, sizeof b));
        for (int k = 0; k < n->n_inputs; k++) printf(" %d", n->inputs[k]);
        printf("\n");
    }
}

static fr_status unknown_model(fr_ctx *ctx, const char *name)
{
    return fr_fail(ctx, FR_INVALID, "no model is called '%s'; forerun models lists them", name);
}

static fr_status print_model(fr_ctx *ctx, const char *name, const sizes *s)
{
    const fr_model *m = fr_model_find(name);
    if (!m) return unknown_model(ctx, name);
    fr_graph *g;
    char a[32], b[32], c[32];
    FR_TRY(build(ctx, m, s, &g));
    printf("%s: %s\n%s parameters, %sFLOP forward, %sB activations per sample\nkeys: ", m->name,
           m->summary, cli_short((double)fr_graph_param_count(g), a, sizeof a),
           cli_short(flops_of(g), b, sizeof b),
           cli_short((double)fr_model_activation_bytes(g), c, sizeof c));
    print_keys(m);
    print_nodes(g);
    fr_graph_free(g);
    return FR_OK;
}

/* --- as JSON --------------------------------------------------------------------------------- */

static json_t *pack_keys(const fr_model *m)
{
    json_t *list = json_array();
    for (int i = 0; m->keys[i]; i++) json_array_append_new(list, json_string(m->keys[i]));
    return list;
}

static json_t *pack_nodes(const fr_graph *g)
{
    char shape[64];
    json_t *list = json_array();
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        const fr_node *n = fr_graph_node(g, i);
        json_t *inputs = json_array();
        for (int k = 0; k < n->n_inputs; k++)
            json_array_append_new(inputs, json_integer(n->inputs[k]));
        json_array_append_new(list, json_pack("{ss ss ss sI sf so}", "name", n->name, "operator",
                                              fr_operator_name(n->op), "output",
                                              fr_shape_text(&n->shape, shape, sizeof shape),
                                              "parameters", (json_int_t)node_params(g, n), "flops",
                                              n->flops_forward, "inputs", inputs));
    }
    return list;
}

/* NULL: no memory. */
static json_t *pack_graph(const fr_model *m, const fr_graph *g, bool has_nodes)
{
    char in[64];
    json_t *j =
        json_pack("{ss ss ss sI sf sI so}", "name", m->name, "summary", m->summary, "input",
                  input_text(g, in, sizeof in), "parameters", (json_int_t)fr_graph_param_count(g),
                  "flops", flops_of(g), "activation_bytes",
                  (json_int_t)fr_model_activation_bytes(g), "keys", pack_keys(m));
    if (j && has_nodes) json_object_set_new(j, "nodes", pack_nodes(g));
    return j;
}

static fr_status pack_model(fr_ctx *ctx, const fr_model *m, const sizes *s, bool has_nodes,
                            json_t **out)
{
    fr_graph *g;
    FR_TRY(build(ctx, m, s, &g));
    *out = pack_graph(m, g, has_nodes);
    fr_graph_free(g);
    return *out ? FR_OK : fr_fail(ctx, FR_NO_MEMORY, "out of memory for model %s", m->name);
}

static fr_status print_json(fr_ctx *ctx, const char *name, const sizes *s)
{
    json_t *root = NULL, *one;
    const fr_model *wanted = name ? fr_model_find(name) : NULL;
    if (name && !wanted) return unknown_model(ctx, name);
    fr_status status = wanted ? pack_model(ctx, wanted, s, true, &root) : FR_OK;
    if (!wanted) root = json_array();
    for (const fr_model *const *m = fr_model_list(); *m && !wanted && status == FR_OK; m++) {
        status = pack_model(ctx, *m, s, false, &one);
        if (status == FR_OK) json_array_append_new(root, one);
    }
    if (status == FR_OK) json_print(json_incref(root));
    json_decref(root);
    return status;
}

#define AT(member) offsetof(sizes, member)
static const cli_option options[] = {
    {"image", "N", "height and width of the images", CLI_COUNT, AT(image)},
    {"classes", "N", "classes", CLI_COUNT, AT(classes)},
    {"context", "N", "tokens of a sample", CLI_COUNT, AT(context)},
    CLI_JSON(AT(want_json)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    sizes s = {0};
    const char *name;
    int code = cli_parse(verb, argc, argv, &s, 1, &name);
    if (code >= 0) return code;
    fr_ctx *ctx = cli_context(true);
    if (s.want_json) return cli_finish(ctx, print_json(ctx, name, &s));
    return cli_finish(ctx, name ? print_model(ctx, name, &s) : print_table(ctx, &s));
}

const cli_verb cli_models = {
    .name = "models",
    .usage = "models [MODEL] [--image N] [--classes N] [--context N] [--json]",
    .summary = "list the models: parameters, FLOP, activation bytes, keys",
    .argument = "MODEL",
    .options = options,
    .run = run,
};
