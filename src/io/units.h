/* units.h -- amounts with units: "16 GB", "24 GiB", "10 Gbit/s", "5 us", "11.76 TFLOP/s". A plain
 * number is in bytes, bytes/s, seconds or FLOP/s. */
#ifndef FR_IO_UNITS_H
#define FR_IO_UNITS_H

#include <forerun/io.h>

typedef enum fr__amount_unit {
    FR_UNIT_BYTES,
    FR_UNIT_RATE,
    FR_UNIT_SECONDS,
    FR_UNIT_FLOPS
} fr__amount_unit;

/* False: not an amount of this kind. */
bool fr__amount_scan(const char *text, fr__amount_unit unit, double *value);
/* The shortest text that fr__amount_scan reads back to the same double. */
void fr__amount_format(double value, fr__amount_unit unit, char text[48]);
/* Read a key of a config; if absent, preset. */
fr_status fr__conf_amount(fr_conf *c, const char *key, fr__amount_unit unit, double preset,
                          double min, double max, double *out);

/* "3.92 k", "33.6 MB": three digits, in the largest unit below the value. */
typedef struct fr__brief {
    char text[24];
} fr__brief;
fr__brief fr__brief_count(double n);
fr__brief fr__brief_bytes(double bytes);

#endif
