/* result.c -- writes compare.json: the whole table, for programs and for the report. Also creates
 * and frees a comparison. */
#include "compare/compare.h"

#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void write_columns(fr__json *j, const fr_compare *c)
{
    fr__json_list(j, "columns");
    for (int i = 0; i < c->n_columns; i++) {
        const fr_compare_column *column = fr_compare_column_at(c->columns[i]);
        fr__json_object(j, NULL);
        fr__json_text(j, "key", column->key);
        fr__json_text(j, "label", column->label);
        fr__json_text(j, "unit", column->unit);
        fr__json_text(j, "about", column->about);
        fr__json_int(j, "digits", column->digits);
        fr__json_end(j);
    }
    fr__json_end(j);
}

static void write_values(fr__json *j, const fr_compare *c, const struct fr__case *k)
{
    fr__json_object(j, "values");
    for (int i = 0; fr_compare_column_at(i); i++) {
        fr__stat s = fr__case_stat(c, k, i);
        if (!s.n) continue;
        fr__json_object(j, fr_compare_column_at(i)->key);
        fr__json_real(j, "mean", s.mean);
        fr__json_real(j, "sd", s.sd);
        fr__json_real(j, "min", s.min);
        fr__json_real(j, "max", s.max);
        fr__json_int(j, "n", s.n);
        fr__json_end(j);
    }
    fr__json_end(j);
}

static void write_published(fr__json *j, const struct fr__case *k)
{
    if (!k->has_published) {
        fr__json_null(j, "published");
        return;
    }
    fr__json_object(j, "published");
    for (int i = 0; fr_compare_column_at(i); i++)
        if (!isnan(k->published[i]))
            fr__json_real(j, fr_compare_column_at(i)->key, k->published[i]);
    fr__json_text(j, "source", k->source);
    fr__json_end(j);
}

static void write_case(fr__json *j, const fr_compare *c, const struct fr__case *k)
{
    int n_done = 0;
    for (int s = 0; s < k->n_runs; s++) n_done += k->runs[s].state == FR_RUN_DONE;
    fr__json_object(j, NULL);
    fr__json_text(j, "name", k->name);
    fr__json_text(j, "group", k->group);
    fr__json_text(j, "baseline", k->baseline);
    fr__json_text(j, "kind", fr_compare_kind_name(k->kind));
    fr__json_text(j, "method", k->method);
    fr__json_text(j, "status", fr__case_status(k));
    fr__json_int(j, "n_seeds", k->n_runs);
    fr__json_int(j, "n_done", n_done);
    write_values(j, c, k);
    write_published(j, k);
    fr__json_list(j, "runs");
    for (int s = 0; s < k->n_runs && k->kind != FR_KIND_SIMULATED; s++)
        if (k->runs[s].is_there) fr__json_text(j, NULL, k->runs[s].folder);
    fr__json_end(j);
    fr__json_end(j);
}

static void write_all(fr__json *j, const fr_compare *c)
{
    fr__json_object(j, NULL);
    fr__json_int(j, "format", 1);
    fr__json_text(j, "forerun", fr_version());
    fr__json_text(j, "title", fr_compare_title(c));
    fr__json_text(j, "note", c->note[0] ? c->note : NULL);
    fr__json_text(j, "baseline", c->baseline);
    fr__json_int(j, "seeds", c->n_seeds);
    write_columns(j, c);
    fr__json_list(j, "cases");
    for (int i = 0; i < c->n_cases; i++) write_case(j, c, &c->cases[i]);
    fr__json_end(j);
    fr__json_end(j);
}

fr_status fr__compare_json(fr_compare *c, const char **text)
{
    fr__json j;
    fr__json_to_text(&j, 2);
    write_all(&j, c);
    char *own = fr__json_take(&j, "\n");
    *text = own ? fr__arena_strdup(&c->text, own) : NULL;
    fr__free(own);
    return *text ? FR_OK : fr__compare_no_memory(c);
}

fr_status fr_compare_write(fr_compare *c)
{
    const char *text, *path;
    fr__arena_fini(&c->text);
    FR_TRY(fr__compare_json(c, &text));
    path = fr__arena_printf(&c->text, "%s/compare.json", c->out);
    if (!path) return fr__compare_no_memory(c);
    return fr__file_replace(c->ctx, path, text, strlen(text));
}

/* --- life ------------------------------------------------------------------------------------- */

const char *fr_compare_out(const fr_compare *c) { return c->out; }

const char *fr_compare_title(const fr_compare *c)
{
    return c->title[0] ? c->title : c->o->methods ? "Methods compared" : c->out;
}

/* default: runs/compare-NAME for FOLDER/NAME.yaml */
static fr_status choose_out(fr_compare *c)
{
    const char *config = c->o->config, *slash = strrchr(config, '/');
    const char *name = slash ? slash + 1 : config, *dot = strrchr(name, '.');
    int n = dot && dot > name ? (int)(dot - name) : (int)strlen(name);
    c->out = c->o->out ? fr__arena_strdup(&c->arena, c->o->out)
                       : fr__arena_printf(&c->arena, "runs/compare-%.*s", n, name);
    return c->out ? FR_OK : fr__compare_no_memory(c);
}

/* Refuse a folder that holds something else. */
static fr_status check_out(fr_compare *c)
{
    const char *run = fr__compare_path(c, &c->arena, "metrics.jsonl", NULL);
    if (!run) return fr__compare_no_memory(c);
    if (!c->out[0]) return fr_fail(c->ctx, FR_INVALID, "--out: the folder has no name");
    if (!fr__file_exists(run)) return FR_OK;
    return fr_fail(c->ctx, FR_INVALID,
                   "%s: the folder holds a run, not a comparison; choose another --out", c->out);
}

static fr_status open_all(fr_compare *c)
{
    if (!c->o->config) return fr_fail(c->ctx, FR_INVALID, "no config file was given");
    FR_TRY(choose_out(c));
    FR_TRY(check_out(c));
    FR_TRY(fr__compare_read(c));
    FR_TRY(fr__compare_resolve(c));
    return fr_compare_write(c);
}

fr_status fr_compare_open(fr_ctx *ctx, const fr_compare_options *o, fr_compare **out)
{
    fr_compare *c = FR_NEW(fr_compare);
    *out = NULL;
    if (!c) return fr__no_memory(ctx, sizeof *c, "a comparison");
    c->ctx = ctx, c->o = o, c->lock_fd = -1;
    fr_status status = open_all(c);
    if (status == FR_OK)
        *out = c;
    else
        fr_compare_close(c);
    return status;
}

void fr_compare_close(fr_compare *c)
{
    if (!c) return;
    if (c->lock_fd >= 0) close(c->lock_fd);
    fr__arena_fini(&c->text);
    fr__arena_fini(&c->job);
    fr__arena_fini(&c->arena);
    fr__free(c);
}
