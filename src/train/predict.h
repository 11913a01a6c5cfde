/* predict.h -- how long a mini-batch will take, said before the first one: what the stages cost, by
 * measurement or by a profile, on the virtual clock. An emulated run goes by the same numbers. */
#ifndef FR_TRAIN_PREDICT_H
#define FR_TRAIN_PREDICT_H

#include <forerun/engine.h>
#include <forerun/sim.h>

struct fr_setup;

typedef struct fr_prediction {
    bool is_made;
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
} fr_prediction;

/* After fr__setup_pipeline. n_batches: that the virtual clock runs; 0: as many as the run has, up
 * to a few segments. n_events: of each worker, kept. */
fr_status fr__predict(struct fr_setup *s, int64_t n_batches, int n_events, fr_prediction *p);
/* Once more when the run is over, by the times that its stages then took: what is left of the error
 * is the clock's, the rest came of stages that were faster or slower than when they were measured.
 */
fr_status fr__predict_replay(struct fr_setup *s, const fr_engine *e);
void fr__prediction_free(fr_prediction *p); /* a zeroed one is fine */

/* The profile of the whole model: of a file, or measured on this machine with all of its cores
 * busy, or with n_workers of them, for `seconds` (0: as long as for a prediction). */
fr_status fr__predict_profile(struct fr_setup *s, int batch, int n_workers, double seconds,
                              fr_profile **out);
/* Does the profile describe this model, node by node? */
fr_status fr__predict_check_profile(struct fr_setup *s, const fr_profile *p, const char *path);

#endif
