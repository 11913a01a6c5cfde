/* progress.h -- progress of a training: a status line on a terminal, occasional lines in a log. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <forerun/train.h>

typedef struct cli_progress {
    bool is_quiet;
    double began_s, shown_s; /* wall clock: the first call, the last line; 0: none yet */
    double sample_s; /* seconds per sample, smoothed; reports arrive in bursts, so rates cannot be
                        averaged */
} cli_progress;

void progress_show(cli_progress *s, const fr_progress *p);
/* "1:02:03", "2:03", "0:03"; returns text. */
const char *progress_clock(double seconds, char *text, size_t room);

#endif
