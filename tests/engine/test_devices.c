/* test_devices.c -- workers on a backend with several devices: in turn, and no others. */
#include "backend/kernel.h"
#include "engine/engine.h"
#include "engine/rig.h"

enum { N_DEVICES = 3, N_STAGES = 5 };

static int three(void) { return N_DEVICES; }

static fr_backend with_three(void)
{
    fr_backend b = *test_backend("ref");
    b.n_devices = three;
    return b;
}

static void workers_take_devices_in_turn(void **unused)
{
    (void)unused;
    rig r;
    fr_backend backend = with_three();
    rig_options o = {.generator = "1f1b", .n_stages = N_STAGES, .n_micro = 4};
    assert_ok(r.b.ctx, rig_prepare(&r, CNN, &o));
    r.desc.backend = &backend;
    assert_ok(r.b.ctx, fr_engine_create(r.b.ctx, &r.desc, &r.engine));
    for (int w = 0; w < N_STAGES; w++)
        assert_int_equal(fr_device_index(fr__exec_device_of(r.engine->workers[w].device)),
                         w % N_DEVICES);
    rig_steps(&r, 0, 2);
    rig_close(&r);
}

static void other_devices_are_refused(void **unused)
{
    (void)unused;
    fr_ctx *ctx = fr_ctx_create();
    fr_backend backend = with_three();
    fr_device *dev;
    for (int i = -1; i <= N_DEVICES; i += N_DEVICES + 1)
        assert_fails(
            ctx,
            fr_device_open(ctx, &backend, &(fr_device_desc){.index = i, .first_cpu = -1}, &dev),
            FR_INVALID, "this machine has 3");
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_take_devices_in_turn),
        cmocka_unit_test(other_devices_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
