/* term.c -- the terminal. A status line is drawn by one write that begins with a carriage return
 * and ends by clearing to the end of the line, so that it neither flickers nor leaves remains. It
 * is one column shorter than the window, because a wrapped line could not be overwritten. */
#include "term.h"

#include "cli.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST_BAR = 6, MOST_BAR = 30 };
static const double calm_s = 0.05; /* between two status lines */

/* The status line that is shown; "" and "": none. */
static struct {
    pthread_mutex_t lock; /* guards all members, and the order of output to stderr */
    char head[256], tail[256];
    double share;
    double drawn_s; /* time of it, on a monotonic clock */
} status = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_set(const char *value) { return value && value[0]; }

/* A terminal with control sequences. */
static bool is_terminal(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) == 1 && is_set(kind) && strcmp(kind, "dumb") != 0;
}

bool term_has_colour(int fd)
{
    const char *force = getenv("CLICOLOR_FORCE");
    if (is_set(getenv("NO_COLOR"))) return false;
    return (is_set(force) && strcmp(force, "0") != 0) || is_terminal(fd);
}

int term_columns(int fd, int preset)
{
    struct winsize size;
    const char *said = getenv("COLUMNS");
    int n = said ? atoi(said) : 0;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return n > 0 ? n : preset;
}

bool term_has_status(void) { return is_terminal(STDERR_FILENO); }

/* --- the status line ------------------------------------------------------------------------- */

/* Text for a single write; what does not fit is cut off. */
typedef struct sheet {
    char text[1024];
    size_t n;
} sheet;

static void put(sheet *s, const char *text)
{
    size_t n = strlen(text), room = sizeof s->text - s->n;
    if (n > room) n = room;
    memcpy(s->text + s->n, text, n);
    s->n += n;
}

static bool has_utf8(void)
{
    const char *locale = getenv("LC_ALL");
    if (!is_set(locale)) locale = getenv("LC_CTYPE");
    if (!is_set(locale)) locale = getenv("LANG");
    return locale && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"));
}

static void put_bar(sheet *s, int width, double share)
{
    bool is_fine = has_utf8(), is_coloured = term_has_colour(STDERR_FILENO);
    int full = share >= 1 ? width : (int)(share * width);
    put(s, is_coloured ? " \033[32m" : " ");
    for (int i = 0; i < full; i++) put(s, is_fine ? "━" : "=");
    if (is_coloured) put(s, "\033[0;2m");
    for (int i = full; i < width; i++) put(s, is_fine ? "─" : "-");
    if (is_coloured) put(s, "\033[0m");
}

/* The functions below are called with the lock held. */
static void draw(void)
{
    sheet s = {.n = 0};
    char text[sizeof status.head + sizeof status.tail + 4];
    int columns = term_columns(STDERR_FILENO, 80) - 1;
    int n_head = (int)strlen(status.head), n_tail = (int)strlen(status.tail);
    int width = columns - n_head - n_tail - 3;
    if (width > MOST_BAR) width = MOST_BAR;
    put(&s, "\r");
    if (status.share >= 0 && width >= LEAST_BAR) {
        put(&s, status.head);
        put_bar(&s, width, status.share);
        put(&s, "  ");
        put(&s, status.tail);
    } else {
        snprintf(text, sizeof text, "%s%s%s", status.head, n_tail ? "  " : "", status.tail);
        if (columns > 0 && columns < (int)sizeof text) text[columns] = '\0';
        put(&s, text);
    }
    put(&s, "\033[K");
    fwrite(s.text, 1, s.n, stderr);
    fflush(stderr);
}

static bool is_drawn(void) { return status.head[0] || status.tail[0]; }

void term_status(const char *head, double share, const char *tail)
{
    if (!term_has_status()) return;
    pthread_mutex_lock(&status.lock);
    fr_escape(head, status.head, sizeof status.head);
    fr_escape(tail, status.tail, sizeof status.tail);
    status.share = share;
    if (cli_now_s() - status.drawn_s >= calm_s) {
        draw();
        status.drawn_s = cli_now_s();
    }
    pthread_mutex_unlock(&status.lock);
}

void term_end_status(void)
{
    pthread_mutex_lock(&status.lock);
    if (is_drawn()) fputs("\r\033[K", stderr);
    status.head[0] = status.tail[0] = '\0';
    pthread_mutex_unlock(&status.lock);
}

void term_say(term_mood mood, const char *format, ...)
{
    static const char *const colours[] = {[TERM_WARNING] = "\033[33m", [TERM_ERROR] = "\033[31m"};
    const char *colour = term_has_colour(STDERR_FILENO) ? colours[mood] : NULL;
    char raw[8192], line[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    fr_escape(raw, line, sizeof line); /* text that the command quotes: arguments, names */
    pthread_mutex_lock(&status.lock);
    fflush(stdout);
    /* a single write, because other processes may write there too */
    fprintf(stderr, "%s%s%s%s\n", is_drawn() ? "\r\033[K" : "", colour ? colour : "", line,
            colour ? "\033[0m" : "");
    if (is_drawn()) draw();
    pthread_mutex_unlock(&status.lock);
}
