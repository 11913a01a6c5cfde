/* operators.c -- forerun profile --by operator. */
#include "operators.h"

#include "cli.h"
#include "json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_NAME = 10, MOST_NAME = 32 };

static double rate(const fr_operator_cost *row)
{
    return row->flops > 0 ? row->flops / row->total_s : NAN;
}

static double of_peak(const fr_operator_cost *row, double peak)
{
    return peak > 0 ? rate(row) / peak : NAN;
}

/* --- a table ---------------------------------------------------------------------------------- */

static void put_number(double value, int width, int digits)
{
    if (isfinite(value))
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void put_row(const fr_operator_table *t, const fr_operator_cost *row, int width, double peak)
{
    bool has_kernels = row->forward_s + row->back_input_s + row->back_weight_s > 0;
    char kind[2 * MOST_NAME];
    fr_escape(row->kind, kind, sizeof kind);
    printf("%-*.*s", width, width, kind);
    put_number(row->calls > 0 ? (double)row->calls : NAN, 6, 0);
    put_number(has_kernels ? 1e3 * row->forward_s : NAN, 9, 3);
    put_number(has_kernels ? 1e3 * row->back_input_s : NAN, 9, 3);
    put_number(has_kernels ? 1e3 * row->back_weight_s : NAN, 9, 3);
    put_number(1e3 * row->total_s, 10, 3);
    put_number(100 * row->total_s / t->step_s, 6, 1);
    put_number(1e-9 * rate(row), 8, 2);
    put_number(100 * of_peak(row, peak), 6, 1);
    put_number(1e3 * row->projected_s, 10, 3);
    putchar('\n');
}

static void print_table(const fr_operator_table *t, double peak)
{
    int width = LEAST_NAME;
    for (int i = 0; i < t->n; i++) {
        int n = (int)strlen(t->at[i].kind);
        if (n > width) width = n < MOST_NAME ? n : MOST_NAME;
    }
    printf("%-*s %6s %9s %9s %9s %10s %6s %8s %6s %10s\n", width, "kind", "calls", "forward",
           "input", "weight", "total ms", "%", "GF/s", "% peak", "projected");
    fr_operator_cost all = {.kind = "all", .total_s = t->sum_s, .projected_s = t->projected_s};
    for (int i = 0; i < t->n; i++) {
        put_row(t, &t->at[i], width, peak);
        all.flops += t->at[i].flops;
    }
    put_row(t, &all, width, peak);
    printf("projected: ms at the best GF/s of each kind");
    if (peak > 0) printf("; peak: %.1f GF/s, the fastest matrix product of a worker", 1e-9 * peak);
    putchar('\n');
}

fr_status operators_print(fr_ctx *ctx, const fr_profile *p, double peak)
{
    fr_operator_table t;
    FR_TRY(fr_profile_by_operator(ctx, p, &t));
    print_table(&t, peak);
    fr_operator_table_free(&t);
    return FR_OK;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *pack_row(const fr_operator_table *t, const fr_operator_cost *row, double peak)
{
    bool has_rate = row->flops > 0;
    return json_pack(
        "{ss sI sf sf sf sf sf so so so so sf}", "kind", row->kind, "calls", (json_int_t)row->calls,
        "forward_s", row->forward_s, "back_input_s", row->back_input_s, "back_weight_s",
        row->back_weight_s, "total_s", row->total_s, "share", row->total_s / t->step_s, "flops",
        json_finite(has_rate ? row->flops : NAN), "flops_per_s", json_finite(rate(row)),
        "best_flops_per_s", json_finite(has_rate ? row->best_flops_per_s : NAN), "of_peak",
        json_finite(of_peak(row, peak)), "projected_s", row->projected_s);
}

fr_status operators_print_json(fr_ctx *ctx, const fr_profile *p, double peak)
{
    fr_operator_table t;
    FR_TRY(fr_profile_by_operator(ctx, p, &t));
    json_t *rows = json_array();
    for (int i = 0; i < t.n; i++) json_array_append_new(rows, pack_row(&t, &t.at[i], peak));
    json_print(json_pack("{ss ss ss si si sf sf sf so so}", "by", "operator", "model", p->model,
                         "machine", p->machine, "batch", p->batch, "n_micro", p->n_micro, "step_s",
                         t.step_s, "rows_s", t.sum_s, "projected_s", t.projected_s,
                         "peak_flops_per_s", json_finite(peak > 0 ? peak : NAN), "rows", rows));
    fr_operator_table_free(&t);
    return FR_OK;
}
