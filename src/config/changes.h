/* changes.h -- what a resumed run has set otherwise than the run that it goes on from. */
#ifndef FR_CONFIG_CHANGES_H
#define FR_CONFIG_CHANGES_H

#include <forerun/io.h>

/* One warning that names the keys, with both values, that change numbers and are not in `conf` as
 * they are in the config saved at `path`; none if there is no such file. A file that cannot
 * be read is told, and no failure. */
void fr__log_changes(fr_ctx *ctx, const char *path, const fr_conf *conf);

#endif
