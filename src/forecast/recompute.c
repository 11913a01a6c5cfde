/* recompute.c -- parallel.recompute: auto: the cheapest nodes within the memory of each worker.
 *
 * Times of nodes are measured, or read from parallel.profile. The estimate of the simulator
 * proposes nodes, the engine compiles its programs with them, as for a run, and says what they
 * take. The limits of the next proposal are corrected by the difference, until proposals do not
 * change.
 *
 * With several processes rank 0 chooses, and compiles as for one process. Workers of several take
 * more, for messages, whatever is recomputed: this is measured once, by all of them. */
#include "forecast/recompute.h"

#include "base/text.h"
#include "forecast/forecast.h"
#include "io/conf.h"
#include "io/json.h"
#include "io/units.h"

#include <math.h>
#include <string.h>

enum { MOST_ROUNDS = 8, NAMES = 8 };

typedef struct search {
    fr__setup *s;
    fr_cluster *cluster; /* NULL: none */
    fr_arena arena;
    int n_workers, n_nodes;
    size_t *limits, *corrected; /* [n_workers]; 0: none */
    fr_memory_use *use;         /* [n_workers] of the nodes compiled last */
    uint64_t *in_team;          /* [n_workers] bytes without recompute; of several processes only */
    int64_t *extra;             /* [n_workers] bytes that processes take beyond one; 0 at first */
    bool *now, *best;           /* [n_nodes] */
    double best_s;              /* INFINITY: none yet */
    const fr_profile *profile;
} search;

size_t fr__worker_limit(const fr__settings *t, const fr_cluster *cluster, int worker)
{
    int device = t->n_devices > worker ? t->devices[worker] : worker;
    double limit = t->worker_memory > 0 ? t->worker_memory : INFINITY;
    if (cluster && device < cluster->n_devices && cluster->devices[device].memory > 0)
        limit = fmin(limit, (double)cluster->devices[device].memory);
    return isfinite(limit) ? (size_t)limit : 0;
}

static fr_status no_memory(const search *q)
{
    return fr__no_memory(q->s->ctx, (size_t)q->n_nodes, "a choice of nodes");
}

/* --- what the engine says --------------------------------------------------------------------- */

static fr_status compile(search *q, bool *recompute)
{
    q->s->pipeline.recompute = recompute;
    FR_TRY(fr__setup_forecast(q->s, q->use));
    for (int w = 0; w < q->n_workers; w++)
        q->use[w].total = (size_t)((int64_t)q->use[w].total + q->extra[w]);
    return FR_OK;
}

static fr_status compile_first(search *q)
{
    FR_TRY(compile(q, NULL));
    for (int w = 0; w < q->n_workers && q->s->team; w++)
        q->extra[w] = (int64_t)q->in_team[w] - (int64_t)q->use[w].total;
    return q->s->team ? compile(q, NULL) : FR_OK;
}

/* Workers of all processes, for rank 0. Every rank calls it. */
static fr_status measure_team(search *q)
{
    fr_team *team = q->s->team;
    const int n_ranks = fr_team_size(team), n_local = q->n_workers / n_ranks;
    const size_t bytes = (size_t)n_local * sizeof *q->in_team;
    uint64_t *own = q->in_team + fr_team_rank(team) * n_local;
    const fr_engine_desc d = fr__setup_train_desc(q->s, false, false);
    fr_engine *e;
    FR_TRY(fr_engine_plan(q->s->ctx, &d, &e));
    for (int i = 0; i < n_local; i++)
        own[i] = fr_engine_predicted(e, fr_team_rank(team) * n_local + i)->total;
    fr_engine_free(e);
    if (fr_team_rank(team) > 0) return fr_team_send(team, 0, own, bytes);
    for (int r = 1; r < n_ranks; r++)
        FR_TRY(fr_team_recv(team, r, q->in_team + r * n_local, bytes));
    return FR_OK;
}

/* The first worker that needs more than its limit; -1: none. */
static int find_large(const search *q)
{
    for (int w = 0; w < q->n_workers; w++)
        if (q->limits[w] > 0 && q->use[w].total > q->limits[w]) return w;
    return -1;
}

/* --- proposals -------------------------------------------------------------------------------- */

static fr_spread_desc layout_of(const search *q, const bool *recompute)
{
    const fr__pipeline *p = &q->s->pipeline;
    return (fr_spread_desc){.profile = q->profile,
                            .n_stages = p->n_stages,
                            .cuts = p->cuts,
                            .replicas = p->schedule->replicas,
                            .schedule = p->schedule,
                            .n_micro = p->schedule->n_micro,
                            .recompute = recompute,
                            .policy = q->s->settings.policy,
                            .policy_options = fr__settings_policy_options(&q->s->settings)};
}

/* Limits for the estimate: the engine takes so much more, or less, with the nodes compiled last. */
static fr_status correct(search *q, const bool *recompute, bool *is_new)
{
    fr_spread made;
    const fr_spread_desc d = layout_of(q, recompute);
    FR_TRY(fr_spread_make(q->s->ctx, &d, &made));
    *is_new = false;
    for (int w = 0; w < q->n_workers; w++) {
        double limit = (double)q->limits[w] - (double)q->use[w].total + (double)made.memory[w];
        size_t corrected = q->limits[w] == 0 ? 0 : limit > 1 ? (size_t)limit : 1;
        *is_new = *is_new || corrected != q->corrected[w];
        q->corrected[w] = corrected;
    }
    fr_spread_free(&made);
    return FR_OK;
}

static void take_if_better(search *q)
{
    double seconds = 0;
    if (find_large(q) >= 0) return;
    for (int i = 0; i < q->n_nodes; i++) seconds += q->now[i] ? q->profile->nodes[i].forward_s : 0;
    if (seconds >= q->best_s) return;
    q->best_s = seconds;
    memcpy(q->best, q->now, (size_t)q->n_nodes * sizeof *q->best);
}

static fr_status propose(search *q)
{
    fr_spread plain;
    bool is_new, fits = true;
    const fr_spread_desc d = layout_of(q, NULL);
    FR_TRY(correct(q, NULL, &is_new));
    FR_TRY(fr_spread_make(q->s->ctx, &d, &plain));
    fr_status status = FR_OK;
    for (int round = 0; round < MOST_ROUNDS && status == FR_OK && fits && is_new; round++) {
        status = fr_spread_fit(q->s->ctx, &d, &plain, q->corrected, q->now, &fits);
        if (status != FR_OK || !fits) break;
        status = compile(q, q->now);
        if (status == FR_OK) take_if_better(q);
        if (status == FR_OK) status = correct(q, q->now, &is_new);
    }
    fr_spread_free(&plain);
    return status;
}

/* The last resort: all nodes of the workers that are too large without recompute. */
static fr_status try_all(search *q)
{
    const fr__pipeline *p = &q->s->pipeline;
    FR_TRY(compile(q, NULL));
    memset(q->now, 0, (size_t)q->n_nodes * sizeof *q->now);
    for (int k = 0; k < p->n_stages; k++)
        for (int r = 0; r < p->schedule->replicas[k]; r++) {
            const int w = p->schedule->worker_of[k] + r;
            if (q->limits[w] == 0 || q->use[w].total <= q->limits[w]) continue;
            for (int i = p->stages[k].first; i < p->stages[k].last; i++) q->now[i] = true;
        }
    FR_TRY(compile(q, q->now));
    take_if_better(q);
    return FR_OK;
}

/* --- the choice ------------------------------------------------------------------------------- */

static fr_status refuse(const search *q, int worker)
{
    fr_conf *parallel;
    FR_TRY(fr_conf_section(q->s->conf, "parallel", &parallel));
    return fr_conf_fail(
        parallel, "recompute",
        "auto: no set of nodes is enough: with all of them recomputed worker %d needs %s, and it "
        "has %s; cut the model into more stages or use smaller micro-batches",
        worker, fr__brief_bytes((double)q->use[worker].total).text,
        fr__brief_bytes((double)q->limits[worker]).text);
}

static void tell(const search *q)
{
    fr__text t = {0};
    int n = 0, n_all = 0;
    double seconds = 0, whole = 0;
    for (int i = 0; i < q->n_nodes; i++) {
        const fr_node *node = fr_graph_node(q->s->graph, i);
        if (node->op == FR_OP_INPUT) continue;
        n_all++;
        if (q->profile) whole += q->profile->nodes[i].forward_s;
        if (!q->best[i]) continue;
        seconds += q->profile->nodes[i].forward_s;
        if (n++ < NAMES) fr__text_printf(&t, "%s%s", n > 1 ? ", " : "", node->name);
    }
    if (n == 0)
        fr_log(q->s->ctx, FR_LOG_INFO, "recompute: auto: every worker fits, nothing is recomputed");
    else
        fr_log(q->s->ctx, FR_LOG_INFO,
               "recompute: auto: %d of %d nodes, %.3g %% of the forward: %s%s", n, n_all,
               whole > 0 ? 100 * seconds / whole : 0, t.failed ? "" : t.at,
               n > NAMES ? ", ..." : "");
    fr__text_fini(&t);
}

static fr_status choose(search *q)
{
    const fr__settings *t = &q->s->settings;
    bool has_limit = false;
    if (t->cluster) FR_TRY(fr_cluster_read(q->s->ctx, t->cluster, &q->cluster));
    for (int w = 0; w < q->n_workers; w++) {
        q->limits[w] = fr__worker_limit(t, q->cluster, w);
        has_limit = has_limit || q->limits[w] > 0;
    }
    if (!has_limit) {
        fr_conf *parallel;
        FR_TRY(fr_conf_section(q->s->conf, "parallel", &parallel));
        return fr_conf_fail(parallel, "recompute",
                            "auto needs the memory of a worker: set parallel.memory, as 2 GB, or "
                            "parallel.cluster with the memory of its devices");
    }
    FR_TRY(compile_first(q));
    if (find_large(q) < 0) return FR_OK;
    FR_TRY(fr__run_profile(q->s, (int)(t->batch / t->micro), 1, FR_MEASURE_S, &q->profile));
    FR_TRY(propose(q));
    if (!isfinite(q->best_s)) FR_TRY(try_all(q));
    return isfinite(q->best_s) ? FR_OK : refuse(q, find_large(q));
}

fr_status fr__recompute_choose(fr__setup *s)
{
    search q = {.s = s,
                .n_workers = s->pipeline.schedule->n_workers,
                .n_nodes = fr_graph_n_nodes(s->graph),
                .best_s = INFINITY};
    if (!s->settings.recompute_auto) return FR_OK;
    q.limits = FR_ARENA_ARRAY(&q.arena, size_t, q.n_workers);
    q.corrected = FR_ARENA_ARRAY(&q.arena, size_t, q.n_workers);
    q.use = FR_ARENA_ARRAY(&q.arena, fr_memory_use, q.n_workers);
    q.in_team = FR_ARENA_ARRAY(&q.arena, uint64_t, q.n_workers);
    q.extra = FR_ARENA_ARRAY(&q.arena, int64_t, q.n_workers);
    q.now = FR_ARENA_ARRAY(&q.arena, bool, q.n_nodes);
    q.best = FR_ARENA_ARRAY(&s->pipeline.arena, bool, q.n_nodes);
    fr_status status = FR_OK;
    if (!q.limits || !q.corrected || !q.use || !q.in_team || !q.extra || !q.now || !q.best)
        status = no_memory(&q);
    status = fr_team_agree(s->team, status);
    if (status == FR_OK && s->team) status = measure_team(&q);
    if (status == FR_OK && fr_team_rank(s->team) == 0) status = choose(&q);
    s->pipeline.recompute = q.best;
    if (status == FR_OK && fr_team_rank(s->team) == 0) tell(&q);
    fr_profile_free(q.profile);
    fr_cluster_free(q.cluster);
    fr__arena_fini(&q.arena);
    FR_TRY(fr_team_agree(s->team, status));
    return fr_team_share(s->team, q.best, (size_t)q.n_nodes * sizeof *q.best);
}

void fr__recompute_write(fr__json *j, const fr__setup *s)
{
    const bool *recompute = s->pipeline.recompute;
    fr__json_object(j, "recompute");
    fr__json_bool(j, "auto", s->settings.recompute_auto);
    fr__json_list(j, "nodes");
    for (int i = 0; recompute && i < fr_graph_n_nodes(s->graph); i++)
        if (recompute[i] && fr_graph_node(s->graph, i)->op != FR_OP_INPUT)
            fr__json_text(j, NULL, fr_graph_node(s->graph, i)->name);
    fr__json_end(j);
    fr__json_end(j);
}
