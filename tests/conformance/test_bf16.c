/* test_bf16.c -- slots that take an element type (backend/device.h), on every backend with one
 * thread and with two: conversions of all bf16 numbers and of the floats around them, and sums. The
 * oracle rounds in double precision. */
#include "backend/device.h"

#include "support/backend.h"

#include <math.h>

enum { ALL = 1 << 16, N_LOW = 7, N = ALL * N_LOW };
static const uint32_t low[N_LOW] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xC000, 0xFFFF};

static float floats[N], got[N];
static uint16_t halves[N], expected[N], back[N];

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool is_nan(uint16_t bf16) { return (bf16 & 0x7FFF) > 0x7F80; }

/* To the nearest multiple of the unit in the last place of 8 bits, ties to even, as nearbyint does;
 * numbers below the normal ones have the unit of the smallest of these. */
static uint16_t rounded(float value)
{
    uint32_t bits;
    double x = (double)value;
    if (isfinite(value) && value != 0) {
        int exponent = ilogb(x) < -126 ? -126 : ilogb(x);
        x = ldexp(nearbyint(ldexp(x, 7 - exponent)), exponent - 7);
        value = fabs(x) >= 0x1p128 ? copysignf(INFINITY, value) : (float)x;
    }
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void *block(fr_device *dev, size_t bytes)
{
    void *at;
    assert_int_equal(fr_device_alloc(dev, bytes, "a block", &at), FR_OK);
    return at;
}

static void widens(fr_device *dev, void *wide, void *narrow)
{
    for (uint32_t i = 0; i < ALL; i++) halves[i] = (uint16_t)i;
    assert_int_equal(fr_device_upload(dev, narrow, halves, ALL * sizeof *halves), FR_OK);
    assert_int_equal(fr__device_convert(dev, FR_F32, wide, FR_BF16, narrow, ALL), FR_OK);
    assert_int_equal(fr_device_download(dev, got, wide, ALL * sizeof *got), FR_OK);
    for (uint32_t i = 0; i < ALL; i++) {
        uint32_t bits;
        memcpy(&bits, &got[i], sizeof bits);
        if (bits != i << 16) fail_msg("bf16 %04x became float %08x", i, bits);
    }
}

static void narrows(fr_device *dev, void *wide, void *narrow)
{
    for (uint32_t i = 0; i < N; i++) floats[i] = float_of(i / N_LOW << 16 | low[i % N_LOW]);
    assert_int_equal(fr_device_upload(dev, wide, floats, sizeof floats), FR_OK);
    /* The last one stays as it is. */
    assert_int_equal(fr_device_upload(dev, narrow, halves, sizeof halves), FR_OK);
    assert_int_equal(fr__device_convert(dev, FR_BF16, narrow, FR_F32, wide, N - 1), FR_OK);
    assert_int_equal(fr_device_download(dev, back, narrow, sizeof back), FR_OK);
    assert_int_equal(back[N - 1], halves[N - 1]);
    for (uint32_t i = 0; i < N - 1; i++) {
        bool is_right = isnan(floats[i]) ? is_nan(back[i]) && back[i] >> 15 == !!signbit(floats[i])
                                         : back[i] == rounded(floats[i]);
        if (!is_right)
            fail_msg("float %08x became bf16 %04x, not %04x", i / N_LOW << 16 | low[i % N_LOW],
                     back[i], rounded(floats[i]));
    }
}

/* A type to itself is a copy; integers are refused. */
static void copies(fr_device *dev, void *wide, void *narrow)
{
    void *other = (char *)narrow + ALL * sizeof *halves;
    assert_int_equal(fr_device_upload(dev, narrow, halves, ALL * sizeof *halves), FR_OK);
    assert_int_equal(fr__device_convert(dev, FR_BF16, other, FR_BF16, narrow, ALL), FR_OK);
    assert_int_equal(fr_device_download(dev, back, other, ALL * sizeof *back), FR_OK);
    assert_memory_equal(back, halves, ALL * sizeof *back);
    fr_status status = fr__device_convert(dev, FR_I32, wide, FR_F32, narrow, 1);
    if (status == FR_OK) status = fr_device_sync(dev); /* a queue refuses it later */
    assert_int_equal(status, FR_INTERNAL);
}

static void adds(fr_device *dev, void *x, void *y)
{
    for (uint32_t i = 0; i < ALL; i++) {
        halves[i] = (uint16_t)i, back[i] = (uint16_t)(i * 40503u + 77);
        float sum = float_of((uint32_t)halves[i] << 16) + float_of((uint32_t)back[i] << 16);
        expected[i] = isnan(sum) ? 0x7FC0 : rounded(sum);
    }
    assert_int_equal(fr_device_upload(dev, y, halves, ALL * sizeof *halves), FR_OK);
    assert_int_equal(fr_device_upload(dev, x, back, ALL * sizeof *back), FR_OK);
    fr__device_add(dev, FR_BF16, y, x, ALL);
    assert_int_equal(fr_device_download(dev, back, y, ALL * sizeof *back), FR_OK);
    for (uint32_t i = 0; i < ALL; i++)
        if (is_nan(expected[i]) ? !is_nan(back[i]) : back[i] != expected[i])
            fail_msg("sum %u is %04x, not %04x", i, back[i], expected[i]);
}

static void rounds_to_even(void **unused)
{
    (void)unused;
    for (const fr_backend *const *b = fr_backend_list(); *b; b++)
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            fr_device_desc d = {.n_threads = n_threads};
            fr_device *dev;
            fr_ctx *ctx = fr_ctx_create();
            assert_int_equal(fr_device_open(ctx, *b, &d, &dev), FR_OK);
            void *wide = block(dev, sizeof floats), *narrow = block(dev, sizeof halves);
            widens(dev, wide, narrow);
            narrows(dev, wide, narrow);
            copies(dev, wide, narrow);
            adds(dev, wide, narrow);
            fr_device_release(dev, wide, sizeof floats);
            fr_device_release(dev, narrow, sizeof halves);
            fr_device_close(dev);
            fr_ctx_free(ctx);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounds_to_even)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
