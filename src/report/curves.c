/* curves.c -- metrics.jsonl as curves.
 *
 * The number of mini-batches is known only at the end. So a point starts as one mini-batch. When
 * the points are full, neighbours are merged, and later points cover twice as many mini-batches.
 * This takes one pass and memory for the points only. All points except the last have equal
 * length. */
#include "report/curves.h"

#include "io/file.h"
#include "report/reader.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

typedef enum value {
    STEP,
    SAMPLES,
    ELAPSED,
    LOSS,
    LR,
    RATE,
    NORM,
    EVAL_LOSS,
    EVAL_ACCURACY,
    N_VALUES
} value;

static const char *const keys[N_VALUES] = {
    [STEP] = "step",
    [SAMPLES] = "samples",
    [ELAPSED] = "elapsed_s",
    [LOSS] = "loss",
    [LR] = "lr",
    [RATE] = "samples_per_s",
    [NORM] = "grad_norm",
    [EVAL_LOSS] = "eval_loss",
    [EVAL_ACCURACY] = "eval_accuracy",
};

/* The value that each mean averages. */
static const value source[FR_N_MEANS] = {
    [FR_MEAN_LOSS] = LOSS, [FR_MEAN_LR] = LR, [FR_MEAN_RATE] = RATE, [FR_MEAN_NORM] = NORM};

/* --- lines -------------------------------------------------------------------------------- */

static bool scan_line(const fr__piece *line, double v[N_VALUES])
{
    fr__fields f;
    fr__field field;
    fr__fields_open(&f, line->text, line->n);
    while (fr__fields_next(&f, &field))
        for (int k = 0; k < N_VALUES; k++) {
            if (!fr__field_is(&field, keys[k])) continue;
            v[k] = field.real;
            break;
        }
    return !f.failed;
}

/* Slow path: parse a line with the JSON library. */
static bool load_line(const fr__piece *line, double v[N_VALUES], json_error_t *error)
{
    json_t *o = json_loadb(line->text, line->n, JSON_REJECT_DUPLICATES, error);
    if (o && !json_is_object(o)) snprintf(error->text, sizeof error->text, "expected an object");
    bool is_object = json_is_object(o);
    for (int k = 0; k < N_VALUES && is_object; k++) {
        const json_t *number = json_object_get(o, keys[k]);
        v[k] = json_is_number(number) ? json_number_value(number) : NAN;
    }
    json_decref(o);
    return is_object;
}

static fr_status read_line(fr__reader *r, const fr__piece *line, double v[N_VALUES], bool *is_torn)
{
    json_error_t error = {.text = ""};
    for (int k = 0; k < N_VALUES; k++) v[k] = NAN;
    *is_torn = false;
    if (!scan_line(line, v) && !load_line(line, v, &error)) {
        *is_torn = !line->is_whole;
        if (*is_torn) return FR_OK;
        char text[JSON_ERROR_TEXT_LENGTH + 64];
        snprintf(text, sizeof text, "expected the numbers of a mini-batch: %s", error.text);
        return fr__reader_fail(r, text);
    }
    return isnan(v[STEP]) ? fr__reader_fail(r, "a mini-batch without its step") : FR_OK;
}

/* --- points ------------------------------------------------------------------------------- */

static void add_to(fr__point *p, const fr__point *q)
{
    p->n_steps += q->n_steps;
    p->step = q->step, p->samples = q->samples, p->elapsed_s = q->elapsed_s;
    for (int k = 0; k < FR_N_MEANS; k++) p->sum[k] += q->sum[k], p->n[k] += q->n[k];
    p->low = fmin(p->low, q->low); /* if one is NaN, the other */
    p->high = fmax(p->high, q->high);
}

static void halve(fr__curves *c)
{
    for (int i = 0; i < c->n_points / 2; i++) {
        c->points[i] = c->points[2 * i];
        add_to(&c->points[i], &c->points[2 * i + 1]);
    }
    c->n_points /= 2;
    c->stretch *= 2;
}

static void add_step(fr__curves *c, const double v[N_VALUES])
{
    fr__point p = {.n_steps = 1,
                   .step = v[STEP],
                   .samples = v[SAMPLES],
                   .elapsed_s = v[ELAPSED],
                   .low = v[LOSS],
                   .high = v[LOSS]};
    for (int k = 0; k < FR_N_MEANS; k++) {
        double x = v[source[k]];
        if (!isnan(x)) p.sum[k] = x, p.n[k] = 1;
    }
    c->n_steps++;
    fr__point *last = c->n_points ? &c->points[c->n_points - 1] : NULL;
    if (last && last->n_steps < c->stretch) {
        add_to(last, &p);
        return;
    }
    if (c->n_points == c->max_points) halve(c);
    c->points[c->n_points++] = p;
}

/* The last evaluation is kept until it is known whether another follows. */
static bool add_eval(fr__curves *c, const double v[N_VALUES])
{
    fr__evaluation e = {v[STEP], v[ELAPSED], v[EVAL_LOSS], v[EVAL_ACCURACY]};
    if (isnan(e.loss) && isnan(e.accuracy)) return true;
    if (c->n_evals > 0 && (c->n_evals - 1) % c->eval_stride != 0) c->evals.n--;
    c->n_evals++;
    if (c->evals.n == (size_t)c->max_points) {
        for (size_t i = 0; 2 * i < c->evals.n; i++) c->evals.at[i] = c->evals.at[2 * i];
        c->evals.n = (c->evals.n + 1) / 2;
        c->eval_stride *= 2;
    }
    return fr__vec_push(&c->evals, e);
}

static fr_status read_lines(fr__reader *r, fr__curves *c)
{
    for (;;) {
        fr__piece line;
        double v[N_VALUES];
        bool is_torn;
        FR_TRY(fr__reader_line(r, &line));
        if (!line.text) return FR_OK;
        FR_TRY(read_line(r, &line, v, &is_torn));
        if (is_torn) return FR_OK;
        add_step(c, v);
        if (!add_eval(c, v)) return fr__no_memory(r->ctx, 0, "evaluations");
    }
}

fr_status fr__curves_read(fr_ctx *ctx, const char *path, int max_points, fr__curves *c)
{
    fr__reader r;
    *c = (fr__curves){.max_points = max_points < 2 ? 2 : max_points / 2 * 2, /* pairs */
                      .stretch = 1,
                      .eval_stride = 1};
    if (!fr__file_exists(path)) return FR_OK;
    c->points = FR_NEW_ARRAY(fr__point, c->max_points);
    if (!c->points) return fr__no_memory(ctx, (size_t)c->max_points * sizeof *c->points, "points");
    fr_status status = fr__reader_open(ctx, path, &r);
    if (status == FR_OK) {
        status = read_lines(&r, c);
        fr__reader_close(&r);
    }
    if (status != FR_OK) fr__curves_fini(c);
    return status;
}

void fr__curves_fini(fr__curves *c)
{
    fr__free(c->points);
    fr__vec_fini(&c->evals);
    *c = (fr__curves){0};
}

/* --- columns ------------------------------------------------------------------------------ */

/* Nine digits: more than a chart shows, in half the bytes. Counts are written in full. */
static void put_real(fr__json *j, double v)
{
    if (isfinite(v) && v != floor(v)) {
        double tens = pow(10, 8 - floor(log10(fabs(v)))), w = round(v * tens) / tens;
        if (isfinite(w)) v = w;
    }
    fr__json_real(j, NULL, v);
}

static double mean(const fr__point *p, fr__mean k)
{
    return p->n[k] ? p->sum[k] / (double)p->n[k] : NAN;
}

typedef double (*point_fn)(const fr__point *p);
static double step_of(const fr__point *p) { return p->step; }
static double samples_of(const fr__point *p) { return p->samples; }
static double elapsed_of(const fr__point *p) { return p->elapsed_s; }
static double loss_of(const fr__point *p) { return mean(p, FR_MEAN_LOSS); }
static double low_of(const fr__point *p) { return p->low; }
static double high_of(const fr__point *p) { return p->high; }
static double lr_of(const fr__point *p) { return mean(p, FR_MEAN_LR); }
static double rate_of(const fr__point *p) { return mean(p, FR_MEAN_RATE); }
static double norm_of(const fr__point *p) { return mean(p, FR_MEAN_NORM); }

static void write_points(const fr__curves *c, fr__json *j)
{
    static const struct {
        const char *name;
        point_fn of;
    } columns[] = {{"step", step_of}, {"samples", samples_of},    {"elapsed_s", elapsed_of},
                   {"loss", loss_of}, {"loss_low", low_of},       {"loss_high", high_of},
                   {"lr", lr_of},     {"samples_per_s", rate_of}, {"grad_norm", norm_of}};
    bool has_norm = false;
    for (int i = 0; i < c->n_points && !has_norm; i++) has_norm = c->points[i].n[FR_MEAN_NORM] > 0;
    fr__json_object(j, "metrics");
    for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) {
        if (columns[k].of == norm_of && !has_norm) continue;
        fr__json_list(j, columns[k].name);
        for (int i = 0; i < c->n_points; i++) put_real(j, columns[k].of(&c->points[i]));
        fr__json_end(j);
    }
    fr__json_end(j);
}

void fr__curves_write(const fr__curves *c, fr__json *j)
{
    static const struct {
        const char *name;
        size_t offset;
    } columns[] = {{"step", offsetof(fr__evaluation, step)},
                   {"elapsed_s", offsetof(fr__evaluation, elapsed_s)},
                   {"loss", offsetof(fr__evaluation, loss)},
                   {"accuracy", offsetof(fr__evaluation, accuracy)}};
    fr__json_int(j, "n_steps", c->n_steps);
    write_points(c, j);
    fr__json_object(j, "eval");
    for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) {
        fr__json_list(j, columns[k].name);
        for (size_t i = 0; i < c->evals.n; i++)
            put_real(j, *(const double *)((const char *)&c->evals.at[i] + columns[k].offset));
        fr__json_end(j);
    }
    fr__json_end(j);
}
