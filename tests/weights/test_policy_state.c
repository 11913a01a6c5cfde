/* test_policy_state.c -- a run saved at a drain and restored in another store continues bit for
 * bit; weights changed from outside are used from the next pass on. */
#include "weights/line.h"

static float *policy_state(const fr_store *s, bool *is_valid)
{
    fr_policy_state state = fr_store_policy_state(s);
    *is_valid = state.is_valid;
    return state.at;
}

static const struct {
    const char *name;
    fr_optim_options o;
} kinds[] = {
    {"sgd", {.lr = 0.1, .momentum = 0.9}},
    {"adam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1}},
};

static line a, b;

static recipe recipe_of(const char *policy, int n, int k, int t, int kind)
{
    return (recipe){.policy = policy,
                    .optimizer = kinds[kind].name,
                    .options = kinds[kind].o,
                    .lr = {.name = "cosine", .total = 30, .min_ratio = 0.1},
                    .n_stages = n,
                    .stage = k,
                    .n_micro = t,
                    .lr_warmup = 9};
}

static void names(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int n = 1; n <= 3; n += 2)
            for (int k = 0; k < n; k++) {
                fr_store_desc d = {
                    .policy = *p,
                    .context = {.stage = k, .n_stages = n, .lead = n - 1 - k, .n_micro = 4},
                    .n_blocks = k < n - 1 ? 2 : 1};
                const char *name = fr_store_policy_state_name(&d), *expected = NULL;
                if (!strcmp((*p)->name, "double-buffer") && n > 1) expected = "previous";
                if (!strcmp((*p)->name, "pipemare") && k < n - 1) expected = "drift";
                assert_int_equal(name != NULL, expected != NULL);
                if (name) assert_string_equal(name, expected);
            }
    assert_string_equal(
        fr_store_policy_state_name(&(fr_store_desc){.policy = fr_policy_find("double-buffer")}),
        "previous");
    assert_string_equal(
        fr_store_policy_state_name(&(fr_store_desc){.policy = fr_policy_find("pipemare")}),
        "drift");
    assert_null(fr_store_policy_state_name(&(fr_store_desc){.policy = fr_policy_find("stash")}));
}

/* Copy the content of a checkpoint of line a, at a drain, to the fresh line b; `late`: set b's
 * update number last. */
static void carry_over(bool with_memory, bool late)
{
    bool is_valid, was_valid;
    float *from = policy_state(a.store, &was_valid);
    device_put(b.dev, fr_store_newest(b.store), line_read(&a, fr_store_newest(a.store)), SIZE);
    for (int i = 0; i < FR_MAX_OPTIM_STATE; i++)
        device_put(b.dev, b.state[i], line_read(&a, a.state[i]), SIZE);
    memcpy(b.w, a.w, sizeof a.w);
    memcpy(b.m, a.m, sizeof a.m);
    memcpy(b.v, a.v, sizeof a.v);
    memcpy(b.delta, a.delta, sizeof a.delta);
    b.now = a.now;
    assert_int_equal(fr_store_reset(b.store, late ? 0 : a.now), FR_OK);
    float *to = policy_state(b.store, &is_valid);
    assert_int_equal(to != NULL, from != NULL);
    assert_int_equal(to != NULL, fr_store_policy_state_name(&b.d) != NULL);
    if (to && with_memory) {
        assert_true(was_valid && to != fr_store_newest(b.store));
        device_put(b.dev, to, line_read(&a, from), SIZE);
        fr_store_set_policy_state(b.store);
    }
    if (late) fr_store_renumber(b.store, a.now);
    assert_int_equal(fr_store_version(b.store), a.now);
    if (!to || !with_memory) return;
    assert_ptr_equal(policy_state(b.store, &is_valid), to);
    assert_true(is_valid);
    assert_memory_equal(line_read(&b, to), line_read(&a, from), SIZE * sizeof(float));
}

static void goes_on(const recipe *r, int n_before, bool late)
{
    enum { AFTER = 8 };
    line_open(&a, r);
    line_open(&b, r);
    line_segment(&a, 0, n_before);
    carry_over(true, late);
    a.digest = b.digest = 0;
    line_segment(&a, n_before, AFTER);
    line_segment(&b, n_before, AFTER); /* each view also as the model says */
    assert_true(a.digest == b.digest);
    assert_memory_equal(line_read(&a, fr_store_newest(a.store)),
                        line_read(&b, fr_store_newest(b.store)), SIZE * sizeof(float));
    for (int i = 0; i < FR_MAX_OPTIM_STATE; i++)
        assert_memory_equal(line_read(&a, a.state[i]), line_read(&b, b.state[i]),
                            SIZE * sizeof(float));
    line_close(&a);
    line_close(&b);
}

static void saved_runs_go_on(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int n = 1; n <= 4; n++)
            for (int k = 0; k < n; k++)
                for (int t = 1; t <= 5; t += 2)
                    for (int kind = 0; kind < 2; kind++) {
                        recipe r = recipe_of((*p)->name, n, k, t, kind);
                        fr_policy_context first = {.n_stages = n, .lead = n - 1, .n_micro = t};
                        if ((*p)->check && (*p)->check(&first)) continue;
                        r.on_the_fly = (k + t) % 2;
                        for (int n_before = 1; n_before < 4; n_before++)
                            goes_on(&r, n_before, n_before % 2);
                    }
}

/* Views from here on, without line_check. */
static uint64_t digest_on(line *l, int64_t first_batch)
{
    fr_view view;
    l->digest = 0;
    for (int batch = 0; batch < 3; batch++) {
        for (int micro = 0; micro < l->r.n_micro; micro++) {
            assert_int_equal(fr_store_forward(l->store, first_batch + batch, micro, &view), FR_OK);
            line_fold(l, line_read(l, view.weights), SIZE * sizeof(float));
            assert_int_equal(fr_store_backward(l->store, first_batch + batch, micro, &view), FR_OK);
            line_fold(l, line_read(l, view.weights), SIZE * sizeof(float));
            fr_store_done(l->store, first_batch + batch, micro);
        }
        line_update(l, first_batch + batch, NULL);
    }
    return l->digest;
}

/* Without it the run would continue differently: all saved state is necessary. */
static void memory_is_needed(void **unused)
{
    (void)unused;
    const char *policies[] = {"double-buffer", "pipemare"};
    for (int p = 0; p < 2; p++)
        for (int k = 0; k < 2; k++) {
            recipe r = recipe_of(policies[p], 3, k, 3, 0);
            line_open(&a, &r);
            line_open(&b, &r);
            line_segment(&a, 0, 5);
            carry_over(false, k);
            assert_true(digest_on(&a, 5) != digest_on(&b, 5));
            line_close(&a);
            line_close(&b);
        }
}

/* Before the first update there is no previous version: the block can be written but is not valid.
 */
static void no_previous_yet(void **unused)
{
    (void)unused;
    recipe r = recipe_of("double-buffer", 2, 0, 2, 0);
    bool is_valid = true;
    float huge[SIZE];
    line_open(&a, &r);
    float *room = policy_state(a.store, &is_valid);
    assert_true(room && room != fr_store_newest(a.store) && !is_valid);
    for (int i = 0; i < SIZE; i++) huge[i] = 1e30f;
    device_put(a.dev, room, huge, SIZE);
    line_segment(&a, 0, 4); /* reads none of it */
    assert_true(policy_state(a.store, &is_valid) != fr_store_newest(a.store) && is_valid);
    assert_memory_equal(line_read(&a, policy_state(a.store, &is_valid)), a.w[3], sizeof a.w[3]);
    assert_int_equal(fr_store_reset(a.store, 4), FR_OK);
    assert_non_null(policy_state(a.store, &is_valid));
    assert_false(is_valid);
    line_close(&a);
}

/* --- changed from outside --- */

static void change(line *l, uint32_t stream)
{
    float *w = fr_store_newest(l->store);
    fr_view before, after;
    assert_int_equal(fr_store_look(l->store, &before), FR_OK);
    device_get(l->dev, l->w[l->now], w, SIZE);
    for (int i = 0; i < SIZE; i++) l->w[l->now][i] += line_noise(stream, (uint64_t)i);
    device_put(l->dev, w, l->w[l->now], SIZE);
    fr_store_changed(l->store);
    assert_int_equal(fr_store_look(l->store, &after), FR_OK);
    assert_true(after.id > before.id && after.version == before.version && after.ahead == 0);
    assert_ptr_equal(after.weights, before.weights);
    assert_int_equal(fr_store_version(l->store), l->now);
}

/* After every other update, with the pipeline full: passes must read the weights of the model. */
static void changes_count_at_once(void **unused)
{
    (void)unused;
    enum { BATCHES = 12 };
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int n = 1; n <= 4; n++)
            for (int k = 0; k < n; k++)
                for (int t = 1; t <= 5; t += 2) {
                    recipe r = recipe_of((*p)->name, n, k, t, (n + k) % 2);
                    fr_policy_context first = {.n_stages = n, .lead = n - 1, .n_micro = t};
                    if ((*p)->check && (*p)->check(&first)) continue;
                    r.on_the_fly = t == 3;
                    r.n_samples = 6;
                    line_open(&a, &r);
                    int total = BATCHES * t, lead = line_lead(&r);
                    for (int j = 0; j < total + lead; j++) {
                        int64_t now = a.now;
                        if (j < total) line_forward(&a, j / t, j % t);
                        if (j >= lead) line_backward(&a, (j - lead) / t, (j - lead) % t);
                        if (a.now > now && a.now % 2) change(&a, (uint32_t)(50 + a.now));
                    }
                    change(&a, 99);
                    line_segment(&a, BATCHES, 3);
                    line_close(&a);
                }
}

/* A prediction from replaced weights is dropped; a new one is compared with the later weights. */
static void guesses_are_made_anew(void **unused)
{
    (void)unused;
    enum { BEFORE = 4, BATCHES = 10, SAMPLES = 7, STEP = SIZE / SAMPLES };
    recipe r = recipe_of("spectrain", 3, 0, 1, 0);
    r.n_samples = SAMPLES;
    line_open(&a, &r);
    line_segment(&a, 0, BEFORE);
    line_forward(&a, BEFORE, 0);
    fr_store_abandon(a.store);
    change(&a, 77);
    line_segment(&a, BEFORE, BATCHES - BEFORE);
    double predicted = 0, stale = 0;
    int64_t n = 0;
    for (int64_t last = -1, j = 0; j < BATCHES; j++) {
        int64_t t = a.of_forward[j].version;
        if (t == last) continue;
        last = t, n += SAMPLES;
        for (int i = 0; i < SAMPLES; i++) {
            double came = a.w[t + 2][i * STEP];
            predicted += pow(line_predict(&a, t, 2, i * STEP) - came, 2);
            stale += pow((double)a.w[t][i * STEP] - came, 2);
        }
    }
    const fr_prediction_error *e = fr_store_error(a.store);
    assert_int_equal(e->n_values, n);
    assert_true(fabs(e->predicted - predicted) < 1e-5 * predicted);
    assert_true(fabs(e->stale - stale) < 1e-5 * stale);
    line_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(saved_runs_go_on),
        cmocka_unit_test(memory_is_needed),
        cmocka_unit_test(no_previous_yet),
        cmocka_unit_test(changes_count_at_once),
        cmocka_unit_test(guesses_are_made_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
