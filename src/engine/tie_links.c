/* tie_links.c -- parameters that are tied across stages, without a flush.
 *
 * Stages step at different times, so their copies would drift apart if each stage updated its own.
 * Instead the parameter belongs to its owner's stage. Other stages treat it like a value that
 * travels with the mini-batch: both passes read the weights that the owner's first forward of the
 * mini-batch read, predicted ones included, and the gradient goes back to the owner, which adds it
 * to its own before the update of that mini-batch. No gradient is late, no update is lost in a
 * drain, and there is no state beside the owner's weights.
 *
 *     owner   F(t) ---- weights ---->  copy F(t)
 *     owner   STEP(t) <-- gradient --  copy STEP(t)
 *
 * When a call ends, each copy receives the newest weights: evaluation reads them.
 *
 * Replicas: those of a stage have the same weights and, after their sum, the same gradient. A
 * replica receives from the one that its first micro-batch has passed through. */
#include "engine/engine.h"

#include <string.h>

/* Messages of one parameter between two parts: weights to a copy, or gradients to the owner. */
struct fr__tie_link {
    bool is_weights;
    fr__part *from, *to;
    int from_param, to_param;
    size_t bytes; /* of the values, aligned; a label follows */
    int n_buffers;
    char *memory; /* [n_buffers], of the sender */
    fr_channel *handle;
    /* In this call: of the sender's thread; of the receiver's. */
    int64_t n_sent, n_received, n_released;
};

enum { LABEL_BYTES = 64 }; /* an fr__loan */

static size_t message_bytes(const fr__tie_link *l) { return l->bytes + LABEL_BYTES; }

static int buffer_of(const fr__tie_link *l, int64_t nth) { return (int)(nth % l->n_buffers); }

/* --- set-up --------------------------------------------------------------------------------- */

/* Mini-batches that a stage has begun and not stepped, at most. At its step the copies have read
 * the weights for the last time, and their gradients have arrived. */
static int n_in_flight(const fr_engine *e, int stage)
{
    const fr_schedule *s = e->schedule[FR_MODE_TRAIN];
    const fr_instr_list *list = &s->lists[s->worker_of[stage]];
    int n_open = 0, most = 0, n_forwards = 0, share = s->n_micro / s->replicas[stage];
    for (int i = 0; i < list->n; i++) {
        if (list->at[i].stage != stage) continue;
        if (list->at[i].action == FR_DO_F && n_forwards++ % share == 0) n_open++;
        if (list->at[i].action == FR_DO_STEP) n_open--;
        if (n_open > most) most = n_open;
    }
    return most;
}

static void add_link(fr_engine *e, fr__tie_link link)
{
    int owner = link.is_weights ? link.from_param : link.to_param;
    link.bytes = fr__align_up(fr__plain_bytes(e, owner));
    link.n_buffers = n_in_flight(e, e->home_of[owner]);
    size_t room = (size_t)link.n_buffers * message_bytes(&link);
    int from = link.from->worker->index, to = link.to->worker->index;
    e->tie_room[from] += room;
    if (fr_engine_rank_of(e, from) != fr_engine_rank_of(e, to)) e->tie_room[to] += room;
    e->tie_links[e->n_tie_links++] = link;
}

static int n_holders(const fr_engine *e, int param)
{
    return fr_engine_n_replicas(e, e->home_of[param]);
}

fr_status fr__tie_links_plan(fr_engine *e)
{
    int most = 0;
    for (int i = 0; i < e->n_tied; i++)
        most += n_holders(e, e->tied[i]) + n_holders(e, fr__owner_of(e, e->tied[i]));
    e->tie_links = FR_ARENA_ARRAY(&e->arena, fr__tie_link, most + 1);
    if (!e->tie_links) return fr__no_memory(e->ctx, (size_t)most, "tied parameters");
    for (int i = 0; i < e->n_tied; i++) {
        int copy = e->tied[i], owner = fr__owner_of(e, copy);
        if (copy == owner) continue;
        int from = e->home_of[owner], to = e->home_of[copy];
        int n_from = n_holders(e, owner), n_to = n_holders(e, copy);
        for (int q = 0; q < n_to; q++)
            add_link(e, (fr__tie_link){.is_weights = true,
                                       .from = fr__part_at(e, from, q % n_from),
                                       .to = fr__part_at(e, to, q),
                                       .from_param = owner,
                                       .to_param = copy});
        for (int q = 0; q < n_from; q++)
            add_link(e, (fr__tie_link){.from = fr__part_at(e, to, q % n_to),
                                       .to = fr__part_at(e, from, q),
                                       .from_param = copy,
                                       .to_param = owner});
    }
    return FR_OK;
}

static fr_status open_link(fr_engine *e, fr__tie_link *l)
{
    size_t room = (size_t)l->n_buffers * message_bytes(l);
    int from = l->from->worker->index, to = l->to->worker->index;
    bool crosses = fr_engine_rank_of(e, from) != fr_engine_rank_of(e, to);
    char *landing = NULL;
    if (l->from->worker->is_local) l->memory = fr__arena_alloc(&e->arena, room);
    if (l->to->worker->is_local && crosses) landing = fr__arena_alloc(&e->arena, room);
    if ((l->from->worker->is_local && !l->memory) ||
        (l->to->worker->is_local && crosses && !landing))
        return fr__no_memory(e->ctx, room, "tied parameters");
    fr_channel_desc d = {.from = from,
                         .to = to,
                         .n_buffers = l->n_buffers,
                         .bytes = message_bytes(l),
                         .stride = message_bytes(l),
                         .memory = l->memory,
                         .landing = landing};
    return e->transport->add_channel(e->group, &d, &l->handle);
}

fr_status fr__tie_links_open(fr_engine *e)
{
    int most = 0;
    for (int i = 0; i < e->n_tie_links; i++)
        if (e->tie_links[i].n_buffers > most) most = e->tie_links[i].n_buffers;
    for (int i = 0; i < e->n_parts; i++)
        if (e->parts[i].worker->is_local) FR_TRY(fr__exec_open_ties(e->execs[i], most));
    for (int i = 0; i < e->n_tie_links; i++) FR_TRY(open_link(e, &e->tie_links[i]));
    return FR_OK;
}

void fr__tie_links_begin(fr_engine *e)
{
    for (int i = 0; i < e->n_tie_links; i++) {
        fr__tie_link *l = &e->tie_links[i];
        l->n_sent = l->n_received = l->n_released = 0;
    }
}

/* --- messages --------------------------------------------------------------------------------- */

static fr_status acquire(fr__tie_link *l, char **to)
{
    int b = buffer_of(l, l->n_sent);
    fr__wait_begin(l->from->worker);
    fr_status status = l->from->engine->transport->acquire(l->handle, b);
    fr__wait_end(l->from->worker);
    *to = l->memory + (size_t)b * message_bytes(l);
    return status;
}

static void send(fr__tie_link *l, bool is_alive)
{
    size_t bytes = is_alive ? message_bytes(l) : 0;
    l->from->engine->transport->send(l->handle, buffer_of(l, l->n_sent++), bytes);
    *(l->is_weights ? &l->from->worker->traffic.forward : &l->from->worker->traffic.backward) +=
        bytes;
}

static fr_status send_weights(fr__tie_link *l, const fr__loan *loan, const fr_view *view)
{
    char *to;
    FR_TRY(acquire(l, &to));
    if (loan) {
        FR_TRY(fr__exec_lend(l->from->exec, l->from_param, view, to));
        memcpy(to + l->bytes, loan, sizeof *loan);
    }
    send(l, loan != NULL);
    return FR_OK;
}

static fr_status send_grad(fr__tie_link *l, bool is_alive)
{
    char *to;
    FR_TRY(acquire(l, &to));
    if (is_alive) FR_TRY(fr__exec_copy_grad(l->from->exec, l->from_param, to));
    send(l, is_alive);
    return FR_OK;
}

static void release(fr__tie_link *l)
{
    l->to->engine->transport->release(l->handle, buffer_of(l, l->n_released++));
}

static fr_status receive(fr__tie_link *l, const char **data, bool *is_alive)
{
    const void *at;
    size_t bytes = 0;
    int b = buffer_of(l, l->n_received++);
    fr__wait_begin(l->to->worker);
    fr_status status = l->to->engine->transport->receive(l->handle, b, &at, &bytes);
    fr__wait_end(l->to->worker);
    *data = status == FR_OK ? at : NULL;
    *is_alive = bytes > 0;
    return status;
}

/* --- passes ----------------------------------------------------------------------------------- */

/* The first forward of a mini-batch on a part. */
static bool begins(int64_t batch, int64_t *last)
{
    bool is_first = *last != batch;
    *last = batch;
    return is_first;
}

fr_status fr__tie_borrow(fr__part *p, int64_t batch, bool *is_dead)
{
    fr_engine *e = p->engine;
    if (e->n_tie_links == 0 || e->mode != FR_MODE_TRAIN || !begins(batch, &p->borrowed))
        return FR_OK;
    for (int i = 0; i < e->n_tie_links; i++) {
        fr__tie_link *l = &e->tie_links[i];
        fr__loan loan;
        const char *data;
        bool is_alive;
        if (!l->is_weights || l->to != p) continue;
        FR_TRY(receive(l, &data, &is_alive));
        if (!is_alive) {
            fr__lower_limit(e, batch);
            *is_dead = true;
            continue;
        }
        memcpy(&loan, data + l->bytes, sizeof loan);
        fr__exec_borrow(p->exec, l->to_param, data, &loan);
    }
    return FR_OK;
}

fr_status fr__tie_lend(fr__part *p, int64_t batch, const fr_view *view)
{
    fr_engine *e = p->engine;
    if (e->n_tie_links == 0 || e->mode != FR_MODE_TRAIN || !begins(batch, &p->lent)) return FR_OK;
    for (int i = 0; i < e->n_tie_links; i++) {
        fr__tie_link *l = &e->tie_links[i];
        if (!l->is_weights || l->from != p) continue;
        fr__loan loan = {.batch = batch};
        if (view) loan.version = view->version, loan.ahead = view->ahead;
        FR_TRY(send_weights(l, view ? &loan : NULL, view));
    }
    return FR_OK;
}

/* --- updates ---------------------------------------------------------------------------------- */

fr_status fr__tie_grads(fr__part *p, int64_t batch, bool is_dead)
{
    fr_engine *e = p->engine;
    bool is_alive;
    const char *data;
    for (int i = 0; i < e->n_tie_links; i++) {
        fr__tie_link *l = &e->tie_links[i];
        if (l->is_weights && l->to == p) release(l); /* of this mini-batch */
        if (!l->is_weights && l->from == p) FR_TRY(send_grad(l, !is_dead));
    }
    for (int i = 0; i < e->n_tie_links; i++) {
        fr__tie_link *l = &e->tie_links[i];
        if (l->is_weights || l->to != p) continue;
        FR_TRY(receive(l, &data, &is_alive));
        if (!is_alive) fr__lower_limit(e, batch);
        is_dead = is_dead || !is_alive;
        if (!is_dead) FR_TRY(fr__exec_add_grad(p->exec, l->to_param, data));
        release(l);
    }
    return FR_OK;
}

fr_status fr__tie_settle(fr__worker *w)
{
    fr_engine *e = w->engine;
    if (e->mode != FR_MODE_TRAIN) return FR_OK;
    for (int i = 0; i < e->n_tie_links; i++) {
        fr__tie_link *l = &e->tie_links[i];
        if (l->is_weights && l->from->worker == w)
            FR_TRY(send_weights(l, &(fr__loan){.batch = -1}, NULL));
    }
    for (int i = 0; i < e->n_tie_links; i++) {
        fr__tie_link *l = &e->tie_links[i];
        const char *data;
        bool is_alive;
        if (!l->is_weights || l->to->worker != w) continue;
        FR_TRY(receive(l, &data, &is_alive));
        FR_TRY(fr__exec_settle(l->to->exec, l->to_param, data));
        release(l);
    }
    return FR_OK;
}
