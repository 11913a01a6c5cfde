/* test_random.c -- many short random runs: net, cuts, schedule, policy, optimizer, sleeps, and in
 * some of them a fault or an early end. None may hang, and the results are checked: flush schedules
 * have the bits of one worker, all others those of the same run without the sleeps; an early end
 * leaves a whole number of updates; a fault is reported.
 *
 * FR_RUNS: how many; FR_SEED: the first one. A run that takes too long prints its seed. */
#include "engine/rig.h"

#include <signal.h>

enum { LIMIT_S = 600, STEPS = 6 };

static const char *const policies[] = {"live",         "stash",    "double-buffer", "spectrain",
                                       "spectrain-v2", "xpipe",    "pipeoptim",     "decay-aware",
                                       "pipemare",     "lookahead"};
static const char *const optimizers[] = {NULL, "adam", "adamw", "nadam", "muon", "lion"};
static const char *const flush[] = {"sequential", "gpipe", "1f1b",   "zb-h1", "interleaved",
                                    "zb-h2",      "zbv",   "v-half", "v-min", "dualpipev"};
static const char *const async[] = {"1f1b-async", "1f1b-async", "nf1b"};

enum ending { AS_PLANNED, STOPPED, REPORT_STOPS, FAILS, IS_NAN, SOURCE_FAILS };

typedef struct plan {
    uint64_t seed;
    uint32_t n_drawn;
    int which, cuts[MAX_STAGES], at; /* at: mini-batch of a mishap */
    bool is_flush;
    enum ending ending;
    char fault[64];
    rig_options o;
} plan;

static char running[512]; /* for the watchdog */

static volatile sig_atomic_t n_seconds; /* of the current run; none while all is stopped */

static void tick(int signal_number)
{
    (void)signal_number;
    alarm(1);
    if (++n_seconds < LIMIT_S) return;
    if (write(2, running, strlen(running)) < 0) _exit(3);
    _exit(2);
}

static int pick(plan *p, int n)
{
    uint32_t r[4];
    fr__random4(p->seed, FR_STREAM_SYNTHETIC, 5, p->n_drawn++, 0, r);
    return (int)(r[0] % (uint32_t)n);
}
#define PICK(p, list) (list)[pick(p, (int)(sizeof(list) / sizeof *(list)))]

/* Any legal cuts, by trial. */
static void pick_cuts(plan *p)
{
    bench b;
    fr_stage stages[MAX_STAGES];
    int n_nodes, n = p->o.n_stages - 1;
    bench_init(&b, p->which);
    n_nodes = fr_graph_n_nodes(b.graph);
    do {
        fr_ctx_clear(b.ctx);
        bool is_cut[64] = {false};
        for (int i = 0; i < n;) {
            int at = 1 + pick(p, n_nodes - 1);
            if (!is_cut[at]) is_cut[at] = true, i++;
        }
        for (int at = 1, i = 0; at < n_nodes; at++)
            if (is_cut[at]) p->cuts[i++] = at;
    } while (fr_graph_cut(b.graph, n, p->cuts, stages) != FR_OK);
    bench_fini(&b);
    p->o.cuts = p->cuts;
}

/* Asynchronous: policies that support it. */
static void pick_schedule(plan *p)
{
    rig_options *o = &p->o;
    p->is_flush = pick(p, 2);
    o->n_stages = 1 + pick(p, most_stages(p->which) < 6 ? most_stages(p->which) : 6);
    o->n_micro = 1 << pick(p, 4);
    if (p->is_flush) {
        o->generator = PICK(p, flush);
        bool is_v = fr_generator_find(o->generator)->is_v;
        if (is_v || strcmp(o->generator, "interleaved") == 0) {
            o->chunks = 2;
            o->n_stages = 2 * (1 + pick(p, 2));
        }
        if (o->chunks && !is_v && o->n_micro % (o->n_stages / 2)) o->n_micro = 2;
        if (strcmp(o->generator, "dualpipev") == 0 && o->n_micro < o->n_stages) o->n_micro = 4;
    } else {
        o->generator = PICK(p, async);
        o->n_batches = 1 + pick(p, 2 * STEPS);
        o->policy = strcmp(o->generator, "nf1b") == 0 ? "live" : PICK(p, policies);
        if (strcmp(o->policy, "double-buffer") == 0 && o->n_micro < o->n_stages) o->n_micro = BATCH;
    }
    bool has_two_versions = o->policy && strcmp(o->policy, "double-buffer") == 0;
    if (fr_generator_find(o->generator)->has_lead && !has_two_versions) o->lead = 1 + pick(p, 3);
    if (pick(p, 3) == 0) o->clip_norm = 0.1, o->clip_late = pick(p, 2);
    o->want_norm = pick(p, 3) == 0;
    pick_cuts(p);
}

static void pick_mishap(plan *p)
{
    int worker = pick(p, p->o.chunks ? p->o.n_stages / 2 : p->o.n_stages);
    p->at = pick(p, STEPS);
    p->ending = pick(p, 2) ? AS_PLANNED : (enum ending)pick(p, SOURCE_FAILS + 1);
    if (p->ending == FAILS)
        snprintf(p->fault, sizeof p->fault, "error:worker=%d,step=%d", worker, p->at);
    else if (p->ending == IS_NAN)
        snprintf(p->fault, sizeof p->fault, "nan:worker=%d,step=%d", p->o.n_stages - 1, p->at);
    else if (pick(p, 3) == 0)
        snprintf(p->fault, sizeof p->fault, "slow:worker=%d,step=%d,ms=0.2", worker, p->at);
    else if (pick(p, 2))
        snprintf(p->fault, sizeof p->fault, "jitter:ms=0.3,seed=%d", pick(p, 1000));
    if (p->ending == IS_NAN && p->o.chunks) p->ending = AS_PLANNED, p->fault[0] = '\0';
    p->o.fault = p->fault[0] ? p->fault : NULL;
}

/* The options point into the plan. */
static void make_plan(uint64_t seed, plan *p)
{
    *p = (plan){.seed = seed};
    p->which = pick(p, N_NETS);
    p->o.optimizer = PICK(p, optimizers);
    p->o.lr = 0.002;
    p->o.want_ledger = pick(p, 2);
    p->o.n_events = pick(p, 2) * 100;
    p->o.n_samples = pick(p, 2) * 10;
    p->o.keep_grads = pick(p, 4) == 0;
    pick_schedule(p);
    pick_mishap(p);
}

static void describe(const plan *p)
{
    const rig_options *o = &p->o;
    snprintf(
        running, sizeof running,
        "FR_SEED=%llu: %s, %s, %s, %d stages, %d micro-batches, lead %d, segment %d, ending %d "
        "at %d, fault %s\n",
        (unsigned long long)p->seed, nets[p->which].name, o->generator,
        o->policy ? o->policy : "live", o->n_stages, o->n_micro, o->lead, o->n_batches,
        (int)p->ending, p->at, o->fault ? o->fault : "none");
}

static bool stop_report(rig *r, const fr_batch_report *report)
{
    return report->step < *(const int *)r->user;
}

/* One worker if it must give the same bits, otherwise the same run undisturbed. */
static void clean_sha(const plan *p, int64_t n, char sha[65])
{
    rig_options o = p->o;
    if (p->is_flush) {
        o.generator = NULL, o.n_stages = 0, o.chunks = 0, o.lead = 0, o.cuts = NULL;
        o.want_ledger = false, o.n_events = 0, o.n_samples = 0;
    }
    rig_clean_sha(p->which, &o, n, sha);
}

static fr_status expected_status(const plan *p)
{
    static const fr_status of[] = {
        [FAILS] = FR_PEER, [IS_NAN] = FR_DIVERGED, [SOURCE_FAILS] = FR_IO};
    return p->ending < FAILS ? FR_OK : of[p->ending];
}

static void check_end(const plan *p, rig *r, fr_status status, int64_t n_done, int64_t n)
{
    char sha[65], clean[65];
    if (status != expected_status(p))
        fail_msg("%sstatus %d, %s", running, (int)status, fr_ctx_error(r->b.ctx));
    if (p->ending == AS_PLANNED) assert_int_equal(n_done, n);
    if (p->ending == IS_NAN) assert_int_equal(n_done, p->at);
    if (p->ending == FAILS || p->ending == SOURCE_FAILS) {
        assert_true(n_done <= p->at);
        return;
    }
    if (p->ending == REPORT_STOPS) assert_true(n_done > p->at);
    rig_sha(r, sha);
    clean_sha(p, n_done, clean);
    if (strcmp(sha, clean) != 0) fail_msg("%sother weights after %d", running, (int)n_done);
}

static void run(const plan *p)
{
    rig r;
    int64_t n_done = 0, n = p->ending == STOPPED || p->ending == REPORT_STOPS ? 200 : STEPS;
    int at = p->at;
    volatile int stop = p->ending == STOPPED;
    if (rig_open(&r, p->which, &p->o) != FR_OK) fail_msg("%s%s", running, fr_ctx_error(r.b.ctx));
    assert_ok(r.b.ctx, fr_schedule_check(r.b.ctx, r.schedule));
    if (p->ending == REPORT_STOPS) r.on_report = stop_report, r.user = &at;
    if (p->ending == STOPPED) r.stop = &stop;
    if (p->ending == SOURCE_FAILS) r.fails_at = p->at;
    fr_source source = rig_source(&r, 0);
    fr_status status = fr_engine_train(r.engine, 0, n, &source, rig_report, &r, r.stop, &n_done);
    check_end(p, &r, status, n_done, n);
    fr_tally tally;
    r.fails_at = -1;
    if (status == FR_OK) assert_ok(r.b.ctx, rig_eval(&r, 2, &tally, NULL));
    rig_close(&r);
}

static long number_from(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static void many_runs(void **unused)
{
    (void)unused;
    long n = number_from("FR_RUNS", IS_SANITIZED ? 100 : 400);
    long first = number_from("FR_SEED", 1);
    signal(SIGALRM, tick);
    alarm(1);
    for (long i = 0; i < n; i++) {
        plan p;
        make_plan((uint64_t)(first + i), &p);
        describe(&p);
        n_seconds = 0;
        run(&p);
    }
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
