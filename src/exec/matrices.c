/* matrices.c -- the matrices that an optimizer with a rule for them (muon) updates as a whole: the
 * weights of linear layers, except the last one of the model and tied ones.
 *
 * The choice depends on the graph only, so it is the same for any cut. The last linear layer is the
 * head: its rows, like those of an embedding, belong to classes or tokens. Tied weights are those
 * of an embedding, too. Convolutions and the stacked gates of an LSTM are no matrices of one linear
 * map and are left to the rule of all other weights. */
#include "exec/stage.h"

static bool is_hidden_matrix(const fr_graph *g, int param)
{
    const fr_param *p = fr_graph_param(g, param);
    return fr_graph_node(g, p->node)->op == FR_OP_LINEAR && p->shape.n_dims == 2 &&
           p->tied_to < 0 && !p->has_ties && !p->is_frozen &&
           p->node != fr_graph_find_op(g, FR_OP_LINEAR);
}

static fr_matrix matrix_at(const fr__exec *x, int placement)
{
    const fr_placement *at = fr_program_placement(x->layout, placement);
    const fr_shape *shape = &fr_graph_param(x->d.graph, at->param)->shape;
    return (fr_matrix){.offset = at->offset,
                       .rows = shape->dim[0],
                       .cols = shape->dim[1],
                       .ld = fr_program_row_stride(x->layout, placement)};
}

static size_t bytes_of(const fr_matrix *m) { return fr_store_scratch_floats(m) * sizeof(float); }

fr_status fr__exec_list_matrices(fr__exec *x)
{
    int n = fr_program_n_placements(x->layout);
    if (!x->d.optimizer->matrices) return FR_OK;
    x->matrices = FR_ARENA_ARRAY(x->d.arena, fr_matrix, n + 1);
    if (!x->matrices) return fr__exec_no_memory(x);
    for (int i = 0; i < n; i++) {
        int param = fr_program_placement(x->layout, i)->param;
        if (!is_hidden_matrix(x->d.graph, param)) continue;
        fr_matrix m = matrix_at(x, i);
        if (m.ld == 0)
            return fr_fail(x->ctx, FR_UNSUPPORTED,
                           "optimizer %s needs %s row by row, and this backend has it in another "
                           "layout",
                           x->d.optimizer->name, fr_graph_param(x->d.graph, param)->name);
        x->matrices[x->n_matrices++] = m;
        if (bytes_of(&m) > x->d.device->workspace_bytes)
            x->d.device->workspace_bytes = bytes_of(&m);
    }
    return FR_OK;
}

static bool matrix_of(const fr__exec *x, int node, fr_matrix *m)
{
    const fr_node *n = fr_graph_node(x->d.graph, node);
    for (int i = 0; i < n->n_params && x->n_matrices > 0; i++) {
        int placement = fr_program_find_placement(x->layout, n->params[i]);
        if (placement < 0 || !is_hidden_matrix(x->d.graph, n->params[i])) continue;
        *m = matrix_at(x, placement);
        return true;
    }
    return false;
}

size_t fr__exec_matrix_bytes(const fr__exec *x, int node)
{
    fr_matrix m;
    return matrix_of(x, node, &m) ? bytes_of(&m) : 0;
}

double fr__exec_matrix_work(const fr__exec *x, int node)
{
    fr_matrix m;
    return matrix_of(x, node, &m) ? fr__orthogonalise_work(&m) : 0;
}
