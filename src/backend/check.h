/* check.h -- targets and ids come from the user's data and index memory: the forward checks them
 * before use, with one text for all backends. */
#ifndef FR_BACKEND_CHECK_H
#define FR_BACKEND_CHECK_H

#include "backend/kernel.h"

/* Whether a loss node counts a target, or ignores it. */
static inline bool fr__target_counts(const fr_node *loss, int32_t target)
{
    if (target == FR_TARGET_IGNORE) return false;
    return !loss->attrs.loss.has_ignore || target != loss->attrs.loss.ignore_index;
}

/* Kernels of one node: cross_entropy or bce, whose targets are x[1]; embedding, whose ids are x[0].
 * For memory that the host may read. */
fr_status fr__check_targets(const fr__kernel *k, const fr__kernel_args *a);
fr_status fr__check_shares(const fr__kernel *k, const fr__kernel_args *a); /* 0 .. 1, or NaN */
fr_status fr__check_ids(const fr__kernel *k, const fr__kernel_args *a);

/* Fail with FR_INVALID for a value out of range at flat index `at`. The text names node, sample of
 * the mini-batch, position and value. */
fr_status fr__refuse_target(const fr__kernel *k, const fr__kernel_args *a, int64_t at,
                            int32_t value);
fr_status fr__refuse_id(const fr__kernel *k, const fr__kernel_args *a, int64_t at, int32_t value);

#endif
