/* matrices.c -- updates and predictions of matrices that their rule needs whole (muon).
 *
 * A block is cut into pieces: a matrix, or the weights between two of them. While gradients arrive,
 * pieces of a matrix only gather them, so any cut into ranges will do. When all are there, each
 * matrix is orthogonalised in the last state block and applied, with its predictions. */
#include "weights/store.h"

#include "backend/device.h"

size_t fr_store_scratch_floats(const fr_matrix *m) { return fr__orthogonalise_floats(m); }

static size_t end_of(const fr_matrix *m) { return m->offset + (size_t)(m->rows * m->ld); }

size_t fr__store_matrix_at(const fr_store *s, size_t at, size_t n, const fr_matrix **m)
{
    int low = 0, high = s->d.n_matrices; /* the first matrix that ends behind `at` */
    while (low < high) {
        int middle = (low + high) / 2;
        if (end_of(&s->d.matrices[middle]) <= at)
            low = middle + 1;
        else
            high = middle;
    }
    const fr_matrix *next = low < s->d.n_matrices ? &s->d.matrices[low] : NULL;
    *m = next && next->offset <= at ? next : NULL;
    size_t end = *m ? end_of(next) : next ? next->offset : at + n;
    return end - at < n ? end - at : n;
}

static float scale_of(const fr_store *s, const fr_matrix *m)
{
    return (float)s->d.optimizer->matrices->scale(&s->d.options, m->rows, m->cols);
}

/* The rate and distances are those of scale 1. */
static void scale_distances(fr_sweep *w, float scale)
{
    if (w->drift) return;
    for (int j = 0; j < w->n_ahead; j++) w->ahead_coef.by[j] *= scale;
}

void fr__store_step_matrices(fr_store *s)
{
    for (int i = 0; i < s->d.n_matrices; i++) {
        const fr_matrix *m = &s->d.matrices[i];
        const fr__rule *rule = fr__store_piece(s, m->offset, 1).rule;
        fr_optim_coef coef = rule->matrix_coef;
        fr_sweep w = fr__store_step(s, m->offset, (size_t)(m->rows * m->ld));
        w.ahead_coef = rule->matrix_ahead;
        coef.lr *= scale_of(s, m);
        scale_distances(&w, scale_of(s, m));
        fr__device_orthogonalise(s->d.device, w.state[s->d.optimizer->n_state - 1], m,
                                 s->d.scratch);
        fr__device_sweep(s->d.device, s->d.optimizer->matrices->apply, &coef, &w);
    }
}

void fr__store_predict_matrix(const fr_store *s, const fr_matrix *m, fr_sweep *w)
{
    scale_distances(w, scale_of(s, m));
    fr__device_sweep(s->d.device, s->d.optimizer->matrices->apply, NULL, w);
}
