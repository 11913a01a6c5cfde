/* parallel_checks.h -- checks of replicas and processes of a pipeline. A failure names the place in
 * the config (`parallel`) and a remedy. */
#ifndef FR_CONFIG_PARALLEL_CHECKS_H
#define FR_CONFIG_PARALLEL_CHECKS_H

#include "config/pipeline.h"

/* Before the schedule is made: does this generator support these replicas? */
fr_status fr__parallel_check_replicas(fr_conf *parallel, const fr__settings *t,
                                      const fr_generator *g, int n_stages);
/* After the schedule is made. Also fills p->sync. */
fr_status fr__parallel_check_sync(fr_conf *parallel, const fr__settings *t, fr__pipeline *p);
/* Do n_ranks processes have the same number of workers each, and can the transport connect them? */
fr_status fr__parallel_check_ranks(fr_conf *parallel, const fr__settings *t, const fr__pipeline *p,
                                   int n_ranks);
/* Warnings about settings that are allowed but look like mistakes. */
void fr__parallel_warn(fr_ctx *ctx, const fr__settings *t, const fr__pipeline *p);

/* All stages have the same number of replicas. */
bool fr__parallel_is_even(const fr_schedule *s);
/* "2 stages x 2 replicas", "2 stages with 3, 1 replicas", "4 stages". Returns text. */
const char *fr__parallel_text(const fr_schedule *s, char *text, size_t room);
/* Name of the transport that the engine uses. */
const char *fr__parallel_transport(const fr__settings *t, const fr_team *team);

#endif
