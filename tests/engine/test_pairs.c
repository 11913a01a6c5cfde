/* test_pairs.c -- every schedule with every weight policy: it trains, or it is refused before
 * anything is allocated, with a line that gives the reason.
 *
 * Pairs are taken in turn; stages, micro-batches, replicas and the length of a segment are drawn.
 * For an accepted run all updates are made and finite, the allocated memory equals the forecast,
 * and a schedule that drains before each update has the bits of one worker.
 *
 * FR_RUNS: how many; FR_SEED: the first one. */
#include "engine/rig.h"

#include <forerun/exec_plan.h>

enum { STEPS = 6, MOST_MICRO = 8, PAIRS_MOST_STAGES = 6 };

typedef struct pair {
    uint64_t seed;
    uint32_t n_drawn;
    const fr_generator *generator;
    const fr_policy *policy;
    int replicas[PAIRS_MOST_STAGES];
    rig_options o;
    char about[256];
} pair;

static int n_trained[1024], n_refused; /* [pair] */

static int pick(pair *p, int low, int high)
{
    uint32_t r[4];
    fr__random4(p->seed, FR_STREAM_SYNTHETIC, 6, p->n_drawn++, 0, r);
    return low + (int)(r[0] % (uint32_t)(high - low + 1));
}

static int count_policies(void)
{
    int n = 0;
    while (fr_policy_list()[n]) n++;
    return n;
}

/* Those that train. */
static int count_generators(const fr_generator **out)
{
    int n = 0;
    for (const fr_generator *const *g = fr_generator_list(); *g; g++)
        if (!(*g)->is_forward_only) out[n++] = *g;
    return n;
}

static int make_pair(uint64_t seed, pair *p)
{
    const fr_generator *generators[32];
    int n_generators = count_generators(generators), n_policies = count_policies();
    int nth = (int)(seed % (uint64_t)(n_generators * n_policies));
    *p = (pair){.seed = seed,
                .generator = generators[nth / n_policies],
                .policy = fr_policy_list()[nth % n_policies]};
    bool is_chunked = p->generator->has_chunks && (pick(p, 0, 1) || p->generator->is_v);
    int n = pick(p, 1, PAIRS_MOST_STAGES), micro = pick(p, 1, MOST_MICRO);
    int replicas = micro % 2 == 0 ? pick(p, 1, 2) : 1;
    if (is_chunked && n % 2) n++;
    for (int k = 0; k < PAIRS_MOST_STAGES; k++) p->replicas[k] = replicas;
    if (replicas == 2 && p->generator->any_replicas && !is_chunked)
        for (int k = 0; k < n; k++) p->replicas[k] = pick(p, 1, 2);
    p->o = (rig_options){.generator = p->generator->name,
                         .policy = p->policy->name,
                         .backend = getenv("FR_BACKEND") ? NULL : "ref",
                         .optimizer = pick(p, 0, 2) ? NULL : "adam",
                         .n_stages = n,
                         .chunks = is_chunked ? 2 : 0,
                         .n_micro = micro,
                         .n_batches = p->generator->is_flush ? 1 : pick(p, 1, 2 * STEPS),
                         .replicas = p->replicas,
                         .exact_sum = true, /* so that replicas have the bits of one worker */
                         .lr = 0.002};
    snprintf(p->about, sizeof p->about,
             "FR_SEED=%llu: %s, %s, %d stages%s, %d micro-batches, replicas %d%d%d%d%d%d, segment "
             "%d: ",
             (unsigned long long)seed, p->o.generator, p->o.policy, n, is_chunked ? " in twos" : "",
             micro, p->replicas[0], p->replicas[1], p->replicas[2], p->replicas[3], p->replicas[4],
             p->replicas[5], p->o.n_batches);
    return nth;
}

/* Allowed refusals: a policy that needs a pipeline without drains, two versions for more than two
 * mini-batches. */
static bool may_be_refused(const pair *p, const fr_schedule *s)
{
    if (p->generator->is_flush) return strcmp(p->policy->name, "live") != 0;
    if (strcmp(p->policy->name, "double-buffer") != 0) return false;
    for (int k = 0; k < s->n_stages; k++)
        if (s->n_micro / s->replicas[k] <= fr_schedule_lead(s, k)) return true;
    return false;
}

static void check_refusal(const pair *p, rig *r, fr_status status)
{
    const char *text = fr_ctx_error(r->b.ctx);
    if (!may_be_refused(p, r->schedule)) fail_msg("%sstatus %d, %s", p->about, (int)status, text);
    assert_int_equal(status, FR_INVALID);
    assert_null(r->engine);
    if (!strstr(text, p->policy->name)) fail_msg("%s%s", p->about, text);
    n_refused++;
}

static void check_memory(const pair *p, rig *r)
{
    fr_exec_plan *plan;
    const fr_exec_desc d = {.schedule = r->schedule,
                            .policy = p->policy,
                            .policy_options = r->desc.policy_options,
                            .graph = r->b.graph,
                            .stages = r->stages};
    assert_ok(r->b.ctx, fr_exec_plan_create(r->b.ctx, &d, &plan, NULL));
    for (int w = 0; w < fr_engine_n_workers(r->engine); w++) {
        const fr_memory_use *use = fr_engine_predicted(r->engine, w);
        int most = 0;
        for (int k = 0; k < r->schedule->n_stages; k++) {
            int first = r->schedule->worker_of[k];
            if (w < first || w >= first + r->schedule->replicas[k]) continue;
            if (plan->n_weight_blocks[k] > most) most = plan->n_weight_blocks[k];
        }
        if (use->weight_copies != most || fr_engine_peak_bytes(r->engine, w) != use->total)
            fail_msg("%sworker %d: %d copies of %d, %zu bytes of %zu", p->about, w,
                     use->weight_copies, most, fr_engine_peak_bytes(r->engine, w), use->total);
    }
    fr_exec_plan_free(plan);
}

static void check_numbers(const pair *p, rig *r)
{
    static float plain[MAX_PARAM];
    char sha[65], single[65];
    for (int i = 0; i < r->n_reports; i++) assert_true(isfinite(r->tally[i].loss));
    for (int i = 0; i < fr_graph_n_params(r->b.graph); i++) {
        assert_ok(r->b.ctx, fr_engine_get_param(r->engine, i, plain));
        for (size_t k = 0; k < count_of(&r->b, i); k++) assert_true(isfinite(plain[k]));
    }
    if (!p->generator->is_flush) return;
    rig_options o = p->o;
    o.generator = NULL, o.policy = NULL, o.n_stages = 0, o.chunks = 0, o.replicas = NULL;
    rig_clean_sha(MLP, &o, STEPS, single);
    rig_sha(r, sha);
    if (strcmp(sha, single) != 0) fail_msg("%sother weights than those of one worker", p->about);
}

static void run(uint64_t seed)
{
    pair p;
    rig r;
    int nth = make_pair(seed, &p);
    int64_t n_done = 0;
    fr_status status = rig_prepare(&r, MLP, &p.o);
    if (status != FR_OK) { /* no such schedule with these micro-batches */
        if (!p.generator->check || status != FR_INVALID)
            fail_msg("%s%s", p.about, fr_ctx_error(r.b.ctx));
        n_refused++;
    } else if ((status = fr_engine_create(r.b.ctx, &r.desc, &r.engine)) != FR_OK) {
        check_refusal(&p, &r, status);
    } else {
        if (may_be_refused(&p, r.schedule)) fail_msg("%swas let in", p.about);
        status = rig_train(&r, 0, STEPS, &n_done);
        if (status != FR_OK || n_done != STEPS)
            fail_msg("%s%d updates, %s", p.about, (int)n_done, fr_ctx_error(r.b.ctx));
        check_memory(&p, &r);
        check_numbers(&p, &r);
        n_trained[nth]++;
    }
    rig_close(&r);
}

static long number_from(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static void all_pairs(void **unused)
{
    (void)unused;
    const fr_generator *generators[32];
    int n_policies = count_policies(), n_pairs = count_generators(generators) * n_policies;
    long n = number_from("FR_RUNS", IS_SANITIZED ? 252 : 2160), sum = 0;
    long first = number_from("FR_SEED", 1);
    assert_true(n_pairs <= (int)(sizeof n_trained / sizeof *n_trained));
    for (long i = 0; i < n; i++) run((uint64_t)(first + i));
    for (int i = 0; i < n_pairs; i++) {
        bool is_live = strcmp(fr_policy_list()[i % n_policies]->name, "live") == 0;
        bool trains = is_live || !generators[i / n_policies]->is_flush;
        sum += n_trained[i];
        if (n >= 16 * n_pairs && trains != (n_trained[i] > 0))
            fail_msg("%s, %s: %d runs", generators[i / n_policies]->name,
                     fr_policy_list()[i % n_policies]->name, n_trained[i]);
    }
    print_message("%ld pairs: %ld trained, %d refused\n", n, sum, n_refused);
    assert_int_equal(sum + n_refused, n);
}

/* Three blocks are needed; a formula for 1F1B gives two. */
static void versions_of_joint_backwards(void **unused)
{
    (void)unused;
    rig r;
    rig_options o = {.generator = "nf1b",
                     .policy = "stash",
                     .n_stages = 3,
                     .n_micro = 2,
                     .n_batches = STEPS,
                     .lr = 0.002};
    if (rig_open(&r, MLP, &o) != FR_OK) fail_msg("%s", rig_about(&r, &o));
    rig_steps(&r, 0, STEPS);
    for (int k = 0; k < 3; k++)
        assert_int_equal(fr_engine_predicted(r.engine, k)->weight_copies, 3 - k);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(versions_of_joint_backwards),
                                       cmocka_unit_test(all_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
