/* exec_plan.c -- decisions that depend on schedule, policy and options: refusals, sums, fused
 * updates, contexts of policies. weight_walk.c counts weight blocks. */
#include "methods/methods.h"

#include "base/thread.h"

#include <string.h>

/* --- tied parameters -------------------------------------------------------------------------- */

static int stage_of(int n_stages, const fr_stage *stages, int node)
{
    int k = 0;
    while (k + 1 < n_stages && stages[k].last <= node) k++;
    return k;
}

/* The stage of a parameter that is tied, or -1; *owner: that of the one it is tied to. Frozen ones
 * stay equal by themselves. */
static int find_tie(const fr_graph *g, int n_stages, const fr_stage *stages, int param, int *owner)
{
    const fr_param *p = fr_graph_param(g, param);
    if (p->tied_to < 0 || p->is_frozen) return -1;
    *owner = stage_of(n_stages, stages, fr_graph_param(g, p->tied_to)->node);
    return stage_of(n_stages, stages, p->node);
}

int fr_exec_find_far_tie(const fr_graph *g, int n_stages, const fr_stage *stages)
{
    int owner;
    for (int i = 0; g && i < fr_graph_n_params(g); i++) {
        int k = find_tie(g, n_stages, stages, i, &owner);
        if (k >= 0 && k != owner) return i;
    }
    return -1;
}

/* Both in one stage: their gradients are added up before the step. far: in two stages, and this is
 * one of them. */
static bool has_tie(const fr_exec_desc *d, int stage, bool far)
{
    int owner;
    for (int i = 0; d->graph && i < fr_graph_n_params(d->graph); i++) {
        int k = find_tie(d->graph, d->schedule->n_stages, d->stages, i, &owner);
        if (k >= 0 && (k != owner) == far && (k == stage || owner == stage)) return true;
    }
    return false;
}

/* --- refusals --------------------------------------------------------------------------------- */

static const char *refuse_policy(const fr_policy *policy, const fr_policy_context *c)
{
    return policy->check ? policy->check(c) : NULL;
}

static bool is_live(const fr_policy *p) { return p == fr_policy_find("live"); }

static fr_status check_policy(fr_ctx *ctx, const fr_exec_plan *p)
{
    const fr_schedule *s = p->schedule;
    if (s->is_flush && !is_live(p->policy))
        return fr_fail(ctx, FR_INVALID,
                       "weights '%s' are for a pipeline that is never drained, schedule %s drains "
                       "before each update: all its weights are of one version; leave "
                       "parallel.weights out or choose an asynchronous method",
                       p->policy->name, s->name);
    for (int k = 0; k < s->n_stages; k++) {
        const char *wrong = refuse_policy(p->policy, &p->context[k]);
        if (wrong) return fr_fail(ctx, FR_INVALID, "weights '%s': %s", p->policy->name, wrong);
    }
    return FR_OK;
}

bool fr_exec_takes_policy(const fr_generator *g, const fr_schedule_desc *d, const fr_policy *policy)
{
    if (g->is_flush) return is_live(policy);
    for (int k = 0; k < d->n_stages; k++) {
        fr_schedule_desc share = *d;
        share.n_micro /= d->replicas ? d->replicas[k] : 1;
        fr_policy_context c = {.stage = k,
                               .n_stages = d->n_stages,
                               .lead = g->lead ? g->lead(&share, k) : 0,
                               .n_micro = share.n_micro};
        if (refuse_policy(policy, &c)) return false;
    }
    return true;
}

static bool exchanges_norms(const fr_exec_desc *d)
{
    return d->clip_late && d->clip_norm > 0 && !d->schedule->is_flush && d->schedule->n_stages > 1;
}

/* What stages exchange without a flush is proved not to block for workers with one stage each. */
static fr_status check_lone_stages(fr_ctx *ctx, const fr_schedule *s, const char *what,
                                   const char *remedy)
{
    for (int k = 0; k < s->n_stages; k++)
        for (int j = 0; j < k; j++)
            if (s->worker_of[j] == s->worker_of[k])
                return fr_fail(ctx, FR_UNSUPPORTED,
                               "%s between workers with one stage each, and worker %d has stages "
                               "%d and %d; %s",
                               what, s->worker_of[k], j, k, remedy);
    return FR_OK;
}

/* The step of update u waits for the norms of update u - D, D the largest delay. This never blocks
 * for good: let b be the earliest update that some stage has not stepped. Another stage that waits
 * at its update c does so for c - D >= b, and has computed all forwards of mini-batches up to c,
 * for those behind the step of c are of later ones. The stage at b needs forwards of mini-batches
 * up to b + D <= c only. With several stages on a worker one of them could wait for another. */
static fr_status check_late(fr_ctx *ctx, const fr_schedule *s)
{
    return check_lone_stages(ctx, s, "clip 'late' exchanges norms", "use train.clip: stage");
}

/* A place in the list of a stage: forwards before it. */
typedef struct place {
    const fr_schedule *s;
    int stage, at, n_forwards;
} place;

/* Behind the next step of the stage; false: there is none. */
static bool next_step(place *p)
{
    const fr_instr_list *list = &p->s->lists[p->s->worker_of[p->stage]];
    while (p->at < list->n) {
        const fr_instr *i = &list->at[p->at++];
        if (i->stage != p->stage) continue;
        if (i->action == FR_DO_STEP) return true;
        if (i->action == FR_DO_F) p->n_forwards += p->s->replicas[p->stage];
    }
    return false;
}

/* A forward of the copy waits for weights that the owner sent before the values that this forward
 * waits for anyway. The step of the owner waits for the gradient that the copy sends at its step of
 * the same mini-batch. This never blocks for good if the copy needs no forward before that step
 * that the owner computes after its own: what else the copy waits for depends on backwards of this
 * mini-batch and earlier ones, which come before the owner's step. */
static fr_status check_lending(fr_ctx *ctx, const fr_exec_desc *d, const fr_param *copy)
{
    const fr_schedule *s = d->schedule;
    const fr_param *owner = fr_graph_param(d->graph, copy->tied_to);
    int to = stage_of(s->n_stages, d->stages, copy->node);
    int from = stage_of(s->n_stages, d->stages, owner->node);
    if (from == to) return FR_OK;
    FR_TRY(check_lone_stages(ctx, s, "tied parameters are exchanged without a flush",
                             "untie them (model.tied: false)"));
    place theirs = {.s = s, .stage = from}, its = {.s = s, .stage = to};
    while (next_step(&theirs) && next_step(&its))
        if (its.n_forwards > theirs.n_forwards)
            return fr_fail(ctx, FR_UNSUPPORTED,
                           "%s is tied to %s, and %s runs stage %d further ahead than stage %d, "
                           "which would wait for its gradient; untie them (model.tied: false)",
                           copy->name, owner->name, d->name ? d->name : s->name, to, from);
    return FR_OK;
}

/* Without a flush stages do not wait for each other. */
static fr_status check_async(fr_ctx *ctx, const fr_exec_desc *d, int far_tie)
{
    if (exchanges_norms(d)) FR_TRY(check_late(ctx, d->schedule));
    for (int i = far_tie; i >= 0 && i < fr_graph_n_params(d->graph); i++)
        if (fr_graph_param(d->graph, i)->tied_to >= 0 && !fr_graph_param(d->graph, i)->is_frozen)
            FR_TRY(check_lending(ctx, d, fr_graph_param(d->graph, i)));
    return FR_OK;
}

/* Replicas that step on their own are whole pipelines: nothing may need all of them at once. */
static fr_status check_lone(fr_ctx *ctx, const fr_exec_desc *d, int far_tie)
{
    if (d->clip_norm > 0)
        return fr_fail(ctx, FR_UNSUPPORTED,
                       "clip_norm needs the norm of the whole gradient before any stage steps, and "
                       "sync '%s' does not compute it; use sync allreduce with a flush method, "
                       "one stage, or train.clip_norm: 0",
                       d->lone_sync);
    if (far_tie < 0) return FR_OK;
    const fr_param *a = fr_graph_param(d->graph, far_tie);
    return fr_fail(ctx, FR_UNSUPPORTED,
                   "%s is tied to %s, which is in another stage, and with sync '%s' they would "
                   "drift apart; untie them (model.tied: false), choose parallel.cuts that keep "
                   "both in one stage, or use sync allreduce",
                   a->name, fr_graph_param(d->graph, a->tied_to)->name, d->lone_sync);
}

static fr_status refuse(fr_ctx *ctx, const fr_exec_desc *d, const fr_exec_plan *p, int far_tie,
                        fr_exec_refusal *why)
{
    const fr_schedule *s = d->schedule;
    fr_status status = FR_OK;
    *why = FR_REFUSED_METHOD;
    if (!s->is_flush && s->n_stages > 1) status = check_async(ctx, d, far_tie);
    if (status != FR_OK) return status;
    *why = FR_REFUSED_WEIGHTS;
    FR_TRY(check_policy(ctx, p));
    *why = FR_REFUSED_SYNC;
    if (p->has_replicas && d->lone_sync && s->n_stages > 1) status = check_lone(ctx, d, far_tie);
    if (status == FR_OK) *why = FR_REFUSED_NOT;
    return status;
}

/* --- decisions -------------------------------------------------------------------------------- */

bool fr_exec_must_reduce(bool is_flush, bool has_far_ties, double clip_norm, bool want_norm)
{
    return is_flush && (has_far_ties || clip_norm > 0 || want_norm);
}

static bool has_reduce(const fr_schedule *s)
{
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++)
            if (s->lists[w].at[i].action == FR_DO_REDUCE) return true;
    return false;
}

/* The last gradient of a stage is its own: an I has sent that of its inputs. */
static bool ends_with_weights(const fr_schedule *s, int stage)
{
    const fr_instr_list *list = &s->lists[s->worker_of[stage]];
    int last = FR_DO_B;
    for (int i = 0; i < list->n; i++)
        if (list->at[i].stage == stage && list->at[i].action <= FR_DO_W) last = list->at[i].action;
    return last == FR_DO_W;
}

/* With a flush all workers wait for the last gradients of a mini-batch: those for another worker
 * are sent before the update, which then runs in this worker's idle time. Without a flush no worker
 * waits, and fusing saves a pass over memory. */
static bool holds_up_others(const fr_schedule *s, int stage)
{
    if (!s->is_flush || ends_with_weights(s, stage)) return false;
    for (int i = 0; i < s->n_backward; i++)
        if (s->backward[i].from == stage && s->worker_of[s->backward[i].to] != s->worker_of[stage])
            return true;
    return false;
}

static void decide(const fr_exec_desc *d, bool has_far_ties, fr_exec_plan *p)
{
    const fr_schedule *s = d->schedule;
    bool has_one_gradient;
    p->sums_replicas = p->has_replicas && !d->lone_sync;
    p->needs_norm = d->clip_norm > 0 || d->want_norm;
    p->norm_lag = exchanges_norms(d) ? p->context[0].max_delay : 0;
    has_one_gradient = !p->has_replicas || p->sums_replicas;
    p->sums_stages =
        s->n_stages > 1 && s->is_flush && has_one_gradient && (has_far_ties || p->needs_norm);
    p->lends_ties = s->n_stages > 1 && !s->is_flush && has_far_ties;
    for (int k = 0; k < s->n_stages; k++) {
        bool is_summed =
            (p->sums_replicas && s->replicas[k] > 1) || (d->exact_sum && p->context[k].n_micro > 1);
        p->needs_whole_gradient[k] = p->sums_stages || p->needs_norm || d->keep_grads ||
                                     has_tie(d, k, false) || (p->lends_ties && has_tie(d, k, true));
        p->update_in_backward[k] =
            !p->needs_whole_gradient[k] && !is_summed && !holds_up_others(s, k);
    }
}

static void fill_contexts(const fr_exec_desc *d, fr_exec_plan *p)
{
    const fr_schedule *s = d->schedule;
    int max_delay = 0;
    bool has_bound = d->policy_options.bounded_steps;
    bool is_normed = d->graph && fr_graph_is_batch_normed(d->graph);
    for (int k = 0; k < s->n_stages; k++) {
        p->context[k] = (fr_policy_context){.stage = k,
                                            .n_stages = s->n_stages,
                                            .lead = fr_schedule_lead(s, k),
                                            .n_micro = s->n_micro / s->replicas[k],
                                            .exact = d->policy_options.exact,
                                            .lr_warmup = d->policy_options.lr_warmup,
                                            .is_robust = has_bound || is_normed,
                                            .is_scale_free = is_normed && !has_bound,
                                            .n_slots = s->n_slots[k]};
        p->has_replicas |= s->replicas[k] > 1;
        int delay = (p->context[k].lead + p->context[k].n_micro - 1) / p->context[k].n_micro;
        if (delay > max_delay) max_delay = delay;
    }
    for (int k = 0; k < s->n_stages; k++) p->context[k].max_delay = max_delay;
}

static fr_status make(fr_ctx *ctx, const fr_exec_desc *d, fr_exec_plan *p, fr_exec_refusal *why)
{
    const fr_schedule *s = d->schedule;
    int far_tie = fr_exec_find_far_tie(d->graph, s->n_stages, d->stages);
    fill_contexts(d, p);
    FR_TRY(refuse(ctx, d, p, far_tie, why));
    decide(d, far_tie >= 0, p);
    if ((p->sums_stages || p->sums_replicas) && !has_reduce(s))
        return fr_fail(ctx, FR_INVALID,
                       "schedule %s has no reductions, but %s need the gradients of others",
                       s->name,
                       p->sums_replicas ? "replicas"
                       : far_tie >= 0   ? "tied parameters"
                                        : "norms");
    for (int k = 0; k < s->n_stages; k++) FR_TRY(fr__count_blocks(ctx, p, k));
    return FR_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

static bool allocate(fr_exec_plan *p, int n_stages)
{
    fr_arena *arena = p->arena = FR_NEW(fr_arena);
    if (!arena) return false;
    p->context = FR_ARENA_ARRAY(arena, fr_policy_context, n_stages);
    p->n_weight_blocks = FR_ARENA_ARRAY(arena, int, n_stages);
    p->needs_whole_gradient = FR_ARENA_ARRAY(arena, bool, n_stages);
    p->update_in_backward = FR_ARENA_ARRAY(arena, bool, n_stages);
    return p->context && p->n_weight_blocks && p->needs_whole_gradient && p->update_in_backward;
}

fr_status fr_exec_plan_create(fr_ctx *ctx, const fr_exec_desc *d, fr_exec_plan **out,
                              fr_exec_refusal *why)
{
    const fr_schedule *s = d->schedule;
    fr_exec_refusal ignored;
    if (!why) why = &ignored;
    *out = NULL;
    *why = FR_REFUSED_NOT;
    if (!s || !s->is_lowered)
        return fr_fail(ctx, FR_INVALID, "an execution plan needs a lowered schedule");
    fr_exec_plan *p = FR_NEW(fr_exec_plan);
    if (!p || !allocate(p, s->n_stages)) {
        fr_exec_plan_free(p);
        return fr__no_memory(ctx, (size_t)s->n_stages * sizeof *p->context, "an execution plan");
    }
    p->schedule = s;
    p->policy = d->policy ? d->policy : fr_policy_find("live");
    p->weight_type = d->graph ? fr_graph_precision(d->graph) : d->weight_type;
    fr_status status = make(ctx, d, p, why);
    if (status == FR_OK)
        *out = p;
    else
        fr_exec_plan_free(p);
    return status;
}

void fr_exec_plan_free(fr_exec_plan *p)
{
    if (!p) return;
    fr__arena_free(p->arena);
    fr__free(p);
}

/* --- cores ------------------------------------------------------------------------------------ */

fr_exec_cores fr_exec_share_cores(const fr_team *team, int n_workers, int n_threads, bool pin)
{
    int n_cores = fr__cpu_count(), neighbour, n_neighbours; /* processes on the same cores */
    fr_team_neighbours(team, &neighbour, &n_neighbours);
    fr_exec_cores c = {.n_threads = n_threads};
    if (c.n_threads == 0) c.n_threads = n_cores / (n_workers * n_neighbours);
    if (c.n_threads < 1) c.n_threads = 1;
    c.n_at_once = n_cores / c.n_threads / n_neighbours;
    if (c.n_at_once > n_workers) c.n_at_once = n_workers;
    if (c.n_at_once < 1) c.n_at_once = 1;
    bool fits = c.n_at_once * c.n_threads * n_neighbours <= n_cores;
    c.first_cpu = pin && fits ? neighbour * c.n_at_once * c.n_threads : -1;
    return c;
}

int fr_exec_device(const fr_team *team, int n_workers, int i, int n_devices)
{
    int neighbour, n_neighbours;
    fr_team_neighbours(team, &neighbour, &n_neighbours);
    return (neighbour * n_workers + i) % n_devices;
}

int fr_exec_first_cpu(const fr_exec_cores *c, int n_workers, int i)
{
    return c->first_cpu < 0 || c->n_at_once < n_workers ? -1 : c->first_cpu + i * c->n_threads;
}
