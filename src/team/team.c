/* team.c -- the interface of a team: create, identify, notify, fail, leave. */
#include "team/control.h"
#include "team/tcp.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#define DEFAULT_TIMEOUT_S 30.0
#define MIN_TIMEOUT_S 0.2
#define FLUSH_S 5.0

/* --- creation and end ----------------------------------------------------------------------- */

static void destroy(fr_team *t)
{
    for (int i = 0; t->peers && i < t->n_peers; i++) {
        fr__peer *peer = &t->peers[i];
        for (int k = 0; k < FR__N_SOCKETS; k++) fr__tcp_close(&peer->fd[k]);
        fr__bytes_fini(&peer->out);
        fr__bytes_fini(&peer->in);
    }
    fr__tcp_close(&t->wake_fd);
    fr__tcp_close(&t->broken_fd);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    fr__bytes_fini(&t->inbox);
    fr__free(t->polls);
    fr__free(t->names);
    fr__free(t->peers);
    fr__free(t);
}

static fr_status allocate(fr_team *t)
{
    t->peers = FR_NEW_ARRAY(fr__peer, t->n_peers);
    t->names = FR_NEW_ARRAY(fr__name, t->size);
    t->polls = FR_NEW_ARRAY(struct pollfd, 1 + t->n_peers);
    if (!t->peers || !t->names || !t->polls)
        return fr__no_memory(t->ctx, (size_t)t->size * (sizeof(fr__peer) + sizeof(fr__name)),
                             "a team");
    for (int i = 0; i < t->n_peers; i++) {
        t->peers[i].rank = t->rank == 0 ? i + 1 : 0;
        for (int k = 0; k < FR__N_SOCKETS; k++) t->peers[i].fd[k] = -1;
    }
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->broken_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->wake_fd < 0 || t->broken_fd < 0)
        return fr_fail(t->ctx, FR_IO, "cannot make an eventfd: %s", strerror(errno));
    return FR_OK;
}

static fr_team *make(fr_ctx *ctx, int rank, int size, const fr__bootstrap *b)
{
    fr_team *t = FR_NEW(fr_team);
    if (!t) return NULL;
    *t = (fr_team){.ctx = ctx, .rank = rank, .size = size, .bootstrap = *b};
    t->n_peers = rank == 0 ? size - 1 : 1;
    t->wake_fd = t->broken_fd = -1;
    t->timeout_ns = (uint64_t)(DEFAULT_TIMEOUT_S * 1e9);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    return t;
}

fr_status fr__team_create(fr_ctx *ctx, int rank, int size, const fr__bootstrap *b, fr_team **out)
{
    *out = NULL;
    if (size < 2 || rank < 0 || rank >= size)
        return fr_fail(ctx, FR_INVALID, "rank %d of a team of %d", rank, size);
    fr_team *t = make(ctx, rank, size, b);
    fr_status status = t ? allocate(t) : fr__no_memory(ctx, sizeof *t, "a team");
    if (status != FR_OK) fr__team_refuse(b, rank, fr_ctx_error(ctx));
    if (status == FR_OK) status = fr__team_connect(t);
    if (status == FR_OK) status = fr__control_start(t);
    if (status == FR_OK)
        *out = t;
    else if (t)
        destroy(t);
    return status;
}

/* With the lock held: until all peers have sent LEAVE, or a rank is lost. */
static void wait_for_leaves(fr_team *t)
{
    for (int i = 0; i < t->n_peers; i++)
        while (!t->peers[i].has_left && !atomic_load(&t->is_broken))
            pthread_cond_wait(&t->changed, &t->lock);
}

static void send_leave(fr_team *t)
{
    for (int i = 0; i < t->n_peers && !atomic_load(&t->is_broken); i++)
        if (!fr__peer_send(&t->peers[i], FR__FRAME_LEAVE, NULL, 0, NULL, 0))
            fr__team_break(t, t->rank, "out of memory for leaving the team");
    fr__control_wake(t);
}

/* Rank 0 sends LEAVE last, so no rank ends before all are done. */
void fr_team_leave(fr_team *t)
{
    if (!t) return;
    fr_team_set_callbacks(t, NULL);
    pthread_mutex_lock(&t->lock);
    if (t->rank != 0) send_leave(t);
    wait_for_leaves(t);
    if (t->rank == 0) send_leave(t);
    bool is_broken = atomic_load(&t->is_broken);
    pthread_mutex_unlock(&t->lock);
    fr__control_flush(t, FLUSH_S);
    fr__control_stop(t);
    if (t->bootstrap.leave) t->bootstrap.leave(t->bootstrap.user, is_broken);
    destroy(t);
}

/* --- identity ------------------------------------------------------------------------------- */

int fr_team_rank(const fr_team *t) { return t ? t->rank : 0; }

int fr_team_size(const fr_team *t) { return t ? t->size : 1; }

const char *fr_team_name(const fr_team *t, int rank)
{
    if (!t) return "rank 0 (this process)";
    return rank >= 0 && rank < t->size ? t->names[rank].text : "no rank of this team";
}

const char *fr_team_host(const fr_team *t, int rank)
{
    return t && rank >= 0 && rank < t->size ? t->names[rank].host : "";
}

void fr_team_neighbours(const fr_team *t, int *nth, int *n)
{
    *nth = 0, *n = t ? 0 : 1;
    for (int r = 0; t && r < t->size; r++) {
        const fr__name *other = &t->names[r], *own = &t->names[t->rank];
        if (strcmp(other->host, own->host) != 0 || other->cores != own->cores) continue;
        *nth += r < t->rank;
        ++*n;
    }
}

void fr_team_set_timeout(fr_team *t, double seconds)
{
    if (!t) return;
    if (!(seconds >= MIN_TIMEOUT_S)) seconds = MIN_TIMEOUT_S;
    if (seconds > 1e9) seconds = 1e9;
    pthread_mutex_lock(&t->lock);
    t->timeout_ns = (uint64_t)(seconds * 1e9);
    const uint32_t ms = (uint32_t)(fr__heartbeat_ns(t->timeout_ns) / 1000000);
    for (int i = 0; i < t->n_peers; i++)
        (void)fr__peer_send(&t->peers[i], FR__FRAME_INTERVAL, &ms, sizeof ms, NULL, 0);
    pthread_mutex_unlock(&t->lock);
    fr__control_wake(t);
}

bool fr_team_is_broken(const fr_team *t, const char **text)
{
    bool is_broken = t && atomic_load(&t->is_broken);
    if (text) *text = is_broken ? t->text : "";
    return is_broken;
}

/* --- messages ------------------------------------------------------------------------------- */

void fr_team_set_callbacks(fr_team *t, const fr_team_callbacks *callbacks)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->has_callbacks = callbacks != NULL;
    t->callbacks = callbacks ? *callbacks : (fr_team_callbacks){0};
    bool is_told = callbacks && atomic_load(&t->is_broken) && !atomic_load(&t->has_failed);
    t->is_loss_reported = is_told;
    while (t->is_in_callback && !pthread_equal(pthread_self(), t->thread))
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    if (is_told && callbacks->on_loss) callbacks->on_loss(callbacks->user, t->lost_rank, t->text);
    if (callbacks) fr__control_wake(t);
}

static fr_status notify(fr_team *t, fr__peer *peer, const void *data, size_t bytes)
{
    if (bytes > FR__MAX_MESSAGE)
        return fr_fail(t->ctx, FR_INVALID, "a message of %zu bytes; the most is %d, use a stream",
                       bytes, FR__MAX_MESSAGE);
    pthread_mutex_lock(&t->lock);
    bool is_queued =
        atomic_load(&t->has_failed) || fr__peer_send(peer, FR__FRAME_MESSAGE, data, bytes, NULL, 0);
    bool has_rest = peer->out.done < peer->out.n;
    pthread_mutex_unlock(&t->lock);
    if (has_rest) fr__control_wake(t);
    return is_queued ? FR_OK : fr__no_memory(t->ctx, bytes, "a message to another rank");
}

fr_status fr_team_notify(fr_team *t, int to, const void *data, size_t bytes)
{
    if (!t) return FR_INVALID;
    fr__peer *peer = fr__peer_of(t, to);
    if (!peer)
        return fr_fail(t->ctx, FR_INVALID,
                       "no message from rank %d to rank %d of %d: rank 0 must be one of them",
                       t->rank, to, t->size);
    return notify(t, peer, data, bytes);
}

fr_status fr_team_notify_all(fr_team *t, const void *data, size_t bytes)
{
    if (!t) return FR_OK;
    if (t->rank != 0)
        return fr_fail(t->ctx, FR_INVALID, "rank %d notifies all; only rank 0 can", t->rank);
    for (int i = 0; i < t->n_peers; i++) FR_TRY(notify(t, &t->peers[i], data, bytes));
    return FR_OK;
}

/* --- failure -------------------------------------------------------------------------------- */

void fr_team_fail(fr_team *t, const char *text)
{
    if (!t) return;
    size_t bytes = strlen(text);
    if (bytes >= FR__MAX_TEXT) bytes = FR__MAX_TEXT - 1;
    char own[FR__MAX_TEXT + sizeof(fr__name)];
    snprintf(own, sizeof own, "%s failed: %s", fr_team_name(t, t->rank), text);
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->n_peers && !atomic_load(&t->has_failed); i++)
        (void)fr__peer_send(&t->peers[i], FR__FRAME_FAIL, text, bytes, NULL, 0);
    fr__team_break(t, t->rank, own);
    atomic_store(&t->has_failed, true);
    pthread_mutex_unlock(&t->lock);
    fr__control_wake(t);
    fr__control_flush(t, FLUSH_S);
}
