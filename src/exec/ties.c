/* ties.c -- parameters that are tied across stages, as plain values in host memory.
 *
 * With a flush stages exchange gradients: the gradient itself where it is plain and the host may
 * write there, else a copy. Without one a stage with a copy borrows the owner's weights: they are
 * written into the weight block that a pass is about to read, unless it has them already. */
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
    fr__exec_make_room(x, placement);
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

static fr_status open_loans(fr__exec *x, int n)
{
    fr_arena *a = x->d.arena;
    bool is_ok = true;
    for (int i = 0; i < x->n_ties; i++)
        is_ok &= (x->ties[i].lent = FR_ARENA_ARRAY(a, const void *, n)) != NULL;
    x->loans.n = n;
    x->loans.at = FR_ARENA_ARRAY(a, fr__loan, n);
    x->loans.block = FR_ARENA_ARRAY(a, fr__loan_in, fr_store_n_blocks(x->store));
    return is_ok && x->loans.at && x->loans.block ? FR_OK : fr__exec_no_memory(x);
}

fr_status fr__exec_open_ties(fr__exec *x, int n_loans)
{
    for (int i = 0; i < x->n_ties; i++) {
        fr__tie *t = &x->ties[i];
        size_t offset = fr_program_placement(x->layout, t->placement)->offset;
        t->plain =
            t->is_copy ? fr__arena_alloc(x->d.arena, plain_bytes(x, t->param)) : x->grads + offset;
        if (!t->plain) return fr__no_memory(x->ctx, plain_bytes(x, t->param), "tied parameters");
    }
    return n_loans > 0 && x->n_ties > 0 ? open_loans(x, n_loans) : FR_OK;
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

static fr__tie *find_tie(const fr__exec *x, int param)
{
    for (int i = 0; i < x->n_ties; i++)
        if (x->ties[i].param == param) return &x->ties[i];
    return NULL;
}

static float *find(const fr__exec *x, int param) { return find_tie(x, param)->plain; }

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

/* --- loans ------------------------------------------------------------------------------------ */

fr_status fr__exec_lend(fr__exec *x, int param, const fr_view *view, void *plain)
{
    const int placement = find_tie(x, param)->placement;
    if (!view) return fr_program_read_param(x->layout, fr_store_newest(x->store), placement, plain);
    return fr__program_read_typed(x->layout, x->weight_type, view->weights, placement, plain,
                                  x->d.device->workspace);
}

void fr__exec_borrow(fr__exec *x, int param, const void *plain, const fr__loan *loan)
{
    int64_t i = loan->batch % x->loans.n;
    find_tie(x, param)->lent[i] = plain;
    x->loans.at[i] = *loan;
    x->loans.is_on = true;
}

const fr__loan *fr__exec_read_loan(const fr__exec *x)
{
    return x->loans.is_on ? &x->loans.read : NULL;
}

fr_status fr__exec_apply_loan(fr__exec *x, int64_t batch, fr_view *view)
{
    if (!x->loans.is_on) return FR_OK;
    int64_t nth = batch % x->loans.n;
    fr__loan_in *in = &x->loans.block[view->block];
    x->loans.read = x->loans.at[nth];
    if (x->loans.read.batch != batch)
        return fr_fail(x->ctx, FR_INTERNAL,
                       "stage %d: the tied weights of mini-batch %lld are lost", x->d.stage,
                       (long long)batch);
    if (in->id == view->id && in->loan.batch == batch) return FR_OK;
    void *weights = fr_store_rewrite(x->store, view);
    FR_TRY(fr_device_sync(x->dev)); /* earlier passes may still read the block */
    for (int i = 0; i < x->n_ties; i++)
        if (x->ties[i].lent[nth])
            FR_TRY(fr__program_write_typed(x->layout, x->weight_type, weights, x->ties[i].placement,
                                           x->ties[i].lent[nth], x->d.device->workspace));
    *in = (fr__loan_in){.id = view->id, .loan = x->loans.read};
    return FR_OK;
}

fr_status fr__exec_settle(fr__exec *x, int param, const void *plain)
{
    const fr__tie *t = find_tie(x, param);
    FR_TRY(fr_program_write_param(x->layout, fr_store_newest(x->store), t->placement, plain));
    fr_store_changed(x->store);
    return FR_OK;
}

fr_status fr__exec_copy_grad(fr__exec *x, int param, void *plain)
{
    return fr_program_read_param(x->layout, x->grads, find_tie(x, param)->placement, plain);
}

fr_status fr__exec_add_grad(fr__exec *x, int param, const void *plain)
{
    const fr__tie *t = find_tie(x, param);
    const float *grad = plain;
    size_t n = plain_bytes(x, param) / sizeof(float);
    if (t->is_copy) FR_TRY(fr_program_read_param(x->layout, x->grads, t->placement, t->plain));
    for (size_t i = 0; i < n; i++) t->plain[i] += grad[i];
    if (!t->is_copy) return FR_OK;
    return fr_program_write_param(x->layout, x->grads, t->placement, t->plain);
}
