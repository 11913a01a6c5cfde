/* csv.c -- the CSV form of torch.distributed.pipelining: one row per worker (rank), one cell per
 * instruction.
 *
 *     0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
 *     1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1
 *
 * PyTorch's form has no steps and no reductions. They are omitted if lowering would place them
 * identically. Otherwise they are written as cells of our own (0STEP0). */
#include "base/text.h"
#include "sched/sched.h"

static bool same_list(const fr_instr_list *a, const fr_instr_list *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++) {
        const fr_instr *x = &a->at[i], *y = &b->at[i];
        if (x->action != y->action || x->stage != y->stage || x->micro != y->micro ||
            x->peer != y->peer)
            return false;
    }
    return true;
}

fr_status fr__schedule_strip(fr_ctx *ctx, const fr_schedule *s, fr_schedule **out, bool *has_reduce)
{
    *has_reduce = false;
    fr_schedule_desc d = {.n_stages = s->n_stages,
                          .n_micro = s->n_micro,
                          .n_batches = s->n_batches,
                          .n_forward = s->n_forward,
                          .n_backward = s->n_backward,
                          .forward = s->forward,
                          .backward = s->backward,
                          .replicas = s->replicas};
    FR_TRY(fr__schedule_new(ctx, s->name, &d, s->n_workers, s->worker_of, s->is_forward_only, out));
    (*out)->is_flush = s->is_flush;
    (*out)->is_split = s->is_split;
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++) {
            const fr_instr *x = &s->lists[w].at[i];
            if (x->action == FR_DO_REDUCE) *has_reduce = true;
            if (!fr_is_of_batch(x->action))
                fr__emit_transfer(*out, w, (fr_action)x->action, x->stage, x->micro, x->peer);
        }
    return fr__emit_failed(*out) ? fr__no_memory(ctx, sizeof(fr_instr), "a schedule") : FR_OK;
}

/* Would lowering place the steps and reductions identically? */
static bool can_leave_out(const fr_schedule *s)
{
    fr_schedule *again = NULL;
    bool has_reduce, is_same = false;
    if (fr__schedule_strip(NULL, s, &again, &has_reduce) == FR_OK &&
        fr__schedule_lower(NULL, again, has_reduce) == FR_OK) {
        is_same = true;
        for (int w = 0; w < s->n_workers && is_same; w++)
            is_same = same_list(&s->lists[w], &again->lists[w]);
    }
    fr_schedule_free(again);
    return is_same;
}

char *fr_schedule_to_csv(const fr_schedule *s)
{
    fr__text p = {0};
    char text[48];
    bool leave_out = can_leave_out(s);
    for (int w = 0; w < s->n_workers; w++) {
        const char *comma = "";
        for (int i = 0; i < s->lists[w].n; i++) {
            const fr_instr *x = &s->lists[w].at[i];
            if (leave_out && fr_is_of_batch(x->action)) continue;
            fr__text_printf(&p, "%s%s", comma, fr_instr_text(x, text));
            comma = ",";
        }
        fr__text_printf(&p, "\n");
    }
    return fr__text_take(&p);
}
