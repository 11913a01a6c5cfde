/* gpt2_config.c -- config.json of Hugging Face's GPT-2.
 *
 * Weights show most sizes by their shapes, but not the number of heads, the activation or eps. A
 * network that differs in these would accept the weights and compute other numbers. */
#include "models/weight_map.h"

#include "base/alloc.h"
#include "io/file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CONFIG = 1 << 20 }; /* bytes */

static const fr_node *node_of(const fr_graph *g, fr_operator op)
{
    int at = fr_graph_find_op(g, op);
    return at < 0 ? NULL : fr_graph_node(g, at);
}

static int64_t count(const fr_graph *g, fr_operator op)
{
    int64_t n = 0;
    for (int i = 0; i < fr_graph_n_nodes(g); i++) n += fr_graph_node(g, i)->op == op;
    return n;
}

static fr_status differs(fr_ctx *ctx, const char *path, const char *key, const char *is,
                         const char *wanted)
{
    return fr_fail(ctx, FR_INVALID,
                   "%s: %s is %s, model gpt has %s; the same weights would give "
                   "other numbers",
                   path, key, is, wanted);
}

static fr_status check_heads(fr_ctx *ctx, const char *path, const json_t *root, const fr_graph *g)
{
    const json_t *heads = json_object_get(root, "n_head");
    const fr_node *attention = node_of(g, FR_OP_ATTENTION);
    if (!heads || !attention || json_integer_value(heads) == attention->attrs.attention.heads)
        return FR_OK;
    return fr_fail(ctx, FR_INVALID,
                   "%s: n_head is %lld, the model has %d heads; set model.heads: %lld", path,
                   (long long)json_integer_value(heads), attention->attrs.attention.heads,
                   (long long)json_integer_value(heads));
}

static fr_status check_words(fr_ctx *ctx, const char *path, const json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const char *gelu = json_string_value(json_object_get(root, "activation_function"));
    if (type && strcmp(type, "gpt2") != 0) return differs(ctx, path, "model_type", type, "gpt2");
    if (gelu && strcmp(gelu, "gelu_new") != 0 && strcmp(gelu, "gelu_pytorch_tanh") != 0)
        return differs(ctx, path, "activation_function", gelu, "gelu_new");
    if (json_is_false(json_object_get(root, "scale_attn_weights")))
        return differs(ctx, path, "scale_attn_weights", "false", "true");
    if (json_is_true(json_object_get(root, "scale_attn_by_inverse_layer_idx")))
        return differs(ctx, path, "scale_attn_by_inverse_layer_idx", "true", "false");
    return FR_OK;
}

static fr_status check_eps(fr_ctx *ctx, const char *path, const json_t *root, const fr_graph *g)
{
    const json_t *eps = json_object_get(root, "layer_norm_epsilon");
    const fr_node *norm = node_of(g, FR_OP_LAYER_NORM);
    double wanted = norm ? (double)norm->attrs.norm.eps : 0, is = json_number_value(eps);
    char here[32], there[32];
    if (!eps || !norm || fabs(is - wanted) <= 1e-6 * wanted) return FR_OK;
    snprintf(here, sizeof here, "%g", wanted);
    snprintf(there, sizeof there, "%g", is);
    return differs(ctx, path, "layer_norm_epsilon", there, here);
}

fr_status fr__gpt2_check(fr_ctx *ctx, const fr_graph *g, const char *path)
{
    unsigned char *text;
    size_t bytes;
    json_error_t error;
    FR_TRY(fr__file_read_regular(ctx, path, MAX_CONFIG, &text, &bytes));
    json_t *root = json_loadb((const char *)text, bytes, 0, &error);
    fr__free(text);
    fr_status status = FR_OK;
    if (!json_is_object(root))
        status = fr_fail(ctx, FR_INVALID, "%s: line %d: %s", path, error.line,
                         root ? "not an object" : error.text);
    if (status == FR_OK) status = check_words(ctx, path, root);
    if (status == FR_OK) status = check_heads(ctx, path, root, g);
    if (status == FR_OK) status = check_eps(ctx, path, root, g);
    json_decref(root);
    return status;
}

void fr__gpt2_describe(const fr_graph *g, const char *dtype, fr__json *j)
{
    const fr_node *embed = node_of(g, FR_OP_EMBEDDING), *attention = node_of(g, FR_OP_ATTENTION);
    const fr_node *drop = node_of(g, FR_OP_DROPOUT), *norm = node_of(g, FR_OP_LAYER_NORM);
    int head = fr_graph_find_param(g, "head.weight");
    char p[32], eps[32];
    snprintf(p, sizeof p, "%g", drop ? (double)drop->attrs.dropout.p : 0);
    snprintf(eps, sizeof eps, "%g", norm ? (double)norm->attrs.norm.eps : 1e-5);
    fr__json_list(j, "architectures"), fr__json_text(j, NULL, "GPT2LMHeadModel"), fr__json_end(j);
    fr__json_text(j, "model_type", "gpt2");
    fr__json_int(j, "vocab_size", embed ? embed->attrs.embedding.vocab : 0);
    fr__json_int(j, "n_positions", embed ? embed->attrs.embedding.positions : 0);
    fr__json_int(j, "n_embd", embed ? embed->attrs.embedding.width : 0);
    fr__json_int(j, "n_layer", count(g, FR_OP_ATTENTION));
    fr__json_int(j, "n_head", attention ? attention->attrs.attention.heads : 0);
    fr__json_text(j, "activation_function", "gelu_new");
    fr__json_number(j, "layer_norm_epsilon", eps);
    fr__json_number(j, "resid_pdrop", p);
    fr__json_number(j, "embd_pdrop", p);
    fr__json_int(j, "attn_pdrop", 0);
    fr__json_bool(j, "tie_word_embeddings", head >= 0 && fr_graph_param(g, head)->tied_to >= 0);
    /* Their defaults are those of the published vocabulary. */
    bool is_published = embed && embed->attrs.embedding.vocab > 50256;
    fr__json_number(j, "bos_token_id", is_published ? "50256" : "");
    fr__json_number(j, "eos_token_id", is_published ? "50256" : "");
    fr__json_text(j, "torch_dtype", dtype);
}
