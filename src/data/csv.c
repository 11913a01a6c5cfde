/* csv.c -- tables of numbers: columns of inputs, and one or more columns of targets.
 *
 * Targets are classes (whole numbers from 0) or floats, as the loss reads; without a loss, floats
 * if one of them is no whole number. An empty field of a target does not count; one of an input is
 * refused. Columns of other files are found by name. */
#include "io/csv.h"
#include "data/source.h"
#include "io/conf.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMED = 256 };                    /* columns of a list in the config */
static const float largest_class = 16777215; /* floats beyond it are not all whole */

typedef struct csv_part {
    fr__csv table;
    int *input, *target; /* its columns */
} csv_part;

typedef struct csv_set {
    fr_dataset base;
    int n_inputs, n_targets;
    csv_part part[2]; /* FR_TRAIN, FR_EVAL */
} csv_set;

static fr_status csv_read(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                          uint64_t draw, void *input, void *target, int32_t *length)
{
    const csv_set *s = (const csv_set *)d;
    const csv_part *p = &s->part[split];
    const float *row = p->table.values + index * p->table.n_cols;
    float *x = input;
    (void)seed, (void)draw;
    for (int i = 0; i < s->n_inputs; i++) x[i] = row[p->input[i]];
    for (int i = 0; i < s->n_targets; i++) {
        float value = row[p->target[i]];
        if (d->info.has_float_targets)
            ((float *)target)[i] = value;
        else
            ((int32_t *)target)[i] = isnan(value) ? FR_TARGET_IGNORE : (int32_t)value;
    }
    *length = 0;
    return FR_OK;
}

static void part_fini(csv_part *p)
{
    fr__csv_fini(&p->table);
    fr__free(p->input);
    fr__free(p->target);
}

static void csv_close(fr_dataset *d)
{
    csv_set *s = (csv_set *)d;
    for (int i = 0; i < 2; i++) part_fini(&s->part[i]);
}

static fr_status check_inputs(const csv_set *s, const csv_part *p, const char *path)
{
    for (int64_t row = 0; row < p->table.n_rows; row++)
        for (int i = 0; i < s->n_inputs; i++)
            if (isnan(p->table.values[row * p->table.n_cols + p->input[i]]))
                return fr_fail(s->base.ctx, FR_INVALID,
                               "%s: row %lld has no number in column %s; fill it, or leave the "
                               "column out by data.skip",
                               path, (long long)row + 1, p->table.names[p->input[i]]);
    return FR_OK;
}

/* Columns of another file by the names of the training part. */
static fr_status match(const csv_set *s, const char *path, const fr__csv *t, int n,
                       const int *train, int *to)
{
    const fr__csv *known = &s->part[FR_TRAIN].table;
    for (int i = 0; i < n; i++) {
        to[i] = fr__csv_find(t, known->names[train[i]]);
        if (to[i] < 0)
            return fr_fail(s->base.ctx, FR_INVALID,
                           "%s has no column %s, which the training file has", path,
                           known->names[train[i]]);
    }
    return FR_OK;
}

static fr_status csv_inputs(const fr_dataset *d, const char *path, float **values, int64_t *n)
{
    const csv_set *s = (const csv_set *)d;
    csv_part p = {.input = FR_NEW_ARRAY(int, s->n_inputs)};
    *values = NULL, *n = 0;
    fr_status status = p.input ? fr__csv_load(d->ctx, path, &p.table)
                               : fr__no_memory(d->ctx, (size_t)s->n_inputs, "columns");
    if (status == FR_OK)
        status = match(s, path, &p.table, s->n_inputs, s->part[FR_TRAIN].input, p.input);
    if (status == FR_OK) status = check_inputs(s, &p, path);
    size_t bytes = fr__array_bytes((size_t)p.table.n_rows, (size_t)s->n_inputs * sizeof(float));
    if (status == FR_OK && !(*values = fr__alloc(bytes)))
        status = fr__no_memory(d->ctx, bytes, "inputs");
    for (int64_t i = 0; status == FR_OK && i < p.table.n_rows * s->n_inputs; i++)
        (*values)[i] = p.table.values[i / s->n_inputs * p.table.n_cols + p.input[i % s->n_inputs]];
    *n = p.table.n_rows;
    part_fini(&p);
    return status;
}

static const fr__data_ops ops = {.read = csv_read, .close = csv_close, .inputs = csv_inputs};

/* Mark the columns of a list; none given: n is 0. */
static fr_status mark(fr_conf *section, const char *key, const fr__csv *t, const char *path,
                      char as, char *role, int *n)
{
    const char *names[MAX_NAMED];
    FR_TRY(fr_conf_texts(section, key, MAX_NAMED, names, n));
    for (int i = 0; i < *n; i++) {
        int col = fr__csv_find(t, names[i]);
        if (col < 0) return fr_conf_fail(section, key, "%s has no column '%s'", path, names[i]);
        if (role[col]) return fr_conf_fail(section, key, "column '%s' is named twice", names[i]);
        role[col] = as;
    }
    return FR_OK;
}

/* Columns by use: those that are neither target nor skipped are inputs. */
static fr_status choose(csv_set *s, fr_conf *section, const char *path, char *role)
{
    csv_part *p = &s->part[FR_TRAIN];
    int n_skipped, n = p->table.n_cols;
    FR_TRY(mark(section, "skip", &p->table, path, 's', role, &n_skipped));
    FR_TRY(mark(section, "targets", &p->table, path, 't', role, &s->n_targets));
    for (int i = n - 1; i >= 0 && s->n_targets == 0; i--)
        if (!role[i]) role[i] = 't', s->n_targets = 1; /* the last one */
    s->n_inputs = n - n_skipped - s->n_targets;
    if (s->n_inputs < 1 || s->n_targets < 1)
        return fr_fail(s->base.ctx, FR_INVALID,
                       "%s: %d columns, %d of them skipped; expected inputs and a target", path, n,
                       n_skipped);
    p->input = FR_NEW_ARRAY(int, s->n_inputs);
    p->target = FR_NEW_ARRAY(int, s->n_targets);
    if (!p->input || !p->target) return fr__no_memory(s->base.ctx, (size_t)n * 4, "columns");
    for (int i = 0, x = 0, t = 0; i < n; i++) {
        if (!role[i]) p->input[x++] = i;
        if (role[i] == 't') p->target[t++] = i;
    }
    return FR_OK;
}

static fr_status open_train(csv_set *s, fr_conf *section, const char *path)
{
    csv_part *p = &s->part[FR_TRAIN];
    FR_TRY(fr__csv_load(s->base.ctx, path, &p->table));
    char *role = fr__alloc((size_t)p->table.n_cols);
    if (!role) return fr__no_memory(s->base.ctx, (size_t)p->table.n_cols, "columns");
    fr_status status = choose(s, section, path, role);
    fr__free(role);
    return status;
}

static fr_status open_eval(csv_set *s, const char *path)
{
    const csv_part *train = &s->part[FR_TRAIN];
    csv_part *p = &s->part[FR_EVAL];
    FR_TRY(fr__csv_load(s->base.ctx, path, &p->table));
    p->input = FR_NEW_ARRAY(int, s->n_inputs);
    p->target = FR_NEW_ARRAY(int, s->n_targets);
    if (!p->input || !p->target) return fr__no_memory(s->base.ctx, (size_t)s->n_inputs, "columns");
    FR_TRY(match(s, path, &p->table, s->n_inputs, train->input, p->input));
    return match(s, path, &p->table, s->n_targets, train->target, p->target);
}

/* Classes: whole numbers from 0 below `limit` (0: any); sets *most. */
static bool are_classes(const csv_set *s, const csv_part *p, int64_t *most, int64_t *row)
{
    for (*row = 0; *row < p->table.n_rows; ++*row)
        for (int i = 0; i < s->n_targets; i++) {
            float value = p->table.values[*row * p->table.n_cols + p->target[i]];
            if (isnan(value)) continue;
            if (value < 0 || value > largest_class || value != floorf(value)) return false;
            if ((int64_t)value > *most) *most = (int64_t)value;
        }
    return true;
}

/* Some target must count; a missing one is told. */
static fr_status check_targets(const csv_set *s, const csv_part *p, const char *path)
{
    int64_t n = p->table.n_rows * s->n_targets, n_missing = 0;
    for (int64_t row = 0; row < p->table.n_rows; row++)
        for (int i = 0; i < s->n_targets; i++)
            n_missing += isnan(p->table.values[row * p->table.n_cols + p->target[i]]);
    if (n_missing == n)
        return fr_fail(s->base.ctx, FR_INVALID, "%s: all %lld targets are empty", path,
                       (long long)n);
    if (n_missing > 0)
        fr_log(s->base.ctx, FR_LOG_WARN, "%s: %lld of %lld targets are empty; they do not count",
               path, (long long)n_missing, (long long)n);
    return FR_OK;
}

static fr_status describe(csv_set *s, const fr_data_info *want, const char *const paths[2])
{
    fr_data_info *info = &s->base.info;
    int64_t most = 0, row = 0;
    bool are_whole = are_classes(s, &s->part[FR_TRAIN], &most, &row);
    info->has_float_targets = want->has_float_targets || !are_whole || s->n_targets > 1;
    info->n_train = s->part[FR_TRAIN].table.n_rows, info->n_eval = s->part[FR_EVAL].table.n_rows;
    info->input = FR_SHAPE(s->n_inputs);
    if (s->n_targets > 1) info->target = FR_SHAPE(s->n_targets);
    if (!info->has_float_targets) info->n_classes = want->n_classes ? want->n_classes : most + 1;
    for (int i = 0; i < 2 && s->part[i].table.n_rows; i++) {
        FR_TRY(check_inputs(s, &s->part[i], paths[i]));
        FR_TRY(check_targets(s, &s->part[i], paths[i]));
        s->base.bytes += s->part[i].table.bytes;
        if (info->has_float_targets) continue;
        if (are_classes(s, &s->part[i], &most, &row) && most < info->n_classes) continue;
        return fr_fail(s->base.ctx, FR_INVALID,
                       "%s: row %lld: classes are whole numbers from 0 to %lld", paths[i],
                       (long long)row + 1, (long long)info->n_classes - 1);
    }
    return FR_OK;
}

static fr_status csv_open(fr_ctx *ctx, fr_conf *section, const fr_data_info *want, fr_dataset **out)
{
    fr__data_options o = {0};
    FR_TRY(fr__data_options_read(section, "csv", &o));
    csv_set *s = fr__dataset_new(ctx, sizeof *s, &ops);
    if (!s) return FR_NO_MEMORY;
    *out = &s->base;
    const char *const paths[2] = {o.path, o.eval_path}, *const keys[2] = {"path", "eval_path"};
    for (int i = 0; i < 2; i++)
        if (paths[i][0] && !fr__file_exists(paths[i]))
            return fr_conf_fail(section, keys[i], "no file %s; set %s to a .csv file", paths[i],
                                keys[i]);
    FR_TRY(open_train(s, section, o.path));
    if (o.eval_path[0]) FR_TRY(open_eval(s, o.eval_path));
    return describe(s, want, paths);
}

const fr_data_source fr__data_csv = {
    .name = "csv",
    .summary = "tables of numbers: columns of inputs, and of classes or numbers as targets",
    .open = csv_open};
