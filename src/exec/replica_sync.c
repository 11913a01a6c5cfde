/* replica_sync.c -- replicas that step alone: a rule of sync.h in an executor.
 *
 * Such a replica makes its updates without the others, along the gradient of its own micro-batches
 * times the number of replicas. The rule exchanges weights after its steps and at the end of a
 * call. */
#include "exec/stage.h"

#include <string.h>

/* Known from the graph, wherever the stage is. */
static bool has_weights(const fr__exec *x)
{
    for (int i = x->d.bounds.first; i < x->d.bounds.last; i++) {
        const fr_node *node = fr_graph_node(x->d.graph, i);
        for (int k = 0; k < node->n_params; k++)
            if (!fr_graph_param(x->d.graph, node->params[k])->is_buffer) return true;
    }
    return false;
}

static bool is_synced(const fr__exec *x)
{
    return fr__exec_trains(x) && !x->d.sums_replicas && x->d.n_replicas > 1 && has_weights(x);
}

static fr_status plan(fr__exec *x)
{
    int *members = FR_ARENA_ARRAY(x->d.arena, int, x->d.n_replicas);
    if (!members) return fr__exec_no_memory(x);
    for (int q = 0; q < x->d.n_replicas; q++) members[q] = x->d.replicas[q]->d.worker;
    x->sync = (fr__syncing){.rule = fr__sync_find(x->d.sync.name),
                            .options = x->d.sync,
                            .transport = x->d.transport,
                            .group = x->d.group,
                            .nth = x->d.replica,
                            .n_members = x->d.n_replicas,
                            .members = members,
                            .n = x->n_weights,
                            .n_state = x->d.optimizer->n_state,
                            .device = x->dev,
                            .hooks = &x->d.hooks};
    return fr__sync_plan(&x->sync, x->d.arena) ? FR_OK : fr__exec_no_memory(x);
}

fr_status fr__exec_measure_sync(fr__exec *x) { return is_synced(x) ? plan(x) : FR_OK; }

fr_status fr__exec_open_sync(fr__exec *const *replicas)
{
    const fr__exec *first = replicas[0];
    if (!is_synced(first)) return FR_OK;
    fr__syncing *any = NULL;
    fr__syncing **of = FR_ARENA_ARRAY(first->d.arena, fr__syncing *, first->d.n_replicas);
    if (!of) return fr__exec_no_memory(first);
    for (int q = 0; q < first->d.n_replicas; q++) {
        fr__exec *x = replicas[q];
        if (!x->dev) continue;
        any = of[q] = &x->sync;
        x->sync.store = x->store;
        x->sync.scratch = x->d.device->workspace;
        x->sync.n_scratch = x->d.device->workspace_bytes / sizeof(float);
        memcpy(x->sync.state, x->state, sizeof x->sync.state);
    }
    if (!any) {
        FR_TRY(plan(replicas[0]));
        any = &replicas[0]->sync;
    }
    return fr__sync_open(first->ctx, first->d.arena, of, any);
}

fr_status fr__exec_begin_sync(fr__exec *x) { return fr__sync_begin(&x->sync); }

fr_status fr__exec_after_step(fr__exec *x, int64_t batch, bool *all_alive)
{
    bool has_stepped = fr_store_version(x->store) == batch + 1;
    return fr__sync_stepped(&x->sync, batch, has_stepped, all_alive);
}

fr_status fr__exec_drain_sync(fr__exec *x, int64_t version)
{
    return fr__sync_drain(&x->sync, version);
}
