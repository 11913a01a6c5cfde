/* fits.c -- tries layouts that need less memory, one after the other: more micro-batches,
 * recomputed activations, both, more machines like this one. The engine compiles each as for a run,
 * so the numbers are those of such a run. */
#include "forecast/fits.h"

#include "io/units.h"

#include <stdio.h>
#include <string.h>

enum { MOST_MACHINES = 64, TRIES = 8, MOST_DOUBLINGS = 64 };

typedef struct search {
    fr__setup *s;
    const fr__footprint *footprint;
    const fr__shortage *shortage;
    char *text; /* remedies found */
    size_t room;
    uint64_t lasting; /* bytes that do not depend on the number of micro-batches */
    /* of the last trial: */
    int n_workers;
    fr_memory_use *use; /* [n_workers] */
} search;

static fr__brief brief(uint64_t bytes) { return fr__brief_bytes((double)bytes); }

static void add_remedy(search *q, const char *text)
{
    size_t n = strlen(q->text);
    snprintf(q->text + n, q->room - n, "%s%s", n ? "; " : "", text);
}

/* --- trials ----------------------------------------------------------------------------------- */

/* Fills n_workers and use; false: there is no such layout. */
static bool try_layout(search *q, const fr__settings *t)
{
    fr__setup trial = *q->s;
    trial.ctx = NULL; /* failures of trials are not reported */
    trial.team = NULL;
    trial.settings = *t;
    fr__free(q->use);
    q->use = NULL;
    fr_status status =
        fr__pipeline_open(NULL, trial.conf, t, trial.graph, trial.n_steps, 0, &trial.pipeline);
    if (status == FR_OK) {
        q->n_workers = trial.pipeline.schedule->n_workers;
        q->use = FR_NEW_ARRAY(fr_memory_use, q->n_workers);
        status = q->use ? fr__setup_forecast(&trial, q->use) : FR_NO_MEMORY;
        fr__pipeline_close(&trial.pipeline);
    }
    return status == FR_OK;
}

/* Bytes of the processes that are short of memory, with the workers of the trial. */
static uint64_t needed(const search *q)
{
    const fr_team *team = q->s->team;
    uint64_t sum = q->shortage->host;
    int n_each = q->n_workers / fr_team_size(team);
    for (int w = 0; w < q->n_workers; w++) {
        int rank = n_each > 0 ? w / n_each : 0;
        if (strcmp(fr_team_host(team, rank), fr_team_host(team, q->shortage->rank)) == 0)
            sum += q->use[w].total;
    }
    return sum;
}

/* Bytes with so many micro-batches; UINT64_MAX: there is no such layout. */
static uint64_t try_here(search *q, int64_t micro, bool recomputes)
{
    fr__settings t = q->s->settings;
    t.micro = micro;
    t.recomputes_all |= recomputes;
    return try_layout(q, &t) ? needed(q) : UINT64_MAX;
}

/* The next number of micro-batches above `micro` that the batch splits into; 0: none. */
static int64_t next_micro(const fr__settings *t, int64_t micro)
{
    int64_t least = fr__settings_least_micro(t);
    for (int64_t m = micro + 1; m <= t->batch; m++)
        if (t->batch % m == 0 && m % least == 0) return m;
    return 0;
}

/* Numbers of micro-batches to try, each about twice the one before; the last is the batch. */
static int list_micro(const fr__settings *t, int64_t list[MOST_DOUBLINGS])
{
    int n = 0;
    for (int64_t m = next_micro(t, t->micro); m; m = next_micro(t, 2 * m - 1)) list[n++] = m;
    if (n > 0 && list[n - 1] != t->batch) list[n++] = t->batch;
    return n;
}

/* The smallest number of micro-batches that fits, given the bytes with the present one. What does
 * not last is about inversely proportional to it, so the search starts near its end: each trial
 * compiles the model. */
static void try_micro(search *q, bool recomputes, uint64_t need)
{
    const fr__settings *t = &q->s->settings;
    const uint64_t room = q->shortage->room;
    char text[128];
    int64_t list[MOST_DOUBLINGS];
    int n = t->schedule_file ? 0 : list_micro(t, list), i = 0;
    if (n == 0) return;
    double passing = ((double)need - (double)q->lasting) * (double)t->micro;
    while (i < n - 1 && (double)q->lasting + passing / (double)list[i] > (double)room) i++;
    uint64_t found = try_here(q, list[i], recomputes), less;
    if (found > room) {
        if (i == n - 1 || try_here(q, t->batch, recomputes) > room) return;
        do found = try_here(q, list[++i], recomputes);
        while (found > room && i < n - 1);
    } else {
        for (; i > 0 && (less = try_here(q, list[i - 1], recomputes)) <= room; i--) found = less;
    }
    snprintf(text, sizeof text, "train.micro: %lld%s (%s)", (long long)list[i],
             recomputes ? " with parallel.recompute: true" : "", brief(found).text);
    add_remedy(q, text);
}

/* Returns the bytes with recomputed activations, whether they fit or not. */
static uint64_t try_recompute(search *q)
{
    char text[128];
    if (q->s->settings.recomputes_all) return UINT64_MAX;
    uint64_t need = try_here(q, q->s->settings.micro, true);
    if (need > q->shortage->room) return need;
    snprintf(text, sizeof text, "parallel.recompute: true (%s)", brief(need).text);
    add_remedy(q, text);
    return need;
}

/* --- more machines ---------------------------------------------------------------------------- */

/* Fills machines with workers in order; 0: a worker does not fit on any machine. */
static int count_machines(const search *q, uint64_t *largest)
{
    uint64_t host = q->shortage->host / (uint64_t)q->shortage->n_ranks, used = 0;
    int n = 1;
    *largest = 0;
    for (int w = 0; w < q->n_workers; w++) {
        uint64_t need = q->use[w].total + host;
        if (need > q->shortage->room) return 0;
        if (used + need > q->shortage->room) n++, used = 0;
        used += need;
        if (used > *largest) *largest = used;
    }
    return n;
}

static bool tell_machines(search *q, const char *layout)
{
    char text[192];
    uint64_t largest;
    int n = count_machines(q, &largest);
    if (n == 0) return false;
    snprintf(text, sizeof text,
             "%sone process for each worker (mpirun -n %d) on %d machines with as much memory "
             "(%s on the fullest)",
             layout, q->n_workers, n, brief(largest).text);
    add_remedy(q, text);
    return true;
}

/* The model cut into as many stages as machines, then into more. */
static void try_stages(search *q)
{
    fr__settings t = q->s->settings;
    char layout[96];
    if (t.schedule_file) return;
    uint64_t each = q->shortage->room > q->shortage->host ? q->shortage->room : 1;
    uint64_t n = (q->shortage->need + each - 1) / each;
    if (t.method->max_stages == 1) t.method = fr_method_find("1f1b");
    t.n_cuts = t.n_recompute = 0, t.n_replicas = 1, t.replicas = (const int[]){1};
    for (int i = 0; i < TRIES && n <= MOST_MACHINES; i++, n += 1 + n / 8) {
        t.stages = (int)n * t.chunks;
        int64_t filling = next_micro(&t, t.stages - 1); /* one micro-batch per stage */
        if (t.micro < t.stages) t.micro = filling ? filling : t.batch;
        snprintf(layout, sizeof layout,
                 "parallel: {method: %s, stages: %d} and train.micro: %lld, ", t.method->name,
                 t.stages, (long long)t.micro);
        if (try_layout(q, &t) && tell_machines(q, layout)) return;
    }
}

static void try_machines(search *q)
{
    fr__settings t = q->s->settings;
    if (t.cluster) return; /* an emulation is one process */
    if (q->n_workers > 1 && try_layout(q, &t) && tell_machines(q, "")) return;
    try_stages(q);
}

/* --- the text --------------------------------------------------------------------------------- */

static uint64_t lasting_bytes(const search *q, const fr_engine *e)
{
    uint64_t sum = q->shortage->host;
    for (int w = 0; w < fr_engine_n_workers(e); w++) {
        const fr_memory_use *u = fr_engine_predicted(e, w);
        if (fr_engine_rank_of(e, w) == fr_team_rank(q->s->team))
            sum += u->weights + u->grads + u->optimizer + u->buffers + u->cache;
    }
    return sum;
}

static void find_remedies(search *q)
{
    const fr__footprint *f = q->footprint;
    if (f->measuring > f->engine + f->host && f->engine + f->host <= q->shortage->room) {
        add_remedy(q, "a profile made elsewhere (parallel.profile) in place of measuring the model "
                      "on all cores at once");
        return;
    }
    if (q->lasting <= q->shortage->room) {
        try_micro(q, false, q->shortage->need);
        uint64_t need = try_recompute(q);
        if (!q->text[0]) try_micro(q, true, need);
    }
    if (!q->text[0]) try_machines(q);
}

void fr__fits_text(fr__setup *s, fr_engine **e, const fr__footprint *f,
                   const fr__shortage *shortage, char *text, size_t room)
{
    char remedies[768] = "", who[96] = "the run needs";
    unsigned long long n_least = shortage->need / (shortage->room > 0 ? shortage->room : 1) + 1;
    search q = {
        .s = s, .footprint = f, .shortage = shortage, .text = remedies, .room = sizeof remedies};
    q.n_workers = fr_engine_n_workers(*e);
    q.lasting = lasting_bytes(&q, *e);
    /* The plan of a refused run is freed to make room for the trials. With several processes all
     * free theirs together, later. */
    if (s->settings.is_memory_binding && fr_team_size(s->team) == 1) {
        fr_engine_free(*e);
        *e = NULL;
    }
    if (s->pipeline.schedule) find_remedies(&q);
    fr__free(q.use);
    if (fr_team_size(s->team) > 1)
        snprintf(who, sizeof who, "%s: %d processes need", fr_team_host(s->team, shortage->rank),
                 shortage->n_ranks);
    int n = snprintf(text, room, "%s %s, %s are available %s; ", who, brief(shortage->need).text,
                     brief(shortage->room).text,
                     shortage->is_group ? "in its control group" : "on this machine");
    if (n < 0 || (size_t)n >= room) return;
    if (remedies[0])
        snprintf(text + n, room - (size_t)n, "this would fit: %s", remedies);
    else
        snprintf(text + n, room - (size_t)n,
                 "no layout that was tried fits: it takes %llu machines with as much memory at "
                 "least, or a smaller model or batch",
                 n_least);
}
