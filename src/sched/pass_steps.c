/* pass_steps.c -- places of the updates: STEP, and REDUCE where gradients are summed first.
 *
 * A stage steps directly after its last gradient of a mini-batch has been computed and sent, so
 * that the update can be fused into that computation. REDUCE submits gradients and does not wait.
 * With a flush STEP waits for the submissions of all stages: a worker with several stages therefore
 * submits all of its own before it steps the first of them, or it would wait for itself. Steps of a
 * file keep their places unless they precede an added reduction. Replicas of a stage sum their
 * gradients this way, so each of them has a REDUCE after the last gradient of its own share. */
#include "sched/sched.h"

typedef struct steps {
    fr_schedule *s;
    bool add_step, add_reduce;
    bool is_joint;      /* all steps of a mini-batch wait for the added reductions */
    int *grads_left;    /* [stage][mini-batch]: gradients not yet summed */
    int *stages_left;   /* [mini-batch]: stages of this worker not yet submitted */
    fr_instr_list held; /* steps of the file that must wait for a later REDUCE */
} steps;

static bool has_action(const fr_schedule *s, fr_action action)
{
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++)
            if (s->lists[w].at[i].action == action) return true;
    return false;
}

static bool is_gradient(int action) { return action == FR_DO_B || action == FR_DO_W; }

/* Sends the input gradient of this computation. */
static bool is_send_of(const fr_instr *gradient, const fr_instr *i)
{
    return i->action == FR_DO_SEND_B && i->stage == gradient->stage && i->micro == gradient->micro;
}

static int *grads_left(steps *p, const fr_instr *i)
{
    const fr_schedule *s = p->s;
    return &p->grads_left[(size_t)i->stage * (size_t)s->n_batches +
                          (size_t)(i->micro / s->n_micro)];
}

static bool push(fr_instr_list *l, fr_action action, int stage, int batch)
{
    return fr__list_push(
        l, (fr_instr){.action = (uint8_t)action, .stage = stage, .micro = batch, .peer = -1});
}

/* Emit the held steps of a mini-batch; -1: of all mini-batches. */
static bool let_go(steps *p, int batch, fr_instr_list *out)
{
    int n_left = 0;
    for (int i = 0; i < p->held.n; i++) {
        fr_instr at = p->held.at[i];
        if (batch >= 0 && at.micro != batch)
            p->held.at[n_left++] = at;
        else if (!fr__list_push(out, at))
            return false;
    }
    p->held.n = n_left;
    return true;
}

/* The stage's last gradient of the mini-batch has been listed. */
static bool finish(steps *p, int w, int stage, int batch, fr_instr_list *out)
{
    if (p->add_reduce && !push(out, FR_DO_REDUCE, stage, batch)) return false;
    if (!p->is_joint) return !p->add_step || push(out, FR_DO_STEP, stage, batch);
    if (--p->stages_left[batch] > 0) return true;
    if (!p->add_step) return let_go(p, batch, out);
    int n;
    const int *own = fr__stages_of(p->s, w, &n);
    for (int k = 0; k < n; k++)
        if (!push(out, FR_DO_STEP, own[k], batch)) return false;
    return true;
}

static bool rewrite(steps *p, int w, fr_instr_list *out)
{
    const fr_instr_list *in = &p->s->lists[w];
    int n;
    fr__stages_of(p->s, w, &n);
    for (int b = 0; b < p->s->n_batches; b++) p->stages_left[b] = n;
    for (int i = 0; i < in->n; i++)
        if (is_gradient(in->at[i].action)) ++*grads_left(p, &in->at[i]);
    for (int i = 0; i < in->n; i++) {
        const fr_instr *at = &in->at[i];
        bool waits = p->is_joint && at->action == FR_DO_STEP && p->stages_left[at->micro] > 0;
        if (!fr__list_push(waits ? &p->held : out, *at)) return false;
        if (!is_gradient(at->action) || --*grads_left(p, at) > 0) continue;
        while (i + 1 < in->n && is_send_of(at, &in->at[i + 1])) /* other workers wait for it */
            if (!fr__list_push(out, in->at[++i])) return false;
        if (!finish(p, w, at->stage, at->micro / p->s->n_micro, out)) return false;
    }
    return let_go(p, -1, out);
}

fr_status fr__pass_steps(fr_ctx *ctx, fr_schedule *s, bool must_reduce)
{
    if (s->is_forward_only) return FR_OK;
    steps p = {.s = s,
               .add_step = !has_action(s, FR_DO_STEP),
               .add_reduce = (must_reduce || fr__has_replicas(s)) && !has_action(s, FR_DO_REDUCE)};
    if (!p.add_step && !p.add_reduce) return FR_OK;
    p.is_joint = p.add_reduce && fr__steps_together(s);
    size_t cells = (size_t)s->n_stages * (size_t)s->n_batches; /* 0 again after each worker */
    p.grads_left = FR_NEW_ARRAY(int, cells);
    p.stages_left = FR_NEW_ARRAY(int, s->n_batches);
    bool is_ok = p.grads_left && p.stages_left;
    for (int w = 0; is_ok && w < s->n_workers; w++) {
        fr_instr_list out = {0};
        is_ok = rewrite(&p, w, &out);
        fr__list_replace(is_ok ? &s->lists[w] : &out, is_ok ? out : (fr_instr_list){0});
    }
    fr__free(p.grads_left);
    fr__free(p.stages_left);
    fr__free(p.held.at);
    return is_ok ? FR_OK : fr__no_memory(ctx, cells * sizeof(int), "the steps of a schedule");
}
