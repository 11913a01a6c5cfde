/* lanes.h -- eight floats side by side, as a type of the compiler's, for FR_SIMD functions.
 *
 * Arithmetic is written as on floats. A comparison gives a mask, FR_SELECT8 chooses by it. Without
 * vectors of this width the compiler splits them. Macros, not functions: a function that takes or
 * returns such a vector has another calling convention in each version of its caller. */
#ifndef FR_BACKEND_CPU_LANES_H
#define FR_BACKEND_CPU_LANES_H

#include <stdint.h>

#define FR_LANES 8

typedef float fr_v8 __attribute__((vector_size(32)));
typedef int32_t fr_i8 __attribute__((vector_size(32)));
typedef float fr_v8_anywhere __attribute__((vector_size(32), aligned(4), may_alias));

#define FR_LOAD8(from) ((fr_v8)(*(const fr_v8_anywhere *)(from)))
#define FR_STORE8(to, value) ((void)(*(fr_v8_anywhere *)(to) = (value)))
#define FR_ALL8(x) ((fr_v8){(x), (x), (x), (x), (x), (x), (x), (x)})
#define FR_SELECT8(mask, yes, no) ((fr_v8)(((mask) & (fr_i8)(yes)) | (~(mask) & (fr_i8)(no))))

#endif
