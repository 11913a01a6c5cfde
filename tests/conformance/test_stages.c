/* test_stages.c -- a net cut in two gives the gradients of the whole, bit for bit, for any cut. In
 * floats, in bf16, and in a mixture, where a cut may be between two types. */
#include <string.h>

#include "support/backend.h"
#include "support/cases.h"
#include "support/harness.h"
#include "support/test.h"

static void open_stage(harness *h, const net *n, const fr_backend *b, int batch, int first,
                       int last)
{
    fr_stage stage = {.first = first, .last = last};
    harness_options options = {.backend = b, .batch = batch};
    if (harness_open_graph(h, n->graph, &stage, &options) != FR_OK)
        fail_msg("nodes %d to %d: %s", first, last, fr_ctx_error(h->ctx));
    harness_fill(h, n, 6);
    h->pass.loss_scale = 0.25f;
}

static void must_run(harness *h)
{
    if (harness_run(h) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
}

/* y of `from` becomes x of `to`, or dx of `to` becomes dy of `from`, node by node. */
static void carry(harness *from, harness *to, bool backward)
{
    for (int i = 0; i < from->n_out; i++) {
        int at = fr_program_find_input(to->program, fr_program_output(from->program, i)->node);
        if (at < 0) continue;
        size_t bytes = from->n_y[i] * sizeof(float);
        if (!backward)
            memcpy(to->x[at], from->y[i], bytes);
        else if (from->dy[i])
            memcpy(from->dy[i], to->dx[at], bytes);
    }
}

/* Parameters of a part against the same ones of the whole. */
static bool same_params(verdict *v, const harness *part, const harness *whole)
{
    for (int i = 0; i < part->n_params; i++)
        for (int j = 0; j < whole->n_params; j++) {
            int param = fr_program_placement(part->program, i)->param;
            if (param != fr_program_placement(whole->program, j)->param) continue;
            const char *name = fr_graph_param(part->graph, param)->name;
            bool is_trained = part->dw[i] != NULL;
            if (!harness_near(v, name, is_trained ? part->dw[i] : part->after[i],
                              is_trained ? whole->dw[j] : whole->after[j], part->n_w[i], 0))
                return false;
        }
    return true;
}

static void check_cut(const net *n, const net_case *c, const fr_backend *b, const harness *whole,
                      int cut)
{
    harness first, second;
    verdict v;
    open_stage(&first, n, b, c->batch, n->stage.first, cut);
    open_stage(&second, n, b, c->batch, cut, n->stage.last);
    must_run(&first); /* with any gradient: only its values are needed here */
    carry(&first, &second, false);
    must_run(&second);
    carry(&first, &second, true);
    must_run(&first);
    int y = second.n_out - 1;
    bool good = harness_near(&v, "y", second.y[y], whole->y[whole->n_out - 1], second.n_y[y], 0) &&
                same_params(&v, &first, whole) && same_params(&v, &second, whole);
    if (!good)
        fail_msg("%s, cut before %s: %s: %s", fr_backend_name(b),
                 fr_graph_node(n->graph, cut)->name, c->line, v.text);
    harness_close(&first), harness_close(&second);
}

static void check_cuts(const fr_backend *b, const net_case *c, fr_dtype precision, uint64_t others)
{
    net n;
    harness whole;
    net_build(&n, c->line);
    net_set_types(&n, precision, others);
    open_stage(&whole, &n, b, c->batch, n.stage.first, n.stage.last);
    must_run(&whole);
    for (int cut = n.stage.first + 1; cut < n.stage.last; cut++) check_cut(&n, c, b, &whole, cut);
    harness_close(&whole);
    net_free(&n);
}

static void all_cuts(fr_dtype precision, uint64_t others)
{
    FOR_EACH_BACKEND(b)
    for (size_t i = 0; i < n_network_cases; i++)
        if (!strstr(network_cases[i].line, "keep"))
            check_cuts(*b, &network_cases[i], precision, others);
}

static void cuts_do_not_matter(void **state)
{
    (void)state;
    all_cuts(FR_F32, 0);
}

static void nor_in_bf16(void **state)
{
    (void)state;
    all_cuts(FR_BF16, 0);
    all_cuts(FR_BF16, 0x3333333333333333); /* every other pair in floats */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_do_not_matter),
        cmocka_unit_test(nor_in_bf16),
    };
    return cmocka_run_group_tests_name("conformance/stages", tests, NULL, NULL);
}
