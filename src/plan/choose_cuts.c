/* choose_cuts.c -- profiles by size of a micro-batch, and balanced cuts of each, kept. */
#include "plan/choose.h"

#include <math.h>

fr_status fr__choose_size(struct fr__chooser *c, int n_micro, struct fr__size **out)
{
    for (size_t i = 0; i < c->sizes.n; i++)
        if ((*out = c->sizes.at[i])->n_micro == n_micro) return FR_OK;
    struct fr__size *s = FR_ARENA_NEW(c->arena, struct fr__size);
    if (!s) return fr__no_memory(c->ctx, sizeof *s, "a profile");
    s->n_micro = n_micro;
    s->problem = (fr_plan_problem){.cluster = c->d->cluster,
                                   .n_devices = c->n_devices,
                                   .n_micro = n_micro,
                                   .contiguous = true,
                                   .deals_evenly = true};
    FR_TRY(c->d->profile(c->d->user, c->d->batch / n_micro, &s->problem.profile));
    FR_TRY(fr__task_init(c->ctx, &s->problem, &s->task));
    if (!fr__vec_push(&c->sizes, s)) {
        fr__task_fini(&s->task);
        return fr__no_memory(c->ctx, sizeof s, "a profile");
    }
    *out = s;
    return FR_OK;
}

const int *fr__choose_nodes(struct fr__chooser *c, const struct fr__task *t, int n,
                            const struct fr__part *parts)
{
    int *cuts = FR_ARENA_ARRAY(c->arena, int, n);
    for (int s = 1; cuts && s < n; s++) cuts[s - 1] = t->node[parts[s].u];
    return cuts;
}

/* The least slowest stage of so many, whatever its memory. Workers with several stages, and devices
 * that are alike, count as devices of one speed; others as the first ones of the cluster. */
static fr_status balance(struct fr__chooser *c, struct fr__size *size, int n_stages, int replicas,
                         bool is_chunked, const int **cuts)
{
    struct fr__task t = size->task;
    fr_plan_problem p = size->problem;
    int n = 0, n_devices = n_stages * replicas;
    double *numbers = FR_NEW_ARRAY(double, 2 * n_devices);
    struct fr__part *parts = FR_NEW_ARRAY(struct fr__part, t.n);
    fr_status status =
        numbers && parts ? FR_OK : fr__no_memory(c->ctx, sizeof(double), "the cuts of a plan");
    if (status == FR_OK) {
        t.are_alike = t.are_alike || is_chunked;
        for (int d = 0; d < n_devices; d++) {
            numbers[d] = t.are_alike ? t.slowest : t.speed[d];
            numbers[n_devices + d] = INFINITY;
        }
        p.n_stages = n_stages, p.replicas = replicas, p.deals_evenly = false;
        t.problem = &p, t.least = INFINITY;
        t.speed = numbers, t.memory = numbers + n_devices, t.n_devices = n_devices;
        status = fr__exact_solve(&t, true, &n, parts);
    }
    *cuts = NULL;
    if (status == FR_OK && n == n_stages && !(*cuts = fr__choose_nodes(c, &t, n, parts)))
        status = fr__no_memory(c->ctx, sizeof(int), "the cuts of a plan");
    fr__free(numbers), fr__free(parts);
    return status;
}

fr_status fr__choose_cuts(struct fr__chooser *c, struct fr__size *size, int n_stages, int replicas,
                          bool is_chunked, const int **cuts)
{
    for (size_t i = 0; i < size->cuts.n; i++) {
        const struct fr__cuts *known = &size->cuts.at[i];
        *cuts = known->at;
        if (known->n_stages == n_stages && known->is_chunked == is_chunked) return FR_OK;
    }
    FR_TRY(balance(c, size, n_stages, replicas, is_chunked, cuts));
    return fr__vec_push(&size->cuts, ((struct fr__cuts){n_stages, is_chunked, *cuts}))
               ? FR_OK
               : fr__no_memory(c->ctx, sizeof(struct fr__cuts), "the cuts of a plan");
}
