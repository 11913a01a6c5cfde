/* table.c -- a comparison as text: plain table, Markdown, CSV.
 *
 * One row per case, and one more below for published numbers. Every row names the kind of its
 * numbers (measured, emulated, simulated, published). A cell is the mean over the finished seeds,
 * followed by their standard deviation. */
#include "compare/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELL = 96, FIRST = 3, MOST = FIRST + FR_MAX_COLUMNS + 1 }; /* group, case, kind ... status */

struct row {
    char cell[MOST][CELL];
};

struct table {
    bool has_groups, has_status;
    int n_columns; /* cells of a row */
    int n_rows;    /* the first is the head */
    struct row *rows;
    int n_sources;
    const char *sources[FR_MAX_CASES];
};

/* --- cells ------------------------------------------------------------------------------------ */

static void put_stat(char cell[CELL], const fr_compare_column *column, const fr__stat *s)
{
    char mean[40], sd[40];
    cell[0] = '\0';
    if (!s->n) return;
    fr__column_format(column, s->mean, s->mean, mean, sizeof mean);
    fr__column_format(column, s->sd, s->mean, sd, sizeof sd);
    if (s->n > 1)
        snprintf(cell, CELL, "%s +- %s", mean, sd);
    else
        snprintf(cell, CELL, "%s", mean);
}

static int number_of_source(struct table *t, const char *source)
{
    for (int i = 0; i < t->n_sources; i++)
        if (strcmp(t->sources[i], source) == 0) return i + 1;
    t->sources[t->n_sources++] = source;
    return t->n_sources;
}

static struct row *new_row(struct table *t, const struct fr__case *k)
{
    struct row *r = &t->rows[t->n_rows++];
    snprintf(r->cell[0], CELL, "%s", k->group);
    snprintf(r->cell[1], CELL, "%s", k->name);
    return r;
}

static void put_status(char cell[CELL], const struct fr__case *k)
{
    int n_done = 0;
    const char *status = fr__case_status(k);
    for (int s = 0; s < k->n_runs; s++) n_done += k->runs[s].state == FR_RUN_DONE;
    if (n_done > 0 && n_done < k->n_runs)
        snprintf(cell, CELL, "%s, %d of %d done", status, n_done, k->n_runs);
    else
        snprintf(cell, CELL, "%s", status);
}

static void add_rows(struct table *t, const fr_compare *c, const struct fr__case *k)
{
    int n = FIRST;
    if (k->kind != FR_KIND_PUBLISHED) {
        struct row *r = new_row(t, k);
        snprintf(r->cell[2], CELL, "%s", fr_compare_kind_name(k->kind));
        for (int i = 0; i < c->n_columns; i++) {
            fr__stat s = fr__case_stat(c, k, c->columns[i]);
            put_stat(r->cell[n++], fr_compare_column_at(c->columns[i]), &s);
        }
        put_status(r->cell[n], k);
        if (strcmp(r->cell[n], "done") != 0) t->has_status = true;
    }
    if (!k->has_published) return;
    struct row *r = new_row(t, k);
    snprintf(r->cell[2], CELL, "published [%d]", number_of_source(t, k->source));
    for (int i = 0; i < c->n_columns; i++) {
        double v = k->published[c->columns[i]];
        if (!isnan(v))
            fr__column_format(fr_compare_column_at(c->columns[i]), v, v, r->cell[FIRST + i], CELL);
    }
}

static fr_status fill(fr_compare *c, struct table *t)
{
    memset(t, 0, sizeof *t);
    t->rows = FR_ARENA_ARRAY(&c->text, struct row, 2 * c->n_cases + 1);
    if (!t->rows) return fr__compare_no_memory(c);
    t->n_rows = 1;
    t->n_columns = FIRST + c->n_columns + 1;
    struct row *head = &t->rows[0];
    snprintf(head->cell[0], CELL, "group");
    snprintf(head->cell[1], CELL, "case");
    snprintf(head->cell[2], CELL, "kind");
    for (int i = 0; i < c->n_columns; i++) {
        const fr_compare_column *column = fr_compare_column_at(c->columns[i]);
        snprintf(head->cell[FIRST + i], CELL, "%s%s%s", column->label, column->unit[0] ? ", " : "",
                 column->unit);
    }
    snprintf(head->cell[FIRST + c->n_columns], CELL, "status");
    for (int i = 0; i < c->n_cases; i++) {
        t->has_groups |= c->cases[i].group[0] != '\0';
        add_rows(t, c, &c->cases[i]);
    }
    return FR_OK;
}

static bool is_shown(const struct table *t, int column)
{
    if (column == 0) return t->has_groups;
    return column < t->n_columns - 1 || t->has_status;
}

/* --- formats ---------------------------------------------------------------------------------- */

static bool is_left(const struct table *t, int column)
{
    return column < FIRST || column == t->n_columns - 1;
}

static void put_sources(fr__text *o, const struct table *t)
{
    for (int i = 0; i < t->n_sources; i++) fr__text_printf(o, "[%d] %s\n", i + 1, t->sources[i]);
}

static const char *clock_words(const fr_compare *c)
{
    bool has[FR_KIND_PUBLISHED + 1] = {false};
    for (int i = 0; i < c->n_cases; i++) has[c->cases[i].kind] = true;
    if (has[FR_KIND_EMULATED] && has[FR_KIND_SIMULATED])
        return "Emulated: trained here at the pace of a cluster; simulated: on a virtual clock, "
               "nothing trained. Their times are the cluster's.\n";
    if (has[FR_KIND_EMULATED])
        return "Emulated: trained here at the pace of a cluster; times are the cluster's.\n";
    if (has[FR_KIND_SIMULATED])
        return "Simulated: on the virtual clock of a cluster, nothing trained.\n";
    return "";
}

/* "Speed-up: over dp.", or if groups differ "Speed-up: one over single, two over dp." */
static void put_baselines(fr__text *o, const fr_compare *c)
{
    int speedup = fr__column_find("speedup"), n = 0;
    bool has_column = false, is_one = true;
    for (int i = 0; i < c->n_columns; i++) has_column |= c->columns[i] == speedup;
    for (int i = 0; i < c->n_cases; i++)
        is_one &= strcmp(c->cases[i].baseline, c->cases[0].baseline) == 0;
    for (int i = 0; has_column && i < c->n_cases; i++) {
        const struct fr__case *k = &c->cases[i];
        bool is_new = i == 0 || strcmp(k->group, c->cases[i - 1].group) != 0;
        if (!is_new || (n && is_one)) continue;
        fr__text_put(o, n++ ? ", " : "Speed-up: ");
        if (!is_one) fr__text_printf(o, "%s ", k->group);
        fr__text_printf(o, "over %s", k->baseline);
    }
    if (n) fr__text_put(o, ".\n");
}

static void put_words(fr__text *o, const fr_compare *c, const struct table *t)
{
    fr__text_put(o, "\n");
    put_baselines(o, c);
    fr__text_put(o, clock_words(c));
    put_sources(o, t);
}

static void put_table(fr_compare *c, const struct table *t, fr__text *o)
{
    int width[MOST] = {0};
    for (int r = 0; r < t->n_rows; r++)
        for (int i = 0; i < t->n_columns; i++) {
            int n = (int)strlen(t->rows[r].cell[i]);
            if (n > width[i]) width[i] = n;
        }
    fr__text_put(o, fr_compare_title(c));
    if (c->n_seeds > 1) fr__text_printf(o, " (mean +- standard deviation of %d seeds)", c->n_seeds);
    fr__text_put(o, "\n\n");
    for (int r = 0; r < t->n_rows; r++) {
        bool is_first = true;
        if (r > 1 && strcmp(t->rows[r].cell[0], t->rows[r - 1].cell[0]) != 0) fr__text_put(o, "\n");
        for (int i = 0; i < t->n_columns; i++) {
            if (!is_shown(t, i)) continue;
            fr__text_printf(o, "%s%*s", is_first ? "" : "  ", is_left(t, i) ? -width[i] : width[i],
                            t->rows[r].cell[i]);
            is_first = false;
        }
        while (o->n && o->at[o->n - 1] == ' ') o->at[--o->n] = '\0';
        fr__text_put(o, "\n");
    }
    put_words(o, c, t);
}

static void put_markdown(fr_compare *c, const struct table *t, fr__text *o)
{
    for (int r = 0; r < t->n_rows; r++) {
        fr__text_put(o, "|");
        for (int i = 0; i < t->n_columns; i++)
            if (is_shown(t, i)) fr__text_printf(o, " %s |", t->rows[r].cell[i]);
        fr__text_put(o, "\n");
        if (r > 0) continue;
        fr__text_put(o, "|");
        for (int i = 0; i < t->n_columns; i++)
            if (is_shown(t, i)) fr__text_put(o, is_left(t, i) ? "---|" : "---:|");
        fr__text_put(o, "\n");
    }
    put_words(o, c, t);
}

/* One line per case and kind; each number in full, followed by its standard deviation. */
static void put_csv_numbers(fr__text *o, const fr_compare *c, const struct fr__case *k,
                            bool is_published)
{
    for (int i = 0; i < c->n_columns; i++) {
        fr__stat s = fr__case_stat(c, k, c->columns[i]);
        double v = k->published[c->columns[i]];
        if (is_published && !isnan(v))
            fr__text_printf(o, ",%.9g,,,,", v);
        else if (is_published || !s.n)
            fr__text_printf(o, ",,,,,0");
        else if (s.n == 1)
            fr__text_printf(o, ",%.9g,,%.9g,%.9g,1", s.mean, s.min, s.max);
        else
            fr__text_printf(o, ",%.9g,%.9g,%.9g,%.9g,%d", s.mean, s.sd, s.min, s.max, s.n);
    }
    fr__text_put(o, "\n");
}

static void put_csv(fr_compare *c, const struct table *t, fr__text *o)
{
    (void)t;
    fr__text_put(o, "group,case,kind,status");
    for (int i = 0; i < c->n_columns; i++) {
        const char *key = fr_compare_column_at(c->columns[i])->key;
        fr__text_printf(o, ",%s,%s_sd,%s_min,%s_max,%s_n", key, key, key, key, key);
    }
    fr__text_put(o, "\n");
    for (int i = 0; i < c->n_cases; i++) {
        const struct fr__case *k = &c->cases[i];
        for (int is_published = 0; is_published < 2; is_published++) {
            if (is_published ? !k->has_published : k->kind == FR_KIND_PUBLISHED) continue;
            fr__text_printf(o, "%s,%s,%s,%s", k->group, k->name,
                            fr_compare_kind_name(is_published ? FR_KIND_PUBLISHED : k->kind),
                            is_published ? "published" : fr__case_status(k));
            put_csv_numbers(o, c, k, is_published);
        }
    }
}

static const struct form {
    const char *name;
    void (*put)(fr_compare *c, const struct table *t, fr__text *o);
} forms[] = {{"table", put_table}, {"markdown", put_markdown}, {"csv", put_csv}};

static fr_status keep(fr_compare *c, fr__text *o, const char **text)
{
    *text = o->failed ? NULL : fr__arena_strdup(&c->text, o->n ? o->at : "");
    fr__text_fini(o);
    return *text ? FR_OK : fr__compare_no_memory(c);
}

fr_status fr_compare_text(fr_compare *c, const char *format, const char **text)
{
    struct table *t;
    fr__text o = {0};
    fr__arena_fini(&c->text);
    if (strcmp(format, "json") == 0) return fr__compare_json(c, text);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].name, format) != 0) continue;
        t = FR_ARENA_NEW(&c->text, struct table);
        if (!t) return fr__compare_no_memory(c);
        FR_TRY(fill(c, t));
        forms[i].put(c, t, &o);
        return keep(c, &o, text);
    }
    return fr_fail(c->ctx, FR_INVALID,
                   "unknown format '%s'; formats are: table, markdown, csv, json", format);
}

/* --- in words --------------------------------------------------------------------------------- */

/* The fastest cases on the clock of the baseline. Several can be equal: pipelines that differ only
 * in their weight policy take the same time. */
static const struct fr__case *put_fastest(fr__text *o, const fr_compare *c,
                                          const struct fr__case *base, double *most)
{
    int speedup = fr__column_find("speedup"), n = 0;
    const struct fr__case *best = NULL;
    *most = 1;
    for (int i = 0; i < c->n_cases; i++) {
        fr__stat s = fr__case_stat(c, &c->cases[i], speedup);
        if (fr__case_baseline(c, &c->cases[i]) != base || !s.n || s.mean <= *most) continue;
        best = &c->cases[i];
        *most = s.mean;
    }
    for (int i = 0; best && i < c->n_cases; i++) {
        const struct fr__case *k = &c->cases[i];
        fr__stat s = fr__case_stat(c, k, speedup);
        if (fr__case_baseline(c, k) != base || !s.n || s.mean < 0.999 * *most) continue;
        fr__text_printf(o, "%s%s", n++ ? " and " : "", k->name);
    }
    if (best) fr__text_put(o, n > 1 ? " are the fastest" : " is the fastest");
    return best;
}

static void put_finding(fr__text *o, const fr_compare *c, const struct fr__case *base)
{
    int accuracy = fr__column_find("eval_accuracy");
    double most;
    if (base->group[0]) fr__text_printf(o, "%s: ", base->group);
    const struct fr__case *best = put_fastest(o, c, base, &most);
    if (best)
        fr__text_printf(o, ", %.2f times %s", most, base->name);
    else
        fr__text_printf(o, "no case is faster than %s", base->name);
    fr__stat a = fr__case_stat(c, base, accuracy);
    fr__stat b = best ? fr__case_stat(c, best, accuracy) : (fr__stat){0};
    if (a.n && b.n)
        fr__text_printf(o, ", with an accuracy of %.2f %% (%+.2f points)", b.mean, b.mean - a.mean);
    fr__text_printf(o, " (%s).\n", fr_compare_kind_name(base->kind));
}

fr_status fr_compare_words(fr_compare *c, const char **text)
{
    fr__text o = {0};
    int rate = fr__column_find("samples_per_s"), n_like;
    fr__arena_fini(&c->text);
    for (int i = 0; i < c->n_cases; i++) {
        const struct fr__case *k = &c->cases[i];
        n_like = 0;
        for (int j = 0; j < c->n_cases; j++)
            n_like += &c->cases[j] != k && fr__case_baseline(c, &c->cases[j]) == k;
        if (n_like && fr__case_stat(c, k, rate).n) put_finding(&o, c, k);
    }
    if (c->note[0]) fr__text_put(&o, c->note);
    if (c->note[0] && c->note[strlen(c->note) - 1] != '\n') fr__text_put(&o, "\n");
    return keep(c, &o, text);
}
