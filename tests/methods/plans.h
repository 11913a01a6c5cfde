/* plans.h -- for tests of execution plans: a context, and schedules in one line. */
#ifndef TESTS_METHODS_PLANS_H
#define TESTS_METHODS_PLANS_H

#include <forerun/exec_plan.h>

#include "support/test.h"

static fr_ctx *ctx;

static inline int set_up(void **state)
{
    (void)state;
    return (ctx = fr_ctx_create()) ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    fr_ctx_free(ctx);
    return 0;
}

static inline const fr_schedule *make_of(const char *name, const fr_schedule_desc *d)
{
    const fr_schedule *s;
    if (fr_schedule_create(ctx, fr_generator_find(name), d, &s) != FR_OK)
        fail_msg("%s", fr_ctx_error(ctx));
    return s;
}

static inline const fr_schedule *make(const char *name, int n_stages, int n_micro, int n_batches)
{
    return make_of(name, &(fr_schedule_desc){
                             .n_stages = n_stages, .n_micro = n_micro, .n_batches = n_batches});
}

#endif
