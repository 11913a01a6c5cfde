/* place_program.c -- DLPlacer's integer program (Pal et al., 2019), solved by CBC.
 *
 * For job i on device n, arc e = (i, j), everything divided by the makespan of the start solution:
 *
 *     minimise C
 *     sum over n of x[i,n] = 1                      x binary
 *     d[i] = sum over n of x[i,n] time[i] / speed[n]
 *     C >= s[i] + d[i] + longest way behind i       C >= work placed on n
 *     y[e] >= x[i,n] - x[j,n]                       the arc is cut
 *     q[e] >= s[i] + d[i]    s[j] >= q[e] + time[e] y[e]
 *     s[j] >= s[i] + d[i] - (3 - x[i,n] - x[j,n] - o)   for i, j in no order: one before the
 *     s[i] >= s[j] + d[j] - (2 - x[i,n] - x[j,n] + o)   other, if on one device; o binary
 *     the same for q[e], q[f] where both arcs lead from n to m, with 5 and 4 instead of 3 and 2
 *     sum over i of x[i,n] bytes[i] <= memory[n]
 *
 * Order binaries exist only between jobs (and transfers) that the graph leaves in no order. Starts
 * are bounded by the longest ways before and behind. What comes back is scheduled again in the
 * order of its starts, so that the makespan told is one that a clock has run. */
#include "plan/cbc.h"
#include "plan/place.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef FR_HAVE_CBC

struct program {
    const struct fr__jobs *j;
    fr__cbc cbc;
    Cbc_Model *model;
    double unit;         /* seconds */
    uint64_t *is_before; /* (n, n) bits, by rows of `words` */
    int words, n_cols;
    int x, s, q, y; /* first column of each kind; C is column 0 */
    /* A row under construction. */
    int n, cols[64];
    double coefs[64], right;
};

static bool goes_before(const struct program *p, int a, int b)
{
    return fr__bit(p->is_before + (size_t)a * (size_t)p->words, b);
}

static int add_col(struct program *p, double low, double high, double cost, bool is_binary)
{
    p->cbc.addCol(p->model, "", low, high, cost, is_binary, 0, NULL, NULL);
    return p->n_cols++;
}

static void term(struct program *p, double coef, int col)
{
    for (int i = 0; i < p->n; i++)
        if (p->cols[i] == col) {
            p->coefs[i] += coef;
            return;
        }
    p->cols[p->n] = col, p->coefs[p->n++] = coef;
}

/* The row is `sense` right; the next one begins. */
static void end_row(struct program *p, char sense)
{
    p->cbc.addRow(p->model, "", p->n, p->cols, p->coefs, sense, p->right);
    p->n = 0, p->right = 0;
}

static int x_of(const struct program *p, int i, int d) { return p->x + i * p->j->n_devices + d; }

static double on_device(const struct program *p, int i, int d)
{
    return p->j->time[i] / p->j->speed[d] / p->unit;
}

/* + coef * d[i] */
static void add_length(struct program *p, double coef, int i)
{
    for (int d = 0; d < p->j->n_devices; d++) term(p, coef * on_device(p, i, d), x_of(p, i, d));
}

static void add_columns(struct program *p, const double *head, const double *tail, double bound)
{
    const struct fr__jobs *j = p->j;
    add_col(p, bound / p->unit * (1 - 1e-9), 1, 1, false); /* C */
    p->x = p->n_cols;
    for (int i = 0; i < j->n; i++)
        for (int d = 0; d < j->n_devices; d++) {
            bool is_free = !j->fixed || j->fixed[i] < 0;
            add_col(p, !is_free && j->fixed[i] == d, is_free || j->fixed[i] == d, 0, true);
        }
    p->s = p->n_cols;
    for (int i = 0; i < j->n; i++)
        add_col(p, head[i] / p->unit, fmax(1 - tail[i] / p->unit, head[i] / p->unit), 0, false);
    p->q = p->n_cols;
    for (int e = 0; e < j->n_arcs; e++) add_col(p, 0, 1, 0, false);
    p->y = p->n_cols;
    for (int e = 0; e < j->n_arcs; e++) add_col(p, 0, 1, 0, false);
}

static void add_jobs(struct program *p, const double *tail)
{
    const struct fr__jobs *j = p->j;
    double fastest = 0;
    for (int d = 0; d < j->n_devices; d++) fastest = fmax(fastest, j->speed[d]);
    for (int i = 0; i < j->n; i++) {
        for (int d = 0; d < j->n_devices; d++) term(p, 1, x_of(p, i, d));
        p->right = 1;
        end_row(p, 'E');
        term(p, 1, 0), term(p, -1, p->s + i), add_length(p, -1, i);
        p->right = fmax(0, tail[i] - j->time[i] / fastest) / p->unit * (1 - 1e-9);
        end_row(p, 'G');
    }
}

static bool add_devices(struct program *p)
{
    const struct fr__jobs *j = p->j;
    int *cols = FR_NEW_ARRAY(int, j->n + 1);
    double *coefs = FR_NEW_ARRAY(double, j->n + 1);
    for (int d = 0; cols && coefs && d < j->n_devices; d++) {
        for (int i = 0; i < j->n; i++) cols[i] = x_of(p, i, d), coefs[i] = on_device(p, i, d);
        cols[j->n] = 0, coefs[j->n] = -1;
        p->cbc.addRow(p->model, "", j->n + 1, cols, coefs, 'L', 0);
        if (!isfinite(j->memory[d])) continue;
        double scale = fmax(j->memory[d], 1);
        for (int i = 0; i < j->n; i++) coefs[i] = j->bytes[i] / scale;
        p->cbc.addRow(p->model, "", j->n, cols, coefs, 'L', j->memory[d] / scale);
    }
    bool is_whole = cols && coefs;
    fr__free(cols), fr__free(coefs);
    return is_whole;
}

static void add_arcs(struct program *p)
{
    const struct fr__jobs *j = p->j;
    for (int e = 0; e < j->n_arcs; e++) {
        const struct fr__arc *a = &j->arcs[e];
        for (int d = 0; d < j->n_devices; d++) {
            term(p, 1, p->y + e), term(p, -1, x_of(p, a->from, d)), term(p, 1, x_of(p, a->to, d));
            end_row(p, 'G');
        }
        term(p, 1, p->q + e), term(p, -1, p->s + a->from), add_length(p, -1, a->from);
        end_row(p, 'G');
        term(p, 1, p->s + a->to), term(p, -1, p->q + e), term(p, -a->time / p->unit, p->y + e);
        end_row(p, 'G');
    }
}

/* Two jobs in no order: not at once on one device. */
static void add_pair(struct program *p, int a, int b)
{
    int o = add_col(p, 0, 1, 0, true);
    for (int d = 0; d < p->j->n_devices; d++) {
        const int first[2] = {a, b};
        for (int k = 0; k < 2; k++) {
            term(p, 1, p->s + first[!k]), term(p, -1, p->s + first[k]);
            add_length(p, -1, first[k]);
            term(p, -1, x_of(p, a, d)), term(p, -1, x_of(p, b, d)), term(p, k ? 1 : -1, o);
            p->right = k ? -2 : -3;
            end_row(p, 'G');
        }
    }
}

/* Two transfers in no order: not at once on one link. */
static void add_link_pair(struct program *p, int e, int f)
{
    const struct fr__jobs *j = p->j;
    int o = add_col(p, 0, 1, 0, true);
    for (int d = 0; d < j->n_devices; d++)
        for (int m = 0; m < j->n_devices; m++) {
            const int first[2] = {e, f};
            for (int k = 0; k < 2 && m != d; k++) {
                term(p, 1, p->q + first[!k]), term(p, -1, p->q + first[k]);
                for (int i = 0; i < 2; i++) {
                    term(p, -1, x_of(p, j->arcs[first[i]].from, d));
                    term(p, -1, x_of(p, j->arcs[first[i]].to, m));
                }
                term(p, k ? 1 : -1, o);
                p->right = j->arcs[first[k]].time / p->unit - (k ? 4 : 5);
                end_row(p, 'G');
            }
        }
}

static void add_orders(struct program *p)
{
    const struct fr__jobs *j = p->j;
    for (int a = 0; a < j->n; a++)
        for (int b = a + 1; b < j->n; b++)
            if (!goes_before(p, a, b) && j->time[a] > 0 && j->time[b] > 0) add_pair(p, a, b);
    for (int e = 0; e < j->n_arcs; e++)
        for (int f = e + 1; f < j->n_arcs; f++) {
            const struct fr__arc *a = &j->arcs[e], *b = &j->arcs[f];
            bool in_order = a->to == b->from || goes_before(p, a->to, b->from) ||
                            b->to == a->from || goes_before(p, b->to, a->from);
            if (!in_order && a->time > 0 && b->time > 0) add_link_pair(p, e, f);
        }
}

/* Longest ways before each job, and who comes before whom. */
static void relate(struct program *p, double *head)
{
    const struct fr__jobs *j = p->j;
    double fastest = 0;
    for (int d = 0; d < j->n_devices; d++) fastest = fmax(fastest, j->speed[d]);
    for (int i = 0; i < j->n; i++)
        for (int k = j->first_in[i]; k < j->first_in[i + 1]; k++) {
            int from = j->arcs[k].from;
            head[i] = fmax(head[i], head[from] + j->time[from] / fastest);
            for (int b = 0; b < i; b++)
                if (b == from || goes_before(p, b, from))
                    fr__set_bit(p->is_before + (size_t)b * (size_t)p->words, i);
        }
}

/* Devices and starts of a solution, run again. */
static bool take(const struct program *p, const double *solution, struct fr__placing *now,
                 struct fr__placing *best, double *key)
{
    const struct fr__jobs *j = p->j;
    for (int i = 0; i < j->n; i++) {
        key[i] = solution[p->s + i] + 1e-9 * i; /* jobs of no length keep their order */
        for (int d = 0; d < j->n_devices; d++)
            if (solution[x_of(p, i, d)] > 0.5) now->device[i] = d;
    }
    for (int e = 0; e < j->n_arcs; e++) key[j->n + e] = solution[p->q + e];
    for (int by_time = 0; by_time < 2; by_time++) {
        if (!fr__place_run(j, key, by_time, now)) return false;
        if (now->makespan < best->makespan && fr__place_fits(j, now->device))
            fr__placing_copy(j, now, best);
    }
    return true;
}

static bool solve(struct program *p, double seconds, const double *head, const double *tail,
                  struct fr__placing *now, struct fr__placing *best, double *key, double *bound)
{
    char text[32];
    snprintf(text, sizeof text, "%.3f", seconds);
    p->cbc.setParameter(p->model, "log", "0");
    p->cbc.setParameter(p->model, "seconds", text);
    p->cbc.setParameter(p->model, "timeMode", "elapsed");
    p->cbc.setLogLevel(p->model, 0);
    add_columns(p, head, tail, *bound);
    add_jobs(p, tail);
    add_arcs(p);
    if (!add_devices(p)) return false;
    add_orders(p);
    p->cbc.setObjSense(p->model, 1);
    p->cbc.solve(p->model);
    const double *solution = p->cbc.bestSolution(p->model);
    if (solution && !take(p, solution, now, best, key)) return false;
    /* No solution within C <= 1, proved: the start solution stands. Tolerances of the solver are
     * granted to the bound, and a schedule that has been run is what is told. */
    if (p->cbc.isProvenOptimal(p->model) && solution)
        *bound = fmax(*bound, fmin(best->makespan, p->cbc.getObjValue(p->model) * p->unit));
    else if (p->cbc.isProvenInfeasible(p->model))
        *bound = best->makespan;
    else
        *bound =
            fmax(*bound, fmin(best->makespan, p->cbc.getBestPossibleObjValue(p->model) * p->unit));
    return true;
}

fr_status fr__place_program(fr_ctx *ctx, const struct fr__jobs *j, double seconds,
                            struct fr__placing *best, double *bound)
{
    fr_arena scratch = {0};
    struct fr__placing now;
    struct program p = {.j = j, .unit = best->makespan, .words = (j->n + 63) / 64};
    FR_TRY(fr__cbc_open(ctx, NULL, &p.cbc));
    double *head = FR_ARENA_ARRAY(&scratch, double, j->n + 1);
    double *tail = FR_ARENA_ARRAY(&scratch, double, j->n + 1);
    double *key = FR_ARENA_ARRAY(&scratch, double, j->n + j->n_arcs + 1);
    p.is_before = FR_ARENA_ARRAY(&scratch, uint64_t, (size_t)j->n * (size_t)p.words + 1);
    fr_status status = fr__placing_make(ctx, &scratch, j, &now);
    p.model = p.cbc.newModel();
    bool is_whole = status == FR_OK && head && tail && key && p.is_before && p.model;
    if (is_whole) {
        relate(&p, head);
        fr__place_tails(j, tail);
        is_whole = solve(&p, seconds, head, tail, &now, best, key, bound);
    }
    if (p.model) p.cbc.deleteModel(p.model);
    fr__cbc_close(&p.cbc);
    fr__arena_fini(&scratch);
    return is_whole ? FR_OK : fr__no_memory(ctx, (size_t)j->n * sizeof(double), "a placing");
}

#else

fr_status fr__place_program(fr_ctx *ctx, const struct fr__jobs *j, double seconds,
                            struct fr__placing *best, double *bound)
{
    (void)j, (void)seconds, (void)best, (void)bound;
    return fr_fail(ctx, FR_UNSUPPORTED,
                   "dlplacer: this build has no solver for integer programs; install "
                   "coinor-libcbc-dev and build again");
}

#endif
