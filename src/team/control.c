/* control.c -- the control thread: sends and receives frames, exchanges heartbeats, detects losses.
 *
 * A rank is lost when its control connection closes without a LEAVE frame (the kernel closes the
 * sockets of a killed process, so this is immediate), when it sends nothing for longer than the
 * timeout, when it reports its own failure, or when it sends an invalid frame. Silence is summed
 * over iterations of this loop, each counted up to a limit: while this process itself is stopped,
 * it cannot tell that others are silent. Callbacks run with no lock held. */
#include "team/control.h"
#include "team/tcp.h"

#include "base/alloc.h"
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, KEEP = 1 << 20, MS = 1000000 };

/* --- bytes ---------------------------------------------------------------------------------- */

bool fr__bytes_reserve(fr__bytes *b, size_t more)
{
    if (b->room - b->n >= more) return true;
    if (b->done > 0) {
        memmove(b->at, b->at + b->done, b->n - b->done);
        b->n -= b->done;
        b->done = 0;
    }
    if (b->room - b->n >= more) return true;
    size_t room = b->room ? 2 * b->room : CHUNK;
    if (room - b->n < more) room = b->n + more;
    char *at = fr__realloc(b->at, b->n, room);
    if (!at) return false;
    b->at = at;
    b->room = room;
    return true;
}

void fr__bytes_fini(fr__bytes *b)
{
    fr__free(b->at);
    *b = (fr__bytes){0};
}

/* Reset a consumed buffer, and free it if one large message made it grow. */
static void recycle(fr__bytes *b)
{
    if (b->done < b->n) return;
    b->done = b->n = 0;
    if (b->room > KEEP) fr__bytes_fini(b);
}

static void append(fr__bytes *b, const void *data, size_t n)
{
    if (n) memcpy(b->at + b->n, data, n);
    b->n += n;
}

/* --- out ------------------------------------------------------------------------------------ */

fr__peer *fr__peer_of(fr_team *t, int rank)
{
    if (t->rank != 0) return rank == 0 ? &t->peers[0] : NULL;
    return rank >= 1 && rank < t->size ? &t->peers[rank - 1] : NULL;
}

void fr__control_wake(fr_team *t)
{
    const uint64_t one = 1;
    ssize_t n = write(t->wake_fd, &one, sizeof one); /* full: the thread is awake */
    (void)n;
}

/* Write as much as the socket accepts. An error here is not a loss yet: the last frames of the
 * peer may still be unread. */
static void write_pending(fr__peer *peer)
{
    fr__bytes *b = &peer->out;
    while (b->done < b->n && !peer->is_write_closed) {
        ssize_t n = send(peer->fd[FR__CONTROL], b->at + b->done, b->n - b->done,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            b->done += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            peer->is_write_closed = true;
    }
    if (peer->is_write_closed) b->done = b->n;
    recycle(b);
}

bool fr__peer_send(fr__peer *peer, enum fr__frame_type type, const void *a, size_t n_a,
                   const void *b, size_t n_b)
{
    if (peer->is_write_closed || peer->is_lost) return true;
    const fr__frame f = {(uint32_t)(n_a + n_b), (uint32_t)type};
    if (!fr__bytes_reserve(&peer->out, sizeof f + n_a + n_b)) return false;
    append(&peer->out, &f, sizeof f);
    append(&peer->out, a, n_a);
    append(&peer->out, b, n_b);
    write_pending(peer);
    return true;
}

void fr__control_flush(fr_team *t, double seconds)
{
    const uint64_t until = fr__now_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        bool is_done = true;
        pthread_mutex_lock(&t->lock);
        for (int i = 0; i < t->n_peers; i++) {
            fr__peer *peer = &t->peers[i];
            if (peer->is_write_closed || peer->is_lost || peer->is_read_closed) continue;
            write_pending(peer);
            if (peer->out.done < peer->out.n || !fr__tcp_is_flushed(peer->fd[FR__CONTROL]))
                is_done = false;
        }
        pthread_mutex_unlock(&t->lock);
        if (is_done || fr__now_ns() >= until) return;
        fr__sleep_ns(MS);
    }
}

/* --- losses --------------------------------------------------------------------------------- */

void fr__team_break(fr_team *t, int rank, const char *text)
{
    if (atomic_load(&t->is_broken)) return;
    t->lost_rank = rank;
    snprintf(t->text, sizeof t->text, "%s", text);
    atomic_store(&t->is_broken, true);
    const uint64_t one = 1;
    ssize_t n = write(t->broken_fd, &one, sizeof one);
    (void)n;
    pthread_cond_broadcast(&t->changed);
}

void fr__team_lose(fr_team *t, int rank, const char *format, ...)
{
    char text[FR__MAX_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&t->lock);
    fr__peer *peer = fr__peer_of(t, rank);
    if (!atomic_load(&t->is_broken)) {
        const uint32_t who = (uint32_t)rank;
        /* Also notify the lost rank, which may only have been stopped. A rank other than 0 is
         * connected to rank 0 only, which has sent this unless it is lost. */
        bool is_news = t->rank == 0 || rank == 0 || rank == t->rank;
        for (int i = 0; i < t->n_peers && is_news; i++)
            (void)fr__peer_send(&t->peers[i], FR__FRAME_LOST, &who, sizeof who, text, strlen(text));
        fr__team_break(t, rank, text);
    }
    if (peer) peer->is_lost = true;
    pthread_mutex_unlock(&t->lock);
    fr__control_wake(t);
}

/* --- in ------------------------------------------------------------------------------------- */

/* This rank itself cannot continue. */
static void lose_for_memory(fr_team *t, fr__peer *peer, size_t bytes)
{
    atomic_store(&peer->is_lost, true);
    fr__team_lose(t, t->rank, "%s: out of memory for a message of %zu bytes from %s",
                  fr_team_name(t, t->rank), bytes, fr_team_name(t, peer->rank));
}

static void queue_message(fr_team *t, fr__peer *peer, const char *data, size_t bytes)
{
    const fr__message head = {bytes, (uint64_t)peer->rank};
    const size_t padded = (bytes + sizeof head - 1) / sizeof head * sizeof head;
    if (!fr__bytes_reserve(&t->inbox, sizeof head + padded)) {
        lose_for_memory(t, peer, bytes);
        return;
    }
    append(&t->inbox, &head, sizeof head);
    append(&t->inbox, data, bytes);
    t->inbox.n += padded - bytes;
}

static void handle_loss(fr_team *t, const char *data, size_t bytes)
{
    uint32_t rank;
    memcpy(&rank, data, sizeof rank);
    if (rank >= (uint32_t)t->size) return;
    fr__team_lose(t, (int)rank, "%.*s", (int)(bytes - sizeof rank), data + sizeof rank);
}

/* The lengths allowed for each type of frame. */
static bool has_valid_length(const fr__frame *f)
{
    switch (f->type) {
    case FR__FRAME_HEARTBEAT:
    case FR__FRAME_LEAVE: return f->bytes == 0;
    case FR__FRAME_INTERVAL: return f->bytes == sizeof(uint32_t);
    case FR__FRAME_LOST: return f->bytes >= sizeof(uint32_t) && f->bytes < FR__MAX_TEXT;
    case FR__FRAME_FAIL: return f->bytes < FR__MAX_TEXT;
    case FR__FRAME_MESSAGE: return f->bytes <= FR__MAX_MESSAGE;
    default: return false;
    }
}

static void handle_frame(fr_team *t, fr__peer *peer, const fr__frame *f, const char *data)
{
    uint32_t ms;
    switch (f->type) {
    case FR__FRAME_MESSAGE: queue_message(t, peer, data, f->bytes); break;
    case FR__FRAME_LOST: handle_loss(t, data, f->bytes); break;
    case FR__FRAME_FAIL:
        fr__team_lose(t, peer->rank, "%s failed: %.*s", fr_team_name(t, peer->rank), (int)f->bytes,
                      data);
        break;
    case FR__FRAME_INTERVAL:
        memcpy(&ms, data, sizeof ms);
        peer->requested_ns = (uint64_t)(ms ? ms : 1) * MS;
        break;
    case FR__FRAME_LEAVE:
        pthread_mutex_lock(&t->lock);
        peer->has_left = true;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
        break;
    default: break;
    }
}

static void parse_frames(fr_team *t, fr__peer *peer)
{
    fr__bytes *b = &peer->in;
    while (!peer->is_lost && b->n - b->done >= sizeof(fr__frame)) {
        fr__frame f;
        memcpy(&f, b->at + b->done, sizeof f);
        if (!has_valid_length(&f)) {
            fr__team_lose(
                t, peer->rank,
                "%s sent an invalid message (type %u, %u bytes); do all ranks run the same "
                "version of this program?",
                fr_team_name(t, peer->rank), (unsigned)f.type, (unsigned)f.bytes);
            return;
        }
        if (b->n - b->done < sizeof f + f.bytes) {
            if (!fr__bytes_reserve(b, sizeof f + f.bytes - (b->n - b->done)))
                lose_for_memory(t, peer, f.bytes);
            return;
        }
        handle_frame(t, peer, &f, b->at + b->done + sizeof f);
        b->done += sizeof f + f.bytes;
    }
    recycle(b);
}

static void read_peer(fr_team *t, fr__peer *peer)
{
    fr__bytes *b = &peer->in;
    if (b->room == b->n && !fr__bytes_reserve(b, CHUNK)) {
        lose_for_memory(t, peer, CHUNK);
        return;
    }
    ssize_t n = recv(peer->fd[FR__CONTROL], b->at + b->n, b->room - b->n, MSG_DONTWAIT);
    if (n > 0) {
        b->n += (size_t)n;
        peer->silent_ns = 0;
        parse_frames(t, peer);
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        const int error = n == 0 ? 0 : errno;
        atomic_store(&peer->is_read_closed, true);
        if (peer->has_left) return;
        if (error == 0 || error == ECONNRESET || error == EPIPE)
            fr__team_lose(t, peer->rank, "%s has ended", fr_team_name(t, peer->rank));
        else
            fr__team_lose(t, peer->rank, "connection to %s failed: %s", fr_team_name(t, peer->rank),
                          strerror(error));
    }
}

/* --- callbacks ------------------------------------------------------------------------------ */

/* Copies the callbacks, which stay in use until end_call; false: there are none to call. */
static bool begin_call(fr_team *t, bool is_loss, fr_team_callbacks *callbacks)
{
    pthread_mutex_lock(&t->lock);
    bool is_on = t->has_callbacks && !atomic_load(&t->has_failed);
    if (is_loss) is_on = is_on && atomic_load(&t->is_broken) && !t->is_loss_reported;
    if (is_on) {
        *callbacks = t->callbacks;
        t->is_in_callback = true;
        if (is_loss) t->is_loss_reported = true;
    }
    pthread_mutex_unlock(&t->lock);
    return is_on;
}

static void end_call(fr_team *t)
{
    pthread_mutex_lock(&t->lock);
    t->is_in_callback = false;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void dispatch(fr_team *t)
{
    fr__bytes *b = &t->inbox;
    fr_team_callbacks callbacks;
    while (b->done < b->n && begin_call(t, false, &callbacks)) {
        fr__message head;
        memcpy(&head, b->at + b->done, sizeof head);
        const char *data = b->at + b->done + sizeof head;
        if (callbacks.on_message)
            callbacks.on_message(callbacks.user, (int)head.from, data, head.bytes);
        end_call(t);
        b->done += sizeof head + (head.bytes + sizeof head - 1) / sizeof head * sizeof head;
    }
    recycle(b);
    if (begin_call(t, true, &callbacks)) {
        if (callbacks.on_loss) callbacks.on_loss(callbacks.user, t->lost_rank, t->text);
        end_call(t);
    }
}

/* --- the thread ----------------------------------------------------------------------------- */

uint64_t fr__heartbeat_ns(uint64_t timeout_ns)
{
    uint64_t ns = timeout_ns / 10, least = 50 * (uint64_t)MS, most = 1000 * (uint64_t)MS;
    return ns < least ? least : ns > most ? most : ns;
}

static uint64_t now_ns(const fr_team *t)
{
    return t->bootstrap.now_ns ? t->bootstrap.now_ns(t->bootstrap.user) : fr__now_ns();
}

typedef struct timing {
    uint64_t timeout_ns, check_ns; /* of this rank */
    uint64_t heartbeat_ns;         /* the shortest that any rank requests */
    uint64_t last_check, last_heartbeat;
} timing;

/* Set the poll events of each peer, and the intervals of the next iteration. */
static void prepare_poll(fr_team *t, timing *r)
{
    t->polls[0] = (struct pollfd){.fd = t->wake_fd, .events = POLLIN};
    pthread_mutex_lock(&t->lock);
    bool is_new = r->timeout_ns != t->timeout_ns;
    r->timeout_ns = t->timeout_ns;
    r->heartbeat_ns = r->check_ns = fr__heartbeat_ns(t->timeout_ns);
    for (int i = 0; i < t->n_peers; i++) {
        fr__peer *peer = &t->peers[i];
        bool has_out = !peer->is_write_closed && peer->out.done < peer->out.n,
             has_in = !peer->is_lost && !peer->is_read_closed;
        short events = (short)((has_in ? POLLIN : 0) | (has_out ? POLLOUT : 0));
        t->polls[1 + i] =
            (struct pollfd){.fd = events ? peer->fd[FR__CONTROL] : -1, .events = events};
        if (is_new) peer->silent_ns = 0;
        if (peer->requested_ns && peer->requested_ns < r->heartbeat_ns)
            r->heartbeat_ns = peer->requested_ns;
    }
    pthread_mutex_unlock(&t->lock);
}

static void handle_events(fr_team *t)
{
    uint64_t n_wakes;
    ssize_t n = t->polls[0].revents ? read(t->wake_fd, &n_wakes, sizeof n_wakes) : 0;
    (void)n;
    for (int i = 0; i < t->n_peers; i++) {
        const struct pollfd *p = &t->polls[1 + i];
        if (p->revents & POLLOUT) {
            pthread_mutex_lock(&t->lock);
            write_pending(&t->peers[i]);
            pthread_mutex_unlock(&t->lock);
        }
        if ((p->events & POLLIN) && (p->revents & ~POLLOUT))
            read_peer(t, &t->peers[i]);
        else if (p->revents & (POLLERR | POLLHUP | POLLNVAL)) {
            pthread_mutex_lock(&t->lock);
            t->peers[i].is_write_closed = true;
            pthread_mutex_unlock(&t->lock);
        }
    }
}

static bool is_watched(const fr__peer *peer)
{
    return !peer->is_lost && !peer->is_read_closed && !peer->has_left;
}

static void add_silence(fr_team *t, timing *r)
{
    uint64_t now = now_ns(t), passed = now - r->last_check, longest = 2 * r->check_ns;
    r->last_check = now;
    for (int i = 0; i < t->n_peers; i++)
        t->peers[i].silent_ns += passed < longest ? passed : longest;
}

static void check_silence(fr_team *t, const timing *r)
{
    for (int i = 0; i < t->n_peers; i++) {
        const fr__peer *peer = &t->peers[i];
        if (is_watched(peer) && peer->silent_ns > r->timeout_ns)
            fr__team_lose(t, peer->rank,
                          "%s has been silent for %.1f s: stopped, stuck, or disconnected",
                          fr_team_name(t, peer->rank), (double)peer->silent_ns * 1e-9);
    }
}

static void send_heartbeats(fr_team *t, timing *r)
{
    uint64_t now = now_ns(t);
    if (now - r->last_heartbeat < r->heartbeat_ns) return;
    r->last_heartbeat = now;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->n_peers; i++) /* queued frames serve as a heartbeat */
        if (t->peers[i].out.n == 0)
            (void)fr__peer_send(&t->peers[i], FR__FRAME_HEARTBEAT, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&t->lock);
}

static void *run(void *arg)
{
    fr_team *t = arg;
    timing r = {.last_check = now_ns(t)};
    fr__thread_name("control");
    while (!atomic_load(&t->is_ending)) {
        prepare_poll(t, &r);
        uint64_t since = now_ns(t) - r.last_heartbeat;
        uint64_t rest = since < r.heartbeat_ns ? r.heartbeat_ns - since : 0;
        if (rest > r.check_ns) rest = r.check_ns;
        int n = poll(t->polls, (nfds_t)(1 + t->n_peers), (int)(rest / MS) + 1);
        add_silence(t, &r); /* before reading: data that arrived while stopped resets it */
        if (n > 0) handle_events(t);
        check_silence(t, &r);
        send_heartbeats(t, &r);
        dispatch(t);
    }
    return NULL;
}

fr_status fr__control_start(fr_team *t)
{
    sigset_t all, before;
    sigfillset(&all); /* the caller's threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&t->thread, NULL, run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return fr_fail(t->ctx, FR_NO_MEMORY, "cannot start the team's control thread: %s",
                       strerror(error));
    t->has_thread = true;
    return FR_OK;
}

void fr__control_stop(fr_team *t)
{
    if (!t->has_thread) return;
    atomic_store(&t->is_ending, true);
    fr__control_wake(t);
    pthread_join(t->thread, NULL);
    t->has_thread = false;
}
