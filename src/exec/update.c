/* update.c -- the update of a stage: squares of its gradient, the optimizer's sweep, its end.
 *
 * An update that is fused into the last backward (pass.c), or made bucket by bucket as the sums of
 * replicas arrive (grad_reduction.c), needs no sweep. */
#include "exec/stage.h"

int64_t fr__exec_version(const fr__exec *x) { return fr_store_version(x->store); }

const fr_prediction_error *fr__exec_prediction_error(const fr__exec *x)
{
    return x->store ? fr_store_error(x->store) : NULL;
}

double fr__exec_grad_scale(const fr__exec *x)
{
    return x->d.sums_replicas ? 1 : (double)x->d.n_replicas;
}

int fr__exec_n_own(const fr__exec *x) { return x->n_own; }

void fr__exec_squares(fr__exec *x, double *of_param)
{
    fr__device_squares(x->dev, x->grads, x->norm_blocks, x->n_norm_blocks, x->norm_sums);
    for (int i = 0; i < x->n_own; i++) of_param[i] = 0;
    for (size_t i = 0; i < x->n_norm_blocks; i++) of_param[x->norm_owners[i]] += x->norm_sums[i];
}

void fr__exec_sum_own_ties(fr__exec *x) { fr_program_sum_ties(x->layout, x->grads); }

void fr__exec_sweep(fr__exec *x, int64_t batch, double grad_scale)
{
    fr_store_begin(x->store, batch, grad_scale);
    fr_store_range(x->store, 0, x->n_weights, x->grads);
}

fr_status fr__exec_end_step(fr__exec *x)
{
    return fr_store_end(x->store, x->d.update_in_backward ? x->n_updated : x->n_weights);
}
