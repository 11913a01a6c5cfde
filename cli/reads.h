/* reads.h -- which weights each pass of a schedule reads under a policy, without running it: what
 * the ledger of such a run would say. */
#ifndef CLI_READS_H
#define CLI_READS_H

#include "cli.h"

typedef struct reads reads;

/* Fails where the policy cannot be used with the schedule. Both stay the caller's, and must live as
 * long. */
fr_status reads_create(fr_ctx *ctx, const fr_schedule *s, const fr_policy *policy, reads **out);
void reads_free(reads *r);
/* Instruction i of worker w, a forward or a backward: updates contained in the weights that it
 * reads, and updates predicted on top (pipemare's backward: walked back). */
void reads_at(const reads *r, int w, int i, int *version, int *ahead);
int reads_n_copies(const reads *r, int stage); /* of the weights, that a worker holds */
/* "3", "3+2", "3-2": for drawings. */
const char *reads_legend(const reads *r);
void reads_text(void *user, int w, int i, char *text, size_t room);

/* Sets d->n_batches unless it is: one with a flush; else as many mini-batches as fill the pipeline,
 * drain it, and leave one between. How far worker 0 runs ahead is seen on a first try. Refuses
 * schedules too large to be shown. */
fr_status reads_batches(fr_ctx *ctx, const fr_generator *g, fr_schedule_desc *d);

#endif
