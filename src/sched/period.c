/* period.c -- distance of mini-batches in the steady state.
 *
 * Workers walk their lists again and again without a barrier, as the engine does, so the drain of
 * one mini-batch overlaps the fill of the next: the makespan holds once, the period for each
 * further mini-batch. The clock runs several walks written out as one segment. A walk depends on
 * the one before only, so once all of its times are those of that walk and a constant, it repeats
 * for ever and the period is exact. */
#include "sched/sched.h"

#include <math.h>

enum { FEW_WALKS = 4, MOST_WALKS = 64, MOST_INSTRS = 1 << 24 };

/* A table by micro-batch, its `rows` rows repeated. */
static int *repeat_rows(fr_arena *a, const int *from, int rows, int n, int times)
{
    int *to = FR_ARENA_ARRAY(a, int, (size_t)rows *(size_t)n *(size_t)times + 1);
    for (int r = 0; to && r < rows; r++)
        for (int i = 0; i < n * times; i++)
            to[(size_t)r * (size_t)(n * times) + (size_t)i] =
                from[(size_t)r * (size_t)n + (size_t)(i % n)];
    return to;
}

static bool repeat_list(fr_arena *a, const fr_schedule *s, int worker, int times, int n_batches,
                        fr_instr_list *out)
{
    const fr_instr_list *list = &s->lists[worker];
    *out = (fr_instr_list){0, FR_ARENA_ARRAY(a, fr_instr, (size_t)list->n * (size_t)times + 1)};
    for (int t = 0; out->at && t < times; t++)
        for (int i = 0; i < list->n; i++) {
            fr_instr in = list->at[i];
            in.micro += t * s->n_batches * (fr_is_of_batch(in.action) ? 1 : s->n_micro);
            if ((fr_is_of_batch(in.action) ? in.micro : in.micro / s->n_micro) < n_batches)
                out->at[out->n++] = in;
        }
    return out->at != NULL;
}

bool fr__schedule_repeat(fr_arena *a, const fr_schedule *s, int n_batches, fr_schedule *out)
{
    int times = (n_batches + s->n_batches - 1) / s->n_batches, n = fr__n_micro(s);
    *out = *s;
    out->n_batches = times * s->n_batches;
    out->slot_of = repeat_rows(a, s->slot_of, s->n_stages, n, times);
    out->buffer_of = repeat_rows(a, s->buffer_of, s->n_backward, n, times);
    out->lists = FR_ARENA_ARRAY(a, fr_instr_list, s->n_workers);
    if (!out->slot_of || !out->buffer_of || !out->lists) return false;
    for (int w = 0; w < s->n_workers; w++)
        if (!repeat_list(a, s, w, times, n_batches, &out->lists[w])) return false;
    return true;
}

/* --- flush schedules: walks ----------------------------------------------------------------- */

/* Are all times of the last of n walks those of the one before it, moved by one constant? Then that
 * is *shift. */
static bool is_shifted(const fr_schedule *s, const fr_clock *c, int n, double *shift)
{
    bool is_first = true;
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0, own = s->lists[w].n; i < own; i++) {
            double now = c->end[w][(n - 1) * own + i];
            double by = now - c->end[w][(n - 2) * own + i];
            if (is_first) *shift = by;
            if (fabs(by - *shift) > 1e-12 * now) return false;
            is_first = false;
        }
    return true;
}

/* The mean over the second half of n walks, to the ends of their last instructions. */
static double mean_shift(const fr_schedule *s, const fr_clock *c, int n)
{
    double most = 0;
    for (int w = 0; w < s->n_workers; w++) {
        int own = s->lists[w].n, half = n / 2;
        if (own > 0)
            most = fmax(most, (c->end[w][n * own - 1] - c->end[w][half * own - 1]) / (n - half));
    }
    return most;
}

/* Time per walk, from n of them; *is_exact: they repeat. */
static fr_status walk(fr_ctx *ctx, const fr_schedule *s, const fr_costs *costs, int n,
                      double *period, bool *is_exact)
{
    fr_arena arena = {0};
    fr_schedule walks;
    fr_clock c = {0};
    fr_status status = fr__schedule_repeat(&arena, s, n * s->n_batches, &walks)
                           ? fr_schedule_clock(ctx, &walks, costs, &c)
                           : fr__no_memory(ctx, (size_t)n * sizeof(fr_instr), "a schedule's walk");
    *is_exact = status == FR_OK && is_shifted(s, &c, n, period);
    if (status == FR_OK && !*is_exact) *period = mean_shift(s, &c, n);
    fr_clock_free(&c);
    fr__arena_fini(&arena);
    return status;
}

/* --- without a flush: updates of the last stage ---------------------------------------------- */

/* It has no drain: its forwards stop with its last backward. Over the second half of the segment.
 */
static fr_status between_updates(fr_ctx *ctx, const fr_schedule *s, const fr_costs *costs,
                                 double *period)
{
    int n = s->n_batches, last = s->n_stages - 1, w = s->worker_of[last];
    double from = 0, to = 0;
    fr_clock c;
    FR_TRY(fr_schedule_clock(ctx, s, costs, &c));
    for (int i = 0; i < s->lists[w].n; i++) {
        const fr_instr *at = &s->lists[w].at[i];
        if (at->action != FR_DO_STEP || at->stage != last) continue;
        if (at->micro == (n - 1) / 2) from = c.end[w][i];
        if (at->micro == n - 1) to = c.end[w][i];
    }
    fr_clock_free(&c);
    *period = (to - from) / (n - 1 - (n - 1) / 2);
    return FR_OK;
}

/* A segment that ends before the pipeline is full is replaced by a longer one. */
static fr_status full_segment(fr_ctx *ctx, const fr_schedule *s, const fr_costs *costs,
                              double *period)
{
    int n;
    bool has_reduce;
    fr_schedule *own = NULL;
    const fr_schedule *steady = fr__schedule_steady(s, &n);
    if (steady == s) return between_updates(ctx, s, costs, period);
    fr_status status = fr__schedule_strip(ctx, steady, &own, &has_reduce);
    if (status == FR_OK) status = fr__schedule_lower(ctx, own, has_reduce);
    if (status == FR_OK) status = between_updates(ctx, own, costs, period);
    fr_schedule_free(own);
    return status;
}

fr_status fr_schedule_period(fr_ctx *ctx, const fr_schedule *s, const fr_costs *costs,
                             double *period)
{
    int n_full, n_instrs = 1;
    bool is_exact = false;
    *period = NAN;
    if (!s->is_lowered) return fr_fail(ctx, FR_INVALID, "schedule %s is not lowered", s->name);
    if (!s->is_flush && !s->is_forward_only && fr__schedule_steady(s, &n_full)->n_batches > 1)
        return full_segment(ctx, s, costs, period);
    for (int w = 0; w < s->n_workers; w++) n_instrs += s->lists[w].n;
    for (int n = FEW_WALKS; n <= MOST_WALKS && n <= MOST_INSTRS / n_instrs && !is_exact; n *= 2)
        FR_TRY(walk(ctx, s, costs, n, period, &is_exact));
    *period /= s->n_batches;
    return FR_OK;
}
