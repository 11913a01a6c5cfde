/* test_store.c -- the weight store against a plain model of it, for every policy, optimizer and
 * kind of learning rate; memory, ids, resets and failures. */
#include "weights/line.h"

static const struct {
    const char *name;
    fr_optim_options o;
} kinds[] = {
    {"sgd", {.lr = 0.1}},
    {"sgd", {.lr = 0.1, .momentum = 0.9}},
    {"sgd", {.lr = 0.1, .momentum = 0.9, .dampening = 0.9, .weight_decay = 0.01}},
    {"sgd", {.lr = 0.1, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01}},
    {"adam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1}},
    {"adamw", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1}},
    {"nadam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 0.004}},
};
static const fr_lr_options rates[] = {
    {.name = "constant"},
    {.name = "cosine", .total = 20, .min_ratio = 0.1},
    {.name = "constant", .warmup = 9},
    {.name = "step", .every = 3, .gamma = 0.5},
};
#define N_KINDS ((int)(sizeof kinds / sizeof *kinds))
#define N_RATES ((int)(sizeof rates / sizeof *rates))

static bool is_fit(const fr_policy *p, int n, int t)
{
    fr_policy_context context = {.n_stages = n, .lead = n - 1, .n_micro = t};
    return !p->check || !p->check(&context);
}

static line a, b;

/* Versions, distances, weights, ids of every pass. */
static void follows_the_model(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int n = 1; n <= 5; n += 2)
            for (int k = 0; k < n; k++)
                for (int t = 1; t <= 6; t++)
                    for (int x = 0; x < N_KINDS * N_RATES; x++) {
                        if (!is_fit(*p, n, t) || (x + n + k + t) % 3) continue;
                        recipe r = {.policy = (*p)->name,
                                    .optimizer = kinds[x % N_KINDS].name,
                                    .options = kinds[x % N_KINDS].o,
                                    .lr = rates[x / N_KINDS],
                                    .n_stages = n,
                                    .stage = k,
                                    .n_micro = t,
                                    .n_batches = 14,
                                    .exact = x % 2,
                                    .on_the_fly = (x / 2) % 2,
                                    .lr_warmup = 6};
                        line_run(&a, &r);
                        assert_int_equal(a.n_views, 2 * 14 * t);
                    }
}

/* Stages with different numbers of replicas: the schedule determines how far a worker runs ahead.
 */
static void follows_the_lead(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int n = 2; n <= 4; n++)
            for (int k = 0; k < n; k++)
                for (int lead = 1; lead <= 6; lead++)
                    for (int t = 1; t <= 8; t++) {
                        fr_policy_context context = {
                            .n_stages = n, .stage = k, .lead = lead, .n_micro = t};
                        if ((*p)->check && (*p)->check(&context)) {
                            assert_true(!strcmp((*p)->name, "double-buffer") && t <= lead);
                            continue;
                        }
                        recipe r = {.policy = (*p)->name,
                                    .optimizer = "sgd",
                                    .options = kinds[1].o,
                                    .lr = rates[lead % N_RATES],
                                    .n_stages = n,
                                    .stage = k,
                                    .lead = lead,
                                    .n_micro = t,
                                    .n_batches = 14,
                                    .exact = k % 2,
                                    .on_the_fly = t % 2,
                                    .lr_warmup = 6};
                        line_run(&a, &r);
                    }
}

/* A prediction has the same bits whether the update or a separate sweep writes it; so do fused
 * updates. */
static void fused_is_separate(void **unused)
{
    (void)unused;
    int64_t n_ahead = 0;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int n = 2; n <= 6; n += 2)
            for (int k = 0; k < n; k++)
                for (int t = 1; t <= 6; t++)
                    for (int x = 0; x < N_KINDS; x++) {
                        if (!is_fit(*p, n, t) || (x + k + t) % 2) continue;
                        recipe r = {.policy = (*p)->name,
                                    .optimizer = kinds[x].name,
                                    .options = kinds[x].o,
                                    .lr = rates[(x + k) % N_RATES],
                                    .n_stages = n,
                                    .stage = k,
                                    .n_micro = t,
                                    .n_batches = 10,
                                    .on_the_fly = true};
                        line_run(&a, &r);
                        r.no_fusing = true, r.on_the_fly = false;
                        line_run(&b, &r);
                        assert_true(a.digest == b.digest);
                        n_ahead += a.n_ahead;
                    }
    assert_true(n_ahead > 10000);
}

/* Blocks suffice, and are needed: one less fails with a message. */
static void blocks_suffice(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int n = 1; n <= 8; n++)
            for (int k = 0; k < n; k++)
                for (int t = 1; t <= 9; t += t < 4 ? 1 : 5) {
                    if (!is_fit(*p, n, t)) continue;
                    recipe r = {.policy = (*p)->name,
                                .optimizer = "sgd",
                                .options = kinds[1].o,
                                .lr = rates[0],
                                .n_stages = n,
                                .stage = k,
                                .n_micro = t,
                                .n_batches = t < 5 ? 40 : 20,
                                .exact = (n + k) % 2,
                                .on_the_fly = k % 2};
                    line_run(&a, &r);
                }
}

/* A policy that does everything at once: keeps versions, and has predictions written beside them
 * that half of the forwards read. */
static void every_other(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)context;
    *want = (fr_want){.base = FR_NEWEST, .ahead = micro % 2};
}
static void as_forward(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)context, (void)micro;
    *want = (fr_want){.base = FR_AS_FORWARD};
}
static int one_ahead(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    (void)context;
    ahead[0] = 1, ahead[1] = 2; /* one that is read and one that is not */
    return 2;
}

static void keeping_and_predicting(void **unused)
{
    (void)unused;
    const fr_policy both = {
        .name = "both", .forward = every_other, .backward = as_forward, .after = one_ahead};
    for (int k = 0; k < 5; k++)
        for (int t = 2; t <= 4; t++)
            for (int x = 0; x < N_KINDS; x++) {
                recipe r = {.policy = "both",
                            .custom = &both,
                            .optimizer = kinds[x].name,
                            .options = kinds[x].o,
                            .lr = rates[1],
                            .n_stages = 5,
                            .stage = k,
                            .n_micro = t,
                            .n_blocks = 2 * (5 - k) + 1,
                            .n_batches = 14,
                            .on_the_fly = x % 2};
                line_run(&a, &r);
            }
}

static int n_sweeps;
static void counted_predict(const fr_sweep *s)
{
    n_sweeps++;
    fr_optim_find("sgd")->predict(s);
}

/* Sweeps besides the updates, of a stage with one block for predictions, which holds the last
 * requested one. */
static int sweeps_expected(const line *l, int n_batches)
{
    int t = l->r.n_micro, lead = line_lead(&l->r), held = 0, n = 0, ahead[2];
    bool is_xpipe = !strcmp(l->r.policy, "xpipe");
    for (int j = 0; j < n_batches * t + lead; j++) {
        fr_want f = {.ahead = 0}, g = {.ahead = 0};
        if (j < n_batches * t) l->policy.forward(&l->d.context, j % t, &f);
        if (j >= lead) l->policy.backward(&l->d.context, (j - lead) % t, &g);
        if (is_xpipe) { /* a block for each pass; bellwethers only, of versions after the first */
            bool is_new = j == 0 || (lead % t != 0 && j / t > (lead + t - 1) / t);
            if (j % t == 0 && f.ahead > 0 && is_new) n++;
            if (j == lead && g.ahead > 0 && !(lead == 0 && f.ahead == g.ahead)) n++;
            continue;
        }
        if (f.ahead > 0 && f.ahead != held) n++, held = f.ahead;
        if (g.ahead > 0 && g.ahead != held) n++, held = g.ahead;
        if (j < lead || (j - lead) % t != t - 1) continue;
        held = l->policy.after(&l->d.context, ahead) > 0 ? ahead[0] : 0;
    }
    return n;
}

/* A prediction that an update has written is not computed again. */
static void no_sweep_too_many(void **unused)
{
    (void)unused;
    const char *names[] = {"live",      "stash",       "spectrain", "xpipe",
                           "pipeoptim", "decay-aware", "pipemare"};
    fr_optimizer counted = *fr_optim_find("sgd");
    counted.predict = counted_predict;
    enum { BATCHES = 12 };
    for (size_t p = 0; p < sizeof names / sizeof *names; p++)
        for (int n = 1; n <= 6; n++)
            for (int k = 0; k < n; k++)
                for (int t = 1; t <= 4; t++) {
                    recipe r = {.policy = names[p],
                                .optimizer = "sgd",
                                .options = kinds[1].o,
                                .lr = rates[0],
                                .n_stages = n,
                                .stage = k,
                                .n_micro = t,
                                .exact = true};
                    line_open(&a, &r);
                    fr_store_free(a.store);
                    a.d.optimizer = &counted;
                    assert_int_equal(fr_store_create(a.ctx, &a.d, &a.store), FR_OK);
                    n_sweeps = 0;
                    line_segment(&a, 0, BATCHES);
                    int expected = sweeps_expected(&a, BATCHES);
                    if (n_sweeps != expected)
                        fail_msg("%s N %d k %d T %d: %d sweeps, expected %d", names[p], n, k, t,
                                 n_sweeps, expected);
                    if (t == 1 && strcmp(names[p], "spectrain")) assert_true(n_sweeps <= 2);
                    line_close(&a);
                }
}

static void far_then_near(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)context;
    *want = (fr_want){.base = FR_NEWEST, .ahead = micro == 0 ? 3 : 1};
}
static int near_only(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    ahead[0] = 1;
    return context ? 1 : 0;
}

/* A sweep takes the block with the oldest content, not the one that the update has just written. */
static void oldest_goes_first(void **unused)
{
    (void)unused;
    fr_optimizer counted = *fr_optim_find("sgd");
    counted.predict = counted_predict;
    const fr_policy far_and_near = {.name = "far and near",
                                    .forward = far_then_near,
                                    .backward = far_then_near,
                                    .after = near_only};
    recipe r = {.policy = "far and near",
                .custom = &far_and_near,
                .optimizer = "sgd",
                .options = kinds[1].o,
                .lr = rates[0],
                .n_stages = 1,
                .n_micro = 2,
                .n_blocks = 3};
    line_open(&a, &r);
    fr_store_free(a.store);
    a.d.optimizer = &counted;
    assert_int_equal(fr_store_create(a.ctx, &a.d, &a.store), FR_OK);
    n_sweeps = 0;
    line_segment(&a, 0, 10);
    assert_int_equal(n_sweeps, 10 + 1); /* the far one each time, the near one before any update */
    line_close(&a);
}

static void blocks_are_needed(void **unused)
{
    (void)unused;
    const char *names[] = {"stash", "spectrain-v2", "spectrain", "xpipe", "pipeoptim", "pipemare"};
    for (size_t p = 0; p < sizeof names / sizeof *names; p++)
        for (int t = 1; t <= 3; t += 2) {
            if (!strcmp(names[p], "xpipe") && t == 1) continue; /* the third one saves sweeps */
            recipe r = {.policy = names[p],
                        .optimizer = "sgd",
                        .options = kinds[1].o,
                        .lr = rates[0],
                        .n_stages = 5,
                        .stage = 2,
                        .n_micro = t};
            line_open(&a, &r);
            fr_store_free(a.store);
            a.d.n_blocks--;
            assert_int_equal(fr_store_create(a.ctx, &a.d, &a.store), FR_OK);
            fr_status status = FR_OK;
            fr_view view;
            for (int j = 0; j < 20 * t && status == FR_OK; j++) {
                status = fr_store_forward(a.store, j / t, j % t, &view);
                int i = j - 2;
                if (i < 0 || status != FR_OK) continue;
                status = fr_store_backward(a.store, i / t, i % t, &view);
                fr_store_done(a.store, i / t, i % t);
                if (status != FR_OK || i % t != t - 1) continue;
                fr_store_begin(a.store, i / t, 1);
                fr_store_range(a.store, 0, SIZE, a.given);
                status = fr_store_end(a.store, SIZE);
            }
            assert_int_equal(status, FR_INTERNAL);
            assert_non_null(strstr(fr_ctx_error(a.ctx), "stage 2"));
            assert_non_null(strstr(fr_ctx_error(a.ctx), "no free block"));
            assert_non_null(strstr(fr_ctx_error(a.ctx), names[p]));
            a.d.n_blocks++;
            line_close(&a);
        }
}

/* One stage: the bits of a plain optimizer. */
static void one_stage_is_single(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int t = 1; t <= 4; t++)
            for (int x = 0; x < N_KINDS; x++) {
                recipe r = {.policy = (*p)->name,
                            .optimizer = kinds[x].name,
                            .options = kinds[x].o,
                            .lr = rates[x % N_RATES],
                            .n_stages = 1,
                            .n_micro = t,
                            .n_batches = 12,
                            .lr_warmup = 5,
                            .on_the_fly = x % 2};
                line_run(&a, &r); /* bit for bit if nothing is predicted */
                assert_int_equal(a.n_ahead, 0);
            }
}

static void nothing_is_allocated(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++) {
        recipe r = {.policy = (*p)->name,
                    .optimizer = "adam",
                    .options = kinds[4].o,
                    .lr = rates[1],
                    .n_stages = 4,
                    .stage = 2,
                    .n_micro = 4,
                    .n_samples = 10};
        line_open(&a, &r);
        uint64_t before = fr__alloc_count();
        line_segment(&a, 0, 20);
        assert_int_equal(fr_store_reset(a.store, 20), FR_OK);
        fr_view view;
        for (int j = 0; j < 2; j++)
            assert_int_equal(fr_store_forward(a.store, 20, j, &view), FR_OK);
        fr_store_abandon(a.store);
        assert_true(fr__alloc_count() == before);
        line_close(&a);
    }
}

/* Micro-batches of an update share an id, so that derived layouts are reused. */
static void ids_are_shared(void **unused)
{
    (void)unused;
    const char *names[] = {"live", "spectrain", "xpipe", "stash", "pipeoptim"};
    for (size_t p = 0; p < sizeof names / sizeof *names; p++) {
        recipe r = {.policy = names[p],
                    .optimizer = "sgd",
                    .options = kinds[1].o,
                    .lr = rates[0],
                    .n_stages = 2,
                    .stage = 1,
                    .n_micro = 4};
        line_open(&a, &r);
        uint64_t last = 0;
        for (int batch = 0; batch < 3; batch++) {
            fr_view f[4], back[4];
            for (int micro = 0; micro < 4; micro++) {
                assert_int_equal(fr_store_forward(a.store, batch, micro, &f[micro]), FR_OK);
                assert_int_equal(fr_store_backward(a.store, batch, micro, &back[micro]), FR_OK);
                assert_true(f[micro].id == f[0].id && back[micro].id == back[0].id);
                if (micro < 3) fr_store_done(a.store, batch, micro);
            }
            assert_true(f[0].id > last && back[0].id > last);
            last = f[0].id > back[0].id ? f[0].id : back[0].id;
            line_update(&a, batch, &back[3]);
            fr_store_done(a.store, batch, 3);
        }
        line_close(&a);
    }
}

/* After a reset only the newest version is valid: a run cut in two by resets equals the plain
 * model. If the previous version is missing, the oldest one is used and its label shows it. */
static void resets(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++) {
        if (!strcmp((*p)->name, "double-buffer") || !strcmp((*p)->name, "pipemare")) continue;
        for (int k = 0; k < 4; k++) {
            recipe r = {.policy = (*p)->name,
                        .optimizer = "nadam",
                        .options = kinds[6].o,
                        .lr = rates[1],
                        .n_stages = 4,
                        .stage = k,
                        .n_micro = 2};
            line_open(&a, &r);
            line_segment(&a, 0, 5);
            assert_int_equal(fr_store_reset(a.store, 5), FR_OK);
            line_segment(&a, 5, 5);
            /* a run that ends early: three forwards that never come back */
            for (int j = 0; j < 4 - k; j++) line_forward(&a, 10 + j / 2, j % 2);
            fr_store_abandon(a.store);
            line_segment(&a, 10, 4);
            line_close(&a);
        }
    }
    recipe r = {.policy = "double-buffer",
                .optimizer = "sgd",
                .options = kinds[1].o,
                .lr = rates[0],
                .n_stages = 2,
                .n_micro = 2};
    fr_view view;
    line_open(&a, &r);
    line_segment(&a, 0, 5);
    assert_int_equal(fr_store_reset(a.store, 5), FR_OK);
    for (int j = 0; j < 2; j++) {
        assert_int_equal(fr_store_forward(a.store, 5, j, &view), FR_OK);
        assert_true(view.version == 5 && view.weights == fr_store_newest(a.store));
        assert_int_equal(fr_store_backward(a.store, 5, j, &view), FR_OK);
        assert_int_equal(view.version, 5);
        fr_store_done(a.store, 5, j);
    }
    line_update(&a, 5, NULL);
    line_segment(&a, 6, 4);
    line_close(&a);
}

/* A drift starts from zero. */
static void reset_drops_the_drift(void **unused)
{
    (void)unused;
    recipe r = {.policy = "pipemare",
                .optimizer = "sgd",
                .options = kinds[1].o,
                .lr = rates[0],
                .n_stages = 3,
                .n_micro = 1};
    line_open(&a, &r);
    line_segment(&a, 0, 8);
    assert_int_equal(fr_store_reset(a.store, 8), FR_OK);
    memset(a.delta[8], 0, sizeof a.delta[8]);
    line_segment(&a, 8, 8);
    line_close(&a);
}

static void faults_are_told(void **unused)
{
    (void)unused;
    recipe r = {.policy = "live",
                .optimizer = "sgd",
                .options = kinds[1].o,
                .lr = rates[0],
                .n_stages = 3,
                .stage = 1,
                .n_micro = 1};
    fr_view view;
    line_open(&a, &r);
#define TOLD(call, status, ...)                                            \
    do {                                                                   \
        assert_int_equal(call, status);                                    \
        const char *words[] = {__VA_ARGS__};                               \
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)          \
            if (!strstr(fr_ctx_error(a.ctx), words[i]))                    \
                fail_msg("no '%s' in: %s", words[i], fr_ctx_error(a.ctx)); \
        fr_ctx_clear(a.ctx);                                               \
    } while (0)
    TOLD(fr_store_backward(a.store, 0, 0, &view), FR_INTERNAL, "stage 1", "no forward");
    TOLD(fr_store_end(a.store, SIZE), FR_INTERNAL, "never began");
    for (int j = 0; j < 2; j++) assert_int_equal(fr_store_forward(a.store, j, 0, &view), FR_OK);
    TOLD(fr_store_forward(a.store, 2, 0, &view), FR_INTERNAL, "2 micro-batches", "at most 2");
    fr_store_begin(a.store, 0, 1);
    fr_store_range(a.store, 0, SIZE - 1, a.given);
    TOLD(fr_store_end(a.store, SIZE), FR_INTERNAL, "52 weights", "expected 53");
    fr_store_begin(a.store, 3, 1);
    fr_store_range(a.store, 0, SIZE, a.given);
    TOLD(fr_store_end(a.store, SIZE), FR_INTERNAL, "mini-batch 3", "version 0");

    fr_store *none;
    fr_store_desc d = a.d;
    d.policy = fr_policy_find("double-buffer");
    TOLD(fr_store_create(a.ctx, &d, &none), FR_INVALID, "stage 1 of 3", "train.micro");
    d = a.d, d.options.momentum = 2;
    TOLD(fr_store_create(a.ctx, &d, &none), FR_INVALID, "sgd", "momentum");
    d = a.d, d.state[0] = NULL;
    TOLD(fr_store_create(a.ctx, &d, &none), FR_INTERNAL, "block is missing");
    d = a.d, d.policy = fr_policy_find("pipemare"), d.n_blocks = 2, d.drift = NULL;
    TOLD(fr_store_create(a.ctx, &d, &none), FR_INTERNAL, "block is missing");
    d = a.d, d.n_blocks = 0;
    TOLD(fr_store_create(a.ctx, &d, &none), FR_INTERNAL, "and a block are needed");
    d = a.d, d.context.n_slots = 0;
    TOLD(fr_store_create(a.ctx, &d, &none), FR_INTERNAL, "0 slots");
    assert_null(none);
    line_close(&a);
}

static void memory_runs_out(void **unused)
{
    (void)unused;
    recipe r = {.policy = "spectrain",
                .optimizer = "sgd",
                .options = kinds[1].o,
                .lr = rates[0],
                .n_stages = 3,
                .n_micro = 1,
                .n_samples = 8};
    line_open(&a, &r);
    fr_store *s = NULL;
    int n = 0;
    for (;; n++) {
        fr__alloc_fail_after(n);
        fr_status status = fr_store_create(a.ctx, &a.d, &s);
        fr__alloc_fail_after(-1);
        if (status == FR_OK) break;
        assert_int_equal(status, FR_NO_MEMORY);
        assert_null(s);
        fr_ctx_clear(a.ctx);
    }
    assert_true(n >= 5);
    fr_store_free(s);
    line_close(&a);
}

/* A stage without parameters is served too. */
static void no_weights_at_all(void **unused)
{
    (void)unused;
    recipe r = {.policy = "spectrain",
                .optimizer = "sgd",
                .options = kinds[1].o,
                .lr = rates[0],
                .n_stages = 3,
                .n_micro = 1};
    line_open(&a, &r);
    fr_store_desc d = a.d;
    d.n = d.stride = 0, d.blocks = NULL, d.state[0] = NULL, d.n_samples = 5;
    fr_store *s;
    fr_view view;
    assert_int_equal(fr_store_create(a.ctx, &d, &s), FR_OK);
    for (int j = 0; j < 4; j++) {
        assert_int_equal(fr_store_forward(s, j, 0, &view), FR_OK);
        assert_true(view.version == j && view.ahead == 2);
        assert_int_equal(fr_store_backward(s, j, 0, &view), FR_OK);
        fr_store_done(s, j, 0);
        fr_store_begin(s, j, 1);
        assert_int_equal(fr_store_end(s, 0), FR_OK);
    }
    assert_int_equal(fr_store_error(s)->n_values, 0);
    fr_store_free(s);
    line_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeping_and_predicting), cmocka_unit_test(no_sweep_too_many),
        cmocka_unit_test(oldest_goes_first),      cmocka_unit_test(follows_the_model),
        cmocka_unit_test(follows_the_lead),       cmocka_unit_test(fused_is_separate),
        cmocka_unit_test(blocks_suffice),         cmocka_unit_test(blocks_are_needed),
        cmocka_unit_test(one_stage_is_single),    cmocka_unit_test(nothing_is_allocated),
        cmocka_unit_test(ids_are_shared),         cmocka_unit_test(resets),
        cmocka_unit_test(reset_drops_the_drift),  cmocka_unit_test(faults_are_told),
        cmocka_unit_test(memory_runs_out),        cmocka_unit_test(no_weights_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
