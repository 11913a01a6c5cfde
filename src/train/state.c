/* state.c -- state.json: written without allocation, read by Jansson. */
#include "train/state.h"

#include "io/file.h"
#include "io/json.h"

#include <jansson.h>
#include <string.h>

static void copy_text(char to[FR_STATE_TEXT], const char *from)
{
    snprintf(to, FR_STATE_TEXT, "%s", from);
}

void fr__state_of(const fr_setup *s, const fr_position *at, const char *sha256, fr_state *state)
{
    memset(state, 0, sizeof *state);
    state->at = *at;
    state->batch = s->settings.batch;
    state->n_train = fr_dataset_info(s->data)->n_train;
    state->seed = (int64_t)s->settings.seed;
    copy_text(state->model, fr_graph_name(s->graph));
    copy_text(state->data, s->data_name);
    copy_text(state->optimizer, s->settings.optimizer->name);
    snprintf(state->sha256, sizeof state->sha256, "%s", sha256);
    fr_backend_library(s->settings.backend, state->kernels, sizeof state->kernels);
    copy_text(state->instructions, fr_backend_instructions(s->settings.backend));
}

fr_status fr__state_write(fr_ctx *ctx, const char *folder, const fr_state *state)
{
    char path[FR_PATH], text[2048];
    fr_json j;
    FR_TRY(fr__path(ctx, path, "%s/state.json", folder));
    fr__json_to_buffer(&j, text, sizeof text - 1, 2);
    fr__json_object(&j, NULL);
    fr__json_int(&j, "format", FR_STATE_FORMAT);
    fr__json_text(&j, "forerun", fr_version());
    fr__json_int(&j, "step", state->at.step);
    fr__json_int(&j, "samples", state->at.samples);
    fr__json_real(&j, "epoch_loss", state->at.epoch_loss);
    fr__json_int(&j, "epoch_targets", state->at.epoch_targets);
    fr__json_real(&j, "elapsed_s", state->at.elapsed_s);
    fr__json_int(&j, "seed", state->seed);
    fr__json_int(&j, "batch", state->batch);
    fr__json_text(&j, "model", state->model);
    fr__json_text(&j, "data", state->data);
    fr__json_int(&j, "n_train", state->n_train);
    fr__json_text(&j, "optimizer", state->optimizer);
    fr__json_text(&j, "weights_sha256", state->sha256);
    fr__json_text(&j, "kernels", state->kernels[0] ? state->kernels : NULL);
    fr__json_text(&j, "instructions", state->instructions);
    fr__json_end(&j);
    if (!fr__json_finish(&j)) return fr_fail(ctx, FR_INTERNAL, "%s: text too long", path);
    text[j.bytes++] = '\n';
    return fr__file_replace(ctx, path, text, j.bytes);
}

static fr_status get_int(fr_ctx *ctx, const char *path, json_t *o, const char *key, int64_t *out)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return fr_fail(ctx, FR_INVALID, "%s: '%s' must be a whole number of at least 0", path, key);
    *out = json_integer_value(v);
    return FR_OK;
}

static fr_status get_real(fr_ctx *ctx, const char *path, json_t *o, const char *key, double *out)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_number(v)) return fr_fail(ctx, FR_INVALID, "%s: '%s' must be a number", path, key);
    *out = json_number_value(v);
    return FR_OK;
}

static fr_status get_text(fr_ctx *ctx, const char *path, json_t *o, const char *key, char *out,
                          size_t room)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_string(v) || json_string_length(v) >= room)
        return fr_fail(ctx, FR_INVALID, "%s: '%s' must be a short text", path, key);
    snprintf(out, room, "%s", json_string_value(v));
    return FR_OK;
}

/* Missing or null is "". */
static fr_status get_optional(fr_ctx *ctx, const char *path, json_t *o, const char *key, char *out,
                              size_t room)
{
    json_t *v = json_object_get(o, key);
    return !v || json_is_null(v) ? FR_OK : get_text(ctx, path, o, key, out, room);
}

static fr_status parse(fr_ctx *ctx, const char *path, json_t *o, fr_state *s)
{
    int64_t format = 0;
    FR_TRY(get_int(ctx, path, o, "format", &format));
    if (format != FR_STATE_FORMAT)
        return fr_fail(ctx, FR_INVALID,
                       "%s: format %lld, this build reads %d; use the forerun "
                       "that wrote it",
                       path, (long long)format, FR_STATE_FORMAT);
    FR_TRY(get_int(ctx, path, o, "step", &s->at.step));
    FR_TRY(get_int(ctx, path, o, "samples", &s->at.samples));
    FR_TRY(get_real(ctx, path, o, "epoch_loss", &s->at.epoch_loss));
    FR_TRY(get_int(ctx, path, o, "epoch_targets", &s->at.epoch_targets));
    FR_TRY(get_real(ctx, path, o, "elapsed_s", &s->at.elapsed_s));
    FR_TRY(get_int(ctx, path, o, "seed", &s->seed));
    FR_TRY(get_int(ctx, path, o, "batch", &s->batch));
    FR_TRY(get_text(ctx, path, o, "model", s->model, sizeof s->model));
    FR_TRY(get_text(ctx, path, o, "data", s->data, sizeof s->data));
    FR_TRY(get_int(ctx, path, o, "n_train", &s->n_train));
    FR_TRY(get_text(ctx, path, o, "optimizer", s->optimizer, sizeof s->optimizer));
    FR_TRY(get_text(ctx, path, o, "weights_sha256", s->sha256, sizeof s->sha256));
    FR_TRY(get_optional(ctx, path, o, "kernels", s->kernels, sizeof s->kernels));
    return get_optional(ctx, path, o, "instructions", s->instructions, sizeof s->instructions);
}

fr_status fr__state_read(fr_ctx *ctx, const char *folder, fr_state *state)
{
    char path[FR_PATH];
    unsigned char *data;
    size_t bytes;
    json_error_t error;
    memset(state, 0, sizeof *state);
    FR_TRY(fr__path(ctx, path, "%s/state.json", folder));
    FR_TRY(fr__file_read(ctx, path, 1 << 20, &data, &bytes));
    json_t *o = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, &error);
    fr__free(data);
    if (!o)
        return fr_fail(ctx, FR_INVALID, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    fr_status status = parse(ctx, path, o, state);
    json_decref(o);
    return status;
}

fr_status fr__state_check(const fr_setup *s, const char *folder, const fr_state *state)
{
    fr_state mine;
    fr__state_of(s, &state->at, state->sha256, &mine);
    const struct {
        const char *what, *was, *is;
    } names[] = {{"model", state->model, mine.model},
                 {"data", state->data, mine.data},
                 {"optimizer", state->optimizer, mine.optimizer}};
    const struct {
        const char *what;
        int64_t was, is;
    } numbers[] = {{"train.seed", state->seed, mine.seed},
                   {"train.batch", state->batch, mine.batch},
                   {"number of training samples", state->n_train, mine.n_train}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].was, names[i].is) != 0)
            return fr_fail(s->ctx, FR_INVALID,
                           "%s: was written by a run with %s '%s', this config has '%s'; use "
                           "the config of that run or another --out",
                           folder, names[i].what, names[i].was, names[i].is);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].was != numbers[i].is)
            return fr_fail(s->ctx, FR_INVALID,
                           "%s: was written by a run with %s %lld, this config has %lld: the data "
                           "would not go on where it stopped; set it back or choose another --out",
                           folder, numbers[i].what, (long long)numbers[i].was,
                           (long long)numbers[i].is);
    return FR_OK;
}

void fr__state_tell(const fr_setup *s, const char *folder, const fr_state *state)
{
    fr_state mine;
    fr__state_of(s, &state->at, state->sha256, &mine);
    if (!state->instructions[0] || (strcmp(state->instructions, mine.instructions) == 0 &&
                                    strcmp(state->kernels, mine.kernels) == 0))
        return;
    fr_log(s->ctx, FR_LOG_WARN,
           "%s: resumed on %s%s%s, written on %s%s%s: last bits may differ from those of a run "
           "that was not stopped",
           folder, mine.instructions, mine.kernels[0] ? ", " : "", mine.kernels,
           state->instructions, state->kernels[0] ? ", " : "", state->kernels);
}
