/* npy.c -- NumPy arrays: inputs (n, ...) and targets (n) or (n, ...).
 *
 * Inputs: floats unchanged, uint8 as pixels scaled to 0 .. 1, other integers as token ids. Targets:
 * integers are classes or FR_TARGET_IGNORE, unless the loss reads floats; floats are numbers, or
 * NaN for one that does not count. Values keep the type of the file in memory and are converted
 * when read. NaN and infinity in inputs are refused: the loss of their mini-batch would be NaN, and
 * the run would seem to diverge. */
#include "io/npy.h"
#include "data/source.h"
#include "io/conf.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>

typedef struct npy_part {
    fr__npy input, target;
    const char *input_path, *target_path;
} npy_part;

typedef struct npy_set {
    fr_dataset base;
    int64_t input_count, target_count; /* numbers of a sample */
    npy_part part[2];                  /* FR_TRAIN, FR_EVAL */
} npy_set;

/* Meaning of a type as input. */
enum use { VALUE, PIXEL, TOKEN };

static const struct {
    const char *name;
    size_t bytes;
    enum use use;
} types[] = {
    [FR_NPY_F32] = {"float32", 4, VALUE}, [FR_NPY_F64] = {"float64", 8, VALUE},
    [FR_NPY_U8] = {"uint8", 1, PIXEL},    [FR_NPY_I32] = {"int32", 4, TOKEN},
    [FR_NPY_I64] = {"int64", 8, TOKEN},   [FR_NPY_U16] = {"uint16", 2, TOKEN},
};

static int64_t integer_at(const fr__npy *a, int64_t i)
{
    switch (a->type) {
    case FR_NPY_U8: return ((const uint8_t *)a->data)[i];
    case FR_NPY_U16: return ((const uint16_t *)a->data)[i];
    case FR_NPY_I32: return ((const int32_t *)a->data)[i];
    case FR_NPY_I64: return ((const int64_t *)a->data)[i];
    case FR_NPY_F32:
    case FR_NPY_F64: break;
    }
    return 0;
}

static float real_at(const fr__npy *a, int64_t i)
{
    switch (a->type) {
    case FR_NPY_F32: return ((const float *)a->data)[i];
    case FR_NPY_F64: return (float)((const double *)a->data)[i];
    case FR_NPY_U8: return (float)((const uint8_t *)a->data)[i] / 255.0f;
    case FR_NPY_U16:
    case FR_NPY_I32:
    case FR_NPY_I64: break;
    }
    return 0;
}

/* A target, as it is in the file. */
static float number_at(const fr__npy *a, int64_t i)
{
    bool is_real = types[a->type].use == VALUE;
    return is_real ? real_at(a, i) : (float)integer_at(a, i);
}

static fr_status npy_read(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                          uint64_t draw, void *input, void *target, int32_t *length)
{
    const npy_set *s = (const npy_set *)d;
    const npy_part *p = &s->part[split];
    int64_t first = index * s->input_count;
    (void)seed, (void)draw;
    if (d->info.input_dtype == FR_I32) {
        int32_t *ids = input;
        for (int64_t i = 0; i < s->input_count; i++)
            ids[i] = (int32_t)integer_at(&p->input, first + i);
    } else {
        float *values = input;
        for (int64_t i = 0; i < s->input_count; i++) values[i] = real_at(&p->input, first + i);
    }
    first = index * s->target_count;
    for (int64_t i = 0; i < s->target_count; i++) {
        if (d->info.has_float_targets)
            ((float *)target)[i] = number_at(&p->target, first + i);
        else
            ((int32_t *)target)[i] = (int32_t)integer_at(&p->target, first + i);
    }
    *length = 0;
    return FR_OK;
}

static void npy_close(fr_dataset *d)
{
    npy_set *s = (npy_set *)d;
    for (int i = 0; i < 2; i++) {
        fr__npy_fini(&s->part[i].input);
        fr__npy_fini(&s->part[i].target);
    }
}

static const fr__data_ops ops = {.read = npy_read, .close = npy_close};

/* Text of a shape with n as its first dimension: "(n, 3, 32, 32)". */
static const char *sample_text(const fr__npy *a, char text[128])
{
    size_t used = (size_t)snprintf(text, 128, "(n");
    for (int i = 1; i < a->n_dims && used < 100; i++)
        used += (size_t)snprintf(text + used, 128 - used, ", %lld", (long long)a->dim[i]);
    snprintf(text + used, 128 - used, ")");
    return text;
}

static fr_status load_array(npy_set *s, fr_conf *section, const char *key, const char *path,
                            fr__npy *out)
{
    fr_ctx *ctx = s->base.ctx;
    if (!fr__file_exists(path))
        return fr_conf_fail(section, key, "no file %s; set %s to a .npy file", path, key);
    FR_TRY(fr__npy_load(ctx, path, out));
    if (out->n_dims < 1 || out->n_dims > FR_MAX_DIMS + 1)
        return fr_fail(ctx, FR_INVALID,
                       "%s: %d dimensions, expected samples first and 1 to %d in all", path,
                       out->n_dims, FR_MAX_DIMS + 1);
    size_t bytes = types[out->type].bytes;
    for (int i = 0; i < out->n_dims; i++) {
        if (out->dim[i] < 1)
            return fr_fail(ctx, FR_INVALID, "%s: the array is empty; at least one sample is needed",
                           path);
        bytes *= (size_t)out->dim[i];
    }
    s->base.bytes += bytes;
    return FR_OK;
}

static bool is_same_sample(const fr__npy *a, const fr__npy *b)
{
    if (a->n_dims != b->n_dims) return false;
    for (int i = 1; i < a->n_dims; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* Check that both have the same samples, with one class per sample or per leading position. */
static fr_status check_pair(fr_ctx *ctx, const npy_part *p, bool is_float)
{
    const fr__npy *x = &p->input, *y = &p->target;
    char have[128], want[128];
    if (x->dim[0] != y->dim[0])
        return fr_fail(ctx, FR_INVALID, "%s has %lld samples, but %s has %lld", p->input_path,
                       (long long)x->dim[0], p->target_path, (long long)y->dim[0]);
    bool fits = is_float || y->n_dims <= x->n_dims;
    for (int i = 1; fits && !is_float && i < y->n_dims; i++) fits = y->dim[i] == x->dim[i];
    if (!fits)
        return fr_fail(ctx, FR_INVALID,
                       "%s: targets %s do not fit the inputs %s of %s; expected (n), or the "
                       "leading dimensions of the inputs",
                       p->target_path, sample_text(y, have), sample_text(x, want), p->input_path);
    return FR_OK;
}

static fr_status check_same(fr_ctx *ctx, const char *path, const fr__npy *a, const char *train_path,
                            const fr__npy *train, bool any_use)
{
    char have[128], want[128];
    if (is_same_sample(a, train) && (any_use || types[a->type].use == types[train->type].use))
        return FR_OK;
    return fr_fail(ctx, FR_INVALID, "%s holds %s %s, but the training file %s holds %s %s", path,
                   types[a->type].name, sample_text(a, have), train_path, types[train->type].name,
                   sample_text(train, want));
}

static int64_t largest(const fr__npy *a, int64_t n)
{
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++)
        if (integer_at(a, i) > most) most = integer_at(a, i);
    return most;
}

static fr_status check_range(fr_ctx *ctx, const char *path, const char *what, const fr__npy *a,
                             int64_t per_row, int64_t min, int64_t limit)
{
    for (int64_t i = 0; i < a->dim[0] * per_row; i++) {
        int64_t value = integer_at(a, i);
        if (value < min || value >= limit)
            return fr_fail(ctx, FR_INVALID, "%s: row %lld holds %s %lld, expected %lld .. %lld",
                           path, (long long)(i / per_row), what, (long long)value, (long long)min,
                           (long long)limit - 1);
    }
    return FR_OK;
}

/* Without a target there is no loss. */
static fr_status check_any_target(fr_ctx *ctx, const npy_part *p, int64_t per_row)
{
    int64_t n = p->target.dim[0] * per_row, i = 0;
    while (i < n && integer_at(&p->target, i) == FR_TARGET_IGNORE) i++;
    if (i < n) return FR_OK;
    return fr_fail(
        ctx, FR_INVALID,
        "%s: all %lld targets are %d, which is ignored; at least one target must be a class",
        p->target_path, (long long)n, FR_TARGET_IGNORE);
}

/* Targets of floats. One that is missing is NaN; the user is told. */
static fr_status check_numbers(fr_ctx *ctx, const npy_part *p, int64_t per_row)
{
    int64_t n = p->target.dim[0] * per_row, n_missing = 0;
    for (int64_t i = 0; i < n; i++) {
        float value = number_at(&p->target, i);
        n_missing += isnan(value);
        if (isinf(value))
            return fr_fail(
                ctx, FR_INVALID,
                "%s: row %lld, value %lld is infinite; targets must be finite (float32), "
                "or NaN where there is none",
                p->target_path, (long long)(i / per_row), (long long)(i % per_row));
    }
    if (n_missing == n)
        return fr_fail(ctx, FR_INVALID,
                       "%s: all %lld targets are NaN; at least one must be a number",
                       p->target_path, (long long)n);
    if (n_missing > 0)
        fr_log(ctx, FR_LOG_WARN, "%s: %lld of %lld targets are NaN; they do not count",
               p->target_path, (long long)n_missing, (long long)n);
    return FR_OK;
}

/* float64 beyond the range of float32 is infinite, too. */
static fr_status check_finite(fr_ctx *ctx, const char *path, const fr__npy *a, int64_t per_row)
{
    for (int64_t i = 0; i < a->dim[0] * per_row; i++) {
        float value = real_at(a, i);
        if (!isfinite(value))
            return fr_fail(ctx, FR_INVALID,
                           "%s: row %lld, value %lld is %s; inputs must be finite (float32): "
                           "replace or remove such rows (numpy.isfinite finds them)",
                           path, (long long)(i / per_row), (long long)(i % per_row),
                           isnan(value) ? "NaN (not a number)" : "infinite");
    }
    return FR_OK;
}

static fr_status check_classes(const npy_set *s, const npy_part *p)
{
    FR_TRY(check_range(s->base.ctx, p->target_path, "class", &p->target, s->target_count,
                       FR_TARGET_IGNORE, s->base.info.n_classes));
    return check_any_target(s->base.ctx, p, s->target_count);
}

/* A size: from the key, else from the model, else from the training part. */
static int64_t settle(int64_t key, int64_t want, const fr__npy *a, int64_t n)
{
    int64_t most = key || want ? 0 : largest(a, n);
    return key ? key : want ? want : most < INT32_MAX ? most + 1 : INT32_MAX;
}

static fr_status finish(npy_set *s, const fr_data_info *want, int64_t classes, int64_t vocab)
{
    fr_data_info *info = &s->base.info;
    fr_ctx *ctx = s->base.ctx;
    const npy_part *train = &s->part[FR_TRAIN];
    const fr__npy *x = &train->input, *y = &train->target;
    info->n_train = x->dim[0];
    info->n_eval = s->part[FR_EVAL].input.n_dims ? s->part[FR_EVAL].input.dim[0] : 0;
    info->input.n_dims = x->n_dims - 1;
    info->target.n_dims = y->n_dims - 1;
    for (int i = 1; i < x->n_dims; i++) info->input.dim[i - 1] = x->dim[i];
    for (int i = 1; i < y->n_dims; i++) info->target.dim[i - 1] = y->dim[i];
    s->input_count = fr_shape_count(&info->input);
    s->target_count = fr_shape_count(&info->target);
    if (!info->has_float_targets)
        info->n_classes = settle(classes, want->n_classes, y, info->n_train * s->target_count);
    if (types[x->type].use == TOKEN) {
        info->input_dtype = FR_I32;
        info->vocab = settle(vocab, want->vocab, x, info->n_train * s->input_count);
    }
    for (int i = 0; i < 2 && s->part[i].input.n_dims; i++) {
        const npy_part *p = &s->part[i];
        FR_TRY(info->has_float_targets ? check_numbers(ctx, p, s->target_count)
                                       : check_classes(s, p));
        if (types[x->type].use == VALUE)
            FR_TRY(check_finite(ctx, p->input_path, &p->input, s->input_count));
        if (types[x->type].use == TOKEN)
            FR_TRY(check_range(ctx, p->input_path, "token", &p->input, s->input_count, 0,
                               info->vocab));
    }
    return FR_OK;
}

static fr_status load(npy_set *s, fr_conf *section, const fr_data_info *want)
{
    fr_ctx *ctx = s->base.ctx;
    npy_part *train = &s->part[FR_TRAIN], *eval = &s->part[FR_EVAL];
    fr__data_options o = {0};
    FR_TRY(fr__data_options_read(section, "npy", &o));
    train->input_path = o.input, train->target_path = o.target;
    eval->input_path = o.eval_input, eval->target_path = o.eval_target;
    if (!eval->input_path[0] != !eval->target_path[0])
        return fr_conf_fail(section, eval->input_path[0] ? "eval_input" : "eval_target",
                            "eval_input and eval_target belong together; give both or none");
    FR_TRY(load_array(s, section, "input", train->input_path, &train->input));
    FR_TRY(load_array(s, section, "target", train->target_path, &train->target));
    bool is_float = s->base.info.has_float_targets =
        want->has_float_targets || types[train->target.type].use == VALUE;
    FR_TRY(check_pair(ctx, train, is_float));
    if (eval->input_path[0]) {
        FR_TRY(load_array(s, section, "eval_input", eval->input_path, &eval->input));
        FR_TRY(load_array(s, section, "eval_target", eval->target_path, &eval->target));
        FR_TRY(check_pair(ctx, eval, is_float));
        FR_TRY(check_same(ctx, eval->input_path, &eval->input, train->input_path, &train->input,
                          false));
        FR_TRY(check_same(ctx, eval->target_path, &eval->target, train->target_path, &train->target,
                          is_float || types[eval->target.type].use != VALUE));
    }
    return finish(s, want, o.classes, o.vocab);
}

static fr_status npy_open(fr_ctx *ctx, fr_conf *section, const fr_data_info *want, fr_dataset **out)
{
    npy_set *s = fr__dataset_new(ctx, sizeof *s, &ops);
    if (!s) return FR_NO_MEMORY;
    *out = &s->base;
    return load(s, section, want);
}

const fr_data_source fr__data_npy = {
    .name = "npy",
    .summary = "pairs of NumPy arrays: inputs, and classes or numbers as targets",
    .open = npy_open};
