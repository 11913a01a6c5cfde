/* check.c -- proof that a schedule can run, part 1: shape, indices, and no work done twice.
 *
 * The proof has three parts; each relies only on the parts before it. This part reads the lists and
 * records the place of each piece of work. check_order.c proves the rules within one list.
 * check_run.c proves that all lists together run to their ends. All are linear in the number of
 * instructions, with the number of links of a stage as a factor. */
#include "sched/check.h"

#include <limits.h>
#include <stdio.h>

fr_status fr__fault(const fr__proof *p, int worker, int step, const char *format, ...)
{
    char text[512], what[48];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    bool is_end = step >= p->s->lists[worker].n;
    return fr_fail(p->ctx, FR_INVALID, "worker %d, step %d (%s): %s", worker, step,
                   is_end ? "end of the list" : fr_instr_text(fr__instr_at(p, worker, step), what),
                   text);
}

/* --- shape -------------------------------------------------------------------------------- */

static fr_status shape(fr_ctx *ctx, const fr_schedule *s, bool has_slots)
{
    if (s->n_stages < 1 || s->n_workers < 1 || s->n_micro < 1 || s->n_batches < 1)
        return fr_fail(ctx, FR_INVALID,
                       "schedule %.63s: %d stages, %d workers, %d micro-batches, %d mini-batches; "
                       "there must be at least one of each",
                       s->name, s->n_stages, s->n_workers, s->n_micro, s->n_batches);
    if (s->n_micro > INT_MAX / s->n_batches)
        return fr_fail(ctx, FR_INVALID,
                       "schedule %.63s: %d mini-batches of %d micro-batches are too many", s->name,
                       s->n_batches, s->n_micro);
    if (s->n_forward < 0 || s->n_backward < 0 || !s->worker_of || !s->replicas || !s->lists ||
        (s->n_forward && !s->forward) || (s->n_backward && !s->backward))
        return fr_fail(ctx, FR_INVALID, "schedule %.63s: a table is missing", s->name);
    if (has_slots && (!s->is_lowered || !s->n_slots || !s->slot_of ||
                      (s->n_backward && (!s->n_buffers || !s->buffer_of))))
        return fr_fail(ctx, FR_INVALID,
                       "schedule %.63s: not lowered, there are no slots and buffers to check",
                       s->name);
    return FR_OK;
}

/* Each stage is on existing workers, and its replicas divide the micro-batches. */
static fr_status check_workers(fr__proof *p)
{
    const fr_schedule *s = p->s;
    for (int k = 0; k < s->n_stages; k++) {
        int r = s->replicas[k];
        if (r < 1 || s->n_micro % r != 0)
            return fr_fail(p->ctx, FR_INVALID,
                           "schedule %.63s: %d replicas of stage %d do not divide %d micro-batches",
                           s->name, r, k, s->n_micro);
        if (s->worker_of[k] < 0 || s->worker_of[k] > s->n_workers - r)
            return fr_fail(p->ctx, FR_INVALID,
                           "schedule %.63s: stage %d is on worker %d; there are %d workers",
                           s->name, k, s->worker_of[k] + r - 1, s->n_workers);
        if (r > 1 && !s->is_forward_only) p->has_reduce = true;
    }
    return FR_OK;
}

/* Each list is present, and the places of all lists fit an int. */
static fr_status count(fr__proof *p)
{
    const fr_schedule *s = p->s;
    int64_t n = 0;
    for (int w = 0; w < s->n_workers; w++) {
        if (s->lists[w].n < 0 || (s->lists[w].n && !s->lists[w].at))
            return fr_fail(p->ctx, FR_INVALID, "schedule %.63s: worker %d has no list", s->name, w);
        p->first[w] = (int)n;
        n += s->lists[w].n;
        if (n > INT_MAX / 2)
            return fr_fail(p->ctx, FR_INVALID, "schedule %.63s: too many instructions", s->name);
    }
    p->first[s->n_workers] = p->n_places = (int)n;
    /* The size of the tables is limited by the lists, not by the numbers in the header. */
    if ((int64_t)s->n_stages * p->n_all > n)
        return fr__fault(p, s->worker_of[0], s->lists[s->worker_of[0]].n,
                         "%lld instructions in all lists, but %d stages with %d micro-batches each "
                         "need more",
                         (long long)n, s->n_stages, p->n_all);
    return FR_OK;
}

/* --- groups ------------------------------------------------------------------------------- */

/* Stable sort of 0 .. n - 1 by key (stride ints apart); 0 <= key < n_keys. */
static bool group(fr__proof *p, fr__groups *g, int n_keys, int n, const int *key, size_t stride)
{
    g->first = FR_ARENA_ARRAY(&p->arena, int, n_keys + 1);
    g->at = FR_ARENA_ARRAY(&p->arena, int, n + 1);
    if (!g->first || !g->at) return false;
    for (int i = 0; i < n; i++) g->first[key[(size_t)i * stride] + 1]++;
    for (int k = 0; k < n_keys; k++) g->first[k + 1] += g->first[k];
    for (int i = 0; i < n; i++) g->at[g->first[key[(size_t)i * stride]]++] = i;
    for (int k = n_keys; k > 0; k--) g->first[k] = g->first[k - 1];
    g->first[0] = 0;
    return true;
}

static fr_status check_links(fr__proof *p, int way, int n, const fr_link *links)
{
    static const char *const names[] = {"forward", "backward"};
    const fr_schedule *s = p->s;
    for (int i = 0; i < n; i++) {
        int low = way == FR_FORWARD ? links[i].from : links[i].to;
        int high = way == FR_FORWARD ? links[i].to : links[i].from;
        if (low < 0 || high >= s->n_stages || low >= high)
            return fr_fail(p->ctx, FR_INVALID,
                           "schedule %.63s: %s link %d > %d; %s go from a %s to a %s stage, and "
                           "there are %d",
                           s->name, names[way], links[i].from, links[i].to,
                           way == FR_FORWARD ? "values" : "gradients",
                           way == FR_FORWARD ? "lower" : "higher",
                           way == FR_FORWARD ? "higher" : "lower", s->n_stages);
    }
    const size_t stride = sizeof(fr_link) / sizeof(int);
    if (!group(p, &p->into[way], s->n_stages, n, n ? &links->to : NULL, stride) ||
        !group(p, &p->out_of[way], s->n_stages, n, n ? &links->from : NULL, stride))
        return fr__no_memory(p->ctx, (size_t)n * sizeof(int), "links of a schedule");
    int *seen = FR_ARENA_ARRAY(&p->arena, int, s->n_stages);
    if (!seen) return fr__no_memory(p->ctx, (size_t)s->n_stages, "links of a schedule");
    for (int k = 0; k < s->n_stages; k++) {
        const fr__groups *g = &p->out_of[way];
        for (int i = g->first[k]; i < g->first[k + 1]; i++) {
            int to = links[g->at[i]].to;
            if (seen[to] == k + 1)
                return fr_fail(p->ctx, FR_INVALID, "schedule %.63s: duplicate %s link %d > %d",
                               s->name, names[way], k, to);
            seen[to] = k + 1;
        }
    }
    return FR_OK;
}

/* Number of worker pairs that a link connects: m mod a and m mod b repeat together with the least
 * common multiple as their period. */
static bool count_pairs(fr__proof *p, int way, int n, const fr_link *links)
{
    p->n_pairs[way] = FR_ARENA_ARRAY(&p->arena, int, n);
    for (int i = 0; p->n_pairs[way] && i < n; i++) {
        int a = p->s->replicas[links[i].from], b = p->s->replicas[links[i].to], pairs = a;
        while (pairs % b != 0) pairs += a;
        p->n_pairs[way][i] = pairs;
    }
    return p->n_pairs[way] != NULL;
}

/* The stages of each worker. Two stages share all of their workers or none. */
static fr_status group_stages(fr__proof *p)
{
    const fr_schedule *s = p->s;
    for (int k = 0; k < s->n_stages; k++) p->first_copy[k + 1] = p->first_copy[k] + s->replicas[k];
    int n = p->first_copy[s->n_stages];
    int *worker = FR_ARENA_ARRAY(&p->arena, int, n), *stage = FR_ARENA_ARRAY(&p->arena, int, n);
    for (int k = 0; worker && stage && k < s->n_stages; k++)
        for (int i = p->first_copy[k]; i < p->first_copy[k + 1]; i++)
            worker[i] = s->worker_of[k] + i - p->first_copy[k], stage[i] = k;
    if (!worker || !stage || !group(p, &p->stages, s->n_workers, n, worker, 1))
        return fr__no_memory(p->ctx, (size_t)n * sizeof(int), "stages of workers");
    for (int i = 0; i < n; i++) p->stages.at[i] = stage[p->stages.at[i]];
    for (int w = 0; w < s->n_workers; w++) {
        int first = p->stages.first[w];
        if (first == p->stages.first[w + 1])
            return fr_fail(p->ctx, FR_INVALID, "schedule %.63s: worker %d of %d has no stage",
                           s->name, w, s->n_workers);
        for (int i = first; i < p->stages.first[w + 1]; i++) {
            int a = p->stages.at[first], b = p->stages.at[i];
            if (s->worker_of[a] != s->worker_of[b] || s->replicas[a] != s->replicas[b])
                return fr_fail(p->ctx, FR_INVALID,
                               "schedule %.63s: stages %d and %d are both on worker %d, but not on "
                               "the same workers",
                               s->name, a, b, w);
        }
    }
    return FR_OK;
}

static fr_status check_groups(fr__proof *p)
{
    const fr_schedule *s = p->s;
    FR_TRY(check_links(p, FR_FORWARD, s->n_forward, s->forward));
    FR_TRY(check_links(p, FR_BACKWARD, s->n_backward, s->backward));
    if (!count_pairs(p, FR_FORWARD, s->n_forward, s->forward) ||
        !count_pairs(p, FR_BACKWARD, s->n_backward, s->backward))
        return fr__no_memory(p->ctx, (size_t)s->n_forward * sizeof(int), "links of a schedule");
    return group_stages(p);
}

/* --- instructions ------------------------------------------------------------------------- */

static bool is_transfer(int action) { return action >= FR_DO_SEND_F && action <= FR_DO_RECV_B; }

static fr_status check_fields(const fr__proof *p, int w, int i)
{
    const fr_schedule *s = p->s;
    const fr_instr *x = fr__instr_at(p, w, i);
    if (x->action >= FR_DO_R) return fr__fault(p, w, i, "no such action: %d", x->action);
    if (x->stage < 0 || x->stage >= s->n_stages)
        return fr__fault(p, w, i, "no stage %d; there are %d", x->stage, s->n_stages);
    int first = s->worker_of[x->stage], last = first + s->replicas[x->stage] - 1;
    if (w < first || w > last)
        return last == first ? fr__fault(p, w, i, "stage %d belongs to worker %d", x->stage, first)
                             : fr__fault(p, w, i, "stage %d belongs to workers %d to %d", x->stage,
                                         first, last);
    bool is_batch = fr_is_of_batch(x->action);
    int n = is_batch ? s->n_batches : p->n_all;
    if (x->micro < 0 || x->micro >= n)
        return fr__fault(p, w, i, "no %s %d; there are %d", is_batch ? "mini-batch" : "micro-batch",
                         x->micro, n);
    if (!is_batch && fr_schedule_worker(s, x->stage, x->micro) != w)
        return fr__fault(p, w, i,
                         "micro-batch %d of stage %d belongs to worker %d; micro-batches go to "
                         "replicas round robin",
                         x->micro, x->stage, fr_schedule_worker(s, x->stage, x->micro));
    if (s->is_forward_only && x->action != FR_DO_F && x->action != FR_DO_SEND_F &&
        x->action != FR_DO_RECV_F)
        return fr__fault(
            p, w, i,
            "the schedule is for evaluation: only forwards and their transfers are allowed");
    if (!s->is_split && (x->action == FR_DO_I || x->action == FR_DO_W))
        return fr__fault(p, w, i, "the schedule does not split backward into I and W");
    if (!is_transfer(x->action) && x->peer != -1)
        return fr__fault(p, w, i, "peer %d, but this is not a transfer", x->peer);
    return FR_OK;
}

int fr__proof_link(const fr__proof *p, int way, int from, int to)
{
    const fr__groups *g = &p->out_of[way];
    for (int i = g->first[from]; i < g->first[from + 1]; i++)
        if (fr__links(p->s, way)[g->at[i]].to == to) return g->at[i];
    return -1;
}

static fr_status check_transfer(const fr__proof *p, int w, int i, int **row)
{
    const fr_schedule *s = p->s;
    const fr_instr *x = fr__instr_at(p, w, i);
    bool is_send = fr__is_send(x->action);
    int way = fr__way_of(x->action);
    if (x->peer < 0 || x->peer >= s->n_stages)
        return fr__fault(p, w, i, "no peer stage %d; there are %d stages", x->peer, s->n_stages);
    int from = is_send ? x->stage : x->peer, to = is_send ? x->peer : x->stage;
    int link = fr__proof_link(p, way, from, to);
    if (link < 0)
        return fr__fault(p, w, i, "no %s go from stage %d to stage %d",
                         way == FR_FORWARD ? "values" : "gradients", from, to);
    if (fr_schedule_worker(s, x->peer, x->micro) == w)
        return fr__fault(p, w, i, "stage %d is on the same worker; there is nothing to transfer",
                         x->peer);
    *row = fr__micro_row(p, is_send ? p->send[way] : p->recv[way], link);
    return FR_OK;
}

/* The table cell that holds the place of this work. */
static fr_status find_cell(fr__proof *p, int w, int i, int **cell)
{
    const fr_instr *x = fr__instr_at(p, w, i);
    int *row = NULL;
    switch (x->action) {
    case FR_DO_F: row = fr__micro_row(p, p->forward, x->stage); break;
    case FR_DO_B:
    case FR_DO_I: row = fr__micro_row(p, p->back, x->stage); break;
    case FR_DO_W: row = fr__micro_row(p, p->weight, x->stage); break;
    case FR_DO_REDUCE: row = fr__batch_row(p, p->reduce, x->stage, w); break;
    case FR_DO_STEP: row = fr__batch_row(p, p->step, x->stage, w); break;
    default: FR_TRY(check_transfer(p, w, i, &row)); break;
    }
    *cell = &row[x->micro];
    return FR_OK;
}

static fr_status note(fr__proof *p, int w, int i)
{
    const fr_instr *x = fr__instr_at(p, w, i);
    int place = p->first[w] + i, *cell, *too = NULL;
    char text[48];
    FR_TRY(check_fields(p, w, i));
    FR_TRY(find_cell(p, w, i, &cell));
    if (x->action == FR_DO_B) too = fr__micro_row(p, p->weight, x->stage) + x->micro;
    if (too && *cell < 0) cell = *too >= 0 ? too : cell;
    if (*cell >= 0) {
        int before = *cell - p->first[w];
        return fr__fault(p, w, i, "already done at step %d (%s)%s", before,
                         fr_instr_text(fr__instr_at(p, w, before), text),
                         x->action == FR_DO_W && fr__instr_at(p, w, before)->action == FR_DO_B
                             ? "; a backward that is split consists of I and W"
                             : "");
    }
    *cell = place;
    if (too) *too = place;
    if (x->action == FR_DO_REDUCE) p->has_reduce = true;
    return FR_OK;
}

int *fr__proof_table(fr__proof *p, int rows, int columns)
{
    size_t n = fr__array_bytes((size_t)rows, (size_t)columns);
    int *table = fr__arena_alloc(&p->arena, fr__array_bytes(n, sizeof(int)));
    for (size_t i = 0; table && i < n; i++) table[i] = -1;
    return table;
}

static bool new_tables(fr__proof *p)
{
    const fr_schedule *s = p->s;
    const int n_links[] = {s->n_forward, s->n_backward};
    for (int way = 0; way < FR_N_WAYS; way++) {
        p->send[way] = fr__proof_table(p, n_links[way], p->n_all);
        p->recv[way] = fr__proof_table(p, n_links[way], p->n_all);
        if (!p->send[way] || !p->recv[way]) return false;
    }
    p->forward = fr__proof_table(p, s->n_stages, p->n_all);
    p->back = fr__proof_table(p, s->n_stages, p->n_all);
    p->weight = fr__proof_table(p, s->n_stages, p->n_all);
    p->reduce = fr__proof_table(p, p->first_copy[s->n_stages], s->n_batches);
    p->step = fr__proof_table(p, p->first_copy[s->n_stages], s->n_batches);
    return p->forward && p->back && p->weight && p->reduce && p->step;
}

fr_status fr__proof_index(fr__proof *p)
{
    const fr_schedule *s = p->s;
    FR_TRY(shape(p->ctx, s, p->has_slots));
    p->n_all = s->n_micro * s->n_batches;
    p->first = FR_ARENA_ARRAY(&p->arena, int, s->n_workers + 1);
    p->first_copy = FR_ARENA_ARRAY(&p->arena, int, s->n_stages + 1);
    if (!p->first || !p->first_copy)
        return fr__no_memory(p->ctx, (size_t)s->n_workers * sizeof(int), "a schedule");
    FR_TRY(check_workers(p));
    FR_TRY(count(p));
    FR_TRY(check_groups(p));
    if (!new_tables(p))
        return fr__no_memory(p->ctx, (size_t)s->n_stages * (size_t)p->n_all * 5 * sizeof(int),
                             "places of a schedule");
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++) FR_TRY(note(p, w, i));
    return FR_OK;
}

static fr_status prove(fr_ctx *ctx, const fr_schedule *s, bool has_slots)
{
    fr__proof p = {.ctx = ctx, .s = s, .has_slots = has_slots};
    fr_status status = fr__proof_index(&p);
    if (status == FR_OK) status = fr__proof_order(&p);
    if (status == FR_OK) status = fr__proof_run(&p);
    fr__arena_fini(&p.arena);
    return status;
}

fr_status fr_schedule_check(fr_ctx *ctx, const fr_schedule *s) { return prove(ctx, s, true); }

fr_status fr__schedule_explain(fr_ctx *ctx, const fr_schedule *s) { return prove(ctx, s, false); }
