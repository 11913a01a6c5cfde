/* run.h -- state and functions shared by the files of a training run.
 *
 * With a team every rank executes the same code and all make the engine calls together. Rank 0
 * alone has files and reports; all ranks agree on its result before they continue, so no rank waits
 * for one that has left. Decisions must depend only on values that are equal on all ranks. */
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
    fr_run_options o; /* its texts belong to the caller; not valid after opening */
    fr_team *team;    /* NULL: this process alone */
    bool leads;       /* this is rank 0, which has the files */
    bool has_folder;  /* else the run writes no files */
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
    fr__position at;               /* complete on rank 0; others have step and samples */
    int64_t first_step;            /* first step of this session */
    int64_t saved_step;            /* of the last checkpoint begun or resumed from; -1: none */
    bool has_saved;                /* in this session */
    bool is_stopped;               /* `stop` was set during the last step */
    bool is_changed;               /* the caller has set weights since the last checkpoint */
    bool has_ended_early;          /* train.stop.patience is exhausted */
    bool has_ended;                /* no more training possible */
    fr_status status;              /* the failure that ended it, or FR_OK */
    char checkpoint[FR_PATH];      /* the newest whole one; rank 0 */
    uint64_t start_ns;             /* start, on the clock of the engine */
    uint64_t wall_ns;              /* start, on the wall clock */
    int64_t started;               /* seconds since 1970, of this session */
    double stolen_s;               /* stolen time at the start (fr_run_result.stolen) */
    double earlier_s;              /* elapsed in earlier sessions */
    double timed_s, first_tenth_s; /* inside mini-batches, including waits for data */
    int64_t timed_samples, first_tenth_samples;
    /* the current call of the engine */
    int64_t n_calls;  /* calls so far in this session */
    int64_t call_end; /* number of updates at its end */
    uint64_t done_ns; /* end of the last mini-batch, or start of the call */
    bool has_last;    /* the last mini-batch of the call is complete */
    fr_progress last; /* report of the last mini-batch; at the end of a call, still to be written */
    fr_status report_says; /* failure to write a line or the checkpoint before it */
    fr_run_result result;
};

/* Everything up to the first mini-batch. The texts of r->o are still valid. */
fr_status fr__run_start(fr_run *r);
/* Trains up to `end` updates, or to the next evaluation or checkpoint. Sets is_stopped. */
fr_status fr__run_train(fr_run *r, int64_t end);
/* After the last mini-batch, or after the failure `status`. Returns the status of the run. */
fr_status fr__run_end(fr_run *r, fr_status status);

/* Fails unless all stages hold weights of the same version. */
fr_status fr__run_check_whole(fr_run *r);
double fr__run_elapsed_s(const fr_run *r);
bool fr__run_has_eval(const fr_run *r);
fr_status fr__run_evaluate(fr_run *r);

/* best.c: after an evaluation: is it the best so far, and may the run go on? n_steps is lowered if
 * not. */
fr_status fr__run_judge(fr_run *r, bool *is_best);
/* Before the start: there is something to judge by. After a resume: may the run go on? */
fr_status fr__run_check_best(fr_run *r);
fr_status fr__run_resume_best(fr_run *r);

/* FR_OK if all ranks pass FR_OK. A rank without a failure of its own returns FR_PEER, except after
 * a divergence or an interruption, which all ranks return. */
fr_status fr__run_agree(fr_run *r, fr_status mine);
/* Begins a checkpoint of the current step; it is not yet whole. */
fr_status fr__run_save(fr_run *r);
/* Waits until it is whole. */
fr_status fr__run_settle(fr_run *r);
/* Rank 0: waits for the saver; if the checkpoint is whole, stores its path in r->checkpoint. */
fr_status fr__run_take_checkpoint(fr_run *r);

#endif
