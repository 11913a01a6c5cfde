/* judge.h -- a backend whose kernels are checked one call at a time, in layouts of the test's
 * choice.
 *
 * Each kernel of the inner backend is wrapped. Image inputs are reordered to a forced layout,
 * independent of the previous kernel and of this processor. All memory that a call must write
 * (output, gradients, saved values, scratch, cache) is NaN before it. After it, every tensor that
 * it wrote must have zeros in its padding: the next kernel may read them. */
#ifndef FR_TEST_SUPPORT_JUDGE_H
#define FR_TEST_SUPPORT_JUDGE_H

#include "backend/kernel.h"

/* Channels per block. */
typedef enum judge_layout {
    JUDGE_OWN,       /* as the backend chooses on this processor */
    JUDGE_ROW_MAJOR, /* everywhere */
    JUDGE_8,
    JUDGE_16,
    JUDGE_MIXED, /* row-major, 8 and 16 in turn, other ones for each input of each node */
    JUDGE_LAYOUT_COUNT
} judge_layout;

extern const char *const judge_layout_names[JUDGE_LAYOUT_COUNT];

/* The wrapped cpu backend; good until the next call. Not for several devices at once. */
const fr_backend *judge_cpu(judge_layout layout);

#endif
