/* bf16.h -- bf16 numbers: the upper half of a float, rounded to the nearest, ties to even. */
#ifndef FR_BASE_BF16_H
#define FR_BASE_BF16_H

#include "base/simd.h"

#include <string.h>

/* A NaN stays one: it keeps sign and upper bits and becomes quiet. */
FR_INLINE uint16_t fr__bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

FR_INLINE float fr__bf16_value(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
