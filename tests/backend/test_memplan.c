/* test_memplan.c -- leases never overlap in time and space, and little is wasted. */
#include "backend/memplan.h"

#include "base/alloc.h"
#include "base/philox.h"
#include "support/test.h"

enum { MAX = 60 };

static bool do_collide(const fr_lease *a, const fr_lease *b)
{
    bool in_time = a->first <= b->last && b->first <= a->last;
    bool in_space = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
    return in_time && in_space;
}

/* No plan needs less than the bytes alive at the busiest step. */
static size_t busiest(const fr_lease *leases, int n, int n_steps)
{
    size_t most = 0;
    for (int t = 0; t < n_steps; t++) {
        size_t alive = 0;
        for (int i = 0; i < n; i++) {
            if (leases[i].first <= t && t <= leases[i].last) alive += fr__align_up(leases[i].bytes);
        }
        if (alive > most) most = alive;
    }
    return most;
}

static void random_plans(void **unused)
{
    (void)unused;
    double waste = 0;
    for (uint32_t seed = 0; seed < 500; seed++) {
        fr_lease leases[MAX];
        int scratch[MAX], n = 1 + (int)(seed % MAX);
        for (int i = 0; i < n; i++) {
            uint32_t r[4];
            fr__random4(seed, FR_STREAM_SYNTHETIC, 0, (uint64_t)i, 0, r);
            int first = (int)(r[0] % 40);
            leases[i] =
                (fr_lease){.bytes = r[1] % 5000, .first = first, .last = first + (int)(r[2] % 12)};
        }
        size_t total = fr__memplan(leases, n, scratch), least = busiest(leases, n, 60);
        assert_true(total >= least);
        size_t live[61], most = 0;
        fr__memplan_live(leases, n, 60, live);
        for (int t = 0; t < 60; t++) most = live[t] > most ? live[t] : most;
        assert_int_equal(most, least);
        assert_int_equal(live[60], 0);
        for (int i = 0; i < n; i++) {
            assert_int_equal(leases[i].offset % FR_ALIGN, 0);
            assert_true(leases[i].offset + leases[i].bytes <= total);
            for (int k = 0; k < i; k++) assert_false(do_collide(&leases[i], &leases[k]));
        }
        waste += least ? (double)total / (double)least - 1 : 0;
    }
    assert_true(waste / 500 < 0.08);
}

/* A chain, each value used by the next alone, needs two buffers. */
static void chain_needs_two(void **unused)
{
    (void)unused;
    fr_lease leases[10];
    int scratch[10];
    for (int i = 0; i < 10; i++) leases[i] = (fr_lease){.bytes = 640, .first = i, .last = i + 1};
    assert_int_equal(fr__memplan(leases, 10, scratch), 1280);
}

static void nothing_needs_nothing(void **unused)
{
    (void)unused;
    fr_lease empty = {.bytes = 0, .first = 0, .last = 3};
    int scratch[1];
    assert_int_equal(fr__memplan(NULL, 0, scratch), 0);
    assert_int_equal(fr__memplan(&empty, 1, scratch), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans),
        cmocka_unit_test(chain_needs_two),
        cmocka_unit_test(nothing_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
