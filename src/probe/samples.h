/* samples.h -- repeated measurements, any number of them in bounded memory, and their mean.
 *
 * Each is a row of seconds that begins with the total. All rows count, except those that took
 * several times as long as the others because the process was stopped. So the mean includes
 * occasional disturbances, as a run does; a mean of the middle rows would be too fast. The parts
 * add up to the total, which medians would not. */
#ifndef FR_PROBE_SAMPLES_H
#define FR_PROBE_SAMPLES_H

#include "base/arena.h"

/* The largest number of rows, and of bytes of all rows for a large model; beyond it two rows are
 * merged. */
enum { FR_SAMPLES = 128, FR_LEAST_SAMPLES = 4, FR_SAMPLES_BYTES = 16 << 20 };

typedef struct fr_samples {
    int n_values;        /* of a row */
    int room;            /* rows, an even number */
    int n;               /* rows that are complete */
    int n_each, n_added; /* measurements in a row; in the row that is not complete */
    double *rows;        /* [room][n_values]: sums of n_each */
    int *order;          /* [room] */
} fr_samples;

/* The arena owns the memory. False: out of memory. */
bool fr__samples_init(fr_samples *s, fr_arena *a, int n_values);
void fr__samples_add(fr_samples *s, const double *values);
/* mean: [n_values]. After at least one. */
void fr__samples_mean(fr_samples *s, double *mean);

#endif
