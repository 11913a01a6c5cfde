/* sweep.h -- one loop, compiled for each kind of pass.
 *
 * An optimizer has one loop, an FR_INLINE function that receives the kind of pass as constants.
 * FR_SWEEP_KINDS calls it with the constants of a record, so a plain step in place has no overhead
 * for other kinds. */
#ifndef FR_OPTIM_SWEEP_H
#define FR_OPTIM_SWEEP_H

#include <forerun/optim.h>

#include "base/bf16.h"

/* LOOP(in_place, has_drift, is_bf16, n_ahead) for the record s. */
#define FR_SWEEP_KINDS(s, LOOP)                            \
    do {                                                   \
        bool fr_in_place = (s)->from == (s)->to;           \
        if ((s)->ahead_is_bf16 && (s)->drift)              \
            FR_SWEEP_AHEADS(s, LOOP, true, true, true);    \
        else if ((s)->ahead_is_bf16)                       \
            FR_SWEEP_AHEADS(s, LOOP, true, false, true);   \
        else if ((s)->drift && fr_in_place)                \
            FR_SWEEP_AHEADS(s, LOOP, true, true, false);   \
        else if ((s)->drift)                               \
            FR_SWEEP_AHEADS(s, LOOP, false, true, false);  \
        else if (fr_in_place)                              \
            FR_SWEEP_AHEADS(s, LOOP, true, false, false);  \
        else                                               \
            FR_SWEEP_AHEADS(s, LOOP, false, false, false); \
    } while (0)

#define FR_SWEEP_AHEADS(s, LOOP, in_place, has_drift, is_bf16) \
    do {                                                       \
        switch ((s)->n_ahead) {                                \
        case 0: LOOP(in_place, has_drift, is_bf16, 0); break;  \
        case 1: LOOP(in_place, has_drift, is_bf16, 1); break;  \
        default: LOOP(in_place, has_drift, is_bf16, 2); break; \
        }                                                      \
    } while (0)

/* LOOP(is_bf16, n_ahead): predictions alone. */
#define FR_PREDICT_KINDS(s, LOOP)                         \
    do {                                                  \
        if ((s)->n_ahead == 1 && (s)->ahead_is_bf16)      \
            LOOP(true, 1);                                \
        else if ((s)->n_ahead == 1)                       \
            LOOP(false, 1);                               \
        else if ((s)->n_ahead == 2 && (s)->ahead_is_bf16) \
            LOOP(true, 2);                                \
        else if ((s)->n_ahead == 2)                       \
            LOOP(false, 2);                               \
    } while (0)

/* Element i of a prediction. An image has the bits of the weights, whatever the direction is. */
FR_INLINE void fr__put_ahead(bool is_bf16, void *restrict to, size_t i, float now, float by,
                             float toward)
{
    const float ahead = now - by * toward;
    if (is_bf16)
        ((uint16_t *)to)[i] = fr__bf16_of(by == 0 ? now : ahead);
    else
        ((float *)to)[i] = ahead;
}

/* Predictions w - by * toward; toward: (n). Used by sgd, and with drift by all optimizers. */
void fr__predict_along(const fr_sweep *s, const float *toward);

#endif
