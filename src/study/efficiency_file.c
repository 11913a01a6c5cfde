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

fr_status fr__study_load(fr__study *s)
{
    unsigned char *data;
    size_t bytes;
    json_error_t error;
    if (!fr__file_exists(s->file)) return FR_OK;
    FR_TRY(fr__file_read_regular(s->ctx, s->file, (size_t)1 << 30, &data, &bytes));
    json_t *o = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, &error);
    fr__free(data);
    if (!o)
        return fr_fail(s->ctx, FR_INVALID, "%s:%d:%d: %s", s->file, error.line, error.column,
                       error.text);
    fr_status status = check_same(s, o);
    const json_t *trials = json_object_get(o, "trials");
    for (size_t i = 0; status == FR_OK && i < json_array_size(trials); i++)
        status = read_trial(s, json_array_get(trials, i));
    json_decref(o);
    return status;
}
