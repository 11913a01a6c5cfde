/* grid.c -- a schedule as a grid of text: one row per worker, one column per unit of time.
 *
 *           0    5    10
 *     w0  F0 F1 .  .  B0--- B1---|
 *     w1  .  F0 B0--- F1 B1---|
 *
 * If stages have replicas, a row names its stage and replica: "w2 s0r2" is the third of stage 0.
 *
 * A cell is as wide as the widest label plus a gap. If the grid is wider than the window, labels
 * are shortened, then gaps are removed, then the grid continues below in bands. If it is still too
 * large, its end is cut off, with a note. */
#include "base/text.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_CELLS = 100000, /* per row: limits grids of clocks with extreme times */
    MOST_ROWS = 96,      /* of all bands */
    FIVES = 5,           /* columns between two times on the axis, at least */
};

typedef struct grid {
    const fr_schedule *s;
    const fr_clock *c;
    fr__text out;
    bool in_colour;
    bool has_gap;   /* a gap after each cell shows updates; else the end of a block does */
    bool has_mark;  /* an update was marked */
    bool has_stage; /* labels begin with the stage; else the second stage has small letters */
    double unit;    /* time of a column: the shortest computation */
    int n_units;    /* columns of the whole */
    int n_shown;    /* of them */
    int first, end; /* columns of the band being drawn */
    int band;       /* columns of a band */
    int cell;       /* characters of a column */
    int left;       /* characters before the first */
    const char *on; /* colour that is set, or NULL */
} grid;

static bool is_computation(int action) { return action <= FR_DO_W; }

/* --- labels -------------------------------------------------------------------------------- */

/* "F3". If a worker has several stages: "4F3", or "f3" for the second of two. With several
 * mini-batches, a letter names the mini-batch: "Fb", "Fb1". */
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
                  .micro = g->s->n_micro - 1}; /* other mini-batches: same width */
    char text[48];
    return label(g, &x, text);
}

/* "w2", or with replicas "w2 s0r2": stage and replica; "+" stands for further stages. */
static int row_name(const grid *g, int w, char text[64])
{
    const fr_schedule *s = g->s;
    int n_own, n = snprintf(text, 64, "w%d", w);
    const int *own = fr__stages_of(s, w, &n_own);
    if (!fr__has_replicas(s) || n_own == 0) return n;
    n += snprintf(text + n, 64 - (size_t)n, " s%d%s", own[0], n_own > 1 ? "+" : "");
    if (s->replicas[own[0]] > 1)
        n += snprintf(text + n, 64 - (size_t)n, "r%d", w - s->worker_of[own[0]]);
    return n;
}

/* Colours for light and dark terminals: black on one of two pale tints, alternating. */
static const char *colour_of(const grid *g, const fr_instr *x)
{
    static const char *const tints[][2] = {
        [FR_DO_F] = {"\033[30;48;5;117m", "\033[30;48;5;75m"},
        [FR_DO_B] = {"\033[30;48;5;114m", "\033[30;48;5;71m"},
        [FR_DO_I] = {"\033[30;48;5;80m", "\033[30;48;5;37m"},
        [FR_DO_W] = {"\033[30;48;5;222m", "\033[30;48;5;179m"},
    };
    int n_own, turn = 0;
    const int *own = fr__stages_of(g->s, g->s->worker_of[x->stage], &n_own);
    while (turn < n_own && own[turn] != x->stage) turn++;
    if (g->s->n_batches > 1) turn = x->micro / g->s->n_micro;
    return tints[x->action][turn % 2];
}

static void set_colour(grid *g, const char *colour)
{
    if (!g->in_colour || colour == g->on) return;
    if (g->on) fr__text_printf(&g->out, "\033[0m");
    if (colour) fr__text_printf(&g->out, "%s", colour);
    g->on = colour;
}

static void repeat(grid *g, char c, int n)
{
    for (int i = 0; i < n; i++) fr__text_put_bytes(&g->out, &c, 1);
}

static void end_line(grid *g)
{
    while (g->out.n && g->out.at[g->out.n - 1] == ' ') g->out.n--;
    fr__text_printf(&g->out, "\n");
}

/* --- rows ---------------------------------------------------------------------------------- */

static void draw_idle(grid *g, int from, int to)
{
    if (from < g->first) from = g->first;
    if (to > g->end) to = g->end;
    if (from >= to) return;
    set_colour(g, "\033[2m");
    for (int i = from; i < to; i++) {
        fr__text_printf(&g->out, ".");
        repeat(g, ' ', g->cell - 1);
    }
    set_colour(g, NULL);
}

/* The row's blocks, in columns; the band shows a part of them. */
typedef struct block {
    const fr_instr *instr;
    int from, to;
    bool is_update; /* an update follows */
} block;

static void draw_block(grid *g, const block *b)
{
    char text[48] = "";
    int from = b->from > g->first ? b->from : g->first, to = b->to < g->end ? b->to : g->end;
    int width = (to - from) * g->cell - g->has_gap, n = 0;
    bool is_end = to == b->to, has_room;
    if (from == b->from) n = label(g, b->instr, text);
    has_room = width > n;
    bool marks_inside = b->is_update && is_end && !g->has_gap && has_room;
    set_colour(g, colour_of(g, b->instr));
    fr__text_printf(&g->out, "%.*s", width, text);
    if (has_room)
        repeat(g, b->to - b->from > 1 && !g->in_colour ? '-' : ' ', width - n - marks_inside);
    if (marks_inside) fr__text_printf(&g->out, "|");
    set_colour(g, NULL);
    if (g->has_gap) fr__text_printf(&g->out, b->is_update && is_end ? "|" : " ");
    g->has_mark |= marks_inside || (g->has_gap && b->is_update && is_end);
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
    int at = 0; /* columns done, drawn or not */
    char name[64];
    (void)row_name(g, w, name);
    fr__text_printf(&g->out, "%-*s", g->left, name);
    for (int i = 0; i < l->n && at < g->end; i++) {
        if (!is_computation(l->at[i].action)) continue;
        int from = unit_of(g, g->c->start[w][i]), to = unit_of(g, g->c->end[w][i]);
        if (from < at) from = at; /* times that are not multiples of the unit */
        draw_idle(g, at, from);
        if (to > from && to > g->first && from < g->end)
            draw_block(g, &(block){&l->at[i], from, to, is_update_after(l, i)});
        at = to > from ? to : from;
    }
    draw_idle(g, at, g->end);
    end_line(g);
}

/* Times above the columns, as dense as they fit. */
static void draw_axis(grid *g)
{
    char text[32];
    int digits = snprintf(text, sizeof text, "%.10g ", g->n_shown * g->unit), every = FIVES;
    int n = g->left;
    if (g->unit != floor(g->unit)) digits += 3; /* others may have decimals */
    for (int times = 2; every * g->cell < digits; times = 7 - times) every *= times;
    repeat(g, ' ', g->left);
    for (int u = (g->first + every - 1) / every * every; u < g->end; u += every) {
        repeat(g, ' ', g->left + (u - g->first) * g->cell - n);
        snprintf(text, sizeof text, "%.10g", u * g->unit);
        fr__text_printf(&g->out, "%s", text);
        n = g->left + (u - g->first) * g->cell + (int)strlen(text);
    }
    end_line(g);
}

static void draw_bands(grid *g)
{
    for (g->first = 0; g->first < g->n_shown; g->first = g->end) {
        g->end = g->first + g->band < g->n_shown ? g->first + g->band : g->n_shown;
        if (g->first > 0) fr__text_printf(&g->out, "\n");
        draw_axis(g);
        for (int w = 0; w < g->s->n_workers; w++) draw_worker(g, w);
    }
}

static int most_stages_of_a_worker(const fr_schedule *s)
{
    int most = 1;
    for (int w = 0; w < s->n_workers; w++) {
        int n;
        fr__stages_of(s, w, &n);
        if (n > most) most = n;
    }
    return most;
}

/* --- below --------------------------------------------------------------------------------- */

static void print_ints(grid *g, const char *name, int n, const int *values)
{
    enum { MOST = 16 };
    bool is_same = n > 1;
    for (int i = 1; i < n; i++) is_same &= values[i] == values[0];
    fr__text_printf(&g->out, "; %s", name);
    for (int i = 0; i < (is_same ? 1 : n) && i < MOST; i++)
        fr__text_printf(&g->out, " %d", values[i]);
    fr__text_printf(&g->out, "%s", is_same ? " each" : n > MOST ? " ..." : "");
}

static void print_foot(grid *g)
{
    const fr_schedule *s = g->s;
    double busy = 0;
    for (int w = 0; w < s->n_workers; w++) busy += g->c->busy[w];
    double all = g->c->makespan * s->n_workers;
    if (g->n_shown < g->n_units)
        fr__text_printf(&g->out,
                        "(%d of %.0f columns; --columns 0 or --format text show the rest)\n",
                        g->n_shown, ceil(g->c->makespan / g->unit - 1e-6));
    fr__text_printf(&g->out, "makespan %g", g->c->makespan);
    if (g->c->period > 0) fr__text_printf(&g->out, "; period %g", g->c->period);
    fr__text_printf(&g->out, "; bubble %.1f %%", all > 0 ? 100 * (1 - busy / all) : 0);
    print_ints(g, "live", s->n_workers, g->c->peak_live);
    if (s->n_slots) print_ints(g, "slots", s->n_stages, s->n_slots);
    fr__text_printf(
        &g->out, "%s%s\n", g->has_mark ? "; | is an update" : "",
        !g->has_stage && most_stages_of_a_worker(s) > 1 ? "; small letters: second stage" : "");
}

static void print_head(grid *g)
{
    const fr_schedule *s = g->s;
    fr__text_printf(&g->out, "%s: %d stage%s on %d worker%s, %d micro-batch%s", s->name,
                    s->n_stages, s->n_stages == 1 ? "" : "s", s->n_workers,
                    s->n_workers == 1 ? "" : "s", s->n_micro, s->n_micro == 1 ? "" : "es");
    if (s->n_batches > 1)
        fr__text_printf(&g->out, " per mini-batch, %d mini-batches (a, b%s)", s->n_batches,
                        s->n_batches > 2 ? ", ..." : "");
    fr__text_printf(&g->out, "\n");
}

/* Four cell formats, from wide to narrow. Returns the number of columns that fit into a line. */
static int choose_cell(grid *g, int columns, int narrow)
{
    int most_own = most_stages_of_a_worker(g->s);
    g->has_stage = most_own > 2 || (most_own == 2 && (narrow & 1) == 0);
    g->has_gap = narrow < 2;
    g->cell = widest_label(g) + g->has_gap;
    int fit = columns == 0 ? g->n_units : (columns - g->left) / g->cell;
    return fit < 1 ? 1 : fit;
}

/* Use the widest cells with which the grid fits into one band; else several bands of cells with a
 * gap, up to a limit; else cut the grid off. */
static void choose_bands(grid *g, int columns)
{
    int most_bands = g->s->n_workers < MOST_ROWS ? MOST_ROWS / g->s->n_workers : 1;
    g->n_shown = g->n_units;
    for (int narrow = 0; narrow < 4; narrow++)
        if ((g->band = choose_cell(g, columns, narrow)) >= g->n_units) return;
    g->band = choose_cell(g, columns, 1);
    if (g->band > FIVES) g->band -= g->band % FIVES;
    if ((g->n_units + g->band - 1) / g->band <= most_bands) return;
    g->band = choose_cell(g, columns, 3);
    if (most_bands > 1 && g->band > FIVES) g->band -= g->band % FIVES;
    if (g->n_units / g->band >= most_bands) g->n_shown = most_bands * g->band;
}

/* Choose the unit of time and the cell format for the window. */
static void measure(grid *g, int columns)
{
    const fr_schedule *s = g->s;
    char name[64];
    g->unit = 0;
    for (int w = 0; w < s->n_workers; w++) {
        int n = row_name(g, w, name) + 2;
        if (n > g->left) g->left = n;
        for (int i = 0; i < s->lists[w].n; i++) {
            double length = g->c->end[w][i] - g->c->start[w][i];
            if (is_computation(s->lists[w].at[i].action) && length > 0 &&
                (g->unit == 0 || length < g->unit))
                g->unit = length;
        }
    }
    if (g->unit == 0) g->unit = 1;
    double units = ceil(g->c->makespan / g->unit - 1e-6);
    g->n_units = (int)fmin(units, (double)MOST_CELLS);
    choose_bands(g, columns);
}

char *fr_schedule_to_grid(const fr_schedule *s, const fr_clock *c, int columns, bool in_colour)
{
    grid g = {.s = s, .c = c, .in_colour = in_colour};
    measure(&g, columns);
    print_head(&g);
    draw_bands(&g);
    print_foot(&g);
    return fr__text_take(&g.out);
}
