/* dlplacer.c -- DLPlacer-style (Pal et al., IEEE Micro 2019): operators of one replica on several
 * devices so that a mini-batch ends as early as can be, by an integer program.
 *
 * The program of place_program.c proves a dozen operators in a second and not a hundred in a day.
 * So the graph is taken apart first:
 *
 *   - An operator that all others come before or after, with no arc past it, is a waist. Between
 *     two waists a piece is a problem of its own, given the devices of the waists; what is best for
 *     the whole is a shortest path over the devices of all waists. Nothing is lost by this.
 *   - A piece that is still large has chains merged (an operator with its only reader, if that
 *     reads nothing else) until it is small, the shortest first. This may lose something, so the
 *     result does not count as proved.
 *
 * Each piece starts from a list schedule; where that meets the bound there is nothing to solve.
 * With a memory limit that matters pieces are not independent, and the whole is one piece. */
#include "plan/place.h"

#include "base/thread.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SMALL = 12, MOST_DEVICES = 8, MOST_OPERATORS = 4000 };

/* Jobs strictly between two waists (-1: begin or end of the graph). */
struct piece {
    int before, behind, first, last; /* jobs first .. last - 1 */
    struct fr__placing *best;        /* [devices of before][devices of behind] */
};

struct placer {
    struct fr__task *t;
    struct fr__jobs jobs; /* of the problem */
    int n_pieces;
    struct piece *pieces; /* in order */
    bool are_alike, is_proved, is_merged;
    double deadline, bound; /* bound: of the whole, as far as pieces prove one */
    int n_programs, programs_left;
};

/* --- one problem: list schedule, merged chains, program ----------------------------------------
 */

struct coarse {
    struct fr__jobs j;
    int *of;       /* (fine n): coarse job */
    double *where; /* (fine n): when in it, at speed 1 */
    int *fixed;
};

/* Arcs within one coarse job vanish; the rest is sorted by `to` again. */
static void regroup(const struct fr__jobs *fine, struct coarse *c)
{
    int n = 0;
    for (int to = 0; to < c->j.n; to++) {
        c->j.first_in[to] = n;
        for (int k = 0; k < fine->n_arcs; k++) {
            const struct fr__arc *a = &fine->arcs[k];
            if (c->of[a->to] == to && c->of[a->from] != to)
                c->j.arcs[n++] = (struct fr__arc){c->of[a->from], to, a->time};
        }
    }
    c->j.first_in[c->j.n] = c->j.n_arcs = n;
}

/* The shortest pair of a chain, as the job that reads; -1: none. */
static int find_pair(const struct coarse *c)
{
    int best = -1;
    double least = INFINITY;
    for (int i = 0; i < c->j.n; i++) {
        if (c->j.first_in[i + 1] - c->j.first_in[i] != 1) continue;
        int from = c->j.arcs[c->j.first_in[i]].from, readers = 0;
        for (int k = 0; k < c->j.n_arcs; k++) readers += c->j.arcs[k].from == from;
        double time = c->j.time[from] + c->j.time[i];
        if (readers == 1 && c->fixed[from] < 0 && c->fixed[i] < 0 && time < least)
            best = i, least = time;
    }
    return best;
}

/* Job b becomes part of a, which it reads; those behind move up. */
static void merge(const struct fr__jobs *fine, struct coarse *c, int a, int b)
{
    for (int i = 0; i < fine->n; i++) {
        if (c->of[i] == b) c->of[i] = a, c->where[i] += c->j.time[a];
        if (c->of[i] > b) c->of[i]--;
    }
    c->j.time[a] += c->j.time[b], c->j.bytes[a] += c->j.bytes[b];
    for (int i = b; i < c->j.n - 1; i++) {
        c->j.time[i] = c->j.time[i + 1], c->j.bytes[i] = c->j.bytes[i + 1];
        c->fixed[i] = c->fixed[i + 1];
    }
    c->j.n--;
    regroup(fine, c);
}

static fr_status coarsen(fr_ctx *ctx, fr_arena *a, const struct fr__jobs *fine, int most,
                         struct coarse *c)
{
    c->j = *fine;
    c->j.time = FR_ARENA_ARRAY(a, double, fine->n + 1);
    c->j.bytes = FR_ARENA_ARRAY(a, double, fine->n + 1);
    c->j.arcs = FR_ARENA_ARRAY(a, struct fr__arc, fine->n_arcs + 1);
    c->j.first_in = FR_ARENA_ARRAY(a, int, fine->n + 2);
    c->of = FR_ARENA_ARRAY(a, int, fine->n + 1);
    c->where = FR_ARENA_ARRAY(a, double, fine->n + 1);
    c->fixed = FR_ARENA_ARRAY(a, int, fine->n + 1);
    if (!c->j.time || !c->j.bytes || !c->j.arcs || !c->j.first_in || !c->of || !c->where ||
        !c->fixed)
        return fr__no_memory(ctx, (size_t)fine->n * sizeof(double), "merged operators");
    for (int i = 0; i < fine->n; i++) {
        c->j.time[i] = fine->time[i], c->j.bytes[i] = fine->bytes[i];
        c->of[i] = i, c->fixed[i] = fine->fixed ? fine->fixed[i] : -1;
    }
    c->j.fixed = c->fixed;
    regroup(fine, c);
    for (int b = 0; c->j.n > most && (b = find_pair(c)) >= 0;)
        merge(fine, c, c->j.arcs[c->j.first_in[b]].from, b);
    return FR_OK;
}

/* A coarse placing on the fine graph, run again in the same order. */
static bool refine(const struct fr__jobs *fine, const struct coarse *c,
                   const struct fr__placing *from, struct fr__placing *now,
                   struct fr__placing *best)
{
    double *key = FR_NEW_ARRAY(double, fine->n + fine->n_arcs + 1);
    if (!key) return false;
    for (int i = 0; i < fine->n; i++) {
        now->device[i] = from->device[c->of[i]];
        key[i] = from->start[c->of[i]] + c->where[i] / fine->speed[now->device[i]];
    }
    for (int k = 0; k < fine->n_arcs; k++) key[fine->n + k] = key[fine->arcs[k].to];
    bool is_whole = true;
    for (int by_time = 0; is_whole && by_time < 2; by_time++) {
        is_whole = fr__place_run(fine, key, by_time, now);
        if (is_whole && now->makespan < best->makespan && fr__place_fits(fine, now->device))
            fr__placing_copy(fine, now, best);
    }
    fr__free(key);
    return is_whole;
}

/* *bound: no placing is shorter, as far as that is proved. */
static fr_status solve_jobs(struct placer *o, const struct fr__jobs *j, struct fr__placing *best,
                            double *bound)
{
    fr_ctx *ctx = o->t->ctx;
    fr_arena a = {0};
    struct coarse c;
    struct fr__placing now, rough;
    double *tail = FR_ARENA_ARRAY(&a, double, j->n + 1), rough_bound;
    fr_status status = tail ? fr__place_list(ctx, j, best) : fr__no_memory(ctx, 8, "a placing");
    if (status != FR_OK) goto end;
    fr__place_tails(j, tail);
    *bound = fmin(fr__place_bound(j, tail), best->makespan);
    int n_free = 0, left;
    for (int i = 0; i < j->n; i++) n_free += !j->fixed || j->fixed[i] < 0;
    left = n_free > 1 && o->programs_left > 0 ? o->programs_left-- : 1;
    if (n_free == 1) left = o->programs_left + 1;
    if (n_free == 0) *bound = best->makespan; /* one transfer from waist to waist */
    if (!isfinite(best->makespan) || best->makespan <= *bound * (1 + 1e-9)) goto end;
    FR_TRY_GOTO(status, coarsen(ctx, &a, j, SMALL + 2, &c), end);
    FR_TRY_GOTO(status, fr__placing_make(ctx, &a, j, &now), end);
    FR_TRY_GOTO(status, fr__placing_make(ctx, &a, &c.j, &rough), end);
    FR_TRY_GOTO(status, fr__place_list(ctx, &c.j, &rough), end);
    double seconds = (o->deadline - 1e-9 * (double)fr__now_ns()) / left;
    rough_bound = *bound;
    if (isfinite(rough.makespan) && seconds > 0.01) {
        o->n_programs++;
        FR_TRY_GOTO(status, fr__place_program(ctx, &c.j, seconds, &rough, &rough_bound), end);
        if (!refine(j, &c, &rough, &now, best)) status = fr__no_memory(ctx, 8, "a placing");
    }
    if (c.j.n < j->n)
        o->is_merged = true; /* what was proved was proved of the merged graph */
    else
        *bound = fmax(*bound, fmin(rough_bound, best->makespan));
end:
    fr__arena_fini(&a);
    return status;
}

/* --- pieces ------------------------------------------------------------------------------------
 */

static bool is_waist(const struct fr__jobs *j, int w)
{
    for (int k = 0; k < j->n_arcs; k++)
        if (j->arcs[k].from < w && j->arcs[k].to > w) return false;
    for (int i = 0; i < w; i++) {
        bool is_read = false;
        for (int k = 0; k < j->n_arcs; k++) is_read = is_read || j->arcs[k].from == i;
        if (!is_read) return false;
    }
    for (int i = w + 1; i < j->n; i++)
        if (j->first_in[i + 1] == j->first_in[i]) return false;
    return true;
}

static fr_status cut_up(struct placer *o, bool whole)
{
    const struct fr__jobs *j = &o->jobs;
    o->pieces = FR_ARENA_ARRAY(&o->t->arena, struct piece, j->n + 2);
    if (!o->pieces) return fr__no_memory(o->t->ctx, sizeof(struct piece), "pieces of a graph");
    int last = -1;
    o->n_pieces = 0;
    for (int w = 0; w <= j->n; w++) {
        if (w < j->n && (whole || !is_waist(j, w))) continue;
        o->pieces[o->n_pieces++] = (struct piece){
            .before = last, .behind = w < j->n ? w : -1, .first = last + 1, .last = w};
        last = w;
    }
    return FR_OK;
}

/* The piece as jobs of its own: its waists come with it, take no time, and stand where they
 * stand. */
static fr_status isolate(struct placer *o, const struct piece *p, int from, int to, fr_arena *a,
                         struct fr__jobs *out, int **index)
{
    const struct fr__jobs *j = &o->jobs;
    int *of = FR_ARENA_ARRAY(a, int, j->n), *fixed = FR_ARENA_ARRAY(a, int, j->n + 1);
    *out = (struct fr__jobs){.n_devices = j->n_devices,
                             .speed = j->speed,
                             .memory = j->memory,
                             .fixed = fixed,
                             .time = FR_ARENA_ARRAY(a, double, j->n + 1),
                             .bytes = FR_ARENA_ARRAY(a, double, j->n + 1),
                             .arcs = FR_ARENA_ARRAY(a, struct fr__arc, j->n_arcs + 1),
                             .first_in = FR_ARENA_ARRAY(a, int, j->n + 2)};
    if (!of || !fixed || !out->time || !out->bytes || !out->arcs || !out->first_in)
        return fr__no_memory(o->t->ctx, (size_t)j->n * sizeof(double), "a piece of a graph");
    int begin = p->before >= 0 ? p->before : p->first,
        end = p->behind >= 0 ? p->behind + 1 : p->last;
    for (int i = begin; i < end; i++) {
        bool is_inside = i >= p->first && i < p->last;
        of[i] = out->n;
        fixed[out->n] = is_inside ? -1 : i == p->before ? from : to;
        out->time[out->n] = is_inside ? j->time[i] : 0;
        out->bytes[out->n] = is_inside ? j->bytes[i] : 0;
        out->first_in[out->n++] = out->n_arcs;
        for (int k = j->first_in[i]; k < j->first_in[i + 1] && i != p->before; k++)
            out->arcs[out->n_arcs++] =
                (struct fr__arc){of[j->arcs[k].from], of[i], j->arcs[k].time};
    }
    out->first_in[out->n] = out->n_arcs;
    *index = of;
    return FR_OK;
}

/* Devices are alike: what is found for waists on (0, 0) and (0, 1) holds for all pairs. */
static int rename_device(int from, int to, int d)
{
    int map[MOST_DEVICES], next = 0;
    map[0] = from;
    if (to != from) map[1] = to;
    for (int i = to != from ? 2 : 1; i < MOST_DEVICES; i++) {
        while (next == from || next == to) next++;
        map[i] = next++;
    }
    return map[d];
}

static fr_status solve_piece(struct placer *o, struct piece *p, int from, int to,
                             struct fr__placing *out, double *bound)
{
    fr_arena a = {0};
    struct fr__jobs j;
    struct fr__placing best;
    int *index = NULL;
    fr_status status = isolate(o, p, from, to, &a, &j, &index);
    if (status == FR_OK) status = fr__placing_make(o->t->ctx, &a, &j, &best);
    if (status == FR_OK) status = solve_jobs(o, &j, &best, bound);
    if (status == FR_OK) {
        out->makespan = best.makespan;
        for (int i = p->first; i < p->last; i++) {
            out->device[i - p->first] = best.device[index[i]];
            out->start[i - p->first] = best.start[index[i]];
        }
    }
    fr__arena_fini(&a);
    return status;
}

/* All pairs of devices of its waists; *loss: by how much its worst pair may be from the best. */
static fr_status solve_pairs(struct placer *o, struct piece *p, double *loss)
{
    int n = o->jobs.n_devices, most = p->last - p->first + 1;
    struct fr__jobs small = {.n = most};
    p->best = FR_ARENA_ARRAY(&o->t->arena, struct fr__placing, n * n);
    if (!p->best) return fr__no_memory(o->t->ctx, sizeof *p->best, "pieces of a graph");
    *loss = 0;
    for (int from = 0; from < (p->before < 0 ? 1 : n); from++)
        for (int to = 0; to < (p->behind < 0 ? 1 : n); to++) {
            struct fr__placing *at = &p->best[from * n + to];
            double bound = 0;
            FR_TRY(fr__placing_make(o->t->ctx, &o->t->arena, &small, at));
            bool is_first =
                !o->are_alike || (p->before < 0 ? to == 0 : from == 0 && (to < 2 || p->behind < 0));
            if (is_first) {
                FR_TRY(solve_piece(o, p, from, to, at, &bound));
                *loss = fmax(*loss, at->makespan - bound);
                continue;
            }
            bool is_same = p->before < 0 || p->behind < 0 || from == to;
            const struct fr__placing *known = &p->best[is_same ? 0 : 1];
            int a = p->before < 0 ? to : from, b = is_same ? a : to;
            at->makespan = known->makespan;
            for (int i = 0; i < p->last - p->first; i++) {
                at->device[i] = rename_device(a, b, known->device[i]);
                at->start[i] = known->start[i];
            }
        }
    return FR_OK;
}

/* --- the whole ---------------------------------------------------------------------------------
 */

/* Shortest path over the devices of waists; fills `out`. */
static fr_status join(struct placer *o, struct fr__placing *out)
{
    int n = o->jobs.n_devices, n_pieces = o->n_pieces;
    double *way = FR_ARENA_ARRAY(&o->t->arena, double, (n_pieces + 1) * n);
    int *came = FR_ARENA_ARRAY(&o->t->arena, int, (n_pieces + 1) * n);
    if (!way || !came) return fr__no_memory(o->t->ctx, sizeof *way, "pieces of a graph");
    for (int k = 0; k < n_pieces; k++) {
        const struct piece *p = &o->pieces[k];
        for (int to = 0; to < (p->behind < 0 ? 1 : n); to++) {
            double *best = &way[(k + 1) * n + to];
            *best = INFINITY;
            for (int from = 0; from < (p->before < 0 ? 1 : n); from++) {
                double at = way[k * n + from] + p->best[from * n + to].makespan;
                if (at < *best) *best = at, came[(k + 1) * n + to] = from;
            }
            if (p->behind >= 0) *best += o->jobs.time[p->behind] / o->jobs.speed[to];
        }
    }
    int at = 0;
    if (o->pieces[n_pieces - 1].behind >= 0) /* never: the last piece ends the graph */
        return fr_fail(o->t->ctx, FR_INTERNAL, "dlplacer: a graph without an end");
    for (int k = n_pieces - 1; k >= 0; k--) {
        const struct piece *p = &o->pieces[k];
        int from = came[(k + 1) * n + at];
        const struct fr__placing *best = &p->best[from * n + at];
        double begin = way[k * n + from];
        for (int i = p->first; i < p->last; i++) {
            out->device[i] = best->device[i - p->first];
            out->start[i] = begin + best->start[i - p->first];
        }
        if (p->before >= 0) {
            out->device[p->before] = from;
            out->start[p->before] = begin - o->jobs.time[p->before] / o->jobs.speed[from];
        }
        at = from;
    }
    return FR_OK;
}

/* The order of starts, run on the whole graph: what is told has been run. */
static fr_status finish(struct placer *o, struct fr__placing *out)
{
    const struct fr__jobs *j = &o->jobs;
    double *key = FR_ARENA_ARRAY(&o->t->arena, double, j->n + j->n_arcs + 1);
    struct fr__placing best;
    if (!key) return fr__no_memory(o->t->ctx, sizeof *key, "a placing");
    FR_TRY(fr__placing_make(o->t->ctx, &o->t->arena, j, &best));
    for (int i = 0; i < j->n; i++) key[i] = out->start[i] + 1e-12 * i;
    for (int k = 0; k < j->n_arcs; k++) key[j->n + k] = key[j->arcs[k].to];
    for (int by_time = 0; by_time < 2; by_time++) {
        if (!fr__place_run(j, key, by_time, out)) return fr__no_memory(o->t->ctx, 8, "a placing");
        if (out->makespan < best.makespan) fr__placing_copy(j, out, &best);
    }
    fr__placing_copy(j, &best, out);
    return FR_OK;
}

static fr_status solve_all(struct placer *o, bool whole, struct fr__placing *out)
{
    double loss = 0;
    int per_piece = o->are_alike ? 2 : o->jobs.n_devices * o->jobs.n_devices;
    FR_TRY(cut_up(o, whole));
    o->programs_left = 0, o->is_merged = false;
    for (int k = 0; k < o->n_pieces; k++)
        if (o->pieces[k].last - o->pieces[k].first > 1) o->programs_left += per_piece;
    for (int k = 0; k < o->n_pieces; k++) {
        double own = 0;
        FR_TRY(solve_pairs(o, &o->pieces[k], &own));
        loss += own;
    }
    FR_TRY(join(o, out));
    FR_TRY(finish(o, out));
    double *tail = FR_ARENA_ARRAY(&o->t->arena, double, o->jobs.n);
    if (!tail) return fr__no_memory(o->t->ctx, sizeof *tail, "a placing");
    fr__place_tails(&o->jobs, tail);
    o->bound = fmax(fr__place_bound(&o->jobs, tail), o->is_merged ? 0 : out->makespan - loss);
    o->is_proved = !o->is_merged && loss <= 1e-6 * out->makespan;
    return FR_OK;
}

static fr_status make(struct fr__task *t, fr_plan **out)
{
    const double begin = 1e-9 * (double)fr__now_ns();
    const double seconds = t->problem->seconds > 0 ? t->problem->seconds : 60;
    struct placer solver = {.t = t, .are_alike = t->are_alike, .deadline = begin + 0.5 * seconds};
    struct placer *o = &solver;
    struct fr__placing best;
    double one = 0;
    if (t->n_devices > MOST_DEVICES)
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "dlplacer: %d devices; it places the operators of one replica on at most %d",
                       t->n_devices, MOST_DEVICES);
    if (t->n > MOST_OPERATORS)
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "dlplacer: %d operators; it places at most %d; planners exact and pipedream "
                       "cut models of any size",
                       t->n, MOST_OPERATORS);
    FR_TRY(fr__jobs_make(t, &o->jobs));
    FR_TRY(fr__placing_make(t->ctx, &t->arena, &o->jobs, &best));
    double total = 0;
    for (int i = 0; i < t->n; i++) one += o->jobs.time[i] / t->slowest, total += o->jobs.bytes[i];
    /* Pieces are independent only where any device could hold everything. */
    FR_TRY(solve_all(o, total > t->least, &best));
    if (!isfinite(best.makespan) || !fr__place_fits(&o->jobs, best.device))
        return fr_fail(t->ctx, FR_INVALID,
                       "dlplacer: found no placement of %d operators (%.3g MB) that fits %d "
                       "devices of %.3g MB; allow more devices or memory",
                       t->n, total / 1e6, t->n_devices, t->least / 1e6);
    FR_TRY(fr__plan_place(t, "dlplacer", &o->jobs, &best, out));
    (*out)->is_optimal = o->is_proved;
    snprintf((*out)->why, sizeof(*out)->why,
             "%d operators on %d devices: %.6g s, on one %.6g s; %s (gap %.2f %%); %d pieces "
             "between waists, %d integer programs, %.1f s%s",
             t->n, t->n_devices, best.makespan, one,
             o->is_proved ? "proved the least" : "not proved the least",
             o->is_proved ? 0 : 100 * (best.makespan / o->bound - 1), o->n_pieces, o->n_programs,
             1e-9 * (double)fr__now_ns() - begin, o->is_merged ? "; chains were merged" : "");
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, 0, make, out);
}

const fr_planner fr__planner_dlplacer = {
    .name = "dlplacer",
    .summary = "DLPlacer-style: operators of one replica on devices, by an integer program",
    .method = "1f1b",
    .plan = plan,
};
