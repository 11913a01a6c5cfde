/* fuzz_profile.c -- any bytes as a profile, JSON or PipeDream's text: refused with a text, or what
 * was read has costs and links, and comes back the same from both formats. */
#include "cost/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

static void same(const fr_profile *p, const fr_profile *q)
{
    must(p->n_nodes == q->n_nodes);
    for (int i = 0; i < p->n_nodes; i++) {
        const fr_profile_node *x = &p->nodes[i], *y = &q->nodes[i];
        must(x->n_inputs == y->n_inputs && x->is_input == y->is_input);
        must(x->output_bytes == y->output_bytes && x->param_bytes == y->param_bytes);
        must(fabs(x->forward_s - y->forward_s) <= 1e-12 * x->forward_s);
        for (int k = 0; k < x->n_inputs; k++) must(x->inputs[k] == y->inputs[k]);
    }
}

static void write_and_read(fr_ctx *ctx, const fr_profile *p, bool is_json)
{
    char *text;
    const fr_profile *again;
    must((is_json ? fr__profile_to_json : fr__profile_to_text)(ctx, p, &text) == FR_OK);
    must(fr__profile_parse(ctx, "again", text, strlen(text), &again) == FR_OK);
    if (is_json) same(p, again);
    must(p->n_nodes == again->n_nodes);
    fr_profile_free(again);
    fr__free(text);
}

static void use(fr_ctx *ctx, const fr_profile *p)
{
    fr_stage_cost cost;
    fr_stage_link f, b;
    size_t f_bytes, b_bytes;
    int n_f, n_b, cut = p->n_nodes / 2;
    bool *again = malloc((size_t)p->n_nodes);
    must(again != NULL);
    for (int i = 0; i < p->n_nodes; i++) again[i] = i % 3 > 0;
    must(fr_profile_stage(ctx, p, 0, p->n_nodes, again, &cost) == FR_OK);
    free(again);
    must(fr_curve_time(&cost.final, 1) <= 1);
    if (cut > 0 &&
        fr_profile_links(ctx, p, 2, &cut, &n_f, &f, &f_bytes, &n_b, &b, &b_bytes) != FR_OK)
        fr_ctx_clear(ctx); /* a half of inputs only */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fr_ctx *ctx = fr_ctx_create();
    const fr_profile *p;
    char *text = malloc(size + 1);
    must(ctx && text);
    memcpy(text, data, size);
    text[size] = '\0';
    if (fr__profile_parse(ctx, "fuzz", text, size, &p) != FR_OK) {
        must(!p && *fr_ctx_error(ctx));
    } else {
        use(ctx, p);
        write_and_read(ctx, p, true);
        write_and_read(ctx, p, false);
    }
    fr_profile_free(p);
    free(text);
    fr_ctx_free(ctx);
    return 0;
}
