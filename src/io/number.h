/* number.h -- numbers to text and back, the same in every locale. */
#ifndef FR_IO_NUMBER_H
#define FR_IO_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The shortest decimal text that reads back to the same double, or "nan", "inf", "-inf"; returns
 * its length. */
size_t fr__real_format(double value, char text[32]);

/* Decimal text only, without blanks, hexadecimal digits or names; the whole text must be a number.
 * Integers must fit. */
bool fr__int_scan(const char *text, int64_t *value);
bool fr__real_scan(const char *text, double *value);

/* True if no value is infinite or NaN. */
bool fr__are_finite(const float *values, size_t n);

#endif
