/* serve_http.c -- HTTP of the live server, by libmicrohttpd: one thread, three paths.
 *
 *     /            the page
 *     /data.json   its data, made from the run's folder (docs/report.md)
 *     /events      server-sent events: progress while the reader stays connected
 *
 * A reader of events that is up to date is suspended until the ticker wakes it. Requests change
 * nothing; anything except a GET of these paths is refused. */
#include "report/serve.h"

#ifndef FR_HAVE_MICROHTTPD

fr_status fr__http_start(fr_ctx *ctx, fr_server *s)
{
    (void)s;
    return fr_fail(ctx, FR_UNSUPPORTED,
                   "this build cannot show runs live: it was built without libmicrohttpd (Debian: "
                   "libmicrohttpd-dev); rebuild with it, or open report.html after the run");
}

void fr__http_wake(fr_server *s) { (void)s; }

void fr__http_drop_slow(fr_server *s) { (void)s; }

void fr__http_stop(fr_server *s) { (void)s; }

#else

#include "base/alloc.h"
#include "base/thread.h"
#include "io/json.h"

#include <microhttpd.h>

#include <math.h>
#include <string.h>
#include <sys/socket.h>

enum { MAX_CONNECTIONS = 128, IDLE_S = 30 };
static const uint64_t data_ns = 1000000000; /* the data are remade at most once in this time */

/* A connection. libmicrohttpd ends silent connections. One that sends or receives a byte now and
 * then could keep its place forever, so each request and each event has a time limit. */
typedef struct guest {
    int fd;
    uint64_t since_ns; /* last progress: connected, answered, or took an event */
    struct guest *next, **here;
} guest;

/* A reader of /events. */
typedef struct reader {
    fr_server *server;
    struct MHD_Connection *connection;
    struct reader *next, **here; /* in the list of all */
    bool may_tell;               /* may send progress: once per wake */
    bool is_suspended, has_over,
        is_told; /* has_over: end of run is in text; is_told: sent, or reader left */
    int64_t n_progress, n_evaluated, n_beats; /* sent so far, by the server's counts */
    char text[640];                           /* the event being sent */
    size_t n, at;
} reader;

struct fr_http {
    struct MHD_Daemon *daemon;
    reader *readers; /* under the server's lock */
    guest *guests;   /* likewise */
    /* used by the HTTP thread only: */
    struct MHD_Response *data; /* of /data.json, when last made; or NULL */
    uint64_t made_ns;
    bool is_whole; /* made after the end of the run */
};

/* --- answers --------------------------------------------------------------------------------- */

/* The page contains its script and style and loads only its data. */
static const char policy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static bool add_headers(struct MHD_Response *r, const char *type)
{
    const char *const headers[][2] = {
        {"Content-Type", type},
        {"Cache-Control", "no-store"},
        {"Content-Security-Policy", policy},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (MHD_add_response_header(r, headers[i][0], headers[i][1]) != MHD_YES) return false;
    return true;
}

/* Consumes the response; NULL, or a response that cannot be sent, ends the connection. */
static enum MHD_Result answer(struct MHD_Connection *c, unsigned code, const char *type,
                              struct MHD_Response *r)
{
    if (!r) return MHD_NO;
    enum MHD_Result result =
        add_headers(r, type) ? MHD_queue_response(c, code, r) : (enum MHD_Result)MHD_NO;
    MHD_destroy_response(r);
    return result;
}

static struct MHD_Response *copy_text(const char *text)
{
    union {
        const char *in;
        void *out;
    } copied = {text}; /* MHD_RESPMEM_MUST_COPY: read only */
    return MHD_create_response_from_buffer(strlen(text), copied.out, MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned code, const char *text)
{
    struct MHD_Response *r = copy_text(text);
    if (r && code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(r, "Allow", "GET, HEAD");
    return answer(c, code, "text/plain; charset=utf-8", r);
}

static enum MHD_Result answer_page(fr_server *s, struct MHD_Connection *c)
{
    (void)s;
    size_t bytes;
    union {
        const char *in;
        void *out;
    } page = {fr_report_live_page(&bytes)};
    return answer(c, MHD_HTTP_OK, "text/html; charset=utf-8",
                  MHD_create_response_from_buffer(bytes, page.out, MHD_RESPMEM_PERSISTENT));
}

/* --- data ------------------------------------------------------------------------------------ */

static void free_text(void *text) { fr_report_free_text(text); }

/* Before the run has a folder, the data say only that it starts. */
static struct MHD_Response *make_empty(void)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"format\": 1, \"forerun\": \"%s\", \"title\": \"Forerun: a run that starts\", "
             "\"live\": true, \"runs\": [], \"compare\": null}",
             fr_version());
    return copy_text(text);
}

static struct MHD_Response *make_data(const char *folder, bool is_live)
{
    fr_report_options o = {.live = is_live};
    char *text;
    size_t bytes;
    if (fr_report_data(NULL, 1, &folder, &o, &text, &bytes) != FR_OK) return NULL;
    struct MHD_Response *r =
        MHD_create_response_from_buffer_with_free_callback(bytes, text, free_text);
    if (!r) fr_report_free_text(text);
    return r;
}

static enum MHD_Result answer_data(fr_server *s, struct MHD_Connection *c)
{
    static const char type[] = "application/json";
    struct fr_http *h = s->http;
    char folder[sizeof s->folder];
    pthread_mutex_lock(&s->lock);
    memcpy(folder, s->folder, sizeof folder);
    bool is_over = s->over[0] != '\0';
    pthread_mutex_unlock(&s->lock);
    if (!folder[0]) return answer(c, MHD_HTTP_OK, type, make_empty());
    if (h->data && h->is_whole == is_over && fr__now_ns() - h->made_ns < data_ns)
        return MHD_queue_response(c, MHD_HTTP_OK, h->data);
    if (h->data) MHD_destroy_response(h->data);
    h->data = make_data(folder, !is_over);
    h->made_ns = fr__now_ns(), h->is_whole = is_over;
    if (h->data && add_headers(h->data, type)) return MHD_queue_response(c, MHD_HTTP_OK, h->data);
    return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, fr_ctx_error(NULL));
}

/* --- events ---------------------------------------------------------------------------------- */

static void write_progress(fr__json *j, const fr_progress *p)
{
    fr__json_object(j, NULL);
    fr__json_int(j, "step", p->step);
    fr__json_int(j, "n_steps", p->n_steps);
    fr__json_int(j, "samples", p->samples);
    fr__json_real(j, "loss", p->loss);
    fr__json_real(j, "lr", p->lr);
    fr__json_real(j, "samples_per_s", p->samples_per_s);
    fr__json_real(j, "elapsed_s", p->elapsed_s);
    fr__json_real(j, "left_s", p->left_s);
    if (!isnan(p->grad_norm)) fr__json_real(j, "grad_norm", p->grad_norm);
    if (!isnan(p->eval_loss)) fr__json_real(j, "eval_loss", p->eval_loss);
    if (!isnan(p->eval_accuracy)) fr__json_real(j, "eval_accuracy", p->eval_accuracy);
    if (!isnan(p->eval_mae)) fr__json_real(j, "eval_mae", p->eval_mae);
    if (!isnan(p->eval_perplexity)) fr__json_real(j, "eval_perplexity", p->eval_perplexity);
    fr__json_end(j);
}

/* progress NULL: the run is over. */
static void write_event(reader *r, const fr_progress *progress)
{
    fr__json j;
    const size_t room = sizeof r->text;
    r->n = (size_t)snprintf(r->text, room, "event: %s\ndata: ", progress ? "progress" : "over");
    fr__json_to_buffer(&j, r->text + r->n, room - r->n - 2, 0);
    if (progress) {
        write_progress(&j, progress);
    } else {
        fr__json_object(&j, NULL);
        fr__json_text(&j, "status", r->server->over);
        fr__json_end(&j);
    }
    r->n =
        fr__json_finish(&j) ? r->n + j.bytes : 0; /* fits: numbers and names have limited sizes */
    memcpy(r->text + r->n, "\n\n", 2);
    r->n += 2;
}

/* Prepare the next event; false if there is none. The lock is held. */
static bool next_event(reader *r)
{
    const fr_server *s = r->server;
    r->at = r->n = 0;
    if (r->n_evaluated < s->n_evaluated && s->evaluated.step != s->progress.step) {
        write_event(r, &s->evaluated);
    } else if (r->n_progress < s->n_progress && (r->may_tell || s->over[0])) {
        write_event(r, &s->progress);
        r->n_progress = s->n_progress;
        r->may_tell = false; /* later progress waits for the next wake */
    } else if (s->over[0] && !r->has_over) {
        write_event(r, NULL);
        r->has_over = true;
    } else if (r->n_beats < s->n_beats) {
        memcpy(r->text, ":\n\n", r->n = 3); /* a comment */
    }
    r->n_evaluated = s->n_evaluated;
    r->n_beats = s->n_beats;
    return r->n > 0;
}

/* --- guests ---------------------------------------------------------------------------------- */

static guest *guest_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i ? i->socket_context : NULL;
}

static uint64_t now_for_guests(const fr_server *s) { return fr__now_ns() + s->skew_ns; }

static void gets_on(const fr_server *s, struct MHD_Connection *c)
{
    guest *g = guest_of(c);
    if (g) g->since_ns = now_for_guests(s);
}

/* Without memory for a guest, the connection is served without a time limit. */
static void on_connection(void *server, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    fr_server *s = server;
    struct fr_http *h = s->http;
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    guest *g = *context;
    pthread_mutex_lock(&s->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED && i && (g = FR_NEW(guest))) {
        *g = (guest){i->connect_fd, now_for_guests(s), h->guests, &h->guests};
        if (g->next) g->next->here = &g->next;
        h->guests = *context = g;
    } else if (what == MHD_CONNECTION_NOTIFY_CLOSED && g) { /* its socket is still open */
        *g->here = g->next;
        if (g->next) g->next->here = g->here;
        fr__free(g);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Shut the sockets down; the HTTP thread then closes them. */
void fr__http_drop_slow(fr_server *s)
{
    uint64_t now = now_for_guests(s);
    for (guest *g = s->http->guests; g; g = g->next)
        if ((double)(now - g->since_ns) * 1e-9 > s->request_s) shutdown(g->fd, SHUT_RDWR);
}

/* The lock is held. */
static void note_told(reader *r)
{
    if (r->is_told) return;
    r->is_told = true;
    r->server->n_untold--;
    pthread_cond_broadcast(&r->server->changed);
}

static ssize_t read_events(void *user, uint64_t position, char *to, size_t room)
{
    (void)position;
    reader *r = user;
    fr_server *s = r->server;
    ssize_t result = 0;
    pthread_mutex_lock(&s->lock);
    gets_on(s, r->connection);
    if (s->is_stopping || (r->at == r->n && r->has_over)) {
        if (r->has_over) note_told(r); /* the library asks for more, so the event was sent */
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (r->at < r->n || next_event(r)) {
        size_t n = r->n - r->at < room ? r->n - r->at : room;
        memcpy(to, r->text + r->at, n);
        r->at += n;
        result = (ssize_t)n;
    } else {
        MHD_suspend_connection(r->connection);
        r->is_suspended = true;
    }
    pthread_mutex_unlock(&s->lock);
    return result;
}

static void free_reader(void *user)
{
    reader *r = user;
    fr_server *s = r->server;
    pthread_mutex_lock(&s->lock);
    *r->here = r->next;
    if (r->next) r->next->here = r->here;
    note_told(r);
    s->n_readers--;
    pthread_mutex_unlock(&s->lock);
    fr__free(r);
}

static enum MHD_Result answer_events(fr_server *s, struct MHD_Connection *c)
{
    reader *r = FR_NEW(reader);
    if (!r) return MHD_NO;
    r->server = s, r->connection = c, r->may_tell = true;
    r->n = (size_t)snprintf(r->text, sizeof r->text, "retry: 1000\n\n");
    pthread_mutex_lock(&s->lock);
    r->n_evaluated = s->n_evaluated, r->n_beats = s->n_beats; /* /data.json has the earlier ones */
    r->next = s->http->readers, r->here = &s->http->readers;
    if (r->next) r->next->here = &r->next;
    s->http->readers = r;
    s->n_readers++, s->n_untold++;
    pthread_mutex_unlock(&s->lock);
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, sizeof r->text, read_events, r, free_reader);
    if (!response) free_reader(r);
    return answer(c, MHD_HTTP_OK, "text/event-stream", response);
}

void fr__http_wake(fr_server *s)
{
    for (reader *r = s->http->readers; r; r = r->next) {
        if (r->is_suspended) MHD_resume_connection(r->connection);
        r->is_suspended = false;
        r->may_tell = true;
    }
}

/* --- requests -------------------------------------------------------------------------------- */

typedef struct route {
    const char *path;
    enum MHD_Result (*answer)(fr_server *s, struct MHD_Connection *c);
} route;

static const route routes[] = {
    {"/", answer_page}, {"/data.json", answer_data}, {"/events", answer_events}, {NULL, NULL}};

static void count_load(fr_server *s, int change)
{
    pthread_mutex_lock(&s->lock);
    s->n_being_loaded += change;
    if (change < 0 && s->over[0]) s->n_loads++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* *state: NULL at the first call for a request, later the server; `s->http` while the request is
 * for the data. */
static enum MHD_Result on_request(void *server, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *n_upload, void **state)
{
    (void)version, (void)upload;
    fr_server *s = server;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "This server is read-only.\n");
    if (!*state) { /* the rest of the request has not been read yet */
        *state = s;
        return MHD_YES;
    }
    if (*n_upload > 0) { /* a body is read and ignored */
        *n_upload = 0;
        return MHD_YES;
    }
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    if (s->is_loopback && (!host || !fr__address_is_local_host(host)))
        return refuse(c, MHD_HTTP_FORBIDDEN, "Ask for it as localhost or 127.0.0.1.\n");
    const route *r = routes;
    while (r->path && strcmp(r->path, path) != 0) r++;
    if (!r->path)
        return refuse(c, MHD_HTTP_NOT_FOUND, "Not found. Paths are /, /data.json and /events.\n");
    if (r->answer == answer_data) {
        *state = s->http;
        count_load(s, 1);
    }
    return r->answer(s, c);
}

static void on_completed(void *server, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode why)
{
    (void)why;
    fr_server *s = server;
    pthread_mutex_lock(&s->lock);
    gets_on(s, c);
    pthread_mutex_unlock(&s->lock);
    if (*state == s->http) count_load(s, -1);
}

fr_status fr__http_start(fr_ctx *ctx, fr_server *s)
{
    struct fr_http *h = FR_NEW(struct fr_http);
    if (!h) return fr__no_memory(ctx, sizeof *h, "live report");
    s->http = h;
    h->daemon = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
        MHD_OPTION_LISTEN_SOCKET, s->listen_fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_END);
    if (!h->daemon) return fr_fail(ctx, FR_IO, "cannot start the server at %s", s->url);
    s->listen_fd = -1;
    return FR_OK;
}

/* No connection may be suspended when the daemon stops: wake them, so that they end. */
void fr__http_stop(fr_server *s)
{
    struct fr_http *h = s->http;
    if (!h) return;
    pthread_mutex_lock(&s->lock);
    fr__http_wake(s);
    pthread_mutex_unlock(&s->lock);
    if (h->daemon) MHD_stop_daemon(h->daemon);
    if (h->data) MHD_destroy_response(h->data);
    fr__free(h);
}

#endif
