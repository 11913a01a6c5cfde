/* test_philox.c -- the known answers of Random123 (kat_vectors, philox4x32-10); streams and
 * positions give different numbers. */
#include "base/philox.h"
#include "base/thread.h"
#include "support/check.h"

static void known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t c[4];
        memcpy(c, known[i].counter, sizeof c);
        fr__philox(c, known[i].key[0], known[i].key[1]);
        assert_memory_equal(c, known[i].answer, sizeof c);
    }
}

/* fr__random4 is Philox with every part of the position in its own bits. */
static void position_is_the_counter(void **state)
{
    (void)state;
    uint32_t out[4], c[4] = {0x89abcdef, 0x01234567, 0xdeadbeef, (uint32_t)FR_STREAM_SHUFFLE << 24};
    c[3] ^= 77;
    fr__philox(c, 0x55667788, 0x11223344);
    fr__random4(0x1122334455667788, FR_STREAM_SHUFFLE, 77, 0x0123456789abcdef, 0xdeadbeef, out);
    assert_memory_equal(out, c, sizeof out);
}

static void each_part_matters(void **state)
{
    (void)state;
    uint32_t base[4], other[6][4];
    fr__random4(1, FR_STREAM_INIT, 2, 3, 4, base);
    fr__random4(9, FR_STREAM_INIT, 2, 3, 4, other[0]);
    fr__random4(1, FR_STREAM_DROPOUT, 2, 3, 4, other[1]);
    fr__random4(1, FR_STREAM_INIT, 9, 3, 4, other[2]);
    fr__random4(1, FR_STREAM_INIT, 2, 9, 4, other[3]);
    fr__random4(1, FR_STREAM_INIT, 2, 3, 9, other[4]);
    fr__random4((uint64_t)1 << 40 | 1, FR_STREAM_INIT, 2, 3, 4, other[5]);
    for (int i = 0; i < 6; i++) assert_memory_not_equal(base, other[i], sizeof base);
}

static void unit_floats_are_even(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint32_t w[4];
        fr__random4(7, FR_STREAM_SAMPLE, 0, i, 0, w);
        for (int j = 0; j < 4; j++) {
            double u = (double)fr__unit_float(w[j]);
            assert_true(u >= 0 && u < 1);
            sum += u, squares += u * u;
        }
    }
    /* Mean 1/2 and 1/3 of the squares, within 5 standard errors. */
    assert_true(sum / (4 * DRAWS) > 0.5 - 0.0037 && sum / (4 * DRAWS) < 0.5 + 0.0037);
    assert_true(squares / (4 * DRAWS) > 0.3333 - 0.0038 && squares / (4 * DRAWS) < 0.3333 + 0.0038);
    assert_true(fr__unit_float(0) == 0.0f);
    assert_true(fr__unit_float(UINT32_MAX) < 1.0f);
}

static void machine_facts(void **state)
{
    (void)state;
    uint64_t t = fr__now_ns();
    assert_true(fr__now_ns() >= t && t > 0);
    assert_int_in_range(fr__cpu_count(), 1, 100000);
    assert_true(fr__peak_rss() > 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),     cmocka_unit_test(position_is_the_counter),
        cmocka_unit_test(each_part_matters), cmocka_unit_test(unit_floats_are_even),
        cmocka_unit_test(machine_facts),
    };
    return cmocka_run_group_tests_name("philox", tests, NULL, NULL);
}
