/* vmath.h -- exp, tanh, sigmoid, silu and gelu as straight-line code that a compiler vectorises.
 *
 * exp: x = n ln2 + r with |r| <= ln2/2, a degree-6 polynomial for e^r (relative error below 2e-7)
 * and n added to the exponent bits. Inputs that are not finite give NaN, so that they are not
 * hidden. */
#ifndef FR_BACKEND_CPU_VMATH_H
#define FR_BACKEND_CPU_VMATH_H

#include "base/simd.h"

#include <stdint.h>
#include <string.h>

FR_INLINE float fr__bits_to_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

FR_INLINE uint32_t fr__float_to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

FR_INLINE float fr__exp(float given)
{
    /* |x| is clamped to 87 by a comparison of bits. With comparisons of floats the compiler would
     * propagate the two clamped cases through the rest and blend three results at the end. */
    uint32_t bits = fr__float_to_bits(given), magnitude = bits & 0x7fffffffu;
    magnitude = magnitude < 0x42ae0000u ? magnitude : 0x42ae0000u;
    float x = fr__bits_to_float(magnitude | (bits & 0x80000000u));
    /* Adding 1.5 * 2^23 rounds to an integer in the low mantissa bits. */
    float t = x * 1.44269504f + 12582912.0f;
    float n = t - 12582912.0f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.3981999e-3f;
    p = p * r + 8.3334519e-3f;
    p = p * r + 4.1665796e-2f;
    p = p * r + 1.6666666e-1f;
    p = p * r + 5.0000001e-1f;
    p = (p * r) * r + r + 1.0f;
    return p * fr__bits_to_float((fr__float_to_bits(t) << 23) + 0x3f800000u) + (given - given);
}

FR_INLINE float fr__sigmoid(float x) { return 1.0f / (1.0f + fr__exp(-x)); }

FR_INLINE float fr__tanh(float x) { return 1.0f - 2.0f / (fr__exp(2.0f * x) + 1.0f); }

#define FR_GELU_A 0.7978845608f /* sqrt(2 / pi) */
#define FR_GELU_B 0.044715f

/* 0.5 x (1 + tanh(a (x + b x^3))) = x sigmoid(2 a (x + b x^3)) */
FR_INLINE float fr__gelu(float x)
{
    return x * fr__sigmoid(x * (2.0f * FR_GELU_A + 2.0f * FR_GELU_A * FR_GELU_B * (x * x)));
}

FR_INLINE float fr__gelu_slope(float x)
{
    float square = x * x;
    float s = fr__sigmoid(x * (2.0f * FR_GELU_A + 2.0f * FR_GELU_A * FR_GELU_B * square));
    return s + s * (1.0f - s) * (x * (2.0f * FR_GELU_A + 6.0f * FR_GELU_A * FR_GELU_B * square));
}

FR_INLINE float fr__silu_slope(float x)
{
    float s = fr__sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

/* The distribution function of the normal distribution at x, given bell = exp(-x^2 / 2). For x < 0
 * it is bell * t * p(t) with t = 1 / (1 + 0.305 |x|), where p is the polynomial of degree 7 with
 * the least relative error, 9.4e-8, for |x| up to 13. So the far left is not a difference of
 * numbers near 1. */
FR_INLINE float fr__normal(float x, float bell)
{
    float size = x < 0.0f ? -x : x;
    float t = 1.0f / (1.0f + 0.305f * size);
    float p = 0.0366991989f;
    p = p * t - 0.152988345f;
    p = p * t + 0.185716956f;
    p = p * t - 0.0379768734f;
    p = p * t + 0.1210217f;
    p = p * t + 0.10342086f;
    p = p * t + 0.122466818f;
    p = p * t + 0.121639733f;
    float tail = bell * (t * p);
    return x < 0.0f ? tail : 1.0f - tail;
}

FR_INLINE float fr__gelu_exact(float x) { return x * fr__normal(x, fr__exp(-0.5f * (x * x))); }

FR_INLINE float fr__gelu_exact_slope(float x)
{
    float bell = fr__exp(-0.5f * (x * x));
    return fr__normal(x, bell) + x * bell * 0.3989422804f; /* 1 / sqrt(2 pi) */
}

#endif
