/* state.h -- parameters, optimizer state and snapshots of an engine, in and out as plain values. */
#ifndef FORERUN_STATE_H
#define FORERUN_STATE_H

#include <forerun/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Plain copies of parameters, gradients (keep_grads), optimizer state `which`: fr_shape_count
 * values of fp32, row-major, in host memory. Parameter indices are the graph's. A tied parameter
 * reads its owner. With a team values come to and from rank 0; others give and get no `plain`
 * (NULL). */
FR_API FR_MUST_USE fr_status fr_engine_get_param(fr_engine *e, int param, void *plain);
FR_API FR_MUST_USE fr_status fr_engine_set_param(fr_engine *e, int param, const void *plain);
FR_API FR_MUST_USE fr_status fr_engine_get_grad(fr_engine *e, int param, void *plain);
FR_API FR_MUST_USE fr_status fr_engine_get_state(fr_engine *e, int which, int param, void *plain);
FR_API FR_MUST_USE fr_status fr_engine_set_state(fr_engine *e, int which, int param,
                                                 const void *plain);
/* State that the weight policy keeps from update to update: the previous version (double
 * buffer), the drift (pipemare). Its name ("previous", "drift"), NULL: nothing. Optional in a
 * checkpoint: without it the run continues as at its start. Snapshots have it, where there is any.
 */
FR_API const char *fr_engine_memory_name(const fr_engine *e);
FR_API FR_MUST_USE fr_status fr_engine_set_memory(fr_engine *e, int param, const void *plain);

/* All that a checkpoint holds, as of the moment of fr_engine_snapshot (the pipeline is empty), for
 * another thread to read. Items come in a fixed order: parameters that are trained, buffers,
 * optimizer state 0, 1, ..., memory; each in graph order, tied ones left out. On rank 0
 * fr_snapshot_next gives item after item; on other ranks it sends theirs, plain NULL: all ranks
 * call it until *item has param -1. One snapshot at a time: the next call of fr_engine_snapshot
 * begins it anew, and must wait until this one has been read.
 *
 * Up to desc.snapshot_bytes it is a copy. A larger one is read from the engine itself, whose state
 * must not change meanwhile: before any other call the engine's caller waits (fr_snapshot_wait)
 * until the last item has been read here, or the reader has given up (fr_snapshot_end). */
#define FR_SNAPSHOT_BYTES ((size_t)64 << 20)
typedef enum fr_item_kind { FR_ITEM_PARAM, FR_ITEM_STATE, FR_ITEM_MEMORY } fr_item_kind;
typedef struct fr_item {
    fr_item_kind kind;
    int which, param; /* state block; -1: no more items */
} fr_item;
typedef struct fr_snapshot fr_snapshot; /* belongs to the engine */
FR_API FR_MUST_USE fr_status fr_engine_snapshot(fr_engine *e, fr_snapshot **out);
/* On rank 0: whether an item of memory will come of this parameter. */
FR_API bool fr_snapshot_has_memory(const fr_snapshot *s, int param);
/* Host memory of this process beside its workers' blocks: a snapshot, values in transit. */
FR_API size_t fr_engine_host_bytes(const fr_engine *e);
FR_API size_t fr_engine_snapshot_bytes(const fr_engine *e); /* memory it takes in this process */
/* True if training continues while one is read. */
FR_API bool fr_engine_copies_snapshots(const fr_engine *e);
FR_API FR_MUST_USE fr_status fr_snapshot_next(fr_snapshot *s, fr_item *item, void *plain);
FR_API void fr_snapshot_wait(fr_snapshot *s);
FR_API void fr_snapshot_end(fr_snapshot *s); /* by the reader: nothing more is read */

#ifdef __cplusplus
}
#endif
#endif
