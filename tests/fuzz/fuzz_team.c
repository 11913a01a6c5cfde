/* fuzz_team.c -- arbitrary bytes from another process of a team: as frames and votes of connected
 * ranks, as a hello at the port of rank 0, as the contact that rank 0 shares. The team continues or
 * fails with a text; nothing else happens.
 *
 * The first byte chooses the case, the second where the rest is cut in two. */
#include "base/alloc.h"
#include "team/control.h"
#include "team/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct piece {
    const uint8_t *at;
    size_t n;
} piece;

static void must(bool holds)
{
    if (!holds) abort();
}

/* --- connected ranks -------------------------------------------------------------------------- */

enum { SIZE = 3, MAX_PEERS = SIZE - 1, VOTES = 1 << 13 /* bytes, more than all votes together */ };

static void on_message(void *user, int from, const void *data, size_t bytes)
{
    const fr_team *t = user;
    must(from >= 0 && from < t->size && from != t->rank && (data || bytes == 0));
}

static void on_loss(void *user, int rank, const char *text)
{
    const fr_team *t = user;
    must(rank >= 0 && rank < t->size && *text && strlen(text) < FR__MAX_TEXT);
}

/* As fr__team_create returns it; far[peer][socket]: the other ends. */
static fr_team *make_team(fr_ctx *ctx, int rank, int far[MAX_PEERS][FR__N_SOCKETS])
{
    fr_team *t = FR_NEW(fr_team);
    must(t != NULL);
    *t = (fr_team){.ctx = ctx, .rank = rank, .size = SIZE, .n_peers = rank ? 1 : MAX_PEERS};
    t->peers = FR_NEW_ARRAY(fr__peer, t->n_peers);
    t->names = FR_NEW_ARRAY(fr__name, SIZE);
    t->polls = FR_NEW_ARRAY(struct pollfd, 1 + t->n_peers);
    must(t->peers && t->names && t->polls);
    for (int i = 0; i < SIZE; i++)
        snprintf(t->names[i].text, sizeof t->names[i].text, "rank %d", i);
    for (int i = 0; i < t->n_peers; i++) {
        fr__peer *l = &t->peers[i];
        l->rank = rank ? 0 : i + 1;
        for (int k = 0; k < FR__N_SOCKETS; k++) {
            int pair[2];
            must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
            l->fd[k] = pair[0], far[i][k] = pair[1];
        }
    }
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->broken_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->timeout_ns = (uint64_t)30e9;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    must(fr__control_start(t) == FR_OK);
    return t;
}

/* Collectives end on all ranks: the votes are complete, whatever they contain. */
static void vote(fr_ctx *ctx, fr_team *t)
{
    uint64_t word = 0;
    fr_status status = fr_team_agree(t, FR_OK);
    must((unsigned)status <= FR_INTERNAL);
    must(status == FR_OK || *fr_ctx_error(ctx));
    if (status == FR_OK) status = fr_team_same(t, "the config", 7);
    must(status == FR_OK || *fr_ctx_error(ctx));
    if (status == FR_OK) (void)fr_team_share(t, &word, sizeof word);
}

static void send_to(int rank, piece frames, piece votes)
{
    static char padded[VOTES];
    int far[MAX_PEERS][FR__N_SOCKETS];
    fr_ctx *ctx = fr_ctx_create();
    fr_team *t = make_team(ctx, rank, far);
    fr_team_set_callbacks(
        t, &(fr_team_callbacks){.user = t, .on_message = on_message, .on_loss = on_loss});
    memset(padded, 0, sizeof padded);
    if (votes.n) memcpy(padded, votes.at, votes.n < VOTES ? votes.n : VOTES);
    for (int i = 0; i < t->n_peers; i++)
        must(write(far[i][FR__COLLECTIVE], padded, sizeof padded) == (ssize_t)sizeof padded);
    if (frames.n) must(write(far[0][FR__CONTROL], frames.at, frames.n) == (ssize_t)frames.n);
    vote(ctx, t);
    for (int i = 0; i < t->n_peers; i++)
        for (int k = 0; k < FR__N_SOCKETS; k++) close(far[i][k]);
    fr_team_leave(t); /* all connections are closed, so it does not wait */
    fr_ctx_free(ctx);
}

/* --- joining ---------------------------------------------------------------------------------- */

/* Contact and hello start with 8 bytes of magic and a token of 16; a contact goes on with the other
 * token, the port, the number of addresses and the addresses. */
enum { TOKEN = 8, TOKEN_BYTES = 16, PORT = TOKEN + 2 * TOKEN_BYTES, ADDRESSES = PORT + 8 };

typedef struct visit {
    piece says;
    int fds[2];
} visit;

/* Rank 0 has shared its contact: two connections send a hello, one of them with the token. */
static fr_status send_hellos(void *user, void *contact, size_t bytes)
{
    visit *b = user;
    uint8_t hello[512] = {0};
    int32_t port;
    (void)bytes;
    memcpy(&port, (const char *)contact + PORT, sizeof port);
    size_t n = b->says.n < sizeof hello ? b->says.n : sizeof hello;
    if (n) memcpy(hello, b->says.at, n);
    for (int i = 0; i < 2; i++) {
        b->fds[i] = fr__tcp_connect("127.0.0.1", port, 0);
        if (i == 0) memcpy(hello + TOKEN, (const char *)contact + TOKEN, TOKEN_BYTES);
        if (b->fds[i] >= 0) (void)fr__tcp_write(b->fds[i], hello, sizeof hello, -1, 0, NULL);
    }
    return FR_OK;
}

/* Rank 0's contact. No address is valid, so none is connected to. */
static fr_status give_contact(void *user, void *contact, size_t bytes)
{
    const visit *b = user;
    size_t n = b->says.n < bytes ? b->says.n : bytes;
    memset(contact, 'x', bytes);
    memcpy(contact, "frteam1", 8);
    if (n > TOKEN) memcpy((char *)contact + TOKEN, b->says.at + TOKEN, n - TOKEN);
    for (size_t at = ADDRESSES; at + FR__ADDRESS_BYTES <= bytes; at += FR__ADDRESS_BYTES)
        ((char *)contact)[at] = 'x';
    return FR_OK;
}

static void join(int rank, piece says)
{
    visit b = {.says = says, .fds = {-1, -1}};
    fr_ctx *ctx = fr_ctx_create();
    fr__bootstrap with = {.user = &b, .share = rank ? give_contact : send_hellos, .join_s = 0.004};
    fr_team *t;
    must(fr__team_create(ctx, rank, SIZE, &with, &t) != FR_OK && !t && *fr_ctx_error(ctx));
    for (int i = 0; i < 2; i++) fr__tcp_close(&b.fds[i]);
    fr_ctx_free(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const piece all = {data + 2, size - 2};
    size_t cut = all.n * data[1] / 256;
    const piece first = {all.at, cut}, rest = {all.at + cut, all.n - cut};
    switch (data[0] % 16) { /* joining is slow, so it is tried less often */
    case 0: join(0, all); break;
    case 1: join(1, all); break;
    default: send_to(data[0] % 2, first, rest);
    }
    return 0;
}
