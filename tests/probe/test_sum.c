/* test_sum.c -- the time in which workers sum gradients. */
#include <forerun/probe.h>

#include "support/check.h"

#include <math.h>

static void takes_some_time(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    const fr_transport *threads = fr_transport_find("threads");
    assert_non_null(ctx);
    static const size_t sizes[] = {0, 4, FR_BUCKET_BYTES - 4, 3 * (size_t)FR_BUCKET_BYTES + 8};
    for (int n = 1; n <= 5; n++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            double seconds = -1;
            assert_int_equal(fr_probe_sum(ctx, threads, NULL, n, sizes[i], &seconds), FR_OK);
            if (!(seconds > 0 && isfinite(seconds))) fail_msg("%d workers: %g s", n, seconds);
        }
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(takes_some_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
