/* update.h -- the stage executor from gradients to weights: updates, tied parameters, replicas. */
#ifndef FR_EXEC_UPDATE_H
#define FR_EXEC_UPDATE_H

#include "exec/exec.h"

/* --- update (update.c) --------------------------------------------------------------------------
 */

int64_t fr__exec_version(const fr__exec *x);
const fr_prediction_error *fr__exec_prediction_error(const fr__exec *x); /* NULL: none */
/* Factor of a replica's own gradient in its own step. */
double fr__exec_grad_scale(const fr__exec *x);
/* Squares of the gradient by parameter of the stage's own, in graph order, in a fixed order of
 * additions: the same on one worker and on several. */
int fr__exec_n_own(const fr__exec *x);
void fr__exec_squares(fr__exec *x, double *of_param);
/* Add the gradients of parameters tied inside the stage to their owners'. */
void fr__exec_sum_own_ties(fr__exec *x);
/* One sweep over all weights; then the end of the update. An update that was fused into the last
 * backward or made by fr__exec_take (FR__TAKE_STEP) only ends. */
void fr__exec_sweep(fr__exec *x, int64_t batch, double grad_scale);
fr_status fr__exec_end_step(fr__exec *x);

/* --- tied parameters (ties.c) -------------------------------------------------------------------
 */

/* Parameters of this stage that are tied to other stages. */
fr_status fr__exec_tie(fr__exec *x, int param);
size_t fr__exec_tie_bytes(const fr__exec *x); /* of plain copies in host memory */
/* n_loans: mini-batches whose weights are lent at the same time; 0 with a flush. */
fr_status fr__exec_open_ties(fr__exec *x, int n_loans);
/* Between gradients and plain copies, where there are any: before the pieces, after them. */
fr_status fr__exec_read_ties(fr__exec *x);
fr_status fr__exec_write_ties(fr__exec *x);
/* Values first .. first + n - 1 of a tied gradient: to host memory; the sum of host blocks in its
 * place, added in order. */
void fr__exec_copy_tie(fr__exec *x, int param, size_t first, size_t n, void *to);
void fr__exec_sum_tie(fr__exec *x, int param, size_t first, size_t n, int n_parts,
                      const void *const *parts);

/* Without a flush: the stage that owns a parameter lends its values to the stages that are tied to
 * it. The weights of the owner that a forward read (view NULL: the newest), as plain values. */
fr_status fr__exec_lend(fr__exec *x, int param, const fr_view *view, void *plain);
/* Passes of loan->batch read `plain` as that parameter; it is valid until their step. */
void fr__exec_borrow(fr__exec *x, int param, const void *plain, const fr__loan *loan);
/* The loan that the last pass read; NULL: none. */
const fr__loan *fr__exec_read_loan(const fr__exec *x);
/* The pipeline is empty: the newest values of the owner become the stage's own copy. */
fr_status fr__exec_settle(fr__exec *x, int param, const void *plain);
/* The gradient of a copy, as plain values; add it to that of the owner. (The step of the stage
 * changes its copy, too, but passes read what was lent.) */
fr_status fr__exec_copy_grad(fr__exec *x, int param, void *plain);
fr_status fr__exec_add_grad(fr__exec *x, int param, const void *plain);

/* --- replicas (grad_reduction.c, replica_statistics.c, sync.c) ----------------------------------
 */

int fr__exec_n_buckets(const fr__exec *x); /* 0: no reduction */
size_t fr__exec_bucket_bytes(const fr__exec *x, int bucket);
/* Post all buckets that the last backward has not posted. */
fr_status fr__exec_post(fr__exec *x, bool is_alive);
/* Wait for the sums of the replicas, bucket by bucket. *is_alive false: some replica had nothing to
 * give, and nothing was taken. */
typedef enum fr__take {
    FR__TAKE_BACK, /* the sum replaces the replica's own gradient */
    FR__TAKE_STEP, /* each piece is stepped as it arrives */
    FR__TAKE_DROP
} fr__take;
fr_status fr__exec_take(fr__exec *x, int64_t batch, fr__take what, bool *is_alive);
/* The mean of running statistics, while the pipeline is empty. */
fr_status fr__exec_mean_statistics(fr__exec *x);
/* By the rule of replicas that step alone; without one they do nothing. */
fr_status fr__exec_begin_sync(fr__exec *x);
fr_status fr__exec_after_step(fr__exec *x, int64_t batch, bool *all_alive);
fr_status fr__exec_drain_sync(fr__exec *x, int64_t version);

#endif
