/* columns.c -- the columns of a comparison: the source of each number, and its mean over seeds.
 *
 * A new column is a row of this table. Numbers are read from summary.json; a simulation writes a
 * file with the same keys. */
#include "compare/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct source {
    fr_compare_column shown;
    double scale;                             /* factor from the summary's unit to the column's */
    const char *path;                         /* "bubble.share", or: */
    double (*compute)(const json_t *summary); /* neither field nor function: speedup */
} source;

static double number_at(const json_t *o, const char *path)
{
    char key[64];
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        size_t n = (size_t)(dot - path);
        if (n >= sizeof key) return NAN;
        memcpy(key, path, n);
        key[n] = '\0';
        o = json_object_get(o, key);
    }
    o = json_object_get(o, path);
    return json_is_number(o) ? json_number_value(o) : NAN;
}

/* Memory of the worker with the largest peak. */
static double memory_of(const json_t *summary)
{
    const json_t *workers = json_object_get(summary, "workers");
    double most = NAN;
    for (size_t i = 0; i < json_array_size(workers); i++)
        most = fmax(most, number_at(json_array_get(workers, i), "peak_bytes"));
    return most;
}

static double traffic_of(const json_t *summary)
{
    static const char *const parts[] = {"traffic.forward", "traffic.backward", "traffic.messages",
                                        "traffic.sums"};
    double sum = json_object_get(summary, "traffic") ? 0 : NAN;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double bytes = number_at(summary, parts[i]);
        if (!isnan(bytes)) sum += bytes;
    }
    return sum;
}

static double s_per_batch_of(const json_t *summary)
{
    return number_at(summary, "batch") / number_at(summary, "samples_per_s");
}

/* clang-format off */
static const source columns[] = {
    {{"eval_accuracy", "accuracy", "%", "of the last evaluation", 2}, 100, "eval_accuracy", NULL},
    {{"eval_loss", "eval loss", "", "of the last evaluation", 4}, 1, "eval_loss", NULL},
    {{"train_loss", "train loss", "", "mean of the last epoch", 4}, 1, "train_loss", NULL},
    {{"samples_per_s", "samples/s", "", "training samples per second, without the first tenth", -1},
     1, "samples_per_s", NULL},
    {{"speedup", "speed-up", "x", "samples per second relative to the baseline", 2}, 1, NULL, NULL},
    {{"bubble", "idle", "%", "share of time in which workers wait", 1},
     100, "bubble.share", NULL},
    {{"memory", "memory", "MB", "of the worker with the largest peak", -1}, 1e-6, NULL, memory_of},
    {{"traffic", "traffic", "kB/sample", "sent between workers", -1}, 1e-3, NULL, traffic_of},
    {{"s_per_batch", "mini-batch", "ms", "time of a mini-batch", -1}, 1e3, NULL, s_per_batch_of},
    {{"predicted_s_per_batch", "forecast", "ms", "forecast time of a mini-batch", -1},
     1e3, "predicted_s_per_batch", NULL},
    {{"prediction_error", "forecast error", "%", "forecast over measured time, minus 1", 1},
     100, "prediction_error", NULL},
    {{"wall_s", "wall clock", "s", "of the whole run on this machine", 1}, 1, "wall_s", NULL},
    {{"late", "late", "%", "lag of an emulation behind its pace", 2},
     100, "emulated.late", NULL},
};
/* clang-format on */
enum { N_COLUMNS = sizeof columns / sizeof *columns };
_Static_assert((int)N_COLUMNS <= (int)FR_MAX_COLUMNS, "room for all columns");

const fr_compare_column *fr_compare_column_at(int i)
{
    return i >= 0 && i < N_COLUMNS ? &columns[i].shown : NULL;
}

int fr__column_find(const char *key)
{
    for (int i = 0; i < N_COLUMNS; i++)
        if (strcmp(columns[i].shown.key, key) == 0) return i;
    return -1;
}

const char *fr_compare_kind_name(fr_compare_kind kind)
{
    static const char *const names[] = {[FR_KIND_MEASURED] = "measured",
                                        [FR_KIND_EMULATED] = "emulated",
                                        [FR_KIND_SIMULATED] = "simulated",
                                        [FR_KIND_PUBLISHED] = "published"};
    return names[kind];
}

void fr__column_format(const fr_compare_column *column, double value, double like, char *to,
                       size_t room)
{
    double size = fabs(like);
    int digits = column->digits;
    if (digits < 0) digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
    snprintf(to, room, "%.*f", digits, value);
}

void fr__columns_read(const json_t *summary, double value[FR_MAX_COLUMNS])
{
    for (int i = 0; i < FR_MAX_COLUMNS; i++) {
        value[i] = NAN;
        if (i >= N_COLUMNS) continue;
        if (columns[i].path) value[i] = columns[i].scale * number_at(summary, columns[i].path);
        if (columns[i].compute) value[i] = columns[i].scale * columns[i].compute(summary);
        if (!isfinite(value[i])) value[i] = NAN;
    }
}

/* --- over seeds ------------------------------------------------------------------------------- */

fr__stat fr__stat_of(int n, const double *values)
{
    fr__stat s = {.mean = NAN, .sd = NAN, .min = NAN, .max = NAN};
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        if (isnan(values[i])) continue;
        s.n++;
        sum += values[i];
        s.min = fmin(s.min, values[i]);
        s.max = fmax(s.max, values[i]);
    }
    if (!s.n) return s;
    s.mean = sum / s.n;
    for (int i = 0; i < n; i++)
        if (!isnan(values[i])) squares += (values[i] - s.mean) * (values[i] - s.mean);
    if (s.n > 1) s.sd = sqrt(squares / (s.n - 1));
    return s;
}

/* Times are compared only with times of the same clock. */
const struct fr__case *fr__case_baseline(const fr_compare *c, const struct fr__case *k)
{
    for (int i = 0; i < c->n_cases; i++) {
        const struct fr__case *b = &c->cases[i];
        if (strcmp(b->name, k->baseline) == 0 && strcmp(b->group, k->group) == 0 &&
            b->kind == k->kind)
            return b;
    }
    return NULL;
}

/* Seed by seed, because runs of one seed are close in time. */
static double speedup(const fr_compare *c, const struct fr__case *k, int seed)
{
    const struct fr__case *b = fr__case_baseline(c, k);
    int rate = fr__column_find("samples_per_s");
    if (!b || seed >= b->n_runs || b->runs[seed].state != FR_RUN_DONE) return NAN;
    return k->runs[seed].value[rate] / b->runs[seed].value[rate];
}

fr__stat fr__case_stat(const fr_compare *c, const struct fr__case *k, int column)
{
    double values[FR_MAX_SEEDS];
    bool is_own = columns[column].path || columns[column].compute;
    for (int s = 0; s < k->n_runs; s++) {
        values[s] = NAN;
        if (k->runs[s].state == FR_RUN_DONE)
            values[s] = is_own ? k->runs[s].value[column] : speedup(c, k, s);
    }
    return fr__stat_of(k->n_runs, values);
}

const char *fr__case_status(const struct fr__case *k)
{
    int n[FR_RUN_FAILED + 1] = {0};
    for (int s = 0; s < k->n_runs; s++) n[k->runs[s].state]++;
    if (k->kind == FR_KIND_PUBLISHED) return "published";
    if (n[FR_RUN_FAILED]) return "failed";
    if (n[FR_RUN_DIVERGED]) return "diverged";
    if (n[FR_RUN_DONE] == k->n_runs) return "done";
    return n[FR_RUN_DONE] || n[FR_RUN_BEGUN] ? "begun" : "waiting";
}
