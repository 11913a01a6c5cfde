/* run.h -- what the parts of a training run share: its start, its mini-batches, its end.
 *
 * With a team every rank goes through the same code. Engine calls are made together; rank 0 alone
 * has files and reports, and what it meets there all ranks agree on before they go on, so that no
 * rank ever waits for one that has left. What a rank decides by must be the same on all. */
#ifndef FR_RUN_RUN_H
#define FR_RUN_RUN_H

#include "checkpoint/saver.h"
#include "forecast/forecast.h"
#include "run/dump.h"
#include "run/feeder.h"
#include "runlog/ledger.h"
#include "runlog/metrics.h"

struct fr_run {
    fr_ctx *ctx;
    fr_run_options o; /* its texts are the caller's, and gone when the run is open */
    fr_team *team;    /* NULL: this process alone */
    bool leads;       /* rank 0: the one with the files */
    bool has_folder;  /* else the run writes nothing by itself */
    fr__setup setup;
    fr__time_forecast forecast;
    fr__footprint footprint;
    fr_engine *engine;
    fr__folder folder;
    fr__metrics metrics;
    fr__ledger ledger;
    fr__feeder feeder;
    fr__saver saver;
    fr__dump dump;
    fr__position at;               /* rank 0; others know step and samples */
    int64_t first_step;            /* where this session began */
    int64_t saved_step;            /* of the last checkpoint begun or resumed from; -1: none */
    bool has_saved;                /* in this session */
    bool is_stopped;               /* `stop` was set during the last step */
    bool is_changed;               /* the caller has set weights since the last checkpoint */
    bool has_ended;                /* nothing more can be trained: */
    fr_status status;              /* the failure that ended it, or FR_OK */
    char checkpoint[FR_PATH];      /* the last one that is whole; rank 0 */
    uint64_t start_ns;             /* clock of the engine */
    uint64_t wall_ns;              /* the same moment on the wall's */
    int64_t started;               /* seconds since 1970, of this session */
    double stolen_s;               /* and of what the machine's host has given to others */
    double earlier_s;              /* elapsed in earlier sessions */
    double timed_s, first_tenth_s; /* inside mini-batches, waiting for data included */
    int64_t timed_samples, first_tenth_samples;
    /* the call of the engine that is under way */
    int64_t n_calls;       /* so far, in this session */
    int64_t call_end;      /* updates done when it has come through */
    uint64_t done_ns;      /* when the last mini-batch was through, or the call began */
    bool has_last;         /* the mini-batch that ends the call is through */
    fr_progress last;      /* report of the last mini-batch; of that one, yet to be written */
    fr_status report_says; /* a line, or the checkpoint before it, could not be written */
    fr_run_result result;
};

/* Everything up to the first mini-batch. r->o still has its texts. */
fr_status fr__run_start(fr_run *r);
/* Up to `end` updates, or to the evaluation or checkpoint before. Sets is_stopped. */
fr_status fr__run_train(fr_run *r, int64_t end);
/* After the last mini-batch, or a failure, `status`: what the run returns. */
fr_status fr__run_end(fr_run *r, fr_status status);

/* Fails unless all stages hold weights of one version, which may be read. */
fr_status fr__run_check_whole(fr_run *r);
double fr__run_elapsed_s(const fr_run *r);
bool fr__run_has_eval(const fr_run *r);
fr_status fr__run_evaluate(fr_run *r);

/* FR_OK if all ranks say so. A rank on which nothing failed itself has lost the one that failed,
 * unless that is for everybody to know by its name (a divergence). */
fr_status fr__run_agree(fr_run *r, fr_status mine);
/* A checkpoint of where the run is: begun, not yet whole. */
fr_status fr__run_save(fr_run *r);
/* It is now. */
fr_status fr__run_settle(fr_run *r);
/* Rank 0: what the saver was begun with has ended. *path: the checkpoint, if it is whole. */
fr_status fr__run_take_checkpoint(fr_run *r);

#endif
