/* lanes.h -- eight floats as a vector type of the compiler, for FR_SIMD functions.
 *
 * Arithmetic is written as on floats. A comparison gives a mask, FR_SELECT8 chooses by it. Without
 * vectors of this width the compiler splits them. Macros, not functions: a function that takes or
 * returns such a vector has another calling convention in each version of its caller. */
#ifndef FR_BACKEND_CPU_LANES_H
#define FR_BACKEND_CPU_LANES_H

#include <stdint.h>

#define FR_LANES 8

typedef float fr__v8 __attribute__((vector_size(32)));
typedef int32_t fr__i8 __attribute__((vector_size(32)));
typedef uint32_t fr__u8 __attribute__((vector_size(32)));
typedef uint16_t fr__h8_anywhere __attribute__((vector_size(16), aligned(2), may_alias));
typedef float fr__v8_anywhere __attribute__((vector_size(32), aligned(4), may_alias));

#define FR_LOAD8(from) ((fr__v8)(*(const fr__v8_anywhere *)(from)))
#define FR_STORE8(to, value) ((void)(*(fr__v8_anywhere *)(to) = (value)))
#define FR_ALL8(x) ((fr__v8){(x), (x), (x), (x), (x), (x), (x), (x)})
/* sum + x * v, rounded once. Only for code that runs with has_fma (base/simd.h), which is a
 * constant in optimised builds. Inline assembly, because compilers have no builtin for vectors of
 * any width. */
#if defined(__x86_64__) && defined(__OPTIMIZE__)
#define FR_FMA8(sum, x, v)                                                          \
    do {                                                                            \
        fr__v8 fr_sum = (sum); /* not in place, which would keep it in memory */    \
        __asm__("vfmadd231ps %2, %1, %0" : "+x"(fr_sum) : "x"(FR_ALL8(x)), "x"(v)); \
        (sum) = fr_sum;                                                             \
    } while (0)
#else
#define FR_FMA8(sum, x, v)                                             \
    do {                                                               \
        for (int fr_l = 0; fr_l < FR_LANES; fr_l++)                    \
            (sum)[fr_l] = __builtin_fmaf((x), (v)[fr_l], (sum)[fr_l]); \
    } while (0)
#endif
/* Eight numbers of bf16 as floats, and the way back, as base/bf16.h rounds. */
#define FR_LOAD8_BF16(from) \
    ((fr__v8)(__builtin_convertvector(*(const fr__h8_anywhere *)(from), fr__u8) << 16))
#define FR_STORE8_BF16(to, value)                                                       \
    do {                                                                                \
        const fr__u8 fr_bits = (fr__u8)(value), fr_upper = fr_bits >> 16;               \
        const fr__u8 fr_near = (fr_bits + 0x7FFF + (fr_upper & 1)) >> 16;               \
        const fr__u8 fr_is_nan = (fr__u8)((fr_bits & 0x7FFFFFFF) > 0x7F800000);         \
        *(fr__h8_anywhere *)(to) = __builtin_convertvector(                             \
            (fr_is_nan & (fr_upper | 0x40)) | (~fr_is_nan & fr_near), fr__h8_anywhere); \
    } while (0)
#define FR_SELECT8(mask, yes, no) ((fr__v8)(((mask) & (fr__i8)(yes)) | (~(mask) & (fr__i8)(no))))

#endif
