/* pass_transfers.c -- SEND and RECV for every link between two workers.
 *
 * A SEND directly follows the computation that made the tensor. A RECV directly precedes the
 * computation that uses it. A receive of the threads transport waits, so at an earlier place it
 * would delay work that does not need the message, or even deadlock on that work. A transport with
 * non-blocking receives looks ahead in the list and posts them early; their order per link is the
 * order of the list.
 *
 * Messages of a link between two workers arrive in the order of sending. With replicas, each pair
 * that exchanges messages has its own channel. If a handwritten schedule uses messages in another
 * order, those sent before the needed one are received with it; they have already arrived. */
#include "sched/sched.h"

/* One direction; action `makes` produces the tensors of its links. */
typedef struct traffic {
    const fr__direction *d;
    fr_action send, receive;
    int *made;     /* [link][pair][total / pairs]: micro-batches in the order of production */
    int *n_made;   /* [pair] */
    int *n_taken;  /* [pair]: receives listed so far */
    bool *is_here; /* [link][micro] */
} traffic;

typedef struct transfers {
    fr_schedule *s;
    int total; /* micro-batches of the segment */
    traffic forward, backward;
} transfers;

/* The direction that a computation reads from, and the one that it writes to. */
static traffic *traffic_of(transfers *p, int action)
{
    if (action == FR_DO_F) return &p->forward;
    return fr__makes_gradients(action) ? &p->backward : NULL;
}

static bool push(fr_instr_list *l, fr_action action, int stage, int micro, int peer)
{
    return fr__list_push(
        l, (fr_instr){.action = (uint8_t)action, .stage = stage, .micro = micro, .peer = peer});
}

static size_t cell(const transfers *p, int row, int micro)
{
    return (size_t)row * (size_t)p->total + (size_t)micro;
}

/* Micro-batches that a pair of workers sends over a link, in order. */
static int *made_for(const transfers *p, const traffic *t, int link, int micro)
{
    int pairs = t->d->pairs[link];
    return &t->made[cell(p, link, micro % pairs * (p->total / pairs))];
}

static bool receive(transfers *p, traffic *t, int link, int micro, fr_instr_list *out)
{
    fr_link at = t->d->links[link];
    int pair = fr__pair(t->d, link, micro);
    const int *made = made_for(p, t, link, micro);
    while (!t->is_here[cell(p, link, micro)] && t->n_taken[pair] < t->n_made[pair]) {
        int m = made[t->n_taken[pair]++];
        t->is_here[cell(p, link, m)] = true;
        if (!push(out, t->receive, at.to, m, at.from)) return false;
    }
    return true;
}

/* Stages that share one worker share all of its replicas; other stages share none. */
static bool is_far(const transfers *p, fr_link l)
{
    return p->s->worker_of[l.from] != p->s->worker_of[l.to];
}

static bool rewrite(transfers *p, int w, fr_instr_list *out)
{
    const fr_instr_list *in = &p->s->lists[w];
    for (int i = 0; i < in->n; i++) {
        const fr_instr *at = &in->at[i];
        traffic *t = traffic_of(p, at->action);
        const fr__direction *d = t ? t->d : NULL;
        for (int j = t ? d->in.first[at->stage] : 0; t && j < d->in.first[at->stage + 1]; j++) {
            int link = d->in.link[j];
            if (is_far(p, d->links[link]) && !receive(p, t, link, at->micro, out)) return false;
        }
        if (!fr__list_push(out, *at)) return false;
        for (int j = t ? d->out.first[at->stage] : 0; t && j < d->out.first[at->stage + 1]; j++) {
            fr_link to = d->links[d->out.link[j]];
            if (is_far(p, to) && !push(out, t->send, at->stage, at->micro, to.to)) return false;
        }
    }
    return true;
}

static void note(transfers *p, traffic *t, const fr_instr *at)
{
    const fr__direction *d = t->d;
    for (int j = d->out.first[at->stage]; j < d->out.first[at->stage + 1]; j++) {
        int link = d->out.link[j], pair = fr__pair(d, link, at->micro);
        if (is_far(p, d->links[link]) && t->n_made[pair] < p->total / d->pairs[link])
            made_for(p, t, link, at->micro)[t->n_made[pair]++] = at->micro;
    }
}

/* Record the order in which each worker makes values and gradients; ignore surplus ones. */
static void note_order(transfers *p)
{
    for (int w = 0; w < p->s->n_workers; w++)
        for (int i = 0; i < p->s->lists[w].n; i++) {
            const fr_instr *at = &p->s->lists[w].at[i];
            traffic *t = traffic_of(p, at->action);
            if (t) note(p, t, at);
        }
}

static bool traffic_init(fr_arena *a, const transfers *p, traffic *t)
{
    size_t cells = (size_t)t->d->n * (size_t)p->total;
    t->made = FR_ARENA_ARRAY(a, int, cells);
    t->n_made = FR_ARENA_ARRAY(a, int, t->d->first_pair[t->d->n]);
    t->n_taken = FR_ARENA_ARRAY(a, int, t->d->first_pair[t->d->n]);
    t->is_here = FR_ARENA_ARRAY(a, bool, cells);
    return t->made && t->n_made && t->n_taken && t->is_here;
}

static bool has_transfer(const fr_schedule *s)
{
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++)
            if (fr__is_transfer(s->lists[w].at[i].action)) return true;
    return false;
}

fr_status fr__pass_transfers(fr_ctx *ctx, fr_schedule *s, const fr__link_index *x)
{
    if (has_transfer(s)) return FR_OK;
    fr_arena scratch = {0};
    transfers p = {.s = s, .total = fr__n_micro(s)};
    p.forward = (traffic){.d = &x->forward, .send = FR_DO_SEND_F, .receive = FR_DO_RECV_F};
    p.backward = (traffic){.d = &x->backward, .send = FR_DO_SEND_B, .receive = FR_DO_RECV_B};
    bool is_ok = traffic_init(&scratch, &p, &p.forward) && traffic_init(&scratch, &p, &p.backward);
    if (is_ok) note_order(&p);
    for (int w = 0; is_ok && w < s->n_workers; w++) {
        fr_instr_list out = {0};
        is_ok = rewrite(&p, w, &out);
        fr__list_replace(is_ok ? &s->lists[w] : &out, is_ok ? out : (fr_instr_list){0});
    }
    fr__arena_fini(&scratch);
    return is_ok ? FR_OK
                 : fr__no_memory(ctx, (size_t)s->n_stages * (size_t)p.total * sizeof(int),
                                 "the transfers of a schedule");
}
