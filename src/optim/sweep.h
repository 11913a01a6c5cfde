/* sweep.h -- one loop, compiled for each kind of pass.
 *
 * An optimizer has one loop, an FR_INLINE function that receives the kind of pass as constants.
 * FR_SWEEP_KINDS calls it with the constants of a record, so a plain step in place has no overhead
 * for other kinds. */
#ifndef FR_OPTIM_SWEEP_H
#define FR_OPTIM_SWEEP_H

#include <forerun/optim.h>

#include "base/simd.h"

/* LOOP(in_place, has_drift, n_ahead) for the record s. */
#define FR_SWEEP_KINDS(s, LOOP)                     \
    do {                                            \
        bool fr_in_place = (s)->from == (s)->to;    \
        if ((s)->drift && fr_in_place)              \
            FR_SWEEP_AHEADS(s, LOOP, true, true);   \
        else if ((s)->drift)                        \
            FR_SWEEP_AHEADS(s, LOOP, false, true);  \
        else if (fr_in_place)                       \
            FR_SWEEP_AHEADS(s, LOOP, true, false);  \
        else                                        \
            FR_SWEEP_AHEADS(s, LOOP, false, false); \
    } while (0)

#define FR_SWEEP_AHEADS(s, LOOP, in_place, has_drift) \
    do {                                              \
        switch ((s)->n_ahead) {                       \
        case 0: LOOP(in_place, has_drift, 0); break;  \
        case 1: LOOP(in_place, has_drift, 1); break;  \
        default: LOOP(in_place, has_drift, 2); break; \
        }                                             \
    } while (0)

/* Predictions w - by * toward; toward: (n). Used by sgd, and with drift by all optimizers. */
void fr__predict_along(const fr_sweep *s, const float *toward);

#endif
