/* term.h -- what is known of the terminal, and the one line at its foot that tells how far a verb
 * is.
 *
 * Colours and control characters go to terminals only: NO_COLOR, CLICOLOR_FORCE and TERM=dumb are
 * heeded. Whatever is said on stderr meanwhile comes above the status line and never into it. Any
 * thread. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdbool.h>

/* fd: of stdout or stderr. */
bool term_has_colour(int fd);
/* Width of the window; without one $COLUMNS, or `preset`. */
int term_columns(int fd, int preset);

typedef enum term_mood { TERM_PLAIN, TERM_WARNING, TERM_ERROR } term_mood;

#if defined(__GNUC__)
#define TERM_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define TERM_PRINTF(fmt, first)
#endif

/* A line of its own on stderr. */
void term_say(term_mood mood, const char *format, ...) TERM_PRINTF(2, 3);

/* Whether stderr has a status line; a log, where each line stays, has none. */
bool term_has_status(void);
/* Shows "head BAR tail" in place of the one before, as much as the window has room for; share: of
 * the bar that is full, below 0: no bar. Texts are ASCII. May be called often. */
void term_status(const char *head, double share, const char *tail);
void term_end_status(void); /* removes it: before something else is written to the terminal */

#endif
