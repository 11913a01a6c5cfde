/* harness.h -- run a program on small data, from plain host arrays to plain host arrays.
 *
 * Life: harness_open -> fill x, w, dy (or harness_fill) -> harness_run, any number of times ->
 * read y, dx, dw, after -> harness_close. A run is the harshest caller that the contract allows:
 * outputs, gradients, slot and workspace start as NaN, the workspace and every port that need not
 * be kept become NaN again between forward and backward, and between the halves of a split
 * backward. Recomputed values go to another area than those of the forward, their outputs too. It
 * ends with FR_INTERNAL and a text in ctx if a byte outside the blocks, an input, a given gradient,
 * a weight, or padding of a block was changed, if a gradient keeps any of its NaN, or if one is not
 * reported exactly once. */
#ifndef FR_TEST_SUPPORT_HARNESS_H
#define FR_TEST_SUPPORT_HARNESS_H

#include <forerun/backend.h>

#include "support/net.h"

#define HARNESS_MAX_PORTS 16
#define HARNESS_MAX_PARAMS 64

typedef struct harness_options {
    const fr_backend *backend;
    int n_threads; /* 0: 1 */
    int batch;
    bool eval;        /* forward only, running statistics used */
    bool split;       /* input gradients first, weight gradients later */
    bool zeroed;      /* blocks start as zeros instead of NaN */
    bool transient;   /* gradients are taken as they are reported, and are not read afterwards */
    int extra_output; /* as in fr_program_desc */
    const bool *recompute; /* likewise */
} harness_options;

/* Memory on the device between two guards. */
typedef struct harness_block {
    char *base;
    size_t bytes;
} harness_block;

typedef struct harness {
    harness_options options;
    const fr_graph *graph;
    fr_ctx *ctx;
    fr_device *dev;
    fr_program *program;
    fr_pass pass; /* seed, step, first_sample, loss_scale, accumulate are the caller's to set */

    /* Host arrays, plain, batch first; floats, also where the device has bf16: what goes there is
     * rounded. Counts in numbers. */
    int n_in, n_out, n_params;
    void *x[HARNESS_MAX_PORTS];   /* float or int32_t */
    float *dx[HARNESS_MAX_PORTS]; /* NULL: no gradient */
    float *y[HARNESS_MAX_PORTS];
    float *dy[HARNESS_MAX_PORTS];     /* NULL: no gradient is read */
    float *w[HARNESS_MAX_PARAMS];     /* by placement: trained values or running statistics */
    float *dw[HARNESS_MAX_PARAMS];    /* NULL: running statistics. Read first if accumulating */
    float *after[HARNESS_MAX_PARAMS]; /* running statistics after the forward; else NULL */
    size_t n_x[HARNESS_MAX_PORTS], n_y[HARNESS_MAX_PORTS], n_w[HARNESS_MAX_PARAMS];

    float *placed[HARNESS_MAX_PARAMS]; /* w of those in the weights block: trained, not tied */
    float *reported; /* (n_weights) by grad_ready, if transient; each number must come once */
    int *n_reports;  /* (n_weights) */

    harness_block weights, newest; /* those of the pass, and what they are made of: floats */
    harness_block grads, buffers, slot, workspace;
    harness_block area, again_buffers, again[HARNESS_MAX_PORTS]; /* again: recomputed outputs */
    harness_block in[HARNESS_MAX_PORTS], out[HARNESS_MAX_PORTS];
    harness_block din[HARNESS_MAX_PORTS], dout[HARNESS_MAX_PORTS];
    const void *in_at[HARNESS_MAX_PORTS], *dout_at[HARNESS_MAX_PORTS];
    void *out_at[HARNESS_MAX_PORTS], *din_at[HARNESS_MAX_PORTS];
} harness;

/* FR_OK, or the status of fr_program_create, with the text in h->ctx; close in both cases. */
fr_status harness_open(harness *h, const net *n, const harness_options *options);
/* For a whole graph with its ports, instead of a net. */
fr_status harness_open_graph(harness *h, const fr_graph *g, const fr_stage *stage,
                             const harness_options *options);
void harness_close(harness *h);

/* Reproducible values for x, w and dy from their names, so that the same net gets the same ones on
 * every backend. Integers by n's ranges (n NULL: 0). */
void harness_fill(harness *h, const net *n, uint64_t seed);
/* x, w and dy become numbers of bf16. */
void harness_round(harness *h);
void harness_round_values(float *values, size_t n);
/* n numbers in -1..1. */
void harness_random(uint64_t seed, uint32_t stream, float *values, size_t n);

/* Upload, forward, backward (unless eval), download. */
fr_status harness_run(harness *h);
/* Upload, forward, download of y and after. */
fr_status harness_forward(harness *h);

/* Empty text if got equals want within tolerance * the largest of |want|; else what differs. */
typedef struct verdict {
    char text[256];
} verdict;
bool harness_near(verdict *v, const char *what, const float *got, const float *want, size_t n,
                  double tolerance);
/* All results of a against those of b. */
bool harness_same(verdict *v, const harness *a, const harness *b, double tolerance);

/* The same, before what is stored as bf16 was rounded: there numbers are equal, or rarely
 * neighbours. */
bool harness_near_as(verdict *v, const char *what, fr_dtype type, const float *got,
                     const float *want, size_t n, double tolerance);
bool harness_same_as(verdict *v, const harness *a, const harness *b, double tolerance);

#endif
