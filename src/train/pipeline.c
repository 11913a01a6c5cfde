/* pipeline.c -- config -> cuts -> stages -> links -> schedule, each step checked.
 *
 * One stage takes the same path as many. A schedule file is read twice: first it tells how many
 * stages there are, then it is made to fit the links of the model. */
#include "train/layout.h"

#include <stdio.h>
#include <string.h>

/* What the steps share. */
typedef struct plan {
    fr_ctx *ctx;
    fr_conf *conf; /* `parallel` */
    const fr_settings *t;
    fr_graph *g;
    fr_pipeline *p;
    int64_t n_steps;
    int n_ranks;
    const int *replicas; /* (n_stages) as the config has it */
} plan;

/* A failure that the graph explains gets its place in the config. */
static fr_status at_place(plan *b, const char *key, fr_status status)
{
    return status == FR_INVALID ? fr_conf_fail(b->conf, key, "%s", fr_ctx_error(b->ctx)) : status;
}

/* --- cuts ------------------------------------------------------------------------------------ */

static fr_status cut(plan *b)
{
    fr_pipeline *p = b->p;
    int n = p->n_stages;
    p->cuts = FR_ARENA_ARRAY(&p->arena, int, n);
    p->stages = FR_ARENA_ARRAY(&p->arena, fr_stage, n);
    if (!p->cuts || !p->stages) return fr__no_memory(b->ctx, (size_t)n, "stages");
    if (b->t->n_cuts > 0)
        FR_TRY(at_place(b, "cuts", fr_graph_find_cuts(b->g, b->t->n_cuts, b->t->cuts, p->cuts)));
    else
        FR_TRY(at_place(b, "stages", fr_graph_balance(b->g, n, p->cuts)));
    return at_place(b, "cuts", fr_graph_cut(b->g, n - 1, p->cuts, p->stages));
}

/* The graph knows stages, the schedule links: the same pairs. */
static fr_link *as_links(plan *b, int n, const fr_stage_link *pairs)
{
    fr_link *links = FR_ARENA_ARRAY(&b->p->arena, fr_link, n + 1);
    for (int i = 0; links && i < n; i++) links[i] = (fr_link){pairs[i].from, pairs[i].to};
    return links;
}

static fr_status find_links(plan *b)
{
    fr_pipeline *p = b->p;
    int n = p->n_stages, room = n * (n - 1) / 2 + 1;
    fr_stage_link *forward = FR_ARENA_ARRAY(&p->arena, fr_stage_link, room);
    fr_stage_link *backward = FR_ARENA_ARRAY(&p->arena, fr_stage_link, room);
    if (!forward || !backward) return fr__no_memory(b->ctx, (size_t)room, "links");
    FR_TRY(fr_graph_links(b->g, n, p->stages, &p->n_forward, forward, &p->n_backward, backward));
    p->forward = as_links(b, p->n_forward, forward);
    p->backward = as_links(b, p->n_backward, backward);
    return p->forward && p->backward ? FR_OK : fr__no_memory(b->ctx, (size_t)room, "links");
}

static int stage_of(const fr_pipeline *p, int node)
{
    int k = 0;
    while (k + 1 < p->n_stages && p->cuts[k] <= node) k++;
    return k;
}

/* The first tied parameter whose owner lives in another stage, or -1. */
static int find_far_tie(const plan *b)
{
    for (int i = 0; i < fr_graph_n_params(b->g); i++) {
        const fr_param *a = fr_graph_param(b->g, i);
        if (a->tied_to < 0) continue;
        const fr_param *owner = fr_graph_param(b->g, a->tied_to);
        if (stage_of(b->p, a->node) != stage_of(b->p, owner->node)) return i;
    }
    return -1;
}

/* --- what does not go together --------------------------------------------------------------- */

static fr_status check_async(plan *b)
{
    if (b->p->n_stages == 1) return FR_OK;
    const char *who = b->t->schedule_file ? "this schedule" : b->t->method->name;
    int tie = find_far_tie(b);
    if (b->t->clip_norm > 0)
        return fr_conf_fail(b->conf, "method",
                            "clip_norm needs the norm of the whole gradient before any stage "
                            "steps, and with %s the stages do not wait for each other; use a flush "
                            "method (1f1b, zb-h1, ...), one stage, or train.clip_norm: 0",
                            who);
    if (tie < 0) return FR_OK;
    const fr_param *a = fr_graph_param(b->g, tie), *owner = fr_graph_param(b->g, a->tied_to);
    return fr_conf_fail(b->conf, "method",
                        "%s is tied to %s, which is in another stage, and with %s the two would "
                        "see different updates; untie them (model.tied: false), choose "
                        "parallel.cuts that keep both in one stage, or use a flush method",
                        a->name, owner->name, who);
}

static fr_status check_policy(plan *b)
{
    const fr_settings *t = b->t;
    const fr_schedule *s = b->p->schedule;
    if (s->is_flush && strcmp(t->policy->name, "live") != 0)
        return fr_conf_fail(b->conf, "weights",
                            "weights '%s' are for a pipeline that is never drained, schedule %s "
                            "drains before each update: all its weights are of one version; leave "
                            "parallel.weights out or choose an asynchronous method",
                            t->policy->name, s->name);
    for (int k = 0; k < s->n_stages; k++) {
        fr_seat seat = {.stage = k,
                        .n_stages = s->n_stages,
                        .lead = fr_schedule_lead(s, k),
                        .n_micro = s->n_micro / s->replicas[k],
                        .exact = t->exact,
                        .lr_warmup = t->lr_warmup,
                        .n_slots = s->n_slots[k]};
        const char *wrong = t->policy->check ? t->policy->check(&seat) : NULL;
        if (wrong)
            return fr_conf_fail(b->conf, fr_conf_has(b->conf, "weights") ? "weights" : "method",
                                "weights '%s': %s", t->policy->name, wrong);
    }
    return FR_OK;
}

/* --- schedule -------------------------------------------------------------------------------- */

static fr_schedule_desc describe(const plan *b, bool is_flush)
{
    const fr_settings *t = b->t;
    int64_t segment = t->segment < b->n_steps ? t->segment : b->n_steps;
    return (fr_schedule_desc){
        .n_stages = b->p->n_stages,
        .chunks = t->chunks,
        .n_micro = (int)t->micro,
        .n_batches = is_flush ? 1 : (int)segment,
        .n_forward = b->p->n_forward,
        .n_backward = b->p->n_backward,
        .forward = b->p->forward,
        .backward = b->p->backward,
        .replicas = b->replicas,
        /* What is asked of the whole gradient: of asynchronous stages it is known too late. */
        .must_reduce = t->clip_norm > 0 || b->p->has_far_ties || (t->grad_norm && is_flush)};
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
    FR_TRY(fr__layout_check_replicas(b->conf, b->t, g, d.n_stages));
    const char *wrong = g->check ? g->check(&d) : NULL;
    if (wrong) return fr_conf_fail(b->conf, "method", "method '%s': %s", m->name, wrong);
    if (!g->is_flush) FR_TRY(check_async(b));
    return fr_schedule_create(b->ctx, g, &d, &b->p->schedule);
}

/* How many stages a file has decides how the model is cut, and so which links a second reading adds
 * transfers for. Warnings are left to that. */
static fr_status count_stages(plan *b)
{
    fr_schedule *s;
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

/* Whether the file drains between updates, and so what may be asked of it, is known when it has
 * been read. */
static fr_status schedule_by_file(plan *b)
{
    const char *path = b->t->schedule_file;
    fr_pipeline *p = b->p;
    fr_schedule_desc d = describe(b, false);
    d.must_reduce = false;
    FR_TRY(fr_schedule_read(b->ctx, path, (int)b->t->micro, &d, &p->schedule));
    if (!p->schedule->is_flush) FR_TRY(check_async(b));
    d = describe(b, p->schedule->is_flush);
    if (d.must_reduce) {
        fr_schedule_free(p->schedule);
        p->schedule = NULL;
        FR_TRY(fr_schedule_read(b->ctx, path, (int)b->t->micro, &d, &p->schedule));
    }
    return check_file(b);
}

/* The proof names worker and step; of a schedule that somebody wrote, its file too. */
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
    fr__layout_warn(b->ctx, b->t, b->p);
}

static fr_status find_replicas(plan *b)
{
    int *list = FR_ARENA_ARRAY(&b->p->arena, int, b->p->n_stages);
    if (!list) return fr__no_memory(b->ctx, (size_t)b->p->n_stages, "replicas");
    for (int k = 0; k < b->p->n_stages; k++) list[k] = fr__settings_replicas(b->t, k);
    b->replicas = list;
    return FR_OK;
}

/* A stage whose weights change between a forward and its backward computes with those of the
 * backward: allowed, and said. */
static fr_status find_recompute(plan *b)
{
    const fr_settings *t = b->t;
    fr_pipeline *p = b->p;
    if (!t->recomputes_all && t->n_recompute == 0) return FR_OK;
    p->recompute = FR_ARENA_ARRAY(&p->arena, bool, p->n_stages);
    if (!p->recompute) return fr__no_memory(b->ctx, (size_t)p->n_stages, "stages");
    for (int k = 0; k < p->n_stages; k++) p->recompute[k] = t->recomputes_all;
    for (int i = 0; i < t->n_recompute; i++) {
        if (t->recompute[i] >= p->n_stages)
            return fr_conf_fail(b->conf, "recompute", "there is no stage %d; they are 0 to %d",
                                t->recompute[i], p->n_stages - 1);
        p->recompute[t->recompute[i]] = true;
    }
    return FR_OK;
}

static fr_status open_all(plan *b)
{
    if (b->t->schedule_file) FR_TRY(count_stages(b));
    FR_TRY(find_replicas(b));
    FR_TRY(cut(b));
    FR_TRY(find_recompute(b));
    FR_TRY(find_links(b));
    b->p->has_far_ties = find_far_tie(b) >= 0;
    FR_TRY(b->t->schedule_file ? schedule_by_file(b) : schedule_by_method(b));
    FR_TRY(check_policy(b));
    FR_TRY(check_schedule(b));
    FR_TRY(fr__layout_check_sync(b->conf, b->t, b->p));
    FR_TRY(fr__layout_check_ranks(b->conf, b->t, b->p, b->n_ranks));
    warn(b);
    return FR_OK;
}

fr_status fr__pipeline_open(fr_ctx *ctx, fr_conf *root, const fr_settings *t, fr_graph *g,
                            int64_t n_steps, int n_ranks, fr_pipeline *p)
{
    memset(p, 0, sizeof *p);
    p->n_stages = t->stages;
    plan b = {.ctx = ctx, .t = t, .g = g, .p = p, .n_steps = n_steps, .n_ranks = n_ranks};
    fr_status status = fr_conf_section(root, "parallel", &b.conf);
    if (status == FR_OK) status = open_all(&b);
    if (status != FR_OK) fr__pipeline_close(p);
    return status;
}

void fr__pipeline_close(fr_pipeline *p)
{
    fr_schedule_free(p->schedule);
    fr__arena_fini(&p->arena);
    memset(p, 0, sizeof *p);
}

const char *fr__pipeline_cuts_text(const fr_pipeline *p, const fr_graph *g, char *text, size_t room)
{
    text[0] = '\0';
    for (int i = 0; i + 1 < p->n_stages; i++)
        fr__append_name(text, room, fr_graph_node(g, p->cuts[i])->name);
    return text;
}
