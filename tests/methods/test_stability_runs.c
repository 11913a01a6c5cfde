/* test_stability_runs.c -- limits of stability against pipelines of real stores and optimizers,
 * which must shrink just below the limit and grow just above. */
#include <forerun/stability.h>

#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

#include "methods/plans.h"
#include "support/backend.h"

enum { MOST = 8 };

/* Real stores of one weight each, led along the lists of a schedule. */
typedef struct rig {
    const fr_exec_plan *plan;
    fr_device *dev;
    fr_store *stores[MOST];
    float *room[MOST], *grad;
    int only;     /* the stage of the direction; -1: all share it */
    double *sums; /* [micro]: of the weights that its forwards read */
    int *done[2]; /* [stage]: forwards, backwards */
} rig;

enum { ROOM = 256 }; /* floats of a stage: blocks, two states, the drift */

/* All weights are zero until an update that is late enough for bias corrections to be over has a
 * gradient of KICK. Then the gradients shrink or grow. */
static const double KICK = 1e-12, LARGE = 1, SMALL = 1e-34;
enum { N_BATCHES = 700, AT_REST = 100 };

static void open_rig(rig *r, const fr_exec_plan *p, const char *optimizer,
                     const fr_optim_options *o, int only)
{
    *r = (rig){.plan = p, .only = only};
    int n = p->schedule->n_stages;
    assert_int_equal(
        fr_device_open(ctx, test_backend("ref"), &(fr_device_desc){.n_threads = 1}, &r->dev),
        FR_OK);
    r->grad = device_floats(r->dev, 16);
    r->sums = calloc((size_t)(p->schedule->n_batches * p->schedule->n_micro), sizeof *r->sums);
    for (int i = 0; i < 2; i++) r->done[i] = calloc((size_t)n, sizeof(int));
    for (int k = 0; k < n; k++) {
        const float zeros[ROOM] = {0};
        r->room[k] = device_floats(r->dev, ROOM);
        device_put(r->dev, r->room[k], zeros, ROOM);
        float *state = r->room[k] + ROOM - 3 * 16;
        assert_true(p->n_weight_blocks[k] * 16 <= ROOM - 3 * 16);
        const fr_store_desc d = {.policy = p->policy,
                                 .context = p->context[k],
                                 .device = r->dev,
                                 .optimizer = fr_optim_find(optimizer),
                                 .options = *o,
                                 .n_blocks = p->n_weight_blocks[k],
                                 .n = 1,
                                 .blocks = r->room[k],
                                 .stride = 16,
                                 .state = {state, state + 16},
                                 .drift = state + 32};
        if (fr_store_create(ctx, &d, &r->stores[k]) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    }
}

static void close_rig(rig *r)
{
    for (int k = 0; k < r->plan->schedule->n_stages; k++) {
        fr_store_free(r->stores[k]);
        fr_device_release(r->dev, r->room[k], ROOM * sizeof(float));
    }
    fr_device_release(r->dev, r->grad, 16 * sizeof(float));
    fr_device_close(r->dev);
    for (int i = 0; i < 2; i++) free(r->done[i]);
    free(r->sums);
}

static double weight_of(rig *r, const fr_view *view)
{
    float weight;
    device_get(r->dev, &weight, view->weights, 1);
    return weight;
}

/* The gradient of a quadratic with curvature 1. */
static double gradient(const rig *r, int batch)
{
    const fr_schedule *s = r->plan->schedule;
    double sum = batch == AT_REST ? KICK : 0;
    for (int j = 0; j < s->n_micro; j++) sum += r->sums[batch * s->n_micro + j];
    return sum / s->n_micro / (r->only < 0 ? s->n_stages : 1);
}

/* False: another stage is not ready. */
static bool step(rig *r, const fr_instr *at, double *size)
{
    const fr_schedule *s = r->plan->schedule;
    int k = at->stage, batch = at->micro / s->n_micro, j = at->micro % s->n_micro;
    fr_store *store = r->stores[k];
    fr_view view;
    float g = 0;
    switch (at->action) {
    case FR_DO_F:
        if (k > 0 && r->done[0][k - 1] <= at->micro) return false;
        assert_int_equal(fr_store_forward(store, batch, j, &view), FR_OK);
        if (r->only < 0 || r->only == k) r->sums[at->micro] += weight_of(r, &view);
        r->done[0][k] = at->micro + 1;
        return true;
    case FR_DO_B:
        if (r->done[k + 1 == s->n_stages ? 0 : 1][k + 1 == s->n_stages ? k : k + 1] <= at->micro)
            return false;
        assert_int_equal(fr_store_backward(store, batch, j, &view), FR_OK);
        fr_store_done(store, batch, j);
        r->done[1][k] = at->micro + 1;
        return true;
    case FR_DO_STEP:
        if (r->only < 0 || r->only == k) g = (float)gradient(r, at->micro);
        if (g != 0) *size = fabs((double)g);
        device_put(r->dev, r->grad, &g, 1);
        fr_store_begin(store, at->micro, 1);
        fr_store_range(store, 0, 1, r->grad);
        assert_int_equal(fr_store_end(store, 1), FR_OK);
        return true;
    default: return true;
    }
}

/* How much the gradients of the last updates exceed those of the middle; all workers in turn. */
static double growth(rig *r)
{
    const fr_schedule *s = r->plan->schedule;
    int at[MOST] = {0}, n_left = s->n_workers;
    double middle = 0, last = 0;
    while (n_left > 0) {
        n_left = 0;
        for (int w = 0; w < s->n_workers; w++) {
            double size = 0;
            if (at[w] == s->lists[w].n) continue;
            n_left++;
            const fr_instr *x = &s->lists[w].at[at[w]];
            if (!step(r, x, &size)) continue;
            at[w]++;
            if (x->action != FR_DO_STEP || x->micro <= AT_REST) continue;
            if (size > LARGE || (size > 0 && size < SMALL)) return size / KICK;
            if (x->micro >= s->n_batches / 2 && x->micro < s->n_batches * 3 / 4)
                middle = fmax(middle, size);
            if (x->micro >= s->n_batches * 3 / 4) last = fmax(last, size);
        }
    }
    /* Stages that step differently come to rest apart, where rounding leaves a rest. */
    return last < 1e-5 * KICK ? last / KICK : last / middle;
}

static double growth_at(const fr_exec_plan *p, const char *optimizer, const fr_optim_options *o,
                        double lr, int only)
{
    rig r;
    fr_optim_options with = *o;
    /* A denominator that does not change. */
    with.lr = o->eps > 0 ? lr * o->eps : lr;
    open_rig(&r, p, optimizer, &with, only);
    double by = growth(&r);
    close_rig(&r);
    return by;
}

static int below(int n, uint64_t seed, uint64_t i)
{
    uint32_t word[4];
    fr__random4(seed, FR_STREAM_SYNTHETIC, 1, i, 0, word);
    return (int)(word[0] % (uint32_t)n);
}

/* A policy that the library does not have: forwards moved on along the drift, rates by stage. */
static void want_two(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)context, (void)micro;
    *want = (fr_want){.base = FR_NEWEST, .ahead = 2};
}
static void want_newest(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)context, (void)micro;
    *want = (fr_want){.base = FR_NEWEST};
}
static int after_two(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    (void)context;
    ahead[0] = 2;
    return 1;
}
static double half_rates(const fr_policy_context *context, int64_t t)
{
    (void)t;
    return 1.0 / (1 + context->stage);
}
static void slow_momentum(const fr_policy_context *context, fr_optim_options *o)
{
    o->beta1 = 1 - (1 - o->beta1) / (1 + context->lead);
    o->momentum = 1 - (1 - o->momentum) / (1 + context->lead);
}
static double keep_half(const fr_policy_context *context)
{
    (void)context;
    return 0.5;
}
static const fr_policy custom = {.name = "custom",
                                 .summary = "for this test",
                                 .extrapolation = FR_EXTRAPOLATE_DRIFT,
                                 .forward = want_two,
                                 .backward = want_newest,
                                 .after = after_two,
                                 .lr_factor = half_rates,
                                 .adapt = slow_momentum,
                                 .drift_keep = keep_half};

static const struct {
    const char *name;
    fr_optim_options options;
} optimizers[] = {
    {"sgd", {.momentum = 0}},
    {"sgd", {.momentum = 0.9}},
    {"sgd", {.momentum = 0.7, .dampening = 0.4}},
    {"sgd", {.momentum = 0.8, .nesterov = true}},
    {"adam", {.beta1 = 0.9, .eps = 1e6}},
    {"adamw", {.beta1 = 0.5, .eps = 1e6}},
    {"nadam", {.beta1 = 0.9, .eps = 1e6, .momentum_decay = 1}},
};
enum { N_OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static void judge_pair(const fr_exec_plan *p, int o, int only, double limit)
{
    const fr_optim_options *options = &optimizers[o].options;
    double less = growth_at(p, optimizers[o].name, options, limit / 1.05, only);
    double more = growth_at(p, optimizers[o].name, options, limit * 1.05, only);
    if (!(less < 0.95 && more > 1.05))
        fail_msg("%s with %s, %d stages, %d micro-batches, optimizer %d, limit %g of stage %d: "
                 "gradients change by %g below and by %g above",
                 p->schedule->name, p->policy->name, p->schedule->n_stages, p->schedule->n_micro, o,
                 limit, only, less, more);
}

static void real_pipelines_grow_above_the_limit_only(void **state)
{
    (void)state;
    int n_policies = 0, n_judged = 0;
    while (fr_policy_list()[n_policies]) n_policies++;
    for (int i = 0; i < 10 * (n_policies + 1); i++) {
        uint64_t seed = (uint64_t)i;
        int n = 1 + below(6, seed, 1), n_micro = 1 + below(6, seed, 2);
        int o = below(N_OPTIMIZERS, seed, 3);
        const char *generator = below(4, seed, 4) ? "1f1b-async" : "nf1b";
        const fr_policy *policy =
            i % (n_policies + 1) == n_policies ? &custom : fr_policy_list()[i % (n_policies + 1)];
        const fr_schedule *s = make(generator, n, n_micro, N_BATCHES);
        fr_exec_plan *p;
        fr_stability limit;
        const fr_exec_desc d = {.schedule = s, .policy = policy};
        if (fr_exec_plan_create(ctx, &d, &p, NULL) == FR_OK) {
            assert_int_equal(fr_exec_plan_stability(ctx, p, fr_optim_find(optimizers[o].name),
                                                    &optimizers[o].options, &limit),
                             FR_OK);
            judge_pair(p, o, -1, limit.shared);
            judge_pair(p, o, limit.stage, limit.within);
            n_judged++;
        }
        fr_exec_plan_free(p);
        fr_schedule_free(s);
    }
    assert_true(n_judged > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_pipelines_grow_above_the_limit_only),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
