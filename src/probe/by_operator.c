/* by_operator.c -- a profile by kind of operator: where a mini-batch spends its time, and how long
 * it would take if all kernels of a kind ran at the best rate seen for that kind (the projection of
 * ProfileDNN, Fu et al. 2023). */
#include <forerun/probe.h>

#include "base/arena.h"
#include "base/names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Nodes that run as one kernel. */
struct kernel {
    int home; /* its first node */
    const char *kind;
    double flops;
};

struct work {
    const fr_profile *p;
    fr_operator_table *out;
    fr_arena *arena;
    struct kernel *kernels; /* [node]; flops and kind count at the home */
    fr__names names;        /* rows by kind */
    double n_micro;
};

/* --- kernels ---------------------------------------------------------------------------------- */

static bool has_time(const fr_profile_node *n) { return n->forward_s > 0 || n->backward_s > 0; }

/* A node that computes but takes no time is in the kernel of the node before it. The other inputs
 * of a kernel exist when it starts, so that node is the input with the highest number. */
static int find_home(const struct work *w, int i)
{
    const fr_profile_node *n = &w->p->nodes[i];
    int before = -1;
    for (int k = 0; k < n->n_inputs; k++)
        if (n->inputs[k] > before) before = n->inputs[k];
    bool is_fused = !has_time(n) && n->flops > 0 && before >= 0;
    return is_fused && has_time(&w->p->nodes[w->kernels[before].home]) ? w->kernels[before].home
                                                                       : i;
}

/* The operator is the first word of the description: "conv2d (64, 32, 32)", "Conv2d(3, 64)". */
static const char *kind_of(struct work *w, const fr_profile_node *n)
{
    size_t length = strcspn(n->about, " (,");
    if (length == 0) return "unknown";
    return fr__arena_printf(w->arena, "%.*s", (int)length, n->about);
}

static fr_status find_kernels(fr_ctx *ctx, struct work *w)
{
    w->kernels = FR_ARENA_ARRAY(w->arena, struct kernel, w->p->n_nodes);
    if (!w->kernels) return fr__no_memory(ctx, (size_t)w->p->n_nodes, "a table of operators");
    for (int i = 0; i < w->p->n_nodes; i++) {
        const fr_profile_node *n = &w->p->nodes[i];
        const char *kind = kind_of(w, n);
        w->kernels[i].home = find_home(w, i);
        struct kernel *home = &w->kernels[w->kernels[i].home];
        home->flops += n->flops;
        home->kind =
            home->kind && kind ? fr__arena_printf(w->arena, "%s+%s", home->kind, kind) : kind;
        if (!home->kind) return fr__no_memory(ctx, (size_t)w->p->n_nodes, "a table of operators");
    }
    return FR_OK;
}

/* --- rows ------------------------------------------------------------------------------------- */

static fr_operator_cost *row_of(struct work *w, const char *kind)
{
    int i = fr__names_find(&w->names, kind);
    if (i >= 0) return &w->out->at[i];
    if (!fr__names_add(&w->names, kind, w->out->n)) return NULL;
    w->out->at[w->out->n].kind = kind;
    return &w->out->at[w->out->n++];
}

/* Until the end projected_s has the time of kernels whose operations are not counted. */
static fr_status add_kernel(fr_ctx *ctx, struct work *w, int i)
{
    const fr_profile_node *n = &w->p->nodes[i];
    fr_operator_cost *row = row_of(w, w->kernels[i].kind);
    if (!row) return fr__no_memory(ctx, (size_t)w->p->n_nodes, "a table of operators");
    bool has_parts = !isnan(n->back_input_s) && !isnan(n->back_weight_s);
    double flops = w->n_micro * w->kernels[i].flops;
    double seconds = w->n_micro * (n->forward_s + n->backward_s);
    row->calls += (int64_t)w->n_micro;
    row->forward_s += w->n_micro * n->forward_s;
    row->back_input_s += w->n_micro * (has_parts ? n->back_input_s : n->backward_s / 2);
    row->back_weight_s += w->n_micro * (has_parts ? n->back_weight_s : n->backward_s / 2);
    row->total_s += seconds;
    row->flops += flops;
    if (flops > 0)
        row->best_flops_per_s = fmax(row->best_flops_per_s, flops / seconds);
    else
        row->projected_s += seconds;
    return FR_OK;
}

static int slower(const void *a, const void *b)
{
    const fr_operator_cost *x = a, *y = b;
    if (x->total_s != y->total_s) return x->total_s < y->total_s ? 1 : -1;
    return strcmp(x->kind, y->kind);
}

/* What a step does beside the kernels of nodes; no better rate is known for it. */
static void add_rest(fr_operator_table *t, const char *kind, int64_t calls, double seconds)
{
    if (!(seconds > 0)) return;
    t->at[t->n++] = (fr_operator_cost){
        .kind = kind, .calls = calls, .total_s = seconds, .projected_s = seconds};
    t->sum_s += seconds;
    t->projected_s += seconds;
}

static void finish(const struct work *w)
{
    fr_operator_table *t = w->out;
    double update_s = 0, fetch_s = 0;
    int64_t n_trained = 0;
    for (int i = 0; i < t->n; i++) {
        fr_operator_cost *row = &t->at[i];
        if (row->flops > 0) row->projected_s += row->flops / row->best_flops_per_s;
        row->projected_s = fmin(row->projected_s, row->total_s); /* rounding */
        t->sum_s += row->total_s;
        t->projected_s += row->projected_s;
    }
    qsort(t->at, (size_t)t->n, sizeof *t->at, slower);
    for (int i = 0; i < w->p->n_nodes; i++) {
        const fr_profile_node *n = &w->p->nodes[i];
        update_s += n->update_s;
        fetch_s += n->fetch_forward_s + n->fetch_backward_s;
        n_trained += n->param_bytes > 0;
    }
    add_rest(t, "update", n_trained, update_s);
    add_rest(t, "prediction", n_trained, fetch_s);
    add_rest(t, "other", 0, w->p->step_s - t->sum_s);
    t->step_s = w->p->step_s > 0 ? w->p->step_s : t->sum_s;
}

static fr_status fill(fr_ctx *ctx, struct work *w)
{
    enum { N_REST = 3 };
    w->out->at = FR_ARENA_ARRAY(w->arena, fr_operator_cost, w->p->n_nodes + N_REST);
    if (!w->out->at) return fr__no_memory(ctx, (size_t)w->p->n_nodes, "a table of operators");
    FR_TRY(find_kernels(ctx, w));
    for (int i = 0; i < w->p->n_nodes; i++)
        if (has_time(&w->p->nodes[i]) && !w->p->nodes[i].is_input) FR_TRY(add_kernel(ctx, w, i));
    finish(w);
    return FR_OK;
}

fr_status fr_profile_by_operator(fr_ctx *ctx, const fr_profile *p, fr_operator_table *out)
{
    *out = (fr_operator_table){.arena = FR_NEW(fr_arena)};
    if (!out->arena) return fr__no_memory(ctx, sizeof(fr_arena), "a table of operators");
    struct work w = {
        .p = p, .out = out, .arena = out->arena, .n_micro = p->n_micro > 0 ? p->n_micro : 1};
    fr_status status = fill(ctx, &w);
    fr__names_fini(&w.names);
    if (status != FR_OK) fr_operator_table_free(out);
    return status;
}

void fr_operator_table_free(fr_operator_table *t)
{
    fr__arena_free(t->arena);
    *t = (fr_operator_table){0};
}
