/* test_machine.c -- the description of the machine, against other sources of the system. */
#include <forerun/base.h>

#include "support/test.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static void says_what_the_system_says(void **state)
{
    (void)state;
    fr_machine m;
    struct utsname name;
    fr_machine_read(&m);
    assert_int_equal(uname(&name), 0);
    assert_int_equal(m.cores, sysconf(_SC_NPROCESSORS_ONLN));
    assert_int_in_range(m.usable_cores, 1, m.cores);
    assert_non_null(strstr(m.kernel, name.release));
    assert_null(strchr(m.processor, '\n'));
    assert_null(strchr(m.system, '"'));
    assert_true(strncmp(m.compiler, "gcc ", 4) == 0 || strncmp(m.compiler, "clang ", 6) == 0);
    if (access("/etc/os-release", R_OK) == 0) assert_true(m.system[0] != '\0');
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    if (f && fscanf(f, "MemTotal: %llu kB", &kb) == 1) assert_int_equal(m.memory_bytes, kb * 1024);
    if (f) fclose(f);
}

static void counts_the_cores_that_may_be_used(void **state)
{
    (void)state;
    fr_machine m;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    fr_machine_read(&m);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(m.usable_cores, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_the_system_says),
        cmocka_unit_test(counts_the_cores_that_may_be_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
