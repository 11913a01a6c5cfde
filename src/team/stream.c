/* stream.c -- byte streams between rank 0 and the others, and collective operations over them.
 *
 * A thread blocked in a stream is woken by the loss of any rank. When a stream closes, the control
 * thread usually learns the cause, so it gets some time to report it first. */
#include "team/control.h"
#include "team/tcp.h"

#include "base/ctx.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CAUSE_MS = 10000 };

/* --- streams -------------------------------------------------------------------------------- */

static fr_status broken(fr_team *t)
{
    const char *text;
    fr_team_is_broken(t, &text);
    return fr_fail(t->ctx, FR_PEER, "%s", text);
}

static fr_status lose_stream(fr_team *t, int rank, size_t moved, size_t bytes)
{
    struct pollfd p = {.fd = t->broken_fd, .events = POLLIN};
    int n;
    while ((n = poll(&p, 1, CAUSE_MS)) < 0 && errno == EINTR) continue;
    if (n < 1)
        fr__team_lose(t, rank, "%s closed its stream after %zu of %zu bytes", fr_team_name(t, rank),
                      moved, bytes);
    return broken(t);
}

/* Once a rank is lost nothing is sent, but bytes that arrived before can still be received: the
 * vote of a rank that ended right after an agreement counts. */
static fr_status transfer(fr_team *t, enum fr__socket which, int rank, void *data, size_t bytes,
                          bool is_send)
{
    if (!t) return FR_INVALID;
    if (atomic_load(&t->has_failed) || (is_send && atomic_load(&t->is_broken))) return broken(t);
    fr__peer *peer = fr__peer_of(t, rank);
    if (!peer)
        return fr_fail(t->ctx, FR_INVALID,
                       "no stream between rank %d and rank %d of %d: rank 0 must be one of them",
                       t->rank, rank, t->size);
    size_t moved;
    int fd = peer->fd[which];
    switch (is_send ? fr__tcp_write(fd, data, bytes, t->broken_fd, 0, &moved)
                    : fr__tcp_read(fd, data, bytes, t->broken_fd, 0, &moved)) {
    case FR__TCP_OK: return FR_OK;
    case FR__TCP_STOPPED: return broken(t);
    default: return lose_stream(t, rank, moved, bytes);
    }
}

static fr_status send_bytes(fr_team *t, enum fr__socket which, int to, const void *data, size_t n)
{
    return transfer(t, which, to, (void *)(uintptr_t)data, n, true);
}

static fr_status recv_bytes(fr_team *t, enum fr__socket which, int from, void *data, size_t n)
{
    return transfer(t, which, from, data, n, false);
}

fr_status fr_team_send(fr_team *t, int to, const void *data, size_t bytes)
{
    return send_bytes(t, FR__STREAM, to, data, bytes);
}
fr_status fr_team_recv(fr_team *t, int from, void *data, size_t bytes)
{
    return recv_bytes(t, FR__STREAM, from, data, bytes);
}

/* --- collectives ---------------------------------------------------------------------------- */

fr_status fr_team_share(fr_team *t, void *data, size_t bytes)
{
    if (!t) return FR_OK;
    if (t->rank != 0) return recv_bytes(t, FR__COLLECTIVE, 0, data, bytes);
    for (int i = 0; i < t->n_peers; i++)
        FR_TRY(send_bytes(t, FR__COLLECTIVE, t->peers[i].rank, data, bytes));
    return FR_OK;
}

/* The status of a rank; rank 0 collects them and shares the lowest rank's failure. */
typedef struct vote {
    int32_t rank, status;
    char text[FR__MAX_TEXT];
} vote;

/* Replaces the status of this rank by the one that counts. */
static fr_status collect_votes(fr_team *t, vote *v)
{
    if (t->rank != 0) FR_TRY(send_bytes(t, FR__COLLECTIVE, 0, v, sizeof *v));
    for (int i = 0; i < t->n_peers && t->rank == 0; i++) {
        vote other;
        FR_TRY(recv_bytes(t, FR__COLLECTIVE, t->peers[i].rank, &other, sizeof other));
        if (v->status == FR_OK) *v = other;
    }
    return fr_team_share(t, v, sizeof *v);
}

/* If several ranks fail, each keeps its own text. */
fr_status fr_team_agree(fr_team *t, fr_status mine)
{
    if (!t) return mine;
    fr__failure own = {.status = mine};
    vote v = {t->rank, (int32_t)mine, ""};
    if (mine != FR_OK) {
        fr__failure_save(t->ctx, &own);
        snprintf(v.text, sizeof v.text, "%s", own.text[0] ? own.text : fr_status_text(mine));
    }
    fr_status status = collect_votes(t, &v);
    if (status == FR_OK && v.status == FR_OK) return FR_OK;
    v.text[sizeof v.text - 1] = '\0';
    if (status == FR_OK && (v.status < 0 || v.status > FR_INTERNAL))
        status = fr_fail(t->ctx, FR_PEER,
                         "%s sent the invalid status %d; do all ranks run the same "
                         "version of this program?",
                         fr_team_name(t, v.rank), (int)v.status);
    else if (status == FR_OK)
        status = fr_fail(t->ctx, (fr_status)v.status, "%s: %s", fr_team_name(t, v.rank), v.text);
    if (own.text[0]) fr__failure_restore(t->ctx, &own);
    return status;
}

fr_status fr_team_same(fr_team *t, const char *what, uint64_t word)
{
    if (!t) return FR_OK;
    uint64_t odd = 0; /* the lowest rank whose word differs from rank 0's; 0: none */
    if (t->rank != 0) FR_TRY(send_bytes(t, FR__COLLECTIVE, 0, &word, sizeof word));
    for (int i = 0; i < t->n_peers && t->rank == 0; i++) {
        uint64_t other;
        FR_TRY(recv_bytes(t, FR__COLLECTIVE, t->peers[i].rank, &other, sizeof other));
        if (odd == 0 && other != word) odd = (uint64_t)t->peers[i].rank;
    }
    FR_TRY(fr_team_share(t, &odd, sizeof odd));
    if (odd == 0) return FR_OK;
    return fr_fail(t->ctx, FR_INVALID,
                   "%s of %s is not that of %s; start all ranks with the same program, config and "
                   "data",
                   what, fr_team_name(t, (int)odd), fr_team_name(t, 0));
}
