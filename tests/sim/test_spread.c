/* test_spread.c -- layouts in numbers: links, costs, placement and memory, against numbers counted
 * by hand. */
#include "sim/rig.h"

/* Six nodes after an input; node 5 reads node 2 as well. Node i takes i s forward, 2 i s backward,
 * outputs 100 i bytes, keeps as many, and has 1000 i bytes of parameters. */
static const fr_profile *make_profile(rig *r)
{
    static const int chain[7] = {0, 0, 1, 2, 3, 4, 5}, both[2] = {4, 2};
    fr_profile_node nodes[7] = {{.name = "x", .is_input = true, .output_bytes = 5}};
    fr_profile p = {.model = "m",
                    .machine = "",
                    .batch = 1,
                    .n_nodes = 7,
                    .nodes = nodes,
                    .workspace_bytes = 7,
                    .state_per_weight = 2};
    for (int i = 1; i < 7; i++)
        nodes[i] = (fr_profile_node){.forward_s = i,
                                     .backward_s = 2 * i,
                                     .back_input_s = NAN,
                                     .back_weight_s = NAN,
                                     .update_s = 0.5 * i,
                                     .output_bytes = 100 * i,
                                     .kept_bytes = 100 * i,
                                     .param_bytes = 1000 * i,
                                     .n_inputs = i == 5 ? 2 : 1,
                                     .inputs = i == 5 ? both : &chain[i]};
    const fr_profile *out;
    rig_check(r, fr_profile_copy(r->ctx, &p, &out));
    return out;
}

/* Stages: nodes 1-2, 3-4, 5-6. */
static const int cuts[2] = {3, 5};

static fr_spread_desc desc_of(const fr_profile *p)
{
    return (fr_spread_desc){.profile = p,
                            .n_stages = 3,
                            .cuts = cuts,
                            .generator = fr_generator_find("1f1b"),
                            .n_micro = 4};
}

static void fills_everything_in(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 1);
    const fr_profile *p = make_profile(&r);
    fr_spread_desc d = desc_of(p);
    fr_spread out;
    rig_check(&r, fr_spread_make(r.ctx, &d, &out));
    const fr_schedule *s = out.schedule;
    assert_true(s->is_lowered);
    assert_int_equal(s->n_forward, 3); /* 0 to 1, 0 to 2, 1 to 2 */
    int skip = fr_schedule_find_link(s->n_forward, s->forward, 0, 2);
    assert_int_equal(out.timing.forward_bytes[skip], 200);
    int next = fr_schedule_find_link(s->n_forward, s->forward, 1, 2);
    assert_int_equal(out.timing.forward_bytes[next], 400);
    is_near(out.timing.cost[1].forward, 7);
    is_near(out.timing.cost[1].backward, 14);
    is_near(out.timing.cost[2].step, 5.5);
    is_near(out.timing.speed[2], 1);
    /* Stage 2: weights, gradients, two states of 11000; one slot of 500 + 600; gradients in flight
     * to stages 0 or 1 (of the values that it read), a workspace. */
    size_t under_way = 0;
    for (int l = 0; l < s->n_backward; l++)
        if (s->backward[l].from == 2)
            under_way += out.timing.backward_bytes[l] * (size_t)s->n_buffers[l];
    assert_true(under_way > 0);
    assert_int_equal(out.memory[2], 4 * 11000 + (size_t)s->n_slots[2] * 1100 + under_way + 7);
    fr_sim_desc sim = {.schedule = s, .timing = out.timing, .n_batches = 3};
    fr_sim_result result;
    rig_check(&r, fr_simulate(r.ctx, &sim, &result));
    assert_true(result.makespan >= 3 * 4 * 3 * 11);
    fr_sim_free(&result);
    fr_spread_free(&out);
    fr_spread_free(&out);
    fr_profile_free(p);
    rig_fini(&r);
}

static void counts_policy_replicas_and_recompute(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 2);
    const fr_profile *p = make_profile(&r);
    fr_spread_desc d = desc_of(p);
    fr_spread plain, more;
    d.generator = fr_generator_find("1f1b-async");
    d.n_batches = 8;
    d.n_micro = 2;
    rig_check(&r, fr_spread_make(r.ctx, &d, &plain));
    d.policy = fr_policy_find("stash");
    rig_check(&r, fr_spread_make(r.ctx, &d, &more));
    assert_int_equal(more.memory[0] - plain.memory[0],
                     3000 /* two versions: stage 0 is 2 micro-batches ahead */);
    fr_spread_free(&more);
    d.policy = NULL;
    d.replicas = (int[]){1, 1, 2};
    rig_check(&r, fr_spread_make(r.ctx, &d, &more));
    assert_int_equal(more.schedule->n_workers, 4);
    assert_int_equal(more.memory[2], more.memory[3]);
    assert_true(more.memory[2] >= plain.memory[2] + 5500 - 1100 * 2);
    fr_spread_free(&more);
    d.replicas = NULL;
    d.recompute = (bool[8]){true, true, true};
    rig_check(&r, fr_spread_make(r.ctx, &d, &more));
    is_near(more.timing.cost[0].backward, 6 + 3);
    /* A slot of 100 + 200 becomes 200; one area of 300. */
    assert_int_equal(plain.memory[0] - more.memory[0],
                     (size_t)plain.schedule->n_slots[0] * 100 - 300);
    fr_spread_free(&more);
    fr_spread_free(&plain);
    fr_profile_free(p);
    rig_fini(&r);
}

/* In bf16: the newest weights as floats, and 2 bytes for each block that passes read. */
static void blocks_of_bf16(void **state)
{
    (void)state;
    static const struct {
        const char *policy;
        int floats[3], bf16[3]; /* blocks of each stage */
    } cases[] = {{"live", {1, 1, 1}, {1, 1, 1}},
                 {"stash", {3, 2, 1}, {3, 2, 1}},
                 {"spectrain", {2, 2, 2}, {2, 2, 1}}};
    rig r;
    rig_init(&r, 1);
    const fr_profile *p = make_profile(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_spread floats, bf16;
        fr_profile other = *p;
        fr_spread_desc d = desc_of(p);
        other.precision = FR_BF16;
        d.generator = fr_generator_find("1f1b-async");
        d.policy = fr_policy_find(cases[i].policy);
        d.n_micro = 1, d.n_batches = 12;
        rig_check(&r, fr_spread_make(r.ctx, &d, &floats));
        d.profile = &other;
        rig_check(&r, fr_spread_make(r.ctx, &d, &bf16));
        for (int k = 0; k < 3; k++) {
            const int params = 1000 * (4 * k + 3);
            assert_int_equal((int)bf16.memory[k] - (int)floats.memory[k],
                             params + params / 2 * cases[i].bf16[k] - params * cases[i].floats[k]);
        }
        fr_spread_free(&floats), fr_spread_free(&bf16);
    }
    fr_profile_free(p);
    rig_fini(&r);
}

/* Within any limits that the least memory allows: workers that fit recompute nothing, and others no
 * more than everything. */
static void fits_within_limits(void **state)
{
    static const char *const generators[] = {"1f1b", "gpipe", "zb-h1", "zbv"};
    (void)state;
    rig r;
    rig_init(&r, 3);
    const fr_profile *p = make_profile(&r);
    const bool all[7] = {true, true, true, true, true, true, true};
    const int two[1] = {5}, four[3] = {3, 5, 6};
    int n_partial = 0, n_none = 0;
    for (int g = 0; g < 4; g++)
        for (int percent = -20; percent <= 110; percent += 2) {
            fr_spread_desc d = desc_of(p);
            fr_spread plain, least, fitted;
            size_t limits[4];
            bool again[7], fits, can = true;
            d.generator = fr_generator_find(generators[g]);
            d.n_stages = g == 3 ? 4 : 2, d.cuts = g == 3 ? four : two;
            if (g == 3) d.chunks = 2;
            rig_check(&r, fr_spread_make(r.ctx, &d, &plain));
            d.recompute = all;
            rig_check(&r, fr_spread_make(r.ctx, &d, &least));
            for (int w = 0; w < plain.schedule->n_workers; w++) {
                const double most = (double)plain.memory[w], low = (double)least.memory[w];
                limits[w] = g == 1 && w == 1 ? 0 : (size_t)(low + (most - low) * percent / 100);
                can = can && (limits[w] == 0 || least.memory[w] <= limits[w]);
            }
            rig_check(&r, fr_spread_fit(r.ctx, &d, &plain, limits, again, &fits));
            assert_true(fits || !can);
            n_none += !fits;
            d.recompute = again;
            if (fits) {
                rig_check(&r, fr_spread_make(r.ctx, &d, &fitted));
                for (int k = 0; k < d.n_stages; k++) {
                    const int w = plain.schedule->worker_of[k];
                    const double seconds = fitted.timing.cost[k].recompute;
                    assert_true(limits[w] == 0 || fitted.memory[w] <= limits[w]);
                    if (limits[w] == 0 || plain.memory[w] <= limits[w]) assert_true(seconds == 0);
                    assert_true(seconds <= least.timing.cost[k].recompute);
                    n_partial += seconds > 0 && seconds < least.timing.cost[k].recompute;
                }
                fr_spread_free(&fitted);
            }
            fr_spread_free(&plain), fr_spread_free(&least);
        }
    assert_true(n_partial > 10 && n_none > 10);
    fr_profile_free(p);
    rig_fini(&r);
}

static void places_workers(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 3);
    const fr_profile *p = make_profile(&r);
    fr_spread_desc d = desc_of(p);
    fr_spread out;
    rig_check(&r, fr_cluster_flat(r.ctx, 4, 1000, 0, &r.cluster));
    r.cluster->devices[3].speed = 3;
    d.cluster = r.cluster;
    d.device_of = (int[]){3, 1, 0};
    rig_check(&r, fr_spread_make(r.ctx, &d, &out));
    is_near(out.timing.speed[0], 3);
    is_near(out.timing.speed[2], 1);
    assert_int_equal(out.timing.device_of[0], 3);
    fr_spread given;
    d.schedule = out.schedule;
    rig_check(&r, fr_spread_make(r.ctx, &d, &given));
    assert_ptr_equal(given.schedule, out.schedule);
    assert_int_equal(given.timing.forward_bytes[1], out.timing.forward_bytes[1]);
    fr_spread_free(&given);
    d.cuts = (int[]){2, 5};
    d.n_stages = 2;
    assert_int_equal(fr_spread_make(r.ctx, &d, &given), FR_INVALID);
    assert_null(given.arena);
    fr_ctx_clear(r.ctx);
    fr_spread_free(&out);
    d = desc_of(p);
    d.cluster = r.cluster;
    d.device_of = (int[]){0, 1, 4};
    assert_int_equal(fr_spread_make(r.ctx, &d, &out), FR_INVALID);
    fr_ctx_clear(r.ctx);
    d.device_of = NULL;
    r.cluster->devices[1].speed = 0, r.cluster->devices[1].flops = 5;
    assert_int_equal(fr_spread_make(r.ctx, &d, &out), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(r.ctx), "device-1"));
    fr_profile_free(p);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_everything_in),
        cmocka_unit_test(blocks_of_bf16),
        cmocka_unit_test(counts_policy_replicas_and_recompute),
        cmocka_unit_test(fits_within_limits),
        cmocka_unit_test(places_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
