/* registry.c -- the list of weight policies, and the slots that several of them share. */
#include "weights/policy.h"

#include <string.h>

static const fr_policy *const policies[] = {
    &fr__policy_live,
    &fr__policy_stash,
    &fr__policy_double_buffer,
    &fr__policy_spectrain,
    &fr__policy_spectrain_v2,
    &fr__policy_xpipe,
    &fr__policy_pipeoptim,
    &fr__policy_decay_aware,
    &fr__policy_pipemare,
    &fr__policy_lookahead,
    NULL,
};

const fr_policy *const *fr_policy_list(void) { return policies; }

const fr_policy *fr_policy_find(const char *name)
{
    for (const fr_policy *const *p = policies; *p; p++)
        if (strcmp((*p)->name, name) == 0) return *p;
    return NULL;
}

void fr__want_newest(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)context, (void)micro;
    *want = (fr_want){.base = FR_NEWEST};
}

void fr__want_as_forward(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)context, (void)micro;
    *want = (fr_want){.base = FR_AS_FORWARD};
}

int fr__after_nothing(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    (void)context, (void)ahead;
    return 0;
}

void fr__want_gap(const fr_policy_context *context, int micro, fr_want *want)
{
    *want = (fr_want){.base = FR_NEWEST, .ahead = fr__gap(context, micro)};
}

int fr__after_gap(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    ahead[0] = fr__next_gap(context);
    return 1;
}
