/* join.c -- how the ranks connect to rank 0.
 *
 * Rank 0 listens and shares a contact through the bootstrap: its addresses, its port and two random
 * tokens. The other ranks try the addresses and send the first token; rank 0 replies with the
 * second. Both ends are thereby authenticated: strangers may find the port, and an address may lead
 * to another machine when used from elsewhere. When every rank has connected all of its sockets,
 * rank 0 sends them the names of all ranks; otherwise it sends the reason. */
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

enum { MAX_ADDRESSES = 16, MAX_PENDING = 64, TOKEN_BYTES = 16, HOST_BYTES = 64 };
enum { JOIN_S = 20, HELLO_MS = 3000, HURRY_MS = 100, RESULT_MS = 10000 };

static const char contact_magic[8] = "frteam1", hello_magic[8] = "frhello";

typedef struct contact {
    char magic[8];
    unsigned char token[TOKEN_BYTES], reply[TOKEN_BYTES];
    int32_t port, n_addresses;
    fr__address address[MAX_ADDRESSES];
    char host[HOST_BYTES];
    char problem[256]; /* "": rank 0 is listening */
} contact;

typedef struct hello {
    char magic[8];
    unsigned char token[TOKEN_BYTES];
    uint32_t rank, kind;
    int64_t process;
    uint64_t cores;
    char host[HOST_BYTES];
} hello;

typedef struct join_result { /* followed by the names of all ranks (FR_OK) or an error text */
    uint32_t status, bytes;
} join_result;

static uint64_t after_ms(uint64_t ms) { return fr__now_ns() + ms * 1000000; }
static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

static double join_s(const fr_team *t)
{
    return t->bootstrap.join_s > 0 ? t->bootstrap.join_s : (double)JOIN_S;
}
static uint64_t join_until(const fr_team *t) { return after_ms((uint64_t)(join_s(t) * 1000)); }

/* In constant time. */
static bool is_same_token(const unsigned char *a, const unsigned char *b)
{
    unsigned difference = 0;
    for (int i = 0; i < TOKEN_BYTES; i++) difference |= (unsigned)(a[i] ^ b[i]);
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

static void list_addresses(const contact *c, char *out, size_t room)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < c->n_addresses && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? ", " : "", c->address[i]);
}

/* --- rank 0 --------------------------------------------------------------------------------- */

/* An accepted connection whose hello is incomplete. */
typedef struct candidate {
    int fd;
    size_t n_read;
    uint64_t until_ns;
    hello h;
} candidate;

typedef struct acceptor {
    int listener;
    contact contact;
    candidate pending[MAX_PENDING]; /* [n_pending], oldest first */
    int n_pending;
} acceptor;

static int make_contact(contact *c)
{
    int listener = fr__tcp_listen(&c->port);
    memcpy(c->magic, contact_magic, sizeof c->magic);
    own_host(c->host);
    if (listener < 0)
        snprintf(c->problem, sizeof c->problem, "rank 0 (host %.63s) cannot listen: %s", c->host,
                 strerror(errno));
    else if (getrandom(c->token, TOKEN_BYTES, 0) != TOKEN_BYTES ||
             getrandom(c->reply, TOKEN_BYTES, 0) != TOKEN_BYTES)
        snprintf(c->problem, sizeof c->problem, "rank 0 (host %.63s) has no random numbers: %s",
                 c->host, strerror(errno));
    c->n_addresses = fr__tcp_addresses(c->address, MAX_ADDRESSES);
    if (!c->problem[0] && c->n_addresses == 0)
        snprintf(c->problem, sizeof c->problem,
                 "rank 0 (host %.63s) has no network address, not even loopback; try 'ip link set "
                 "lo up'",
                 c->host);
    return listener;
}

static void drop(acceptor *a, int i, bool keep_fd)
{
    if (!keep_fd) fr__tcp_close(&a->pending[i].fd);
    a->n_pending--;
    memmove(&a->pending[i], &a->pending[i + 1], (size_t)(a->n_pending - i) * sizeof *a->pending);
}

/* Strangers get no reply. If a rank connects again, it has given up its first attempt. */
static bool admit(fr_team *t, const acceptor *a, const candidate *who)
{
    const hello *h = &who->h;
    if (!is_same_token(h->token, a->contact.token) ||
        memcmp(h->magic, hello_magic, sizeof h->magic) != 0)
        return false;
    if (h->rank < 1 || h->rank >= (uint32_t)t->size || h->kind >= FR__N_SOCKETS) return false;
    if (fr__tcp_write(who->fd, a->contact.reply, TOKEN_BYTES, -1, after_ms(1), NULL) != FR__TCP_OK)
        return false;
    int *fd = &fr__peer_of(t, (int)h->rank)->fd[h->kind];
    fr__tcp_close(fd);
    *fd = who->fd;
    set_name(t, (int)h->rank, h->host, h->process, h->cores);
    return true;
}

/* Read more of a hello; false: it is still incomplete and in time. */
static bool is_resolved(fr_team *t, acceptor *a, int i)
{
    candidate *who = &a->pending[i];
    ssize_t n =
        recv(who->fd, (char *)&who->h + who->n_read, sizeof who->h - who->n_read, MSG_DONTWAIT);
    bool is_waiting = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (n > 0) who->n_read += (size_t)n;
    if (who->n_read == sizeof who->h) {
        drop(a, i, admit(t, a, who));
        return true;
    }
    if (n > 0 || is_waiting)
        if (fr__now_ns() < who->until_ns) return false;
    drop(a, i, false);
    return true;
}

/* While the table is full, pending connections get a short deadline and no new one is accepted. */
static void serve_candidates(fr_team *t, acceptor *a, uint64_t until)
{
    bool is_full = a->n_pending == MAX_PENDING;
    struct pollfd polls[1 + MAX_PENDING] = {{.fd = is_full ? -1 : a->listener, .events = POLLIN}};
    for (int i = 0; i < a->n_pending; i++) {
        candidate *who = &a->pending[i];
        if (is_full) who->until_ns = sooner(who->until_ns, after_ms(HURRY_MS));
        polls[1 + i] = (struct pollfd){.fd = who->fd, .events = POLLIN};
        until = sooner(until, who->until_ns);
    }
    uint64_t now = fr__now_ns();
    int ms = now < until ? (int)((until - now) / 1000000) + 1 : 0;
    (void)poll(polls, (nfds_t)(1 + a->n_pending), ms);
    for (int i = 0; i < a->n_pending;)
        if (!is_resolved(t, a, i)) i++;
    for (int fd; a->n_pending < MAX_PENDING && (fd = fr__tcp_accept(a->listener)) >= 0;)
        a->pending[a->n_pending++] = (candidate){.fd = fd, .until_ns = after_ms(HELLO_MS)};
}

static int count_missing(const fr_team *t, int *first)
{
    int n = 0;
    for (int i = t->n_peers - 1; i >= 0; i--) {
        bool is_here = true;
        for (int k = 0; k < FR__N_SOCKETS; k++) is_here &= t->peers[i].fd[k] >= 0;
        if (!is_here) n++, *first = t->peers[i].rank;
    }
    return n;
}

static fr_status wait_for_all(fr_team *t, acceptor *a)
{
    const uint64_t until = join_until(t);
    int first = 0, n;
    while ((n = count_missing(t, &first)) > 0 && fr__now_ns() < until)
        serve_candidates(t, a, until);
    if (n == 0) return FR_OK;
    char addresses[MAX_ADDRESSES * FR__ADDRESS_BYTES], others[32] = "";
    list_addresses(&a->contact, addresses, sizeof addresses);
    if (n > 1) snprintf(others, sizeof others, " and %d other%s", n - 1, n > 2 ? "s" : "");
    return fr_fail(
        t->ctx, FR_PEER,
        "rank %d%s of %d did not connect to rank 0 within %.3g s; it listened at port %d of "
        "host %s (%s): allow TCP between the hosts in the firewall, or find out why "
        "that rank did not start",
        first, others, t->size, join_s(t), a->contact.port, a->contact.host, addresses);
}

static void send_result(fr_team *t, fr_status status)
{
    const char *text = status == FR_OK ? (const char *)t->names : fr_ctx_error(t->ctx);
    size_t bytes = status == FR_OK ? (size_t)t->size * sizeof *t->names : strlen(text);
    const join_result v = {(uint32_t)status, (uint32_t)bytes};
    for (int i = 0; i < t->n_peers; i++) {
        int fd = t->peers[i].fd[FR__STREAM];
        if (fd < 0) continue;
        uint64_t until = after_ms(RESULT_MS);
        if (fr__tcp_write(fd, &v, sizeof v, -1, until, NULL) == FR__TCP_OK)
            (void)fr__tcp_write(fd, text, bytes, -1, until, NULL);
    }
}

static fr_status join_as_rank0(fr_team *t, acceptor *a)
{
    a->listener = make_contact(&a->contact);
    set_name(t, 0, a->contact.host, getpid(), fr__cpus_id());
    /* Shared even if there is a problem: the other ranks wait for it. */
    fr_status status = t->bootstrap.share(t->bootstrap.user, &a->contact, sizeof a->contact);
    if (status == FR_OK && a->contact.problem[0])
        status = fr_fail(t->ctx, FR_IO, "%s", a->contact.problem);
    if (status == FR_OK) {
        status = wait_for_all(t, a);
        send_result(t, status);
    }
    while (a->n_pending > 0) drop(a, 0, false);
    fr__tcp_close(&a->listener);
    return status;
}

/* --- the others ----------------------------------------------------------------------------- */

/* A socket connected to rank 0, authenticated both ways, or -1 with errno. */
static int connect_authenticated(const fr_team *t, const contact *c, const char *address,
                                 uint32_t kind, uint64_t connect_until, uint64_t until)
{
    hello h = {
        .rank = (uint32_t)t->rank, .kind = kind, .process = getpid(), .cores = fr__cpus_id()};
    memcpy(h.magic, hello_magic, sizeof h.magic);
    memcpy(h.token, c->token, sizeof h.token);
    own_host(h.host);
    int fd = fr__tcp_connect(address, c->port, sooner(connect_until, until));
    if (fd < 0) return -1;
    unsigned char reply[TOKEN_BYTES];
    uint64_t hello_until = sooner(after_ms(HELLO_MS), until);
    if (fr__tcp_write(fd, &h, sizeof h, -1, hello_until, NULL) == FR__TCP_OK &&
        fr__tcp_read(fd, reply, sizeof reply, -1, hello_until, NULL) == FR__TCP_OK &&
        is_same_token(reply, c->reply))
        return fd;
    fr__tcp_close(&fd);
    errno = EPROTO; /* another program listens there, or none answers */
    return -1;
}

/* Try all addresses in rounds, with more time in each. *best: the address that worked. */
static int connect_to_rank0(const fr_team *t, const contact *c, uint32_t kind, uint64_t until,
                            int *best)
{
    char host[HOST_BYTES];
    own_host(host);
    bool is_near = strcmp(host, c->host) == 0;
    int error = ETIMEDOUT;
    for (uint64_t ms = 500; fr__now_ns() < until; ms = ms < 4000 ? ms * 2 : ms) {
        for (int i = 0; i < c->n_addresses && fr__now_ns() < until; i++) {
            int at = (*best + i) % c->n_addresses;
            if (!is_near && fr__tcp_is_loopback(c->address[at])) continue;
            int fd = connect_authenticated(t, c, c->address[at], kind, after_ms(ms), until);
            if (fd >= 0) return *best = at, fd;
            if (error != EPROTO) error = errno; /* the most informative one */
        }
        if (after_ms(ms / 5) < until) fr__sleep_ns(ms / 5 * 1000000);
    }
    errno = error;
    return -1;
}

static fr_status recv_result(fr_team *t, uint64_t until)
{
    join_result v;
    const int fd = t->peers[0].fd[FR__STREAM];
    const size_t names_bytes = (size_t)t->size * sizeof *t->names;
    if (fr__tcp_read(fd, &v, sizeof v, -1, until, NULL) != FR__TCP_OK) goto closed;
    if (v.status == FR_OK && v.bytes == names_bytes) {
        if (fr__tcp_read(fd, t->names, names_bytes, -1, until, NULL) != FR__TCP_OK) goto closed;
        for (int i = 0; i < t->size; i++) {
            t->names[i].text[sizeof t->names[i].text - 1] = '\0';
            t->names[i].host[sizeof t->names[i].host - 1] = '\0';
        }
        return FR_OK;
    }
    char text[FR__MAX_TEXT] = "";
    size_t bytes = v.bytes < sizeof text ? v.bytes : sizeof text - 1;
    if (v.status == FR_OK || v.status > FR_INTERNAL ||
        fr__tcp_read(fd, text, bytes, -1, until, NULL) != FR__TCP_OK)
        goto closed;
    return fr_fail(t->ctx, (fr_status)v.status, "%s", text);
closed:
    return fr_fail(t->ctx, FR_PEER, "rank 0 ended or got stuck while the ranks were joining");
}

static fr_status join_as_other(fr_team *t)
{
    contact c;
    memset(&c, 0, sizeof c);
    FR_TRY(t->bootstrap.share(t->bootstrap.user, &c, sizeof c));
    if (memcmp(c.magic, contact_magic, sizeof c.magic) != 0 || c.n_addresses > MAX_ADDRESSES)
        return fr_fail(t->ctx, FR_PEER,
                       "the contact that rank 0 shared is invalid; do all ranks run the same "
                       "version of this program?");
    if (c.problem[0]) return fr_fail(t->ctx, FR_IO, "%.255s", c.problem);
    uint64_t until = join_until(t);
    int best = 0, *fd = t->peers[0].fd, n = 0;
    while (n < FR__N_SOCKETS && (fd[n] = connect_to_rank0(t, &c, (uint32_t)n, until, &best)) >= 0)
        n++;
    if (n == FR__N_SOCKETS) return recv_result(t, until + (uint64_t)RESULT_MS * 1000000);
    int error = errno;
    char addresses[MAX_ADDRESSES * FR__ADDRESS_BYTES];
    list_addresses(&c, addresses, sizeof addresses);
    return fr_fail(t->ctx, FR_PEER,
                   "rank %d cannot reach rank 0 on host %.63s: tried %s, port %d, for %.3g s (%s); "
                   "allow TCP between the hosts in the firewall",
                   t->rank, c.host, addresses, c.port, join_s(t),
                   error == EPROTO ? "connected, but rank 0 does not answer" : strerror(error));
}

fr_status fr__team_connect(fr_team *t)
{
    if (t->rank != 0) return join_as_other(t);
    acceptor a;
    memset(&a, 0, sizeof a);
    return join_as_rank0(t, &a);
}

void fr__team_refuse(const fr__bootstrap *b, int rank, const char *problem)
{
    contact c;
    memset(&c, 0, sizeof c);
    memcpy(c.magic, contact_magic, sizeof c.magic);
    snprintf(c.problem, sizeof c.problem, "rank %d: %.200s", rank, problem);
    (void)b->share(b->user, &c, sizeof c);
}
