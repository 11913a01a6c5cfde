/* forecast.h -- forecast of the time of a mini-batch, before the first one: stage costs, measured
 * or from a profile, run on the virtual clock. An emulated run uses the same numbers. */
#ifndef FR_FORECAST_FORECAST_H
#define FR_FORECAST_FORECAST_H

#include <forerun/sim.h>

#include "config/setup.h"
#include "forecast/memory.h"

#define FR_MEASURE_S 2.0 /* longest time that a run spends spent on measuring its stages */
/* A late forecast is made after this many mini-batches of the run; the first does not count. */
enum { FR_LATE_BATCHES = 3 };

typedef struct fr__time_forecast {
    bool is_made;
    bool is_late;        /* not made: s_per_batch comes from the first mini-batches of the run */
    bool is_late_made;   /* they are done */
    bool is_measured;    /* on this machine now, not read from a file */
    double spent_s;      /* on measuring */
    fr_cluster *cluster; /* emulated; NULL: this machine */
    fr_cluster *here;    /* this machine, where replicas add gradients; or NULL */
    const fr_profile *profile; /* of a micro-batch, all nodes */
    fr_spread spread;          /* its timing drives an emulation */
    fr_sim_result result;      /* of the virtual clock */
    double s_per_batch;
    bool is_crowded; /* more workers than cores: the clock gives a lower bound only */
    double host_s;   /* computation of a mini-batch on this machine, over all workers */
    double scale;    /* emulation: wall-clock seconds per emulated second */
    /* s_per_batch with the stage times of the run. 0 if unknown: on a cluster, where stages take
     * their modelled times; with more workers than cores; without a run */
    double replayed_s;
} fr__time_forecast;

/* After fr__setup_pipeline. n_batches: mini-batches on the virtual clock; 0: those of the run, up
 * to a few segments. n_events: events kept per worker. */
fr_status fr__forecast_time(fr__setup *s, int64_t n_batches, int n_events, fr__time_forecast *f);
/* Repeats the forecast after the run with the stage times of the run. The remaining error is that
 * of the virtual clock; the rest of the error came from the measured stage times. */
fr_status fr__forecast_replay(fr__setup *s, const fr_engine *e, fr__time_forecast *f);
void fr__time_forecast_free(fr__time_forecast *f); /* a zeroed one is fine */

/* forecast_late.c: a forecast made from the first mini-batches of the run. */
/* Would measuring the stages delay the run too long? Decided by sizes alone, so the answer does not
 * depend on the speed of the machine. */
bool fr__forecast_takes_long(const fr__setup *s, const fr__footprint *f);
/* If the forecast is late: mini-batch n_done (from 1, of this session) took this time. */
void fr__forecast_by_run(fr__time_forecast *f, int64_t n_done, double seconds);
/* Forecast seconds per mini-batch, made before the run or early in it; NaN: none. */
double fr__forecast_s(const fr__time_forecast *f);

/* The profile of the whole model: from a file, or measured on this machine by n_workers workers at
 * once (0: on all cores) for `seconds` (0: as long as for a forecast). */
fr_status fr__run_profile(fr__setup *s, int batch, int n_workers, double seconds,
                          const fr_profile **out);
/* FLOP/s of matrix products of one worker, measured by as many workers at once. */
fr_status fr__run_peak(fr__setup *s, int n_workers, double *flops_per_s);
/* Does the profile describe this model, node by node? */
fr_status fr__profile_check(fr__setup *s, const fr_profile *p, const char *path);

#endif
