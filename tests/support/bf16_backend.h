/* bf16_backend.h -- a backend whose tensors may be bf16: kernels of another one, which compute with
 * floats and row-major tensors (`ref` and those made of it), behind conversions. */
#ifndef FR_TEST_SUPPORT_BF16_BACKEND_H
#define FR_TEST_SUPPORT_BF16_BACKEND_H

#include "backend/kernel.h"

/* Good until the next call with another base. */
const fr_backend *bf16_backend(const fr_backend *base);

#endif
