/* snapshot.c -- a copy of all that a checkpoint holds, taken between two calls, so that training
 * goes on while somebody writes it to a disk.
 *
 * Values are made plain when they are copied: programs belong to the workers, who will be busy.
 * Each process copies what the first replica of each of its stages holds, and streams it to rank 0
 * in the order of the items. */
#include "engine/engine.h"

#include <string.h>

typedef struct piece {
    fr_item item;
    int rank;
    size_t at, bytes; /* in this process's staging memory */
    bool is_there;
} piece;

struct fr_snapshot {
    fr_engine *engine;
    int n_pieces, next;
    piece *pieces;
    char *staging;
    size_t bytes;
};

static bool is_kept(const fr_param *p, bool want_buffers)
{
    return p->tied_to < 0 && p->is_buffer == want_buffers;
}

static void list_pieces(fr_snapshot *s, fr_item_kind kind, int which, bool want_buffers)
{
    fr_engine *e = s->engine;
    for (int i = 0; i < fr_graph_n_params(e->desc.graph); i++) {
        if (!is_kept(fr_graph_param(e->desc.graph, i), want_buffers)) continue;
        piece *p = &s->pieces[s->n_pieces++];
        p->item = (fr_item){.kind = kind, .which = which, .param = i};
        p->rank = fr_engine_rank_of(e, fr__item_part(e, &p->item)->worker->index);
        p->bytes = fr__plain_bytes(e, i);
        p->at = s->bytes;
        if (p->rank == e->rank) s->bytes += fr__align_up(p->bytes);
    }
}

fr_status fr__snapshot_create(fr_engine *e)
{
    if (!e->desc.want_snapshots || !e->desc.schedule) return FR_OK;
    int n_states = e->desc.optimizer->n_state, n = fr_graph_n_params(e->desc.graph);
    fr_snapshot *s = FR_ARENA_NEW(&e->arena, fr_snapshot);
    if (!s) return fr__no_memory(e->ctx, sizeof *s, "a snapshot");
    s->engine = e;
    s->pieces = FR_ARENA_ARRAY(&e->arena, piece, n * (n_states + 2) + 1);
    if (!s->pieces) return fr__no_memory(e->ctx, sizeof *s, "a snapshot");
    list_pieces(s, FR_ITEM_PARAM, 0, false);
    list_pieces(s, FR_ITEM_PARAM, 0, true);
    for (int k = 0; k < n_states; k++) list_pieces(s, FR_ITEM_STATE, k, false);
    if (fr_engine_memory_name(e)) list_pieces(s, FR_ITEM_MEMORY, 0, false);
    s->staging = fr__arena_alloc(&e->arena, s->bytes + 1);
    if (!s->staging) return fr__no_memory(e->ctx, s->bytes, "a snapshot");
    s->next = s->n_pieces;
    e->snapshot = s;
    return FR_OK;
}

size_t fr_engine_snapshot_bytes(const fr_engine *e) { return e->snapshot ? e->snapshot->bytes : 0; }

fr_status fr_engine_snapshot(fr_engine *e, fr_snapshot **out)
{
    fr_snapshot *s = *out = e->snapshot;
    if (!s)
        return fr_fail(e->ctx, FR_INVALID,
                       "no memory for snapshots: create the engine with want_snapshots");
    for (int i = 0; i < s->n_pieces; i++) {
        piece *p = &s->pieces[i];
        if (p->rank != e->rank) continue;
        FR_TRY(fr__item_read(e, &p->item, (float *)(void *)(s->staging + p->at), &p->is_there));
    }
    s->next = 0;
    return FR_OK;
}

/* From another process: whether it is there, then the values. */
static fr_status fetch(fr_snapshot *s, piece *p, float *plain)
{
    fr_team *team = s->engine->desc.team;
    uint8_t is_there;
    FR_TRY(fr_team_take(team, p->rank, &is_there, 1));
    p->is_there = is_there != 0;
    return is_there ? fr_team_take(team, p->rank, plain, p->bytes) : FR_OK;
}

static fr_status hand_over(fr_snapshot *s, const piece *p)
{
    fr_team *team = s->engine->desc.team;
    uint8_t is_there = p->is_there;
    FR_TRY(fr_team_put(team, 0, &is_there, 1));
    return is_there ? fr_team_put(team, 0, s->staging + p->at, p->bytes) : FR_OK;
}

fr_status fr_snapshot_next(fr_snapshot *s, fr_item *item, float *plain)
{
    int rank = s->engine->rank;
    while (s->next < s->n_pieces) {
        piece *p = &s->pieces[s->next++];
        *item = p->item;
        if (rank > 0 && p->rank == rank) FR_TRY(hand_over(s, p));
        if (rank > 0) continue;
        if (p->rank > 0) FR_TRY(fetch(s, p, plain));
        if (!p->is_there) continue;
        if (p->rank == 0) memcpy(plain, s->staging + p->at, p->bytes);
        return FR_OK;
    }
    *item = (fr_item){.param = -1};
    return FR_OK;
}
