/* fits.h -- layouts that would fit where a run is too large for its machines. */
#ifndef FR_FORECAST_FITS_H
#define FR_FORECAST_FITS_H

#include "forecast/memory.h"

/* Processes of one machine, or of one control group, that need more memory than is available there.
 */
typedef struct fr__shortage {
    int rank;      /* one of them */
    int n_ranks;   /* their number */
    bool is_group; /* the limit is the control group's */
    uint64_t need, room;
    uint64_t host; /* the part of need outside the workers */
} fr__shortage;

/* "the run needs ... GB, ... are available; this would fit: ...". Tries a few layouts by forecasts
 * of the engine, which allocate no tensors. If a run of one process is to be refused, frees *e
 * first and sets it to NULL. */
void fr__fits_text(fr__setup *s, fr_engine **e, const fr__footprint *f,
                   const fr__shortage *shortage, char *text, size_t room);

#endif
