/* check.c -- targets and ids that are out of range. */
#include "backend/check.h"

static fr_status refuse(const fr__kernel *k, const fr__kernel_args *a, int input, int64_t at,
                        int32_t value, const char *what, int64_t n_allowed, const char *remedy)
{
    const fr_node *source = fr_graph_node(k->graph, k->node->inputs[input]);
    int64_t per_sample = fr_shape_count(&source->shape);
    return fr_fail(
        k->ctx, FR_INVALID,
        "node %s (%s): sample %lld, position %lld: %s %d is outside 0..%lld; %s", k->node->name,
        fr_operator_name(k->node->op), (long long)(a->pass->first_sample + at / per_sample),
        (long long)(at % per_sample), what, (int)value, (long long)(n_allowed - 1), remedy);
}

fr_status fr__refuse_target(const fr__kernel *k, const fr__kernel_args *a, int64_t at,
                            int32_t value)
{
    const fr_node *logits = fr_graph_node(k->graph, k->node->inputs[0]);
    return refuse(k, a, 1, at, value, "target", fr__cols(logits),
                  "does the data have more classes than the model?");
}

fr_status fr__refuse_id(const fr__kernel *k, const fr__kernel_args *a, int64_t at, int32_t value)
{
    return refuse(k, a, 0, at, value, "id", k->node->attrs.embedding.vocab,
                  "was the data made with a larger vocabulary than the model?");
}

fr_status fr__check_targets(const fr__kernel *k, const fr__kernel_args *a)
{
    const fr_node *logits = fr_graph_node(k->graph, k->node->inputs[0]);
    int64_t n_classes = fr__cols(logits), n = fr__rows(logits, k->batch);
    const int32_t *target = a->x[1];
    for (int64_t i = 0; i < n; i++) {
        bool is_class = target[i] >= 0 && target[i] < n_classes;
        if (is_class || !fr__target_counts(k->node, target[i])) continue;
        return fr__refuse_target(k, a, i, target[i]);
    }
    return FR_OK;
}

fr_status fr__check_shares(const fr__kernel *k, const fr__kernel_args *a)
{
    int64_t per_sample = fr_shape_count(&fr_graph_node(k->graph, k->node->inputs[1])->shape);
    const float *target = a->x[1];
    for (int64_t i = 0; i < k->batch * per_sample; i++) {
        if (!(target[i] < 0 || target[i] > 1)) continue;
        return fr_fail(k->ctx, FR_INVALID,
                       "node %s (%s): sample %lld, position %lld: target %g is outside 0 .. 1; "
                       "bce takes the share of class 1; mse and smooth_l1 take any number",
                       k->node->name, fr_operator_name(k->node->op),
                       (long long)(a->pass->first_sample + i / per_sample),
                       (long long)(i % per_sample), (double)target[i]);
    }
    return FR_OK;
}

fr_status fr__check_ids(const fr__kernel *k, const fr__kernel_args *a)
{
    int64_t vocab = k->node->attrs.embedding.vocab, n = fr__rows(k->node, k->batch);
    const int32_t *ids = a->x[0];
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < vocab) continue;
        return fr__refuse_id(k, a, i, ids[i]);
    }
    return FR_OK;
}
