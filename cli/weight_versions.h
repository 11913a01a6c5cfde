/* weight_versions.h -- the weights that each pass of a schedule reads under a policy, without
 * running it: the entries of the ledger of such a run. */
#ifndef CLI_WEIGHT_VERSIONS_H
#define CLI_WEIGHT_VERSIONS_H

#include "cli.h"

typedef struct weight_versions weight_versions;

/* Fails if the policy cannot be used with the schedule. The caller owns both and keeps them until
 * versions_free. options may be NULL. */
fr_status versions_create(fr_ctx *ctx, const fr_schedule *s, const fr_policy *policy,
                          const fr_policy_options *options, weight_versions **out);
void versions_free(weight_versions *r);
/* Instruction i of worker w, a forward or a backward: updates contained in the weights that it
 * reads, and updates predicted on top (pipemare's backward: walked back). */
void versions_at(const weight_versions *r, int w, int i, int *version, int *ahead);
int versions_n_copies(const weight_versions *r, int stage); /* of the weights, per worker */
const fr_policy_context *versions_context(const weight_versions *r, int stage);
/* "3", "3+2", "3-2": for drawings. */
const char *versions_legend(const weight_versions *r);
void versions_text(void *user, int w, int i, char *text, size_t room);

/* Sets d->n_batches if it is 0: to 1 with a flush, otherwise to the mini-batches that fill the
 * pipeline and drain it, plus one. A first schedule shows how far worker 0 runs ahead. Refuses
 * schedules too large to print. */
fr_status versions_set_batches(fr_ctx *ctx, const fr_generator *g, fr_schedule_desc *d);

#endif
