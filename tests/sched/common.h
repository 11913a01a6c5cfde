/* common.h -- schedules for tests: created by name, timed, inspected. */
#ifndef FR_TEST_SCHED_COMMON_H
#define FR_TEST_SCHED_COMMON_H

#include "sched/sched.h"

#include <math.h>

#include "support/check.h"

static fr_ctx *ctx; /* context of the program; created by main */

/* Does the generator take v stages per worker? */
static inline bool takes_chunks(const fr_generator *g, int v)
{
    return g->is_v ? v == 2 : v == 1 || g->has_chunks;
}

static inline fr_schedule *make_desc(const char *name, fr_schedule_desc d)
{
    const fr_generator *g = fr_generator_find(name);
    fr_schedule *s = NULL;
    assert_non_null(g);
    assert_ok(ctx, fr__schedule_create(ctx, g, &d, &s));
    return s;
}

static inline fr_schedule *make(const char *name, int stages, int chunks, int micro, int batches)
{
    return make_desc(
        name, (fr_schedule_desc){
                  .n_stages = stages, .chunks = chunks, .n_micro = micro, .n_batches = batches});
}

static inline fr_clock timed(const fr_schedule *s, const fr_costs *costs)
{
    fr_clock c;
    assert_ok(ctx, fr_schedule_clock(ctx, s, costs, &c));
    return c;
}

/* The worker of an instruction; for updates, which all replicas run, the first. */
static inline int worker_doing(const fr_schedule *s, fr_action action, int stage, int micro)
{
    bool is_update = action == FR_DO_REDUCE || action == FR_DO_STEP;
    return is_update ? s->worker_of[stage] : fr_schedule_worker(s, stage, micro);
}

/* Position of the instruction in the worker's list; fails if it is missing or duplicated. peer -1:
 * any. */
static inline int place_on(const fr_schedule *s, int worker, fr_action action, int stage, int micro,
                           int peer)
{
    const fr_instr_list *l = &s->lists[worker];
    int found = -1;
    for (int i = 0; i < l->n; i++) {
        const fr_instr *at = &l->at[i];
        if (at->action != action || at->stage != stage || at->micro != micro ||
            (peer >= 0 && at->peer != peer))
            continue;
        if (found >= 0) fail_msg("%d of %d on stage %d twice", (int)action, micro, stage);
        found = i;
    }
    if (found < 0) fail_msg("%d of %d on stage %d missing", (int)action, micro, stage);
    return found;
}

static inline int place_of(const fr_schedule *s, fr_action action, int stage, int micro, int peer)
{
    return place_on(s, worker_doing(s, action, stage, micro), action, stage, micro, peer);
}

static inline double start_of(const fr_schedule *s, const fr_clock *c, fr_action action, int stage,
                              int micro)
{
    return c->start[worker_doing(s, action, stage, micro)][place_of(s, action, stage, micro, -1)];
}

static inline double end_of(const fr_schedule *s, const fr_clock *c, fr_action action, int stage,
                            int micro)
{
    return c->end[worker_doing(s, action, stage, micro)][place_of(s, action, stage, micro, -1)];
}

static inline void assert_near(double found, double expected, const char *what)
{
    if (!(fabs(found - expected) <= 1e-9 * (1 + fabs(expected))))
        fail_msg("%s: %.12g, expected %.12g", what, found, expected);
}

/* A worker's computations as text: "F0 F1 B0". Stages are shown if a worker has several. */
static inline const char *computations(const fr_schedule *s, int w, char *text, size_t size)
{
    static const char letters[] = "FBIW";
    size_t n = 0;
    bool has_several = s->n_stages > s->n_workers;
    text[0] = '\0';
    for (int i = 0; i < s->lists[w].n; i++) {
        const fr_instr *at = &s->lists[w].at[i];
        if (at->action > FR_DO_W) continue;
        n += (size_t)snprintf(text + n, size - n, "%s", n ? " " : "");
        if (has_several) n += (size_t)snprintf(text + n, size - n, "%d", at->stage);
        n += (size_t)snprintf(text + n, size - n, "%c%d", letters[at->action], at->micro);
    }
    return text;
}

#endif
