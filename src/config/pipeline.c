/* pipeline.c -- config -> cuts -> stages -> links -> schedule, each step checked.
 *
 * One stage takes the same path as many. A schedule file is read twice: first for its number of
 * stages, then with transfers for the links of the model. */
#include "config/parallel_checks.h"

#include <stdio.h>
#include <string.h>

/* State shared by the steps. */
typedef struct plan {
    fr_ctx *ctx;
    fr_conf *conf; /* `parallel` */
    const fr__settings *t;
    fr_graph *g;
    fr__pipeline *p;
    int64_t n_steps;
    int n_ranks;
    const int *replicas; /* (n_stages) as the config has it */
} plan;

/* Adds the place in the config to the failure of a called function. */
static fr_status refuse(plan *b, const char *key)
{
    return fr_conf_fail(b->conf, key, "%s", fr_ctx_error(b->ctx));
}

static fr_status at_place(plan *b, const char *key, fr_status status)
{
    return status == FR_INVALID ? refuse(b, key) : status;
}

/* --- cuts ------------------------------------------------------------------------------------ */

/* In a V a worker has two stages, and its sum counts. */
static bool is_v(const plan *b)
{
    const fr_generator *g = b->t->schedule_file ? NULL : fr_generator_find(b->t->method->generator);
    return g && g->is_v;
}

static fr_status cut(plan *b)
{
    fr__pipeline *p = b->p;
    int n = p->n_stages;
    p->cuts = FR_ARENA_ARRAY(&p->arena, int, n);
    p->stages = FR_ARENA_ARRAY(&p->arena, fr_stage, n);
    if (!p->cuts || !p->stages) return fr__no_memory(b->ctx, (size_t)n, "stages");
    if (b->t->n_cuts > 0)
        FR_TRY(at_place(b, "cuts", fr_graph_find_cuts(b->g, b->t->n_cuts, b->t->cuts, p->cuts)));
    else
        FR_TRY(at_place(b, "stages",
                        is_v(b) ? fr_graph_balance_v(b->g, n, p->cuts)
                                : fr_graph_balance(b->g, n, p->cuts)));
    return at_place(b, "cuts", fr_graph_cut(b->g, n - 1, p->cuts, p->stages));
}

static fr_status find_links(plan *b)
{
    fr__pipeline *p = b->p;
    int n = p->n_stages, room = n * (n - 1) / 2 + 1;
    p->forward = FR_ARENA_ARRAY(&p->arena, fr_link, room);
    p->backward = FR_ARENA_ARRAY(&p->arena, fr_link, room);
    if (!p->forward || !p->backward) return fr__no_memory(b->ctx, (size_t)room, "links");
    return fr_graph_links(b->g, n, p->stages, &p->n_forward, p->forward, &p->n_backward,
                          p->backward);
}

/* --- messages -------------------------------------------------------------------------------- */

static int stage_of(const fr__pipeline *p, int node)
{
    int k = 0;
    while (node >= p->stages[k].last) k++;
    return k;
}

/* Sets the type of every number that a worker reads and another one makes. Returns how many. */
static int shorten(const plan *b, fr_dtype *types)
{
    const fr__pipeline *p = b->p;
    const int *worker_of = p->schedule->worker_of;
    int n = 0;
    for (int k = 0; k < p->n_stages; k++)
        for (int i = 0; i < p->stages[k].n_inputs; i++) {
            int x = p->stages[k].inputs[i];
            const fr_node *node = fr_graph_node(b->g, x);
            if (node->op == FR_OP_INPUT || node->dtype == FR_I32) continue;
            if (worker_of[stage_of(p, x)] == worker_of[k]) continue;
            types[x] = FR_BF16;
            n++;
        }
    return n;
}

/* The cuts come first: they are those of the model, whatever its messages. */
static fr_status shorten_messages(plan *b)
{
    fr__pipeline *p = b->p;
    int n = fr_graph_n_nodes(b->g);
    if (!b->t->has_short_messages) return FR_OK;
    fr_dtype *types = FR_ARENA_ARRAY(&p->arena, fr_dtype, n);
    if (!types) return fr__no_memory(b->ctx, (size_t)n * sizeof *types, "types of messages");
    for (int i = 0; i < n; i++) types[i] = fr_graph_node(b->g, i)->dtype;
    if (shorten(b, types) == 0) {
        fr_log(b->ctx, FR_LOG_WARN,
               "parallel.messages has no effect: no stage of this run sends values to another "
               "worker");
        return FR_OK;
    }
    FR_TRY(fr_graph_retype(b->ctx, b->g, fr_graph_precision(b->g), types, &p->own_graph));
    b->g = p->graph = p->own_graph;
    return fr_graph_cut(p->graph, p->n_stages - 1, p->cuts, p->stages);
}

/* --- what does not go together --------------------------------------------------------------- */

/* A refusal of the plan gets its place in the config. */
static fr_status make_plan(plan *b)
{
    const fr__settings *t = b->t;
    fr__pipeline *p = b->p;
    const fr_sync *sync = fr_sync_find(p->sync.name);
    const fr_exec_desc d = {.schedule = p->schedule,
                            .name = t->schedule_file ? "this schedule" : t->method->name,
                            .policy = t->policy,
                            .policy_options = fr__settings_policy_options(t),
                            .graph = b->g,
                            .stages = p->stages,
                            .lone_sync = sync && sync->steps_alone ? sync->name : NULL,
                            .clip_norm = t->clip_norm,
                            .clip_late = t->clip_late,
                            .want_norm = t->grad_norm,
                            .exact_sum = t->exact_sum};
    fr_exec_refusal why;
    fr_status status = fr_exec_plan_create(b->ctx, &d, &p->plan, &why);
    const char *key = why == FR_REFUSED_WEIGHTS && p->schedule->is_flush ? "weights" : "method";
    if (why == FR_REFUSED_WEIGHTS && fr_conf_has(b->conf, "weights")) key = "weights";
    if (why == FR_REFUSED_SYNC && fr_conf_has(b->conf, "sync")) key = "sync";
    return why == FR_REFUSED_NOT ? status : refuse(b, key);
}

/* --- schedule -------------------------------------------------------------------------------- */

static fr_schedule_desc describe(const plan *b, bool is_flush)
{
    const fr__settings *t = b->t;
    int64_t segment = t->segment < b->n_steps ? t->segment : b->n_steps;
    return (fr_schedule_desc){.n_stages = b->p->n_stages,
                              .chunks = t->chunks,
                              .lead = t->lead,
                              .reorder = t->reorder,
                              .n_micro = (int)t->micro,
                              .n_batches = is_flush ? 1 : (int)segment,
                              .n_forward = b->p->n_forward,
                              .n_backward = b->p->n_backward,
                              .forward = b->p->forward,
                              .backward = b->p->backward,
                              .replicas = b->replicas,
                              .must_reduce = fr_exec_must_reduce(is_flush, b->p->has_far_ties,
                                                                 t->clip_norm, t->grad_norm)};
}

static fr_status schedule_by_method(plan *b)
{
    const fr_method *m = b->t->method;
    const fr_generator *g = fr_generator_find(m->generator);
    if (!g) return fr_fail(b->ctx, FR_INTERNAL, "method %s: no schedule %s", m->name, m->generator);
    fr_schedule_desc d = describe(b, g->is_flush);
    if (d.chunks > 1 && !g->has_chunks)
        return fr_conf_fail(b->conf, "chunks",
                            "method '%s' gives every worker one stage; leave parallel.chunks out "
                            "or choose method interleaved",
                            m->name);
    if (d.lead > 1 && !g->has_lead)
        return fr_conf_fail(
            b->conf, "lead",
            "method '%s' has a fixed order; leave parallel.lead out, or choose 1f1b "
            "or an asynchronous method",
            m->name);
    if (d.reorder && !g->has_reorder)
        return fr_conf_fail(b->conf, "reorder",
                            "method '%s' has a fixed order; leave parallel.reorder out, or choose "
                            "v-half or v-min",
                            m->name);
    FR_TRY(fr__parallel_check_replicas(b->conf, b->t, g, d.n_stages));
    const char *wrong = g->check ? g->check(&d) : NULL;
    if (wrong) return fr_conf_fail(b->conf, "method", "method '%s': %s", m->name, wrong);
    return at_place(b, fr_conf_has(b->conf, "chunks") ? "chunks" : "method",
                    fr_schedule_create(b->ctx, g, &d, &b->p->schedule));
}

/* The number of stages in the file decides how the model is cut, hence for which links the second
 * reading adds transfers. The second reading logs the warnings. */
static fr_status count_stages(plan *b)
{
    const fr_schedule *s;
    fr_schedule_desc d = {.n_stages = b->t->n_replicas > 1 ? b->t->n_replicas : 0,
                          .replicas = b->t->replicas};
    fr_status status = fr_schedule_read(NULL, b->t->schedule_file, (int)b->t->micro, &d, &s);
    if (status != FR_OK)
        return at_place(b, "schedule_file", fr_fail(b->ctx, status, "%s", fr_ctx_error(NULL)));
    b->p->n_stages = s->n_stages;
    fr_schedule_free(s);
    if (b->t->stages == 0 || b->t->stages == b->p->n_stages) return FR_OK;
    return fr_conf_fail(b->conf, b->t->n_cuts > 0 ? "cuts" : "stages",
                        "%s is a schedule of %d stages, the model is cut into %d; make them equal "
                        "(without parallel.stages and parallel.cuts the file decides)",
                        b->t->schedule_file, b->p->n_stages, b->t->stages);
}

static fr_status check_file(const plan *b)
{
    const char *path = b->t->schedule_file;
    const fr_schedule *s = b->p->schedule;
    if (s->is_forward_only)
        return fr_conf_fail(b->conf, "schedule_file", "%s has no backward: it cannot train", path);
    if (s->n_micro != b->t->micro)
        return fr_conf_fail(b->conf, "schedule_file",
                            "%s has %d micro-batches in a mini-batch, train.micro is %lld; make "
                            "them equal",
                            path, s->n_micro, (long long)b->t->micro);
    return FR_OK;
}

/* Whether the file drains between updates is known only after it has been read; must_reduce depends
 * on it. */
static fr_status schedule_by_file(plan *b)
{
    const char *path = b->t->schedule_file;
    fr__pipeline *p = b->p;
    fr_schedule_desc d = describe(b, false);
    d.must_reduce = false;
    FR_TRY(fr_schedule_read(b->ctx, path, (int)b->t->micro, &d, &p->schedule));
    d = describe(b, p->schedule->is_flush);
    if (d.must_reduce) {
        fr_schedule_free(p->schedule);
        p->schedule = NULL;
        FR_TRY(fr_schedule_read(b->ctx, path, (int)b->t->micro, &d, &p->schedule));
    }
    return check_file(b);
}

/* The check names worker and step; for a schedule file, the file is added. */
static fr_status check_schedule(plan *b)
{
    fr_status status = fr_schedule_check(b->ctx, b->p->schedule);
    if (status != FR_INVALID || !b->t->schedule_file) return status;
    return fr_fail(b->ctx, FR_INVALID, "%s: %s", b->t->schedule_file, fr_ctx_error(b->ctx));
}

static void warn(const plan *b)
{
    const char *wanted = b->t->method->optimizer;
    if (wanted && !b->t->schedule_file && strcmp(wanted, b->t->optimizer->name) != 0)
        fr_log(b->ctx, FR_LOG_WARN, "method %s is made for the optimizer %s, the config has %s",
               b->t->method->name, wanted, b->t->optimizer->name);
    fr__parallel_warn(b->ctx, b->t, b->p);
}

static fr_status find_replicas(plan *b)
{
    int *list = FR_ARENA_ARRAY(&b->p->arena, int, b->p->n_stages);
    if (!list) return fr__no_memory(b->ctx, (size_t)b->p->n_stages, "replicas");
    for (int k = 0; k < b->p->n_stages; k++) list[k] = fr__settings_replicas(b->t, k);
    b->replicas = list;
    return FR_OK;
}

static fr_status open_all(plan *b)
{
    fr__pipeline *p = b->p;
    if (b->t->schedule_file) FR_TRY(count_stages(b));
    FR_TRY(find_replicas(b));
    FR_TRY(cut(b));
    FR_TRY(fr__pipeline_find_recompute(b->conf, b->t, b->g, p));
    FR_TRY(find_links(b));
    p->has_far_ties = fr_exec_find_far_tie(b->g, p->n_stages, p->stages) >= 0;
    FR_TRY(b->t->schedule_file ? schedule_by_file(b) : schedule_by_method(b));
    FR_TRY(check_schedule(b));
    FR_TRY(shorten_messages(b));
    FR_TRY(fr__parallel_check_sync(b->conf, b->t, b->p));
    FR_TRY(make_plan(b));
    FR_TRY(fr__parallel_check_ranks(b->conf, b->t, b->p, b->n_ranks));
    warn(b);
    return FR_OK;
}

fr_status fr__pipeline_open(fr_ctx *ctx, fr_conf *root, const fr__settings *t, fr_graph *g,
                            int64_t n_steps, int n_ranks, fr__pipeline *p)
{
    memset(p, 0, sizeof *p);
    p->n_stages = t->stages;
    p->graph = g;
    plan b = {.ctx = ctx, .t = t, .g = g, .p = p, .n_steps = n_steps, .n_ranks = n_ranks};
    fr_status status = fr_conf_section(root, "parallel", &b.conf);
    if (status == FR_OK) status = open_all(&b);
    if (status != FR_OK) fr__pipeline_close(p);
    return status;
}

void fr__pipeline_close(fr__pipeline *p)
{
    fr_exec_plan_free(p->plan);
    fr_schedule_free(p->schedule);
    fr_graph_free(p->own_graph);
    fr__arena_fini(&p->arena);
    memset(p, 0, sizeof *p);
}

const char *fr__pipeline_cuts_text(const fr__pipeline *p, const fr_graph *g, char *text,
                                   size_t room)
{
    text[0] = '\0';
    for (int i = 0; i + 1 < p->n_stages; i++)
        fr__append_name(text, room, fr_graph_node(g, p->cuts[i])->name);
    return text;
}
