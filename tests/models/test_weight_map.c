/* test_weight_map.c -- names of parameters in other programs. For torchvision the oracle is
 * tests/fixtures/torchvision.txt: all tensors of its networks. */
#include "models/weight_map.h"
#include "support/check.h"

#include <forerun/models.h>

static fr_ctx *ctx;

static void gives(const char *model, const char *prefix, const char *own, const char *theirs,
                  bool is_transposed)
{
    fr__weight_names names;
    const fr__weight_map *map = fr__weight_map_of(model);
    if (!theirs) {
        assert_false(fr__weight_names_of(map, prefix, own, &names));
        return;
    }
    assert_true(fr__weight_names_of(map, prefix, own, &names));
    assert_int_equal(names.n, theirs[0] ? 1 : 0);
    if (names.n) assert_string_equal(names.name[0], theirs);
    assert_int_equal(names.is_transposed, is_transposed);
}

static void patterns(void **state)
{
    (void)state;
    gives("gpt", "transformer.", "embed.position", "transformer.wpe.weight", false);
    gives("gpt", "", "h.11.attn.qkv.weight", "h.11.attn.c_attn.weight", true);
    gives("gpt", "", "h.0.attn.qkv.bias", "h.0.attn.c_attn.bias", false);
    gives("gpt", "", "h.3.ln_2.bias", "h.3.ln_2.bias", false);
    gives("gpt", "transformer.", "head.weight", "lm_head.weight", false);
    gives("gpt", "", "head.bias", "", false);
    gives("gpt", "", "h.x.ln_2.bias", NULL, false);
    gives("gpt", "", "h..ln_2.bias", NULL, false);
    gives("gpt", "", "ln_f.", NULL, false);
    gives("gpt", "", "embed.weight.more", NULL, false);
    gives("alexnet", "module.", "features.4.conv.bias", "module.features.10.bias", false);
    gives("alexnet", "", "features.1.bn.weight", NULL, false);
    gives("mlp", "", "fc.0.weight", "fc.0.weight", false);
    assert_null(fr__weight_map_of("mlp"));
    const fr__weight_map *gpt = fr__weight_map_of("gpt");
    assert_true(fr__weight_is_ignored(gpt, "transformer.", "transformer.h.7.attn.bias"));
    assert_false(fr__weight_is_ignored(gpt, "transformer.", "h.7.attn.bias"));
    assert_false(fr__weight_is_ignored(gpt, "", "h.7.attn.c_attn.bias"));
    assert_false(fr__weight_is_ignored(NULL, "", "h.7.attn.bias"));
    char name[FR_TENSOR_NAME + 8];
    memset(name, 'x', sizeof name);
    memcpy(name, "ln_f.", 5);
    name[sizeof name - 1] = '\0';
    gives("gpt", "", name, NULL, false);
}

typedef struct tensor {
    char name[96], type[8];
    fr_shape shape;
    bool is_used;
} tensor;

static tensor list[400];
static int n_list;

/* All tensors belong to a parameter of the same shape or are ignored; all parameters have one. */
static void compare(const char *model, bool batch_norm)
{
    fr_graph *g;
    fr__weight_names names;
    const fr__weight_map *map = fr__weight_map_of(model);
    fr_model_options o = {.batch_norm = batch_norm};
    assert_ok(ctx, fr_model_build(ctx, fr_model_find(model), &o, &g));
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        const fr_param *p = fr_graph_param(g, i);
        int at = 0;
        assert_true(fr__weight_names_of(map, "", p->name, &names) && names.n == 1);
        while (at < n_list && strcmp(list[at].name, names.name[0]) != 0) at++;
        if (at == n_list) fail_msg("%s: torchvision has no %s", model, names.name[0]);
        assert_true(fr_shape_equal(&list[at].shape, &p->shape) && !list[at].is_used);
        list[at].is_used = true;
    }
    for (int i = 0; i < n_list; i++)
        if (fr__weight_is_ignored(map, "", list[i].name) == list[i].is_used)
            fail_msg("%s: %s of torchvision is %s", model, list[i].name,
                     list[i].is_used ? "ignored" : "not in the model");
    fr_graph_free(g);
}

static void torchvision(void **state)
{
    char line[256], model[64] = "", network[64] = "";
    int n_networks = 0;
    (void)state;
    FILE *f = fopen(FR_SOURCE_DIR "/tests/fixtures/torchvision.txt", "r");
    assert_non_null(f);
    for (bool is_end = false; !is_end;) {
        is_end = !fgets(line, sizeof line, f);
        if (is_end || strncmp(line, "model ", 6) == 0) {
            if (model[0]) compare(model, strstr(network, "_bn") != NULL), n_networks++;
            n_list = 0;
            if (!is_end) assert_int_equal(sscanf(line, "model %63s %63s", model, network), 2);
            continue;
        }
        tensor *t = &list[n_list++];
        assert_true(n_list <= 400);
        *t = (tensor){.is_used = false};
        long long d[4];
        int n = sscanf(line, "%95s %7s %lld %lld %lld %lld", t->name, t->type, &d[0], &d[1], &d[2],
                       &d[3]);
        t->shape.n_dims = n - 2;
        for (int i = 0; i < n - 2; i++) t->shape.dim[i] = d[i];
    }
    fclose(f);
    assert_int_equal(n_networks, 4);
}

static int set_up(void **state)
{
    (void)state;
    ctx = fr_ctx_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fr_ctx_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),
        cmocka_unit_test(torchvision),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
