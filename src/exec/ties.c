/* ties.c -- gradients of parameters that are tied across stages, as plain values in host memory:
 * the gradient itself where it is plain and the host may write there, else a copy. */
#include "exec/stage.h"

#include <string.h>

static size_t plain_bytes(const fr__exec *x, int param)
{
    return (size_t)fr_shape_count(&fr_graph_param(x->d.graph, param)->shape) * sizeof(float);
}

fr_status fr__exec_tie(fr__exec *x, int param)
{
    if (x->n_ties == x->max_ties) {
        int room = 2 * x->max_ties + 4;
        fr__tie *more = FR_ARENA_ARRAY(x->d.arena, fr__tie, room);
        if (!more) return fr__exec_no_memory(x);
        if (x->n_ties > 0) memcpy(more, x->ties, (size_t)x->n_ties * sizeof *more);
        x->ties = more, x->max_ties = room;
    }
    int placement = fr_program_find_placement(x->layout, param);
    bool in_place = fr_program_is_plain(x->layout, placement) && fr__device_is_host(x->dev);
    x->ties[x->n_ties++] = (fr__tie){.param = param, .placement = placement, .is_copy = !in_place};
    return FR_OK;
}

size_t fr__exec_tie_bytes(const fr__exec *x)
{
    size_t bytes = 0;
    for (int i = 0; i < x->n_ties; i++)
        if (x->ties[i].is_copy) bytes += fr__align_up(plain_bytes(x, x->ties[i].param));
    return bytes;
}

fr_status fr__exec_open_ties(fr__exec *x)
{
    for (int i = 0; i < x->n_ties; i++) {
        fr__tie *t = &x->ties[i];
        size_t offset = fr_program_placement(x->layout, t->placement)->offset;
        t->plain =
            t->is_copy ? fr__arena_alloc(x->d.arena, plain_bytes(x, t->param)) : x->grads + offset;
        if (!t->plain) return fr__no_memory(x->ctx, plain_bytes(x, t->param), "tied parameters");
    }
    return FR_OK;
}

fr_status fr__exec_read_ties(fr__exec *x)
{
    for (int i = 0; i < x->n_ties; i++) {
        const fr__tie *t = &x->ties[i];
        if (t->is_copy) FR_TRY(fr_program_read_param(x->layout, x->grads, t->placement, t->plain));
    }
    return FR_OK;
}

fr_status fr__exec_write_ties(fr__exec *x)
{
    for (int i = 0; i < x->n_ties; i++) {
        const fr__tie *t = &x->ties[i];
        if (t->is_copy) FR_TRY(fr_program_write_param(x->layout, x->grads, t->placement, t->plain));
    }
    return FR_OK;
}

static float *find(const fr__exec *x, int param)
{
    for (int i = 0; i < x->n_ties; i++)
        if (x->ties[i].param == param) return x->ties[i].plain;
    return NULL;
}

void fr__exec_copy_tie(fr__exec *x, int param, size_t first, size_t n, void *to)
{
    memcpy(to, find(x, param) + first, n * sizeof(float));
}

void fr__exec_sum_tie(fr__exec *x, int param, size_t first, size_t n, int n_parts,
                      const void *const *parts)
{
    float *sum = find(x, param) + first;
    for (int k = 0; k < n_parts; k++) {
        const float *grad = parts[k];
        for (size_t j = 0; j < n; j++) sum[j] = k == 0 ? grad[j] : sum[j] + grad[j];
    }
}
