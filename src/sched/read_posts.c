/* read_posts.c -- moves posted transfers of a CSV file to the places of blocking ones.
 *
 * torch.distributed.pipelining lists a RECV where the receive is posted (irecv), which may be long
 * before the message arrives; the computation that uses it waits. Our RECV itself waits, so it must
 * directly precede that computation:
 *
 *     0RECV_B0,0RECV_B1,0F2,0B0,0B1   ->   0F2,0RECV_B0,0B0,0RECV_B1,0B1
 *
 * Messages of one channel keep the order of their receives: a receive posted before the needed one
 * moves with it. A receive that no later computation of its row uses stays in place, and the check
 * reports it. A SEND after two overlapped computations moves directly behind its own:
 *
 *     (0F1;1B0)OVERLAP_F_B,0SEND_F1   ->   0F1,0SEND_F1,1B0 */
#include "sched/read.h"

#include <stdlib.h>

/* An entry of the row and its new place. */
typedef struct item {
    fr__sched_entry e;
    int way;       /* 0: values; 1: gradients; -1: neither */
    int replica;   /* receive: stage of the sender */
    size_t number; /* in the row */
    size_t to;     /* number of the entry that it moves next to; its own number: stays */
    size_t end;    /* computation: place of the next one in another cell */
} item;

typedef enum side { BEFORE, AT, BEHIND } side;

static bool is_receive(const item *a)
{
    return a->e.x.action == FR_DO_RECV_F || a->e.x.action == FR_DO_RECV_B;
}

static bool is_send(const item *a)
{
    return a->e.x.action == FR_DO_SEND_F || a->e.x.action == FR_DO_SEND_B;
}

static int way_of(const fr_instr *x)
{
    switch (x->action) {
    case FR_DO_F:
    case FR_DO_RECV_F:
    case FR_DO_SEND_F: return 0;
    case FR_DO_B:
    case FR_DO_I:
    case FR_DO_RECV_B:
    case FR_DO_SEND_B: return 1;
    default: return -1;
    }
}

static side side_of(const item *a)
{
    if (a->to == a->number) return AT;
    return is_receive(a) ? BEFORE : BEHIND;
}

static int order(size_t a, size_t b) { return a < b ? -1 : a > b; }

/* Entries that belong together, in row order. */
static int by_use(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->way != y->way) return x->way - y->way;
    if (x->e.x.stage != y->e.x.stage) return x->e.x.stage - y->e.x.stage;
    if (x->e.x.micro != y->e.x.micro) return x->e.x.micro - y->e.x.micro;
    return order(x->number, y->number);
}

/* Receives of one channel (one sender of a link) in row order, then all other entries. */
static int by_channel(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (is_receive(x) != is_receive(y)) return is_receive(x) ? -1 : 1;
    if (x->way != y->way) return x->way - y->way;
    if (x->e.x.stage != y->e.x.stage) return x->e.x.stage - y->e.x.stage;
    if (x->e.x.peer != y->e.x.peer) return x->e.x.peer - y->e.x.peer;
    if (x->replica != y->replica) return x->replica - y->replica;
    return order(x->number, y->number);
}

static bool is_same_channel(const item *a, const item *b)
{
    return is_receive(a) && is_receive(b) && a->way == b->way && a->e.x.stage == b->e.x.stage &&
           a->e.x.peer == b->e.x.peer && a->replica == b->replica;
}

static int by_place(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->to != y->to) return order(x->to, y->to);
    if (side_of(x) != side_of(y)) return (int)side_of(x) - (int)side_of(y);
    return order(x->number, y->number);
}

static bool is_about_same(const item *a, const item *b)
{
    return a->way >= 0 && a->way == b->way && a->e.x.stage == b->e.x.stage &&
           a->e.x.micro == b->e.x.micro;
}

/* `at` is sorted by use: a receive, its computation, a send. */
static void find_places(item *at, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        const item *next = i + 1 < n && is_about_same(&at[i], &at[i + 1]) ? &at[i + 1] : NULL;
        if (!is_receive(&at[i]) || !next || is_send(next)) continue;
        bool is_stuck = is_receive(next) && next->to == next->number;
        at[i].to = is_stuck ? at[i].number : is_receive(next) ? next->to : next->number;
    }
    const item *maker = NULL;
    for (size_t i = 0; i < n; i++) {
        if (maker && !is_about_same(maker, &at[i])) maker = NULL;
        if (is_send(&at[i]) && maker && at[i].number < maker->end) at[i].to = maker->number;
        if (at[i].way >= 0 && !is_send(&at[i]) && !is_receive(&at[i])) maker = &at[i];
    }
}

static void rewrite(item *at, size_t n)
{
    size_t end = n, next = n; /* cell of the next computation, and the computation */
    for (size_t i = n; i-- > 0;) {
        if (fr__is_transfer(at[i].e.x.action)) continue;
        if (next < n && at[next].e.number != at[i].e.number) end = next;
        at[i].end = end, next = i;
    }
    qsort(at, n, sizeof *at, by_use);
    find_places(at, n);
    qsort(at, n, sizeof *at, by_channel);
    for (size_t i = n; i-- > 1;)
        if (is_same_channel(&at[i - 1], &at[i]) && at[i].to < at[i - 1].to) at[i - 1].to = at[i].to;
    qsort(at, n, sizeof *at, by_place);
}

/* Entries first .. last - 1 belong to one worker. */
static void read_row(fr__sched_reader *r, size_t first, size_t last, item *at)
{
    size_t n = last - first;
    for (size_t i = 0; i < n; i++) {
        const fr__sched_entry *e = &r->entries.at[first + i];
        bool has_peer = e->x.peer >= 0 && (size_t)e->x.peer < r->replicas.n;
        at[i] = (item){.e = *e, .way = way_of(&e->x), .number = i, .to = i};
        if (has_peer) at[i].replica = e->x.micro % r->replicas.at[e->x.peer];
    }
    rewrite(at, n);
    for (size_t i = 0; i < n; i++) r->entries.at[first + i] = at[i].e;
}

fr_status fr__read_posts(fr__sched_reader *r)
{
    size_t n = r->entries.n;
    bool has_any = false;
    for (size_t i = 0; i < n && !has_any; i++)
        has_any =
            r->entries.at[i].x.action == FR_DO_RECV_F || r->entries.at[i].x.action == FR_DO_RECV_B;
    if (!has_any) return FR_OK;
    item *at = FR_NEW_ARRAY(item, n);
    if (!at) return fr__no_memory(r->ctx, n * sizeof *at, r->path);
    for (size_t first = 0, last; first < n; first = last) {
        for (last = first + 1; last < n; last++)
            if (r->entries.at[last].worker != r->entries.at[first].worker) break;
        read_row(r, first, last, at);
    }
    fr__free(at);
    return FR_OK;
}
