/* test_bf16.c -- one tensor of a model is stored as bf16 (fr_graph_store): its bytes halve wherever
 * they are counted, from the layout to the forecast, and the rest stays. Results have the same bits
 * for every cut. */
#include <forerun/models.h>
#include <forerun/probe.h>
#include <forerun/sim.h>

#include "backend/kernel.h"
#include "engine/rig.h"

enum { MICRO_BATCH = 2, N_MICRO = BATCH / MICRO_BATCH, WIDTH = 33, N_STEPS = 3 };
#define ALIGNED(bytes) (((size_t)(bytes) + 63) / 64 * 64)
/* The output of relu, and its gradient. */
static const size_t wide = ALIGNED(MICRO_BATCH * WIDTH * 4),
                    narrow = ALIGNED(MICRO_BATCH * WIDTH * 2);

static const fr_backend *backend(void) { return test_backend("ref"); }

static const rig_options two_stages = {.generator = "1f1b", .n_stages = 2, .n_micro = N_MICRO};

/* Behind relu, or as many stages as asked for. */
static void prepare(rig *p, int which, rig_options o, const char *node)
{
    bench b;
    bf16_node = node;
    bench_init(&b, which);
    int cut = fr_graph_find(b.graph, "logits");
    bench_fini(&b);
    if (o.n_stages == 2 && which == MLP) o.cuts = &cut;
    assert_int_equal(rig_prepare(p, which, &o), FR_OK);
    p->desc.backend = backend();
}

static void open(rig *p, int which, rig_options o, const char *node)
{
    prepare(p, which, o, node);
    assert_ok(p->b.ctx, fr_engine_create(p->b.ctx, &p->desc, &p->engine));
}

static void messages_and_memory(void **state)
{
    (void)state;
    rig f32, bf16;
    open(&f32, MLP, two_stages, NULL), open(&bf16, MLP, two_stages, "relu");
    rig_steps(&f32, 0, N_STEPS), rig_steps(&bf16, 0, N_STEPS);
    fr_traffic a = fr_engine_traffic(f32.engine), b = fr_engine_traffic(bf16.engine);
    assert_int_equal(a.forward, N_STEPS * N_MICRO * wide);
    assert_int_equal(b.forward, N_STEPS * N_MICRO * narrow);
    assert_int_equal(a.backward, N_STEPS * N_MICRO * wide);
    assert_int_equal(b.backward, N_STEPS * N_MICRO * narrow);
    fr_memory_use forecast[2];
    assert_ok(bf16.b.ctx, fr_engine_forecast(bf16.b.ctx, &bf16.desc, forecast));
    for (int w = 0; w < 2; w++) {
        const fr_memory_use *x = fr_engine_predicted(f32.engine, w),
                            *y = fr_engine_predicted(bf16.engine, w);
        /* Two micro-batches are in flight on the first worker; the second one has three buffers
         * for the gradients that it sends. */
        assert_int_equal(x->slots - y->slots, w == 0 ? 2 * (wide - narrow) : 0);
        assert_int_equal(x->io - y->io, w == 1 ? 3 * (wide - narrow) : 0);
        assert_true(x->weights == y->weights && x->optimizer == y->optimizer);
        assert_int_equal(x->grads, y->grads);
        assert_int_equal(y->total, fr_engine_peak_bytes(bf16.engine, w));
        assert_int_equal(y->total, forecast[w].total);
    }
    rig_close(&f32), rig_close(&bf16);
}

/* The memory plan of one stage: tensors inside it. */
static void plan(const fr_graph *g, fr_device *dev, fr_ctx *ctx, size_t *kept, size_t *slot,
                 size_t *values)
{
    const fr_program_desc d = {.graph = g, .batch = MICRO_BATCH, .training = true, .is_plan = true};
    int relu = fr_graph_find(g, "relu");
    fr_program *p;
    assert_ok(ctx, fr_program_create(ctx, dev, &d, &p));
    /* relu overwrites the output of b, unless it has another size. */
    *kept = fr_program_kept_bytes(p, relu) + fr_program_kept_bytes(p, fr_graph_find(g, "b"));
    *slot = fr_program_sizes_of(p)->slot_bytes;
    *values = fr_program_values_bytes(p, relu);
    fr_program_free(p);
}

static void memory_plan(void **state)
{
    (void)state;
    size_t kept[2], slot[2], values[2];
    for (int i = 0; i < 2; i++) {
        bench b;
        fr_device *dev;
        bf16_node = i ? "relu" : NULL;
        bench_init(&b, MLP);
        assert_ok(b.ctx, fr_device_open(b.ctx, backend(), &(fr_device_desc){.n_threads = 1}, &dev));
        plan(b.graph, dev, b.ctx, &kept[i], &slot[i], &values[i]);
        int logits = fr_graph_find(b.graph, "logits");
        assert_int_equal(fr_graph_cut_bytes(b.graph, logits), WIDTH * (i ? 2 : 4));
        int64_t all = fr_model_activation_bytes(b.graph);
        assert_int_equal(all, 4 * (6 + 3 * 19 + 2 * WIDTH + 5 + 1 + 3) - (i ? 2 * WIDTH : 0));
        fr_device_close(dev);
        bench_fini(&b);
    }
    assert_int_equal(kept[0], wide);
    assert_int_equal(kept[1], narrow);
    assert_int_equal(slot[0] - slot[1], wide - narrow);
    /* While relu's backward runs: its dy, and its dx, which stays wide. */
    assert_int_equal(values[0], wide);
    assert_int_equal(values[1], wide + narrow);
}

/* Measured nodes, and what the simulator and the planners make of them. */
static void forecasts(void **state)
{
    (void)state;
    size_t sent[2], memory[2];
    for (int i = 0; i < 2; i++) {
        rig p;
        const fr_profile *profile;
        fr_spread spread;
        prepare(&p, MLP, two_stages, i ? "relu" : NULL);
        fr_probe_desc d = {.graph = p.b.graph,
                           .backend = backend(),
                           .n_threads = 1,
                           .batch = MICRO_BATCH,
                           .n_micro = N_MICRO,
                           .optimizer = p.desc.optimizer,
                           .options = p.desc.options,
                           .seconds = 1e-3};
        assert_ok(p.b.ctx, fr_probe_nodes(p.b.ctx, 1, &d, &profile));
        const fr_spread_desc s = {.profile = profile,
                                  .n_stages = 2,
                                  .cuts = p.cuts,
                                  .generator = fr_generator_find("1f1b"),
                                  .n_micro = N_MICRO};
        assert_ok(p.b.ctx, fr_spread_make(p.b.ctx, &s, &spread));
        sent[i] = spread.timing.forward_bytes[0];
        assert_int_equal(spread.timing.backward_bytes[0], sent[i]);
        memory[i] = spread.memory[0];
        fr_spread_free(&spread);
        fr_profile_free(profile);
        rig_close(&p);
    }
    assert_int_equal(sent[0], MICRO_BATCH * WIDTH * 4);
    assert_int_equal(sent[1], MICRO_BATCH * WIDTH * 2);
    assert_true(memory[1] < memory[0]);
}

/* relu: a link. t: read by four nodes, so that bf16 gradients are added, in one stage and along
 * links. */
static void same_bits(void **state)
{
    static const struct {
        int net;
        const char *node;
    } cases[] = {{MLP, "relu"}, {BRANCHES, "t"}, {BRANCHES, "bc"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig f32, one;
        char first[65], sha[65];
        const rig_options single = {.n_micro = N_MICRO};
        open(&f32, cases[i].net, single, NULL);
        open(&one, cases[i].net, single, cases[i].node);
        double loss = rig_steps(&f32, 0, N_STEPS), rounded = rig_steps(&one, 0, N_STEPS);
        assert_true(fabs(rounded / loss - 1) < 0.01);
        double distance = rig_distance(&f32, &one);
        if (!(distance > 1e-7 && distance < 1e-2)) fail_msg("distance %g", distance);
        rig_sha(&one, first);
        for (int n = 2; n <= 4; n++) {
            rig p;
            prepare(&p, cases[i].net,
                    (rig_options){
                        .generator = n % 2 ? "gpipe" : "zb-h1", .n_stages = n, .n_micro = N_MICRO},
                    cases[i].node);
            if (n > 2) rig_recompute_some(&p, (uint32_t)(n + 4 * (int)i));
            assert_ok(p.b.ctx, fr_engine_create(p.b.ctx, &p.desc, &p.engine));
            rig_steps(&p, 0, N_STEPS);
            rig_sha(&p, sha);
            if (strcmp(first, sha) != 0) fail_msg("%s, %d stages: other bits", cases[i].node, n);
            rig_close(&p);
        }
        rig_close(&f32), rig_close(&one);
    }
}

/* A worker that writes a NaN into its first output makes the run diverge, whatever the type. */
static void spoiled(void **state)
{
    (void)state;
    rig p;
    rig_options o = two_stages;
    int64_t n_done;
    o.fault = "nan:worker=0,step=1";
    open(&p, MLP, o, "relu");
    assert_int_equal(rig_train(&p, 0, N_STEPS, &n_done), FR_DIVERGED);
    assert_int_equal(n_done, 1);
    rig_close(&p);
}

static void refused(void **state)
{
    (void)state;
    rig p;
    prepare(&p, MLP, two_stages, "relu");
    fr_backend floats = *backend();
    floats.has_bf16 = false;
    p.desc.backend = &floats;
    assert_int_equal(fr_engine_create(p.b.ctx, &p.desc, &p.engine), FR_UNSUPPORTED);
    assert_non_null(strstr(fr_ctx_error(p.b.ctx), "does not compute with bf16 (node relu)"));
    rig_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages_and_memory),
                                       cmocka_unit_test(memory_plan),
                                       cmocka_unit_test(forecasts),
                                       cmocka_unit_test(same_bits),
                                       cmocka_unit_test(spoiled),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
