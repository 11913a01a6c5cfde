/* ties.c -- gradients of parameters that are tied across stages: their sum, everywhere the same.
 *
 * They meet on a board, in pieces of a bounded size: a process holds the pieces of two rounds, not
 * the gradients of everybody. Every stage that holds a copy adds them in one order, owner first, in
 * the place of its own. */
#include "engine/engine.h"

#include <string.h>

enum { TIE_PIECE = 1 << 20 }; /* floats */

/* --- set-up --------------------------------------------------------------------------------- */

/* Owners and copies whose group spans stages, owners first. */
fr_status fr__ties_find(fr_engine *e)
{
    const fr_graph *g = e->desc.graph;
    int n = fr_graph_n_params(g);
    bool *spans = FR_ARENA_ARRAY(&e->arena, bool, n + 1);
    e->tied = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->tie_room = FR_ARENA_ARRAY(&e->arena, size_t, e->n_workers + 1);
    if (!spans || !e->tied || !e->tie_room) return fr__no_memory(e->ctx, (size_t)n, "an engine");
    for (int i = 0; i < n; i++)
        if (e->home_of[i] != e->home_of[fr__owner_of(e, i)]) spans[fr__owner_of(e, i)] = true;
    for (int i = 0; i < n; i++) {
        int owner = fr__owner_of(e, i);
        bool is_inside = i != owner && e->home_of[i] == e->home_of[owner];
        if (spans[owner] && !is_inside) e->tied[e->n_tied++] = i; /* else the program adds them */
    }
    return FR_OK;
}

/* A tied gradient has a part of the board for one piece of it. */
static size_t tie_piece_bytes(const fr_engine *e, int param)
{
    size_t bytes = fr__plain_bytes(e, param), most = TIE_PIECE * sizeof(float);
    return bytes < most ? bytes : most;
}

/* Bytes of the board that each worker holds: both halves. */
void fr__ties_measure(fr_engine *e)
{
    for (int i = 0; i < e->n_tied && e->must_sum; i++) {
        int stage = e->home_of[e->tied[i]];
        int64_t n = (int64_t)(fr__plain_bytes(e, e->tied[i]) / sizeof(float));
        int64_t n_pieces = (n + TIE_PIECE - 1) / TIE_PIECE;
        if (n_pieces > e->n_tie_pieces) e->n_tie_pieces = n_pieces;
        for (int q = 0; q < fr_engine_n_replicas(e, stage); q++)
            e->tie_room[fr_engine_worker_of(e, stage, q)] +=
                2 * fr__align_up(tie_piece_bytes(e, e->tied[i]));
    }
}

static int n_tie_parts(const fr_engine *e)
{
    int n = 0;
    for (int i = 0; i < e->n_tied; i++) n += fr_engine_n_replicas(e, e->home_of[e->tied[i]]);
    return n;
}

/* The board's part of tied parameter number `nth` on a replica. */
static int tie_part(const fr_engine *e, int nth, int replica)
{
    int part = replica;
    for (int i = 0; i < nth; i++) part += fr_engine_n_replicas(e, e->home_of[e->tied[i]]);
    return part;
}

static fr_part *part_on(const fr_worker *w, int stage)
{
    for (int i = 0; i < w->n_parts; i++)
        if (w->parts[i]->stage == stage) return w->parts[i];
    return NULL;
}

/* Where a tied gradient is plain, and the host may write there, it is summed in place; else in a
 * plain copy in host memory. */
static bool sums_in_place(const fr_part *p, int placement)
{
    return fr_program_is_plain(p->layout, placement) && fr__device_is_host(p->worker->dev);
}

/* How far into the worker's scratch such a copy is. */
static size_t tie_scratch_at(const fr_worker *w, int nth)
{
    const fr_engine *e = w->engine;
    size_t bytes = 0;
    for (int i = 0; i < nth && w->is_local && e->must_sum; i++) {
        int param = e->tied[i];
        const fr_part *p = part_on(w, e->home_of[param]);
        if (p && !sums_in_place(p, e->placement_of[param]))
            bytes += fr__align_up(fr__plain_bytes(e, param));
    }
    return bytes;
}

size_t fr__tie_scratch_bytes(const fr_worker *w) { return tie_scratch_at(w, w->engine->n_tied); }

/* A process that has an owner of a part holds those of all others, too. */
size_t fr__tie_copies_bytes(const fr_engine *e)
{
    size_t elsewhere = 0;
    bool has_own = false;
    for (int i = 0; i < e->n_tied && e->must_sum; i++) {
        int stage = e->home_of[e->tied[i]];
        for (int q = 0; q < fr_engine_n_replicas(e, stage); q++) {
            if (e->workers[fr_engine_worker_of(e, stage, q)].is_local)
                has_own = true;
            else
                elsewhere += 2 * fr__align_up(tie_piece_bytes(e, e->tied[i]));
        }
    }
    return has_own ? elsewhere : 0;
}

fr_status fr__ties_open(fr_engine *e)
{
    int n = n_tie_parts(e);
    size_t *bytes = FR_ARENA_ARRAY(&e->arena, size_t, n);
    int *owner = FR_ARENA_ARRAY(&e->arena, int, n);
    e->tie_scratch = FR_ARENA_ARRAY(&e->arena, float *, e->n_workers);
    if (!bytes || !owner || !e->tie_scratch) return fr__no_memory(e->ctx, (size_t)n, "an engine");
    n = 0;
    for (int i = 0; i < e->n_tied; i++) {
        int stage = e->home_of[e->tied[i]];
        for (int q = 0; q < fr_engine_n_replicas(e, stage); q++, n++) {
            bytes[n] = tie_piece_bytes(e, e->tied[i]);
            owner[n] = fr_engine_worker_of(e, stage, q);
        }
    }
    for (int i = 0; i < e->n_workers; i++) {
        size_t scratch = fr__tie_scratch_bytes(&e->workers[i]);
        e->tie_scratch[i] = scratch ? fr__arena_alloc(&e->arena, scratch) : NULL;
        if (scratch && !e->tie_scratch[i]) return fr__no_memory(e->ctx, scratch, "tied parameters");
    }
    return e->transport->add_board(e->group, n, bytes, owner, &e->tie_board);
}

bool fr__ties_on(const fr_worker *w)
{
    const fr_engine *e = w->engine;
    for (int i = 0; i < e->n_tied; i++)
        if (part_on(w, e->home_of[e->tied[i]])) return true;
    return false;
}

/* --- the sum -------------------------------------------------------------------------------- */

/* A tied gradient of a worker, plain; NULL: another worker's. */
static float *tied_grad(const fr_worker *w, int nth)
{
    const fr_engine *e = w->engine;
    int placement = e->placement_of[e->tied[nth]];
    const fr_part *p = part_on(w, e->home_of[e->tied[nth]]);
    if (!p) return NULL;
    if (sums_in_place(p, placement))
        return p->grads + fr_program_placement(p->layout, placement)->offset;
    return e->tie_scratch[w->index] + tie_scratch_at(w, nth) / sizeof(float);
}

/* Between gradients and their plain copies, where there are any. */
static fr_status move_ties(fr_worker *w, bool reads)
{
    fr_engine *e = w->engine;
    for (int i = 0; i < e->n_tied; i++) {
        int placement = e->placement_of[e->tied[i]];
        fr_part *p = part_on(w, e->home_of[e->tied[i]]);
        if (!p || sums_in_place(p, placement)) continue;
        float *plain = tied_grad(w, i);
        FR_TRY(reads ? fr_program_read_param(p->layout, p->grads, placement, plain)
                     : fr_program_write_param(p->layout, p->grads, placement, plain));
    }
    return FR_OK;
}

/* Floats of piece k of a tied gradient, which may be at its end before. */
static size_t tie_piece(const fr_engine *e, int nth, int64_t k)
{
    int64_t left = (int64_t)(fr__plain_bytes(e, e->tied[nth]) / sizeof(float)) - k * TIE_PIECE;
    return (size_t)(left < 0 ? 0 : left < TIE_PIECE ? left : TIE_PIECE);
}

static void post_ties(fr_worker *w, int64_t round, int64_t k, bool is_alive)
{
    fr_engine *e = w->engine;
    for (int i = 0; i < e->n_tied; i++) {
        const fr_part *p = part_on(w, e->home_of[e->tied[i]]);
        if (!p) continue;
        int part = tie_part(e, i, p->replica);
        size_t n = tie_piece(e, i, k);
        if (is_alive && n > 0)
            memcpy(e->transport->board_part(e->tie_board, round, part),
                   tied_grad(w, i) + k * TIE_PIECE, n * sizeof(float));
        e->transport->board_post(e->tie_board, round, part);
    }
}

/* Owner first, then the copies as the graph lists them. */
static void sum_ties(fr_worker *w, int64_t round, int64_t k)
{
    fr_engine *e = w->engine;
    for (int i = 0; i < e->n_tied; i++) {
        float *sum = tied_grad(w, i);
        size_t n = tie_piece(e, i, k);
        bool is_first = true;
        if (!sum || n == 0) continue;
        sum += k * TIE_PIECE;
        for (int c = 0; c < e->n_tied; c++) {
            if (fr__owner_of(e, e->tied[c]) != fr__owner_of(e, e->tied[i])) continue;
            const float *grad = e->transport->board_part(e->tie_board, round, tie_part(e, c, 0));
            for (size_t j = 0; j < n; j++) sum[j] = is_first ? grad[j] : sum[j] + grad[j];
            is_first = false;
        }
    }
}

fr_status fr__ties_sum(fr_worker *w, int64_t batch, bool *is_dead)
{
    fr_engine *e = w->engine;
    if (e->paced) fr__pace_post(w, e->tie_meeting, w->clock, !*is_dead);
    if (!*is_dead) FR_TRY(move_ties(w, true));
    for (int64_t k = 0; k < e->n_tie_pieces; k++) {
        int64_t round = (batch - e->first) * e->n_tie_pieces + k;
        bool is_last = k + 1 == e->n_tie_pieces;
        post_ties(w, round, k, !*is_dead);
        FR_TRY(fr__board_wait(w, e->tie_board, round, is_last ? e->tie_meeting : NULL));
        *is_dead = *is_dead || batch >= atomic_load(&e->limit);
        if (!*is_dead) sum_ties(w, round, k);
    }
    return *is_dead ? FR_OK : move_ties(w, false);
}
