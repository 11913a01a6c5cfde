/* ties.c -- sums the gradients of parameters tied across stages, with the same result on every
 * stage.
 *
 * The gradients are exchanged through a board, in pieces of bounded size: a process holds the
 * pieces of two rounds, not all gradients. Every stage with a copy adds them in the same order,
 * owner first, and replaces its own gradient by the sum. */
#include "engine/engine.h"

enum { TIE_PIECE = 1 << 20 }; /* floats */

/* --- set-up --------------------------------------------------------------------------------- */

/* Owners and copies whose group spans stages, owners first. Frozen ones stay equal by themselves.
 */
fr_status fr__ties_find(fr_engine *e)
{
    const fr_graph *g = e->desc.graph;
    int n = fr_graph_n_params(g);
    bool *spans = FR_ARENA_ARRAY(&e->arena, bool, n + 1);
    e->tied = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->copies = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->tie_room = FR_ARENA_ARRAY(&e->arena, size_t, e->n_workers + 1);
    if (!spans || !e->tied || !e->copies || !e->tie_room)
        return fr__no_memory(e->ctx, (size_t)n, "an engine");
    for (int i = 0; i < n; i++) {
        if (e->home_of[i] == e->home_of[fr__owner_of(e, i)]) continue;
        e->copies[e->n_copies++] = i;
        if (!fr_graph_param(g, i)->is_frozen) spans[fr__owner_of(e, i)] = true;
    }
    for (int i = 0; i < n; i++) {
        int owner = fr__owner_of(e, i);
        bool is_inside = i != owner && e->home_of[i] == e->home_of[owner];
        if (spans[owner] && !is_inside) e->tied[e->n_tied++] = i; /* else the program adds them */
    }
    for (int i = 0; i < e->n_tied; i++)
        for (int q = 0; q < fr_engine_n_replicas(e, e->home_of[e->tied[i]]); q++) {
            const fr__part *p = fr__part_at(e, e->home_of[e->tied[i]], q);
            if (p->worker->is_local) FR_TRY(fr__exec_tie(p->exec, e->tied[i]));
        }
    return FR_OK;
}

/* Each tied gradient has a part of the board, which holds one piece of it. */
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

static fr__part *part_on(const fr__worker *w, int stage)
{
    for (int i = 0; i < w->n_parts; i++)
        if (w->parts[i]->stage == stage) return w->parts[i];
    return NULL;
}

static bool is_used(const fr_engine *e) { return e->must_sum || e->n_tie_links > 0; }

size_t fr__tie_scratch_bytes(const fr__worker *w)
{
    size_t bytes = 0;
    for (int i = 0; i < w->n_parts && w->is_local && is_used(w->engine); i++)
        bytes += fr__exec_tie_bytes(w->parts[i]->exec);
    return bytes;
}

/* A process with an owner of a part also holds the parts of all others. */
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
    e->tie_pieces = FR_ARENA_ARRAY(&e->arena, const void *, e->n_workers * e->n_tied);
    if (!bytes || !owner || !e->tie_pieces) return fr__no_memory(e->ctx, (size_t)n, "an engine");
    n = 0;
    for (int i = 0; i < e->n_tied; i++) {
        int stage = e->home_of[e->tied[i]];
        for (int q = 0; q < fr_engine_n_replicas(e, stage); q++, n++) {
            bytes[n] = tie_piece_bytes(e, e->tied[i]);
            owner[n] = fr_engine_worker_of(e, stage, q);
        }
    }
    for (int i = 0; i < e->n_parts; i++)
        if (e->parts[i].worker->is_local) FR_TRY(fr__exec_open_ties(e->execs[i], 0));
    return e->transport->add_board(e->group, n, bytes, owner, &e->tie_board);
}

bool fr__ties_on(const fr__worker *w)
{
    const fr_engine *e = w->engine;
    for (int i = 0; i < e->n_tied; i++)
        if (part_on(w, e->home_of[e->tied[i]])) return true;
    return false;
}

/* --- the sum -------------------------------------------------------------------------------- */

/* Copy between gradients and their plain copies, if there are any. */
static fr_status move_ties(fr__worker *w, fr_status (*move)(fr__exec *x))
{
    for (int i = 0; i < w->n_parts; i++) FR_TRY(move(w->parts[i]->exec));
    return FR_OK;
}

/* Floats of piece k of a tied gradient; 0 past its end. */
static size_t tie_piece(const fr_engine *e, int nth, int64_t k)
{
    int64_t left = (int64_t)(fr__plain_bytes(e, e->tied[nth]) / sizeof(float)) - k * TIE_PIECE;
    return (size_t)(left < 0 ? 0 : left < TIE_PIECE ? left : TIE_PIECE);
}

static void post_ties(fr__worker *w, int64_t round, int64_t k, bool is_alive)
{
    fr_engine *e = w->engine;
    for (int i = 0; i < e->n_tied; i++) {
        const fr__part *p = part_on(w, e->home_of[e->tied[i]]);
        if (!p) continue;
        int part = tie_part(e, i, p->replica);
        size_t n = tie_piece(e, i, k);
        if (is_alive && n > 0)
            fr__exec_copy_tie(p->exec, e->tied[i], (size_t)(k * TIE_PIECE), n,
                              e->transport->board_part(e->tie_board, round, part));
        e->transport->board_post(e->tie_board, round, part);
    }
}

/* Owner first, then the copies as the graph lists them. */
static void sum_ties(fr__worker *w, int64_t round, int64_t k)
{
    fr_engine *e = w->engine;
    const void **pieces = e->tie_pieces + w->index * e->n_tied;
    for (int i = 0; i < e->n_tied; i++) {
        const fr__part *p = part_on(w, e->home_of[e->tied[i]]);
        size_t n = tie_piece(e, i, k);
        int n_pieces = 0;
        if (!p || n == 0) continue;
        for (int c = 0; c < e->n_tied; c++)
            if (fr__owner_of(e, e->tied[c]) == fr__owner_of(e, e->tied[i]))
                pieces[n_pieces++] =
                    e->transport->board_part(e->tie_board, round, tie_part(e, c, 0));
        fr__exec_sum_tie(p->exec, e->tied[i], (size_t)(k * TIE_PIECE), n, n_pieces, pieces);
    }
}

fr_status fr__ties_sum(fr__worker *w, int64_t batch, bool *is_dead)
{
    fr_engine *e = w->engine;
    if (!*is_dead) FR_TRY(move_ties(w, fr__exec_read_ties));
    for (int64_t k = 0; k < e->n_tie_pieces; k++) {
        int64_t round = (batch - e->first) * e->n_tie_pieces + k;
        post_ties(w, round, k, !*is_dead);
        FR_TRY(fr__board_wait(w, e->tie_board, round));
        *is_dead = *is_dead || batch >= atomic_load(&e->limit);
        if (!*is_dead) sum_ties(w, round, k);
    }
    return *is_dead ? FR_OK : move_ties(w, fr__exec_write_ties);
}
