/* control.c -- the thread that talks and listens: frames out and in, signs of life, and who is
 * lost.
 *
 * A rank is lost when its line ends without a goodbye (a process that is killed closes its sockets,
 * so this is known at once), when nothing comes from it for longer than the team's patience, when
 * it says so itself, or when what it sends is no frame. Silence is counted in turns of this very
 * loop: where the loop could not run, for this process was stopped, it does not know that the
 * others were silent. Functions of the ears are called with no lock held. */
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

/* Empty again; what one huge message needed is given back. */
static void settle(fr__bytes *b)
{
    if (b->done < b->n) return;
    b->done = b->n = 0;
    if (b->room > KEEP) fr__bytes_fini(b);
}

static void put_bytes(fr__bytes *b, const void *data, size_t n)
{
    if (n) memcpy(b->at + b->n, data, n);
    b->n += n;
}

/* --- out ------------------------------------------------------------------------------------ */

fr__line *fr__line_to(fr_team *t, int rank)
{
    if (t->rank != 0) return rank == 0 ? &t->lines[0] : NULL;
    return rank >= 1 && rank < t->size ? &t->lines[rank - 1] : NULL;
}

void fr__lines_wake(fr_team *t)
{
    const uint64_t one = 1;
    ssize_t n = write(t->wake_fd, &one, sizeof one); /* full: it is awake anyway */
    (void)n;
}

/* As much as the socket takes. An error is no loss yet: what the other end said last has still to
 * be read. */
static void push(fr__line *l)
{
    fr__bytes *b = &l->out;
    while (b->done < b->n && !l->is_deaf) {
        ssize_t n = send(l->talk, b->at + b->done, b->n - b->done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            b->done += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            l->is_deaf = true;
    }
    if (l->is_deaf) b->done = b->n;
    settle(b);
}

bool fr__say(fr__line *l, enum fr__frame_type type, const void *a, size_t n_a, const void *b,
             size_t n_b)
{
    if (l->is_deaf || l->is_lost) return true;
    const fr__frame f = {(uint32_t)(n_a + n_b), (uint32_t)type};
    if (!fr__bytes_reserve(&l->out, sizeof f + n_a + n_b)) return false;
    put_bytes(&l->out, &f, sizeof f);
    put_bytes(&l->out, a, n_a);
    put_bytes(&l->out, b, n_b);
    push(l);
    return true;
}

void fr__lines_flush(fr_team *t, double seconds)
{
    const uint64_t until = fr__now_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        bool is_done = true;
        pthread_mutex_lock(&t->lock);
        for (int i = 0; i < t->n_lines; i++) {
            fr__line *l = &t->lines[i];
            if (l->is_deaf || l->is_lost || l->is_at_end) continue;
            push(l);
            if (l->out.done < l->out.n || !fr__wire_is_flushed(l->talk)) is_done = false;
        }
        pthread_mutex_unlock(&t->lock);
        if (is_done || fr__now_ns() >= until) return;
        fr__sleep_ns(MS);
    }
}

/* --- losses --------------------------------------------------------------------------------- */

void fr__break(fr_team *t, int rank, const char *text)
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

void fr__lose(fr_team *t, int rank, const char *format, ...)
{
    char text[FR__MAX_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&t->lock);
    fr__line *line = fr__line_to(t, rank);
    if (!atomic_load(&t->is_broken)) {
        const uint32_t who = (uint32_t)rank;
        /* Also to the lost one: if it was only stopped it shall know what became of it. The others
         * have no line but to rank 0, which told them unless it is the one. */
        bool is_news = t->rank == 0 || rank == 0 || rank == t->rank;
        for (int i = 0; i < t->n_lines && is_news; i++)
            (void)fr__say(&t->lines[i], FR__FRAME_LOST, &who, sizeof who, text, strlen(text));
        fr__break(t, rank, text);
    }
    if (line) line->is_lost = true;
    pthread_mutex_unlock(&t->lock);
    fr__lines_wake(t);
}

/* --- in ------------------------------------------------------------------------------------- */

/* This rank itself is the one that cannot go on. */
static void lose_for_memory(fr_team *t, fr__line *l, size_t bytes)
{
    atomic_store(&l->is_lost, true);
    fr__lose(t, t->rank, "%s: out of memory for a message of %zu bytes from %s",
             fr_team_name(t, t->rank), bytes, fr_team_name(t, l->rank));
}

static void hear_message(fr_team *t, fr__line *l, const char *data, size_t bytes)
{
    const fr__letter head = {bytes, (uint64_t)l->rank};
    const size_t padded = (bytes + sizeof head - 1) / sizeof head * sizeof head;
    if (!fr__bytes_reserve(&t->inbox, sizeof head + padded)) {
        lose_for_memory(t, l, bytes);
        return;
    }
    put_bytes(&t->inbox, &head, sizeof head);
    put_bytes(&t->inbox, data, bytes);
    t->inbox.n += padded - bytes;
}

static void hear_of_loss(fr_team *t, const char *data, size_t bytes)
{
    uint32_t rank;
    memcpy(&rank, data, sizeof rank);
    if (rank >= (uint32_t)t->size) return;
    fr__lose(t, (int)rank, "%.*s", (int)(bytes - sizeof rank), data + sizeof rank);
}

/* Lengths that each type of frame may have. */
static bool is_sound(const fr__frame *f)
{
    switch (f->type) {
    case FR__FRAME_BEAT:
    case FR__FRAME_BYE: return f->bytes == 0;
    case FR__FRAME_RHYTHM: return f->bytes == sizeof(uint32_t);
    case FR__FRAME_LOST: return f->bytes >= sizeof(uint32_t) && f->bytes < FR__MAX_TEXT;
    case FR__FRAME_FAIL: return f->bytes < FR__MAX_TEXT;
    case FR__FRAME_TALK: return f->bytes <= FR__MAX_MESSAGE;
    default: return false;
    }
}

static void hear_frame(fr_team *t, fr__line *l, const fr__frame *f, const char *data)
{
    uint32_t ms;
    switch (f->type) {
    case FR__FRAME_TALK: hear_message(t, l, data, f->bytes); break;
    case FR__FRAME_LOST: hear_of_loss(t, data, f->bytes); break;
    case FR__FRAME_FAIL:
        fr__lose(t, l->rank, "%s failed: %.*s", fr_team_name(t, l->rank), (int)f->bytes, data);
        break;
    case FR__FRAME_RHYTHM:
        memcpy(&ms, data, sizeof ms);
        l->asked_ns = (uint64_t)(ms ? ms : 1) * MS;
        break;
    case FR__FRAME_BYE:
        pthread_mutex_lock(&t->lock);
        l->has_left = true;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
        break;
    default: break;
    }
}

static void hear_frames(fr_team *t, fr__line *l)
{
    fr__bytes *b = &l->in;
    while (!l->is_lost && b->n - b->done >= sizeof(fr__frame)) {
        fr__frame f;
        memcpy(&f, b->at + b->done, sizeof f);
        if (!is_sound(&f)) {
            fr__lose(t, l->rank,
                     "%s sends what is no message (type %u, %u bytes); do all ranks run the same "
                     "version of this program?",
                     fr_team_name(t, l->rank), (unsigned)f.type, (unsigned)f.bytes);
            return;
        }
        if (b->n - b->done < sizeof f + f.bytes) {
            if (!fr__bytes_reserve(b, sizeof f + f.bytes - (b->n - b->done)))
                lose_for_memory(t, l, f.bytes);
            return;
        }
        hear_frame(t, l, &f, b->at + b->done + sizeof f);
        b->done += sizeof f + f.bytes;
    }
    settle(b);
}

static void hear_line(fr_team *t, fr__line *l)
{
    fr__bytes *b = &l->in;
    if (b->room == b->n && !fr__bytes_reserve(b, CHUNK)) {
        lose_for_memory(t, l, CHUNK);
        return;
    }
    ssize_t n = recv(l->talk, b->at + b->n, b->room - b->n, MSG_DONTWAIT);
    if (n > 0) {
        b->n += (size_t)n;
        l->silent_ns = 0;
        hear_frames(t, l);
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        const int error = n == 0 ? 0 : errno;
        atomic_store(&l->is_at_end, true);
        if (l->has_left) return;
        if (error == 0 || error == ECONNRESET || error == EPIPE)
            fr__lose(t, l->rank, "%s has ended", fr_team_name(t, l->rank));
        else
            fr__lose(t, l->rank, "%s is cut off: %s", fr_team_name(t, l->rank), strerror(error));
    }
}

/* --- ears ----------------------------------------------------------------------------------- */

/* The ears, in use until end_call; false if nobody listens. */
static bool begin_call(fr_team *t, bool is_loss, fr_team_ears *ears)
{
    pthread_mutex_lock(&t->lock);
    bool is_on = t->has_ears && !atomic_load(&t->is_mute);
    if (is_loss) is_on = is_on && atomic_load(&t->is_broken) && !t->is_lost_told;
    if (is_on) {
        *ears = t->ears;
        t->is_calling = true;
        if (is_loss) t->is_lost_told = true;
    }
    pthread_mutex_unlock(&t->lock);
    return is_on;
}

static void end_call(fr_team *t)
{
    pthread_mutex_lock(&t->lock);
    t->is_calling = false;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void deliver(fr_team *t)
{
    fr__bytes *b = &t->inbox;
    fr_team_ears ears;
    while (b->done < b->n && begin_call(t, false, &ears)) {
        fr__letter head;
        memcpy(&head, b->at + b->done, sizeof head);
        const char *data = b->at + b->done + sizeof head;
        if (ears.hear) ears.hear(ears.user, (int)head.from, data, head.bytes);
        end_call(t);
        b->done += sizeof head + (head.bytes + sizeof head - 1) / sizeof head * sizeof head;
    }
    settle(b);
    if (begin_call(t, true, &ears)) {
        if (ears.lost) ears.lost(ears.user, t->lost_rank, t->text);
        end_call(t);
    }
}

/* --- the thread ----------------------------------------------------------------------------- */

uint64_t fr__beat_ns(uint64_t patience_ns)
{
    uint64_t ns = patience_ns / 10, least = 50 * (uint64_t)MS, most = 1000 * (uint64_t)MS;
    return ns < least ? least : ns > most ? most : ns;
}

static uint64_t now_ns(const fr_team *t)
{
    return t->bootstrap.now_ns ? t->bootstrap.now_ns(t->bootstrap.user) : fr__now_ns();
}

typedef struct rhythm {
    uint64_t patience_ns, look_ns; /* this rank's own */
    uint64_t beat_ns;              /* what the others want, or the own if sooner */
    uint64_t last_look, last_beat;
} rhythm;

/* Who may send or take something; the shortest time anybody wants to wait. */
static void prepare(fr_team *t, rhythm *r)
{
    t->polls[0] = (struct pollfd){.fd = t->wake_fd, .events = POLLIN};
    pthread_mutex_lock(&t->lock);
    bool is_new = r->patience_ns != t->patience_ns;
    r->patience_ns = t->patience_ns;
    r->beat_ns = r->look_ns = fr__beat_ns(t->patience_ns);
    for (int i = 0; i < t->n_lines; i++) {
        fr__line *l = &t->lines[i];
        bool has_out = !l->is_deaf && l->out.done < l->out.n, has_in = !l->is_lost && !l->is_at_end;
        short events = (short)((has_in ? POLLIN : 0) | (has_out ? POLLOUT : 0));
        t->polls[1 + i] = (struct pollfd){.fd = events ? l->talk : -1, .events = events};
        if (is_new) l->silent_ns = 0;
        if (l->asked_ns && l->asked_ns < r->beat_ns) r->beat_ns = l->asked_ns;
    }
    pthread_mutex_unlock(&t->lock);
}

static void serve(fr_team *t)
{
    uint64_t n_wakes;
    ssize_t n = t->polls[0].revents ? read(t->wake_fd, &n_wakes, sizeof n_wakes) : 0;
    (void)n;
    for (int i = 0; i < t->n_lines; i++) {
        const struct pollfd *p = &t->polls[1 + i];
        if (p->revents & POLLOUT) {
            pthread_mutex_lock(&t->lock);
            push(&t->lines[i]);
            pthread_mutex_unlock(&t->lock);
        }
        if ((p->events & POLLIN) && (p->revents & ~POLLOUT))
            hear_line(t, &t->lines[i]);
        else if (p->revents & (POLLERR | POLLHUP | POLLNVAL)) {
            pthread_mutex_lock(&t->lock);
            t->lines[i].is_deaf = true;
            pthread_mutex_unlock(&t->lock);
        }
    }
}

static bool is_watched(const fr__line *l) { return !l->is_lost && !l->is_at_end && !l->has_left; }

static void age(fr_team *t, rhythm *r)
{
    uint64_t now = now_ns(t), passed = now - r->last_look, longest = 2 * r->look_ns;
    r->last_look = now;
    for (int i = 0; i < t->n_lines; i++)
        t->lines[i].silent_ns += passed < longest ? passed : longest;
}

static void judge_silence(fr_team *t, const rhythm *r)
{
    for (int i = 0; i < t->n_lines; i++) {
        const fr__line *l = &t->lines[i];
        if (is_watched(l) && l->silent_ns > r->patience_ns)
            fr__lose(t, l->rank, "%s has been silent for %.1f s: stopped, stuck, or cut off",
                     fr_team_name(t, l->rank), (double)l->silent_ns * 1e-9);
    }
}

static void beat(fr_team *t, rhythm *r)
{
    uint64_t now = now_ns(t);
    if (now - r->last_beat < r->beat_ns) return;
    r->last_beat = now;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->n_lines; i++) /* what still waits to be sent is as good a sign of life */
        if (t->lines[i].out.n == 0) (void)fr__say(&t->lines[i], FR__FRAME_BEAT, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&t->lock);
}

static void *run(void *arg)
{
    fr_team *t = arg;
    rhythm r = {.last_look = now_ns(t)};
    fr__thread_name("lines");
    while (!atomic_load(&t->is_ending)) {
        prepare(t, &r);
        uint64_t since = now_ns(t) - r.last_beat;
        uint64_t rest = since < r.beat_ns ? r.beat_ns - since : 0;
        if (rest > r.look_ns) rest = r.look_ns;
        int n = poll(t->polls, (nfds_t)(1 + t->n_lines), (int)(rest / MS) + 1);
        age(t, &r); /* first: who was stopped finds in its sockets what was said meanwhile */
        if (n > 0) serve(t);
        judge_silence(t, &r);
        beat(t, &r);
        deliver(t);
    }
    return NULL;
}

fr_status fr__lines_start(fr_team *t)
{
    sigset_t all, before;
    sigfillset(&all); /* signals are for threads that expect them */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&t->thread, NULL, run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return fr_fail(t->ctx, FR_NO_MEMORY, "cannot start the thread of the team's lines: %s",
                       strerror(error));
    t->has_thread = true;
    return FR_OK;
}

void fr__lines_stop(fr_team *t)
{
    if (!t->has_thread) return;
    atomic_store(&t->is_ending, true);
    fr__lines_wake(t);
    pthread_join(t->thread, NULL);
    t->has_thread = false;
}
