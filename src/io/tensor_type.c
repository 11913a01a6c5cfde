/* tensor_type.c -- F16 is IEEE 754 binary16: 1 bit of sign, 5 of exponent (bias 15), 10 of
 * fraction. A value of either short type is a float, so that it comes back with the same bits. */
#include "io/tensor_type.h"

#include "base/bf16.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef enum real_type { NONE, F32, F16, BF16, F64 } real_type;

static real_type type_of(const char *dtype)
{
    static const char *const names[] = {
        [F32] = "F32", [F16] = "F16", [BF16] = "BF16", [F64] = "F64"};
    for (int i = F32; i <= F64; i++)
        if (strcmp(names[i], dtype) == 0) return (real_type)i;
    return NONE;
}

size_t fr__real_bytes(const char *dtype)
{
    static const size_t bytes[] = {[NONE] = 0, [F32] = 4, [F16] = 2, [BF16] = 2, [F64] = 8};
    return bytes[type_of(dtype)];
}

static float f16_value(uint16_t f16)
{
    uint32_t exponent = f16 >> 10 & 31, fraction = f16 & 1023, sign = (uint32_t)f16 >> 15 << 31;
    uint32_t bits = (exponent + 112) << 23 | fraction << 13;
    float value = (float)fraction * 0x1p-24f; /* without a leading 1: exact */
    if (exponent == 0) memcpy(&bits, &value, sizeof bits);
    if (exponent == 31) bits = 0x7F800000 | fraction << 13;
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t f16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 31 << 15, size = bits & 0x7FFFFFFF;
    if (size > 0x7F800000) return (uint16_t)(sign | 0x7E00);  /* NaN */
    if (size >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* 65520 and above: infinite */
    /* Below 2^-14 a step is 2^-24; a result of 1024 steps is the smallest with a leading 1. */
    if (size < 0x38800000) return (uint16_t)(sign | (uint32_t)lrintf(fabsf(value) * 0x1p24f));
    return (uint16_t)(sign | (size + 0xFFF + (size >> 13 & 1) - 0x38000000) >> 13);
}

void fr__real_read(const char *dtype, const void *raw, size_t n, float *values)
{
    real_type type = type_of(dtype);
    const char *at = raw;
    if (type == F32 && n) memcpy(values, raw, n * sizeof *values);
    for (size_t i = 0; i < n && (type == F16 || type == BF16); i++) {
        uint16_t half;
        memcpy(&half, at + i * sizeof half, sizeof half);
        values[i] = type == F16 ? f16_value(half) : fr__bf16_value(half);
    }
    for (size_t i = 0; i < n && type == F64; i++) {
        double value;
        memcpy(&value, at + i * sizeof value, sizeof value);
        values[i] = (float)value;
    }
}

bool fr__real_write(const char *dtype, const float *values, size_t n, void *raw)
{
    real_type type = type_of(dtype);
    char *at = raw;
    bool fits = true;
    if (type == F32 && n) memcpy(raw, values, n * sizeof *values);
    for (size_t i = 0; i < n && type != F32; i++) {
        uint16_t half = type == F16 ? f16_of(values[i]) : fr__bf16_of(values[i]);
        float back = type == F16 ? f16_value(half) : fr__bf16_value(half);
        fits = fits && (isfinite(back) || !isfinite(values[i]));
        memcpy(at + i * sizeof half, &half, sizeof half);
    }
    return fits;
}
