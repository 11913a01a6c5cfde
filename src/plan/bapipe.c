/* bapipe.c -- BaPipe-style (Zhao et al., 2020): a balanced cut without replicas, and the 1F1B
 * schedule that suits its transfers.
 *
 * The cut makes the slowest stage's computation as fast as can be, for every number of stages that
 * the devices allow. With F + B of the slowest stage, SR the longest transfer of a border, M
 * micro-batches on N stages:
 *
 *     1F1B-SNO  transfers wait for computation:  (M + N - 1) (F + B) + (M + N - 2) 2 SR
 *     1F1B-SO   transfers overlap, which takes twice the activation sets in flight:
 *                                                (M + N - 1) (F + B) + (N - 1) 2 SR
 *
 * where SO holds a stage up by its transfers if those take longer: F + B is then 2 SR. Of all
 * numbers of stages and both schedules the fastest that fits memory is taken; one stage is plain
 * computation. "Style": the formulas are recalled, not read again. */
#include "plan/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SNO, SO };
static const char *const names[] = {"1F1B-SNO (transfers between computations)",
                                    "1F1B-SO (transfers overlapped, twice the activation sets)"};

static double time_of(const struct fr__task *t, int n, struct fr__part *parts, int schedule)
{
    double slowest = 0, move = 0, step = 0;
    int m = t->n_micro;
    for (int s = 0; s < n; s++) {
        struct fr__part *p = &parts[s];
        double speed = fr__task_min(t, t->speed, p);
        int slots = (schedule == SO ? 2 : 1) * (n - s);
        if (slots > m) slots = m;
        p->time_s = fr__task_work(t, p->u, p->v) / speed;
        slowest = fmax(slowest, p->time_s);
        move = fmax(move, t->cut[p->u] / t->bandwidth);
        step = fmax(step, (t->update[p->v] - t->update[p->u]) / speed);
        if (fr__task_fixed(t, p->u, p->v) + slots * (t->kept[p->v] - t->kept[p->u]) >
            fr__task_min(t, t->memory, p))
            return INFINITY;
    }
    if (n == 1) return m * slowest + step;
    if (schedule == SO) return (m + n - 1) * fmax(slowest, 2 * move) + (n - 1) * 2 * move + step;
    return (m + n - 1) * slowest + (m + n - 2) * 2 * move + step;
}

double fr__score_bapipe(const struct fr__task *t, int n, struct fr__part *parts)
{
    for (int s = 0; s < n; s++)
        if (parts[s].replicas != 1) return INFINITY;
    return fmin(time_of(t, n, parts, SNO), time_of(t, n, parts, SO));
}

static fr_status search(struct fr__task *t, struct fr__part *best, int *n_best, double *best_s,
                        int *schedule)
{
    fr_plan_problem one = *t->problem;
    const fr_plan_problem *asked = t->problem;
    int most = t->n < t->n_devices ? t->n : t->n_devices, n;
    struct fr__part *parts = FR_ARENA_ARRAY(&t->arena, struct fr__part, t->n);
    int *order = FR_ARENA_ARRAY(&t->arena, int, t->n_all);
    bool is_proved;
    if (!parts || !order) return fr__no_memory(t->ctx, 0, "the stages of a plan");
    if (!asked->n_stages && (double)most * most / 2 * t->n * t->n / 2 > 5e8) /* some seconds */
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "bapipe: cuts of %d nodes into 1 to %d stages are too many; ask for one "
                       "number of stages, or fewer devices",
                       t->n_nodes, most);
    one.replicas = 1;
    t->problem = &one;
    for (int k = asked->n_stages ? asked->n_stages : 1;
         k <= (asked->n_stages ? asked->n_stages : most); k++) {
        one.n_stages = k;
        fr_status status = fr__exact_solve(t, false, &n, parts, &is_proved);
        if (status != FR_OK) return status;
        for (int s = SNO; s <= SO && n; s++) {
            double time = time_of(t, n, parts, s);
            if (!(time < *best_s)) continue;
            *best_s = time, *n_best = n, *schedule = s;
            for (int i = 0; i < n; i++) best[i] = parts[i];
            memcpy(order, t->order, (size_t)t->n_all * sizeof *order);
        }
    }
    t->problem = asked;
    if (*n_best) memcpy(t->order, order, (size_t)t->n_all * sizeof *order);
    return FR_OK;
}

static fr_status make(struct fr__task *t, fr_plan **out)
{
    int n = 0, schedule = SNO;
    double time = INFINITY;
    struct fr__part *parts = FR_ARENA_ARRAY(&t->arena, struct fr__part, t->n);
    if (!parts) return fr__no_memory(t->ctx, 0, "the stages of a plan");
    FR_TRY(search(t, parts, &n, &time, &schedule));
    if (n == 0)
        return fr_fail(t->ctx, FR_INVALID,
                       "bapipe: no balanced cut fits the memory of %d devices (least %.3g GB); "
                       "allow more of either",
                       t->n_devices, t->least / 1e9);
    FR_TRY(fr__plan_make(t, "bapipe", n, parts, time, out));
    snprintf((*out)->why, sizeof(*out)->why,
             "a balanced cut into %d stages with %s takes %.6g s for %d micro-batches, by "
             "BaPipe's count (recalled)%s",
             n, n > 1 ? names[schedule] : "one device", time, t->n_micro, fr__task_note(t));
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, FR__MOST_UNITS, make, out);
}

const fr_planner fr__planner_bapipe = {
    .name = "bapipe",
    .summary = "BaPipe-style: a balanced cut without replicas, transfers overlapped or not",
    .method = "1f1b",
    .plan = plan,
};
