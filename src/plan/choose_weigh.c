/* choose_weigh.c -- what to expect of a layout before it is simulated.
 *
 * Bound: what no schedule can beat. The busiest worker's computation (with a flush it also waits
 * from its last backward until the stages before it have computed theirs and the next forward), and
 * the busiest port or bus, by all that the layout sends in a mini-batch. Estimate: computation and
 * transfers of the slowest worker, the way down and up once where there is a flush, and what of a
 * sum a backward does not hide. The slowest of replicas counts, and the slowest stage of a chunk
 * where workers have several.
 *
 * A value without parameters behind it has no gradient. Where no gradient leaves a stage, the
 * stages before it wait for nothing of it: they run ahead through a flush. */
#include "cost/links.h"
#include "plan/choose.h"

#include <math.h>
#include <string.h>

struct worker {
    int first;                     /* of its replicas */
    double speed, fastest, memory; /* of its replicas: least, most, least */
    double work, update;           /* a micro-batch; a mini-batch */
    double forward;
    double beside; /* seconds a micro-batch that its instructions take beside their work */
    double params; /* bytes */
    double hop;    /* seconds of a micro-batch to the next, one way */
    double sum;    /* seconds of a mini-batch that no backward hides */
    double held;   /* bytes, about, and no more than it takes where it may recompute */
    double pause;  /* seconds, at least, from its last backward to the next forward */
    int back_to;   /* the last worker before it whose values have gradients here; -1: none */
};

/* The sum over the replicas of a worker, put on the links; returns what it takes on idle ones. */
static double load_sum(struct fr__chooser *c, const struct fr__option *o, const struct worker *w,
                       int r, int *ring)
{
    for (int i = 0; i < r; i++) ring[i] = fr__choose_device(o, w->first + i);
    if (r == 1) return 0;
    fr_links_sum(c->links, r, ring, (size_t)w->params, 0);
    return fr_links_sum_time(c->links, r, ring, (size_t)w->params);
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

/* Micro-batches that worker w of n, or stage w of n, has on their way at once, about; n_behind: of
 * w and those on the longest way from it to the end. */
static double n_ahead(const struct fr__chooser *c, const struct fr__option *o, int w, int n_behind,
                      int lead)
{
    const fr_generator *g = c->d->methods[o->method].generator;
    double share = (double)o->size->n_micro / o->replicas[w];
    if (g->ahead == FR_AHEAD_ONE) return 1;
    if (g->ahead == FR_AHEAD_BATCH) return share;
    const double most = lead > 1 ? fmax(1, lead * (n_behind - 1)) : n_behind;
    return g->is_flush ? fmin(share, most) : most;
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

/* The stage, not behind s, that a node is in. */
static int stage_of(const struct fr__option *o, int s, int node)
{
    while (s > 0 && node < o->cuts[s - 1]) s--;
    return s;
}

/* Bytes of a micro-batch that a stage reads of each one before it, and the gradients that go back
 * to them: a value goes from where it is made to all that read it, its gradient from reader to
 * reader (fr_profile_links). */
struct traffic {
    double *values, *grads; /* [stage before it]; 0 between stages */
    int first;              /* of those it reads of */
    int *reader;            /* [node]: 1 + the last stage that reads it so far; 0: none */
    int last_back;          /* the last node whose gradient leaves the stage; -1: none does */
    int *depth; /* [stage]: stages on the longest way from it to the end, by which leads count */
};

/* Branches that run at the same time hold what their own depth asks for. A stage of a schedule that
 * does not count so holds a set for each stage behind it. */
static void measure_depth(const struct fr__chooser *c, const struct fr__option *o, int *depth)
{
    const fr_profile *p = o->size->task.profile;
    const bool by_links = c->d->methods[o->method].generator->has_lead;
    for (int s = 0; s < o->n_stages; s++) depth[s] = by_links ? 1 : o->n_stages - s;
    for (int s = o->n_stages - 1, i = p->n_nodes - 1; by_links && s > 0; s--)
        for (; i >= o->cuts[s - 1]; i--)
            for (int k = 0; k < p->nodes[i].n_inputs; k++) {
                const int from = p->nodes[i].inputs[k];
                if (from >= o->cuts[s - 1] || p->nodes[from].is_input) continue;
                int *to = &depth[stage_of(o, s, from)];
                if (*to < depth[s] + 1) *to = depth[s] + 1;
            }
}

static void read_values(const struct fr__option *o, int s, int begin, int end, struct traffic *to)
{
    const struct fr__task *t = &o->size->task;
    to->last_back = -1, to->first = s;
    for (int i = begin; i < end; i++) {
        const fr_profile_node *node = &t->profile->nodes[i];
        for (int k = 0; k < node->n_inputs; k++) {
            const int from = node->inputs[k], last = to->reader[from];
            if (from >= begin || t->profile->nodes[from].is_input || last == s + 1) continue;
            const double size = (double)t->profile->nodes[from].output_bytes;
            const int maker = stage_of(o, s, from);
            to->reader[from] = s + 1, to->values[maker] += size;
            if (maker < to->first) to->first = maker;
            if (!t->has_grad[from]) continue;
            to->grads[last ? last - 1 : maker] += size;
            if (from > to->last_back) to->last_back = from;
        }
    }
}

/* A mini-batch of what a stage reads, put on the links. Micro-batch i is on replica i % r. */
static void load_links(struct fr__chooser *c, const struct fr__option *o, int s, struct traffic *of)
{
    for (int from = of->first; from < s; from++) {
        const int r = o->replicas[from], own = o->replicas[s];
        const int first = fr__choose_first(c, o, from);
        int n_ways = r;
        while (n_ways % own != 0) n_ways += r;
        const double share = (double)o->size->n_micro / n_ways;
        for (int i = 0; i < n_ways && of->values[from] + of->grads[from] > 0; i++) {
            const int a = fr__choose_device(o, first + i % r);
            const int b = fr__choose_device(o, fr__choose_first(c, o, s) + i % own);
            fr_links_send(c->links, a, b, (size_t)(share * of->values[from]), 0);
            fr_links_send(c->links, b, a, (size_t)(share * of->grads[from]), 0);
        }
        of->values[from] = of->grads[from] = 0;
    }
}

/* Bytes, about, of a replica of a stage, by the counts of fr_spread_make: those of its weights with
 * the copies that its method predicts, and of the slots of its micro-batches. A stage that may
 * recompute holds less: its slots do not count. */
static double held_by(const struct fr__chooser *c, const struct fr__option *o, int s, int n_behind,
                      int u, int v)
{
    const struct fr__task *t = &o->size->task;
    const fr_plan_method *m = &c->d->methods[o->method];
    const int end = s < o->n_stages - 1 ? o->cuts[s] : t->profile->n_nodes, r = o->replicas[s];
    const double params = t->params[v] - t->params[u], slots = n_ahead(c, o, s, n_behind, 1);
    const fr_policy_context context = {.stage = s,
                                       .n_stages = o->n_stages,
                                       .lead = (int)ceil(slots) - 1,
                                       .n_micro = o->size->n_micro / r,
                                       .n_slots = (int)ceil(slots)};
    int ahead[FR_MAX_AHEAD];
    const double of_block = (double)fr_dtype_bytes(t->profile->precision) / sizeof(float);
    double copies = r > 1 ? 1.0 / r : 0, each = t->kept[v] - t->kept[u];
    if (m->policy && m->policy->after) copies += of_block * m->policy->after(&context, ahead);
    if (m->policy && m->policy->extrapolation == FR_EXTRAPOLATE_DRIFT) copies++;
    for (int i = s ? o->cuts[s - 1] : 0; i < end; i++) {
        const fr_profile_node *node = &t->profile->nodes[i];
        const bool leaves = t->last_use[i] < 0 || t->last_use[i] >= end;
        if (node->is_input) continue;
        if (leaves && node->kept_bytes < node->output_bytes) each += (double)node->output_bytes;
        if (m->generator->is_split && node->param_bytes > 0) each += (double)node->output_bytes;
    }
    return fr__task_fixed(t, u, v) + copies * params + (c->d->may_recompute ? 0 : slots * each);
}

/* Sums over the stages of each worker, and what all of them put on the links in a mini-batch.
 * Returns seconds of a mini-batch if the workers pass from chunk to chunk together. */
static double fill(struct fr__chooser *c, struct fr__option *o, struct worker *at, int n, int *ring,
                   struct traffic *moved)
{
    const struct fr__task *t = &o->size->task;
    const double beside = c->d->overhead_s + c->d->cluster->overhead_s;
    double together = 0, slowest = 0; /* of the stages of a chunk */
    look_at_devices(o, at, n);
    fr_links_reset(c->links);
    o->runs_ahead = false;
    for (int s = 0, u = 0; s < o->n_stages; s++) {
        int v = s < o->n_stages - 1 ? fr__task_unit(t, o->cuts[s]) : t->n;
        const int begin = s ? o->cuts[s - 1] : 0;
        const int end = s < o->n_stages - 1 ? o->cuts[s] : t->profile->n_nodes;
        const double work = fr__task_work(t, u, v);
        struct worker *w = &at[fr__choose_worker(c, o, s)];
        struct worker *before = s ? &at[fr__choose_worker(c, o, s - 1)] : w;
        if (s % n == 0) together += slowest, slowest = 0;
        slowest = fmax(slowest, (work / w->speed + 2 * beside) / o->replicas[s]);
        w->forward += t->forward[v] - t->forward[u];
        w->work += work, w->update += t->update[v] - t->update[u];
        w->beside += 2 * beside; /* forward and backward */
        w->held += held_by(c, o, s, moved->depth[s], u, v);
        w->params += t->params[v] - t->params[u];
        u = v;
        if (n == 1 || s == 0) continue;
        read_values(o, s, begin, end, moved);
        if (moved->last_back >= 0)
            w->back_to = fr__choose_worker(c, o, stage_of(o, s, moved->last_back));
        o->runs_ahead = o->runs_ahead || moved->last_back < 0;
        for (int k = moved->first; k < s; k++) w->held += moved->grads[k]; /* until they are sent */
        /* values of the stage before are on the longest way down; others were sent long ago */
        if (before != w)
            before->hop +=
                hop_time(c, o, before, o->replicas[s - 1], w, o->replicas[s], moved->values[s - 1]);
        load_links(c, o, s, moved);
    }
    for (int w = 0; w < n; w++) {
        double hidden = (at[w].work - at[w].forward) / at[w].speed;
        double sum = load_sum(c, o, &at[w], o->replicas[w], ring);
        at[w].sum = sum > hidden ? sum - hidden : 0;
    }
    return o->size->n_micro * (together + slowest);
}

/* A lower bound for every schedule. */
static double bound_of(const struct fr__chooser *c, const struct fr__option *o, struct worker *at,
                       int n)
{
    const fr_generator *g = c->d->methods[o->method].generator;
    /* Weight gradients on their own may be left for the time when the next forward is on its way.
     */
    const bool waits = g->is_flush && !g->is_split && o->chunks == 1;
    double busiest = fr__links_busiest(c->links);
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
    }
    return busiest;
}

/* About what it takes. */
static double estimate_of(const struct fr__chooser *c, const struct fr__option *o,
                          const struct worker *at, int n, double together)
{
    const fr_generator *g = c->d->methods[o->method].generator;
    double way = 0, longest = 0, flush = 0, back = 0, pace = together, sum = 0;
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
        pace = fmax(pace, share * back / n_ahead(c, o, w, n - w, fr__choose_lead(c, o->method)));
    }
    return pace + sum + (g->is_flush ? flush / o->chunks : 0);
}

static void judge(const struct fr__chooser *c, struct fr__option *o, struct worker *at, int n,
                  double together)
{
    o->bound = bound_of(c, o, at, n);
    o->estimate = fmax(estimate_of(c, o, at, n, together), o->bound);
    o->is_too_large = false;
    for (int w = 0; w < n; w++) o->is_too_large = o->is_too_large || at[w].held > at[w].memory;
}

fr_status fr__choose_weigh(struct fr__chooser *c, struct fr__option *o)
{
    int n = o->n_stages / o->chunks;
    struct worker *at = FR_NEW_ARRAY(struct worker, n);
    int *ring = FR_NEW_ARRAY(int, o->n_workers);
    struct traffic moved = {.reader = FR_NEW_ARRAY(int, o->size->task.profile->n_nodes),
                            .values = FR_NEW_ARRAY(double, 2 * o->n_stages),
                            .depth = FR_NEW_ARRAY(int, o->n_stages)};
    fr_status status = FR_OK;
    if (at && ring && moved.reader && moved.values && moved.depth) {
        moved.grads = moved.values + o->n_stages;
        measure_depth(c, o, moved.depth);
        judge(c, o, at, n, fill(c, o, at, n, ring, &moved));
    } else {
        status = fr__no_memory(c->ctx, (size_t)n * sizeof *at, "an estimate");
    }
    fr__free(at), fr__free(ring), fr__free(moved.reader), fr__free(moved.values);
    fr__free(moved.depth);
    return status;
}
