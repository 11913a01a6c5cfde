/* state.c -- state.json: written without allocation, read by Jansson. */
#include "checkpoint/state.h"

#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"

#include <jansson.h>
#include <string.h>

const char *const fr__state_files[FR_N_STATE_FILES] = {
    [FR_MODEL_FILE] = "model.safetensors", [FR_OPTIMIZER_FILE] = "optimizer.safetensors"};

/* The end of the file: the hash of all bytes before it. */
#define TAIL ",\n  \"checksum\": \"%s\"\n}\n"
enum { TAIL_BYTES = sizeof TAIL - 1 - 2 + FR_HASH_TEXT - 1 };

static void copy_text(char to[FR_STATE_TEXT], const char *from)
{
    snprintf(to, FR_STATE_TEXT, "%s", from);
}

void fr__state_of(const fr__setup *s, const fr__position *at, const char *sha256, fr__state *state)
{
    memset(state, 0, sizeof *state);
    state->format = FR_STATE_FORMAT;
    state->at = *at;
    state->batch = s->settings.batch;
    state->n_train = fr_dataset_info(s->data)->n_train;
    state->seed = (int64_t)s->settings.seed;
    copy_text(state->model, fr_graph_name(s->graph));
    copy_text(state->data, s->data_name);
    copy_text(state->optimizer, s->settings.optimizer->name);
    snprintf(state->sha256, sizeof state->sha256, "%s", sha256);
    fr_backend_library(s->settings.backend, state->kernels, sizeof state->kernels);
    fr_backend_instructions(s->settings.backend, state->instructions, sizeof state->instructions);
}

/* --- the file --------------------------------------------------------------------------------- */

/* MAYBE: a text, null or absent where it is ""; a number, absent where it is 0. */
enum kind { INT, REAL, TEXT, MAYBE, MAYBE_INT, MAYBE_REAL };
static const char *const kinds[] = {
    "a whole number of at least 0", "a number", "a short text", "a short text",
    "a whole number of at least 0", "a number"};

struct key {
    const char *name;
    enum kind kind;
    size_t at, room; /* in fr__state */
};
#define AT(member) offsetof(fr__state, member), sizeof(((fr__state *)0)->member)

static const struct key format_key = {"format", INT, AT(format)};
static const struct key keys[] = {
    {"step", INT, AT(at.step)},
    {"samples", INT, AT(at.samples)},
    {"epoch_loss", REAL, AT(at.epoch_loss)},
    {"epoch_targets", INT, AT(at.epoch_targets)},
    {"elapsed_s", REAL, AT(at.elapsed_s)},
    {"seed", INT, AT(seed)},
    {"batch", INT, AT(batch)},
    {"model", TEXT, AT(model)},
    {"data", TEXT, AT(data)},
    {"n_train", INT, AT(n_train)},
    {"optimizer", TEXT, AT(optimizer)},
    {"weights_sha256", TEXT, AT(sha256)},
    {"kernels", MAYBE, AT(kernels)},
    {"instructions", MAYBE, AT(instructions)},
    {"best", MAYBE_REAL, AT(at.best)},
    {"best_step", MAYBE_INT, AT(at.best_step)},
    {"evaluations_since", MAYBE_INT, AT(at.n_worse)},
    {"judged_step", MAYBE_INT, AT(at.judged_step)},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

static void put(fr__json *j, const struct key *k, const void *value)
{
    switch (k->kind) {
    case INT: fr__json_int(j, k->name, *(const int64_t *)value); break;
    case REAL: fr__json_real(j, k->name, *(const double *)value); break;
    case TEXT: fr__json_text(j, k->name, value); break;
    case MAYBE: fr__json_text(j, k->name, *(const char *)value ? value : NULL); break;
    case MAYBE_INT:
        if (*(const int64_t *)value > 0) fr__json_int(j, k->name, *(const int64_t *)value);
        break;
    case MAYBE_REAL:
        if (*(const double *)value != 0) fr__json_real(j, k->name, *(const double *)value);
        break;
    }
}

static fr_status get(fr_ctx *ctx, const char *path, const json_t *o, const struct key *k, void *to)
{
    const json_t *v = json_object_get(o, k->name);
    if (k->kind >= MAYBE && (!v || json_is_null(v))) return FR_OK;
    const bool is_int = k->kind == INT || k->kind == MAYBE_INT;
    const bool is_real = k->kind == REAL || k->kind == MAYBE_REAL;
    if (is_int && json_is_integer(v) && json_integer_value(v) >= 0)
        *(int64_t *)to = json_integer_value(v);
    else if (is_real && json_is_number(v))
        *(double *)to = json_number_value(v);
    else if (!is_int && !is_real && json_is_string(v) && json_string_length(v) < k->room)
        snprintf(to, k->room, "%s", json_string_value(v));
    else
        return fr_fail(ctx, FR_INVALID, "%s: '%s' must be %s", path, k->name, kinds[k->kind]);
    return FR_OK;
}

fr_status fr__state_write(fr_ctx *ctx, int dir, const char *folder, const fr__state *state)
{
    char path[FR_PATH], text[4096], hash[FR_HASH_TEXT];
    fr__json j;
    FR_TRY(fr__path(ctx, path, "%s/state.json", folder));
    fr__json_to_buffer(&j, text, sizeof text - TAIL_BYTES, 2);
    fr__json_object(&j, NULL);
    fr__json_int(&j, "format", FR_STATE_FORMAT);
    fr__json_text(&j, "forerun", fr_version());
    for (int i = 0; i < N_KEYS; i++) put(&j, &keys[i], (const char *)state + keys[i].at);
    fr__json_object(&j, "xxh128");
    for (int i = 0; i < FR_N_STATE_FILES; i++)
        fr__json_text(&j, fr__state_files[i], state->hash[i]);
    fr__json_end(&j);
    size_t n = j.bytes; /* bytes covered by the checksum: the object is still open */
    fr__json_end(&j);
    if (!fr__json_finish(&j)) return fr_fail(ctx, FR_INTERNAL, "%s: text too long", path);
    fr__hash_of(text, n, hash);
    snprintf(text + n, TAIL_BYTES + 1, TAIL, hash);
    return fr__file_replace_in(ctx, dir, path, text, n + TAIL_BYTES);
}

/* Every byte of the file is covered by the checksum or has only one valid value. */
static bool has_checksum(const unsigned char *text, size_t bytes)
{
    char hash[FR_HASH_TEXT], tail[TAIL_BYTES + 1];
    if (bytes <= TAIL_BYTES) return false;
    fr__hash_of(text, bytes - TAIL_BYTES, hash);
    snprintf(tail, sizeof tail, TAIL, hash);
    return memcmp(text + bytes - TAIL_BYTES, tail, TAIL_BYTES) == 0;
}

/* A damaged file may look like format 1; remains of the hashes show that it is not. */
static fr_status check_format(fr_ctx *ctx, const char *path, json_t *o, bool is_checked,
                              int64_t *format)
{
    bool has_hashes = json_object_get(o, "checksum") || json_object_get(o, "xxh128");
    FR_TRY(get(ctx, path, o, &format_key, format));
    if (!is_checked && (*format != 1 || has_hashes) && *format <= FR_STATE_FORMAT)
        return fr_fail(ctx, FR_INVALID,
                       "%s: has changed since it was written: its checksum does not match", path);
    if (*format == 1 || *format == FR_STATE_FORMAT) return FR_OK;
    return fr_fail(ctx, FR_INVALID,
                   "%s: format %lld, this build reads 1 and %d; use the forerun that wrote it",
                   path, (long long)*format, FR_STATE_FORMAT);
}

static fr_status parse(fr_ctx *ctx, const char *path, json_t *o, fr__state *s)
{
    for (int i = 0; i < N_KEYS; i++) FR_TRY(get(ctx, path, o, &keys[i], (char *)s + keys[i].at));
    const json_t *hashes = json_object_get(o, "xxh128");
    for (int i = 0; i < FR_N_STATE_FILES && s->format > 1; i++) {
        const struct key k = {fr__state_files[i], TEXT, AT(hash[i])};
        FR_TRY(get(ctx, path, hashes, &k, s->hash[i]));
    }
    return FR_OK;
}

static fr_status check_step(fr_ctx *ctx, const char *folder, int64_t step)
{
    int64_t named;
    if (!fr__folder_step_of(folder, &named) || named == step) return FR_OK;
    return fr_fail(ctx, FR_INVALID,
                   "%s/state.json: is of step %lld, its folder's name says %lld; were files of two "
                   "checkpoints mixed, or the folder renamed?",
                   folder, (long long)step, (long long)named);
}

fr_status fr__state_read(fr_ctx *ctx, const char *folder, fr__state *state)
{
    char path[FR_PATH];
    unsigned char *data;
    size_t bytes;
    json_error_t error;
    memset(state, 0, sizeof *state);
    FR_TRY(fr__path(ctx, path, "%s/state.json", folder));
    FR_TRY(fr__file_read_regular(ctx, path, 1 << 20, &data, &bytes));
    json_t *o = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, &error);
    bool is_checked = has_checksum(data, bytes);
    fr__free(data);
    if (!o)
        return fr_fail(ctx, FR_INVALID, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    fr_status status = check_format(ctx, path, o, is_checked, &state->format);
    if (status == FR_OK) status = parse(ctx, path, o, state);
    json_decref(o);
    return status == FR_OK ? check_step(ctx, folder, state->at.step) : status;
}

fr_status fr__state_check_file(fr_ctx *ctx, const fr__state *state, fr__state_file which,
                               const char *path, fr_tensors *file)
{
    char hash[FR_HASH_TEXT];
    if (!state->hash[which][0]) return FR_OK;
    FR_TRY(fr__tensors_hash(file, hash));
    if (strcmp(hash, state->hash[which]) == 0) return FR_OK;
    return fr_fail(ctx, FR_INVALID,
                   "%s: has changed since it was written (xxh128 %.12s..., state.json says "
                   "%.12s...)",
                   path, hash, state->hash[which]);
}

fr_status fr__state_check(const fr__setup *s, const char *folder, const fr__state *state)
{
    fr__state mine;
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
            return fr_fail(
                s->ctx, FR_INVALID,
                "%s: was written by a run with %s %lld, this config has %lld: the data would not "
                "continue where it stopped; set it back or choose another --out",
                folder, numbers[i].what, (long long)numbers[i].was, (long long)numbers[i].is);
    return FR_OK;
}

void fr__state_log_kernels(const fr__setup *s, const char *folder, const fr__state *state)
{
    fr__state mine;
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
