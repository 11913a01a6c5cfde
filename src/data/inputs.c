/* inputs.c -- samples without targets from a file of the user's. */
#include "data/source.h"
#include "io/npy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_csv(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".csv") == 0;
}

static bool fits(const fr_shape *want, const fr__npy *a)
{
    fr_shape have = {.n_dims = a->n_dims - 1};
    if (a->n_dims < 1 || a->n_dims > FR_MAX_DIMS + 1) return false;
    for (int i = 1; i < a->n_dims; i++) have.dim[i - 1] = a->dim[i];
    return fr_shape_equal(want, &have) ||
           (want->n_dims == 1 && want->dim[0] == fr_shape_count(&have));
}

/* As the data source npy has them: bytes are pixels, other integers ids. */
static bool convert(const fr__npy *a, fr_dtype dtype, int64_t n, void *to)
{
    float *x = to;
    int32_t *ids = to;
    const bool is_id = dtype == FR_I32;
    switch (a->type) {
    case FR_NPY_F32:
        for (int64_t i = 0; i < n && !is_id; i++) x[i] = ((const float *)a->data)[i];
        return !is_id;
    case FR_NPY_F64:
        for (int64_t i = 0; i < n && !is_id; i++) x[i] = (float)((const double *)a->data)[i];
        return !is_id;
    case FR_NPY_U8:
        for (int64_t i = 0; i < n && !is_id; i++)
            x[i] = (float)((const uint8_t *)a->data)[i] / 255.0f;
        return !is_id;
    case FR_NPY_I32:
        for (int64_t i = 0; i < n && is_id; i++) ids[i] = ((const int32_t *)a->data)[i];
        return is_id;
    case FR_NPY_I64:
        for (int64_t i = 0; i < n && is_id; i++) ids[i] = (int32_t)((const int64_t *)a->data)[i];
        return is_id;
    case FR_NPY_U16:
        for (int64_t i = 0; i < n && is_id; i++) ids[i] = ((const uint16_t *)a->data)[i];
        return is_id;
    }
    return false;
}

static fr_status from_npy(fr_ctx *ctx, const char *path, const fr__npy *a, const fr_node *node,
                          fr__inputs *out)
{
    char want[96];
    int64_t count = fr_shape_count(&node->shape);
    if (!fits(&node->shape, a) || a->dim[0] < 1)
        return fr_fail(ctx, FR_INVALID,
                       "%s: %d dimensions, the last of %lld; the model reads samples %s, so that "
                       "the array must be (n) of them",
                       path, a->n_dims, a->n_dims ? (long long)a->dim[a->n_dims - 1] : 0LL,
                       fr_shape_text(&node->shape, want, sizeof want));
    out->n = a->dim[0];
    size_t bytes = fr__array_bytes((size_t)out->n, (size_t)count * 4);
    out->values = fr__alloc(bytes);
    if (!out->values) return fr__no_memory(ctx, bytes, "inputs");
    if (!convert(a, node->dtype, out->n * count, out->values))
        return fr_fail(ctx, FR_INVALID, "%s: the model reads %s, the array has %s", path,
                       node->dtype == FR_I32 ? "token ids" : "numbers",
                       node->dtype == FR_I32 ? "numbers or pixels" : "integers");
    for (int64_t i = 0; node->dtype == FR_F32 && i < out->n * count; i++)
        if (!isfinite(((const float *)out->values)[i]))
            return fr_fail(ctx, FR_INVALID, "%s: row %lld, value %lld is not finite", path,
                           (long long)(i / count), (long long)(i % count));
    return FR_OK;
}

fr_status fr__inputs_load(const fr_dataset *d, const char *path, const fr_node *node,
                          fr__inputs *out)
{
    fr__npy a;
    *out = (fr__inputs){0};
    if (is_csv(path) && !d->ops->inputs)
        return fr_fail(d->ctx, FR_INVALID,
                       "%s: tables are for data of tables (csv); give an array (.npy)", path);
    fr_status status;
    if (is_csv(path)) {
        float *values = NULL;
        status = d->ops->inputs(d, path, &values, &out->n);
        out->values = values;
    } else {
        FR_TRY(fr__npy_load(d->ctx, path, &a));
        status = from_npy(d->ctx, path, &a, node, out);
        fr__npy_fini(&a);
    }
    if (status == FR_OK) return FR_OK;
    fr__free(out->values);
    *out = (fr__inputs){0};
    return status;
}
