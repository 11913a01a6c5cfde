/* forecast.h -- how long a mini-batch will take, said before the first one: what the stages cost,
 * by measurement or by a profile, on the virtual clock. An emulated run goes by the same numbers.
 */
#ifndef FR_FORECAST_FORECAST_H
#define FR_FORECAST_FORECAST_H

#include <forerun/sim.h>

#include "config/setup.h"
#include "forecast/memory.h"

#define FR_MEASURE_S 2.0 /* that a run waits at most for its stages to be measured */
/* A late forecast comes after so many mini-batches of the run; the first does not count. */
enum { FR_LATE_BATCHES = 3 };

typedef struct fr__time_forecast {
    bool is_made;
    bool is_late;         /* not made: s_per_batch comes from the first mini-batches of the run */
    bool is_late_made;    /* they are done */
    bool is_measured;     /* here and now, not by a file */
    double spent_s;       /* on measuring */
    fr_cluster *cluster;  /* emulated; NULL: this machine */
    fr_cluster *here;     /* this machine, where replicas add gradients; or NULL */
    fr_profile *profile;  /* of a micro-batch, all nodes */
    fr_spread spread;     /* its timing is what an emulation goes by */
    fr_sim_result result; /* of the virtual clock */
    double s_per_batch;
    bool is_crowded; /* more workers than cores, which take turns: the clock is only a bound */
    double host_s;   /* computation of a mini-batch on this machine, over all workers */
    double scale;    /* emulation: wall-clock seconds of an emulated one */
    /* s_per_batch with the times of the run; 0 where that cannot be told: on a cluster, whose
     * stages take what they should; with workers that take turns; without a run */
    double replayed_s;
} fr__time_forecast;

/* After fr__setup_pipeline. n_batches: that the virtual clock runs; 0: as many as the run has, up
 * to a few segments. n_events: of each worker, kept. */
fr_status fr__forecast_time(fr__setup *s, int64_t n_batches, int n_events, fr__time_forecast *f);
/* Once more when the run is over, by the times that its stages then took: what is left of the error
 * is the clock's, the rest came of stages that were faster or slower than when they were measured.
 */
fr_status fr__forecast_replay(fr__setup *s, const fr_engine *e, fr__time_forecast *f);
void fr__time_forecast_free(fr__time_forecast *f); /* a zeroed one is fine */

/* forecast_late.c: a run that tells itself how long its mini-batches take. */
/* Would a look at the stages hold the run up for longer than it is worth? By sizes alone, so the
 * answer does not depend on how fast the machine is. */
bool fr__forecast_takes_long(const fr__setup *s, const fr__footprint *f);
/* If the forecast is late: the run's mini-batch n_done (from 1, of this session) took so long. */
void fr__forecast_by_run(fr__time_forecast *f, int64_t n_done, double seconds);
/* Forecast seconds per mini-batch, made before the run or early in it; NaN: none. */
double fr__forecast_s(const fr__time_forecast *f);

/* The profile of the whole model: of a file, or measured on this machine with all of its cores
 * busy, or with n_workers of them, for `seconds` (0: as long as for a forecast). */
fr_status fr__run_profile(fr__setup *s, int batch, int n_workers, double seconds, fr_profile **out);
/* Does the profile describe this model, node by node? */
fr_status fr__profile_check(fr__setup *s, const fr_profile *p, const char *path);

#endif
