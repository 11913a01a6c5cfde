/* test_npy.c -- pairs of NumPy arrays: types, shapes that fit, values in range. */
#include "scratch.h"

#include <math.h>

/* Version 1 header for the given type and shape, then the data. */
static void put_npy(const scratch *s, const char *name, const char *type, const char *shape,
                    const void *data, size_t bytes)
{
    unsigned char *file = calloc(1, 128 + bytes);
    assert_non_null(file);
    memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
    int n = snprintf((char *)file + 10, 118,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    memset(file + 10 + n, ' ', (size_t)(118 - n - 1));
    file[127] = '\n';
    memcpy(file + 128, data, bytes);
    put_file(s, name, file, 128 + bytes);
    free(file);
}

#define PUT(name, type, shape, ...) put_npy(s, name, type, shape, __VA_ARGS__, sizeof __VA_ARGS__)

static const char pair[] = "{name: npy, input: '@/x.npy', target: '@/y.npy'}";
static const char both[] = "{name: npy, input: '@/x.npy', target: '@/y.npy', eval_input: "
                           "'@/ex.npy', eval_target: '@/ey.npy'}";

static void number_types(void **state)
{
    scratch *s = *state;
    float x[2];
    int32_t y;
    PUT("y.npy", "<i8", "3,", ((int64_t[]){2, 0, -1}));
    PUT("x.npy", "<f4", "3, 2", ((float[]){1, 2, 3, 4, 5, 6}));
    fr_dataset *d = open_good(s, NULL, pair);
    const fr_data_info *info = fr_dataset_info(d);
    assert_int_equal(info->n_train, 3);
    assert_int_equal(info->n_eval, 0);
    assert_int_equal(info->n_classes, 3);
    assert_int_equal(info->input_dtype, FR_F32);
    assert_true(fr_shape_equal(&info->input, &FR_SHAPE(2)));
    assert_int_equal(info->target.n_dims, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 0, 0, x, &y, NULL), FR_OK);
        assert_true(x[0] == (float)(2 * i + 1) && x[1] == (float)(2 * i + 2));
        assert_int_equal(y, i < 2 ? 2 - 2 * i : FR_TARGET_IGNORE);
    }
    fr_dataset_close(d);

    PUT("x.npy", "<f8", "3, 2", ((double[]){0.5, 2, 3, 4, 5, 6.25}));
    PUT("y.npy", "|u1", "3,", ((uint8_t[]){1, 0, 1}));
    d = open_good(s, NULL, pair);
    assert_int_equal(fr_dataset_info(d)->n_classes, 2);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 2, 0, 0, x, &y, NULL), FR_OK);
    assert_true(x[1] == 6.25f);
    fr_dataset_close(d);

    PUT("x.npy", "|u1", "3, 2", ((uint8_t[]){0, 255, 51, 0, 0, 0}));
    d = open_good(s, NULL, pair);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 0, 0, 0, x, &y, NULL), FR_OK);
    assert_true(x[0] == 0 && x[1] == 1);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 1, 0, 0, x, &y, NULL), FR_OK);
    assert_float_equal(x[0], 0.2, 1e-7);
    fr_dataset_close(d);
}

static void token_arrays(void **state)
{
    scratch *s = *state;
    int32_t x[3], y[3];
    PUT("x.npy", "<u2", "2, 3", ((uint16_t[]){1, 2, 3, 4, 60000, 6}));
    PUT("y.npy", "<i4", "2, 3", ((int32_t[]){2, 3, 4, 5, 6, -1}));
    fr_dataset *d = open_good(s, NULL, pair);
    const fr_data_info *info = fr_dataset_info(d);
    assert_int_equal(info->input_dtype, FR_I32);
    assert_int_equal(info->vocab, 60001);
    assert_int_equal(info->n_classes, 7);
    assert_true(fr_shape_equal(&info->target, &FR_SHAPE(3)));
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 1, 0, 0, x, y, NULL), FR_OK);
    assert_int_equal(x[1], 60000);
    assert_int_equal(y[2], FR_TARGET_IGNORE);
    fr_dataset_close(d);
}

/* Floats are numbers; integers become some where the loss reads them. */
static void float_targets(void **state)
{
    scratch *s = *state;
    float x[2], y[3];
    const fr_data_info wants_floats = {.has_float_targets = true};
    PUT("x.npy", "<f4", "2, 2", ((float[]){1, 2, 3, 4}));
    PUT("y.npy", "<f8", "2, 3", ((double[]){0.5, -1, 2, 3, NAN, 1e9}));
    fr_dataset *d = open_good(s, NULL, pair);
    const fr_data_info *info = fr_dataset_info(d);
    assert_true(info->has_float_targets && info->n_classes == 0);
    assert_true(fr_shape_equal(&info->target, &FR_SHAPE(3)));
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 1, 0, 0, x, y, NULL), FR_OK);
    assert_true(y[0] == 3 && isnan(y[1]) && y[2] == 1e9f);
    fr_dataset_close(d);
    PUT("y.npy", "|u1", "2,", ((uint8_t[]){200, 7}));
    PUT("ex.npy", "<f4", "1, 2", ((float[]){1, 2}));
    PUT("ey.npy", "<f4", "1,", ((float[]){0.25f}));
    d = open_good(s, &wants_floats, both);
    assert_true(fr_dataset_info(d)->has_float_targets);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 0, 0, 0, x, y, NULL), FR_OK);
    assert_true(y[0] == 200);
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 0, 0, 0, x, y, NULL), FR_OK);
    assert_true(y[0] == 0.25f);
    fr_dataset_close(d);
    open_bad(s, NULL, both, "ey.npy", "float32", "uint8", NULL);
}

static void sizes_and_evaluation(void **state)
{
    scratch *s = *state;
    float x[2];
    int32_t y;
    PUT("x.npy", "<f4", "2, 2", ((float[]){1, 2, 3, 4}));
    PUT("y.npy", "<i4", "2,", ((int32_t[]){0, 1}));
    PUT("ex.npy", "<f8", "1, 2", ((double[]){8, 9}));
    PUT("ey.npy", "<i8", "1,", ((int64_t[]){1}));
    fr_dataset *d = open_good(s, &(fr_data_info){.n_classes = 5}, both);
    assert_int_equal(fr_dataset_info(d)->n_classes, 5);
    assert_int_equal(fr_dataset_info(d)->n_eval, 1);
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 0, 0, 0, x, &y, NULL), FR_OK);
    assert_true(x[1] == 9);
    assert_int_equal(y, 1);
    fr_dataset_close(d);
    d = open_good(s, &(fr_data_info){.n_classes = 5},
                  "{name: npy, input: '@/x.npy', target: '@/y.npy', classes: 7}");
    assert_int_equal(fr_dataset_info(d)->n_classes, 7);
    fr_dataset_close(d);
}

static void errors(void **state)
{
    scratch *s = *state;
    open_bad(s, NULL, "{name: npy}", "input", NULL);
    open_bad(s, NULL, pair, "test.yaml:1", "x.npy", NULL);
    PUT("x.npy", "<f4", "2, 2", ((float[]){1, 2, 3, 4}));
    PUT("y.npy", "<f4", "2,", ((float[]){0, INFINITY}));
    open_bad(s, NULL, pair, "y.npy", "row 1", "infinite", NULL);
    PUT("y.npy", "<f4", "2,", ((float[]){NAN, NAN}));
    open_bad(s, NULL, pair, "y.npy", "all 2 targets are NaN", NULL);
    PUT("y.npy", "<f4", "3,", ((float[]){1, 2, 3}));
    open_bad(s, NULL, pair, "2 samples", "y.npy", "has 3", NULL);
    PUT("y.npy", "<i4", "3,", ((int32_t[]){0, 1, 2}));
    open_bad(s, NULL, pair, "2 samples", "y.npy", "has 3", NULL);
    PUT("y.npy", "<i4", "2, 3", ((int32_t[]){0, 1, 2, 0, 1, 2}));
    open_bad(s, NULL, pair, "y.npy", "(n, 3)", "(n, 2)", NULL);
    PUT("y.npy", "<i4", "2,", ((int32_t[]){0, -2}));
    open_bad(s, NULL, pair, "y.npy: row 1 holds class -2", NULL);
    PUT("y.npy", "<i4", "2,", ((int32_t[]){0, 5}));
    open_bad(s, &(fr_data_info){.n_classes = 5}, pair, "y.npy: row 1 holds class 5", "4", NULL);
    PUT("y.npy", "<i8", "2,", ((int64_t[]){0, (int64_t)1 << 40}));
    open_bad(s, NULL, pair, "y.npy: row 1 holds class 1099511627776", NULL);
    PUT("y.npy", "<i4", "2,", ((int32_t[]){0, 1}));
    open_bad(s, NULL, "{name: npy, input: '@/x.npy', target: '@/y.npy', eval_input: '@/x.npy'}",
             "eval_target", NULL);
    PUT("ey.npy", "<i4", "1,", ((int32_t[]){2}));
    PUT("ex.npy", "<f4", "1, 2", ((float[]){1, 2}));
    open_bad(s, NULL, both, "ey.npy: row 0 holds class 2", NULL);
    PUT("ex.npy", "<f4", "1, 3", ((float[]){1, 2, 3}));
    open_bad(s, NULL, both, "ex.npy", "(n, 3)", "(n, 2)", NULL);
    PUT("ex.npy", "|u1", "1, 2", ((uint8_t[]){1, 2}));
    open_bad(s, NULL, both, "ex.npy", "uint8", "float32", NULL);
    PUT("x.npy", "<f4", "0, 2", ((float[]){0})); /* and 4 bytes too many */
    open_bad(s, NULL, pair, "x.npy", NULL);
    put_npy(s, "x.npy", "<f4", "0, 2", "", 0);
    open_bad(s, NULL, pair, "x.npy", "empty", NULL);
    put_npy(s, "x.npy", "<f4", "2, 4611686018427387904, 4611686018427387904, 0", "", 0);
    open_bad(s, NULL, pair, "x.npy", NULL);
    PUT("x.npy", "<f4", "2, 2", ((float[]){1, 2, 3, NAN}));
    open_bad(s, NULL, pair, "x.npy: row 1, value 1 is NaN", NULL);
    PUT("x.npy", "<f4", "2, 2", ((float[]){1, -INFINITY, 3, 4}));
    open_bad(s, NULL, pair, "x.npy: row 0, value 1 is infinite", NULL);
    PUT("x.npy", "<f8", "2, 2", ((double[]){1, 2, 1e300, 4})); /* no float32 */
    open_bad(s, NULL, pair, "x.npy: row 1, value 0 is infinite", NULL);
    PUT("x.npy", "<f4", "2, 2", ((float[]){1, 2, 3, 4}));
    PUT("y.npy", "<i4", "2,", ((int32_t[]){-1, -1}));
    open_bad(s, &(fr_data_info){.n_classes = 5}, pair, "y.npy: all 2 targets are -1", NULL);
    PUT("y.npy", "<i4", "2,", ((int32_t[]){0, 1}));
    PUT("x.npy", "<i4", "2, 2", ((int32_t[]){1, 2, 3, -4}));
    open_bad(s, NULL, pair, "x.npy: row 1 holds token -4", NULL);
}

static void out_of_memory(void **state)
{
    scratch *s = *state;
    PUT("x.npy", "<f4", "2, 2", ((float[]){1, 2, 3, 4}));
    PUT("y.npy", "<i4", "2,", ((int32_t[]){0, 1}));
    PUT("ex.npy.gz", "<f8", "1, 2", ((double[]){8, 9}));
    PUT("ey.npy", "<i8", "1,", ((int64_t[]){1}));
    walk_out_of_memory(s, NULL,
                       "{name: npy, input: '@/x.npy', target: '@/y.npy', eval_input: "
                       "'@/ex.npy.gz', eval_target: '@/ey.npy'}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        T(number_types),  T(token_arrays), T(sizes_and_evaluation),
        T(float_targets), T(errors),       T(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
