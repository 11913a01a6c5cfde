/* serve.c -- the live server: the calls of the run, and the ticker that wakes readers. */
#include "report/serve.h"

#include "base/alloc.h"
#include "base/thread.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const uint64_t tick_ns = 100000000; /* between two events for a reader */
static const double beat_s = 15;           /* sending reveals a dead connection */
static const double request_s = 60;        /* limit for one request or one event */
static const double grace_s = 1;           /* after the run, for readers to request the data */
static const double patience_s = 10; /* for work that depends on the machine and the readers */

static struct timespec after(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);
    t.tv_sec += ns / 1000000000, t.tv_nsec = ns % 1000000000;
    return t;
}

/* --- the ticker ------------------------------------------------------------------------------ */

static void *tick(void *server)
{
    fr_server *s = server;
    fr__thread_name("serve");
    pthread_mutex_lock(&s->lock);
    while (!s->is_stopping) {
        struct timespec until = after(beat_s);
        while (!s->has_news && !s->is_stopping)
            if (pthread_cond_timedwait(&s->changed, &s->lock, &until) != 0)
                s->n_beats++, s->has_news = true;
        s->has_news = false;
        fr__http_wake(s);
        fr__http_drop_slow(s);
        pthread_mutex_unlock(&s->lock);
        fr__sleep_ns(tick_ns);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- start and stop -------------------------------------------------------------------------- */

static fr_status start_threads(fr_ctx *ctx, fr_server *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* leave signals to the run's threads */
    fr_status status = fr__http_start(ctx, s);
    int code = status == FR_OK ? pthread_create(&s->ticker, NULL, tick, s) : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->has_ticker = status == FR_OK && code == 0;
    if (code != 0)
        return fr_fail(ctx, FR_IO, "cannot start a thread for the live report: %s", strerror(code));
    return status;
}

fr_status fr_server_start(fr_ctx *ctx, const char *address, fr_server **out)
{
    *out = NULL;
    fr_server *s = FR_NEW(fr_server);
    if (!s) return fr__no_memory(ctx, sizeof *s, "live report");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&s->lock, NULL);
    s->listen_fd = -1;
    s->request_s = request_s;
    s->grace_s = grace_s;
    fr_status status = fr__address_listen(ctx, address, s);
    if (status == FR_OK) status = start_threads(ctx, s);
    if (status == FR_OK)
        *out = s;
    else
        fr_server_stop(s);
    return status;
}

const char *fr_server_url(const fr_server *s) { return s->url; }

/* Wait until each reader has received the end of the run and has loaded the data once more. */
static void wait_for_readers(fr_server *s)
{
    struct timespec late = after(patience_s);
    int code = 0;
    while (code == 0 && s->n_untold > 0)
        code = pthread_cond_timedwait(&s->changed, &s->lock, &late);
    struct timespec soon = after(s->grace_s);
    for (code = 0; code == 0 && s->n_loads < s->n_expected;)
        code = pthread_cond_timedwait(&s->changed, &s->lock, &soon);
    late = after(patience_s);
    for (code = 0; code == 0 && s->n_being_loaded > 0;)
        code = pthread_cond_timedwait(&s->changed, &s->lock, &late);
}

void fr_server_stop(fr_server *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    if (s->over[0]) wait_for_readers(s);
    s->is_stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->has_ticker) pthread_join(s->ticker, NULL);
    fr__http_stop(s);
    if (s->listen_fd >= 0) close(s->listen_fd);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    fr__free(s);
}

/* --- progress -------------------------------------------------------------------------------- */

/* The lock is held. */
static void announce(fr_server *s)
{
    s->has_news = true;
    pthread_cond_broadcast(&s->changed);
}

void fr_server_folder(fr_server *s, const char *folder)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    pthread_mutex_unlock(&s->lock);
}

void fr_server_progress(fr_server *s, const fr_progress *p)
{
    pthread_mutex_lock(&s->lock);
    s->progress = *p;
    s->n_progress++;
    if (!isnan(p->eval_loss)) s->evaluated = *p, s->n_evaluated++;
    announce(s);
    pthread_mutex_unlock(&s->lock);
}

void fr_server_over(fr_server *s, const char *status)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->over, sizeof s->over, "%s", status);
    s->n_expected = s->n_readers;
    announce(s);
    pthread_mutex_unlock(&s->lock);
}
