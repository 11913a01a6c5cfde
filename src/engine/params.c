/* params.c -- parameters, gradients and optimizer state in and out of a worker, as plain floats. */
#include "engine/worker.h"

#include <string.h>

static size_t plain_bytes(const fr_worker *w, int param)
{
    return (size_t)fr_shape_count(&fr_graph_param(w->desc.graph, param)->shape) * sizeof(float);
}

/* Where `param` lies, and in which block: `trained`, or the buffers for running statistics. */
static fr_status locate(fr_worker *w, int param, float *trained, const char *what, int *placement,
                        float **block)
{
    int n = fr_graph_n_params(w->desc.graph);
    if (param < 0 || param >= n)
        return fr_fail(w->ctx, FR_INVALID, "parameter %d: the graph has 0..%d", param, n - 1);
    const fr_param *p = fr_graph_param(w->desc.graph, param);
    *placement = w->placement_of[param];
    *block = p->is_buffer ? w->buffers : trained;
    if (*placement < 0)
        return fr_fail(w->ctx, FR_INVALID, "parameter %s is not in this worker's stage", p->name);
    if (p->is_buffer && trained != w->weights)
        return fr_fail(w->ctx, FR_INVALID, "%s is not trained: it has no %s", p->name, what);
    return FR_OK;
}

static fr_status get(fr_worker *w, int param, float *trained, const char *what, float *plain)
{
    int placement = -1;
    float *block = NULL;
    FR_TRY(locate(w, param, trained, what, &placement, &block));
    return fr_program_read_param(w->layout, block, placement, plain);
}

static fr_status set(fr_worker *w, int param, float *trained, const char *what, const float *plain)
{
    int placement = -1;
    float *block = NULL;
    FR_TRY(locate(w, param, trained, what, &placement, &block));
    return fr_program_write_param(w->layout, block, placement, plain);
}

fr_status fr_worker_get_param(fr_worker *w, int param, float *plain)
{
    return get(w, param, w->weights, "value", plain);
}

fr_status fr_worker_set_param(fr_worker *w, int param, const float *plain)
{
    w->weights_id++;
    return set(w, param, w->weights, "value", plain);
}

fr_status fr_worker_get_grad(fr_worker *w, int param, float *plain)
{
    if (!w->grads || !w->desc.keep_grads)
        return fr_fail(w->ctx, FR_INVALID,
                       "gradients are not kept: create the worker with keep_grads");
    return get(w, param, w->grads, "gradient", plain);
}

static fr_status check_state(fr_worker *w, int which)
{
    if (!w->train.program)
        return fr_fail(w->ctx, FR_INVALID, "a worker that only evaluates has no optimizer state");
    int n = w->desc.optimizer->n_state;
    if (which < 0 || which >= n)
        return fr_fail(w->ctx, FR_INVALID, "optimizer state %d: %s has %d", which,
                       w->desc.optimizer->name, n);
    return FR_OK;
}

fr_status fr_worker_get_state(fr_worker *w, int which, int param, float *plain)
{
    FR_TRY(check_state(w, which));
    return get(w, param, w->state[which], "optimizer state", plain);
}

fr_status fr_worker_set_state(fr_worker *w, int which, int param, const float *plain)
{
    FR_TRY(check_state(w, which));
    return set(w, param, w->state[which], "optimizer state", plain);
}

/* `values` and `seen`: room for the largest parameter. Both programs read the one weights block,
 * so they must agree on how a parameter lies in it. */
static fr_status init_param(fr_worker *w, int param, float *values, float *seen)
{
    fr_graph_init_param(w->desc.graph, param, w->desc.seed, values);
    FR_TRY(fr_worker_set_param(w, param, values));
    if (w->layout == w->eval.program) return FR_OK;
    const float *block = fr_graph_param(w->desc.graph, param)->is_buffer ? w->buffers : w->weights;
    FR_TRY(fr_program_read_param(w->eval.program, block, w->placement_of[param], seen));
    if (memcmp(values, seen, plain_bytes(w, param)) == 0) return FR_OK;
    return fr_fail(w->ctx, FR_INTERNAL,
                   "parameter %s: training and evaluation lay it out differently",
                   fr_graph_param(w->desc.graph, param)->name);
}

fr_status fr__worker_init_params(fr_worker *w)
{
    const fr_graph *g = w->desc.graph;
    size_t largest = 0;
    for (int i = 0; i < fr_graph_n_params(g); i++)
        if (plain_bytes(w, i) > largest) largest = plain_bytes(w, i);
    float *values = fr__alloc(largest), *seen = fr__alloc(largest);
    fr_status status =
        values && seen ? FR_OK : fr__no_memory(w->ctx, 2 * largest, "starting values");
    for (int i = 0; i < fr_graph_n_params(g) && status == FR_OK; i++)
        if (w->placement_of[i] >= 0 && fr_graph_param(g, i)->tied_to < 0)
            status = init_param(w, i, values, seen);
    fr__free(values);
    fr__free(seen);
    return status;
}
