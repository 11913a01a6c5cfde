/* serve.h -- what the parts of the live server share: what is shown, and who looks at it.
 *
 * Three kinds of threads meet here. The run leaves its news in the server and goes on; it takes the
 * lock for the time of a copy. The ticker wakes readers up, at most ten times a second. The HTTP
 * thread answers them. News are a state, not a queue: a reader that is slow gets the newest when it
 * can take more, and nobody keeps the others for it. */
#ifndef FR_REPORT_SERVE_H
#define FR_REPORT_SERVE_H

#include <forerun/report.h>
#include <pthread.h>

struct fr_server {
    char url[320];
    bool is_loopback;
    int listen_fd; /* -1: handed on to the HTTP part, or closed */
    struct fr_http *http;
    pthread_t ticker;
    bool has_ticker;
    pthread_cond_t changed;
    pthread_mutex_t lock;            /* guards all that follows */
    double request_s;                /* a request or an event that takes longer is given up */
    uint64_t skew_ns;                /* tests let so much time pass for connections */
    bool has_news;                   /* that readers have not been woken up for */
    fr_progress progress;            /* the newest; its texts are not kept */
    fr_progress evaluated;           /* the newest with an evaluation: too rare to be passed over */
    int64_t n_progress, n_evaluated; /* how many there were */
    int64_t n_beats;                 /* signs of life while there is nothing new */
    char folder[4096];               /* "": not known yet */
    char over[32];                   /* how the run ended; "": it goes on */
    bool is_stopping;
    int n_readers;      /* of events */
    int n_untold;       /* of them: to whom the end of the run was not sent yet */
    double grace_s;     /* after the run, for readers to ask for the data; then they get it */
    int n_expected;     /* readers when the run ended: they load the data once more */
    int n_loads;        /* times that the data were loaded since */
    int n_being_loaded; /* right now */
};

/* --- HTTP (serve_http.c) --------------------------------------------------------------------- */
/* Takes over s->listen_fd. */
fr_status fr__http_start(fr_ctx *ctx, fr_server *s);
/* All readers of events look for news. The lock is held. */
void fr__http_wake(fr_server *s);
/* Ends the connections that have not got on for s->request_s. The lock is held. */
void fr__http_drop_slow(fr_server *s);
/* After s->is_stopping was set, and nobody calls fr__http_wake any more. */
void fr__http_stop(fr_server *s);

/* --- addresses (serve_address.c) ------------------------------------------------------------- */
/* A socket that listens at `address`, and what to call it. */
fr_status fr__address_listen(fr_ctx *ctx, const char *address, fr_server *s);
/* Whether the Host of a request ("localhost:8080") is this machine's name for itself. */
bool fr__address_is_local_host(const char *host);

#endif
