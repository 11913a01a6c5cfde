/* records.h -- mini-batches in flight: their data, losses and ledger rows. */
#ifndef FR_ENGINE_RECORDS_H
#define FR_ENGINE_RECORDS_H

#include "engine/links.h"

struct fr__record {
    int64_t batch; /* of the run */
    fr_feed feed;
    int n_open, n_unstepped; /* parts here that still read the data; that have not stepped */
    int n_missing;           /* processes that have not reported it finished */
    fr_tally *tally;         /* [micro] */
    double *part_sq;         /* [part]: of the whole gradient, or NaN */
    uint64_t done_ns;
    int *n_rows;         /* [part] */
    fr_ledger_row *rows; /* [part][2 * its micro-batches], side by side: 2 * n_stages * n_micro */
};

void fr__records_plan(fr_engine *e); /* how many */
fr_status fr__records_create(fr_engine *e);
void fr__records_begin(fr_engine *e);
/* With feed_lock held: wake the workers that wait for data or for a free record. */
void fr__feed_changed(fr_engine *e);
/* With feed_lock held: wait for such a change. False: the group is aborted. */
bool fr__feed_wait(fr__worker *w);
/* Whether to walk the segment that begins with mini-batch `base` of this call. */
bool fr__segment_enter(fr__worker *w, int64_t base);
/* First touch of a mini-batch by a worker. *is_dead: it is beyond the limit, compute nothing. */
fr_status fr__record_open(fr__worker *w, int64_t batch, bool *is_dead);
/* The part will not read the mini-batch's data again. */
void fr__record_close(fr__part *p, int64_t batch);
/* The part has made its update; norm_sq: of its gradient, NaN if unknown. */
void fr__record_stepped(fr__part *p, int64_t batch, double norm_sq);
/* A process has finished it. */
void fr__record_arrived(fr_engine *e, fr__record *r);
/* The next mini-batch to report, if it is finished; mark it reported. */
fr__record *fr__record_through(fr_engine *e);
void fr__record_reported(fr_engine *e);
void fr__record_row(fr__part *p, int64_t batch, int micro, char pass, const fr_view *v);
/* The version at the update goes into the rows of its backwards. */
void fr__record_live(fr__part *p, int64_t batch, int64_t version);
fr_ledger_row *fr__record_rows(const fr__record *r, const fr__part *p);
/* Compute no mini-batch that is not open yet. */
void fr__stop_soon(fr_engine *e);
void fr__lower_limit(fr_engine *e, int64_t batch);
void fr__diverge(fr_engine *e, int64_t batch, int micro, const char *what, double value);

#endif
