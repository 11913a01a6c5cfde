/* forked.h -- a team of forked processes for tests: each runs the same body under its own rank,
 * while the test's process, which has no threads, drives the scenario and checks the exit codes.
 * The bootstrap is by pipes instead of MPI. A body that fails a check records it and exits; an
 * alarm ends every process.
 *
 * The driver may provide the clock: it advances when all ranks that are not stopped have read it,
 * so no rank appears silent because the machine is busy. */
#ifndef FR_TEST_TEAM_FORKED_H
#define FR_TEST_TEAM_FORKED_H

#include <forerun/team.h>

#include "base/thread.h"
#include "support/check.h"
#include "team/bootstrap.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { FORKED_MAX = 8, FORKED_ALARM_S = 1800 }; /* beyond the limit of ctest */

/* In shared memory. */
typedef struct forked_state {
    atomic_int mark[FORKED_MAX]; /* the progress of a rank; its meaning is up to the body */
    atomic_int left[FORKED_MAX]; /* its bootstrap: 1 left in order, 2 left broken */
    _Atomic uint64_t now_ns;     /* the driver's clock; 0: use the real one */
    atomic_int n_looks[FORKED_MAX];
    _Atomic uint64_t lost_ns[FORKED_MAX]; /* when the loss was reported to a rank; 0: not yet */
    pid_t pid[FORKED_MAX];
    int victim;
    atomic_bool is_over; /* a check has failed */
    char says[FORKED_MAX][640];
} forked_state;

typedef struct member {
    int rank, size;
    fr_ctx *ctx;
    fr_team *team;
    forked_state *s;
    int (*pipes)[2];       /* [size] */
    unsigned char *shared; /* for when_shared */
    void (*when_shared)(struct member *m);
} member;

typedef struct scenario {
    int size;
    void (*body)(member *m);          /* runs with a team, and leaves it */
    void (*prepare)(forked_state *s); /* before they start; may be NULL */
    void (*drive)(forked_state *s);   /* in the test's process; may be NULL */
    void (*when_shared)(member *m);   /* before the ranks connect; may be NULL */
    double join_s;
    unsigned may_die;    /* bit mask of ranks */
    bool is_join_tested; /* the body calls forked_join itself */
} scenario;

__attribute__((noreturn, format(printf, 5, 6))) static inline void
forked_give_up(member *m, const char *file, int line, const char *condition, const char *format,
               ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *name = strrchr(file, '/');
    snprintf(m->s->says[m->rank], sizeof m->s->says[0], "%.40s:%d: %.100s; %s",
             name ? name + 1 : file, line, condition, what);
    atomic_store(&m->s->is_over, true);
    _exit(1);
}

#define CHECK(m, condition, ...) \
    ((condition) ? (void)0 : forked_give_up((m), __FILE__, __LINE__, #condition, __VA_ARGS__))
#define CHECK_OK(m, call)                                                   \
    do {                                                                    \
        fr_status got_ = (call);                                            \
        CHECK((m), got_ == FR_OK, "%s: %s", #call, fr_ctx_error((m)->ctx)); \
    } while (0)

static inline fr_status forked_share(void *user, void *data, size_t bytes)
{
    member *m = user;
    if (m->rank == 0) {
        for (int i = 1; i < m->size; i++)
            if (write(m->pipes[i][1], data, bytes) != (ssize_t)bytes) return FR_IO;
    } else {
        size_t n = 0;
        while (n < bytes) {
            ssize_t got = read(m->pipes[m->rank][0], (char *)data + n, bytes - n);
            if (got <= 0) return FR_IO;
            n += (size_t)got;
        }
    }
    m->shared = data;
    if (m->when_shared) m->when_shared(m);
    return FR_OK;
}

static inline void forked_leave(void *user, bool is_broken)
{
    member *m = user;
    atomic_store(&m->s->left[m->rank], is_broken ? 2 : 1);
}

static inline uint64_t forked_now(void *user)
{
    member *m = user;
    atomic_fetch_add(&m->s->n_looks[m->rank], 1);
    uint64_t now = atomic_load(&m->s->now_ns);
    return now ? now : fr__now_ns();
}

static inline fr_status forked_join(member *m, double join_s)
{
    fr__bootstrap b = {.user = m,
                       .share = forked_share,
                       .leave = forked_leave,
                       .join_s = join_s,
                       .now_ns = forked_now};
    return fr__team_create(m->ctx, m->rank, m->size, &b, &m->team);
}

static inline void forked_play(const scenario *p, forked_state *s, int rank, int (*pipes)[2])
{
    member m = {.rank = rank, .size = p->size, .ctx = fr_ctx_create(), .s = s, .pipes = pipes};
    m.when_shared = p->when_shared;
    s->pid[rank] = getpid(); /* a rank may read it before the parent has set it */
    alarm(FORKED_ALARM_S);
    CHECK(&m, m.ctx, "no memory");
    if (!p->is_join_tested) CHECK_OK(&m, forked_join(&m, p->join_s));
    p->body(&m);
    fr_ctx_free(m.ctx);
    exit(0);
}

/* Wait until the mark of a rank is at least `mark`, or a check has failed. */
static inline void forked_await(forked_state *s, int rank, int mark)
{
    for (int i = 0; i < FORKED_ALARM_S * 1000 && atomic_load(&s->mark[rank]) < mark; i++) {
        if (atomic_load(&s->is_over)) return;
        fr__sleep_ns(1000000);
    }
}

/* Advance the driver's clock by `ms`, one step whenever each rank has read it; ranks in `idle` and
 * ranks that have detected a loss need not. One iteration of the control thread reads it three
 * times, and an iteration may already have begun. */
static inline void forked_pass(forked_state *s, int size, unsigned idle, int ms)
{
    enum { STEP_MS = 25, LOOKS = 4 };
    for (; ms > 0; ms -= STEP_MS) {
        int before[FORKED_MAX];
        for (int i = 0; i < size; i++) before[i] = atomic_load(&s->n_looks[i]);
        atomic_fetch_add(&s->now_ns, (uint64_t)STEP_MS * 1000000);
        for (int i = 0; i < size; i++)
            while (!(idle >> i & 1) && !atomic_load(&s->lost_ns[i]) && !atomic_load(&s->is_over) &&
                   atomic_load(&s->n_looks[i]) < before[i] + LOOKS)
                fr__sleep_ns(1000000);
    }
}

/* The rank is stopped when this returns. */
static inline void forked_stop(forked_state *s, int rank)
{
    int code;
    kill(s->pid[rank], SIGSTOP);
    (void)waitpid(s->pid[rank], &code, WUNTRACED);
}

/* Report failed checks and unexpected exits. */
static inline void forked_judge(const scenario *p, forked_state *s)
{
    char report[FORKED_MAX * 700] = "";
    for (int i = 0; i < p->size; i++) {
        int code = 0;
        waitpid(s->pid[i], &code, 0);
        bool is_well = WIFEXITED(code) && WEXITSTATUS(code) == 0;
        if (is_well || (WIFSIGNALED(code) && WTERMSIG(code) == SIGKILL && p->may_die >> i & 1))
            continue;
        size_t n = strlen(report);
        snprintf(report + n, sizeof report - n, "\n  rank %d (%s %d): %s", i,
                 WIFEXITED(code) ? "exit" : "signal",
                 WIFEXITED(code) ? WEXITSTATUS(code) : WTERMSIG(code), s->says[i]);
    }
    munmap(s, sizeof *s);
    if (report[0]) fail_msg("%s", report);
}

static inline void forked_run(const scenario *p)
{
    int pipes[FORKED_MAX][2];
    forked_state *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    s->victim = -1;
    if (p->prepare) p->prepare(s);
    for (int i = 0; i < p->size; i++) assert_int_equal(pipe(pipes[i]), 0);
    for (int i = 0; i < p->size; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) forked_play(p, s, i, pipes);
        s->pid[i] = pid;
    }
    for (int i = 0; i < p->size; i++) close(pipes[i][0]), close(pipes[i][1]);
    if (p->drive) p->drive(s);
    forked_judge(p, s);
}

/* --- callbacks that record a loss ------------------------------------------------------------- */

typedef struct loss_record {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_lost, lost_rank;
    char lost_text[2048];
    member *m; /* NULL, or the rank whose lost_ns is set */
} loss_record;

static inline void record_loss(void *user, int rank, const char *text)
{
    loss_record *r = user;
    pthread_mutex_lock(&r->lock);
    r->n_lost++;
    r->lost_rank = rank;
    if (r->m) atomic_store(&r->m->s->lost_ns[r->m->rank], atomic_load(&r->m->s->now_ns));
    snprintf(r->lost_text, sizeof r->lost_text, "%s", text);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static inline void loss_record_init(loss_record *r)
{
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
}

static inline void await_loss(loss_record *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->n_lost == 0) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

#endif
