/* areas.c -- where a stage keeps activations: an area holds what the program keeps of a micro-batch
 * and, behind it, outputs. Usually every slot has one, and readers on other workers read the
 * outputs there.
 *
 * With recompute (Chen et al., "Training deep nets with sublinear memory cost", 2016) slots keep
 * nothing but outputs, and areas are shared: a forward leaves its activations to be overwritten,
 * and the backward first runs the forward again, into an area of its own, with outputs that nobody
 * else reads. A backward at one go needs its area no longer than it runs, so that one is enough;
 * between I and W a micro-batch holds its area, for kernels leave in it what W goes on from. Which
 * area that is the list tells beforehand:
 *
 *     list             F0 F1 I0 F2 I1 W0 I2 W1 W2      3 slots
 *     area of F        0  0     1
 *     area of I to W         0-----1--0  0--1--0       2 areas */
#include "engine/engine.h"

/* The lowest area that nobody holds; holder: [n_slots], micro-batch + 1 or 0. */
static int find_free(const int *holder)
{
    int area = 0;
    while (holder[area]) area++;
    return area;
}

/* Whoever holds an area holds a slot, and so does the one that looks for an area: there are never
 * more areas than slots. */
static void assign(const fr_part *p, const fr_instr_list *list, int *forward, int *backward,
                   int *holder, int *n)
{
    for (int i = 0; i < list->n; i++) {
        const fr_instr *at = &list->at[i];
        if (at->stage != p->stage || at->action > FR_DO_W) continue;
        if (at->action == FR_DO_W) {
            holder[backward[at->micro]] = 0;
            continue;
        }
        int area = find_free(holder);
        if (area >= *n) *n = area + 1;
        (at->action == FR_DO_F ? forward : backward)[at->micro] = area;
        if (at->action == FR_DO_I) holder[area] = at->micro + 1;
    }
}

static fr_status share(fr_part *p, const fr_schedule *s, fr_areas *a)
{
    fr_arena *arena = &p->engine->arena;
    int n_micro = s->n_batches * s->n_micro;
    int *forward = FR_ARENA_ARRAY(arena, int, n_micro);
    int *backward = FR_ARENA_ARRAY(arena, int, n_micro);
    int *holder = FR_ARENA_ARRAY(arena, int, s->n_slots[p->stage] + 1);
    if (!forward || !backward || !holder)
        return fr__no_memory(p->engine->ctx, (size_t)n_micro * 2 * sizeof(int), "a stage");
    assign(p, &s->lists[p->worker->index], forward, backward, holder, &a->n);
    a->of_forward = forward;
    a->of_backward = backward;
    return FR_OK;
}

fr_status fr__areas_plan(fr_part *p, fr_mode mode)
{
    const fr_schedule *s = p->engine->schedule[mode];
    fr_bound *b = &p->bound[mode];
    fr_areas *a = &b->areas;
    bool is_shared = mode == FR_MODE_TRAIN && p->recomputes;
    b->n_slots = s->n_slots[p->stage];
    a->stride = b->slot_bytes + b->output_bytes;
    if (is_shared) {
        FR_TRY(share(p, s, a));
        b->stride = b->output_bytes;
        b->memory_bytes = (size_t)a->n * a->stride + (size_t)b->n_slots * b->stride;
        return FR_OK;
    }
    a->n = b->n_slots;
    a->of_forward = a->of_backward =
        s->slot_of + (size_t)p->stage * (size_t)(s->n_batches * s->n_micro);
    b->stride = a->stride;
    b->memory_bytes = (size_t)a->n * a->stride;
    return FR_OK;
}

void fr__areas_place(fr_part *p, fr_mode mode, char *memory)
{
    fr_bound *b = &p->bound[mode];
    bool is_shared = mode == FR_MODE_TRAIN && p->recomputes;
    b->areas.at = memory;
    b->outputs_at = memory + (is_shared ? (size_t)b->areas.n * b->areas.stride : b->slot_bytes);
}
