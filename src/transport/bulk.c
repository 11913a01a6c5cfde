/* bulk.c -- streams between rank 0 and the others, and what all ranks do together by them.
 *
 * Whoever waits in a stream waits for the loss of any rank, too. Of the two ends of a stream that
 * is cut, the lines' thread knows better why, so it is given the time to say so. */
#include "transport/lines.h"
#include "transport/wire.h"

#include "base/ctx.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SAY_WHY_MS = 10000 };

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
    while ((n = poll(&p, 1, SAY_WHY_MS)) < 0 && errno == EINTR) continue;
    if (n < 1)
        fr__lose(t, rank, "%s has closed its stream after %zu of %zu bytes", fr_team_name(t, rank),
                 moved, bytes);
    return broken(t);
}

/* Nothing is put once a rank is lost, but what came before may still be taken: of a rank that ended
 * after an agreement the others have its vote. */
static fr_status open_stream(fr_team *t, int rank, bool is_put, fr__line **out)
{
    if (!t) return FR_INVALID;
    if (atomic_load(&t->is_mute) || (is_put && atomic_load(&t->is_broken))) return broken(t);
    *out = fr__line_to(t, rank);
    if (*out) return FR_OK;
    return fr_fail(t->ctx, FR_INVALID,
                   "a stream between rank %d and rank %d of %d: there is no line", t->rank, rank,
                   t->size);
}

static fr_status close_stream(fr_team *t, int rank, fr__wire end, size_t moved, size_t bytes)
{
    switch (end) {
    case FR__WIRE_DONE: return FR_OK;
    case FR__WIRE_STOPPED: return broken(t);
    default: return lose_stream(t, rank, moved, bytes);
    }
}

/* The streams to and from a rank. */
typedef enum which { BULK, ACCORD } which;

static fr_status put(fr_team *t, which w, int to, const void *data, size_t bytes)
{
    fr__line *l = NULL;
    size_t moved;
    FR_TRY(open_stream(t, to, true, &l));
    fr__wire end =
        fr__wire_write(w == BULK ? l->bulk : l->accord, data, bytes, t->broken_fd, 0, &moved);
    return close_stream(t, to, end, moved, bytes);
}

static fr_status take(fr_team *t, which w, int from, void *data, size_t bytes)
{
    fr__line *l = NULL;
    size_t moved;
    FR_TRY(open_stream(t, from, false, &l));
    fr__wire end =
        fr__wire_read(w == BULK ? l->bulk : l->accord, data, bytes, t->broken_fd, 0, &moved);
    return close_stream(t, from, end, moved, bytes);
}

fr_status fr_team_put(fr_team *t, int to, const void *data, size_t bytes)
{
    return put(t, BULK, to, data, bytes);
}
fr_status fr_team_take(fr_team *t, int from, void *data, size_t bytes)
{
    return take(t, BULK, from, data, bytes);
}

/* --- together ------------------------------------------------------------------------------- */

fr_status fr_team_share(fr_team *t, void *data, size_t bytes)
{
    if (!t) return FR_OK;
    if (t->rank != 0) return take(t, ACCORD, 0, data, bytes);
    for (int i = 0; i < t->n_lines; i++) FR_TRY(put(t, ACCORD, t->lines[i].rank, data, bytes));
    return FR_OK;
}

/* How a rank fares; rank 0 collects them and shares the one that counts. */
typedef struct vote {
    int32_t rank, status;
    char text[FR__MAX_TEXT];
} vote;

/* v: one's own; then the one that counts. */
static fr_status poll_all(fr_team *t, vote *v)
{
    if (t->rank != 0) FR_TRY(put(t, ACCORD, 0, v, sizeof *v));
    for (int i = 0; i < t->n_lines && t->rank == 0; i++) {
        vote other;
        FR_TRY(take(t, ACCORD, t->lines[i].rank, &other, sizeof other));
        if (v->status == FR_OK) *v = other;
    }
    return fr_team_share(t, v, sizeof *v);
}

/* Of several ranks that fail each tells its own reason. */
fr_status fr_team_agree(fr_team *t, fr_status mine)
{
    if (!t) return mine;
    fr_failure own = {.status = mine};
    vote v = {t->rank, (int32_t)mine, ""};
    if (mine != FR_OK) {
        fr__failure_save(t->ctx, &own);
        snprintf(v.text, sizeof v.text, "%s", own.text[0] ? own.text : fr_status_text(mine));
    }
    fr_status status = poll_all(t, &v);
    if (status == FR_OK && v.status == FR_OK) return FR_OK;
    v.text[sizeof v.text - 1] = '\0';
    if (status == FR_OK && (v.status < 0 || v.status > FR_INTERNAL))
        status = fr_fail(t->ctx, FR_PEER,
                         "%s votes with status %d, which there is not; do all ranks run the same "
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
    uint64_t odd = 0; /* the lowest rank whose word is not rank 0's; 0: none */
    if (t->rank != 0) FR_TRY(put(t, ACCORD, 0, &word, sizeof word));
    for (int i = 0; i < t->n_lines && t->rank == 0; i++) {
        uint64_t other;
        FR_TRY(take(t, ACCORD, t->lines[i].rank, &other, sizeof other));
        if (odd == 0 && other != word) odd = (uint64_t)t->lines[i].rank;
    }
    FR_TRY(fr_team_share(t, &odd, sizeof odd));
    if (odd == 0) return FR_OK;
    return fr_fail(t->ctx, FR_INVALID,
                   "%s of %s is not that of %s; start all ranks with the same program, config and "
                   "data",
                   what, fr_team_name(t, (int)odd), fr_team_name(t, 0));
}
