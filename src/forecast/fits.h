/* fits.h -- what of a run that is too large for its machines would fit. */
#ifndef FR_FORECAST_FITS_H
#define FR_FORECAST_FITS_H

#include "forecast/memory.h"

/* Processes of one machine, or of one of its control groups, that need more than is left there. */
typedef struct fr__shortage {
    int rank;      /* one of them */
    int n_ranks;   /* how many they are */
    bool is_group; /* the limit is the control group's */
    uint64_t need, room;
    uint64_t host; /* of need, what is not the workers' */
} fr__shortage;

/* "the run needs ... GB, ... are available; this would fit: ...". Layouts are tried by forecasts of
 * the engine: a few, none of which takes memory. Frees *e first, and sets it to NULL, where one
 * process is to be refused. */
void fr__fits_text(fr__setup *s, fr_engine **e, const fr__footprint *f,
                   const fr__shortage *shortage, char *text, size_t room);

#endif
