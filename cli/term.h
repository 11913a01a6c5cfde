/* term.h -- properties of the terminal, and the status line that shows the progress of a verb.
 *
 * Colours and control characters are written to terminals only, subject to NO_COLOR,
 * CLICOLOR_FORCE and TERM=dumb. Other output to stderr appears above the status line, never inside
 * it. Any thread may call these functions. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdbool.h>

/* fd: of stdout or stderr. */
bool term_has_colour(int fd);
/* Width of the window; without a window $COLUMNS, or `preset`. */
int term_columns(int fd, int preset);

typedef enum term_mood { TERM_PLAIN, TERM_WARNING, TERM_ERROR } term_mood;

#if defined(__GNUC__)
#define TERM_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define TERM_PRINTF(fmt, first)
#endif

/* A line of its own on stderr. */
void term_say(term_mood mood, const char *format, ...) TERM_PRINTF(2, 3);

/* Whether stderr has a status line; a log file has none. */
bool term_has_status(void);
/* Show "head BAR tail" instead of the previous status line, cut to the window. share: full part of
 * the bar, below 0: no bar. Texts are ASCII. May be called often. */
void term_status(const char *head, double share, const char *tail);
void term_end_status(void); /* removes it, before other output to the terminal */

#endif
