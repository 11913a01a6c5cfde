/* efficiency_file.c -- OUT/efficiency.json: trials with all their evaluations, so a later call
 * reuses them, even for another goal. */
#include "study/efficiency.h"

#include "io/file.h"
#include "io/json.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static void write_trial(fr__json *j, const fr_trial *t, const fr_goal *goal)
{
    fr__json_object(j, NULL);
    fr__json_int(j, "batch", t->batch);
    fr__json_uint(j, "seed", t->seed);
    fr__json_real(j, "lr", t->lr);
    fr__json_bool(j, "whole", t->is_whole);
    fr__json_bool(j, "diverged", t->diverged);
    fr__json_real(j, "epochs", fr_trial_epochs(t, goal));
    fr__json_list(j, "points");
    for (int i = 0; i < t->n_points; i++) {
        fr__json_list(j, NULL);
        fr__json_real(j, NULL, t->points[i].epochs);
        fr__json_real(j, NULL, t->points[i].loss);
        fr__json_real(j, NULL, t->points[i].accuracy);
        fr__json_end(j);
    }
    fr__json_end(j);
    fr__json_end(j);
}

static void write_row(fr__json *j, const fr__study *s, const fr_efficiency_row *r)
{
    fr__json_object(j, NULL);
    fr__json_int(j, "batch", r->batch);
    fr__json_real(j, "lr", r->lr);
    fr__json_int(j, "seeds", r->n_seeds);
    fr__json_int(j, "reached", r->n_reached);
    fr__json_real(j, "epochs", r->epochs);
    fr__json_real(j, "least", r->least);
    fr__json_real(j, "most", r->most);
    fr__json_real(j, "updates", r->epochs * (double)s->n_train / (double)r->batch);
    fr__json_real(j, "ratio", r->ratio);
    fr__json_end(j);
}

static void write_all(fr__json *j, const fr__study *s, const fr_goal *goal, int n_rows,
                      const fr_efficiency_row *rows)
{
    fr__json_object(j, NULL);
    fr__json_text(j, "config_sha256", s->config);
    fr__json_text(j, "method", s->method);
    fr__json_int(j, "stages", s->stages);
    fr__json_text(j, "lr_rule", fr_lr_rule_name(s->o->lr_rule));
    fr__json_real(j, "max_epochs", s->max_epochs);
    fr__json_int(j, "evals_per_epoch", s->n_evals);
    fr__json_int(j, "n_train", s->n_train);
    fr__json_int(j, "micro_batch", s->micro_batch);
    fr__json_object(j, "target");
    fr__json_text(j, "by", goal->kind == FR_GOAL_LOSS ? "loss" : "accuracy");
    fr__json_real(j, "value", goal->value);
    fr__json_text(j, "from", s->o->goal.kind == FR_GOAL_OWN ? "smallest batch" : "user");
    fr__json_end(j);
    fr__json_list(j, "batches");
    for (int i = 0; i < n_rows; i++) write_row(j, s, &rows[i]);
    fr__json_end(j);
    fr__json_list(j, "trials");
    for (size_t i = 0; i < s->trials.n; i++)
        if (s->trials.at[i]->n_points > 0 || s->trials.at[i]->is_whole)
            write_trial(j, s->trials.at[i], goal);
    fr__json_end(j);
    fr__json_end(j);
}

fr_status fr__study_save(const fr__study *s, const fr_goal *goal, int n_rows,
                         const fr_efficiency_row *rows)
{
    fr__json j;
    fr__json_to_text(&j, 1);
    write_all(&j, s, goal, n_rows, rows);
    char *text = fr__json_take(&j, "");
    if (!text) return fr__no_memory(s->ctx, j.bytes, "results");
    fr_status status = fr__file_replace(s->ctx, s->file, text, j.bytes);
    fr__free(text);
    return status;
}

/* --- back ------------------------------------------------------------------------------------- */

static fr_status fail_part(const fr__study *s, const char *what)
{
    return fr_fail(s->ctx, FR_INVALID,
                   "%s: %s; it is not as this command writes it: choose another --out", s->file,
                   what);
}

static double number_at(const json_t *list, size_t i)
{
    const json_t *v = json_array_get(list, i);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static fr_status read_trial(fr__study *s, const json_t *o)
{
    const json_t *batch = json_object_get(o, "batch"), *seed = json_object_get(o, "seed");
    const json_t *points = json_object_get(o, "points"), *lr = json_object_get(o, "lr");
    if (!json_is_integer(batch) || !json_is_integer(seed) || !json_is_array(points) ||
        !json_is_number(lr) || json_array_size(points) > 1 << 24)
        return fail_part(s, "a trial lacks batch, seed, lr or points");
    fr_trial *t = fr__study_trial(s, json_integer_value(batch), (uint64_t)json_integer_value(seed));
    size_t n = json_array_size(points);
    if (t) t->points = FR_ARENA_ARRAY(s->arena, fr_eval_point, n + 1);
    if (!t || !t->points) return fr__no_memory(s->ctx, 0, "trials");
    t->lr = json_number_value(lr);
    t->is_whole = json_is_true(json_object_get(o, "whole"));
    t->diverged = json_is_true(json_object_get(o, "diverged"));
    t->n_points = t->room = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *p = json_array_get(points, i);
        t->points[i] = (fr_eval_point){number_at(p, 0), number_at(p, 1), number_at(p, 2)};
        if (!(t->points[i].epochs > (i > 0 ? t->points[i - 1].epochs : 0)))
            return fail_part(s, "evaluations are not in order");
    }
    return FR_OK;
}

/* Settings that affect trials must be those of the file. */
static fr_status check_same(const fr__study *s, const json_t *o)
{
    const json_t *config = json_object_get(o, "config_sha256"),
                 *rule = json_object_get(o, "lr_rule");
    const json_t *most = json_object_get(o, "max_epochs");
    const json_t *evals = json_object_get(o, "evals_per_epoch");
    const char *other = NULL;
    if (!json_is_string(config) || !json_is_string(rule) || !json_is_number(most) ||
        !json_is_integer(evals))
        return fail_part(s, "config_sha256, lr_rule, max_epochs or evals_per_epoch is missing");
    if (strcmp(json_string_value(config), s->config) != 0)
        other = "another config or other --set";
    else if (strcmp(json_string_value(rule), fr_lr_rule_name(s->o->lr_rule)) != 0)
        other = "another --scale-lr";
    else if (json_number_value(most) != s->max_epochs)
        other = "another --max-epochs";
    else if (json_integer_value(evals) != s->n_evals)
        other = "another --evals";
    if (!other) return FR_OK;
    return fr_fail(
        s->ctx, FR_INVALID,
        "%s: holds results of %s; choose another --out, or continue with the same settings",
        s->file, other);
}

static fr_status load(fr_ctx *ctx, const char *file, json_t **out)
{
    unsigned char *data;
    size_t bytes;
    json_error_t error;
    FR_TRY(fr__file_read_regular(ctx, file, (size_t)1 << 30, &data, &bytes));
    *out = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, &error);
    fr__free(data);
    if (*out) return FR_OK;
    return fr_fail(ctx, FR_INVALID, "%s:%d:%d: %s", file, error.line, error.column, error.text);
}

fr_status fr__study_load(fr__study *s)
{
    json_t *o;
    if (!fr__file_exists(s->file)) return FR_OK;
    FR_TRY(load(s->ctx, s->file, &o));
    fr_status status = check_same(s, o);
    const json_t *trials = json_object_get(o, "trials");
    for (size_t i = 0; status == FR_OK && i < json_array_size(trials); i++)
        status = read_trial(s, json_array_get(trials, i));
    json_decref(o);
    return status;
}

/* --- the epochs of one batch, for a plan ------------------------------------------------------ */

/* What is wrong with it; NULL: nothing. */
static const char *take_result(const json_t *o, int64_t batch, fr_efficiency_result *out)
{
    const json_t *method = json_object_get(o, "method"), *stages = json_object_get(o, "stages");
    const json_t *target = json_object_get(o, "target"), *value = json_object_get(target, "value");
    const char *by = json_string_value(json_object_get(target, "by"));
    const json_t *rows = json_object_get(o, "batches");
    if (!by || !json_is_number(value) || !json_is_array(rows))
        return "is not a result of forerun efficiency";
    if (!json_is_string(method) || !json_is_integer(stages))
        return "does not name its method; repeat its forerun efficiency, which trains nothing "
               "twice";
    out->method = fr_method_find(json_string_value(method));
    if (!out->method) return "has a method that this Forerun does not have";
    out->stages = (int)json_integer_value(stages);
    out->goal.kind = strcmp(by, "loss") == 0 ? FR_GOAL_LOSS : FR_GOAL_ACCURACY;
    out->goal.value = json_number_value(value);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *epochs = json_object_get(row, "epochs");
        if (json_integer_value(json_object_get(row, "batch")) != batch) continue;
        out->epochs = json_is_number(epochs) ? json_number_value(epochs) : NAN;
        return NULL;
    }
    return "does not have the mini-batch of the config; add it to --batches of its forerun "
           "efficiency";
}

fr_status fr_efficiency_read(fr_ctx *ctx, const char *path, int64_t batch,
                             fr_efficiency_result *out)
{
    char file[FR_PATH];
    json_t *o;
    FR_TRY(fr__path(ctx, file, "%s%s", path, fr__dir_exists(path) ? "/efficiency.json" : ""));
    FR_TRY(load(ctx, file, &o));
    const char *wrong = take_result(o, batch, out);
    json_decref(o);
    return wrong ? fr_fail(ctx, FR_INVALID, "%s %s", file, wrong) : FR_OK;
}
