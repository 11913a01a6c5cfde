/* random.h -- random schedules: any generator, any size, any links. */
#ifndef FR_TEST_SCHED_RANDOM_H
#define FR_TEST_SCHED_RANDOM_H

#include "sched/common.h"

static uint64_t random_state = 1;

static inline uint64_t random_word(void) /* splitmix64 */
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static inline int random_int(int from, int to) /* both included */
{
    return from + (int)(random_word() % (uint64_t)(to - from + 1));
}
static inline double random_unit(void) { return (double)(random_word() >> 11) * 0x1p-53; }

typedef struct random_case {
    const fr_generator *g;
    fr_schedule_desc d;
    fr_link forward[128], backward[128];
    int worker_of[32], replicas[32];
} random_case;

/* The chain, plus longer links if there is room: a model with skip connections. */
static inline int random_links(int n_stages, bool is_up, fr_link *links)
{
    int n = 0;
    for (int k = 0; k + 1 < n_stages; k++) links[n++] = (fr_link){k, k + 1};
    for (int tries = random_int(0, 2 * n_stages); tries > 0 && n_stages > 2; tries--) {
        int from = random_int(0, n_stages - 3), to = random_int(from + 2, n_stages - 1);
        if (fr_schedule_find_link(n, links, from, to) < 0) links[n++] = (fr_link){from, to};
    }
    for (int l = 0; !is_up && l < n; l++) links[l] = (fr_link){links[l].to, links[l].from};
    return n;
}

/* One to three replicas: the same for all workers, or random for each. The number of micro-batches
 * becomes a multiple of them. */
static inline void random_replicas(random_case *c, int n_workers)
{
    fr_schedule_desc *d = &c->d;
    bool is_mixed = c->g->any_replicas && random_int(0, 2) > 0;
    int of_worker[32], all = random_int(1, 3), times = all;
    for (int w = 0; w < n_workers; w++) of_worker[w] = is_mixed ? random_int(1, 3) : all;
    if (is_mixed) times = random_int(0, 1) ? 6 : 1;
    for (int w = 0; w < n_workers && times == 1; w++) /* few: only one of two and three */
        if (of_worker[w] > 1) of_worker[w] = all > 1 ? all : 2;
    if (is_mixed && times == 1) times = all > 1 ? all : 2;
    for (int k = 0; k < d->n_stages; k++)
        c->replicas[k] =
            of_worker[d->worker_of ? d->worker_of[k] : fr_generator_worker(c->g, n_workers, k)];
    d->n_micro *= times;
    d->replicas = c->replicas;
}

/* Random sizes that the generator accepts. */
static inline void random_case_init(random_case *c, int most_workers, int most_micro)
{
    int n = 0;
    while (fr_generator_list()[n]) n++;
    *c = (random_case){.g = fr_generator_list()[random_int(0, n - 1)]};
    fr_schedule_desc *d = &c->d;
    int p = random_int(1, most_workers);
    d->chunks = c->g->is_v ? 2 : c->g->has_chunks ? random_int(1, 4) : 1;
    d->n_stages = p * d->chunks;
    d->n_micro = random_int(1, most_micro);
    if (c->g->check) d->n_micro = p * ((d->n_micro + p - 1) / p); /* groups of p */
    if (c->g->check && c->g->check(d)) d->n_micro = 2 * p;
    d->n_batches = c->g->is_flush ? 1 : random_int(1, 8);
    d->must_reduce = random_int(0, 2) == 0;
    if (random_int(0, 1)) {
        d->n_forward = random_links(d->n_stages, true, c->forward);
        d->n_backward = random_links(d->n_stages, false, c->backward);
        d->forward = c->forward, d->backward = c->backward;
    }
    if (c->g->any_placement && random_int(0, 1)) {
        int shift = random_int(0, p - 1); /* every worker has a stage */
        for (int k = 0; k < d->n_stages; k++)
            c->worker_of[k] = k < p ? (k + shift) % p : random_int(0, p - 1);
        d->worker_of = c->worker_of;
    }
    if (random_int(0, 1)) random_replicas(c, p);
}

static inline const char *random_case_text(const random_case *c)
{
    static char text[400];
    int n = snprintf(text, sizeof text, "%s stages=%d chunks=%d micro=%d batches=%d%s%s%s%s",
                     c->g->name, c->d.n_stages, c->d.chunks, c->d.n_micro, c->d.n_batches,
                     c->d.must_reduce ? " reduce" : "", c->d.forward ? " skips" : "",
                     c->d.worker_of ? " placed" : "", c->d.replicas ? " replicas" : "");
    for (int k = 0; c->d.replicas && k < c->d.n_stages; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %d", c->replicas[k]);
    return text;
}

#endif
