/* dropout.h -- the dropout rule of every backend, so that masks agree bit for bit.
 *
 * Element e (its plain row-major index inside the sample) of a sample is kept or dropped as a
 * pure function of (seed, node, step, sample in the mini-batch, e): no mask is stored, a backward
 * draws it again, and the mask does not depend on the backend, the micro-batch or the stage.
 *
 *     words = fr__random4(seed, FR_STREAM_DROPOUT, node, e / 4 | step << 32, sample)
 *     kept  = unit_float(words[e % 4]) >= p
 *
 * stochastic_depth keeps or drops a sample as dropout does its element 0 (Huang et al., Deep
 * Networks with Stochastic Depth, 2016; here with the scale in training).
 *
 * dropout:       kept ? x * 1/(1-p) : 0
 * alpha_dropout: kept ? a*x + b : a*alpha' + b, which keeps zero mean and unit variance
 *                (Klambauer et al., Self-Normalizing Neural Networks, 2017). */
#ifndef FR_BACKEND_DROPOUT_H
#define FR_BACKEND_DROPOUT_H

#include <forerun/backend.h>
#include <math.h>

#include "base/philox.h"

/* The limit of selu for very negative inputs: -scale * alpha. */
#define FR_SELU_SCALE 1.0507009873554804934193349852946
#define FR_SELU_ALPHA 1.6732632423543772848170429916717
#define FR_ALPHA_PRIME (-FR_SELU_SCALE * FR_SELU_ALPHA)

/* Random words of elements 4 * quad .. 4 * quad + 3 of sample `sample` of the micro-batch.
 * node: index in the graph. */
static inline void fr__dropout_words(const fr_pass *pass, int node, int64_t sample, int64_t quad,
                                     uint32_t words[4])
{
    uint64_t at = (uint64_t)(uint32_t)quad | (uint64_t)pass->step << 32;
    fr__random4(pass->seed, FR_STREAM_DROPOUT, (uint32_t)node, at,
                (uint32_t)(pass->first_sample + sample), words);
}

static inline bool fr__dropout_kept(uint32_t word, float p) { return fr__unit_float(word) >= p; }

/* kept ? gain * x + shift : dropped; the gradient is kept ? gain * dy : 0. */
typedef struct fr__dropout_rule {
    float p, gain, shift, dropped;
} fr__dropout_rule;

static inline fr__dropout_rule fr__dropout_rule_of(const fr_node *node)
{
    float p = node->attrs.dropout.p;
    fr__dropout_rule r = {.p = p, .gain = 1.0f / (1.0f - p)};
    if (node->op == FR_OP_ALPHA_DROPOUT) {
        double q = 1.0 - (double)p;
        double a = 1.0 / sqrt(q * (1.0 + (double)p * FR_ALPHA_PRIME * FR_ALPHA_PRIME));
        double b = -a * (double)p * FR_ALPHA_PRIME;
        r.gain = (float)a, r.shift = (float)b, r.dropped = (float)(a * FR_ALPHA_PRIME + b);
    }
    return r;
}

#endif
