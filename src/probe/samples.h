/* samples.h -- repeated measurements of the same, any number of them in bounded memory, and their
 * mean.
 *
 * Each is a row of seconds that begins with that of the whole. All count but those that were
 * stopped altogether, and took several times as long as the others. So a machine that is disturbed
 * now and then is seen as it is, which a mean of the middle ones would make faster than a run will
 * find it; and the parts add up to the whole, as medians would not. */
#ifndef FR_PROBE_SAMPLES_H
#define FR_PROBE_SAMPLES_H

#include "base/arena.h"

/* Rows kept apart at most, and bytes of all rows of a large model; then two become one. */
enum { FR_SAMPLES = 128, FR_LEAST_SAMPLES = 4, FR_SAMPLES_BYTES = 16 << 20 };

typedef struct fr_samples {
    int n_values;        /* of a row */
    int room;            /* rows, an even number */
    int n;               /* rows that are complete */
    int n_each, n_added; /* measurements in a row; in the row that is not complete */
    double *rows;        /* [room][n_values]: sums of n_each */
    int *order;          /* [room] */
} fr_samples;

/* Memory is the arena's. False: there is none. */
bool fr__samples_init(fr_samples *s, fr_arena *a, int n_values);
void fr__samples_add(fr_samples *s, const double *values);
/* mean: [n_values]. After at least one. */
void fr__samples_mean(fr_samples *s, double *mean);

#endif
