/* stability.c -- the limits of stability of all methods, as a table or JSON. */
#include "stability.h"

#include "json.h"
#include "weight_versions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const fr_method *method;
    char *refusal; /* NULL: none */
    fr_stability limits;
} row;

typedef struct table {
    const fr_update_rule *rule;
    int stages, micro;
    int n;
    row rows[64];
} table;

static fr_status make_schedule(fr_ctx *ctx, const table *t, const fr_method *m,
                               const fr_schedule **out)
{
    const fr_generator *g = fr_generator_find(m->generator);
    int most = m->max_stages > 0 ? m->max_stages : t->stages;
    int chunks = m->chunks > 0 ? m->chunks : 1;
    fr_schedule_desc d = {.n_stages = (t->stages < most ? t->stages : most) * chunks,
                          .n_micro = t->micro,
                          .chunks = m->chunks};
    FR_TRY(versions_set_batches(ctx, g, &d));
    return fr_schedule_create(ctx, g, &d, out);
}

static fr_status judge(fr_ctx *ctx, const table *t, const fr_schedule *s, row *r)
{
    const fr_exec_desc d = {.schedule = s,
                            .name = r->method->name,
                            .policy = fr_policy_find(r->method->policy),
                            .policy_options = t->rule->policy_options};
    fr_exec_plan *p;
    FR_TRY(fr_exec_plan_create(ctx, &d, &p, NULL));
    fr_status status =
        fr_exec_plan_stability(ctx, p, t->rule->optimizer, &t->rule->options, &r->limits);
    fr_exec_plan_free(p);
    return status;
}

/* Where others are shown, a policy that these sizes do not allow has a row with the reason. */
static fr_status add(fr_ctx *ctx, table *t, const fr_method *m, bool has_others)
{
    const fr_schedule *s;
    row *r = &t->rows[t->n++];
    r->method = m;
    FR_TRY(make_schedule(ctx, t, m, &s));
    fr_status status = judge(ctx, t, s, r);
    fr_schedule_free(s);
    if (!has_others || (status != FR_INVALID && status != FR_UNSUPPORTED)) return status;
    r->refusal = strdup(fr_ctx_error(ctx));
    return r->refusal ? FR_OK : fr_fail(ctx, FR_NO_MEMORY, "out of memory");
}

static void print_row(const char *form, const row *r)
{
    char shared[32] = "-", within[32] = "-", stage[16] = "-", factor[32] = "-";
    if (!r->refusal) {
        snprintf(shared, sizeof shared, "%.3g", r->limits.shared);
        snprintf(within, sizeof within, "%.3g", r->limits.within);
        snprintf(stage, sizeof stage, "%d", r->limits.stage);
        snprintf(factor, sizeof factor, "%.3g", fr_stability_factor(&r->limits));
    }
    printf(form, r->method->name, shared, within, stage, factor);
}

static void print_table(const table *t, bool is_markdown)
{
    const char *form = is_markdown ? "| %s | %s | %s | %s | %s |\n" : "%-15s  %7s  %9s  %5s  %s\n";
    printf("largest stable learning rate x curvature: %d stage%s, %d micro-batch%s per update, "
           "optimizer %s\n\n",
           t->stages, t->stages == 1 ? "" : "s", t->micro, t->micro == 1 ? "" : "es",
           t->rule->optimizer->name);
    printf(form, "method", "shared", "one stage", "stage", "times below one worker");
    if (is_markdown) printf("|---|---|---|---|---|\n");
    for (int i = 0; i < t->n; i++) print_row(form, &t->rows[i]);
    for (int i = 0; i < t->n; i++)
        if (t->rows[i].refusal) printf("\n%s: %s\n", t->rows[i].method->name, t->rows[i].refusal);
}

/* Infinite numbers have no JSON. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *pack_row(const row *r)
{
    const fr_stability *l = &r->limits;
    if (r->refusal) return json_pack("{ss ss}", "name", r->method->name, "refused", r->refusal);
    return json_pack("{ss so so si so}", "name", r->method->name, "shared", number(l->shared),
                     "within", number(l->within), "stage", l->stage, "factor",
                     number(fr_stability_factor(l)));
}

static json_t *pack(const table *t)
{
    json_t *root = json_pack("{si si ss s[]}", "stages", t->stages, "micro", t->micro, "optimizer",
                             t->rule->optimizer->name, "methods");
    int failed = !root;
    for (int i = 0; i < t->n; i++)
        failed |= json_array_append_new(json_object_get(root, "methods"), pack_row(&t->rows[i]));
    if (!failed) return root;
    json_decref(root);
    return NULL;
}

int stability_print(fr_ctx *ctx, const fr_update_rule *rule, int stages, int micro,
                    const fr_method *only, stability_format format)
{
    table t = {.rule = rule, .stages = stages, .micro = micro};
    int code = 0;
    fr_status status = add(ctx, &t, fr_method_find("single"), false);
    for (int i = 0; fr_method_list()[i] && status == FR_OK; i++) {
        const fr_method *m = fr_method_list()[i];
        if (m == t.rows[0].method) continue;
        if (only ? m == only : !fr_generator_find(m->generator)->is_flush)
            status = add(ctx, &t, m, !only);
    }
    if (status == FR_OK && format == STABILITY_JSON)
        code = json_print(pack(&t));
    else if (status == FR_OK)
        print_table(&t, format == STABILITY_MARKDOWN);
    for (int i = 0; i < t.n; i++) free(t.rows[i].refusal);
    return status == FR_OK ? code : cli_finish(ctx, status);
}
