/* cmd_models.c -- forerun models: sizes and costs of the models, as a table or node by node. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

typedef struct sizes {
    int64_t image, classes, context;
} sizes;

static bool has_key(const fr_model *m, const char *key)
{
    for (const char *const *k = m->keys; *k; k++)
        if (strcmp(*k, key) == 0) return true;
    return false;
}

static fr_status build(fr_ctx *ctx, const fr_model *m, const sizes *s, fr_graph **g)
{
    fr_model_options o = *m->defaults;
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

static fr_status print_model(fr_ctx *ctx, const char *name, const sizes *s)
{
    const fr_model *m = fr_model_find(name);
    if (!m)
        return fr_fail(ctx, FR_INVALID, "no model is called '%s'; forerun models lists them", name);
    fr_graph *g;
    char a[32], b[32], c[32];
    FR_TRY(build(ctx, m, s, &g));
    printf("%s: %s\n%s parameters, %sFLOP forward, %sB activations a sample\nkeys: ", m->name,
           m->summary, cli_short((double)fr_graph_param_count(g), a, sizeof a),
           cli_short(flops_of(g), b, sizeof b),
           cli_short((double)fr_model_activation_bytes(g), c, sizeof c));
    print_keys(m);
    print_nodes(g);
    fr_graph_free(g);
    return FR_OK;
}

static int run(const cli_verb *verb, int argc, char **argv)
{
    sizes s = {0};
    const char *name;
    const cli_option options[] = {
        {"image", "N", "height and width of the images", CLI_INT, &s.image},
        {"classes", "N", "classes", CLI_INT, &s.classes},
        {"context", "N", "tokens of a sample", CLI_INT, &s.context},
        {NULL, NULL, NULL, CLI_FLAG, NULL},
    };
    int code = cli_parse(verb, options, argc, argv, 1, &name);
    if (code >= 0) return code;
    fr_ctx *ctx = cli_context(true);
    return cli_finish(ctx, name ? print_model(ctx, name, &s) : print_table(ctx, &s));
}

const cli_verb cli_models = {
    .name = "models",
    .usage = "models [MODEL] [--image N] [--classes N] [--context N]",
    .summary = "models there are: parameters, FLOP, activation bytes, keys",
    .argument = "MODEL",
    .run = run,
};
