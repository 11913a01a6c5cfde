/* choose_cuts.c -- profiles by size of a micro-batch, and balanced cuts of each, kept.
 *
 * Balanced: the slowest stage is as fast as can be, where each stage is on devices that are given.
 * Stage s of units u .. v - 1 on r devices, the slowest of which has `speed`, costs for each of M
 * micro-batches
 *
 *     max( (F + B) / (r speed) + (update / speed + P sum) / M,  (in link + out link') / r )
 *
 * sum: seconds for each byte that its replicas add up; link: seconds for each byte over a border.
 * Where links differ, a value and its gradient over one border count as one after the other.
 * The table is filled from the last stage on, best[s][u] for units u .. on stages s .. . */
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
    FR_TRY(fr__task_init(c->ctx, &s->problem, FR__MOST_UNITS, &s->task));
    if (!fr__vec_push(&c->sizes, s)) {
        fr__task_fini(&s->task);
        return fr__no_memory(c->ctx, sizeof s, "a profile");
    }
    *out = s;
    return FR_OK;
}

/* --- balanced cuts ---------------------------------------------------------------------------- */

struct seat {
    int replicas;
    double speed, memory; /* of the worst replica */
    double sum, link;     /* seconds a byte; link: of the border in front */
    double turn;          /* seconds a byte of that border, there and back; -1: not looked at */
};

struct cell {
    double time, squares; /* of the slowest stage; sum of all times squared */
    int v;
};

static const double many = 1 << 20; /* bytes: what a byte takes, without latency */

static double link_s(struct fr__chooser *c, const struct fr__option *o, int from, int n_from,
                     int to, int n_to)
{
    double most = 0;
    int n = n_from > n_to ? n_from : n_to;
    for (int i = 0; i < n; i += 1 + n / FR__SOME_REPLICAS) {
        int a = fr__choose_device(o, from + i % n_from), b = fr__choose_device(o, to + i % n_to);
        double seconds = fr_links_send_time(c->links, a, b, (size_t)many) -
                         fr_links_send_time(c->links, a, b, 0);
        most = fmax(most, seconds / many);
    }
    return most;
}

/* Workers that differ in nothing count as the task does: by its slowest link. */
static fr_status fill_seats(struct fr__chooser *c, const struct fr__option *o, struct seat *at)
{
    const struct fr__task *t = &o->size->task;
    int *ring = FR_NEW_ARRAY(int, c->d->cluster->n_devices);
    if (!ring) return fr__no_memory(c->ctx, sizeof(int), "the cuts of a plan");
    for (int s = 0, before = 0; s < o->n_stages; s++) {
        const int r = o->replicas[s], first = fr__choose_first(c, o, s);
        at[s] = (struct seat){.replicas = r, .speed = INFINITY, .memory = INFINITY, .turn = -1};
        for (int i = 0; i < r; i++) {
            ring[i] = fr__choose_device(o, first + i);
            at[s].speed = fmin(at[s].speed, t->speed[ring[i]]);
            at[s].memory = fmin(at[s].memory, t->memory[ring[i]]);
        }
        at[s].sum = 2.0 * (r - 1) / r / t->bandwidth, at[s].link = 1 / t->bandwidth;
        if (c->has_choice) {
            if (r > 1)
                at[s].sum = (fr_links_sum_time(c->links, r, ring, (size_t)many) -
                             fr_links_sum_time(c->links, r, ring, 0)) /
                            many;
            at[s].link =
                s && before != first ? link_s(c, o, before, o->replicas[s - 1], first, r) : 0;
            at[s].turn = at[s].link;
        }
        before = first;
    }
    fr__free(ring);
    return FR_OK;
}

static double stage_s(const struct fr__task *t, const struct seat *at, double link_out, int u,
                      int v, double *work)
{
    double once =
        (t->update[v] - t->update[u]) / at->speed + (t->params[v] - t->params[u]) * at->sum;
    *work = fr__task_work(t, u, v) / (at->replicas * at->speed) + once / t->n_micro;
    double ports = t->cut[u] * at->link + t->cut[v] * link_out;
    if (at->turn >= 0)
        ports =
            (t->cut[u] + t->cut_back[u]) * at->turn; /* no less than the larger of two borders */
    return fmax(*work, ports / at->replicas);
}

static bool fits(const struct fr__task *t, const struct seat *at, enum fr__aim aim, int n_behind,
                 int u, int v)
{
    double share = ceil((double)t->n_micro / at->replicas), slots = fmin(share, n_behind);
    double each = t->kept[v] - t->kept[u], beside = 0;
    if (aim == FR__BY_AMPLE_MEMORY) {
        each += t->cut[v];
        beside = 2 * (t->params[v] - t->params[u] + t->cut[u]);
    }
    return fr__task_fixed(t, u, v) + slots * each + beside <= at->memory;
}

/* Among equally good cuts, take those that balance the other stages, where devices differ. */
static void fill(const struct fr__chooser *c, const struct fr__task *t, const struct seat *seats,
                 int n, enum fr__aim aim, int s, int u, struct cell *table)
{
    struct cell *to = &table[(size_t)s * (size_t)(t->n + 1) + (size_t)u];
    const struct cell *rest = to - u + t->n + 1; /* of stages s + 1 .. */
    const double link_out = s + 1 < n ? seats[s + 1].link : 0;
    *to = (struct cell){.time = INFINITY, .squares = INFINITY};
    for (int v = s + 1 < n ? u + 1 : t->n; v <= t->n - (n - 1 - s); v++) { /* a unit for each */
        struct cell behind = s + 1 < n ? rest[v] : (struct cell){0};
        double work, own = stage_s(t, &seats[s], link_out, u, v, &work);
        if (work > to->time) return; /* as are all that follow */
        if (aim > FR__BY_LINKS && !fits(t, &seats[s], aim, n - s, u, v)) return;
        double time = fmax(own, behind.time), squares = own * own + behind.squares;
        if (time < to->time || (c->has_choice && time == to->time && squares < to->squares))
            *to = (struct cell){time, squares, v};
    }
}

fr_status fr__choose_balance(struct fr__chooser *c, const struct fr__option *o, enum fr__aim aim,
                             const int **cuts)
{
    const struct fr__task *t = &o->size->task;
    const int n = o->n_stages;
    *cuts = NULL;
    if (n > t->n) return FR_OK;
    struct seat *seats = FR_NEW_ARRAY(struct seat, n);
    struct cell *table = FR_NEW_ARRAY(struct cell, (size_t)n * (size_t)(t->n + 1));
    int *at = FR_ARENA_ARRAY(c->arena, int, n);
    fr_status status = seats && table && at
                           ? fill_seats(c, o, seats)
                           : fr__no_memory(c->ctx, sizeof(struct cell), "the cuts of a plan");
    for (int s = 0; status == FR_OK && s < n && aim == FR__BY_WORK; s++)
        seats[s].sum = seats[s].link = seats[s].turn = 0;
    for (int s = n - 1; status == FR_OK && s >= 0; s--)
        for (int u = s; u < t->n; u++) fill(c, t, seats, n, aim, s, u, table);
    if (status == FR_OK && isfinite(table[0].time)) {
        for (int s = 0, u = 0; s < n - 1; s++) {
            u = table[(size_t)s * (size_t)(t->n + 1) + (size_t)u].v;
            at[s] = t->node[u];
        }
        *cuts = at;
    }
    fr__free(seats), fr__free(table);
    return status;
}

fr_status fr__choose_cuts(struct fr__chooser *c, const struct fr__option *o, enum fr__aim aim,
                          const int **cuts)
{
    struct fr__size *size = o->size;
    /* On devices that are alike the links of one cluster-wide bandwidth decide, not the place. */
    struct fr__cuts now = {.n_stages = o->n_stages,
                           .chunks = o->chunks,
                           .replicas = c->has_choice ? o->replicas[0] : 0,
                           .is_v = c->has_choice && c->d->methods[o->method].generator->is_v,
                           .device_of = c->has_choice ? o->device_of : NULL,
                           .aim = aim};
    for (size_t i = 0; i < size->cuts.n; i++) {
        const struct fr__cuts *k = &size->cuts.at[i];
        *cuts = k->at;
        if (k->n_stages == now.n_stages && k->chunks == now.chunks && k->replicas == now.replicas &&
            k->is_v == now.is_v && k->device_of == now.device_of && k->aim == aim)
            return FR_OK;
    }
    FR_TRY(fr__choose_balance(c, o, aim, cuts));
    now.at = *cuts;
    return fr__vec_push(&size->cuts, now)
               ? FR_OK
               : fr__no_memory(c->ctx, sizeof(struct fr__cuts), "the cuts of a plan");
}
