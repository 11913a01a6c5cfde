/* snapshot.c -- the content of a checkpoint at one moment between two calls, for a thread that
 * writes it to disk.
 *
 * A state of up to desc.snapshot_bytes is copied, and training continues immediately. A larger
 * one is read in place, one value after the other into one buffer, and the next call waits until
 * all have been read (fr_snapshot_wait), so that the state is never held twice. Values are
 * converted to the plain layout when they are read: programs belong to the workers, which are idle
 * at that time.
 *
 * Each process provides the state of the first replica of each of its stages. It sends rank 0 the
 * list of values first, for the header of the file, and then streams the values in the order of the
 * items. */
#include "engine/engine.h"

#include <string.h>

typedef struct piece {
    fr_item item;
    int rank;
    size_t at; /* in this process's copy */
} piece;

struct fr_snapshot {
    fr_engine *engine;
    int n_pieces, next;
    piece *pieces;
    bool *is_there; /* (n_pieces) */
    size_t bytes;   /* of the pieces of this process */
    size_t largest; /* of them */
    bool is_copy;
    char *staging;  /* the copy; or, where another rank writes, the current value */
    uint8_t *flags; /* (n_pieces) is_there, on its way */
    pthread_mutex_t lock;
    pthread_cond_t freed;
    bool is_free; /* the engine may change its state; guarded by the lock */
};

static bool is_kept(const fr_param *p, bool want_buffers)
{
    return p->tied_to < 0 && p->is_buffer == want_buffers;
}

/* --- create and free --------------------------------------------------------------------- */

static void list_pieces(fr_snapshot *s, fr_item_kind kind, int which, bool want_buffers)
{
    fr_engine *e = s->engine;
    for (int i = 0; i < fr_graph_n_params(e->desc.graph); i++) {
        if (!is_kept(fr_graph_param(e->desc.graph, i), want_buffers)) continue;
        piece *p = &s->pieces[s->n_pieces++];
        p->item = (fr_item){.kind = kind, .which = which, .param = i};
        p->rank = fr_engine_rank_of(e, fr__item_part(e, &p->item)->worker->index);
        p->at = s->bytes;
        if (p->rank != e->rank) continue;
        size_t bytes = fr__plain_bytes(e, i);
        s->bytes += fr__align_up(bytes);
        if (bytes > s->largest) s->largest = bytes;
    }
}

fr_status fr__snapshot_plan(fr_engine *e)
{
    if (!e->desc.schedule) return FR_OK;
    int n_states = e->desc.optimizer->n_state;
    bool has_memory = fr_engine_memory_name(e) != NULL;
    int most = fr_graph_n_params(e->desc.graph) * (1 + n_states + has_memory) + 1;
    fr_snapshot *s = FR_ARENA_NEW(&e->arena, fr_snapshot);
    if (!s) return fr__no_memory(e->ctx, sizeof *s, "a snapshot");
    s->engine = e;
    s->pieces = FR_ARENA_ARRAY(&e->arena, piece, most);
    s->is_there = FR_ARENA_ARRAY(&e->arena, bool, most);
    s->flags = FR_ARENA_ARRAY(&e->arena, uint8_t, most);
    if (!s->pieces || !s->is_there || !s->flags)
        return fr__no_memory(e->ctx, sizeof *s, "a snapshot");
    list_pieces(s, FR_ITEM_PARAM, 0, false);
    list_pieces(s, FR_ITEM_PARAM, 0, true);
    for (int k = 0; k < n_states; k++) list_pieces(s, FR_ITEM_STATE, k, false);
    if (has_memory) list_pieces(s, FR_ITEM_MEMORY, 0, false);
    s->is_copy = s->bytes <= (e->desc.snapshot_bytes ? e->desc.snapshot_bytes : FR_SNAPSHOT_BYTES);
    s->next = s->n_pieces;
    s->is_free = true;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->freed, NULL);
    e->snapshot = s;
    return FR_OK;
}

fr_status fr__snapshot_take(fr_engine *e)
{
    fr_snapshot *s = e->snapshot;
    size_t bytes = fr_engine_snapshot_bytes(e);
    if (!s || s->staging || bytes == 0) return FR_OK;
    s->staging = fr__alloc(bytes);
    return s->staging ? FR_OK : fr__no_memory(e->ctx, bytes, "a snapshot");
}

void fr__snapshot_free(fr_engine *e)
{
    if (!e->snapshot) return;
    fr__free(e->snapshot->staging);
    pthread_mutex_destroy(&e->snapshot->lock);
    pthread_cond_destroy(&e->snapshot->freed);
}

size_t fr_engine_snapshot_bytes(const fr_engine *e)
{
    const fr_snapshot *s = e->snapshot;
    if (!s) return 0;
    if (s->is_copy) return s->bytes;
    return e->rank > 0 ? s->largest : 0; /* rank 0 reads into its caller's buffer */
}

bool fr_engine_copies_snapshots(const fr_engine *e) { return e->snapshot && e->snapshot->is_copy; }

/* --- taking it --------------------------------------------------------------------------- */

/* The flags of a rank's pieces, in order: the rank sends them, rank 0 receives them. */
static fr_status pass_flags(fr_snapshot *s, int rank)
{
    fr_team *team = s->engine->desc.team;
    size_t n = 0;
    for (int i = 0; i < s->n_pieces; i++)
        if (s->pieces[i].rank == rank) s->flags[n++] = s->is_there[i];
    if (s->engine->rank == rank) return fr_team_send(team, 0, s->flags, n);
    FR_TRY(fr_team_recv(team, rank, s->flags, n));
    n = 0;
    for (int i = 0; i < s->n_pieces; i++)
        if (s->pieces[i].rank == rank) s->is_there[i] = s->flags[n++] != 0;
    return FR_OK;
}

static void *copy_of(const fr_snapshot *s, const piece *p) { return s->staging + p->at; }

static void set_free(fr_snapshot *s, bool is_free)
{
    pthread_mutex_lock(&s->lock);
    s->is_free = is_free;
    pthread_cond_broadcast(&s->freed);
    pthread_mutex_unlock(&s->lock);
}

fr_status fr_engine_snapshot(fr_engine *e, fr_snapshot **out)
{
    *out = NULL;
    if (!e->desc.schedule)
        return fr_fail(e->ctx, FR_INVALID, "an engine that only evaluates takes no snapshots");
    FR_TRY(fr__snapshot_take(e));
    fr_snapshot *s = *out = e->snapshot;
    for (int i = 0; i < s->n_pieces; i++) {
        const piece *p = &s->pieces[i];
        if (p->rank != e->rank) continue;
        s->is_there[i] = fr__item_is_there(e, &p->item);
        if (s->is_copy && s->is_there[i]) FR_TRY(fr__item_read(e, &p->item, copy_of(s, p)));
    }
    s->next = 0;
    set_free(s, s->is_copy);
    if (e->rank > 0) return pass_flags(s, e->rank);
    for (int r = 1; r < fr_team_size(e->desc.team); r++) FR_TRY(pass_flags(s, r));
    return FR_OK;
}

void fr_snapshot_wait(fr_snapshot *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->is_free) pthread_cond_wait(&s->freed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void fr_snapshot_end(fr_snapshot *s) { set_free(s, true); }

/* --- reading it -------------------------------------------------------------------------- */

bool fr_snapshot_has_memory(const fr_snapshot *s, int param)
{
    for (int i = 0; i < s->n_pieces; i++) {
        const piece *p = &s->pieces[i];
        if (p->item.kind == FR_ITEM_MEMORY && p->item.param == param) return s->is_there[i];
    }
    return false;
}

/* A piece of this process: to rank 0, or on rank 0 to `plain`. */
static fr_status give(fr_snapshot *s, const piece *p, void *plain)
{
    fr_engine *e = s->engine;
    bool sends = e->rank > 0;
    size_t bytes = fr__plain_bytes(e, p->item.param);
    void *at = s->is_copy ? copy_of(s, p) : sends ? s->staging : plain;
    if (!s->is_copy) FR_TRY(fr__item_read(e, &p->item, at));
    if (sends) return fr_team_send(e->desc.team, 0, at, bytes);
    if (at != plain) memcpy(plain, at, bytes);
    return FR_OK;
}

fr_status fr_snapshot_next(fr_snapshot *s, fr_item *item, void *plain)
{
    fr_engine *e = s->engine;
    int rank = e->rank;
    while (s->next < s->n_pieces) {
        int i = s->next++;
        const piece *p = &s->pieces[i];
        if (!s->is_there[i] || (rank > 0 && p->rank != rank)) continue;
        *item = p->item;
        if (p->rank != rank)
            return fr_team_recv(e->desc.team, p->rank, plain, fr__plain_bytes(e, p->item.param));
        return give(s, p, plain);
    }
    set_free(s, true);
    *item = (fr_item){.param = -1};
    return FR_OK;
}
