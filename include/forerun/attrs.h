/* attrs.h -- settings of a node, by its operator. */
#ifndef FORERUN_ATTRS_H
#define FORERUN_ATTRS_H

#include <forerun/operators.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a parameter starts. DEFAULT: uniform in +-1/sqrt(fan_in) for weights and biases
 * of linear, conv2d and lstm; N(0,1)*0.02 for embeddings; ones and zeros for norms. */
typedef enum fr_init_kind {
    FR_INIT_DEFAULT,
    FR_INIT_ZEROS,
    FR_INIT_ONES,
    FR_INIT_NORMAL,  /* mean 0, standard deviation `scale` */
    FR_INIT_UNIFORM, /* in (-scale, scale) */
    FR_INIT_HE_OUT,  /* normal, sqrt(2 / fan_out): convolutions before a relu */
    FR_INIT_LECUN    /* normal, sqrt(1 / fan_in): self-normalising networks */
} fr_init_kind;

typedef struct fr_init {
    fr_init_kind kind;
    float scale;
} fr_init;

/* Attributes of a node; zero means the default given in the comment.
 * weight_init applies to the weight (matrices); with one other than DEFAULT, biases start at zero.
 */
typedef struct fr_attrs {
    fr_init weight_init;
    union {
        struct {
            fr_shape shape;
            fr_dtype dtype;
        } input;
        struct {
            int64_t out;
            bool no_bias;
        } linear;
        struct {
            int64_t out;
            int kernel[2]; /* height, width; required */
            int stride[2]; /* 1 */
            int pad[2];    /* 0 */
            int groups;    /* 1 */
            bool no_bias;
        } conv2d;
        struct {
            int kernel[2]; /* required */
            int stride[2]; /* kernel */
            int pad[2];    /* 0; avg_pool counts padding as zeros unless count_valid */
            bool count_valid;
        } pool;
        struct {
            float eps;      /* 1e-5 */
            float momentum; /* batch_norm: 0.1, weight of the new value in running statistics */
            int groups;     /* group_norm: required, divides C */
        } norm;
        struct {
            int heads;         /* required, divides D */
            int rotated_heads; /* all; else the first ones, e.g. q and k of q|k|v */
            int rotated_width; /* D / heads; else an even number, the first ones of a head */
            float base;        /* 10000 */
        } rope;
        struct {
            float alpha; /* leaky_relu: slope below zero, 0.01; elu: 1, its limit is -alpha */
        } activation;
        struct {
            float p; /* probability to drop, 0 <= p < 1 */
        } dropout;
        struct {
            int64_t vocab, width;
            int64_t positions; /* 0: none; else at least T */
        } embedding;
        struct {
            int heads;   /* required, divides D */
            bool causal; /* not of cross_attention */
            /* Of sdpa: */
            int kv_heads; /* heads of k and v, each for heads / kv_heads of q; heads */
            int window;   /* with causal: keys that a query sees, itself included; 0: all */
            float scale;  /* of scores; 1/sqrt(D / heads) */
        } attention;
        struct {
            int64_t hidden;
            int64_t projection; /* 0: none; else the output is this wide, and fed back so */
        } lstm;
        struct {
            int axis; /* dimension of a sample along which inputs are put side by side */
        } concat;
        struct {
            int axis;
            int64_t from, to; /* steps of the axis; from < to */
        } slice;
        struct {
            int axis;
            int64_t index; /* negative: from the end */
        } select;
        struct {
            int order[FR_MAX_DIMS]; /* dimension i of the output is order[i] of the input */
        } transpose;
        struct {
            fr_shape shape; /* one dimension may be -1: the rest */
        } reshape;
        struct {
            int64_t before[FR_MAX_DIMS], after[FR_MAX_DIMS]; /* numbers added to each dimension */
            float value;
        } pad;
        struct {
            float label_smoothing; /* 0 <= e < 1 */
            bool has_ignore;       /* skip targets equal to ignore_index too */
            int32_t ignore_index;
            float beta; /* smooth_l1: 1; errors below it count squared */
        } loss;
    };
} fr_attrs;

#ifdef __cplusplus
}
#endif
#endif
