/* changes.h -- the settings that a resumed run has changed. */
#ifndef FR_CONFIG_CHANGES_H
#define FR_CONFIG_CHANGES_H

#include <forerun/io.h>

/* Compares `conf` with the config saved at `path` and logs one warning with the keys that differ
 * and change numbers, and both values. Does nothing if there is no such file. A file that cannot be
 * read is a warning, not a failure. */
void fr__log_changes(fr_ctx *ctx, const char *path, const fr_conf *conf);

#endif
