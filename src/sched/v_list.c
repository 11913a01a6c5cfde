/* v_list.c -- lists of generators with V placement. */
#include "sched/v_list.h"

#include <string.h>

static int stage_of(const fr__v_list *v, int is_b)
{
    return is_b ? v->s->n_stages - 1 - v->w : v->w;
}

static void put_oldest_weight(fr__v_list *v)
{
    const fr_instr_list *list = &v->s->lists[v->w];
    while (v->oldest < list->n && list->at[v->oldest].action != FR_DO_I) v->oldest++;
    if (v->oldest == list->n) return;
    fr_instr input = list->at[v->oldest++];
    fr__emit(v->s, v->w, FR_DO_W, input.stage, input.micro);
}

static void put_next(fr__v_list *v, fr_action action, int is_b)
{
    int micro = v->n[action == FR_DO_B ? FR_DO_I : action][is_b]++;
    if (micro < v->n_micro) fr__emit(v->s, v->w, action, stage_of(v, is_b), micro);
}

void fr__v_put(fr__v_list *v, int times, const char *what)
{
    static const char letters[] = {
        [FR_DO_F] = 'F', [FR_DO_B] = 'B', [FR_DO_I] = 'I', [FR_DO_W] = 'W'};
    for (int i = 0; i < times; i++)
        for (const char *at = what; *at; at++) {
            const char *letter = memchr(letters, *at, sizeof letters);
            if (!letter) continue;
            if (at[1] == 'a' || at[1] == 'b')
                put_next(v, (fr_action)(letter - letters), at[1] == 'b');
            else
                put_oldest_weight(v);
        }
}
