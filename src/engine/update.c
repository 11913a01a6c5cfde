/* update.c -- from gradients to weights: REDUCE and STEP.
 *
 * Normally the update rides on the last backward (passes.c): as soon as the gradient of a parameter
 * is final its weights are stepped, while the gradient is still in cache, and a STEP only closes
 * the account. That is not possible where the whole gradient must be seen first: clipping, its
 * norm, tied parameters, gradients that somebody wants to look at; nor is it wanted where others
 * wait for the end of that backward. Then one sweep follows.
 *
 * What stages must see of each other goes over boards, in an order that is that of one worker: the
 * partial sums of squares of all stages are added one after the other, and the gradients of tied
 * parameters owner first. Every stage that holds a copy of a tied parameter makes the same update,
 * so copies stay equal. */
#include "engine/engine.h"

#include "optim/optim.h"

#include <math.h>
#include <string.h>

enum { NORM_GRAIN = 8 }; /* blocks of FR_NORM_BLOCK */

static bool wants_norm(const fr_engine *e) { return e->desc.clip_norm > 0 || e->desc.want_norm; }

/* --- set-up --------------------------------------------------------------------------------- */

static bool has_reduce(const fr_schedule *s)
{
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++)
            if (s->lists[w].at[i].action == FR_DO_REDUCE) return true;
    return false;
}

/* Owners and copies whose group spans stages, owners first. */
static fr_status find_ties(fr_engine *e)
{
    const fr_graph *g = e->desc.graph;
    int n = fr_graph_n_params(g);
    bool *spans = FR_ARENA_ARRAY(&e->arena, bool, n + 1);
    e->tied = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->tie_room = FR_ARENA_ARRAY(&e->arena, size_t, e->n_workers + 1);
    if (!spans || !e->tied || !e->tie_room) return fr__no_memory(e->ctx, (size_t)n, "an engine");
    for (int i = 0; i < n; i++)
        if (e->home_of[i] != e->home_of[fr__owner_of(e, i)]) spans[fr__owner_of(e, i)] = true;
    for (int i = 0; i < n; i++) {
        int owner = fr__owner_of(e, i);
        bool is_inside = i != owner && e->home_of[i] == e->home_of[owner];
        if (!spans[owner] || is_inside) continue; /* inside a stage the program adds them */
        e->tied[e->n_tied++] = i;
        int worker = fr_engine_worker_of(e, e->home_of[i], 0);
        e->tie_room[worker] += 2 * fr__align_up(fr__plain_bytes(e, i));
    }
    return FR_OK;
}

static fr_status check_async(const fr_engine *e)
{
    if (e->desc.schedule->is_flush || e->n_stages == 1) return FR_OK;
    if (e->desc.clip_norm > 0)
        return fr_fail(e->ctx, FR_UNSUPPORTED,
                       "clip_norm needs the norm of the whole gradient before any stage steps, and "
                       "schedule %s has no such moment; use a flush schedule or one stage",
                       e->desc.schedule->name);
    if (e->n_tied == 0) return FR_OK;
    return fr_fail(
        e->ctx, FR_UNSUPPORTED,
        "%s is tied to a parameter of another stage, and with schedule %s stages step at "
        "different times; untie them, cut so that one stage holds both, or use a flush "
        "schedule",
        fr_graph_param(e->desc.graph, e->tied[e->n_tied - 1])->name, e->desc.schedule->name);
}

/* With a flush everybody waits for the last gradients of a mini-batch: those that go to another
 * worker are sent before the update, which then falls into this worker's own idle time. Without a
 * flush nobody waits, and the ride saves a pass over memory. */
static bool holds_up_others(const fr_part *p)
{
    const fr_schedule *s = p->engine->desc.schedule;
    if (!s->is_flush || s->is_split) return false;
    for (int i = 0; i < s->n_backward; i++)
        if (s->backward[i].from == p->stage &&
            s->worker_of[s->backward[i].to] != s->worker_of[p->stage])
            return true;
    return false;
}

fr_status fr__update_plan(fr_engine *e)
{
    const fr_schedule *s = e->desc.schedule;
    FR_TRY(find_ties(e));
    if (!s) return FR_OK;
    FR_TRY(check_async(e));
    e->has_reduce = has_reduce(s);
    e->must_sum = e->n_stages > 1 && s->is_flush && (e->n_tied > 0 || wants_norm(e));
    if (e->must_sum && !e->has_reduce)
        return fr_fail(e->ctx, FR_INVALID,
                       "schedule %s has no reductions, but %s need the gradients of all stages",
                       s->name, e->n_tied ? "tied parameters" : "norms");
    for (int k = 0; k < e->n_stages; k++) {
        fr_part *p = &e->parts[k];
        p->is_ridden = !e->desc.keep_grads && !wants_norm(e) && !e->must_sum &&
                       p->n_grads == p->n_weights && !holds_up_others(p);
    }
    return FR_OK;
}

fr_status fr__update_open(fr_engine *e)
{
    if (!e->must_sum) return FR_OK;
    int n = e->n_stages > e->n_tied ? e->n_stages : e->n_tied;
    size_t *bytes = FR_ARENA_ARRAY(&e->arena, size_t, n + 1), largest = 0;
    int *owner = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->tie_scratch = FR_ARENA_ARRAY(&e->arena, float *, e->n_workers);
    if (!bytes || !owner || !e->tie_scratch) return fr__no_memory(e->ctx, (size_t)n, "an engine");
    for (int k = 0; k < e->n_stages; k++) {
        bytes[k] = e->parts[k].n_norm_blocks * sizeof(double);
        owner[k] = fr_engine_worker_of(e, k, 0);
    }
    if (wants_norm(e))
        FR_TRY(e->transport->add_board(e->group, e->n_stages, bytes, owner, &e->norm_board));
    if (e->n_tied == 0) return FR_OK;
    for (int i = 0; i < e->n_tied; i++) {
        bytes[i] = fr__plain_bytes(e, e->tied[i]);
        owner[i] = fr_engine_worker_of(e, e->home_of[e->tied[i]], 0);
        if (bytes[i] > largest) largest = bytes[i];
    }
    for (int i = 0; i < e->n_workers; i++) {
        e->tie_scratch[i] = fr__arena_alloc(&e->arena, largest);
        if (!e->tie_scratch[i]) return fr__no_memory(e->ctx, largest, "tied parameters");
    }
    return e->transport->add_board(e->group, e->n_tied, bytes, owner, &e->tie_board);
}

/* --- sums ----------------------------------------------------------------------------------- */

typedef struct norm_task {
    const fr_part *part;
    double *sums; /* (n_norm_blocks) */
} norm_task;

static void sum_blocks(void *arg, size_t begin, size_t end)
{
    const norm_task *t = arg;
    const fr_part *p = t->part;
    for (size_t i = begin; i < end; i++)
        t->sums[i] =
            fr__sum_squares_block(p->grads + p->norm_blocks[i].offset, p->norm_blocks[i].count);
}

static void sum_squares(fr_part *p, double *sums)
{
    norm_task t = {p, sums};
    fr_device_parallel(p->worker->dev, p->n_norm_blocks, NORM_GRAIN, sum_blocks, &t);
}

static fr_status wait_board(fr_worker *w, fr_board *board, int64_t round)
{
    uint64_t start = fr__now_ns();
    atomic_store(&w->is_waiting, 1);
    fr_status status = w->engine->transport->board_wait(board, round, w->index);
    atomic_store(&w->is_waiting, 0);
    w->wait_ns += fr__now_ns() - start;
    return status;
}

fr_status fr__update_reduce(fr_part *p, int64_t batch, bool is_dead)
{
    fr_engine *e = p->engine;
    int64_t round = batch - e->first;
    if (!is_dead) fr_program_sum_ties(p->layout, p->grads);
    for (int i = 0; i < e->n_tied && e->must_sum; i++) {
        int param = e->tied[i];
        if (e->home_of[param] != p->stage) continue;
        if (!is_dead)
            FR_TRY(fr_program_read_param(p->layout, p->grads, e->placement_of[param],
                                         e->transport->board_part(e->tie_board, round, i)));
        e->transport->board_post(e->tie_board, round, i);
    }
    return FR_OK;
}

/* Owner first, then the copies as the graph lists them. */
static fr_status sum_tied(fr_worker *w, int64_t round)
{
    fr_engine *e = w->engine;
    float *sum = e->tie_scratch[w->index];
    for (int i = 0; i < e->n_tied; i++) {
        int param = e->tied[i];
        fr_part *p = &e->parts[e->home_of[param]];
        if (p->worker != w) continue;
        size_t n = fr__plain_bytes(e, param) / sizeof(float);
        memset(sum, 0, n * sizeof *sum);
        bool is_first = true;
        for (int k = 0; k < e->n_tied; k++) {
            if (fr__owner_of(e, e->tied[k]) != fr__owner_of(e, param)) continue;
            const float *grad = e->transport->board_part(e->tie_board, round, k);
            for (size_t j = 0; j < n; j++) sum[j] = is_first ? grad[j] : sum[j] + grad[j];
            is_first = false;
        }
        FR_TRY(fr_program_write_param(p->layout, p->grads, e->placement_of[param], sum));
    }
    return FR_OK;
}

static bool has_tied(const fr_worker *w)
{
    const fr_engine *e = w->engine;
    for (int i = 0; i < e->n_tied; i++)
        if (e->parts[e->home_of[e->tied[i]]].worker == w) return true;
    return false;
}

static bool is_beyond_limit(fr_engine *e, int64_t batch) { return batch >= atomic_load(&e->limit); }

/* The squares of all stages, added as one worker would add them. */
static fr_status sum_norm(fr_worker *w, int64_t batch, bool is_dead)
{
    fr_engine *e = w->engine;
    int64_t round = batch - e->first;
    for (int i = 0; i < w->n_parts; i++) {
        int stage = w->parts[i]->stage;
        if (!is_dead)
            sum_squares(w->parts[i], e->transport->board_part(e->norm_board, round, stage));
        e->transport->board_post(e->norm_board, round, stage);
    }
    FR_TRY(wait_board(w, e->norm_board, round));
    if (is_beyond_limit(e, batch)) return FR_OK;
    w->norm_sq = 0;
    for (int k = 0; k < e->n_stages; k++) {
        const double *sums = e->transport->board_part(e->norm_board, round, k);
        for (size_t i = 0; i < e->parts[k].n_norm_blocks; i++) w->norm_sq += sums[i];
    }
    return FR_OK;
}

/* Once a worker and mini-batch, when all of its stages have handed in: the sums of everybody. If
 * the limit has come down meanwhile, some have handed in nothing: there is no sum. A stage that no
 * gradient goes through can be here before the loss of this mini-batch is known. */
static fr_status take_sums(fr_worker *w, int64_t batch, bool is_dead)
{
    fr_engine *e = w->engine;
    int64_t round = batch - e->first;
    if (w->summed == batch) return FR_OK;
    w->summed = batch;
    w->norm_sq = NAN;
    if (has_tied(w)) {
        FR_TRY(wait_board(w, e->tie_board, round));
        is_dead = is_dead || is_beyond_limit(e, batch);
        if (!is_dead) FR_TRY(sum_tied(w, round));
    }
    return wants_norm(e) ? sum_norm(w, batch, is_dead) : FR_OK;
}

/* The stage's own squares, in the order of its blocks. */
static double own_squares(fr_part *p)
{
    double sum = 0;
    sum_squares(p, p->norm_sums);
    for (size_t i = 0; i < p->n_norm_blocks; i++) sum += p->norm_sums[i];
    return sum;
}

/* --- the step ------------------------------------------------------------------------------- */

static fr_status end_step(fr_part *p, int64_t batch, double norm_sq, fr_event *event)
{
    int64_t version = fr_store_version(p->store);
    FR_TRY(fr_store_end(p->store, p->is_ridden ? p->n_updated : p->n_weights));
    fr__record_live(p, batch, version);
    event->version = version + 1;
    fr__record_stepped(p, batch, norm_sq);
    return FR_OK;
}

static double clip_scale(const fr_engine *e, double norm_sq)
{
    if (!(e->desc.clip_norm > 0)) return 1;
    return fmin(1, e->desc.clip_norm / (sqrt(norm_sq) + 1e-6));
}

fr_status fr__update_step(fr_part *p, int64_t batch, fr_event *event)
{
    fr_engine *e = p->engine;
    if (p->is_ridden) return end_step(p, batch, NAN, event);
    double norm_sq = NAN, whole_sq = NAN;
    if (e->must_sum) {
        FR_TRY(take_sums(p->worker, batch, false));
        if (is_beyond_limit(e, batch)) return FR_OK;
        whole_sq = p->worker->norm_sq;
        norm_sq = p->stage == 0 ? whole_sq : 0;
    } else {
        if (!e->has_reduce) fr_program_sum_ties(p->layout, p->grads);
        if (wants_norm(e)) norm_sq = whole_sq = own_squares(p);
    }
    bool is_whole = e->must_sum || e->n_stages == 1;
    if (wants_norm(e) && is_whole && !isfinite(whole_sq)) {
        fr__diverge(e, batch, -1, "gradient norm", sqrt(whole_sq));
        return FR_OK;
    }
    fr_store_begin(p->store, batch, clip_scale(e, whole_sq));
    fr_store_range(p->store, 0, p->n_weights, p->grads);
    return end_step(p, batch, norm_sq, event);
}

fr_status fr__update_skip(fr_part *p, int64_t batch)
{
    return p->engine->must_sum ? take_sums(p->worker, batch, true) : FR_OK;
}
