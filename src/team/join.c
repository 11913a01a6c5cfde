/* join.c -- how the ranks find each other.
 *
 * Rank 0 listens and shares a card: where, and two secrets. The others try its addresses and show
 * the first secret; rank 0 answers with the second, so that both know whom they met: the port may
 * be known to strangers, and an address may lead elsewhere from another machine. When all have come
 * three times (for messages, for bulk and for what all do together) rank 0 tells them everybody's
 * name; when not, why not. */
#include "team/control.h"
#include "team/tcp.h"

#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_ADDRESSES = 16, MAX_GUESTS = 64, SECRET_BYTES = 16, HOST_BYTES = 64 };
enum { JOIN_S = 20, HELLO_MS = 3000, HURRY_MS = 100, VERDICT_MS = 10000 };

static const char card_mark[8] = "frteam1", hello_mark[8] = "frhello";

typedef struct card {
    char mark[8];
    unsigned char knock[SECRET_BYTES], answer[SECRET_BYTES];
    int32_t port, n_addresses;
    fr__address address[MAX_ADDRESSES];
    char host[HOST_BYTES];
    char problem[256]; /* "": rank 0 listens */
} card;

enum { KIND_TALK, KIND_BULK, KIND_ACCORD, N_KINDS };

typedef struct hello {
    char mark[8];
    unsigned char knock[SECRET_BYTES];
    uint32_t rank, kind;
    int64_t process;
    uint64_t cores;
    char host[HOST_BYTES];
} hello;

typedef struct verdict { /* then a text, or the names of all */
    uint32_t status, bytes;
} verdict;

static uint64_t after_ms(uint64_t ms) { return fr__now_ns() + ms * 1000000; }
static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

static double join_s(const fr_team *t)
{
    return t->bootstrap.join_s > 0 ? t->bootstrap.join_s : (double)JOIN_S;
}
static uint64_t join_until(const fr_team *t) { return after_ms((uint64_t)(join_s(t) * 1000)); }

/* Takes as long for a near miss as for any other. */
static bool is_same_secret(const unsigned char *a, const unsigned char *b)
{
    unsigned difference = 0;
    for (int i = 0; i < SECRET_BYTES; i++) difference |= (unsigned)(a[i] ^ b[i]);
    return difference == 0;
}

static void own_host(char *out)
{
    if (gethostname(out, HOST_BYTES) != 0) snprintf(out, HOST_BYTES, "unknown");
    out[HOST_BYTES - 1] = '\0';
}

static void set_name(fr_team *t, int rank, const char *host, int64_t process, uint64_t cores)
{
    t->names[rank].cores = cores;
    snprintf(t->names[rank].text, sizeof t->names[rank].text,
             "rank %d (host %.*s, process %" PRId64 ")", rank, HOST_BYTES - 1, host, process);
    snprintf(t->names[rank].host, sizeof t->names[rank].host, "%.*s", HOST_BYTES - 1, host);
}

static void list_addresses(const card *c, char *out, size_t room)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < c->n_addresses && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? ", " : "", c->address[i]);
}

/* --- rank 0 --------------------------------------------------------------------------------- */

/* One who has knocked, and not yet said everything. */
typedef struct guest {
    int fd;
    size_t n_read;
    uint64_t until_ns;
    hello h;
} guest;

typedef struct door {
    int listener;
    card card;
    guest guests[MAX_GUESTS]; /* [n_guests], the one who came first is first */
    int n_guests;
} door;

static int write_card(card *c)
{
    int listener = fr__wire_listen(&c->port);
    memcpy(c->mark, card_mark, sizeof c->mark);
    own_host(c->host);
    if (listener < 0)
        snprintf(c->problem, sizeof c->problem, "rank 0 (host %.63s) cannot listen: %s", c->host,
                 strerror(errno));
    else if (getrandom(c->knock, SECRET_BYTES, 0) != SECRET_BYTES ||
             getrandom(c->answer, SECRET_BYTES, 0) != SECRET_BYTES)
        snprintf(c->problem, sizeof c->problem, "rank 0 (host %.63s) has no random numbers: %s",
                 c->host, strerror(errno));
    c->n_addresses = fr__wire_addresses(c->address, MAX_ADDRESSES);
    if (!c->problem[0] && c->n_addresses == 0)
        snprintf(c->problem, sizeof c->problem,
                 "rank 0 (host %.63s) has no network address, not even loopback; try 'ip link set "
                 "lo up'",
                 c->host);
    return listener;
}

static void dismiss(door *d, int i, bool keep_fd)
{
    if (!keep_fd) fr__wire_close(&d->guests[i].fd);
    d->n_guests--;
    memmove(&d->guests[i], &d->guests[i + 1], (size_t)(d->n_guests - i) * sizeof *d->guests);
}

/* Strangers are sent away without a word. A rank that comes again has given up its first try. */
static bool let_in(fr_team *t, const door *d, const guest *g)
{
    const hello *h = &g->h;
    if (!is_same_secret(h->knock, d->card.knock) ||
        memcmp(h->mark, hello_mark, sizeof h->mark) != 0)
        return false;
    if (h->rank < 1 || h->rank >= (uint32_t)t->size || h->kind >= N_KINDS) return false;
    if (fr__wire_write(g->fd, d->card.answer, SECRET_BYTES, -1, after_ms(1), NULL) != FR__WIRE_DONE)
        return false;
    fr__line *l = fr__line_to(t, (int)h->rank);
    int *const places[N_KINDS] = {&l->talk, &l->bulk, &l->accord}, *place = places[h->kind];
    fr__wire_close(place);
    *place = g->fd;
    set_name(t, (int)h->rank, h->host, h->process, h->cores);
    return true;
}

/* What has come of a hello; false: the guest is still at it. */
static bool is_done_with(fr_team *t, door *d, int i)
{
    guest *g = &d->guests[i];
    ssize_t n = recv(g->fd, (char *)&g->h + g->n_read, sizeof g->h - g->n_read, MSG_DONTWAIT);
    bool is_waiting = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (n > 0) g->n_read += (size_t)n;
    if (g->n_read == sizeof g->h) {
        dismiss(d, i, let_in(t, d, g));
        return true;
    }
    if (n > 0 || is_waiting)
        if (fr__now_ns() < g->until_ns) return false;
    dismiss(d, i, false);
    return true;
}

/* When the room is full, those in it have to hurry, and others wait outside. */
static void answer_door(fr_team *t, door *d, uint64_t until)
{
    bool is_full = d->n_guests == MAX_GUESTS;
    struct pollfd polls[1 + MAX_GUESTS] = {{.fd = is_full ? -1 : d->listener, .events = POLLIN}};
    for (int i = 0; i < d->n_guests; i++) {
        guest *g = &d->guests[i];
        if (is_full) g->until_ns = sooner(g->until_ns, after_ms(HURRY_MS));
        polls[1 + i] = (struct pollfd){.fd = g->fd, .events = POLLIN};
        until = sooner(until, g->until_ns);
    }
    uint64_t now = fr__now_ns();
    int ms = now < until ? (int)((until - now) / 1000000) + 1 : 0;
    (void)poll(polls, (nfds_t)(1 + d->n_guests), ms);
    for (int i = 0; i < d->n_guests;)
        if (!is_done_with(t, d, i)) i++;
    for (int fd; d->n_guests < MAX_GUESTS && (fd = fr__wire_accept(d->listener)) >= 0;)
        d->guests[d->n_guests++] = (guest){.fd = fd, .until_ns = after_ms(HELLO_MS)};
}

static int count_missing(const fr_team *t, int *first)
{
    int n = 0;
    for (int i = t->n_lines - 1; i >= 0; i--)
        if (t->lines[i].talk < 0 || t->lines[i].bulk < 0 || t->lines[i].accord < 0)
            n++, *first = t->lines[i].rank;
    return n;
}

static fr_status wait_for_all(fr_team *t, door *d)
{
    const uint64_t until = join_until(t);
    int first = 0, n;
    while ((n = count_missing(t, &first)) > 0 && fr__now_ns() < until) answer_door(t, d, until);
    if (n == 0) return FR_OK;
    char addresses[MAX_ADDRESSES * FR__ADDRESS_BYTES], others[32] = "";
    list_addresses(&d->card, addresses, sizeof addresses);
    if (n > 1) snprintf(others, sizeof others, " and %d other%s", n - 1, n > 2 ? "s" : "");
    return fr_fail(
        t->ctx, FR_PEER,
        "rank %d%s of %d did not come to rank 0 within %.3g s; it listened at port %d of "
        "host %s (%s): let the firewall pass TCP between the hosts, or look why that "
        "rank did not start",
        first, others, t->size, join_s(t), d->card.port, d->card.host, addresses);
}

static void tell_verdict(fr_team *t, fr_status status)
{
    const char *text = status == FR_OK ? (const char *)t->names : fr_ctx_error(t->ctx);
    size_t bytes = status == FR_OK ? (size_t)t->size * sizeof *t->names : strlen(text);
    const verdict v = {(uint32_t)status, (uint32_t)bytes};
    for (int i = 0; i < t->n_lines; i++) {
        int fd = t->lines[i].bulk;
        if (fd < 0) continue;
        uint64_t until = after_ms(VERDICT_MS);
        if (fr__wire_write(fd, &v, sizeof v, -1, until, NULL) == FR__WIRE_DONE)
            (void)fr__wire_write(fd, text, bytes, -1, until, NULL);
    }
}

static fr_status meet_as_first(fr_team *t, door *d)
{
    d->listener = write_card(&d->card);
    set_name(t, 0, d->card.host, getpid(), fr__cpus_id());
    /* A card with a problem goes out too: the others wait for it. */
    fr_status status = t->bootstrap.share(t->bootstrap.user, &d->card, sizeof d->card);
    if (status == FR_OK && d->card.problem[0])
        status = fr_fail(t->ctx, FR_IO, "%s", d->card.problem);
    if (status == FR_OK) {
        status = wait_for_all(t, d);
        tell_verdict(t, status);
    }
    while (d->n_guests > 0) dismiss(d, 0, false);
    fr__wire_close(&d->listener);
    return status;
}

/* --- the others ----------------------------------------------------------------------------- */

/* A socket on whose other end rank 0 is, or -1 with errno. */
static int knock(const fr_team *t, const card *c, const char *address, uint32_t kind,
                 uint64_t connect_until, uint64_t until)
{
    hello h = {
        .rank = (uint32_t)t->rank, .kind = kind, .process = getpid(), .cores = fr__cpus_id()};
    memcpy(h.mark, hello_mark, sizeof h.mark);
    memcpy(h.knock, c->knock, sizeof h.knock);
    own_host(h.host);
    int fd = fr__wire_connect(address, c->port, sooner(connect_until, until));
    if (fd < 0) return -1;
    unsigned char answer[SECRET_BYTES];
    uint64_t patient_until = sooner(after_ms(HELLO_MS), until);
    if (fr__wire_write(fd, &h, sizeof h, -1, patient_until, NULL) == FR__WIRE_DONE &&
        fr__wire_read(fd, answer, sizeof answer, -1, patient_until, NULL) == FR__WIRE_DONE &&
        is_same_secret(answer, c->answer))
        return fd;
    fr__wire_close(&fd);
    errno = EPROTO; /* somebody else is there, or nobody answers */
    return -1;
}

/* Round after round over all addresses, with more time in each. *best: the address that worked. */
static int reach_first(const fr_team *t, const card *c, uint32_t kind, uint64_t until, int *best)
{
    char host[HOST_BYTES];
    own_host(host);
    bool is_near = strcmp(host, c->host) == 0;
    int error = ETIMEDOUT;
    for (uint64_t ms = 500; fr__now_ns() < until; ms = ms < 4000 ? ms * 2 : ms) {
        for (int i = 0; i < c->n_addresses && fr__now_ns() < until; i++) {
            int at = (*best + i) % c->n_addresses;
            if (!is_near && fr__wire_is_loopback(c->address[at])) continue;
            int fd = knock(t, c, c->address[at], kind, after_ms(ms), until);
            if (fd >= 0) return *best = at, fd;
            if (error != EPROTO) error = errno; /* that one says most */
        }
        if (after_ms(ms / 5) < until) fr__sleep_ns(ms / 5 * 1000000);
    }
    errno = error;
    return -1;
}

static fr_status hear_verdict(fr_team *t, uint64_t until)
{
    verdict v;
    const int fd = t->lines[0].bulk;
    const size_t names_bytes = (size_t)t->size * sizeof *t->names;
    if (fr__wire_read(fd, &v, sizeof v, -1, until, NULL) != FR__WIRE_DONE) goto cut;
    if (v.status == FR_OK && v.bytes == names_bytes) {
        if (fr__wire_read(fd, t->names, names_bytes, -1, until, NULL) != FR__WIRE_DONE) goto cut;
        for (int i = 0; i < t->size; i++) {
            t->names[i].text[sizeof t->names[i].text - 1] = '\0';
            t->names[i].host[sizeof t->names[i].host - 1] = '\0';
        }
        return FR_OK;
    }
    char text[FR__MAX_TEXT] = "";
    size_t bytes = v.bytes < sizeof text ? v.bytes : sizeof text - 1;
    if (v.status == FR_OK || v.status > FR_INTERNAL ||
        fr__wire_read(fd, text, bytes, -1, until, NULL) != FR__WIRE_DONE)
        goto cut;
    return fr_fail(t->ctx, (fr_status)v.status, "%s", text);
cut:
    return fr_fail(t->ctx, FR_PEER, "rank 0 has ended or is stuck while the ranks were meeting");
}

static fr_status meet_as_other(fr_team *t)
{
    card c;
    memset(&c, 0, sizeof c);
    FR_TRY(t->bootstrap.share(t->bootstrap.user, &c, sizeof c));
    if (memcmp(c.mark, card_mark, sizeof c.mark) != 0 || c.n_addresses > MAX_ADDRESSES)
        return fr_fail(t->ctx, FR_PEER,
                       "rank 0 shared something else than its addresses; do all ranks run the same "
                       "version of this program?");
    if (c.problem[0]) return fr_fail(t->ctx, FR_IO, "%.255s", c.problem);
    uint64_t until = join_until(t);
    int best = 0;
    fr__line *l = &t->lines[0];
    l->talk = reach_first(t, &c, KIND_TALK, until, &best);
    if (l->talk >= 0) l->bulk = reach_first(t, &c, KIND_BULK, until, &best);
    if (l->bulk >= 0) l->accord = reach_first(t, &c, KIND_ACCORD, until, &best);
    if (l->accord >= 0) return hear_verdict(t, until + (uint64_t)VERDICT_MS * 1000000);
    int error = errno;
    char addresses[MAX_ADDRESSES * FR__ADDRESS_BYTES];
    list_addresses(&c, addresses, sizeof addresses);
    return fr_fail(t->ctx, FR_PEER,
                   "rank %d cannot reach rank 0 on host %.63s: tried %s, port %d, for %.3g s (%s); "
                   "let the firewall pass TCP between the hosts",
                   t->rank, c.host, addresses, c.port, join_s(t),
                   error == EPROTO ? "connected, but rank 0 does not answer" : strerror(error));
}

fr_status fr__meet(fr_team *t)
{
    if (t->rank != 0) return meet_as_other(t);
    door d;
    memset(&d, 0, sizeof d);
    return meet_as_first(t, &d);
}

void fr__meet_not(const fr__bootstrap *b, int rank, const char *problem)
{
    card c;
    memset(&c, 0, sizeof c);
    memcpy(c.mark, card_mark, sizeof c.mark);
    snprintf(c.problem, sizeof c.problem, "rank %d: %.200s", rank, problem);
    (void)b->share(b->user, &c, sizeof c);
}
