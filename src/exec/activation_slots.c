/* activation_slots.c -- memory for the activations of a stage. Each micro-batch in flight has a
 * slot with the program's kept values and, behind them, outputs, which readers on other workers
 * read there.
 *
 * With recompute (Chen et al., "Training deep nets with sublinear memory cost", 2016) the values of
 * some nodes are in areas, which micro-batches share: what a forward leaves in an area may be
 * overwritten, and before the backward these nodes run again, into an area of its own, whose
 * outputs other stages do not read. A joint backward needs its area only while it runs, so one is
 * enough: nothing else of the stage runs between the recompute and the backward
 * (fr_schedule_recompute). Between I and W a micro-batch holds its area, because W continues from
 * values that kernels leave in it. The worker's list determines the areas beforehand:
 *
 *     list             F0 F1 I0 F2 I1 W0 I2 W1 W2      3 slots
 *     area of F        0  0     1
 *     area of I to W         0-----1--0  0--1--0       2 areas */
#include "exec/stage.h"

/* The lowest area that is not held; holder: [n_slots], micro-batch + 1 or 0. */
static int find_free(const int *holder)
{
    int area = 0;
    while (holder[area]) area++;
    return area;
}

/* Each micro-batch that holds or needs an area also holds a slot, so there are never more areas
 * than slots. */
static void assign(int stage, const fr_instr_list *list, int *forward, int *backward, int *holder,
                   int *n)
{
    for (int i = 0; i < list->n; i++) {
        const fr_instr *at = &list->at[i];
        if (at->stage != stage || at->action > FR_DO_W) continue;
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

static fr_status share(fr__exec *x, const fr__slot_plan *s, fr__areas *a)
{
    int *forward = FR_ARENA_ARRAY(x->d.arena, int, s->n_micro);
    int *backward = FR_ARENA_ARRAY(x->d.arena, int, s->n_micro);
    int *holder = FR_ARENA_ARRAY(x->d.arena, int, s->n_slots + 1);
    if (!forward || !backward || !holder) return fr__exec_no_memory(x);
    assign(x->d.stage, s->list, forward, backward, holder, &a->n);
    a->of_forward = forward;
    a->of_backward = backward;
    return FR_OK;
}

fr_status fr__activation_slots_plan(fr__exec *x, fr__mode mode)
{
    const fr__slot_plan *s = &x->d.slots[mode];
    fr__compiled *c = &x->compiled[mode];
    fr__areas *a = &c->areas;
    c->n_slots = s->n_slots;
    c->stride = c->slot_bytes + c->output_bytes;
    if (fr_program_sizes_of(c->program)->n_recomputed > 0) FR_TRY(share(x, s, a));
    a->stride = c->area_bytes;
    for (int i = 0; i < c->n_out; i++) {
        if (!c->out[i].port->recomputed) continue;
        c->out[i].area_offset = a->stride - c->area_bytes;
        a->stride += fr__align_up(c->out[i].port->bytes);
    }
    c->memory_bytes = (size_t)c->n_slots * c->stride + (size_t)a->n * a->stride;
    return FR_OK;
}

void fr__activation_slots_place(fr__exec *x, fr__mode mode, char *memory)
{
    fr__compiled *c = &x->compiled[mode];
    c->areas.at = memory;
    c->slots_at = memory + (size_t)c->areas.n * c->areas.stride;
}
