/* passes.c -- one forward or backward of one micro-batch: the buffers of its links, then the
 * executor, then the records. */
#include "engine/engine.h"

#include <math.h>

/* --- buffers -------------------------------------------------------------------------------- */

fr_status fr__acquire(fr__worker *w, fr__link_channel *channel, int buffer)
{
    fr__wait_begin(w);
    fr_status status = w->engine->transport->acquire(channel->handle, buffer);
    fr__wait_end(w);
    return status;
}

static void release(fr__worker *w, fr__link_channel *channel, int buffer)
{
    if (!channel->handle) return;
    w->engine->transport->release(channel->handle, buffer);
}

/* The readers of this slot's last micro-batch must have finished with it, whichever replica read
 * it. */
static fr_status acquire_slot(fr__part *p, fr__mode mode, int slot)
{
    fr_engine *e = p->engine;
    for (int i = 0; i < e->schedule[mode]->n_forward; i++) {
        const fr__link_buffers *r = &e->forward[mode][i];
        for (int q = 0; q < r->n_to && r->from == p->stage; q++) {
            fr__link_channel *channel = &r->channels[p->replica * r->n_to + q];
            if (channel->handle) FR_TRY(fr__acquire(p->worker, channel, slot));
        }
    }
    return FR_OK;
}

static fr_status acquire_grads(fr__part *p, int in_segment)
{
    fr_engine *e = p->engine;
    for (int i = 0; i < e->desc.schedule->n_backward; i++) {
        if (e->backward[i].from != p->stage) continue;
        fr__link_channel *channel = fr__channel_of(&e->backward[i], in_segment);
        if (!channel->handle) continue;
        FR_TRY(
            fr__acquire(p->worker, channel, fr_schedule_buffer(e->desc.schedule, i, in_segment)));
    }
    return FR_OK;
}

void fr__release_inputs(fr__part *p, fr__mode mode, int in_segment)
{
    fr_engine *e = p->engine;
    const fr_schedule *s = e->schedule[mode];
    for (int i = 0; i < s->n_forward; i++) {
        const fr__link_buffers *r = &e->forward[mode][i];
        if (r->to != p->stage) continue;
        release(p->worker, fr__channel_of(r, in_segment), fr_schedule_slot(s, r->from, in_segment));
    }
}

void fr__release_grads(fr__part *p, int in_segment)
{
    fr_engine *e = p->engine;
    for (int i = 0; i < e->desc.schedule->n_backward; i++) {
        if (e->backward[i].to != p->stage) continue;
        release(p->worker, fr__channel_of(&e->backward[i], in_segment),
                fr_schedule_buffer(e->desc.schedule, i, in_segment));
    }
}

/* --- the micro-batch ------------------------------------------------------------------------ */

static fr__micro make_micro(fr__part *p, fr__mode mode, int64_t batch, int micro, int in_segment)
{
    const fr_engine *e = p->engine;
    const fr_schedule *s = e->schedule[mode];
    for (int i = 0; i < s->n_forward; i++) {
        const fr__link_buffers *r = &e->forward[mode][i];
        if (r->to != p->stage) continue;
        p->values[i] =
            fr__channel_of(r, in_segment)->data[fr_schedule_slot(s, r->from, in_segment)];
    }
    return (fr__micro){.batch = batch,
                       .micro = micro,
                       .in_segment = in_segment,
                       .fills = in_segment < p->engine->desc.n_micro,
                       .feed = &fr__record_of(p->engine, batch)->feed,
                       .values = p->values,
                       .grads = p->grads,
                       .sent_grads = p->sent_grads};
}

static void aim_grads(fr__part *p, int in_segment)
{
    const fr_engine *e = p->engine;
    for (int i = 0; i < e->desc.schedule->n_backward; i++) {
        const fr__link_buffers *r = &e->backward[i];
        int buffer = fr_schedule_buffer(e->desc.schedule, i, in_segment);
        const fr__link_channel *channel = fr__channel_of(r, in_segment);
        if (r->to == p->stage) p->grads[i] = channel->data[buffer];
        if (r->from == p->stage) p->sent_grads[i] = channel->memory + (size_t)buffer * r->stride;
    }
}

/* --- passes --------------------------------------------------------------------------------- */

static fr_status count_loss(fr__part *p, fr__mode mode, int64_t batch, int micro)
{
    fr_tally *tally = &fr__record_of(p->engine, batch)->tally[micro];
    FR_TRY(fr__exec_add_loss(p->exec, mode, tally));
    /* This runs before any backward of this micro-batch, so no stage has made this mini-batch's
     * update. */
    if (mode == FR_MODE_TRAIN && !isfinite(tally->loss))
        fr__diverge(p->engine, batch, micro, "loss", tally->loss);
    return FR_OK;
}

static fr_status read_logits(fr__part *p, int64_t batch, int micro)
{
    const fr_engine *e = p->engine;
    size_t nth = (size_t)((batch - e->first) * e->desc.n_micro + micro);
    return fr__exec_read_logits(p->exec, e->logits + nth * fr__exec_logits_bytes(p->exec));
}

fr_status fr__pass_forward(fr__part *p, int64_t batch, int micro, int in_segment, fr_event *event)
{
    fr_engine *e = p->engine;
    fr__mode mode = e->mode;
    fr_view view;
    FR_TRY(acquire_slot(p, mode, fr__exec_slot(p->exec, mode, in_segment)));
    fr__micro m = make_micro(p, mode, batch, micro, in_segment);
    FR_TRY(fr__exec_forward(p->exec, mode, &m, &view));
    FR_TRY(fr__tie_lend(p, batch, &view));
    if (fr__fault_is_nan(p, batch, micro)) FR_TRY(fr__exec_spoil_output(p->exec, mode));
    if (fr__exec_has_loss(p->exec, mode)) FR_TRY(count_loss(p, mode, batch, micro));
    if (mode == FR_MODE_TRAIN) fr__record_row(p, batch, micro, 'F', &view);
    if (mode == FR_MODE_EVAL && e->logits && fr__exec_has_logits(p->exec))
        FR_TRY(read_logits(p, batch, micro));
    event->version = view.version, event->ahead = view.ahead;
    return FR_OK;
}

fr_status fr__pass_recompute(fr__part *p, int64_t batch, int micro, int in_segment, fr_event *event)
{
    fr_view view;
    fr__micro m = make_micro(p, FR_MODE_TRAIN, batch, micro, in_segment);
    FR_TRY(fr__exec_recompute(p->exec, &m, &view));
    event->version = view.version, event->ahead = view.ahead;
    return FR_OK;
}

fr_status fr__pass_backward(fr__part *p, int64_t batch, int micro, int in_segment, int what,
                            fr_event *event)
{
    fr_view view;
    if (what & FR_GRAD_INPUT) FR_TRY(acquire_grads(p, in_segment));
    fr__micro m = make_micro(p, FR_MODE_TRAIN, batch, micro, in_segment);
    aim_grads(p, in_segment);
    FR_TRY(fr__exec_backward(p->exec, &m, what, &view));
    if (what & FR_GRAD_INPUT) fr__record_row(p, batch, micro, 'B', &view);
    event->version = view.version, event->ahead = view.ahead;
    return FR_OK;
}
