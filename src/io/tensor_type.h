/* tensor_type.h -- element types of weights that other programs write, to and from float. */
#ifndef FR_IO_TENSOR_TYPE_H
#define FR_IO_TENSOR_TYPE_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of one value of F32, F16, BF16 or F64; 0: other types do not become weights. */
size_t fr__real_bytes(const char *dtype);

/* n values as they are in a file, to floats. F64 is rounded and may become infinite. */
void fr__real_read(const char *dtype, const void *raw, size_t n, float *values);

/* Floats to F32, F16 or BF16, rounded to nearest even. False: a finite value is too large. */
bool fr__real_write(const char *dtype, const float *values, size_t n, void *raw);

#endif
