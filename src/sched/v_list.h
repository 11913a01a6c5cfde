/* v_list.h -- lists of generators with V placement. Worker w of p has two stages: a = w, on the way
 * down, and b = 2p - 1 - w, on the way up. */
#ifndef FR_SCHED_V_LIST_H
#define FR_SCHED_V_LIST_H

#include "sched/sched.h"

typedef struct fr__v_list {
    fr_schedule *s;
    int w, n_micro;        /* entries of micro-batches from n_micro on are left out */
    int n[FR_DO_W + 1][2]; /* [action][a or b]: entries so far; a B counts as an I */
    int oldest;            /* place in the list: every I before it has its W */
} fr__v_list;

/* Append the entries of `what` so many times: "Fa Fb" is one forward on each stage, "Ib" an input
 * gradient, "Ba" a backward, "Wb" a weight gradient, each of the next micro-batch of its kind. "W"
 * is the weight gradient of the oldest I that has none, if there is one. */
void fr__v_put(fr__v_list *v, int times, const char *what);

/* Reorder fill and drain of the lists of all workers, computation only (v_reorder.c). n_micro: in
 * the lists. False: out of memory. */
bool fr__v_reorder(fr_schedule *s, int n_micro);

#endif
