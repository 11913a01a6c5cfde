/* op_shape.c -- operators that join, reverse or reduce: add, concat, flatten, reverse, mean and
 * last over time. */
#include "graph/op.h"

static fr_status fail_pair(const fr__infer *t, int i, const char *needs)
{
    char a[96], b[96];
    return fr__op_fail(t, "input %s is %s and input %s is %s; %s", t->in[0]->name,
                       fr_shape_text(&t->in[0]->shape, a, sizeof a), t->in[i]->name,
                       fr_shape_text(&t->in[i]->shape, b, sizeof b), needs);
}

fr_status fr__infer_add(fr__infer *t)
{
    for (int i = 0; i < 2; i++) FR_TRY(fr__op_input(t, i, FR_F32, 0, FR_MAX_DIMS));
    if (!fr_shape_equal(&t->in[0]->shape, &t->in[1]->shape))
        return fail_pair(t, 1, "they must be equal");
    fr__op_output(t, t->in[0]->shape);
    fr__op_flops(t, (double)fr_shape_count(&t->node->shape), 0, 0);
    return FR_OK;
}

fr_status fr__infer_concat(fr__infer *t)
{
    static const char *const needs[] = {"they must be equal except for the first dimension",
                                        "they must be equal except for the second dimension",
                                        "they must be equal except for the third dimension",
                                        "they must be equal except for the fourth dimension"};
    fr_shape y = {0};
    int axis = t->node->attrs.concat.axis;
    if (axis < 0 || axis >= FR_MAX_DIMS)
        return fr__op_fail(t, "axis is %d; it must be between 0 and %d", axis, FR_MAX_DIMS - 1);
    for (int i = 0; i < t->node->n_inputs; i++) {
        FR_TRY(fr__op_input(t, i, FR_F32, axis + 1, FR_MAX_DIMS));
        fr_shape s = t->in[i]->shape;
        int64_t more = s.dim[axis];
        if (i == 0) {
            y = s;
            continue;
        }
        s.dim[axis] = y.dim[axis];
        if (!fr_shape_equal(&s, &y)) return fail_pair(t, i, needs[axis]);
        y.dim[axis] += more;
    }
    fr__op_output(t, y);
    return FR_OK;
}

fr_status fr__infer_reverse_time(fr__infer *t)
{
    FR_TRY(fr__op_input(t, 0, t->in[0]->dtype, 1, FR_MAX_DIMS));
    FR_TRY(fr__op_length(t, 1));
    fr__op_moved(t, t->in[0]->shape);
    return FR_OK;
}

fr_status fr__infer_flatten(fr__infer *t)
{
    FR_TRY(fr__op_input(t, 0, FR_F32, 0, FR_MAX_DIMS));
    fr__op_output(t, FR_SHAPE(fr_shape_count(&t->in[0]->shape)));
    return FR_OK;
}

fr_status fr__infer_time(fr__infer *t)
{
    FR_TRY(fr__op_input(t, 0, FR_F32, 2, 2));
    FR_TRY(fr__op_length(t, 1));
    fr__op_output(t, FR_SHAPE(t->in[0]->shape.dim[1]));
    double n = (double)fr_shape_count(&t->in[0]->shape);
    if (t->node->op == FR_OP_MEAN_TIME) fr__op_flops(t, n, n, 0);
    return FR_OK;
}
