/* optim.h -- internal to the module: the records of the registry, the common sweep of the adam
 * family, and one block of a norm. */
#ifndef FR_OPTIM_OPTIM_H
#define FR_OPTIM_OPTIM_H

#include <forerun/optim.h>

extern const fr_optimizer fr__optim_sgd, fr__optim_adam, fr__optim_adamw, fr__optim_nadam,
    fr__optim_muon, fr__optim_lion;
extern const fr_lr_schedule fr__lr_constant, fr__lr_step, fr__lr_cosine, fr__lr_polynomial,
    fr__lr_wsd, fr__lr_one_cycle, fr__lr_inverse_sqrt;

extern const fr_optimizer fr__optim_hold; /* of frozen weights: hold.c */

/* Check the settings of every optimizer; NULL if lr and weight_decay are valid. */
const char *fr__optim_check_common(const fr_optim_options *o);

/* The adam family: settings, coefficients and sweeps. See adam_core.c. */
const char *fr__adam_check(const fr_optim_options *o);
/* Shares of d and m in update t, before the learning rate. */
typedef void (*fr__adam_shares_fn)(const fr_optim_options *o, int64_t t, double *by_grad,
                                   double *by_mean);
void fr__adam_shares(const fr_optim_options *o, int64_t t, double *by_grad, double *by_mean);
void fr__adam_fill(const fr_optim_options *o, int64_t t, fr__adam_shares_fn shares,
                   fr_optim_coef *c);
void fr__adam_step(const fr_optim_coef *c, const fr_sweep *s);
void fr__adam_predict(const fr_sweep *s);
double fr__adam_distance(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t,
                         int n, const double *lr);
double fr__adam_distance_by(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t,
                            int n, const double *lr, fr__adam_shares_fn shares);

#define FR_NORM_BLOCK 4096 /* floats */
/* Sum of squares of one block, n <= FR_NORM_BLOCK; of any n: blocks in order, so that any number of
 * threads may sum blocks without a change of bits. */
double fr__sum_squares_block(const float *x, size_t n);
double fr__sum_squares(const float *x, size_t n);

#endif
