/* collect.c -- collects the notes of workers in other processes on rank 0: times, events, memory,
 * prediction errors. The shortest of several round trips gives the offset of another machine's
 * clock. */
#include "engine/engine.h"

enum { CLOCK_TRIES = 9 };

/* Notes of a worker and of a part, as messages. */
typedef struct worker_notes {
    fr_worker_times times;
    fr_traffic traffic;
    fr_memory_use predicted;
    uint64_t peak_bytes;
    int64_t n_events;
} worker_notes;

typedef struct part_notes {
    fr_stage_times times, cold;
    fr_prediction_error error;
    bool has_error;
} part_notes;

static fr_status give_clock(fr_team *team)
{
    for (int i = 0; i < CLOCK_TRIES; i++) {
        uint8_t ping;
        FR_TRY(fr_team_recv(team, 0, &ping, 1));
        uint64_t now = fr__now_ns();
        FR_TRY(fr_team_send(team, 0, &now, sizeof now));
    }
    return FR_OK;
}

/* *ahead: added to that clock, it gives the local one. */
static fr_status take_clock(fr_team *team, int rank, int64_t *ahead)
{
    uint64_t best = UINT64_MAX;
    *ahead = 0;
    for (int i = 0; i < CLOCK_TRIES; i++) {
        uint8_t ping = 1;
        uint64_t start = fr__now_ns(), there;
        FR_TRY(fr_team_send(team, rank, &ping, 1));
        FR_TRY(fr_team_recv(team, rank, &there, sizeof there));
        uint64_t trip = fr__now_ns() - start;
        if (trip >= best) continue;
        best = trip;
        *ahead = (int64_t)(start + trip / 2) - (int64_t)there;
    }
    return FR_OK;
}

/* --- sending ----------------------------------------------------------------------------- */

static fr_status give_worker(fr_engine *e, const fr__worker *w)
{
    fr_team *team = e->desc.team;
    worker_notes n = {.times = w->times,
                      .traffic = w->traffic,
                      .predicted = w->predicted,
                      .peak_bytes = fr_engine_peak_bytes(e, w->index),
                      .n_events = w->n_events};
    FR_TRY(fr_team_send(team, 0, &n, sizeof n));
    FR_TRY(fr_team_send(team, 0, w->events, (size_t)w->n_events * sizeof *w->events));
    for (int i = 0; i < w->n_parts; i++) {
        const fr__part *p = w->parts[i];
        const fr_prediction_error *error = fr__exec_prediction_error(p->exec);
        part_notes notes = {.times = p->times, .cold = p->cold, .has_error = error != NULL};
        if (error) notes.error = *error;
        FR_TRY(fr_team_send(team, 0, &notes, sizeof notes));
    }
    return FR_OK;
}

/* --- receiving --------------------------------------------------------------------------- */

static fr_status take_worker(fr_engine *e, fr__worker *w, int rank, int64_t ahead)
{
    fr_team *team = e->desc.team;
    worker_notes n;
    FR_TRY(fr_team_recv(team, rank, &n, sizeof n));
    if (n.n_events < 0 || n.n_events > e->desc.n_events)
        return fr_fail(e->ctx, FR_INTERNAL, "worker %d noted %lld events, of at most %d", w->index,
                       (long long)n.n_events, e->desc.n_events);
    w->times = n.times;
    w->traffic = n.traffic;
    w->predicted = n.predicted;
    w->peak_bytes = n.peak_bytes;
    w->n_events = (int)n.n_events;
    FR_TRY(fr_team_recv(team, rank, w->events, (size_t)w->n_events * sizeof *w->events));
    for (int i = 0; i < w->n_events; i++) {
        w->events[i].start_ns += (uint64_t)ahead;
        w->events[i].end_ns += (uint64_t)ahead;
    }
    for (int i = 0; i < w->n_parts; i++) {
        fr__part *p = w->parts[i];
        part_notes notes;
        FR_TRY(fr_team_recv(team, rank, &notes, sizeof notes));
        p->times = notes.times;
        p->cold = notes.cold;
        p->has_error = notes.has_error;
        p->error = notes.error;
    }
    return FR_OK;
}

fr_status fr_engine_collect(fr_engine *e)
{
    if (e->n_ranks == 1) return FR_OK;
    if (e->is_broken)
        return fr_fail(e->ctx, FR_PEER, "a process was lost: its notes are lost with it");
    if (e->rank > 0) {
        FR_TRY(give_clock(e->desc.team));
        for (int i = 0; i < e->n_local; i++)
            FR_TRY(give_worker(e, &e->workers[e->first_worker + i]));
        return FR_OK;
    }
    for (int r = 1; r < e->n_ranks; r++) {
        int64_t ahead;
        FR_TRY(take_clock(e->desc.team, r, &ahead));
        for (int i = 0; i < e->n_local; i++)
            FR_TRY(take_worker(e, &e->workers[r * e->n_local + i], r, ahead));
    }
    return FR_OK;
}

fr_traffic fr_engine_traffic(const fr_engine *e)
{
    fr_traffic sum = {0};
    for (int i = 0; i < e->n_workers; i++) {
        sum.forward += e->workers[i].traffic.forward;
        sum.backward += e->workers[i].traffic.backward;
        sum.sums += e->workers[i].traffic.sums;
    }
    return sum;
}
