/* links.c -- index of links by stage, and range checks of instructions. The index makes the passes
 * and the clock linear in the number of instructions. The checks make them safe on handwritten
 * lists. */
#include "sched/sched.h"

#include <stdio.h>

/* Counting sort of links by one of their ends. */
static bool by_stage(fr_arena *a, int n_stages, int n, const fr_link *links, bool by_to,
                     fr__stage_links *out)
{
    out->first = FR_ARENA_ARRAY(a, int, n_stages + 2);
    out->link = FR_ARENA_ARRAY(a, int, n);
    if (!out->first || !out->link) return false;
    int *next = out->first + 1; /* counted one place higher; filling moves them down */
    for (int l = 0; l < n; l++) next[(by_to ? links[l].to : links[l].from) + 1]++;
    for (int k = 0; k < n_stages; k++) next[k + 1] += next[k];
    for (int l = 0; l < n; l++) out->link[next[by_to ? links[l].to : links[l].from]++] = l;
    return true;
}

static bool direction_init(fr_arena *a, const fr_schedule *s, int n, const fr_link *links,
                           fr__direction *out)
{
    int n_stages = s->n_stages;
    out->n = n;
    out->links = links;
    out->pairs = FR_ARENA_ARRAY(a, int, n);
    out->first_pair = FR_ARENA_ARRAY(a, int, n + 1);
    if (!out->pairs || !out->first_pair) return false;
    for (int l = 0; l < n; l++) {
        out->pairs[l] = fr__lcm(s->replicas[links[l].from], s->replicas[links[l].to]);
        out->first_pair[l + 1] = out->first_pair[l] + out->pairs[l];
    }
    return by_stage(a, n_stages, n, links, true, &out->in) &&
           by_stage(a, n_stages, n, links, false, &out->out);
}

int fr__link_of(const fr__direction *d, int from, int to)
{
    for (int i = d->out.first[from]; i < d->out.first[from + 1]; i++)
        if (d->links[d->out.link[i]].to == to) return d->out.link[i];
    return -1;
}

int fr__transfer_link(const fr__link_index *x, const fr_instr *i)
{
    switch (i->action) {
    case FR_DO_SEND_F: return fr__link_of(&x->forward, i->stage, i->peer);
    case FR_DO_RECV_F: return fr__link_of(&x->forward, i->peer, i->stage);
    case FR_DO_SEND_B: return fr__link_of(&x->backward, i->stage, i->peer);
    case FR_DO_RECV_B: return fr__link_of(&x->backward, i->peer, i->stage);
    default: return -1;
    }
}

fr_status fr__instr_fail(fr_ctx *ctx, const fr_schedule *s, int worker, int step,
                         const char *format, ...)
{
    char name[48], text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fr_fail(ctx, FR_INVALID, "schedule %s: worker %d, step %d (%s): %s", s->name, worker,
                   step, fr_instr_text(&s->lists[worker].at[step], name), text);
}

static fr_status instr_in_range(fr_ctx *ctx, const fr_schedule *s, const fr__link_index *x, int w,
                                int step)
{
    const fr_instr *i = &s->lists[w].at[step];
    bool is_of_batch = fr_is_of_batch(i->action);
    int n = is_of_batch ? s->n_batches : fr__n_micro(s);
    if (i->action >= FR_DO_R)
        return fr__instr_fail(ctx, s, w, step, "there is no action number %d", i->action);
    if (i->stage < 0 || i->stage >= s->n_stages)
        return fr__instr_fail(ctx, s, w, step, "stages are 0 to %d", s->n_stages - 1);
    int first = s->worker_of[i->stage], last = first + s->replicas[i->stage] - 1;
    if (w < first || w > last)
        return fr__instr_fail(ctx, s, w, step, "stage %d is on worker %d%s", i->stage, first,
                              last > first ? " and the following ones" : "");
    if (i->micro < 0 || i->micro >= n)
        return fr__instr_fail(ctx, s, w, step, "%s-batches are 0 to %d",
                              is_of_batch ? "mini" : "micro", n - 1);
    if (!is_of_batch && fr_schedule_worker(s, i->stage, i->micro) != w)
        return fr__instr_fail(ctx, s, w, step, "micro-batch %d of stage %d is on worker %d",
                              i->micro, i->stage, fr_schedule_worker(s, i->stage, i->micro));
    if (!fr__is_transfer(i->action)) return FR_OK;
    if (i->peer < 0 || i->peer >= s->n_stages || fr__transfer_link(x, i) < 0)
        return fr__instr_fail(ctx, s, w, step, "no link in this direction between stages %d and %d",
                              i->stage, i->peer);
    if (fr_schedule_worker(s, i->peer, i->micro) == w)
        return fr__instr_fail(ctx, s, w, step, "stage %d is on the same worker: no transfer",
                              i->peer);
    return FR_OK;
}

/* Each cell of row i is in 0 .. n[i] - 1. */
static bool cells_in_range(const int *cells, int n_rows, int n_columns, const int *n)
{
    for (int row = 0; cells && row < n_rows; row++)
        for (int c = 0; c < n_columns; c++, cells++)
            if (*cells < 0 || *cells >= n[row]) return false;
    return true;
}

/* Stages, micro-batches and peers of all instructions are in range, stages are on their workers,
 * and transfers use links. */
static fr_status check_range(fr_ctx *ctx, const fr_schedule *s, const fr__link_index *x)
{
    const fr__direction *ways[] = {&x->forward, &x->backward};
    for (int k = 0; k < s->n_stages; k++)
        if (s->replicas[k] < 1 || s->n_micro % s->replicas[k] != 0)
            return fr_fail(ctx, FR_INVALID,
                           "schedule %s: %d replicas of stage %d do not divide %d micro-batches",
                           s->name, s->replicas[k], k, s->n_micro);
    for (int way = 0; way < 2; way++)
        for (int l = 0; l < ways[way]->n; l++) {
            fr_link at = ways[way]->links[l];
            if (fr__link_of(ways[way], at.from, at.to) != l)
                return fr_fail(ctx, FR_INVALID,
                               "schedule %s: duplicate link from stage %d to stage %d", s->name,
                               at.from, at.to);
        }
    if (!cells_in_range(s->slot_of, s->n_stages, fr__n_micro(s), s->n_slots) ||
        !cells_in_range(s->buffer_of, s->n_backward, fr__n_micro(s), s->n_buffers))
        return fr_fail(ctx, FR_INVALID, "schedule %s: a slot or buffer number is out of range",
                       s->name);
    for (int w = 0; w < s->n_workers; w++)
        for (int step = 0; step < s->lists[w].n; step++) FR_TRY(instr_in_range(ctx, s, x, w, step));
    return FR_OK;
}

fr_status fr__link_index_init(fr_ctx *ctx, fr_arena *a, const fr_schedule *s, fr__link_index *out)
{
    if (!direction_init(a, s, s->n_forward, s->forward, &out->forward) ||
        !direction_init(a, s, s->n_backward, s->backward, &out->backward))
        return fr__no_memory(ctx, (size_t)s->n_stages * sizeof(int), "the links of a schedule");
    return check_range(ctx, s, out);
}
