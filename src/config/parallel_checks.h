/* parallel_checks.h -- replicas and processes of a pipeline: what of them goes together. All fail
 * with the place in the config (`parallel`) and a remedy. */
#ifndef FR_CONFIG_PARALLEL_CHECKS_H
#define FR_CONFIG_PARALLEL_CHECKS_H

#include "config/pipeline.h"

/* Before there is a schedule: does this generator take such replicas? */
fr_status fr__parallel_check_replicas(fr_conf *parallel, const fr__settings *t,
                                      const fr_generator *g, int n_stages);
/* After it. Also fills p->sync. */
fr_status fr__parallel_check_sync(fr_conf *parallel, const fr__settings *t, fr__pipeline *p);
/* Do the workers spread evenly over so many processes, and can they reach each other? */
fr_status fr__parallel_check_ranks(fr_conf *parallel, const fr__settings *t, const fr__pipeline *p,
                                   int n_ranks);
/* What is allowed but may not be what was meant. */
void fr__parallel_warn(fr_ctx *ctx, const fr__settings *t, const fr__pipeline *p);

/* Every stage has as many replicas as the others. */
bool fr__parallel_is_even(const fr_schedule *s);
/* "2 stages x 2 replicas", "2 stages with 3, 1 replicas", "4 stages". Returns text. */
const char *fr__parallel_text(const fr_schedule *s, char *text, size_t room);
/* Name of the transport that the engine takes. */
const char *fr__parallel_transport(const fr__settings *t, const fr_team *team);

#endif
