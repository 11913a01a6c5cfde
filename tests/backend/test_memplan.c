/* test_memplan.c -- leases never overlap in time and space, and little is wasted. */
#include "backend/memplan.h"

#include "base/alloc.h"
#include "base/philox.h"
#include "support/test.h"

enum { MAX = 60 };

static bool do_collide(const fr__lease *a, const fr__lease *b)
{
    bool in_time = a->first <= b->last && b->first <= a->last;
    bool in_space = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
    return in_time && in_space;
}

/* No plan needs less than the bytes alive at the busiest step. */
static size_t busiest(const fr__lease *leases, int n, int n_steps)
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
        fr__lease leases[MAX];
        int n = 1 + (int)(seed % MAX);
        for (int i = 0; i < n; i++) {
            uint32_t r[4];
            fr__random4(seed, FR_STREAM_SYNTHETIC, 0, (uint64_t)i, 0, r);
            int first = (int)(r[0] % 40);
            leases[i] =
                (fr__lease){.bytes = r[1] % 5000, .first = first, .last = first + (int)(r[2] % 12)};
        }
        size_t total, least = busiest(leases, n, 60);
        assert_true(fr__memplan(leases, n, &total));
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

/* The rule in its simplest form: larger leases first, among equals the earlier one, each at the
 * lowest offset where it overlaps none of those before it. */
static size_t place_plainly(fr__lease *leases, int n)
{
    bool is_placed[MAX] = {false};
    size_t total = 0;
    for (int round = 0; round < n; round++) {
        int next = -1;
        for (int i = 0; i < n; i++)
            if (!is_placed[i] && (next < 0 || leases[i].bytes > leases[next].bytes)) next = i;
        fr__lease *lease = &leases[next];
        bool fits = false;
        for (lease->offset = 0; !fits; lease->offset += fits ? 0 : FR_ALIGN) {
            fits = true;
            for (int i = 0; i < n; i++) fits &= !is_placed[i] || !do_collide(lease, &leases[i]);
        }
        is_placed[next] = true;
        size_t end = fr__align_up(lease->offset + lease->bytes);
        if (end > total) total = end;
    }
    return total;
}

/* Sizes from few values and lifetimes from short to all, so that there are ties and all overlaps.
 */
static void same_as_plain_rule(void **unused)
{
    (void)unused;
    for (uint32_t seed = 0; seed < 300; seed++) {
        fr__lease leases[MAX], plain[MAX];
        int n = 1 + (int)(seed % MAX);
        for (int i = 0; i < n; i++) {
            uint32_t r[4];
            fr__random4(seed, FR_STREAM_SYNTHETIC, 1, (uint64_t)i, 0, r);
            int first = (int)(r[0] % 40);
            plain[i] = leases[i] = (fr__lease){.bytes = r[1] % 7 * (seed % 3 ? 64 : 100),
                                               .first = first,
                                               .last = first + (int)(r[2] % (seed % 2 ? 5 : 60))};
        }
        size_t total, expected = place_plainly(plain, n);
        assert_true(fr__memplan(leases, n, &total));
        assert_int_equal(total, expected);
        for (int i = 0; i < n; i++) assert_int_equal(leases[i].offset, plain[i].offset);
    }
}

static void no_memory_is_told(void **unused)
{
    (void)unused;
    fr__lease lease = {.bytes = 64, .first = 0, .last = 1};
    size_t total;
    fr__alloc_fail_after(0);
    bool is_done = fr__memplan(&lease, 1, &total);
    fr__alloc_fail_after(-1);
    assert_false(is_done);
}

/* A chain, each value used by the next alone, needs two buffers. */
static void chain_needs_two(void **unused)
{
    (void)unused;
    fr__lease leases[10];
    size_t total;
    for (int i = 0; i < 10; i++) leases[i] = (fr__lease){.bytes = 640, .first = i, .last = i + 1};
    assert_true(fr__memplan(leases, 10, &total));
    assert_int_equal(total, 1280);
}

static void nothing_needs_nothing(void **unused)
{
    (void)unused;
    fr__lease empty = {.bytes = 0, .first = 0, .last = 3};
    size_t total;
    assert_true(fr__memplan(NULL, 0, &total));
    assert_int_equal(total, 0);
    assert_true(fr__memplan(&empty, 1, &total));
    assert_int_equal(total, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans),          cmocka_unit_test(same_as_plain_rule),
        cmocka_unit_test(no_memory_is_told),     cmocka_unit_test(chain_needs_two),
        cmocka_unit_test(nothing_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
