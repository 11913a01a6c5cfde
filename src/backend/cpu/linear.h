/* linear.h -- shared by the two kernels of linear: floats only (linear.c), and either type
 * (linear_bf16.c). */
#ifndef FR_BACKEND_CPU_LINEAR_H
#define FR_BACKEND_CPU_LINEAR_H

#include "backend/cpu/cpu.h"

/* What follows the product in a group. */
typedef enum fr__tail { FR_TAIL_NONE, FR_TAIL_RELU, FR_TAIL_GELU, FR_TAIL_ADD } fr__tail;

static inline fr__tail fr__tail_of(const fr__kernel_spec *spec)
{
    if (fr__group_has(spec, FR_OP_RELU)) return FR_TAIL_RELU;
    if (fr__group_has(spec, FR_OP_GELU)) return FR_TAIL_GELU;
    return fr__group_has(spec, FR_OP_ADD) ? FR_TAIL_ADD : FR_TAIL_NONE;
}

/* Floats from row to row of a W of floats. Rows whose length is a multiple of 2 KB are 64 bytes
 * further apart: otherwise all start in the same cache sets, and the input gradient of a small
 * batch runs at half speed (44 against 97 GF/s for 64 x 2048 x 2048 on one Zen 3 core). */
static inline int64_t fr__padded_row(int64_t in) { return in % 512 == 0 ? in + 16 : in; }

/* If the gradient of a large W is not kept, it is computed in panels of rows, which are passed to
 * the optimizer while they are in cache and never written to memory. */
enum { FR_PANEL_ROWS = 512, FR_LARGE_WEIGHT = 1 << 20 /* floats */ };

/* ld: floats from row to row. */
static inline bool fr__hands_over_panels(const fr__kernel_spec *spec, int64_t out, int64_t ld)
{
    return spec->training && out * ld >= FR_LARGE_WEIGHT && out >= FR_PANEL_ROWS;
}

/* In this call. */
static inline bool fr__hands_over_now(const fr__kernel *k, const fr__kernel_args *a)
{
    return k->reports_ready && a->pass->transient_grads && a->pass->grad_ready && !a->add_dw;
}

#endif
