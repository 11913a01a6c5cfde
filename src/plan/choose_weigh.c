/* choose_weigh.c -- what to expect of a layout before it is simulated.
 *
 * Bound: what no schedule can beat. The busiest worker's computation on the fastest device (with a
 * flush it also waits for the first forward to arrive), the busiest port at the fastest link's
 * bandwidth, the bus that all share. Estimate: computation and transfers of the slowest worker, the
 * way down and up once where there is a flush, and what of a sum a backward does not hide. */
#include "plan/choose.h"

#include <math.h>
#include <string.h>

struct worker {
    int first;           /* of its replicas */
    double work, update; /* a micro-batch; a mini-batch */
    double forward;
    double beside; /* seconds a micro-batch that its instructions take beside their work */
    double moved;  /* bytes a micro-batch */
    double params; /* bytes */
    double hop;    /* seconds of a micro-batch to the next, one way */
    double sum;    /* seconds of a mini-batch that no backward hides */
};

static int find_unit(const struct fr__task *t, int node)
{
    int low = 0, high = t->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (t->node[middle] < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int device_at(const struct fr__option *o, int worker)
{
    return o->device_of ? o->device_of[worker] : worker;
}

static double sum_time(struct fr__chooser *c, const struct fr__option *o, const struct worker *w,
                       int r, int *ring)
{
    for (int i = 0; i < r; i++) ring[i] = device_at(o, w->first + i);
    return r > 1 ? fr_links_sum_time(c->links, r, ring, (size_t)w->params) : 0;
}

/* Sums over the stages of each worker; returns the bytes that all send in a mini-batch. */
static double fill(struct fr__chooser *c, const struct fr__option *o, struct worker *at, int n,
                   int *ring)
{
    const struct fr__task *t = &o->size->task;
    double bytes = 0, beside = c->d->overhead_s + c->d->cluster->overhead_s;
    for (int w = 1; w < n; w++) at[w].first = at[w - 1].first + o->replicas[w - 1];
    for (int s = 0, u = 0; s < o->n_stages; s++) {
        int v = s < o->n_stages - 1 ? find_unit(t, o->cuts[s]) : t->n;
        struct worker *w = &at[s % n];
        w->forward += t->forward[v] - t->forward[u];
        w->work += fr__task_work(t, u, v), w->update += t->update[v] - t->update[u];
        w->beside += 2 * beside; /* forward and backward */
        w->moved += t->cut[u] + t->cut[v], w->params += t->params[v] - t->params[u];
        bytes += 2 * o->size->n_micro * t->cut[v];
        if (n > 1 && v < t->n)
            w->hop += fr_links_send_time(c->links, device_at(o, w->first),
                                         device_at(o, at[(s + 1) % n].first), (size_t)t->cut[v]);
        u = v;
    }
    for (int w = 0; w < n; w++) {
        int r = o->replicas[w];
        double hidden = (at[w].work - at[w].forward) / t->slowest;
        double sum = sum_time(c, o, &at[w], r, ring);
        at[w].sum = sum > hidden ? sum - hidden : 0;
        bytes += 2.0 * (r - 1) * at[w].params;
    }
    return bytes;
}

static void judge(const struct fr__chooser *c, struct fr__option *o, const struct worker *at, int n,
                  double bytes)
{
    const struct fr__task *t = &o->size->task;
    const fr_generator *g = c->d->methods[o->method].generator;
    double fastest = 0, busiest = 0, ports = 0, arrival = 0, way = 0, pace = 0, sum = 0;
    /* Weight gradients on their own may be left for the time when the next forward is on its way.
     */
    bool waits = g->is_flush && !g->is_split && o->chunks == 1;
    for (int d = 0; d < t->n_devices; d++) fastest = fmax(fastest, t->speed[d]);
    for (int w = 0; w < n; w++) {
        int r = o->replicas[w];
        double share = (double)o->size->n_micro / r, work = share * at[w].work + at[w].update;
        busiest = fmax(busiest, (work + (waits ? arrival : 0)) / fastest + share * at[w].beside);
        arrival += at[w].forward;
        ports = fmax(ports, fmax(share * at[w].moved, 2.0 * (r - 1) / r * at[w].params));
        double each = at[w].work / t->slowest + at[w].beside;
        way += each + 2 * at[w].hop;
        pace = fmax(pace, share * fmax(each, 2 * at[w].hop) + at[w].update / t->slowest);
        sum = fmax(sum, at[w].sum);
    }
    double bus = bytes / c->bus;
    o->bound = fmax(busiest, fmax(ports / c->fastest_link, bus));
    o->estimate = pace + sum;
    if (strcmp(g->name, "sequential") == 0)
        o->estimate = way * o->size->n_micro / o->replicas[0] + sum;
    else if (g->is_flush)
        o->estimate += way * (n - 1) / n / o->chunks;
    o->estimate = fmax(o->estimate, o->bound);
}

fr_status fr__choose_weigh(struct fr__chooser *c, struct fr__option *o)
{
    int n = o->n_stages / o->chunks;
    struct worker *at = FR_NEW_ARRAY(struct worker, n);
    int *ring = FR_NEW_ARRAY(int, c->n_devices);
    fr_status status = FR_OK;
    if (at && ring)
        judge(c, o, at, n, fill(c, o, at, n, ring));
    else
        status = fr__no_memory(c->ctx, (size_t)n * sizeof *at, "an estimate");
    fr__free(at), fr__free(ring);
    return status;
}
