/* saver.c -- one thread per checkpoint. It has no context: its failure is kept here and reported to
 * the run on request. */
#include "checkpoint/saver.h"

#include "base/thread.h"

#include <string.h>

fr_status fr__saver_open(fr__setup *s, fr_engine *e, const fr__folder *f,
                         fr_status (*sync)(void *user, fr_ctx *ctx), void *user, fr__saver *v)
{
    size_t bytes = f ? fr__setup_largest_param(s->graph) * sizeof(float) : 0;
    memset(v, 0, sizeof *v);
    v->s = s, v->e = e;
    v->job = (fr__checkpoint_job){.s = s,
                                  .folder = f,
                                  .sync = sync,
                                  .user = user,
                                  .memory = fr_engine_memory_name(e),
                                  .plain = f ? fr__alloc(bytes) : NULL};
    if (v->job.plain || !f) return FR_OK;
    fr__saver_close(v);
    return fr__no_memory(s->ctx, bytes, "checkpoints");
}

void fr__saver_close(fr__saver *v)
{
    if (v->has_thread) pthread_join(v->thread, NULL);
    fr__free(v->job.plain);
    memset(v, 0, sizeof *v);
}

static void save(fr__saver *v)
{
    fr_ctx_clear(NULL);
    v->status =
        v->job.folder ? fr__checkpoint_write(&v->job) : fr__checkpoint_send(v->job.snapshot);
    snprintf(v->error, sizeof v->error, "%s", fr_ctx_error(NULL));
    fr_snapshot_end(v->job.snapshot);
    atomic_store(&v->is_done, true);
}

static void *thread_main(void *saver)
{
    fr__thread_name("checkpoint");
    save(saver);
    return NULL;
}

fr_status fr__saver_begin(fr__saver *v, const fr__position *at)
{
    v->job.at = *at;
    FR_TRY(fr_engine_snapshot(v->e, &v->job.snapshot));
    v->is_begun = true;
    atomic_store(&v->is_done, false);
    int code = pthread_create(&v->thread, NULL, thread_main, v);
    v->has_thread = code == 0;
    if (v->has_thread) {
        fr_snapshot_wait(v->job.snapshot); /* returns at once if it is a copy */
        return FR_OK;
    }
    /* The other ranks have begun, so this rank does its part on the calling thread. */
    fr_log(v->s->ctx, FR_LOG_WARN, "no thread for writing checkpoints (%s): training waits",
           strerror(code));
    save(v);
    return FR_OK;
}

bool fr__saver_is_done(const fr__saver *v) { return v->is_begun && atomic_load(&v->is_done); }

fr_status fr__saver_wait(fr__saver *v)
{
    if (!v->is_begun) return FR_OK;
    if (v->has_thread) pthread_join(v->thread, NULL);
    v->is_begun = v->has_thread = false;
    if (v->status == FR_OK) return FR_OK;
    return fr_fail(v->s->ctx, v->status, "%s", v->error);
}
