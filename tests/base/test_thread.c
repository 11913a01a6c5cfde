/* test_thread.c -- binding to allowed cores, names, sleeping. */
#include "base/thread.h"
#include "support/check.h"

#include <sched.h>

static cpu_set_t cores(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

/* In a separate thread, so that its binding ends with it. */
static void *pin(void *arg)
{
    bool *is_right = arg;
    cpu_set_t before = cores();
    int n = fr__cpu_count();
    size_t last = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &before)) last = cpu;
    is_right[0] = !fr__thread_pin(n, 1) && !fr__thread_pin(0, n + 1) && !fr__thread_pin(-1, 1) &&
                  !fr__thread_pin(0, 0);
    cpu_set_t after = cores();
    is_right[0] = is_right[0] && CPU_EQUAL(&before, &after);
    is_right[1] = fr__thread_pin(0, n) && fr__cpu_count() == n;
    is_right[2] = fr__thread_pin(n - 1, 1) && fr__cpu_count() == 1;
    after = cores();
    is_right[3] = CPU_ISSET(last, &after) && sched_getcpu() == (int)last;
    /* Core 0 is now the last one, whatever its number, as for a job in a cpuset. */
    is_right[4] = fr__thread_pin(0, 1) && !fr__thread_pin(1, 1);
    return NULL;
}

/* Steal time only grows, and does not exceed the elapsed time; the system counts in ticks. */
static void knows_what_was_stolen(void **state)
{
    (void)state;
    uint64_t start = fr__now_ns();
    double before = fr__stolen_s();
    while (fr__now_ns() - start < 50000000) continue;
    double after = fr__stolen_s();
    double passed = (double)(fr__now_ns() - start) * 1e-9;
    assert_true(before >= 0 && after >= before && after - before < passed + 0.1);
}

static void pins_to_the_cores_it_may_use(void **state)
{
    (void)state;
    pthread_t thread;
    bool is_right[5] = {false};
    cpu_set_t before = cores();
    assert_int_equal(pthread_create(&thread, NULL, pin, is_right), 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < 5; i++)
        if (!is_right[i]) fail_msg("step %d", i);
    cpu_set_t after = cores();
    assert_true(CPU_EQUAL(&before, &after));
}

static void names_are_cut(void **state)
{
    (void)state;
    char name[16];
    fr__thread_name("worker 12345678901234567890");
    assert_int_equal(pthread_getname_np(pthread_self(), name, sizeof name), 0);
    assert_string_equal(name, "worker 12345678");
}

static void sleeps_long_enough(void **state)
{
    (void)state;
    uint64_t start = fr__now_ns();
    fr__sleep_ns(3000000);
    assert_true(fr__now_ns() - start >= 3000000);
    fr__sleep_ns(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pins_to_the_cores_it_may_use),
        cmocka_unit_test(knows_what_was_stolen),
        cmocka_unit_test(names_are_cut),
        cmocka_unit_test(sleeps_long_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
