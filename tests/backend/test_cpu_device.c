/* test_cpu_device.c -- the cpu device: threads, pinning, sweeps. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernel.h"
#include "base/thread.h"
#include "support/test.h"

static fr_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    ctx = fr_ctx_create();
    return ctx ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    fr_ctx_free(ctx);
    return 0;
}

static fr_device *open_device(int n_threads, int first_cpu)
{
    fr_device *dev;
    fr_device_desc desc = {.n_threads = n_threads, .first_cpu = first_cpu};
    assert_int_equal(fr_device_open(ctx, &fr__backend_cpu, &desc, &dev), FR_OK);
    return dev;
}

static void says_what_it_is(void **state)
{
    (void)state;
    fr_device *dev = open_device(3, -1);
    assert_int_equal(fr_device_n_threads(dev), 3);
    assert_non_null(strstr(fr_device_about(dev), "oneDNN "));
    assert_non_null(strstr(fr_device_about(dev), ", 3 threads"));
    char library[64];
    fr_backend_library(&fr__backend_cpu, library, sizeof library);
    assert_int_equal(strncmp(library, "oneDNN ", 7), 0);
    assert_int_equal(strncmp(fr_device_about(dev), library, strlen(library)), 0);
    fr_backend_library(&fr__backend_ref, library, sizeof library);
    assert_string_equal(library, ""); /* plain C */
    fr_device_close(dev);
    dev = open_device(0, -1);
    assert_int_equal(fr_device_n_threads(dev), fr__cpu_count());
    fr_device_close(dev);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    const fr_device_desc bad[] = {{.n_threads = -1, .first_cpu = -1},
                                  {.n_threads = 1, .first_cpu = CPU_SETSIZE - 1},
                                  {.n_threads = 1, .first_cpu = 1 << 20}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr_device *dev;
        assert_int_equal(fr_device_open(ctx, &fr__backend_cpu, &bad[i], &dev), FR_INVALID);
        assert_null(dev);
        fr_ctx_clear(ctx);
    }
}

static int lowest_cpu(const cpu_set_t *set)
{
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((unsigned)i, set)) return i;
    }
    return -1;
}

static void pins_its_thread(void **state)
{
    (void)state;
    cpu_set_t before, now;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int cpu = lowest_cpu(&before);
    fr_device *dev = open_device(1, 0);
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_int_equal(CPU_COUNT(&now), 1);
    assert_int_equal(lowest_cpu(&now), cpu);
    fr_device_close(dev);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* A launcher or a job system has bound the process: core 0 is the first one it was given. */
static void stays_where_the_process_was_put(void **state)
{
    (void)state;
    cpu_set_t before, only, now;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int last = fr__nth_cpu(fr__cpu_count() - 1);
    CPU_ZERO(&only);
    CPU_SET((unsigned)last, &only);
    assert_int_equal(sched_setaffinity(0, sizeof only, &only), 0);
    fr_device *dev = open_device(1, 0), *none;
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    fr_device_close(dev);
    const fr_device_desc outside = {.n_threads = 1, .first_cpu = 1};
    fr_status status = fr_device_open(ctx, &fr__backend_cpu, &outside, &none);
    fr_ctx_clear(ctx);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_true(CPU_EQUAL(&now, &only));
    assert_int_equal(status, FR_INVALID);
}

static void note_cpu(void *arg, size_t begin, size_t end)
{
    cpu_set_t now;
    if (sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1 && end - begin == 1)
        ((int *)arg)[begin] = lowest_cpu(&now);
}

static void pins_its_team(void **state)
{
    (void)state;
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int found[2] = {-1, -1}, second = fr__nth_cpu(1);
    if (second < 0) {
        print_message("no two cores\n");
        skip();
    }
    fr_device *dev = open_device(2, 0);
    fr_device_parallel(dev, 2, 1, note_cpu, found);
    assert_int_equal(found[0], lowest_cpu(&before));
    assert_int_equal(found[1], second);
    fr_device_close(dev);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

typedef struct cover {
    unsigned char *seen;
    size_t n, grain;
    bool has_bad_border;
} cover;

static void visit(void *arg, size_t begin, size_t end)
{
    cover *c = arg;
    for (size_t i = begin; i < end; i++) c->seen[i]++;
    if (begin % c->grain != 0 || (end % c->grain != 0 && end != c->n)) c->has_bad_border = true;
}

static void parallel_visits_all_once(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 7, 8, 9, 100, 1000}, grains[] = {1, 8, 64};
    fr_device *dev = open_device(3, -1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
            unsigned char seen[1000] = {0};
            cover c = {.seen = seen, .n = sizes[i], .grain = grains[g]};
            fr_device_parallel(dev, c.n, c.grain, visit, &c);
            assert_false(c.has_bad_border);
            for (size_t k = 0; k < sizeof seen; k++) assert_int_equal(seen[k], k < c.n);
        }
    }
    fr_device_close(dev);
}

static void add_adds(void **state)
{
    (void)state;
    enum { N = 50003 };
    fr_device *dev = open_device(2, -1);
    float *x = calloc(N, sizeof *x), *y = calloc(N, sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = 0.5f;
    fr__backend_cpu.add(dev, y, x, N);
    for (int i = 0; i < N; i++) assert_true(y[i] == (float)i + 0.5f);
    free(x);
    free(y);
    fr_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_it_is), cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(pins_its_thread), cmocka_unit_test(stays_where_the_process_was_put),
        cmocka_unit_test(pins_its_team),   cmocka_unit_test(parallel_visits_all_once),
        cmocka_unit_test(add_adds),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
