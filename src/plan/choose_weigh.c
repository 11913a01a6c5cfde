/* choose_weigh.c -- what to expect of a layout before it is simulated.
 *
 * Bound: what no schedule can beat. The busiest worker's computation (with a flush it also waits
 * from its last backward until the stages before it have computed theirs and the next forward), the
 * busiest port at the fastest link's bandwidth, the bus that all share. Estimate: computation and
 * transfers of the slowest worker, the way down and up once where there is a flush, and what of a
 * sum a backward does not hide. Of replicas the slowest counts.
 *
 * A value without parameters behind it has no gradient. Where no gradient leaves a stage, the
 * stages before it wait for nothing of it: they run ahead through a flush. */
#include "plan/choose.h"

#include <math.h>
#include <string.h>

struct worker {
    int first;                     /* of its replicas */
    double speed, fastest, memory; /* of its replicas: least, most, least */
    double work, update;           /* a micro-batch; a mini-batch */
    double forward;
    double beside;      /* seconds a micro-batch that its instructions take beside their work */
    double sent, taken; /* bytes a micro-batch */
    double params;      /* bytes */
    double hop;         /* seconds of a micro-batch to the next, one way */
    double sum;         /* seconds of a mini-batch that no backward hides */
    double held;        /* bytes, about, and no more than it takes where it may recompute */
    double pause;       /* seconds, at least, from its last backward to the next forward */
    int back_to;        /* the last worker before it whose values have gradients here; -1: none */
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

static double sum_time(struct fr__chooser *c, const struct fr__option *o, const struct worker *w,
                       int r, int *ring)
{
    for (int i = 0; i < r; i++) ring[i] = fr__choose_device(o, w->first + i);
    return r > 1 ? fr_links_sum_time(c->links, r, ring, (size_t)w->params) : 0;
}

/* The slowest of the ways that replicas of a worker send to those of the next. */
static double hop_time(struct fr__chooser *c, const struct fr__option *o, const struct worker *from,
                       int n_from, const struct worker *to, int n_to, double bytes)
{
    double most = 0;
    int n = n_from > n_to ? n_from : n_to;
    for (int i = 0; i < (c->has_choice ? n : 1); i += 1 + n / FR__SOME_REPLICAS)
        most = fmax(most,
                    fr_links_send_time(c->links, fr__choose_device(o, from->first + i % n_from),
                                       fr__choose_device(o, to->first + i % n_to), (size_t)bytes));
    return most;
}

/* Micro-batches that a worker w of n has on their way at once, about. */
static double n_ahead(const struct fr__chooser *c, const struct fr__option *o, int w, int n)
{
    const fr_generator *g = c->d->methods[o->method].generator;
    double share = (double)o->size->n_micro / o->replicas[w];
    if (g->ahead == FR_AHEAD_ONE) return 1;
    if (g->ahead == FR_AHEAD_BATCH) return share;
    return g->is_flush ? fmin(share, n - w) : n - w;
}

static void look_at_devices(const struct fr__option *o, struct worker *at, int n)
{
    const struct fr__task *t = &o->size->task;
    for (int w = 0; w < n; w++) {
        if (w) at[w].first = at[w - 1].first + o->replicas[w - 1];
        at[w].speed = at[w].memory = INFINITY, at[w].back_to = -1;
        for (int i = 0; i < o->replicas[w]; i++) {
            int d = fr__choose_device(o, at[w].first + i);
            at[w].speed = fmin(at[w].speed, t->speed[d]);
            at[w].fastest = fmax(at[w].fastest, t->speed[d]);
            at[w].memory = fmin(at[w].memory, t->memory[d]);
        }
    }
}

/* Bytes of a micro-batch that a stage reads of others, and that others read of it, of each value
 * once; _back: those whose gradients go the other way. Values of the stage before, which begins at
 * `before`, are on the longest way down; others have been sent long ago. */
struct traffic {
    double in, in_back, near, out, out_back;
    int last_back; /* the last node whose gradient leaves the stage; -1: none does */
};

static struct traffic traffic_of(const struct fr__task *t, int before, int begin, int end,
                                 int *read_by)
{
    struct traffic bytes = {.last_back = -1};
    for (int i = begin; i < end; i++) {
        const fr_profile_node *node = &t->profile->nodes[i];
        if (!node->is_input && t->last_use[i] >= end) {
            bytes.out += (double)node->output_bytes;
            if (t->has_grad[i]) bytes.out_back += (double)node->output_bytes;
        }
        for (int k = 0; k < node->n_inputs; k++) {
            const int from = node->inputs[k];
            if (from >= begin || t->profile->nodes[from].is_input || read_by[from] == end) continue;
            read_by[from] = end; /* by the stage that ends there */
            double size = (double)t->profile->nodes[from].output_bytes;
            bytes.in += size, bytes.near += from >= before ? size : 0;
            if (!t->has_grad[from]) continue;
            bytes.in_back += size;
            if (from > bytes.last_back) bytes.last_back = from;
        }
    }
    return bytes;
}

/* The stage, not behind s, that a node is in. */
static int stage_of(const struct fr__option *o, int s, int node)
{
    while (s > 0 && node < o->cuts[s - 1]) s--;
    return s;
}

/* Sums over the stages of each worker; returns the bytes that all send in a mini-batch. */
static double fill(struct fr__chooser *c, const struct fr__option *o, struct worker *at, int n,
                   int *ring, int *read_by)
{
    const struct fr__task *t = &o->size->task;
    double bytes = 0, beside = c->d->overhead_s + c->d->cluster->overhead_s;
    look_at_devices(o, at, n);
    for (int s = 0, u = 0, last = 0; s < o->n_stages; s++) {
        int v = s < o->n_stages - 1 ? find_unit(t, o->cuts[s]) : t->n;
        const int begin = s ? o->cuts[s - 1] : 0;
        const int end = s < o->n_stages - 1 ? o->cuts[s] : t->profile->n_nodes;
        struct worker *w = &at[s % n];
        w->forward += t->forward[v] - t->forward[u];
        w->work += fr__task_work(t, u, v), w->update += t->update[v] - t->update[u];
        w->beside += 2 * beside; /* forward and backward */
        w->held += fr__task_fixed(t, u, v);
        if (!c->d->may_recompute) w->held += n_ahead(c, o, s % n, n) * (t->kept[v] - t->kept[u]);
        w->params += t->params[v] - t->params[u];
        u = v;
        if (n == 1) continue;
        struct traffic moved = traffic_of(t, last, begin, end, read_by);
        last = begin;
        w->sent += moved.out + moved.in_back, w->taken += moved.in + moved.out_back;
        bytes += o->size->n_micro * (moved.in + moved.in_back);
        if (moved.last_back >= 0) w->back_to = stage_of(o, s, moved.last_back) % n;
        struct worker *before = &at[(s + n - 1) % n];
        if (s)
            before->hop +=
                hop_time(c, o, before, o->replicas[s - 1], w, o->replicas[s], moved.near);
    }
    for (int w = 0; w < n; w++) {
        int r = o->replicas[w];
        double hidden = (at[w].work - at[w].forward) / at[w].speed;
        double sum = sum_time(c, o, &at[w], r, ring);
        at[w].sum = sum > hidden ? sum - hidden : 0;
        bytes += 2.0 * (r - 1) * at[w].params;
    }
    return bytes;
}

/* What no schedule can beat. */
static double bound_of(const struct fr__chooser *c, const struct fr__option *o, struct worker *at,
                       int n, double bytes)
{
    const fr_generator *g = c->d->methods[o->method].generator;
    /* Weight gradients on their own may be left for the time when the next forward is on its way.
     */
    const bool waits = g->is_flush && !g->is_split && o->chunks == 1;
    double busiest = 0, ports = 0;
    for (int w = 0; w < n; w++) {
        const int r = o->replicas[w], p = at[w].back_to;
        double share = (double)o->size->n_micro / r, wait = 0;
        if (waits && p >= 0 && o->replicas[p] == r)
            wait = at[p].work / at[p].fastest + at[p].pause;
        else if (waits && p >= 0 && at[p].params > 0) /* for a sum, which may be early */
            wait = at[p].forward / at[p].fastest;
        at[w].pause = fmax(wait, at[w].update / at[w].fastest);
        busiest = fmax(busiest, share * (at[w].work / at[w].speed + at[w].beside) +
                                    fmax(wait, at[w].update / at[w].speed));
        ports = fmax(ports,
                     fmax(share * fmax(at[w].sent, at[w].taken), 2.0 * (r - 1) / r * at[w].params));
    }
    return fmax(busiest, fmax(ports / c->fastest_link, bytes / c->bus));
}

/* About what it takes. */
static double estimate_of(const struct fr__chooser *c, const struct fr__option *o,
                          const struct worker *at, int n)
{
    const fr_generator *g = c->d->methods[o->method].generator;
    double way = 0, longest = 0, flush = 0, back = 0, pace = 0, sum = 0;
    for (int w = 0, n_joined = 0; w < n; w++) { /* workers joined by gradients flush together */
        double share = (double)o->size->n_micro / o->replicas[w];
        double each = at[w].work / at[w].speed + at[w].beside;
        if (at[w].back_to < 0) way = n_joined = 0;
        way += each + 2 * at[w].hop, n_joined++;
        longest = fmax(longest, way), flush = fmax(flush, way * (n_joined - 1) / n_joined);
        pace = fmax(pace, share * fmax(each, at[w].hop) + at[w].update / at[w].speed);
        sum = fmax(sum, at[w].sum);
    }
    if (g->ahead == FR_AHEAD_ONE) return longest * o->size->n_micro / o->replicas[0] + sum;
    for (int w = n - 1; w >= 0; w--) { /* down and up again, with so many on the way at once */
        double share = (double)o->size->n_micro / o->replicas[w];
        back += at[w].work / at[w].speed + at[w].beside + 2 * at[w].hop;
        pace = fmax(pace, share * back / n_ahead(c, o, w, n));
    }
    return pace + sum + (g->is_flush ? flush / o->chunks : 0);
}

static void judge(const struct fr__chooser *c, struct fr__option *o, struct worker *at, int n,
                  double bytes)
{
    o->bound = bound_of(c, o, at, n, bytes);
    o->estimate = fmax(estimate_of(c, o, at, n), o->bound);
    o->is_too_large = false;
    for (int w = 0; w < n; w++) o->is_too_large = o->is_too_large || at[w].held > at[w].memory;
}

fr_status fr__choose_weigh(struct fr__chooser *c, struct fr__option *o)
{
    int n = o->n_stages / o->chunks;
    struct worker *at = FR_NEW_ARRAY(struct worker, n);
    int *ring = FR_NEW_ARRAY(int, o->n_workers);
    int *read_by = FR_NEW_ARRAY(int, o->size->task.profile->n_nodes);
    fr_status status = FR_OK;
    if (at && ring && read_by)
        judge(c, o, at, n, fill(c, o, at, n, ring, read_by));
    else
        status = fr__no_memory(c->ctx, (size_t)n * sizeof *at, "an estimate");
    fr__free(at), fr__free(ring), fr__free(read_by);
    return status;
}
