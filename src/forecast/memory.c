/* memory.c -- the bytes of the processes of a run, compared with those available.
 *
 * Only bytes still to be allocated are compared. Code, libraries and data are resident by then
 * and already subtracted in the kernel's figures (base/room.h). */
#include "forecast/memory.h"

#include "base/room.h"
#include "base/thread.h"
#include "config/setup.h"
#include "forecast/fits.h"
#include "io/json.h"
#include <forerun/state.h>

#include <stdio.h>
#include <string.h>

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* --- what a process will hold ----------------------------------------------------------------- */

/* Mini-batches of training and evaluation in flight, and the order of the data. */
static size_t feed_bytes(const fr__setup *s, const fr_engine *e)
{
    const fr_data_info *d = fr_dataset_info(s->data);
    if (!fr_engine_reads_data(e)) return 0;
    size_t sample = (size_t)fr_shape_count(&d->input) * fr_dtype_bytes(d->input_dtype) +
                    (size_t)(fr_shape_count(&d->target) + 1) * sizeof(int32_t);
    size_t n_held = (size_t)fr_engine_window(e) + 2;
    return 2 * n_held * (size_t)s->settings.batch * sample + 8 * (size_t)d->n_train;
}

/* An emulated run measures the whole model on all cores at once. Measuring the stages for this
 * machine takes no more memory than the workers will. */
static size_t measuring_bytes(const fr__setup *s, const fr_engine *e)
{
    const fr__settings *t = &s->settings;
    if (!t->cluster || t->profile) return 0;
    size_t model = 0;
    for (int w = 0; w < fr_engine_n_workers(e); w++) {
        const fr_memory_use *u = fr_engine_predicted(e, w);
        bool is_first = false; /* replica of its stages */
        for (int k = 0; k < fr_engine_n_stages(e); k++)
            is_first |= fr_engine_worker_of(e, k, 0) == w;
        if (is_first)
            model += u->total - u->io - u->weights + u->weights / (size_t)u->weight_copies;
    }
    int n = fr__cpu_count() / (t->threads > 0 ? t->threads : 1);
    return model * (size_t)(n > 0 ? n : 1);
}

static void measure(const fr__setup *s, const fr_engine *e, fr__footprint *f)
{
    bool saves = s->pipeline.schedule && fr_team_rank(s->team) == 0;
    *f = (fr__footprint){.base = fr__resident_bytes(),
                         .host = fr_engine_host_bytes(e) + feed_bytes(s, e),
                         .measuring = measuring_bytes(s, e)};
    if (saves) f->host += fr__setup_largest_param(s->graph) * sizeof(float);
    for (int w = 0; w < fr_engine_n_workers(e); w++)
        if (fr_engine_rank_of(e, w) == fr_team_rank(s->team))
            f->engine += fr_engine_predicted(e, w)->total;
    f->total = f->largest = f->base + most(f->engine + f->host, f->measuring);
}

void fr__memory_write(fr__json *j, const fr__footprint *f)
{
    fr__json_object(j, "memory");
    fr__json_uint(j, "base_bytes", f->base);
    fr__json_uint(j, "engine_bytes", f->engine);
    fr__json_uint(j, "host_bytes", f->host);
    fr__json_uint(j, "measuring_bytes", f->measuring);
    fr__json_uint(j, "predicted_resident_bytes", f->total);
    fr__json_end(j);
}

/* --- all processes ---------------------------------------------------------------------------- */

/* The message of each rank to rank 0. */
typedef struct claim {
    uint64_t need, host, total; /* still to be allocated; the part outside workers; in the end */
    fr__room room;
} claim;

static bool is_same_machine(const fr_team *t, int a, int b)
{
    return a == b || strcmp(fr_team_host(t, a), fr_team_host(t, b)) == 0;
}

/* The first rank whose machine or control group has too little memory; or -1. */
static int find_shortage(const fr__setup *s, const claim *claims, fr__shortage *out)
{
    int n = fr_team_size(s->team);
    for (int i = 0; i < n; i++) {
        fr__shortage machine = {.rank = i, .room = claims[i].room.machine};
        fr__shortage group = {.rank = i, .room = claims[i].room.group, .is_group = true};
        for (int k = 0; k < n; k++) {
            if (!is_same_machine(s->team, i, k)) continue;
            machine.need += claims[k].need, machine.host += claims[k].host, machine.n_ranks++;
            if (claims[k].room.group_id != claims[i].room.group_id) continue;
            group.need += claims[k].need, group.host += claims[k].host, group.n_ranks++;
        }
        *out = group.need > group.room ? group : machine;
        if (out->need > out->room) return i;
    }
    return -1;
}

static fr_status judge(fr__setup *s, fr_engine **e, const claim *claims, fr__footprint *f)
{
    char text[1024];
    fr__shortage shortage;
    for (int i = 0; i < fr_team_size(s->team); i++) f->largest = most(f->largest, claims[i].total);
    if (find_shortage(s, claims, &shortage) < 0) return FR_OK;
    fr__fits_text(s, e, f, &shortage, text, sizeof text);
    if (s->settings.is_memory_binding)
        return fr_fail(s->ctx, FR_NO_MEMORY, "%s; run.memory: warn starts it anyway", text);
    fr_log(s->ctx, FR_LOG_WARN, "%s", text);
    return FR_OK;
}

/* Rank 0 receives the claims of all ranks. */
static fr_status gather(fr__setup *s, const claim *own, claim *claims)
{
    int rank = fr_team_rank(s->team);
    if (rank > 0) return fr_team_send(s->team, 0, own, sizeof *own);
    claims[0] = *own;
    for (int r = 1; r < fr_team_size(s->team); r++)
        FR_TRY(fr_team_recv(s->team, r, &claims[r], sizeof *claims));
    return FR_OK;
}

/* On failure *e may have been freed; then it is NULL. */
static fr_status check(fr__setup *s, fr_engine **e, fr__footprint *f)
{
    measure(s, *e, f);
    claim own = {.need = f->total - f->base, .host = f->host, .total = f->total};
    fr__room_read(s->system_root ? s->system_root : "", &own.room);
    claim *claims = FR_NEW_ARRAY(claim, fr_team_size(s->team));
    fr_status status = claims ? FR_OK : fr__no_memory(s->ctx, 0, "a check of the memory");
    status = fr_team_agree(s->team, status);
    if (status == FR_OK) status = gather(s, &own, claims);
    if (status == FR_OK && fr_team_rank(s->team) == 0) status = judge(s, e, claims, f);
    fr__free(claims);
    return fr_team_agree(s->team, status);
}

fr_status fr__memory_plan(fr__setup *s, const fr_engine_desc *d, fr__footprint *f, fr_engine **out)
{
    *out = NULL;
    FR_TRY(fr_engine_plan(s->ctx, d, out));
    fr_status status = check(s, out, f);
    if (status == FR_OK) return FR_OK;
    fr_engine_free(*out);
    *out = NULL;
    return status;
}
