/* memory.c -- what a worker will take, computed from sizes; then the blocks, one per purpose.
 *
 * An evaluation runs while no micro-batch is in flight, so it borrows the slots and the workspace,
 * which lie in one block; so do the partial sums of a gradient norm. */
#include "engine/worker.h"

#include <string.h>

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static size_t output_bytes(const fr_program *p)
{
    size_t bytes = 0;
    for (int i = 0; p && i < fr_program_n_outputs(p); i++)
        bytes += fr__align_up(fr_program_output(p, i)->bytes);
    return bytes;
}

/* Trained parameters that hold their own values; tied ones lie behind the weights. */
static bool is_owner(const fr_worker *w, const fr_placement *at)
{
    return !fr_graph_param(w->desc.graph, at->param)->is_buffer &&
           at->offset < fr_program_sizes_of(w->layout)->n_weights;
}

/* Blocks start anew with every parameter, so that the sum does not depend on its neighbours. */
static fr_status list_norm_blocks(fr_worker *w)
{
    int n = fr_program_n_placements(w->layout);
    for (int i = 0; i < n; i++) {
        const fr_placement *at = fr_program_placement(w->layout, i);
        if (is_owner(w, at)) w->n_norm_blocks += (at->count + FR_NORM_BLOCK - 1) / FR_NORM_BLOCK;
    }
    size_t bytes = fr__array_bytes(w->n_norm_blocks, sizeof *w->norm_blocks);
    fr_norm_block *b = w->norm_blocks = fr__arena_alloc(&w->arena, bytes);
    if (!b) return fr__no_memory(w->ctx, bytes, "a worker");
    for (int i = 0; i < n; i++) {
        const fr_placement *at = fr_program_placement(w->layout, i);
        if (!is_owner(w, at)) continue;
        for (size_t done = 0; done < at->count; done += FR_NORM_BLOCK, b++) {
            size_t left = at->count - done;
            *b = (fr_norm_block){.offset = at->offset + done,
                                 .count = left < FR_NORM_BLOCK ? left : FR_NORM_BLOCK};
        }
    }
    return FR_OK;
}

fr_status fr__worker_predict(fr_worker *w)
{
    const fr_program_sizes *eval = fr_program_sizes_of(w->eval.program);
    fr_memory_use *use = &w->predicted;
    FR_TRY(list_norm_blocks(w));
    use->weights = eval->n_weights * sizeof(float);
    use->buffers = eval->n_buffers * sizeof(float);
    use->cache = eval->cache_bytes;
    use->io = most(output_bytes(w->train.program), output_bytes(w->eval.program));
    size_t borrowed = fr__align_up(eval->slot_bytes) + eval->workspace_bytes;
    if (w->train.program) {
        const fr_program_sizes *train = fr_program_sizes_of(w->train.program);
        use->grads = train->n_grads * sizeof(float);
        use->optimizer = (size_t)w->desc.optimizer->n_state * use->weights;
        use->buffers *= 2;
        use->cache += train->cache_bytes;
        use->slots = (size_t)w->desc.n_slots * fr__align_up(train->slot_bytes);
        use->workspace = most(train->workspace_bytes, w->n_norm_blocks * sizeof(double));
    }
    if (use->slots + use->workspace < borrowed) use->workspace = borrowed - use->slots;
    use->total = use->weights + use->grads + use->optimizer + use->buffers + use->slots +
                 use->workspace + use->cache + use->io;
    return FR_OK;
}

static fr_status take(fr_worker *w, size_t bytes, const char *what, void **out)
{
    *out = NULL;
    if (bytes == 0) return FR_OK;
    FR_TRY(fr_device_alloc(w->dev, bytes, what, out));
    w->blocks[w->n_blocks].at = *out;
    w->blocks[w->n_blocks++].bytes = bytes;
    return FR_OK;
}

fr_status fr__worker_take_weights(fr_worker *w)
{
    void *at;
    FR_TRY(take(w, w->predicted.weights, "weights", &at));
    w->weights = at;
    FR_TRY(take(w, w->predicted.buffers, "running statistics", &at));
    w->buffers = at;
    size_t n_buffers = fr_program_sizes_of(w->layout)->n_buffers;
    w->buffers_before = w->train.program && at ? w->buffers + n_buffers : NULL;
    return FR_OK;
}

fr_status fr__worker_take_rest(fr_worker *w)
{
    void *at;
    FR_TRY(take(w, w->predicted.slots + w->predicted.workspace, "activations", &at));
    w->slots = at;
    w->workspace = at ? w->slots + w->predicted.slots : NULL;
    FR_TRY(take(w, w->predicted.io, "outputs", &at));
    w->io = at;
    if (!w->train.program) return FR_OK;
    FR_TRY(take(w, w->predicted.grads, "gradients", &at));
    w->grads = at;
    for (int i = 0; i < w->desc.optimizer->n_state; i++) {
        FR_TRY(take(w, w->predicted.weights, w->desc.optimizer->state_names[i], &at));
        w->state[i] = at;
    }
    return FR_OK;
}

void fr__worker_release(fr_worker *w)
{
    for (int i = 0; i < w->n_blocks; i++)
        fr_device_release(w->dev, w->blocks[i].at, w->blocks[i].bytes);
    w->n_blocks = 0;
}
