/* instr.c -- one instruction as text: "2B5" is the backward of micro-batch 5 on stage 2. */
#include "sched/sched.h"

#include <stdio.h>

static const char *const action_names[FR_N_ACTIONS] = {
    [FR_DO_F] = "F",           [FR_DO_B] = "B",           [FR_DO_I] = "I",
    [FR_DO_W] = "W",           [FR_DO_SEND_F] = "SEND_F", [FR_DO_RECV_F] = "RECV_F",
    [FR_DO_SEND_B] = "SEND_B", [FR_DO_RECV_B] = "RECV_B", [FR_DO_REDUCE] = "REDUCE",
    [FR_DO_STEP] = "STEP",     [FR_DO_R] = "R",
};

const char *fr__action_name(int action) { return action_names[action]; }

int fr__neighbour(const fr_instr *i)
{
    bool is_above = i->action == FR_DO_SEND_F || i->action == FR_DO_RECV_B;
    return is_above ? i->stage + 1 : i->stage - 1;
}

const char *fr_instr_text(const fr_instr *i, char buffer[48])
{
    const char *name = i->action < FR_N_ACTIONS ? action_names[i->action] : "?";
    int n = snprintf(buffer, 48, "%d%s%d", i->stage, name, i->micro);
    if (fr__is_transfer(i->action) && i->peer != fr__neighbour(i))
        snprintf(buffer + n, 48 - (size_t)n, ">%d", i->peer);
    return buffer;
}

/* The engine and the simulator ask here when a stage that recomputes activations does so. R goes
 * before the receives that stand directly before a B or I: the stage computes while it waits for
 * the gradient (Mario, PPoPP 2025). No other computation comes in between, so it holds no more
 * memory than a B that begins with R. */
bool fr_schedule_recompute(const fr_instr_list *list, int i, fr_instr *out)
{
    int at = i;
    if (i > 0 && list->at[i - 1].action == FR_DO_RECV_B) return false; /* done already */
    while (at < list->n && list->at[at].action == FR_DO_RECV_B) at++;
    if (at == list->n || !fr__makes_gradients(list->at[at].action)) return false;
    *out = list->at[at];
    out->action = FR_DO_R;
    return true;
}
