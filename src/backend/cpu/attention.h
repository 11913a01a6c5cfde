/* attention.h -- parts of attention on the cpu: rows of scores (attention_scores.c), and heads
 * whose products are of bf16 (attention_bf16.c). */
#ifndef FR_BACKEND_CPU_ATTENTION_H
#define FR_BACKEND_CPU_ATTENTION_H

#include "backend/cpu/cpu.h"

enum { FR_QUERY_BLOCK = 64 }; /* queries whose scores are in scratch at a time */

/* Which keys a query may attend to, apart from a mask. */
typedef struct fr__sight {
    int64_t keys; /* valid ones */
    bool is_causal;
    int64_t window; /* keys up to the query itself, of causal attention; 0: all */
} fr__sight;

/* Queries first .. first + n - 1 and the keys that one of them may attend to. */
typedef struct fr__block {
    int64_t first, n;
    int64_t low, keys; /* first key, an even one, and their number: 0 or more */
} fr__block;

static inline fr__block fr__find_block(const fr__sight *sight, int64_t first, int64_t time)
{
    fr__block b = {.first = first, .n = time - first, .keys = sight->keys};
    if (b.n > FR_QUERY_BLOCK) b.n = FR_QUERY_BLOCK;
    if (sight->is_causal && first + b.n < b.keys) b.keys = first + b.n;
    if (sight->window > 0 && first >= sight->window) b.low = (first + 1 - sight->window) / 2 * 2;
    b.keys = b.keys > b.low ? b.keys - b.low : 0;
    return b;
}

/* Scores of a block of queries of one head. */
typedef struct fr__scores {
    fr__block block;
    fr__sight sight;
    float *at;    /* (n, keys): products q k^T */
    float *grads; /* (n, keys): gradients of the probabilities */
    float scale;
    float *lse;         /* (n): log of the sum of exponentials; INFINITY: the query sees nothing */
    fr__source mask;    /* at the first query and key; rows ld_mask apart. NULL: none */
    fr__sink mask_grad; /* likewise at the first query and key 0; NULL: not needed */
    int64_t ld_mask, n_mask; /* n_mask: numbers of a row */
} fr__scores;

/* Scores become probabilities, and lse is kept if not NULL. */
void fr__weigh_scores(const fr__scores *s);
/* Scores become probabilities by lse, and `grads` the gradients of the products. */
void fr__slope_scores(const fr__scores *s);

/* Heads of one sample that share k and v. All tensors are bf16, at the first head's first row. Rows
 * of k, v and their gradients are ld_kv apart, those of y and dy ld_y. */
typedef struct fr__head_bf16 {
    const uint16_t *q;         /* (T, group x d), rows ld_q apart */
    const uint16_t *k, *v;     /* (S, d) */
    const uint16_t *dy;        /* (T, group x d) */
    uint16_t *y;               /* (T, group x d) */
    uint16_t *dq, *dk, *dv;    /* as q, k, v; NULL: not needed */
    float *lse;                /* (group, T): written by forward unless NULL, read by backward */
    int64_t time, keys, depth; /* T, S, d */
    int group;                 /* heads of q */
    int64_t ld_q, ld_kv, ld_y;
    fr__sight sight;
    float scale;
} fr__head_bf16;

/* Whether this device has these functions for heads of this depth. */
bool fr__attends_bf16(const fr_device *dev, int64_t depth);
/* Scratch of a thread, in bytes, a multiple of 64. */
size_t fr__attend_bf16_bytes(int64_t keys, int64_t depth);
void fr__attend_bf16(const fr__head_bf16 *h, void *scratch);
void fr__attend_back_bf16(const fr__head_bf16 *h, void *scratch);

#endif
