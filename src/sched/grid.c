/* grid.c -- a schedule for people: one row a worker, one column a time unit.
 *
 *           0    5    10
 *     w0  F0 F1 .  .  B0--- B1---|
 *     w1  .  F0 B0--- F1 B1---|
 *
 * A cell is as wide as the widest label and a gap. Where that is wider than the window, labels get
 * shorter, then the gap goes, and then the end of the grid, with a note. */
#include "sched/print.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>

enum { MOST_CELLS = 100000 }; /* of a row: a clock with wild times is cut, not drawn */

typedef struct grid {
    const fr_schedule *s;
    const fr_clock *c;
    fr_print out;
    bool in_colour;
    bool has_gap;   /* one blank between cells, where updates are marked */
    bool has_stage; /* labels begin with the stage; else a second one has small letters */
    double unit;    /* time of a column: the shortest computation */
    int n_units;    /* columns of the whole */
    int n_shown;    /* of them */
    int cell;       /* characters of a column */
    int left;       /* characters before the first */
    const char *on; /* colour that is set, or NULL */
} grid;

static bool is_computation(int action) { return action <= FR_DO_W; }

/* --- what a cell says ---------------------------------------------------------------------- */

/* "F3"; where a worker has several stages "4F3", or "f3" for the second of two; letters for
 * mini-batches where there are several: "Fb", "Fb1". */
static int label(const grid *g, const fr_instr *x, char text[48])
{
    const fr_schedule *s = g->s;
    int n = 0, m = x->micro, n_own;
    const int *own = fr__stages_of(s, s->worker_of[x->stage], &n_own);
    if (g->has_stage) n = snprintf(text, 48, "%d", x->stage);
    text[n++] = fr__action_name(x->action)[0];
    if (!g->has_stage && x->stage != own[0]) text[n - 1] = (char)(text[n - 1] + 'a' - 'A');
    if (s->n_batches > 1) {
        text[n++] = (char)('a' + m / s->n_micro % 26);
        m %= s->n_micro;
    }
    text[n] = '\0';
    if (s->n_batches == 1 || s->n_micro > 1) n += snprintf(text + n, 48 - (size_t)n, "%d", m);
    return n;
}

static int widest_label(const grid *g)
{
    fr_instr x = {.action = FR_DO_F,
                  .stage = g->s->n_stages - 1,
                  .micro = g->s->n_micro - 1}; /* of the first mini-batch: only digits differ */
    char text[48];
    return label(g, &x, text);
}

/* Background for light and dark terminals alike: black on a pale tint, two of them in turn. */
static const char *colour_of(const grid *g, const fr_instr *x)
{
    static const char *const tints[][2] = {
        [FR_DO_F] = {"\033[30;48;5;117m", "\033[30;48;5;75m"},
        [FR_DO_B] = {"\033[30;48;5;114m", "\033[30;48;5;71m"},
        [FR_DO_I] = {"\033[30;48;5;80m", "\033[30;48;5;37m"},
        [FR_DO_W] = {"\033[30;48;5;222m", "\033[30;48;5;179m"},
    };
    int turn = g->s->n_batches > 1 ? x->micro / g->s->n_micro : x->stage / g->s->n_workers;
    return tints[x->action][turn % 2];
}

static void set_colour(grid *g, const char *colour)
{
    if (!g->in_colour || colour == g->on) return;
    if (g->on) fr__print(&g->out, "\033[0m");
    if (colour) fr__print(&g->out, "%s", colour);
    g->on = colour;
}

static void repeat(grid *g, char c, int n)
{
    for (int i = 0; i < n; i++) fr__print_bytes(&g->out, &c, 1);
}

/* --- rows ---------------------------------------------------------------------------------- */

static void draw_idle(grid *g, int from, int to)
{
    if (from >= to) return;
    set_colour(g, "\033[2m");
    for (int i = from; i < to; i++) {
        fr__print(&g->out, ".");
        repeat(g, ' ', g->cell - 1);
    }
    set_colour(g, NULL);
}

static void draw_block(grid *g, const fr_instr *x, int from, int to, bool is_update)
{
    char text[48];
    int width = (to - from) * g->cell - g->has_gap, n = label(g, x, text);
    set_colour(g, colour_of(g, x));
    fr__print(&g->out, "%.*s", width, text);
    if (width > n) repeat(g, to - from > 1 && !g->in_colour ? '-' : ' ', width - n);
    set_colour(g, NULL);
    if (g->has_gap) fr__print(&g->out, is_update ? "|" : " ");
}

static int unit_of(const grid *g, double time)
{
    double u = floor(time / g->unit + 0.5);
    return u < g->n_shown ? (int)u : g->n_shown;
}

static bool is_update_after(const fr_instr_list *l, int i)
{
    for (i++; i < l->n && !is_computation(l->at[i].action); i++)
        if (l->at[i].action == FR_DO_STEP) return true;
    return false;
}

static void draw_worker(grid *g, int w)
{
    const fr_instr_list *l = &g->s->lists[w];
    int at = 0; /* columns drawn */
    fr__print(&g->out, "w%-*d", g->left - 1, w);
    for (int i = 0; i < l->n && at < g->n_shown; i++) {
        if (!is_computation(l->at[i].action)) continue;
        int from = unit_of(g, g->c->start[w][i]), to = unit_of(g, g->c->end[w][i]);
        if (from < at) from = at; /* times that are no multiples of the unit */
        draw_idle(g, at, from);
        if (to > from) draw_block(g, &l->at[i], from, to, is_update_after(l, i));
        at = to > from ? to : from;
    }
    draw_idle(g, at, g->n_shown);
    while (g->out.text.n && g->out.text.at[g->out.text.n - 1] == ' ') g->out.text.n--;
    fr__print(&g->out, "\n");
}

/* Times above the columns, as near as they fit. */
static void draw_axis(grid *g)
{
    char text[32];
    int digits = snprintf(text, sizeof text, "%d ", g->n_shown), every = 5;
    for (int times = 2; every * g->cell < digits; times = 7 - times) every *= times;
    repeat(g, ' ', g->left);
    for (int u = 0; u < g->n_shown; u += every) {
        int n = snprintf(text, sizeof text, "%.0f", u * g->unit);
        fr__print(&g->out, "%s", text);
        if (u + every < g->n_shown) repeat(g, ' ', every * g->cell - n);
    }
    fr__print(&g->out, "\n");
}

/* --- below --------------------------------------------------------------------------------- */

static void print_ints(grid *g, const char *name, int n, const int *values)
{
    enum { MOST = 16 };
    bool is_same = n > 1;
    for (int i = 1; i < n; i++) is_same &= values[i] == values[0];
    fr__print(&g->out, "; %s", name);
    for (int i = 0; i < (is_same ? 1 : n) && i < MOST; i++) fr__print(&g->out, " %d", values[i]);
    fr__print(&g->out, "%s", is_same ? " each" : n > MOST ? " ..." : "");
}

static void print_foot(grid *g)
{
    const fr_schedule *s = g->s;
    double busy = 0;
    for (int w = 0; w < s->n_workers; w++) busy += g->c->busy[w];
    double all = g->c->makespan * s->n_workers;
    if (g->n_shown < g->n_units)
        fr__print(&g->out, "(%d of %d columns; the rest needs a wider window, or --format text)\n",
                  g->n_shown, g->n_units);
    fr__print(&g->out, "makespan %g; bubble %.1f %%", g->c->makespan,
              all > 0 ? 100 * (1 - busy / all) : 0);
    print_ints(g, "live", s->n_workers, g->c->peak_live);
    if (s->n_slots) print_ints(g, "slots", s->n_stages, s->n_slots);
    fr__print(&g->out, "%s%s\n", g->has_gap && !s->is_forward_only ? "; | is an update" : "",
              !g->has_stage && s->n_stages > s->n_workers ? "; small letters: second stage" : "");
}

static void print_head(grid *g)
{
    const fr_schedule *s = g->s;
    fr__print(&g->out, "%s: %d stage%s on %d worker%s, %d micro-batch%s", s->name, s->n_stages,
              s->n_stages == 1 ? "" : "s", s->n_workers, s->n_workers == 1 ? "" : "s", s->n_micro,
              s->n_micro == 1 ? "" : "es");
    if (s->n_batches > 1)
        fr__print(&g->out, " a mini-batch, %d mini-batches (a, b%s)", s->n_batches,
                  s->n_batches > 2 ? ", ..." : "");
    fr__print(&g->out, "\n");
}

/* The widest of the ways to write labels that fits, or the narrowest. */
static void choose_labels(grid *g, int columns)
{
    const fr_schedule *s = g->s;
    int most_own = 1;
    for (int w = 0; w < s->n_workers; w++) {
        int n;
        fr__stages_of(s, w, &n);
        if (n > most_own) most_own = n;
    }
    for (int narrow = 0; narrow < 4; narrow++) {
        g->has_stage = most_own > 2 || (most_own == 2 && (narrow & 1) == 0);
        g->has_gap = narrow < 2;
        g->cell = widest_label(g) + g->has_gap;
        if (columns == 0 || g->left + g->n_units * g->cell <= columns) return;
    }
}

/* The unit of time, and what fits into the window. */
static void measure(grid *g, int columns)
{
    const fr_schedule *s = g->s;
    char text[16];
    g->unit = 0;
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++) {
            double length = g->c->end[w][i] - g->c->start[w][i];
            if (is_computation(s->lists[w].at[i].action) && length > 0 &&
                (g->unit == 0 || length < g->unit))
                g->unit = length;
        }
    if (g->unit == 0) g->unit = 1;
    double units = ceil(g->c->makespan / g->unit - 1e-6);
    g->n_units = units < MOST_CELLS ? (int)units : MOST_CELLS;
    g->left = snprintf(text, sizeof text, "w%d  ", s->n_workers - 1);
    choose_labels(g, columns);
    int fit = columns == 0 ? g->n_units : (columns - g->left) / g->cell;
    g->n_shown = fit < 1 ? 1 : fit < g->n_units ? fit : g->n_units;
}

char *fr_schedule_to_grid(const fr_schedule *s, const fr_clock *c, int columns, bool in_colour)
{
    grid g = {.s = s, .c = c, .in_colour = in_colour};
    measure(&g, columns);
    print_head(&g);
    draw_axis(&g);
    for (int w = 0; w < s->n_workers; w++) draw_worker(&g, w);
    print_foot(&g);
    return fr__print_end(&g.out);
}
