/* given.c -- a data set that the caller of the library brings along: a function that makes samples,
 * or arrays in memory. Arrays are checked when the set is made; values of a function are checked
 * where they are used. */
#include "data/source.h"

#include "io/number.h"

#include <math.h>
#include <string.h>

typedef struct given_set {
    fr_dataset base;
    fr_dataset_desc desc;
} given_set;

static fr_status given_read(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                            uint64_t draw, void *input, void *target, int32_t *length)
{
    const fr_dataset_desc *g = &((const given_set *)d)->desc;
    if (g->read) return g->read(g->user, split, index, seed, draw, input, target, length);
    size_t n_target = (size_t)fr_shape_count(&g->info.target);
    const fr_samples *s = &g->samples[split];
    size_t input_bytes =
        (size_t)fr_shape_count(&g->info.input) * fr_dtype_bytes(g->info.input_dtype);
    memcpy(input, (const char *)s->input + (size_t)index * input_bytes, input_bytes);
    memcpy(target, (const char *)s->target + (size_t)index * n_target * 4, n_target * 4);
    *length = s->length ? s->length[index] : 0;
    return FR_OK;
}

static const fr__data_ops given_ops = {.read = given_read};

/* Classes and floats have four bytes each. */
_Static_assert(sizeof(int32_t) == 4 && sizeof(float) == 4, "one size for both");

static fr_status check_numbers(fr_ctx *ctx, const char *split, const float *at, int64_t n)
{
    int64_t i = 0, n_counted = 0;
    for (; i < n && !isinf(at[i]); i++) n_counted += !isnan(at[i]);
    if (i < n)
        return fr_fail(ctx, FR_INVALID, "data set: %s target %lld is infinite", split,
                       (long long)i);
    if (n_counted > 0) return FR_OK;
    return fr_fail(ctx, FR_INVALID, "data set: all %s targets are NaN: none counts", split);
}

/* The first of n numbers that is not in low .. high; -1: none. */
static int64_t find_outside(const int32_t *at, int64_t n, int32_t low, int64_t high)
{
    for (int64_t i = 0; i < n; i++)
        if (at[i] < low || at[i] > high) return i;
    return -1;
}

static fr_status check_range(fr_ctx *ctx, const char *split, const char *what, const int32_t *at,
                             int64_t n, int64_t n_per_sample, int32_t low, int64_t high)
{
    int64_t i = find_outside(at, n * n_per_sample, low, high);
    if (i < 0) return FR_OK;
    return fr_fail(ctx, FR_INVALID, "data set: %s sample %lld has %s %d, expected %d to %lld",
                   split, (long long)(i / n_per_sample), what, at[i], low, (long long)high);
}

static fr_status check_arrays(fr_ctx *ctx, const fr_data_info *d, const fr_samples *s, int64_t n,
                              const char *split)
{
    int64_t n_input = fr_shape_count(&d->input), n_target = fr_shape_count(&d->target);
    if (n == 0) return FR_OK;
    if (!s->input || !s->target || (d->has_length && !s->length))
        return fr_fail(ctx, FR_INVALID,
                       "data set: %lld %s samples, but no array of inputs, targets%s", (long long)n,
                       split, d->has_length ? " or lengths" : "");
    FR_TRY(d->has_float_targets ? check_numbers(ctx, split, s->target, n * n_target)
                                : check_range(ctx, split, "target", s->target, n, n_target,
                                              FR_TARGET_IGNORE, d->n_classes - 1));
    if (d->has_length)
        FR_TRY(check_range(ctx, split, "length", s->length, n, 1, 1, d->input.dim[0]));
    if (d->input_dtype == FR_I32)
        return check_range(ctx, split, "id", s->input, n, n_input, 0, d->vocab - 1);
    if (fr__are_finite(s->input, (size_t)(n * n_input))) return FR_OK;
    return fr_fail(ctx, FR_INVALID, "data set: %s inputs hold values that are not finite", split);
}

static bool is_shape(const fr_shape *s)
{
    if (s->n_dims < 0 || s->n_dims > FR_MAX_DIMS) return false;
    for (int i = 0; i < s->n_dims; i++)
        if (s->dim[i] < 1) return false;
    return true;
}

static fr_status check_info(fr_ctx *ctx, const fr_data_info *d)
{
    if (d->n_train < 1 || d->n_eval < 0)
        return fr_fail(ctx, FR_INVALID,
                       "data set: %lld training and %lld evaluation samples; expected at least one "
                       "and none",
                       (long long)d->n_train, (long long)d->n_eval);
    if (!is_shape(&d->input) || !is_shape(&d->target))
        return fr_fail(ctx, FR_INVALID,
                       "data set: a shape needs 0 to %d dimensions of at least 1 each",
                       FR_MAX_DIMS);
    if (d->input_dtype != FR_F32 && d->input_dtype != FR_I32)
        return fr_fail(ctx, FR_INVALID, "data set: input_dtype is %d, neither float nor int32",
                       (int)d->input_dtype);
    if ((d->n_classes < 1 && !d->has_float_targets) || (d->input_dtype == FR_I32 && d->vocab < 1))
        return fr_fail(ctx, FR_INVALID,
                       "data set: %lld classes, %lld ids; targets and ids need a range",
                       (long long)d->n_classes, (long long)d->vocab);
    return FR_OK;
}

fr_status fr_dataset_create(fr_ctx *ctx, const fr_dataset_desc *desc, fr_dataset **out)
{
    const fr_data_info *d = &desc->info;
    *out = NULL;
    FR_TRY(check_info(ctx, d));
    if (!desc->read) {
        FR_TRY(check_arrays(ctx, d, &desc->samples[FR_TRAIN], d->n_train, "training"));
        FR_TRY(check_arrays(ctx, d, &desc->samples[FR_EVAL], d->n_eval, "evaluation"));
    }
    given_set *s = fr__dataset_new(ctx, sizeof *s, &given_ops);
    if (!s) return FR_NO_MEMORY;
    s->desc = *desc;
    s->base.info = desc->info;
    *out = &s->base;
    return FR_OK;
}
