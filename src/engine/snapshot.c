/* snapshot.c -- a copy of all that a checkpoint holds, taken between two calls, so that training
 * goes on while somebody writes it to a disk.
 *
 * Values are made plain when they are copied: programs belong to the workers, who will be busy.
 * Each process copies what the first replica of each of its stages holds, tells rank 0 at once what
 * there is (the head of a file has it), and streams it in the order of the items. */
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
    uint8_t *flags; /* (n_pieces) is_there, on its way */
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

static fr_status create(fr_engine *e)
{
    int n_states = e->desc.optimizer->n_state, n = fr_graph_n_params(e->desc.graph);
    fr_snapshot *s = FR_ARENA_NEW(&e->arena, fr_snapshot);
    if (!s) return fr__no_memory(e->ctx, sizeof *s, "a snapshot");
    s->engine = e;
    s->pieces = FR_ARENA_ARRAY(&e->arena, piece, n * (n_states + 2) + 1);
    s->flags = FR_ARENA_ARRAY(&e->arena, uint8_t, n * (n_states + 2) + 1);
    if (!s->pieces || !s->flags) return fr__no_memory(e->ctx, sizeof *s, "a snapshot");
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

fr_status fr__snapshot_create(fr_engine *e)
{
    return e->desc.want_snapshots && e->desc.schedule ? create(e) : FR_OK;
}

size_t fr_engine_snapshot_bytes(const fr_engine *e) { return e->snapshot ? e->snapshot->bytes : 0; }

/* The flags of a rank's pieces, in their order: rank 0 takes them, the rank itself hands them in.
 */
static fr_status pass_flags(fr_snapshot *s, int rank)
{
    fr_team *team = s->engine->desc.team;
    size_t n = 0;
    for (int i = 0; i < s->n_pieces; i++)
        if (s->pieces[i].rank == rank) s->flags[n++] = s->pieces[i].is_there;
    if (s->engine->rank == rank) return fr_team_put(team, 0, s->flags, n);
    FR_TRY(fr_team_take(team, rank, s->flags, n));
    n = 0;
    for (int i = 0; i < s->n_pieces; i++)
        if (s->pieces[i].rank == rank) s->pieces[i].is_there = s->flags[n++] != 0;
    return FR_OK;
}

fr_status fr_engine_snapshot(fr_engine *e, fr_snapshot **out)
{
    *out = NULL;
    if (!e->desc.schedule)
        return fr_fail(e->ctx, FR_INVALID, "an engine that only evaluates takes no snapshots");
    if (!e->snapshot) FR_TRY(create(e));
    fr_snapshot *s = *out = e->snapshot;
    for (int i = 0; i < s->n_pieces; i++) {
        piece *p = &s->pieces[i];
        if (p->rank != e->rank) continue;
        FR_TRY(fr__item_read(e, &p->item, (float *)(void *)(s->staging + p->at), &p->is_there));
    }
    s->next = 0;
    if (e->rank > 0) return pass_flags(s, e->rank);
    for (int r = 1; r < fr_team_size(e->desc.team); r++) FR_TRY(pass_flags(s, r));
    return FR_OK;
}

bool fr_snapshot_has_memory(const fr_snapshot *s, int param)
{
    for (int i = 0; i < s->n_pieces; i++) {
        const piece *p = &s->pieces[i];
        if (p->item.kind == FR_ITEM_MEMORY && p->item.param == param) return p->is_there;
    }
    return false;
}

fr_status fr_snapshot_next(fr_snapshot *s, fr_item *item, float *plain)
{
    int rank = s->engine->rank;
    fr_team *team = s->engine->desc.team;
    while (s->next < s->n_pieces) {
        piece *p = &s->pieces[s->next++];
        if (!p->is_there || (rank > 0 && p->rank != rank)) continue;
        *item = p->item;
        if (rank > 0) return fr_team_put(team, 0, s->staging + p->at, p->bytes);
        if (p->rank > 0) return fr_team_take(team, p->rank, plain, p->bytes);
        memcpy(plain, s->staging + p->at, p->bytes);
        return FR_OK;
    }
    *item = (fr_item){.param = -1};
    return FR_OK;
}
