/* chart.c -- a profile as bars: one row per node, with forward, backward and update side by side,
 * on one scale for all rows. */
#include "chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PARTS = 3, LEAST_BAR = 10, MOST_BAR = 60, MOST_NAME = 28 };

static const struct {
    const char *name;
    char mark;
    const char *colour;
} parts[N_PARTS] = {
    {"forward", '=', "\033[36m"}, {"backward", '#', "\033[34m"}, {"update", '+', "\033[33m"}};

typedef struct row {
    char name[64];
    double part[N_PARTS]; /* seconds per mini-batch */
    double kept, params;  /* bytes */
    int place;            /* in the model */
} row;

typedef struct chart {
    row *rows;
    int n, n_hidden;
    row rest;
    double sum; /* of all */
    int name_width, bar_width;
    bool is_coloured;
} chart;

static double total(const row *r) { return r->part[0] + r->part[1] + r->part[2]; }

static void add(row *to, const row *r)
{
    for (int i = 0; i < N_PARTS; i++) to->part[i] += r->part[i];
    to->kept += r->kept;
    to->params += r->params;
}

static int heavier(const void *a, const void *b)
{
    double x = total(a), y = total(b);
    return x == y ? ((const row *)a)->place - ((const row *)b)->place : x < y ? 1 : -1;
}

static int earlier(const void *a, const void *b)
{
    return ((const row *)a)->place - ((const row *)b)->place;
}

/* Nodes that take no time and keep nothing always belong to the rest. */
static void fill(chart *c, const fr_profile *p, int n_rows)
{
    double n_micro = p->n_micro > 0 ? p->n_micro : 1;
    for (int i = 0; i < p->n_nodes; i++) {
        const fr_profile_node *n = &p->nodes[i];
        if (n->is_input) continue;
        double update = n->update_s + n->fetch_forward_s + n->fetch_backward_s;
        row r = {.part = {n_micro * n->forward_s, n_micro * n->backward_s, update},
                 .kept = (double)n->kept_bytes,
                 .params = (double)n->param_bytes,
                 .place = i};
        bool is_number =
            strncmp(n->name, "node", 4) == 0; /* PipeDream's text: not useful to a reader */
        char name[sizeof r.name];
        snprintf(name, sizeof name, "%s%s%s", n->name, is_number ? " " : "",
                 is_number ? n->about : "");
        fr_escape(name, r.name, sizeof r.name);
        c->sum += total(&r);
        c->rows[c->n++] = r;
    }
    qsort(c->rows, (size_t)c->n, sizeof *c->rows, heavier);
    int n = c->n;
    if (n_rows > 0 && n > n_rows) n = n_rows;
    while (n > 1 && n_rows > 0 && total(&c->rows[n - 1]) <= 0) n--;
    if (n == c->n - 1) n = c->n; /* replacing one row by a rest saves nothing */
    for (int i = n; i < c->n; i++) add(&c->rest, &c->rows[i]);
    c->n_hidden = c->n - n;
    c->n = n;
    qsort(c->rows, (size_t)c->n, sizeof *c->rows, earlier);
}

static void put_bar(const chart *c, const row *r, double scale)
{
    int drawn = 0;
    double until = 0;
    for (int i = 0; i < N_PARTS; i++) {
        until += r->part[i];
        int end = (int)lround(until * scale);
        if (end > c->bar_width) end = c->bar_width;
        if (c->is_coloured && end > drawn) fputs(parts[i].colour, stdout);
        for (int k = drawn; k < end; k++) putchar(parts[i].mark);
        if (c->is_coloured && end > drawn) fputs("\033[0m", stdout);
        if (end > drawn) drawn = end;
    }
    printf("%*s", c->bar_width - drawn, "");
}

static void put_row(const chart *c, const row *r, double scale)
{
    printf("%-*.*s ", c->name_width, c->name_width, r->name);
    put_bar(c, r, scale);
    printf(" %9.3f %6.1f %9.2f %9.2f\n", 1e3 * total(r), c->sum > 0 ? 100 * total(r) / c->sum : 0,
           r->kept / 1e6, r->params / 1e6);
}

static void put_head(const chart *c)
{
    for (int i = 0; i < N_PARTS; i++)
        printf("%s%s%c %s%s", i ? "  " : "", c->is_coloured ? parts[i].colour : "", parts[i].mark,
               parts[i].name, c->is_coloured ? "\033[0m" : "");
    printf("\n%-*s %*s %9s %6s %9s %9s\n", c->name_width, "node", c->bar_width, "", "ms", "%",
           "kept MB", "params MB");
}

void chart_print(const fr_profile *p, int n_rows, int columns, bool is_coloured)
{
    chart c = {.is_coloured = is_coloured};
    c.rows = calloc((size_t)p->n_nodes + 1, sizeof *c.rows);
    if (!c.rows) return;
    fill(&c, p, n_rows);
    snprintf(c.rest.name, sizeof c.rest.name, "(%d others)", c.n_hidden);
    double heaviest = 0;
    c.name_width = (int)strlen(c.rest.name);
    for (int i = 0; i < c.n; i++) {
        int n = (int)strlen(c.rows[i].name);
        if (n > c.name_width) c.name_width = n < MOST_NAME ? n : MOST_NAME;
        heaviest = fmax(heaviest, total(&c.rows[i]));
    }
    if (c.n_hidden) heaviest = fmax(heaviest, total(&c.rest));
    c.bar_width = columns - c.name_width - 38;
    if (c.bar_width > MOST_BAR) c.bar_width = MOST_BAR;
    if (c.bar_width < LEAST_BAR) c.bar_width = LEAST_BAR;
    double scale = heaviest > 0 ? c.bar_width / heaviest : 0;
    put_head(&c);
    for (int i = 0; i < c.n; i++) put_row(&c, &c.rows[i], scale);
    if (c.n_hidden) put_row(&c, &c.rest, scale);
    free(c.rows);
}
