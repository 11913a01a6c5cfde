/* op_matrix.c -- operators whose work is matrix products: linear, matmul, conv2d, lstm; and
 * embedding, a product with a one-hot matrix.
 *
 * Parameters have PyTorch's names and layouts: weights (out, in, ...), LSTM gates i, f, g, o. */
#include "graph/op.h"

fr_status fr__infer_linear(fr__infer *t)
{
    int64_t out = t->node->attrs.linear.out;
    FR_TRY(fr__op_input(t, 0, FR_F32, 1, FR_MAX_DIMS));
    FR_TRY(fr__op_size(t, "out", out));
    FR_TRY(fr__op_init(t));
    fr_shape y = t->in[0]->shape;
    int64_t in = y.dim[y.n_dims - 1];
    y.dim[y.n_dims - 1] = out;
    fr__op_output(t, y);
    fr__op_param(t, "weight", FR_SHAPE(out, in),
                 fr__op_weight_init(t, fr__op_uniform_init((double)in), (double)in, (double)out),
                 false);
    bool has_bias = !t->node->attrs.linear.no_bias;
    if (has_bias) fr__op_param(t, "bias", FR_SHAPE(out), fr__op_bias_init(t, (double)in), false);
    double rows = (double)fr_shape_count(&t->in[0]->shape) / (double)in;
    double product = 2 * rows * (double)in * (double)out;
    double bias = has_bias ? rows * (double)out : 0;
    fr__op_flops(t, product + bias, product, product + bias);
    return FR_OK;
}

fr_status fr__infer_matmul(fr__infer *t)
{
    char a[96], b[96];
    for (int i = 0; i < 2; i++) FR_TRY(fr__op_input(t, i, FR_F32, 2, FR_MAX_DIMS));
    const fr_shape *left = &t->in[0]->shape, *right = &t->in[1]->shape;
    int last = left->n_dims - 1;
    bool fits = right->n_dims == left->n_dims && left->dim[last] == right->dim[last - 1];
    for (int i = 0; i < last - 1; i++) fits = fits && left->dim[i] == right->dim[i];
    if (!fits)
        return fr__op_fail(t, "input %s is %s and input %s is %s; it takes %s", t->in[0]->name,
                           fr_shape_text(left, a, sizeof a), t->in[1]->name,
                           fr_shape_text(right, b, sizeof b), fr__op_about(t->node->op));
    fr_shape y = *left;
    y.dim[last] = right->dim[last];
    fr__op_output(t, y);
    double product = 2 * (double)fr_shape_count(left) * (double)y.dim[last];
    fr__op_flops(t, product, 2 * product, 0);
    return FR_OK;
}

fr_status fr__op_window(const fr__infer *t, int axis, int64_t in, const int kernel[2],
                        const int stride[2], const int pad[2], int64_t *out)
{
    static const char *const axes[] = {"height", "width"};
    if (kernel[axis] < 1)
        return fr__op_fail(t, "kernel %s is %d; it must be at least 1", axes[axis], kernel[axis]);
    if (stride[axis] < 1)
        return fr__op_fail(t, "stride over the %s is %d; it must be at least 1", axes[axis],
                           stride[axis]);
    if (pad[axis] < 0)
        return fr__op_fail(t, "pad of the %s is %d; it must not be negative", axes[axis],
                           pad[axis]);
    int64_t padded = in + 2 * (int64_t)pad[axis];
    if (kernel[axis] > padded)
        return fr__op_fail(t, "kernel %s %d is larger than the input's %s %lld with padding %d",
                           axes[axis], kernel[axis], axes[axis], (long long)in, pad[axis]);
    *out = (padded - kernel[axis]) / stride[axis] + 1;
    return FR_OK;
}

fr_status fr__infer_conv2d(fr__infer *t)
{
    fr_attrs *a = &t->node->attrs;
    FR_TRY(fr__op_input(t, 0, FR_F32, 3, 3));
    FR_TRY(fr__op_size(t, "out", a->conv2d.out));
    FR_TRY(fr__op_init(t));
    for (int i = 0; i < 2; i++)
        if (a->conv2d.stride[i] == 0) a->conv2d.stride[i] = 1;
    if (a->conv2d.groups == 0) a->conv2d.groups = 1;
    const int64_t *in = t->in[0]->shape.dim; /* C, H, W */
    int64_t out = a->conv2d.out, groups = a->conv2d.groups, h, w;
    if (groups < 1 || in[0] % groups || out % groups)
        return fr__op_fail(t,
                           "groups is %lld; it must divide the %lld input and %lld output "
                           "channels",
                           (long long)groups, (long long)in[0], (long long)out);
    FR_TRY(fr__op_window(t, 0, in[1], a->conv2d.kernel, a->conv2d.stride, a->conv2d.pad, &h));
    FR_TRY(fr__op_window(t, 1, in[2], a->conv2d.kernel, a->conv2d.stride, a->conv2d.pad, &w));
    fr__op_output(t, FR_SHAPE(out, h, w));
    double taps = (double)a->conv2d.kernel[0] * a->conv2d.kernel[1];
    double fan_in = (double)(in[0] / groups) * taps, fan_out = (double)out * taps;
    fr__op_param(t, "weight",
                 FR_SHAPE(out, in[0] / groups, a->conv2d.kernel[0], a->conv2d.kernel[1]),
                 fr__op_weight_init(t, fr__op_uniform_init(fan_in), fan_in, fan_out), false);
    if (!a->conv2d.no_bias)
        fr__op_param(t, "bias", FR_SHAPE(out), fr__op_bias_init(t, fan_in), false);
    double numbers = (double)out * (double)h * (double)w;
    double product = 2 * numbers * fan_in, bias = a->conv2d.no_bias ? 0 : numbers;
    fr__op_flops(t, product + bias, product, product + bias);
    return FR_OK;
}

fr_status fr__infer_embedding(fr__infer *t)
{
    const fr_attrs *a = &t->node->attrs;
    FR_TRY(fr__op_input(t, 0, FR_I32, 1, 1));
    FR_TRY(fr__op_size(t, "vocab", a->embedding.vocab));
    FR_TRY(fr__op_size(t, "width", a->embedding.width));
    FR_TRY(fr__op_init(t));
    int64_t time = t->in[0]->shape.dim[0], width = a->embedding.width;
    int64_t positions = a->embedding.positions;
    if (positions != 0 && (positions < time || positions > FR_MAX_SIZE))
        return fr__op_fail(t,
                           "positions is %lld; it must be 0 (none) or at least the %lld tokens "
                           "of input %s",
                           (long long)positions, (long long)time, t->in[0]->name);
    fr__op_output(t, FR_SHAPE(time, width));
    /* The input is one-hot: a sum of one term, so fan_in is 1. */
    fr_init init = fr__op_weight_init(t, (fr_init){FR_INIT_NORMAL, 0.02f}, 1, (double)width);
    fr__op_param(t, "weight", FR_SHAPE(a->embedding.vocab, width), init, false);
    if (positions) fr__op_param(t, "position", FR_SHAPE(positions, width), init, false);
    double numbers = (double)time * (double)width;
    fr__op_flops(t, positions ? numbers : 0, 0, positions ? 2 * numbers : numbers);
    return FR_OK;
}

fr_status fr__infer_lstm(fr__infer *t)
{
    int64_t hidden = t->node->attrs.lstm.hidden, projection = t->node->attrs.lstm.projection;
    FR_TRY(fr__op_input(t, 0, FR_F32, 2, 2));
    FR_TRY(fr__op_size(t, "hidden", hidden));
    if (projection < 0 || projection > FR_MAX_SIZE)
        return fr__op_fail(t, "projection is %lld; it must be between 0 (none) and %d",
                           (long long)projection, FR_MAX_SIZE);
    int64_t out = projection ? projection : hidden;
    FR_TRY(fr__op_init(t));
    int64_t time = t->in[0]->shape.dim[0], in = t->in[0]->shape.dim[1];
    fr__op_output(t, FR_SHAPE(time, out));
    /* By default, all parameters of an LSTM are initialised by its hidden size, as in PyTorch. */
    double d = (double)in, h = (double)hidden, p = (double)out;
    fr_init preset = fr__op_uniform_init(h), bias = fr__op_bias_init(t, h);
    fr__op_param(t, "weight_ih", FR_SHAPE(4 * hidden, in), fr__op_weight_init(t, preset, d, 4 * h),
                 false);
    fr__op_param(t, "weight_hh", FR_SHAPE(4 * hidden, out), fr__op_weight_init(t, preset, p, 4 * h),
                 false);
    fr__op_param(t, "bias_ih", FR_SHAPE(4 * hidden), bias, false);
    fr__op_param(t, "bias_hh", FR_SHAPE(4 * hidden), bias, false);
    if (projection)
        fr__op_param(t, "weight_hr", FR_SHAPE(projection, hidden),
                     fr__op_weight_init(t, preset, h, p), false);
    double product = 2 * 4 * h * (d + p) + (projection ? 2 * h * p : 0),
           gates = 24 * h; /* five functions, cell, output */
    double n = (double)time;
    fr__op_flops(t, n * (product + 8 * h + gates), n * (product + gates), n * (product + 8 * h));
    return FR_OK;
}
