/* attention.h -- one head of one sample whose products are of bf16 (attention_bf16.c). */
#ifndef FR_BACKEND_CPU_ATTENTION_H
#define FR_BACKEND_CPU_ATTENTION_H

#include "backend/cpu/cpu.h"

/* All tensors are bf16, at the head's first row. Rows of k, v and their gradients are ld_kv apart,
 * those of y and dy ld_y. */
typedef struct fr__head_bf16 {
    const uint16_t *q;         /* (T, d), rows ld_q apart */
    const uint16_t *k, *v;     /* (S, d) */
    const uint16_t *dy;        /* (T, d) */
    uint16_t *y;               /* (T, d) */
    uint16_t *dq, *dk, *dv;    /* as q, k, v; NULL: not needed */
    float *lse;                /* (T): written by forward unless NULL, read by backward */
    int64_t time, keys, depth; /* T, S, d */
    int64_t seen;              /* keys that are valid */
    int64_t ld_q, ld_kv, ld_y;
    bool is_causal;
    float scale;
} fr__head_bf16;

/* Whether this device has these functions for heads of this depth. */
bool fr__attends_bf16(const fr_device *dev, int64_t depth);
/* Scratch of a thread, in bytes, a multiple of 64. */
size_t fr__attend_bf16_bytes(int64_t keys, int64_t depth);
void fr__attend_bf16(const fr__head_bf16 *h, void *scratch);
void fr__attend_back_bf16(const fr__head_bf16 *h, void *scratch);

#endif
