/* shape.c -- element types and shapes: sizes, count, compare, print. */
#include <forerun/graph.h>

#include <inttypes.h>
#include <stdio.h>

size_t fr_dtype_bytes(fr_dtype type) { return type == FR_BF16 ? 2 : 4; }

int64_t fr_shape_count(const fr_shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n_dims; i++) n *= s->dim[i];
    return n;
}

size_t fr_node_bytes(const fr_node *node)
{
    return (size_t)fr_shape_count(&node->shape) * fr_dtype_bytes(node->dtype);
}

bool fr_shape_equal(const fr_shape *a, const fr_shape *b)
{
    if (a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

bool fr_shape_fits(const fr_shape *a, const fr_shape *b)
{
    fr_shape x = *a, y = *b;
    while (x.n_dims > 0 && x.dim[x.n_dims - 1] == 1) x.n_dims--;
    while (y.n_dims > 0 && y.dim[y.n_dims - 1] == 1) y.n_dims--;
    return fr_shape_equal(&x, &y);
}

const char *fr_shape_text(const fr_shape *s, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "(");
    for (int i = 0; i < s->n_dims && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%" PRId64, i ? ", " : "", s->dim[i]);
    if (used < room) snprintf(text + used, room - used, ")");
    return text;
}
