/* serve.h -- state shared by the parts of the live server: the progress and its readers.
 *
 * Three kinds of threads use it. The run stores its progress in the server and continues; it holds
 * the lock only to copy. The ticker wakes readers, at most ten times a second. The HTTP thread
 * answers them. Progress is a state, not a queue: a slow reader receives the newest state when it
 * can accept more, and older states are dropped. */
#ifndef FR_REPORT_SERVE_H
#define FR_REPORT_SERVE_H

#include <forerun/report.h>
#include <pthread.h>

struct fr_server {
    char url[320];
    bool is_loopback;
    int listen_fd; /* -1: passed to the HTTP part, or closed */
    struct fr_http *http;
    pthread_t ticker;
    bool has_ticker;
    pthread_cond_t changed;
    pthread_mutex_t lock;            /* guards all members below */
    double request_s;                /* limit of a request or an event */
    uint64_t skew_ns;                /* tests: added to the clock of connections */
    bool has_news;                   /* readers have not been woken for it */
    fr_progress progress;            /* newest; its texts are not kept */
    fr_progress evaluated;           /* newest with an evaluation: too rare to drop */
    int64_t n_progress, n_evaluated; /* counts of both */
    int64_t n_beats;                 /* heartbeats while there is no progress */
    char folder[4096];               /* "": not yet known */
    char over[32];                   /* how the run ended; "": still running */
    bool is_stopping;
    int n_readers;      /* readers of events */
    int n_untold;       /* readers that have not received the end of the run */
    double grace_s;     /* after the run, for readers to request the data */
    int n_expected;     /* readers at the end of the run; each loads the data once more */
    int n_loads;        /* loads of the data since the end */
    int n_being_loaded; /* loads in progress */
};

/* --- HTTP (serve_http.c) --------------------------------------------------------------------- */
/* Takes over s->listen_fd. */
fr_status fr__http_start(fr_ctx *ctx, fr_server *s);
/* Wake all readers of events. The lock is held. */
void fr__http_wake(fr_server *s);
/* End connections without progress for s->request_s. The lock is held. */
void fr__http_drop_slow(fr_server *s);
/* Call after setting s->is_stopping, when no thread calls fr__http_wake any more. */
void fr__http_stop(fr_server *s);

/* --- addresses (serve_address.c) ------------------------------------------------------------- */
/* Listen at `address`; set socket and URL. */
fr_status fr__address_listen(fr_ctx *ctx, const char *address, fr_server *s);
/* Is the Host of a request ("localhost:8080") a loopback name? */
bool fr__address_is_local_host(const char *host);

#endif
