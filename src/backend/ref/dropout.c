/* dropout.c -- dropout, alpha_dropout and stochastic_depth by the rule of backend/dropout.h.
 * Nothing is saved: the backward draws the same numbers again. In evaluation the node does nothing.
 */
#include "backend/dropout.h"

#include "backend/ref/ref.h"

typedef struct dropout {
    fr__kernel base;
    int node; /* index in the graph: part of the random counter */
    fr__dropout_rule rule;
} dropout;

/* Is element e of a sample kept? */
static bool kept(const dropout *d, const fr_pass *pass, int64_t sample, int64_t e)
{
    uint32_t words[4];
    if (d->base.node->op == FR_OP_STOCHASTIC_DEPTH) e = 0; /* of the whole sample */
    fr__dropout_words(pass, d->node, sample, e / 4, words);
    return fr__dropout_kept(words[e % 4], d->rule.p);
}

static fr_status dropout_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const dropout *d = (const dropout *)k;
    int64_t n = fr_shape_count(&k->node->shape);
    const float *x = a->x[0]; /* (batch, n) */
    float *y = a->y;
    for (int64_t s = 0; s < k->batch; s++)
        for (int64_t e = 0; e < n; e++) {
            float v = x[s * n + e] * d->rule.gain + d->rule.shift;
            y[s * n + e] = kept(d, a->pass, s, e) ? v : d->rule.dropped;
        }
    return FR_OK;
}

static fr_status dropout_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const dropout *d = (const dropout *)k;
    int64_t n = fr_shape_count(&k->node->shape);
    const float *dy = a->dy;
    float *dx = a->dx[0];
    for (int64_t s = 0; s < k->batch; s++)
        for (int64_t e = 0; e < n; e++) {
            float v = dy[s * n + e] * d->rule.gain;
            fr__ref_put(&dx[s * n + e], kept(d, a->pass, s, e) ? (double)v : 0, a->add_dx[0]);
        }
    return FR_OK;
}

fr_status fr__ref_dropout(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = dropout_forward,
                                       .backward_input = dropout_backward};
    const fr_node *node = fr_graph_node(spec->graph, spec->nodes[0]);
    if (!spec->training || node->attrs.dropout.p <= 0) return fr__ref_identity(spec, arena, out);
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(dropout), &ops, out));
    dropout *d = (dropout *)*out;
    d->node = spec->nodes[0];
    d->rule = fr__dropout_rule_of(node);
    d->base.can_overwrite_x0 = true;
    d->base.can_overwrite_dy = true;
    return FR_OK;
}
