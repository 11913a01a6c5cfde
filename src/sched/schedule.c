/* schedule.c -- making, lowering and freeing a schedule. */
#include "sched/sched.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* stages x micro-batches: about 2 GB, and every index fits an int */
enum { MOST_COMPUTATIONS = 1 << 22 };

/* Internal data of a schedule besides its lists. */
typedef struct home {
    fr_schedule schedule;
    fr_arena arena;
    bool has_failed; /* an emit ran out of memory */
    int *first;      /* [n_workers + 1]: stages of a worker in `stages` */
    int *stages;     /* [n_stages, each as often as it has replicas], by worker, ascending */
    int n_full;      /* mini-batches until the pipeline has been full for one of them; 0: unknown */
    fr_schedule *steady; /* lists of that many, if the segment has fewer; otherwise NULL */
} home;

/* --- lists -------------------------------------------------------------------------------------*/

bool fr__list_push(fr_instr_list *l, fr_instr i)
{
    size_t n = (size_t)l->n, item = sizeof *l->at;
    bool is_full = n == 0 || (n >= 16 && (n & (n - 1)) == 0);
    if (is_full) {
        if (l->n > INT_MAX / 2) return false;
        size_t room = n == 0 ? 16 : 2 * n;
        fr_instr *at = fr__realloc(l->at, n * item, room * item);
        if (!at) return false;
        l->at = at;
    }
    l->at[l->n++] = i;
    return true;
}

void fr__list_replace(fr_instr_list *l, fr_instr_list by)
{
    fr__free(l->at);
    *l = by;
}

void fr__emit_transfer(fr_schedule *s, int worker, fr_action action, int stage, int micro, int peer)
{
    fr_instr i = {.action = (uint8_t)action, .stage = stage, .micro = micro, .peer = peer};
    home *h = s->arena;
    if (!fr__list_push(&s->lists[worker], i)) h->has_failed = true;
}

void fr__emit(fr_schedule *s, int worker, fr_action action, int stage, int micro)
{
    fr__emit_transfer(s, worker, action, stage, micro, -1);
}

bool fr__emit_failed(const fr_schedule *s) { return ((const home *)s->arena)->has_failed; }

const int *fr__stages_of(const fr_schedule *s, int worker, int *n)
{
    const home *h = s->arena;
    *n = h->first[worker + 1] - h->first[worker];
    return h->stages + h->first[worker];
}

int *fr__schedule_ints(fr_schedule *s, size_t n)
{
    return FR_ARENA_ARRAY(&((home *)s->arena)->arena, int, n);
}

/* --- making ------------------------------------------------------------------------------------*/

static fr_link *copy_links(fr_arena *a, int n, const fr_link *links)
{
    fr_link *copy = FR_ARENA_ARRAY(a, fr_link, n);
    if (copy && n > 0) memcpy(copy, links, (size_t)n * sizeof *copy);
    return copy;
}

static fr_link *chain(fr_arena *a, int n_stages, bool is_up)
{
    fr_link *links = FR_ARENA_ARRAY(a, fr_link, n_stages - 1);
    for (int k = 0; links && k + 1 < n_stages; k++)
        links[k] = is_up ? (fr_link){k, k + 1} : (fr_link){k + 1, k};
    return links;
}

static bool fill_links(fr_arena *a, const fr_schedule_desc *d, fr_schedule *s)
{
    s->n_forward = d->forward ? d->n_forward : d->n_stages - 1;
    s->forward = d->forward ? copy_links(a, d->n_forward, d->forward) : chain(a, d->n_stages, true);
    if (!s->forward) return false;
    if (s->is_forward_only) return true;
    s->n_backward = d->backward ? d->n_backward : d->n_stages - 1;
    s->backward =
        d->backward ? copy_links(a, d->n_backward, d->backward) : chain(a, d->n_stages, false);
    return s->backward != NULL;
}

static bool fill_placement(home *h, const fr_schedule_desc *d, const int *worker_of, fr_schedule *s)
{
    int n_held = 0;
    for (int k = 0; k < s->n_stages; k++) n_held += fr__replicas(d, k);
    s->worker_of = FR_ARENA_ARRAY(&h->arena, int, s->n_stages);
    s->replicas = FR_ARENA_ARRAY(&h->arena, int, s->n_stages);
    h->first = FR_ARENA_ARRAY(&h->arena, int, s->n_workers + 1);
    h->stages = FR_ARENA_ARRAY(&h->arena, int, n_held);
    int *next = FR_NEW_ARRAY(int, s->n_workers);
    bool is_ok = s->worker_of && s->replicas && h->first && h->stages && next;
    for (int k = 0; is_ok && k < s->n_stages; k++) {
        s->worker_of[k] = worker_of[k];
        s->replicas[k] = fr__replicas(d, k);
        for (int q = 0; q < s->replicas[k]; q++) h->first[worker_of[k] + q + 1]++;
    }
    for (int w = 0; is_ok && w < s->n_workers; w++) {
        h->first[w + 1] += h->first[w];
        next[w] = h->first[w];
    }
    for (int k = 0; is_ok && k < s->n_stages; k++)
        for (int q = 0; q < s->replicas[k]; q++) h->stages[next[worker_of[k] + q]++] = k;
    fr__free(next);
    return is_ok;
}

static bool fill(home *h, const fr_schedule_desc *d, const int *worker_of, fr_schedule *s)
{
    s->lists = FR_ARENA_ARRAY(&h->arena, fr_instr_list, s->n_workers);
    return s->lists && fill_placement(h, d, worker_of, s) && fill_links(&h->arena, d, s);
}

/* A link connects two stages, up or down according to its direction. The index detects
 * duplicates. */
static fr_status check_links(fr_ctx *ctx, const char *name, int n_stages, int n,
                             const fr_link *links, bool is_up)
{
    for (int l = 0; links && l < n; l++) {
        int from = links[l].from, to = links[l].to;
        if (from < 0 || to < 0 || from >= n_stages || to >= n_stages || from == to ||
            (from < to) != is_up)
            return fr_fail(ctx, FR_INVALID,
                           "schedule %s: %s link %d goes from stage %d to stage %d of %d; it must "
                           "go to a %s stage",
                           name, is_up ? "forward" : "backward", l, from, to, n_stages,
                           is_up ? "higher" : "lower");
    }
    return FR_OK;
}

static fr_status check_sizes(fr_ctx *ctx, const char *name, const fr_schedule_desc *d,
                             int n_workers, const int *worker_of)
{
    if (d->n_stages < 1 || d->n_micro < 1 || d->n_batches < 1)
        return fr_fail(ctx, FR_INVALID,
                       "schedule %s: %d stages, %d micro-batches, %d mini-batches; there must be "
                       "at least one of each",
                       name, d->n_stages, d->n_micro, d->n_batches);
    if ((int64_t)d->n_micro * d->n_batches > MOST_COMPUTATIONS / d->n_stages)
        return fr_fail(ctx, FR_INVALID,
                       "schedule %s: %d stages x %d micro-batches x %d mini-batches is more than "
                       "%d; make the segment shorter",
                       name, d->n_stages, d->n_micro, d->n_batches, (int)MOST_COMPUTATIONS);
    FR_TRY(fr__check_replicas(ctx, name, d, true));
    for (int k = 0; k < d->n_stages; k++)
        if (worker_of[k] < 0 || worker_of[k] > n_workers - fr__replicas(d, k))
            return fr_fail(ctx, FR_INVALID, "schedule %s: stage %d is on worker %d; there are %d",
                           name, k, worker_of[k] + fr__replicas(d, k) - 1, n_workers);
    FR_TRY(check_links(ctx, name, d->n_stages, d->n_forward, d->forward, true));
    return check_links(ctx, name, d->n_stages, d->n_backward, d->backward, false);
}

fr_status fr__schedule_new(fr_ctx *ctx, const char *name, const fr_schedule_desc *d, int n_workers,
                           const int *worker_of, bool is_forward_only, fr_schedule **out)
{
    *out = NULL;
    fr_schedule_desc full = *d;
    if (full.n_batches == 0) full.n_batches = 1;
    FR_TRY(check_sizes(ctx, name, &full, n_workers, worker_of));
    home *h = FR_NEW(home);
    if (!h) return fr__no_memory(ctx, sizeof *h, "a schedule");
    fr_schedule *s = &h->schedule;
    snprintf(s->name, sizeof s->name, "%s", d->name ? d->name : name);
    s->arena = h;
    s->n_stages = full.n_stages;
    s->n_workers = n_workers;
    s->n_micro = full.n_micro;
    s->n_batches = full.n_batches;
    s->is_forward_only = is_forward_only;
    if (!fill(h, &full, worker_of, s)) {
        fr_schedule_free(s);
        return fr__no_memory(ctx, (size_t)full.n_stages * sizeof(int), "a schedule's stages");
    }
    fr_status status = fr__check_together(ctx, s, s->replicas);
    if (status == FR_OK)
        *out = s;
    else
        fr_schedule_free(s);
    return status;
}

void fr_schedule_free(const fr_schedule *s)
{
    if (!s) return;
    home *h = s->arena;
    for (int w = 0; s->lists && w < s->n_workers; w++) fr__free(s->lists[w].at);
    fr_schedule_free(h->steady);
    fr__arena_fini(&h->arena);
    fr__free(h);
}

/* --- generating --------------------------------------------------------------------------------*/

/* A V has two stages per worker. */
static fr_status check_v(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *d)
{
    if (!g->is_v) return FR_OK;
    if (d->chunks != 2)
        return fr_fail(ctx, FR_INVALID,
                       "schedule %s gives each worker two stages, one on the way down and one on "
                       "the way up; %d chunks per worker need another schedule",
                       g->name, d->chunks);
    if (d->n_stages % 2 != 0)
        return fr_fail(ctx, FR_INVALID,
                       "schedule %s gives each worker two stages, so their number is even, not %d; "
                       "2 x workers: %d or %d",
                       g->name, d->n_stages, d->n_stages - 1, d->n_stages + 1);
    return FR_OK;
}

/* Does g support this description? */
static fr_status check_desc(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *d)
{
    FR_TRY(check_v(ctx, g, d));
    if (d->n_stages < 1 || d->chunks < 1 || d->n_stages % d->chunks != 0)
        return fr_fail(ctx, FR_INVALID,
                       "schedule %s: %d stages do not divide into chunks of %d per worker", g->name,
                       d->n_stages, d->chunks);
    if (d->chunks > 1 && !g->has_chunks)
        return fr_fail(ctx, FR_INVALID,
                       "schedule %s gives each worker one stage; %d chunks per worker need another "
                       "schedule, such as interleaved",
                       g->name, d->chunks);
    if (d->lead > 1 && !g->has_lead)
        return fr_fail(ctx, FR_INVALID,
                       "schedule %s has a fixed order; a lead of %d is for 1f1b and 1f1b-async",
                       g->name, d->lead);
    if (d->reorder && !g->has_reorder)
        return fr_fail(
            ctx, FR_INVALID,
            "schedule %s has no other order of fill and drain; reorder is for v-half and "
            "v-min",
            g->name);
    if (d->worker_of && !g->any_placement)
        return fr_fail(ctx, FR_INVALID, "schedule %s assigns stages to workers itself", g->name);
    if (g->is_flush && d->n_batches > 1)
        return fr_fail(
            ctx, FR_INVALID,
            "schedule %s flushes after each mini-batch: its segment is 1 mini-batch, not %d",
            g->name, d->n_batches);
    FR_TRY(fr__check_replicas(ctx, g->name, d, g->any_replicas));
    if (d->n_micro < 1 || !g->check) return FR_OK; /* sizes are checked later */
    fr_schedule_desc own = *d;
    own.n_micro /= fr__replicas(d, 0);
    const char *wrong = g->check(&own);
    return wrong ? fr_fail(ctx, FR_INVALID, "schedule %s: %s", g->name, wrong) : FR_OK;
}

/* Lists for workers without replicas, each over the share of one replica, then for all of them. */
static fr_status emit_lists(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *d,
                            const int *worker_of, int n_workers, fr_schedule **out)
{
    fr_schedule_desc plain = *d;
    plain.replicas = NULL;
    FR_TRY(fr__schedule_new(ctx, g->name, &plain, n_workers, worker_of, g->is_forward_only, out));
    if (d->replicas) FR_TRY(fr__check_together(ctx, *out, d->replicas));
    fr_schedule *s = *out;
    s->is_flush = g->is_flush;
    s->is_split = g->is_split;
    for (int w = 0; w < n_workers; w++) {
        int n;
        const int *own = fr__stages_of(s, w, &n);
        fr_schedule_desc share = *d;
        if (n > 0) share.n_micro /= fr__replicas(d, own[0]);
        if (!g->emit(&share, w, s))
            return fr__no_memory(ctx, (size_t)fr__n_micro(s) * sizeof(fr_instr), "a schedule");
    }
    return d->replicas ? fr__schedule_replicate(ctx, out, d->replicas, d->n_micro) : FR_OK;
}

static fr_status no_leads(fr_ctx *ctx, const fr_schedule *s)
{
    return fr__no_memory(ctx, (size_t)s->n_stages * sizeof(int), "the leads of a schedule");
}

/* As the generator defines it. A stage that is u updates behind runs its first u mini-batches on
 * the starting weights, and needs u more until these are no longer used. */
static fr_status fill_leads(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *d,
                            fr_schedule *s)
{
    home *h = s->arena;
    s->lead = fr__schedule_ints(s, (size_t)s->n_stages);
    if (!s->lead) return no_leads(ctx, s);
    for (int k = 0; k < s->n_stages; k++) {
        fr_schedule_desc share = *d;
        share.n_micro /= s->replicas[k];
        s->lead[k] = g->lead(&share, k);
        int behind = (s->lead[k] + share.n_micro - 1) / share.n_micro; /* updates */
        if (2 * behind + 3 > h->n_full) h->n_full = 2 * behind + 3;
    }
    return FR_OK;
}

/* A schedule that cannot be walked is not created; the segment itself is used instead. */
static fr_status make_steady(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *d,
                             const int *worker_of, int n_workers, fr_schedule *s)
{
    home *h = s->arena;
    fr_schedule_desc longer = *d;
    longer.n_batches = h->n_full;
    if (d->n_batches >= h->n_full || d->n_micro > MOST_COMPUTATIONS / d->n_stages / h->n_full)
        return FR_OK;
    FR_TRY(emit_lists(ctx, g, &longer, worker_of, n_workers, &h->steady));
    return fr__pass_steps(ctx, h->steady, false);
}

const fr_schedule *fr__schedule_steady(const fr_schedule *s, int *n_batches)
{
    const home *h = s->arena;
    const fr_schedule *of = h->steady ? h->steady : s;
    *n_batches = h->n_full > 0 && h->n_full < of->n_batches ? h->n_full : of->n_batches;
    return of;
}

/* The deepest of the stages at the other ends of a stage's links; at least `behind`. */
static int deepest(int n, const fr_link *links, bool is_up, const fr_schedule_desc *d, int stage,
                   const int *depth, int behind)
{
    for (int i = 0; links && i < n; i++) {
        const int own = is_up ? links[i].from : links[i].to;
        const int other = is_up ? links[i].to : links[i].from;
        if (own == stage && other > stage && other < d->n_stages && depth[other] > behind)
            behind = depth[other];
    }
    return behind;
}

/* By the links of values and by those of gradients: where two branches read one value, the gradient
 * goes from the later to the earlier one, whose backward waits for it. Links go from lower to
 * higher stages, and back; those that do not are refused later. */
static void measure_depth(const fr_schedule_desc *d, int *depth)
{
    for (int k = d->n_stages - 1; k >= 0; k--) {
        int behind = !d->forward && k + 1 < d->n_stages ? depth[k + 1] : 0;
        behind = deepest(d->n_forward, d->forward, true, d, k, depth, behind);
        behind = deepest(d->n_backward, d->backward, false, d, k, depth, behind);
        depth[k] = behind + fr__replicas(d, k);
    }
}

static fr_status generate(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *d,
                          const int *worker_of, int n_workers, fr_schedule **out)
{
    FR_TRY(emit_lists(ctx, g, d, worker_of, n_workers, out));
    if (g->lead && !g->is_flush) {
        FR_TRY(fill_leads(ctx, g, d, *out));
        FR_TRY(make_steady(ctx, g, d, worker_of, n_workers, *out));
    }
    return fr__schedule_lower(ctx, *out, d->must_reduce);
}

fr_status fr__schedule_create(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *desc,
                              fr_schedule **out)
{
    *out = NULL;
    fr_schedule_desc d = *desc;
    if (d.chunks == 0) d.chunks = g->is_v ? 2 : 1;
    if (d.n_batches == 0) d.n_batches = 1;
    FR_TRY(check_desc(ctx, g, &d));
    int n_workers = d.n_stages / d.chunks;
    int *worker_of = FR_NEW_ARRAY(int, 2 * (size_t)d.n_stages), *depth = worker_of + d.n_stages;
    if (!worker_of) return fr__no_memory(ctx, (size_t)d.n_stages * sizeof(int), "a schedule");
    measure_depth(&d, depth);
    d.depth = depth;
    for (int k = 0; k < d.n_stages; k++)
        worker_of[k] = d.worker_of ? d.worker_of[k] : fr_generator_worker(g, n_workers, k);
    if (d.worker_of) { /* as many as the highest number named, up to the number of stages */
        n_workers = 1;
        for (int k = 0; k < d.n_stages; k++)
            if (worker_of[k] >= n_workers && worker_of[k] < d.n_stages)
                n_workers = worker_of[k] + 1;
    }
    fr_status status = generate(ctx, g, &d, worker_of, n_workers, out);
    fr__free(worker_of);
    if (status != FR_OK) {
        fr_schedule_free(*out);
        *out = NULL;
    }
    return status;
}

fr_status fr_schedule_create(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *desc,
                             const fr_schedule **out)
{
    fr_schedule *s;
    fr_status status = fr__schedule_create(ctx, g, desc, &s);
    *out = s;
    return status;
}

/* Micro-batches in flight before a forward of the stage: at most, of those that count. */
static int measure_lead(const fr_schedule *s, int stage)
{
    int most = 0;
    for (int q = 0; q < s->replicas[stage]; q++) {
        const fr_instr_list *list = &s->lists[s->worker_of[stage] + q];
        for (int i = 0, in_flight = 0; i < list->n; i++) {
            const fr_instr *at = &list->at[i];
            if (at->stage != stage) continue;
            bool is_first = at->micro % s->n_micro < s->replicas[stage];
            if (at->action == FR_DO_F && (s->is_flush || is_first) && in_flight > most)
                most = in_flight;
            if (at->action == FR_DO_F) in_flight++;
            if (fr__makes_gradients(at->action)) in_flight--;
        }
    }
    return most;
}

static fr_status measure_leads(fr_ctx *ctx, fr_schedule *s)
{
    if (s->lead) return FR_OK;
    s->lead = fr__schedule_ints(s, (size_t)s->n_stages);
    for (int k = 0; s->lead && k < s->n_stages; k++) s->lead[k] = measure_lead(s, k);
    return s->lead ? FR_OK : no_leads(ctx, s);
}

fr_status fr__schedule_lower(fr_ctx *ctx, fr_schedule *s, bool must_reduce)
{
    fr_arena scratch = {0};
    fr__link_index x;
    fr_status status = fr__link_index_init(ctx, &scratch, s, &x);
    if (status == FR_OK) status = fr__pass_steps(ctx, s, must_reduce);
    if (status == FR_OK) status = fr__pass_transfers(ctx, s, &x);
    if (status == FR_OK) status = fr__pass_slots(ctx, s, &x);
    if (status == FR_OK) status = measure_leads(ctx, s);
    s->is_lowered = status == FR_OK;
    fr__arena_fini(&scratch);
    return status;
}

/* --- links -------------------------------------------------------------------------------------*/

int fr_schedule_find_link(int n, const fr_link *links, int from, int to)
{
    for (int l = 0; l < n; l++)
        if (links[l].from == from && links[l].to == to) return l;
    return -1;
}
