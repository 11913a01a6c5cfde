/* op_move.c -- operators that put numbers in other places: slice, select, transpose, reshape, pad.
 *
 * All but pad move ids, too, because nothing is computed. */
#include "graph/op.h"

void fr__op_moved(fr__infer *t, fr_shape shape)
{
    fr__op_output(t, shape);
    if (t->in[0]->dtype == FR_I32) t->node->dtype = FR_I32;
}

/* Does the input, of floats or ids, have this dimension? */
static fr_status check_axis(const fr__infer *t, int axis)
{
    FR_TRY(fr__op_input(t, 0, t->in[0]->dtype, 1, FR_MAX_DIMS));
    if (axis >= 0 && axis < t->in[0]->shape.n_dims) return FR_OK;
    return fr__op_fail(t, "axis is %d; it must be between 0 and %d, as input %s has %d dimensions",
                       axis, t->in[0]->shape.n_dims - 1, t->in[0]->name, t->in[0]->shape.n_dims);
}

fr_status fr__infer_slice(fr__infer *t)
{
    int64_t from = t->node->attrs.slice.from, to = t->node->attrs.slice.to;
    int axis = t->node->attrs.slice.axis;
    fr_shape s = t->in[0]->shape;
    FR_TRY(check_axis(t, axis));
    if (from < 0 || to <= from || to > s.dim[axis])
        return fr__op_fail(t, "from %lld to %lld is outside the %lld steps of input %s",
                           (long long)from, (long long)to, (long long)s.dim[axis], t->in[0]->name);
    s.dim[axis] = to - from;
    fr__op_moved(t, s);
    return FR_OK;
}

fr_status fr__infer_select(fr__infer *t)
{
    int axis = t->node->attrs.select.axis;
    int64_t *index = &t->node->attrs.select.index;
    fr_shape s = t->in[0]->shape;
    FR_TRY(check_axis(t, axis));
    if (*index < -s.dim[axis] || *index >= s.dim[axis])
        return fr__op_fail(t, "index is %lld; it must be between %lld and %lld for input %s",
                           (long long)*index, -(long long)s.dim[axis], (long long)s.dim[axis] - 1,
                           t->in[0]->name);
    if (*index < 0) *index += s.dim[axis];
    s.n_dims--;
    for (int i = axis; i < s.n_dims; i++) s.dim[i] = s.dim[i + 1];
    fr__op_moved(t, s);
    return FR_OK;
}

fr_status fr__infer_transpose(fr__infer *t)
{
    const int *order = t->node->attrs.transpose.order;
    const fr_shape *in = &t->in[0]->shape;
    FR_TRY(fr__op_input(t, 0, t->in[0]->dtype, 1, FR_MAX_DIMS));
    fr_shape s = {.n_dims = in->n_dims};
    unsigned seen = 0;
    for (int i = 0; i < s.n_dims; i++) {
        if (order[i] < 0 || order[i] >= s.n_dims || seen >> order[i] & 1)
            return fr__op_fail(t,
                               "order has %d at place %d; it must have each of the dimensions 0 to "
                               "%d of input %s once",
                               order[i], i, s.n_dims - 1, t->in[0]->name);
        seen |= 1u << order[i];
        s.dim[i] = in->dim[order[i]];
    }
    fr__op_moved(t, s);
    return FR_OK;
}

fr_status fr__infer_reshape(fr__infer *t)
{
    fr_shape *s = &t->node->attrs.reshape.shape;
    int64_t all = fr_shape_count(&t->in[0]->shape), rest = all;
    char text[96];
    int open = -1;
    FR_TRY(fr__op_input(t, 0, t->in[0]->dtype, 0, FR_MAX_DIMS));
    if (s->n_dims < 0 || s->n_dims > FR_MAX_DIMS)
        return fr__op_fail(t, "shape has %d dimensions; at most %d are possible", s->n_dims,
                           FR_MAX_DIMS);
    bool fits = true;
    for (int i = 0; i < s->n_dims && fits; i++) {
        fits = s->dim[i] >= 1 || (s->dim[i] == -1 && open < 0);
        if (s->dim[i] == -1) {
            open = i;
        } else if (fits) {
            fits = rest % s->dim[i] == 0;
            rest /= s->dim[i];
        }
    }
    if (!fits || (open < 0 && rest != 1))
        return fr__op_fail(t,
                           "shape is %s; it must have the %lld numbers of input %s, and one "
                           "dimension may be -1",
                           fr_shape_text(s, text, sizeof text), (long long)all, t->in[0]->name);
    if (open >= 0) s->dim[open] = rest;
    fr__op_moved(t, *s);
    return FR_OK;
}

fr_status fr__infer_pad(fr__infer *t)
{
    const fr_attrs *a = &t->node->attrs;
    fr_shape s = t->in[0]->shape;
    FR_TRY(fr__op_input(t, 0, FR_F32, 1, FR_MAX_DIMS));
    for (int i = 0; i < FR_MAX_DIMS; i++) {
        int64_t before = a->pad.before[i], after = a->pad.after[i];
        if (before < 0 || after < 0 || before > FR_MAX_SIZE || after > FR_MAX_SIZE)
            return fr__op_fail(t,
                               "dimension %d has %lld before and %lld after; both must be between "
                               "0 and %d",
                               i, (long long)before, (long long)after, FR_MAX_SIZE);
        if (i >= s.n_dims && before + after > 0)
            return fr__op_fail(t, "dimension %d is padded, but input %s has %d", i, t->in[0]->name,
                               s.n_dims);
        if (i < s.n_dims) s.dim[i] += before + after;
    }
    fr__op_output(t, s);
    return FR_OK;
}
