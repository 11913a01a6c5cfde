/* check_order.c -- the rules that hold along one worker's list.
 *
 * One rule per kind of instruction: the instructions that must precede it in the same list, and
 * those that another list must contain. check_run.c proves that the lists together do not
 * deadlock. */
#include "sched/check.h"

/* State of the walk along the lists. */
typedef struct walk {
    fr__proof *p;
    int *last_gradient;            /* [copy]: micro-batch, -1 */
    int *last_received[FR_N_WAYS]; /* [link][pair of workers]: micro-batch, -1 */
} walk;

static const char *text_of(int action, int stage, int micro, int peer, char buffer[48])
{
    fr_instr x = {.action = (uint8_t)action, .stage = stage, .micro = micro, .peer = peer};
    return fr_instr_text(&x, buffer);
}

/* Work of the same worker must precede step i. `what` names the work, `why` its purpose. */
static fr_status need_before(const fr__proof *p, int w, int i, int place, const char *what,
                             const char *why)
{
    if (place < 0) return fr__fault(p, w, i, "%s, %s, is nowhere in the list", why, what);
    int step = place - p->first[w];
    if (step > i) return fr__fault(p, w, i, "%s, %s, comes later, at step %d", why, what, step);
    return FR_OK;
}

/* The tensor that x->stage needs for x->micro over each link of one kind was computed earlier on
 * the same worker or received earlier from another. */
static fr_status need_inputs(const fr__proof *p, int w, int i, int way)
{
    static const char *const name[] = {"input", "gradient"};
    const fr_schedule *s = p->s;
    const fr_instr *x = fr__instr_at(p, w, i);
    const fr__groups *g = &p->into[way];
    char text[48];
    for (int n = g->first[x->stage]; n < g->first[x->stage + 1]; n++) {
        int link = g->at[n], from = fr__links(s, way)[link].from;
        int other = fr_schedule_worker(s, from, x->micro);
        int *done = way == FR_FORWARD ? p->forward : p->back;
        int made = fr__micro_row(p, done, from)[x->micro];
        int action = way == FR_FORWARD ? FR_DO_F
                     : made < 0        ? FR_DO_B
                                       : fr__instr_at(p, other, made - p->first[other])->action;
        text_of(action, from, x->micro, -1, text);
        if (other == w) {
            FR_TRY(
                need_before(p, w, i, made, text, way == FR_FORWARD ? "its input" : "its gradient"));
            continue;
        }
        int recv = fr__micro_row(p, p->recv[way], link)[x->micro];
        int send = fr__micro_row(p, p->send[way], link)[x->micro];
        if (recv < 0)
            return fr__fault(p, w, i, "its %s from stage %d (%s on worker %d) is never %s",
                             name[way], from, text, other, send < 0 ? "sent" : "received");
        if (recv - p->first[w] > i)
            return fr__fault(p, w, i,
                             "its %s from stage %d (%s on worker %d) is received later, at step %d",
                             name[way], from, text, other, recv - p->first[w]);
    }
    return FR_OK;
}

/* The schedule flushes: each stage of the worker has run the update of mini-batch b before step
 * i. */
static fr_status need_flush(const fr__proof *p, int w, int i, int b)
{
    char text[48];
    for (int n = p->stages.first[w]; n < p->stages.first[w + 1]; n++) {
        int k = p->stages.at[n];
        FR_TRY(need_before(p, w, i, fr__batch_row(p, p->step, k, w)[b],
                           text_of(FR_DO_STEP, k, b, -1, text),
                           "the schedule flushes, and the update before it"));
    }
    return FR_OK;
}

static fr_status slot_in_range(const fr__proof *p, int w, int i)
{
    const fr_instr *x = fr__instr_at(p, w, i);
    int slot = fr_schedule_slot(p->s, x->stage, x->micro), n = p->s->n_slots[x->stage];
    int share = p->n_all / p->s->replicas[x->stage];
    if (n < 1 || n > share)
        return fr__fault(p, w, i, "stage %d has %d slots for %d micro-batches", x->stage, n, share);
    if (slot < 0 || slot >= n)
        return fr__fault(p, w, i, "slot %d; stage %d has %d", slot, x->stage, n);
    return FR_OK;
}

static fr_status buffers_in_range(const fr__proof *p, int w, int i)
{
    const fr_schedule *s = p->s;
    const fr_instr *x = fr__instr_at(p, w, i);
    const fr__groups *g = &p->out_of[FR_BACKWARD];
    for (int k = g->first[x->stage]; k < g->first[x->stage + 1]; k++) {
        int link = g->at[k], buffer = fr_schedule_buffer(s, link, x->micro);
        int n = s->n_buffers[link], to = s->backward[link].to;
        int share = p->n_all / p->n_pairs[FR_BACKWARD][link];
        if (n < 1 || n > share)
            return fr__fault(p, w, i, "%d buffers for %d gradients to stage %d", n, share, to);
        if (buffer < 0 || buffer >= n)
            return fr__fault(p, w, i, "buffer %d of the gradients to stage %d; there are %d",
                             buffer, to, n);
    }
    return FR_OK;
}

static fr_status forward(walk *v, int w, int i)
{
    const fr__proof *p = v->p;
    const fr_schedule *s = p->s;
    const fr_instr *x = fr__instr_at(p, w, i);
    if (p->has_slots) FR_TRY(slot_in_range(p, w, i));
    FR_TRY(need_inputs(p, w, i, FR_FORWARD));
    if (s->is_flush && !s->is_forward_only && x->micro >= s->n_micro)
        FR_TRY(need_flush(p, w, i, x->micro / s->n_micro - 1));
    return FR_OK;
}

/* Weight gradients are summed in list order: micro-batches ascend, and a mini-batch starts only
 * after the update of the one before has used the sum. */
static fr_status gradient(walk *v, int w, int i)
{
    const fr__proof *p = v->p;
    const fr_instr *x = fr__instr_at(p, w, i);
    char text[48];
    int *met = &v->last_gradient[fr__copy_on(p, x->stage, w)];
    int last = *met, b = x->micro / p->s->n_micro;
    if (last > x->micro) {
        int step = fr__micro_row(p, p->weight, x->stage)[last] - p->first[w];
        return fr__fault(p, w, i,
                         "after %s at step %d; weight gradients are summed in micro-batch order",
                         fr_instr_text(fr__instr_at(p, w, step), text), step);
    }
    *met = x->micro;
    if (b == 0) return FR_OK;
    return need_before(p, w, i, fr__batch_row(p, p->step, x->stage, w)[b - 1],
                       text_of(FR_DO_STEP, x->stage, b - 1, -1, text),
                       "the update of the mini-batch before");
}

/* I, and the first half of B. */
static fr_status back_input(walk *v, int w, int i)
{
    const fr__proof *p = v->p;
    const fr_instr *x = fr__instr_at(p, w, i);
    char text[48];
    if (p->has_slots) FR_TRY(buffers_in_range(p, w, i));
    FR_TRY(need_before(p, w, i, fr__micro_row(p, p->forward, x->stage)[x->micro],
                       text_of(FR_DO_F, x->stage, x->micro, -1, text), "its forward"));
    return need_inputs(p, w, i, FR_BACKWARD);
}

static fr_status backward(walk *v, int w, int i)
{
    FR_TRY(back_input(v, w, i));
    return gradient(v, w, i);
}

static fr_status back_weight(walk *v, int w, int i)
{
    const fr__proof *p = v->p;
    const fr_instr *x = fr__instr_at(p, w, i);
    char text[48];
    FR_TRY(need_before(p, w, i, fr__micro_row(p, p->back, x->stage)[x->micro],
                       text_of(FR_DO_I, x->stage, x->micro, -1, text), "its input gradient"));
    return gradient(v, w, i);
}

/* A transfer and its counterpart. The walk visits receives in order. If each was sent after the one
 * before it, the sends have the same order. */
static fr_status transfer(walk *v, int w, int i)
{
    const fr__proof *p = v->p;
    const fr_schedule *s = p->s;
    const fr_instr *x = fr__instr_at(p, w, i);
    bool is_send = fr__is_send(x->action);
    int way = fr__way_of(x->action);
    int from = is_send ? x->stage : x->peer, to = is_send ? x->peer : x->stage;
    int link = fr__proof_link(p, way, from, to);
    int *send = fr__micro_row(p, p->send[way], link), *recv = fr__micro_row(p, p->recv[way], link);
    int *made = fr__micro_row(p, way == FR_FORWARD ? p->forward : p->back, from);
    char text[48], text2[48];
    if (is_send) {
        FR_TRY(need_before(p, w, i, made[x->micro],
                           text_of(way == FR_FORWARD ? FR_DO_F
                                   : s->is_split     ? FR_DO_I
                                                     : FR_DO_B,
                                   from, x->micro, -1, text),
                           "the tensor that it sends"));
        if (recv[x->micro] >= 0) return FR_OK;
        return fr__fault(p, w, i, "worker %d never receives it (%s)",
                         fr_schedule_worker(s, to, x->micro),
                         text_of(x->action + 1, to, x->micro, from, text));
    }
    if (send[x->micro] < 0)
        return fr__fault(p, w, i, "worker %d never sends it (%s)",
                         fr_schedule_worker(s, from, x->micro),
                         text_of(x->action - 1, from, x->micro, to, text));
    int *met = v->last_received[way] + (size_t)link * (size_t)s->n_micro +
               x->micro % p->n_pairs[way][link];
    int last = *met;
    *met = x->micro;
    if (last < 0 || send[last] < send[x->micro]) return FR_OK;
    return fr__fault(
        p, w, i,
        "comes after %s, but worker %d sends it before that, at step %d (%s); messages "
        "arrive in the order they are sent",
        text_of(x->action, to, last, from, text), fr_schedule_worker(s, from, x->micro),
        fr__step_of(p, from, x->micro, send[x->micro]),
        text_of(x->action - 1, from, x->micro, to, text2));
}

static fr_status need_gradients(const fr__proof *p, int w, int i)
{
    const fr_schedule *s = p->s;
    const fr_instr *x = fr__instr_at(p, w, i);
    const int *weight = fr__micro_row(p, p->weight, x->stage);
    const int *back = fr__micro_row(p, p->back, x->stage);
    char text[48];
    int r = s->replicas[x->stage], first = x->micro * s->n_micro + w - s->worker_of[x->stage];
    for (int m = first; m < (x->micro + 1) * s->n_micro; m += r) {
        bool is_split = back[m] >= 0 ? back[m] != weight[m] : s->is_split;
        FR_TRY(need_before(p, w, i, weight[m],
                           text_of(is_split ? FR_DO_W : FR_DO_B, x->stage, m, -1, text),
                           "a gradient of its mini-batch"));
    }
    return FR_OK;
}

static fr_status reduce(walk *v, int w, int i) { return need_gradients(v->p, w, i); }

/* A worker submits all of its reductions before it waits for one. Without a flush, stages do not
 * wait for each other. */
static fr_status step(walk *v, int w, int i)
{
    const fr__proof *p = v->p;
    const fr_instr *x = fr__instr_at(p, w, i);
    char text[48];
    FR_TRY(need_gradients(p, w, i));
    for (int n = p->stages.first[w]; p->has_reduce && n < p->stages.first[w + 1]; n++) {
        int k = p->stages.at[n];
        if (!p->s->is_flush && k != x->stage) continue;
        FR_TRY(need_before(p, w, i, fr__batch_row(p, p->reduce, k, w)[x->micro],
                           text_of(FR_DO_REDUCE, k, x->micro, -1, text),
                           "a reduction of its mini-batch"));
    }
    return FR_OK;
}

/* --- completeness ------------------------------------------------------------------------- */

static fr_status missing(const fr__proof *p, int w, int stage, int action, int number)
{
    char text[48];
    return fr__fault(p, w, p->s->lists[w].n, "%s never comes",
                     text_of(action, stage, number, -1, text));
}

static fr_status complete(const fr__proof *p, int w, int stage)
{
    const fr_schedule *s = p->s;
    const int *back = fr__micro_row(p, p->back, stage),
              *weight = fr__micro_row(p, p->weight, stage);
    for (int m = w - s->worker_of[stage]; m < p->n_all; m += s->replicas[stage]) {
        if (fr__micro_row(p, p->forward, stage)[m] < 0) return missing(p, w, stage, FR_DO_F, m);
        if (s->is_forward_only) continue;
        if (back[m] < 0) return missing(p, w, stage, s->is_split ? FR_DO_I : FR_DO_B, m);
        if (weight[m] < 0) return missing(p, w, stage, FR_DO_W, m);
    }
    for (int b = 0; !s->is_forward_only && b < s->n_batches; b++) {
        if (p->has_reduce && fr__batch_row(p, p->reduce, stage, w)[b] < 0)
            return missing(p, w, stage, FR_DO_REDUCE, b);
        if (fr__batch_row(p, p->step, stage, w)[b] < 0) return missing(p, w, stage, FR_DO_STEP, b);
    }
    return FR_OK;
}

static fr_status walk_list(walk *v, int w)
{
    static fr_status (*const rules[FR_N_ACTIONS])(walk *, int, int) = {
        [FR_DO_F] = forward,       [FR_DO_B] = backward,      [FR_DO_I] = back_input,
        [FR_DO_W] = back_weight,   [FR_DO_SEND_F] = transfer, [FR_DO_RECV_F] = transfer,
        [FR_DO_SEND_B] = transfer, [FR_DO_RECV_B] = transfer, [FR_DO_REDUCE] = reduce,
        [FR_DO_STEP] = step};
    const fr__proof *p = v->p;
    for (int i = 0; i < p->s->lists[w].n; i++)
        FR_TRY(rules[fr__instr_at(p, w, i)->action](v, w, i));
    for (int n = p->stages.first[w]; n < p->stages.first[w + 1]; n++)
        FR_TRY(complete(p, w, p->stages.at[n]));
    return FR_OK;
}

fr_status fr__proof_order(fr__proof *p)
{
    const fr_schedule *s = p->s;
    walk v = {.p = p};
    v.last_gradient = fr__proof_table(p, p->first_copy[s->n_stages], 1);
    v.last_received[FR_FORWARD] = fr__proof_table(p, s->n_forward, s->n_micro);
    v.last_received[FR_BACKWARD] = fr__proof_table(p, s->n_backward, s->n_micro);
    if (!v.last_gradient || !v.last_received[FR_FORWARD] || !v.last_received[FR_BACKWARD])
        return fr__no_memory(p->ctx, (size_t)s->n_stages * sizeof(int), "the check of a schedule");
    for (int w = 0; w < s->n_workers; w++) FR_TRY(walk_list(&v, w));
    return FR_OK;
}
