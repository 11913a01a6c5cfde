/* queue.c -- the next worker in virtual time, and the events that workers wait for.
 *
 * Messages and sums must reach the links in the order of their times, because links serve in
 * order. So a worker runs ahead of the clock while it only computes, and enters a heap with the
 * time of its next send. Entries leave the heap in the order of their times. */
#include "sim/sim.h"

#include <math.h>

static bool is_before(fr__sim_item a, fr__sim_item b)
{
    return a.time < b.time || (a.time == b.time && a.who < b.who);
}

void fr__sim_push(fr__sim *m, int who, double time)
{
    fr__sim_item item = {time, who};
    int i = m->n_heap++;
    for (; i > 0 && is_before(item, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = item;
}

bool fr__sim_pop(fr__sim *m, fr__sim_item *out)
{
    if (m->n_heap == 0) return false;
    *out = m->heap[0];
    fr__sim_item item = m->heap[--m->n_heap];
    int i = 0;
    for (int child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && is_before(m->heap[child + 1], m->heap[child])) child++;
        if (!is_before(m->heap[child], item)) break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = item;
    return true;
}

void fr__sim_happen(fr__sim *m, size_t event, int nth, double when)
{
    m->when[event] = when;
    m->nth[event] = nth;
    for (int w = m->sleeper[event]; w >= 0; w = m->next_sleeper[w]) m->awake[m->n_awake++] = w;
    m->sleeper[event] = -1;
}

bool fr__sim_after(fr__sim *m, int w, size_t event, int nth, double *start)
{
    if (m->nth[event] >= nth) {
        *start = fmax(*start, m->when[event]);
        return true;
    }
    m->next_sleeper[w] = m->sleeper[event];
    m->sleeper[event] = w;
    return false;
}
