/* progress.h -- how far a training is: a status line on a terminal, now and then a line in a log.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <forerun/train.h>

typedef struct cli_progress {
    bool is_quiet;
    double began_s, shown_s; /* clock of the wall: the first call, the last line; 0: none yet */
    double sample_s; /* seconds a sample, smoothed; rates could not be: news come in bursts */
} cli_progress;

void progress_show(cli_progress *s, const fr_progress *p);
/* "1:02:03", "2:03", "0:03"; returns text. */
const char *progress_clock(double seconds, char *text, size_t room);

#endif
