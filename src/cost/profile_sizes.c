/* profile_sizes.c -- micro-batches of several sizes in one profile, and costs of other sizes.
 *
 * Time is not proportional to samples: weights are read once per micro-batch of any size, and small
 * products do not fill vectors. Between two measured sizes, time is interpolated linearly. */
#include "cost/profile.h"

#include <math.h>
#include <string.h>

/* --- joining sizes ---------------------------------------------------------------------------- */

static bool are_alike(const fr_profile_node *a, const fr_profile_node *b)
{
    return strcmp(a->name, b->name) == 0 && a->is_input == b->is_input &&
           a->n_inputs == b->n_inputs &&
           (a->n_inputs == 0 ||
            memcmp(a->inputs, b->inputs, (size_t)a->n_inputs * sizeof *a->inputs) == 0);
}

static fr_status check_size(fr_ctx *ctx, const fr_profile *p, const fr_profile *size)
{
    if (p->batch < 1 || size->batch < 1)
        return fr_fail(ctx, FR_INVALID,
                       "profile of %s: has several sizes, but one does not give its size (batch)",
                       p->model);
    if (size->batch == p->batch)
        return fr_fail(ctx, FR_INVALID, "profile of %s: two of %d samples", p->model, p->batch);
    for (int i = 0; i < p->n_sizes; i++)
        if (p->sizes[i]->batch == size->batch)
            return fr_fail(ctx, FR_INVALID, "profile of %s: two of %d samples", p->model,
                           size->batch);
    if (size->n_nodes != p->n_nodes)
        return fr_fail(
            ctx, FR_INVALID,
            "profile of %s: %d nodes with %d samples, %d with %d; all sizes must be of one model",
            p->model, p->n_nodes, p->batch, size->n_nodes, size->batch);
    for (int i = 0; i < p->n_nodes; i++)
        if (!are_alike(&p->nodes[i], &size->nodes[i]))
            return fr_fail(ctx, FR_INVALID,
                           "profile of %s: node %d, %s with %d samples, differs with %d (%s); all "
                           "sizes must be of one model",
                           p->model, i, p->nodes[i].name, p->batch, size->batch,
                           size->nodes[i].name);
    return FR_OK;
}

fr_status fr__profile_add_sizes(fr_ctx *ctx, fr_profile *p, int n, const fr_profile *const *sizes)
{
    struct fr__profile_store *s = p->arena;
    s->own = FR_ARENA_ARRAY(&s->arena, const fr_profile *, n);
    p->sizes = FR_ARENA_ARRAY(&s->arena, const fr_profile *, n);
    if (!s->own || !p->sizes)
        return fr__no_memory(ctx, (size_t)n * sizeof *s->own, "the sizes of a profile");
    for (int i = 0; i < n; i++) {
        fr_profile one = *sizes[i];
        one.n_sizes = 0;
        FR_TRY(check_size(ctx, p, &one));
        FR_TRY(fr_profile_copy(ctx, &one, &s->own[i]));
        s->n_own++;
        p->sizes[p->n_sizes++] = s->own[i];
    }
    return FR_OK;
}

fr_status fr_profile_gather(fr_ctx *ctx, int n, const fr_profile *const *each,
                            const fr_profile **out)
{
    fr_profile all = *each[0];
    const fr_profile **sizes = FR_NEW_ARRAY(const fr_profile *, n);
    *out = NULL;
    if (!sizes) return fr__no_memory(ctx, (size_t)n * sizeof *sizes, "the sizes of a profile");
    for (int i = 1; i < n; i++) sizes[i - 1] = each[i];
    all.n_sizes = n - 1;
    all.sizes = sizes;
    fr_status status = fr_profile_copy(ctx, &all, out);
    fr__free(sizes);
    return status;
}

/* --- another size ----------------------------------------------------------------------------- */

/* The largest known size <= `batch` and the smallest >= `batch`; NULL: none. */
static void find_next(const fr_profile *p, int batch, const fr_profile **below,
                      const fr_profile **above)
{
    *below = *above = NULL;
    for (int i = -1; i < p->n_sizes; i++) {
        const fr_profile *at = i < 0 ? p : p->sizes[i];
        if (at->batch <= batch && (!*below || at->batch > (*below)->batch)) *below = at;
        if (at->batch >= batch && (!*above || at->batch < (*above)->batch)) *above = at;
    }
}

bool fr_profile_knows(const fr_profile *p, int batch)
{
    const fr_profile *below, *above;
    find_next(p, batch, &below, &above);
    return p->batch > 0 && below && above;
}

static void take_in_proportion(fr_profile *p, double r)
{
    for (int i = 0; i < p->n_nodes; i++) {
        fr_profile_node *n = &p->nodes[i];
        n->forward_s *= r, n->backward_s *= r, n->back_input_s *= r, n->back_weight_s *= r;
        n->flops *= r;
        n->output_bytes = llround((double)n->output_bytes * r);
        n->kept_bytes = llround((double)n->kept_bytes * r);
        n->values_bytes = llround((double)n->values_bytes * r);
        n->scratch_bytes = llround((double)n->scratch_bytes * r);
        n->edge_bytes = llround((double)n->edge_bytes * r);
    }
    p->workspace_bytes *= r;
}

static double between(double a, double b, double share) { return a + share * (b - a); }

static void take_between(fr_profile *p, const fr_profile *above, double share)
{
    for (int i = 0; i < p->n_nodes; i++) {
        fr_profile_node *n = &p->nodes[i];
        const fr_profile_node *to = &above->nodes[i];
#define FR_X(field, must) n->field = between(n->field, to->field, share);
        FR_PROFILE_REALS(FR_X)
#undef FR_X
#define FR_X(field, must) n->field = llround(between((double)n->field, (double)to->field, share));
        FR_PROFILE_INTS(FR_X)
#undef FR_X
    }
    p->jitter = between(p->jitter, above->jitter, share);
    p->workspace_bytes = between(p->workspace_bytes, above->workspace_bytes, share);
}

fr_status fr_profile_scaled(fr_ctx *ctx, const fr_profile *p, int batch, const fr_profile **out)
{
    const fr_profile *below, *above;
    *out = NULL;
    if (p->batch < 1 || batch < 1)
        return fr_fail(ctx, FR_INVALID,
                       "profile of %s: cannot be scaled from micro-batches of %d samples to %d; "
                       "both must be known",
                       p->model, p->batch, batch);
    find_next(p, batch, &below, &above);
    fr_profile nearest = below ? *below : *above;
    nearest.n_sizes = 0;
    fr_profile *scaled;
    FR_TRY(fr__profile_copy_one(ctx, &nearest, &scaled));
    *out = scaled;
    if (nearest.batch == batch) return FR_OK;
    if (below && above)
        take_between(scaled, above, (double)(batch - below->batch) / (above->batch - below->batch));
    else
        take_in_proportion(scaled, (double)batch / nearest.batch);
    scaled->batch = batch;
    scaled->step_s = scaled->accounted = 0;
    return FR_OK;
}
