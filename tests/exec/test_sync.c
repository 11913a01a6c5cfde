/* test_sync.c -- sync rules without an engine: R stores on R threads with random delays, beside a
 * plain model. Gradients are one-hot where it matters: each update of each replica has its own
 * weight, so that weights show the updates that they contain. */
#include "exec/sync.h"

#include "base/philox.h"
#include "base/thread.h"
#include "support/backend.h"
#include "support/check.h"
#include "support/quiet.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

static float *policy_state(const fr_store *s, bool *is_valid)
{
    fr_policy_state state = fr_store_policy_state(s);
    *is_valid = state.is_valid;
    return state.at;
}

enum {
    MAX_R = 4,
    MAX_UPDATES = 24,
    N = MAX_R * MAX_UPDATES,
    MAX_WEIGHT_BLOCKS = 4,
    N_ROWS = MAX_WEIGHT_BLOCKS + 3,
    GUARD = 64
};

typedef struct setting {
    const char *rule;
    int n_replicas, every, distance, n_updates;
    const char *policy;
    fr_optim_options options;
    int64_t first;      /* mini-batch that the call begins with */
    int stops, stop_at; /* replica that stops before that mini-batch; -1: none */
    bool is_one_hot;
    int held_for;  /* all replicas except the first wait until the first has made this many updates
                    */
    uint64_t seed; /* of delays */
} setting;

typedef struct replica {
    struct scene *scene;
    int nth;
    fr_device *dev;
    fr_store *store;
    fr__syncing sync;
    /* On the device: */
    float *weights;               /* (MAX_WEIGHT_BLOCKS, N) */
    float *state, *drift, *given; /* (N) each, behind them; given: the gradient */
    char *memory;                 /* of the rule */
    float copy[N];                /* here: what read_device was asked for last */
    float seen[MAX_UPDATES][N];   /* newest weights before each update */
    _Atomic int n_made;
    bool is_told; /* that some replica has stopped */
    int n_predicted;
    double worst; /* prediction, of those that a forward read */
    fr__exec_hooks hooks;
    _Atomic int is_waiting;
    uint64_t sent;
    fr_status status;
    pthread_t thread;
} replica;

typedef struct scene {
    setting t;
    fr_ctx *ctx;
    fr_arena arena;
    fr_group *group;
    int members[MAX_R];
    replica r[MAX_R];
} scene;

static float noise(uint32_t stream, uint64_t i)
{
    uint32_t r[4];
    fr__random4(3, FR_STREAM_SYNTHETIC, stream, i, 0, r);
    return 2 * fr__unit_float(r[0]) - 1;
}

static float grad_at(const setting *t, int q, int update, int i)
{
    if (t->is_one_hot) return i == q * MAX_UPDATES + update ? 1.0f : 0.0f;
    return noise((uint32_t)(10 + q), (uint64_t)(update * N + i));
}

/* N floats of the device, until the next call. */
static const float *read_device(replica *r, const float *from)
{
    device_get(r->dev, r->copy, from, N);
    return r->copy;
}

static const float *newest_of(replica *r) { return read_device(r, fr_store_newest(r->store)); }

static void waits(void *user, bool begins) { atomic_store(&((replica *)user)->is_waiting, begins); }

static void posted(void *user, fr__sum_kind kind, int k, double share, size_t bytes, bool is_alive)
{
    (void)kind, (void)k, (void)share, (void)is_alive;
    ((replica *)user)->sent += bytes;
}

/* --- a scene ---------------------------------------------------------------------------------- */

static void open_replica(scene *s, int q)
{
    replica *r = &s->r[q];
    const setting *t = &s->t;
    r->scene = s, r->nth = q;
    r->hooks = (fr__exec_hooks){.user = r, .waits = waits, .posted = posted};
    assert_ok(s->ctx, fr_device_open(s->ctx, test_backend("ref"), &(fr_device_desc){.n_threads = 1},
                                     &r->dev));
    r->weights = device_floats(r->dev, N_ROWS * N);
    r->state = r->weights + MAX_WEIGHT_BLOCKS * N;
    r->drift = r->state + N;
    r->given = r->drift + N;
    for (int i = 0; i < N; i++) r->copy[i] = t->is_one_hot ? 0 : noise(1, (uint64_t)i);
    device_put(r->dev, r->weights, r->copy, N);
    bool is_two = strcmp(t->policy, "live") != 0; /* stage 0 of 2 */
    bool is_predicted = strcmp(t->policy, "pipeoptim") == 0;
    fr_store_desc d = {.policy = fr_policy_find(t->policy),
                       .context = {.n_stages = is_two ? 2 : 1,
                                   .lead = is_two,
                                   .n_micro = is_predicted ? 1 : 2,
                                   .n_slots = 2},
                       .n_blocks = is_two ? 2 : 1,
                       .device = r->dev,
                       .optimizer = fr_optim_find("sgd"),
                       .options = t->options,
                       .lr = {.name = "constant"},
                       .n = N,
                       .blocks = r->weights,
                       .stride = N,
                       .state = {r->state},
                       .drift = r->drift};
    assert_ok(s->ctx, fr_store_create(s->ctx, &d, &r->store));
    assert_int_equal(fr_store_reset(r->store, t->first), FR_OK);
    r->sync = (fr__syncing){.rule = fr__sync_find(t->rule),
                            .options = {t->rule, t->every, t->distance},
                            .transport = fr_transport_find("threads"),
                            .group = s->group,
                            .nth = q,
                            .n_members = t->n_replicas,
                            .members = s->members,
                            .n = N,
                            .n_state = 1,
                            .device = r->dev,
                            .store = r->store,
                            .state = {r->state},
                            .hooks = &r->hooks};
    assert_non_null(r->sync.rule);
    assert_true(fr__sync_plan(&r->sync, &s->arena));
    size_t bytes = r->sync.bytes + GUARD;
    char *trash = malloc(bytes);
    assert_non_null(trash);
    memset(trash, 0x5a, bytes);
    r->memory = (char *)device_floats(r->dev, bytes / sizeof(float));
    assert_ok(s->ctx, fr_device_upload(r->dev, r->memory, trash, bytes));
    free(trash);
    fr__sync_place(&r->sync, r->memory);
}

static void open_scene(scene *s, const setting *t)
{
    fr__syncing *of[MAX_R];
    memset(s, 0, sizeof *s);
    s->t = *t;
    s->ctx = fr_ctx_create();
    assert_non_null(s->ctx);
    assert_ok(s->ctx, fr_transport_find("threads")->open(s->ctx, NULL, t->n_replicas, &s->group));
    for (int q = 0; q < t->n_replicas; q++) s->members[q] = q;
    for (int q = 0; q < t->n_replicas; q++) {
        open_replica(s, q);
        of[q] = &s->r[q].sync;
    }
    assert_ok(s->ctx, fr__sync_open(s->ctx, &s->arena, of, of[0]));
}

static void close_scene(scene *s)
{
    fr_transport_find("threads")->close(s->group);
    for (int q = 0; q < s->t.n_replicas; q++) {
        replica *r = &s->r[q];
        char guard[GUARD];
        assert_ok(s->ctx, fr_device_download(r->dev, guard, r->memory + r->sync.bytes, GUARD));
        for (size_t i = 0; i < GUARD; i++) assert_int_equal(guard[i], 0x5a);
        fr_device_release(r->dev, r->memory, r->sync.bytes + GUARD);
        fr_device_release(r->dev, r->weights, N_ROWS * N * sizeof(float));
        fr_store_free(r->store);
        fr_device_close(r->dev);
    }
    fr__arena_fini(&s->arena);
    fr_ctx_free(s->ctx);
}

static fr_status update(replica *r, int64_t batch)
{
    const setting *t = &r->scene->t;
    float grad[N];
    device_get(r->dev, r->seen[r->n_made], fr_store_newest(r->store), N);
    for (int i = 0; i < N; i++) grad[i] = grad_at(t, r->nth, r->n_made, i);
    r->n_made++;
    device_put(r->dev, r->given, grad, N);
    fr_store_begin(r->store, batch, 1);
    fr_store_range(r->store, 0, N, r->given);
    return fr_store_end(r->store, N);
}

/* The next forward reads a prediction from the weights after the exchange. */
static fr_status look_ahead(replica *r, int64_t batch)
{
    const setting *t = &r->scene->t;
    float newest[N], state[N];
    fr_view view;
    device_get(r->dev, newest, fr_store_newest(r->store), N);
    device_get(r->dev, state, r->state, N);
    FR_TRY(fr_store_forward(r->store, batch, 0, &view));
    fr_store_done(r->store, batch, 0);
    const float *weights = read_device(r, view.weights);
    for (int i = 0; i < N && view.ahead == 1; i++) {
        double expected = (double)newest[i] - t->options.lr * (double)state[i];
        r->worst = fmax(r->worst, fabs((double)weights[i] - expected));
    }
    r->n_predicted += view.ahead == 1;
    return FR_OK;
}

static fr_status walk(replica *r)
{
    const setting *t = &r->scene->t;
    bool is_alive = true;
    FR_TRY(fr__sync_begin(&r->sync));
    while (r->nth > 0 && atomic_load(&r->scene->r[0].n_made) < t->held_for) {
        if (quiet_now() && atomic_load(&r->scene->r[0].is_waiting))
            return fr_fail(r->scene->ctx, FR_INTERNAL, "the first one waits");
        fr__sleep_ns(1000000);
    }
    for (int64_t batch = t->first; batch < t->first + t->n_updates; batch++) {
        uint32_t x[4];
        bool all_alive;
        fr__random4(t->seed, FR_STREAM_SYNTHETIC, (uint32_t)r->nth, (uint64_t)batch, 0, x);
        if (t->seed && x[0] % 3 == 0) fr__sleep_ns(x[1] % 400000);
        is_alive &= !(r->nth == t->stops && batch == t->stop_at);
        if (is_alive) FR_TRY(update(r, batch));
        FR_TRY(fr__sync_stepped(&r->sync, batch, is_alive, &all_alive));
        if (!all_alive) r->is_told = true, is_alive = false;
        if (strcmp(t->policy, "pipeoptim") == 0) FR_TRY(look_ahead(r, batch + 1));
    }
    return fr__sync_drain(&r->sync, t->stops < 0 ? t->first + t->n_updates : t->stop_at);
}

static void *run_replica(void *arg)
{
    replica *r = arg;
    r->status = walk(r);
    /* the others would wait for it for ever */
    if (r->status != FR_OK) fr_transport_find("threads")->abort(r->scene->group);
    return NULL;
}

static void run(scene *s, const setting *t)
{
    open_scene(s, t);
    for (int q = 0; q < t->n_replicas; q++)
        assert_int_equal(pthread_create(&s->r[q].thread, NULL, run_replica, &s->r[q]), 0);
    for (int q = 0; q < t->n_replicas; q++) pthread_join(s->r[q].thread, NULL);
    for (int q = 0; q < t->n_replicas; q++) assert_ok(s->ctx, s->r[q].status);
    /* All replicas are equal, to the bit. */
    replica *first = &s->r[0];
    bool is_valid, is_first_valid;
    float *memory = policy_state(first->store, &is_first_valid);
    for (int q = 1; q < t->n_replicas; q++) {
        replica *r = &s->r[q];
        assert_memory_equal(newest_of(r), newest_of(first), N * sizeof(float));
        assert_memory_equal(read_device(r, r->state), read_device(first, first->state),
                            N * sizeof(float));
        assert_int_equal(fr_store_version(r->store), fr_store_version(first->store));
        float *other = policy_state(r->store, &is_valid);
        assert_int_equal(is_valid, is_first_valid);
        if (memory)
            assert_memory_equal(read_device(r, other), read_device(first, memory),
                                N * sizeof(float));
        if (t->stops < 0) assert_int_equal(s->r[q].sent, first->sent);
    }
}

static scene a, b;

/* --- which updates are in which weights ------------------------------------------------------- */

/* The share of update `update` of replica `of`: 1 all of it, 1 / R its share of a mean, 0 nothing.
 */
static double share(const replica *r, const float *weights, int of, int update)
{
    double lr = r->scene->t.options.lr;
    return -(double)weights[of * MAX_UPDATES + update] / lr;
}

/* Before own update t of wave c the weights contain the waves of others up to c - 1 - D as means,
 * and no later ones, whichever replica was faster; own later waves are contained in full. */
static void check_wave(const replica *r, int t)
{
    const setting *s = &r->scene->t;
    int n = s->n_replicas, lacking = 0;
    int wave = t / s->every, n_common = (wave - s->distance) * s->every; /* updates */
    for (int of = 0; of < n; of++)
        for (int u = 0; u < s->n_updates; u++) {
            double expected = u < n_common ? 1.0 / n : of == r->nth && u < t ? 1 : 0;
            double found = share(r, r->seen[t], of, u);
            if (fabs(found - expected) > 1e-5)
                fail_msg("R %d E %d D %d, replica %d before update %d: %g of update %d of replica "
                         "%d, expected %g",
                         n, s->every, s->distance, r->nth, t, found, u, of, expected);
            if (of != r->nth && u < t && found == 0) lacking = lacking > t - u ? lacking : t - u;
        }
    /* HetPipe's bound, (D + 1)(s_local + 1) + s_local - 1, with nothing else in flight and waves of
     * E updates. */
    assert_true(lacking <= (s->distance + 1) * s->every + (1 - 1) - 1);
    if (t == s->n_updates - 1 && n > 1 && s->n_updates > (s->distance + 1) * s->every)
        assert_int_equal(lacking, t - n_common);
}

static void waves_come_in_late_but_in_time(void **unused)
{
    (void)unused;
    for (int n = 2; n <= MAX_R; n++)
        for (int every = 1; every <= 3; every++)
            for (int distance = 0; distance <= 3; distance++) {
                setting t = {.rule = "wsp",
                             .n_replicas = n,
                             .every = every,
                             .distance = distance,
                             .n_updates = 5 * every + every / 2 + distance,
                             .policy = "live",
                             .options = {.lr = 0.5},
                             .stops = -1,
                             .is_one_hot = true,
                             .seed = (uint64_t)(n + every * 10 + distance * 100)};
                run(&a, &t);
                for (int q = 0; q < n; q++) {
                    const float *end = newest_of(&a.r[q]);
                    for (int u = 0; u < t.n_updates; u++) check_wave(&a.r[q], u);
                    for (int of = 0; of < n; of++)
                        for (int u = 0; u < t.n_updates; u++)
                            assert_true(fabs(share(&a.r[q], end, of, u) - 1.0 / n) < 1e-5);
                }
                close_scene(&a);
            }
}

static void means_come_every_so_often(void **unused)
{
    (void)unused;
    for (int n = 2; n <= MAX_R; n++)
        for (int every = 1; every <= 4; every++) {
            int first = every - 1; /* not at a multiple: counted over the run, not the call */
            setting t = {.rule = "average",
                         .n_replicas = n,
                         .every = every,
                         .n_updates = 11,
                         .policy = "live",
                         .options = {.lr = 0.5},
                         .first = first,
                         .stops = -1,
                         .is_one_hot = true,
                         .seed = 9};
            run(&a, &t);
            for (int q = 0; q < n; q++)
                for (int u = 0; u < 11; u++) {
                    int n_common = (first + u) / every * every - first;
                    for (int of = 0; of < n; of++)
                        for (int v = 0; v < 11; v++) {
                            double expected = v < n_common ? 1.0 / n : of == q && v < u ? 1 : 0;
                            assert_true(fabs(share(&a.r[q], a.r[q].seen[u], of, v) - expected) <
                                        1e-5);
                        }
                }
            close_scene(&a);
        }
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* With an exchange after each update of plain sgd: steps along the mean gradient. */
static void every_update_is_data_parallelism(void **unused)
{
    (void)unused;
    for (int n = 2; n <= MAX_R; n++)
        for (int x = 0; x < 2; x++) {
            setting t = {.rule = x ? "wsp" : "average",
                         .n_replicas = n,
                         .every = 1,
                         .n_updates = 20,
                         .policy = "live",
                         .options = {.lr = 0.1},
                         .stops = -1};
            run(&a, &t);
            for (int i = 0; i < N; i++) {
                double w = (double)noise(1, (uint64_t)i);
                for (int u = 0; u < 20; u++) {
                    double mean = 0;
                    for (int q = 0; q < n; q++) mean += (double)grad_at(&t, q, u, i) / n;
                    assert_true(fabs((double)a.r[n - 1].seen[u][i] - w) < 3e-6);
                    w -= 0.1 * mean;
                }
                assert_true(fabs((double)newest_of(&a.r[0])[i] - w) < 3e-6);
            }
            close_scene(&a);
        }
}

/* Momentum is each replica's own until the drain, where it becomes the mean. */
static void states_agree_at_a_drain(void **unused)
{
    (void)unused;
    setting t = {.rule = "average",
                 .n_replicas = 3,
                 .every = 5,
                 .n_updates = 12,
                 .policy = "live",
                 .options = {.lr = 0.1, .momentum = 0.9},
                 .stops = -1};
    run(&a, &t);
    for (int i = 0; i < N; i++) {
        double w[3], v[3] = {0}, mean_w = 0, mean_v = 0;
        for (int q = 0; q < 3; q++) w[q] = (double)noise(1, (uint64_t)i);
        for (int u = 0; u < 12; u++) {
            for (int q = 0; q < 3; q++) {
                v[q] = 0.9 * v[q] + (double)grad_at(&t, q, u, i);
                w[q] -= 0.1 * v[q];
            }
            if ((u + 1) % 5 == 0) w[0] = w[1] = w[2] = (w[0] + w[1] + w[2]) / 3;
        }
        for (int q = 0; q < 3; q++) mean_w += w[q] / 3, mean_v += v[q] / 3;
        assert_true(fabs((double)newest_of(&a.r[2])[i] - mean_w) < 1e-5);
        assert_true(fabs((double)read_device(&a.r[2], a.r[2].state)[i] - mean_v) < 1e-5);
    }
    close_scene(&a);
}

/* The bits, also those of policy state, do not depend on which replica is late. */
static void delays_change_nothing(void **unused)
{
    (void)unused;
    const char *policies[] = {"live", "double-buffer", "pipemare", "stash"};
    for (int p = 0; p < 4; p++)
        for (int x = 0; x < 4; x++) {
            setting t = {.rule = x ? "wsp" : "average",
                         .n_replicas = 3,
                         .every = 2,
                         .distance = x ? x - 1 : 0,
                         .n_updates = 15,
                         .policy = policies[p],
                         .options = {.lr = 0.1, .momentum = 0.9},
                         .stops = -1};
            bool is_valid;
            run(&a, &t);
            t.seed = 77 + (uint64_t)x;
            run(&b, &t);
            for (int q = 0; q < 3; q++)
                assert_memory_equal(a.r[q].seen, b.r[q].seen, sizeof a.r[q].seen);
            assert_memory_equal(newest_of(&a.r[0]), newest_of(&b.r[1]), N * sizeof(float));
            float *memory = policy_state(a.r[0].store, &is_valid);
            assert_int_equal(memory != NULL, p == 1 || p == 2);
            assert_int_equal(is_valid, p == 1 || p == 2);
            assert_true(a.r[0].sent > 0);
            close_scene(&a);
            close_scene(&b);
        }
}

static void predictions_are_made_anew(void **unused)
{
    (void)unused;
    for (int x = 0; x < 4; x++) {
        setting t = {.rule = x ? "wsp" : "average",
                     .n_replicas = 2,
                     .every = 2,
                     .distance = x ? x - 1 : 0,
                     .n_updates = 12,
                     .policy = "pipeoptim",
                     .options = {.lr = 0.1, .momentum = 0.9},
                     .stops = -1};
        run(&a, &t);
        for (int q = 0; q < 2; q++) {
            assert_int_equal(a.r[q].n_predicted, 12);
            assert_true(a.r[q].worst < 1e-6);
        }
        close_scene(&a);
    }
}

/* A replica makes D + 1 waves, or the updates up to a mean, before it waits for others. */
static void nobody_waits_too_early(void **unused)
{
    (void)unused;
    for (int x = 0; x < 4; x++) {
        int distance = x ? x - 1 : 0;
        setting t = {.rule = x ? "wsp" : "average",
                     .n_replicas = 2,
                     .every = 3,
                     .distance = distance,
                     .n_updates = 18,
                     .policy = "live",
                     .options = {.lr = 0.1},
                     .stops = -1,
                     .held_for = (distance + 1) * 3};
        run(&a, &t);
        assert_int_equal(a.r[0].sync.rule->slack(&a.r[0].sync.options), t.held_for);
        close_scene(&a);
    }
}

/* --- one stops -------------------------------------------------------------------------------- */

/* No replica hangs, all are notified, and afterwards all hold the mean of all updates made, each
 * counted once. */
static void one_that_stops_stops_all(void **unused)
{
    (void)unused;
    for (int x = 0; x < 5; x++)
        for (int stop_at = 0; stop_at < 12; stop_at++) {
            setting t = {.rule = x ? "wsp" : "average",
                         .n_replicas = 3,
                         .every = 2,
                         .distance = x ? x - 1 : 0,
                         .n_updates = 20,
                         .policy = "live",
                         .options = {.lr = 0.5},
                         .stops = stop_at % 3,
                         .stop_at = stop_at,
                         .is_one_hot = true,
                         .seed = 5};
            run(&a, &t);
            for (int q = 0; q < 3; q++) {
                replica *r = &a.r[q];
                assert_true(r->is_told && r->n_made >= stop_at);
                assert_true(r->n_made - stop_at <= r->sync.rule->slack(&r->sync.options));
                assert_int_equal(fr_store_version(r->store), stop_at);
                for (int of = 0; of < 3; of++)
                    for (int u = 0; u < t.n_updates; u++) {
                        double expected = u < a.r[of].n_made ? 1.0 / 3 : 0;
                        double found = share(r, newest_of(r), of, u);
                        if (fabs(found - expected) > 1e-5)
                            fail_msg("%s D %d, replica %d stopped at %d: %g of update %d of "
                                     "replica %d, expected %g",
                                     t.rule, t.distance, t.stops, stop_at, found, u, of, expected);
                    }
            }
            close_scene(&a);
        }
}

/* --- the list --------------------------------------------------------------------------------- */

static void rules_are_listed(void **unused)
{
    (void)unused;
    const char *names[] = {"allreduce", "average", "wsp"};
    int n = 0;
    for (const fr_sync *const *p = fr_sync_list(); *p; p++, n++) {
        assert_string_equal((*p)->name, names[n]);
        assert_ptr_equal(&fr__sync_find(names[n])->about, *p);
        assert_int_equal((*p)->has_every, n > 0);
        assert_int_equal((*p)->has_distance, n == 2);
        assert_true(strlen((*p)->summary) > 20);
    }
    assert_int_equal(n, 3);
    assert_ptr_equal(fr__sync_find(NULL), &fr__sync_allreduce);
    assert_null(fr__sync_find("telepathy"));
    fr_sync_options o = {.every = 1};
    assert_null(fr__sync_check(&fr__sync_wsp, &o));
    assert_null(fr__sync_check(&fr__sync_allreduce, &(fr_sync_options){0}));
    o.distance = -1;
    assert_non_null(strstr(fr__sync_check(&fr__sync_wsp, &o), "distance"));
    o.every = 0;
    assert_non_null(strstr(fr__sync_check(&fr__sync_average, &o), "every"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_listed),
        cmocka_unit_test(waves_come_in_late_but_in_time),
        cmocka_unit_test(means_come_every_so_often),
        cmocka_unit_test(every_update_is_data_parallelism),
        cmocka_unit_test(states_agree_at_a_drain),
        cmocka_unit_test(delays_change_nothing),
        cmocka_unit_test(predictions_are_made_anew),
        cmocka_unit_test(nobody_waits_too_early),
        cmocka_unit_test(one_that_stops_stops_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
