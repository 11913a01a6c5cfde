/* test_tensor_type.c -- all values of the short types there and back, and rounding to them. */
#include "io/tensor_type.h"

#include "support/test.h"

#include <math.h>
#include <string.h>

static void short_types_come_back(void **state)
{
    (void)state;
    static const char *const types[] = {"F16", "BF16"};
    for (int k = 0; k < 2; k++)
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t in = (uint16_t)bits, out = 1;
            float value;
            fr__real_read(types[k], &in, 1, &value);
            assert_true(fr__real_write(types[k], &value, 1, &out));
            if (isnan(value))
                assert_true((out & 0x7C00) == 0x7C00 && (out & 0x3FF)); /* still one */
            else
                assert_int_equal(in, out);
        }
}

static void values_of_f16(void **state)
{
    (void)state;
    static const struct {
        uint16_t bits;
        float value;
    } known[] = {{0x0000, 0.0f},     {0x8000, -0.0f},       {0x3C00, 1},
                 {0xC000, -2},       {0x7BFF, 65504},       {0x0400, 0x1p-14f},
                 {0x0001, 0x1p-24f}, {0x3555, 0x1.554p-2f}, {0x03FF, 0x1.ff8p-15f},
                 {0x7C00, INFINITY}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        float value;
        fr__real_read("F16", &known[i].bits, 1, &value);
        assert_memory_equal(&value, &known[i].value, sizeof value);
    }
}

/* Nearest, ties to even, also where a step is 2^-24, and into the next power of two. */
static void rounds(void **state)
{
    (void)state;
    static const struct {
        float value;
        uint16_t bits;
    } to[] = {{1 + 0x1p-11f, 0x3C00}, {1 + 0x3p-11f, 0x3C02}, {1 + 0x1.8p-11f, 0x3C01},
              {0x1p-25f, 0x0000},     {0x1.8p-25f, 0x0001},   {0x3p-25f, 0x0002},
              {0x1.ffep-15f, 0x0400}, {-0x1.fffp0f, 0xC000},  {65519, 0x7BFF},
              {0x1p-149f, 0x0000}};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        uint16_t bits = 1;
        assert_true(fr__real_write("F16", &to[i].value, 1, &bits));
        assert_int_equal(bits, to[i].bits);
    }
    uint16_t bits;
    float large = 65520, huge = 3.4e38f, infinite = INFINITY;
    assert_false(fr__real_write("F16", &large, 1, &bits));
    assert_false(fr__real_write("BF16", &huge, 1, &bits));
    assert_true(fr__real_write("F16", &infinite, 1, &bits));
}

static void long_types(void **state)
{
    (void)state;
    double in[] = {0.1, -1e300, 3};
    float out[3], copy[3] = {0.1f, 2, -0.0f}, back[3];
    fr__real_read("F64", in, 3, out);
    assert_true(out[0] == 0.1f && isinf(out[1]) && out[2] == 3);
    fr__real_read("F32", copy, 3, back);
    assert_memory_equal(copy, back, sizeof copy);
    assert_true(fr__real_write("F32", back, 3, out));
    assert_memory_equal(copy, out, sizeof copy);
    assert_int_equal(fr__real_bytes("I64"), 0);
    assert_int_equal(fr__real_bytes("F8_E4M3"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_types_come_back),
        cmocka_unit_test(values_of_f16),
        cmocka_unit_test(rounds),
        cmocka_unit_test(long_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
