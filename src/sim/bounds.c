/* bounds.c -- lower bounds of the time of any walk.
 *
 * A mini-batch takes at least the computation of the busiest worker, and at least the transfers
 * of the busiest port or bus. It also takes at least its longest chain: values up the stages,
 * gradients down again, the sum over replicas, the step, with every link idle. The makespan of n
 * mini-batches is at least n times the first two, and at least the last. */
#include "sim/sim.h"

#include "cost/links.h"

#include <math.h>

typedef struct chain {
    const fr_sim_desc *d;
    const fr_schedule *s;
    fr__link_index x;
    fr_links *links;        /* NULL: free */
    double *values, *grads; /* [stage]: earliest times of arrival */
    int *devices;           /* [replica] */
} chain;

static double seconds(const chain *c, double cost, int worker)
{
    return cost / fr__sim_speed(&c->d->timing, worker) + c->d->timing.overhead_s;
}

/* --- work -------------------------------------------------------------------------------------*/

static double work_of(const chain *c, const fr_instr *i, int w)
{
    const fr_stage_cost *k = &c->d->timing.cost[i->stage];
    switch (i->action) {
    case FR_DO_F: return seconds(c, k->forward, w);
    case FR_DO_B: return seconds(c, k->backward, w);
    case FR_DO_I: return seconds(c, k->back_input, w);
    case FR_DO_W: return seconds(c, k->back_weight, w);
    case FR_DO_STEP: return seconds(c, k->step + k->fetch_forward + k->fetch_backward, w);
    default: return seconds(c, 0, w);
    }
}

static double busiest_worker(const chain *c)
{
    const fr_schedule *s = c->s;
    double most = 0;
    for (int w = 0; w < s->n_workers; w++) {
        double work = 0;
        for (int i = 0; i < s->lists[w].n; i++) work += work_of(c, &s->lists[w].at[i], w);
        most = fmax(most, work);
    }
    return most / s->n_batches;
}

static size_t bytes_of(const size_t *sizes, int link) { return sizes ? sizes[link] : 0; }

static void load_messages(const chain *c)
{
    const fr_schedule *s = c->s;
    const fr_timing *t = &c->d->timing;
    for (int w = 0; w < s->n_workers; w++)
        for (int n = 0; n < s->lists[w].n; n++) {
            const fr_instr *i = &s->lists[w].at[n];
            bool is_forward = i->action == FR_DO_SEND_F;
            if (!is_forward && i->action != FR_DO_SEND_B) continue;
            int to = fr_schedule_worker(s, i->peer, i->micro);
            fr_links_send(c->links, fr__sim_device(t, w), fr__sim_device(t, to),
                          bytes_of(is_forward ? t->forward_bytes : t->backward_bytes,
                                   fr__transfer_link(&c->x, i)),
                          0);
        }
}

static int find_devices(const chain *c, int stage)
{
    int n = c->s->replicas[stage];
    for (int q = 0; q < n; q++)
        c->devices[q] = fr__sim_device(&c->d->timing, c->s->worker_of[stage] + q);
    return n;
}

static bool has_sum(const chain *c, int stage)
{
    return c->s->replicas[stage] > 1 && c->d->timing.cost[stage].param_bytes > 0 &&
           !c->s->is_forward_only;
}

static double busiest_link(const chain *c)
{
    const fr_schedule *s = c->s;
    int64_t n_batches = c->d->n_batches, every = c->d->sync_every;
    /* Sums over the whole walk, per mini-batch. */
    double n_sums = every > 0 ? (double)(n_batches / every) / (double)n_batches : 1;
    if (!c->links) return 0;
    load_messages(c);
    for (int k = 0; k < s->n_stages; k++) {
        int n = find_devices(c, k);
        double bytes = (double)c->d->timing.cost[k].param_bytes * s->n_batches * n_sums;
        if (has_sum(c, k)) fr_links_sum(c->links, n, c->devices, (size_t)bytes, 0);
    }
    return fr__links_busiest(c->links) / s->n_batches;
}

/* --- chains -----------------------------------------------------------------------------------*/

/* From one stage to another: 0 on one worker, otherwise the message and both of its ends. */
static double transfer(const chain *c, const fr_link *l, size_t bytes, int micro)
{
    int from = fr_schedule_worker(c->s, l->from, micro),
        to = fr_schedule_worker(c->s, l->to, micro);
    const fr_timing *t = &c->d->timing;
    if (from == to) return 0;
    double under_way = c->links ? fr_links_send_time(c->links, fr__sim_device(t, from),
                                                     fr__sim_device(t, to), bytes)
                                : 0;
    return under_way + 2 * t->overhead_s;
}

static double inputs_at(const chain *c, const fr__direction *d, const size_t *sizes,
                        const double *made, int stage, int micro, double start)
{
    for (int j = d->in.first[stage]; j < d->in.first[stage + 1]; j++) {
        int l = d->in.link[j];
        start = fmax(start,
                     made[d->links[l].from] + transfer(c, &d->links[l], bytes_of(sizes, l), micro));
    }
    return start;
}

/* The first bucket of the block is the last to be final: it is summed and stepped after all others.
 */
static double step_end(const chain *c, int stage, int worker, double start, double end)
{
    const fr_stage_cost *k = &c->d->timing.cost[stage];
    double share = 1, at = end;
    if (has_sum(c, stage) && c->d->sync_every == 0) {
        int64_t rest = k->param_bytes % FR_BUCKET_BYTES;
        size_t bytes = rest ? (size_t)rest : FR_BUCKET_BYTES;
        double posted = c->d->overlaps ? start + fr_curve_time(&k->final, 1) * (end - start) : end;
        int n = find_devices(c, stage);
        share = (double)bytes / (double)k->param_bytes;
        at = posted + (c->links ? fr_links_sum_time(c->links, n, c->devices, bytes) : 0);
    }
    return at + seconds(c, k->step * share, worker);
}

static double chain_of(const chain *c, int micro)
{
    const fr_schedule *s = c->s;
    const fr_timing *t = &c->d->timing;
    double end = 0;
    for (int k = 0; k < s->n_stages; k++) {
        int w = fr_schedule_worker(s, k, micro);
        c->values[k] = inputs_at(c, &c->x.forward, t->forward_bytes, c->values, k, micro, 0) +
                       seconds(c, t->cost[k].forward, w);
        end = fmax(end, c->values[k]);
    }
    for (int k = s->n_stages - 1; k >= 0 && !s->is_forward_only; k--) {
        int w = fr_schedule_worker(s, k, micro);
        const fr_stage_cost *cost = &t->cost[k];
        double again = cost->recompute, ready = c->values[k];
        if (again > 0) ready += seconds(c, again, w); /* while it waits for the gradient */
        double start = inputs_at(c, &c->x.backward, t->backward_bytes, c->grads, k, micro, ready);
        c->grads[k] =
            start + seconds(c, (s->is_split ? cost->back_input : cost->backward) - again, w);
        double first = s->is_split ? c->grads[k] : start;
        double last = c->grads[k] + (s->is_split ? seconds(c, cost->back_weight, w) : 0);
        if (s->is_split)
            last = fmin(last, start + seconds(c, cost->backward - again, w)); /* or a B */
        end = fmax(end, step_end(c, k, w, first, last));
    }
    return end;
}

/* --- the whole --------------------------------------------------------------------------------*/

static fr_status find(fr_ctx *ctx, fr_arena *a, chain *c, fr_sim_bounds *out)
{
    const fr_schedule *s = c->s;
    int most = 1;
    for (int k = 0; k < s->n_stages; k++) most = s->replicas[k] > most ? s->replicas[k] : most;
    c->values = FR_ARENA_ARRAY(a, double, s->n_stages);
    c->grads = FR_ARENA_ARRAY(a, double, s->n_stages);
    c->devices = FR_ARENA_ARRAY(a, int, most);
    if (!c->values || !c->grads || !c->devices)
        return fr__no_memory(ctx, (size_t)s->n_stages * sizeof(double), "bounds");
    FR_TRY(fr__link_index_init(ctx, a, s, &c->x));
    if (c->d->timing.cluster) FR_TRY(fr_links_create(ctx, c->d->timing.cluster, &c->links));
    out->worker_s_per_batch = busiest_worker(c);
    out->link_s_per_batch = busiest_link(c);
    for (int micro = 0; micro < s->n_micro; micro++)
        out->critical_path_s = fmax(out->critical_path_s, chain_of(c, micro));
    return FR_OK;
}

fr_status fr_sim_bounds_of(fr_ctx *ctx, const fr_sim_desc *d, fr_sim_bounds *out)
{
    fr_arena scratch = {0};
    *out = (fr_sim_bounds){0};
    FR_TRY(fr__sim_check(ctx, d));
    chain c = {.d = d, .s = d->schedule};
    fr_status status = find(ctx, &scratch, &c, out);
    fr_links_free(c.links);
    fr__arena_fini(&scratch);
    return status;
}
