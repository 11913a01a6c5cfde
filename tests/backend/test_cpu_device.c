/* test_cpu_device.c -- the cpu device: threads, pinning, sweeps. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
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

static fr_device *open_device(int n_threads, bool pin)
{
    fr_device *dev;
    fr_device_desc desc = {.n_threads = n_threads, .pin = pin};
    assert_int_equal(fr_device_open(ctx, &fr__backend_cpu, &desc, &dev), FR_OK);
    return dev;
}

static void says_what_it_is(void **state)
{
    (void)state;
    fr_device *dev = open_device(3, false);
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
    dev = open_device(0, false);
    assert_int_equal(fr_device_n_threads(dev), fr__cpu_count());
    fr_device_close(dev);
}

static void name_is(unsigned bits, const char *expected)
{
    char name[32];
    fr__isa_name(bits, name, sizeof name);
    assert_string_equal(name, expected);
}

static void instruction_sets_have_names(void **state)
{
    (void)state;
    name_is(0, "generic code");
#if defined(__x86_64__)
    name_is(dnnl_cpu_isa_sse41, "sse4.1");
    name_is(dnnl_cpu_isa_avx, "avx");
    name_is(dnnl_cpu_isa_avx2, "avx2");
    name_is(dnnl_cpu_isa_avx2_vnni, "avx2+vnni");
    name_is(dnnl_cpu_isa_avx512_core, "avx512");
    name_is(dnnl_cpu_isa_avx512_core_vnni, "avx512+vnni");
    name_is(dnnl_cpu_isa_avx512_core_bf16, "avx512+bf16");
    name_is(0x1ef, "avx512+fp16");
    name_is(dnnl_cpu_isa_avx512_core_amx, "avx512+amx");
    name_is(0x1fef, "avx512+amx+fp16");
    name_is(dnnl_cpu_isa_avx2 | 1u << 20, "avx2 or later");
    name_is(dnnl_cpu_isa_avx512_core_bf16 | 1u << 20, "avx512+bf16 or later");
    name_is(0x1fef | 1u << 20, "avx512+amx+fp16 or later");
#elif defined(__aarch64__)
    name_is(0x1, "asimd");
    name_is(0x3, "sve128");
    name_is(0x7, "sve256");
    name_is(0x27, "sve512");
    name_is(0x7 | 1u << 20, "sve256 or later");
#endif
}

/* The name of the instruction set in a process that has not used oneDNN yet, with or without a
 * limit. */
static void name_under(const char *limit, char *name, size_t room)
{
    int ends[2], code;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (limit) setenv("ONEDNN_MAX_CPU_ISA", limit, 1);
        fr__isa_name(dnnl_get_effective_cpu_isa(), name, room);
        size_t n = strlen(name) + 1;
        _exit(write(ends[1], name, n) == (ssize_t)n ? 0 : 1);
    }
    close(ends[1]);
    assert_true(read(ends[0], name, room) > 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
}

/* Runs first: oneDNN reads its variables once. */
static void the_instruction_set_is_the_one_asked_for(void **state)
{
    (void)state;
    unsetenv("ONEDNN_MAX_CPU_ISA");
    unsetenv("DNNL_MAX_CPU_ISA");
    typedef struct limit {
        bool is_here;
        const char *value, *name;
    } limit;
#if defined(__x86_64__)
    const bool has_512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool has_vnni = has_512 && __builtin_cpu_supports("avx512vnni");
    const bool has_bf16 = has_vnni && __builtin_cpu_supports("avx512bf16");
    const limit limits[] = {{__builtin_cpu_supports("sse4.1"), "SSE41", "sse4.1"},
                            {__builtin_cpu_supports("avx"), "AVX", "avx"},
                            {__builtin_cpu_supports("avx2"), "AVX2", "avx2"},
                            {has_512, "AVX512_CORE", "avx512"},
                            {has_vnni, "AVX512_CORE_VNNI", "avx512+vnni"},
                            {has_bf16, "AVX512_CORE_BF16", "avx512+bf16"}};
#elif defined(__aarch64__)
    const limit limits[] = {{true, "ADVANCED_SIMD", "asimd"}};
#else
    const limit limits[] = {{true, "ALL", "generic code"}};
#endif
    char name[32];
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (!limits[i].is_here) continue;
        name_under(limits[i].value, name, sizeof name);
        assert_string_equal(name, limits[i].name);
    }
    name_under(NULL, name, sizeof name);
    assert_null(strstr(name, "later"));
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    const fr_device_desc bad[] = {{.n_threads = -1},
                                  {.n_threads = 1, .pin = true, .first_cpu = CPU_SETSIZE - 1},
                                  {.n_threads = 1, .pin = true, .first_cpu = 1 << 20},
                                  {.n_threads = 1, .pin = true, .first_cpu = -1}};
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

/* Libraries that abort when out of memory are not started. */
static void short_address_space_is_an_error(void **state)
{
    (void)state;
#ifndef FR_SANITIZED /* whose shadow is larger than any limit */
    struct rlimit before, little, kept;
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu", &pages), 1);
    fclose(f);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    little = before;
    little.rlim_cur = (rlim_t)(pages * (unsigned long long)sysconf(_SC_PAGESIZE) + (32 << 20));
    fr_device *dev;
    fr_device_desc desc = {.n_threads = 1};
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
    assert_int_equal(getrlimit(RLIMIT_AS, &kept), 0);
    if (kept.rlim_cur != little.rlim_cur)
        skip_because("a short address space", "the emulator takes no limit");
    fr_status status = fr_device_open(ctx, &fr__backend_cpu, &desc, &dev);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, FR_NO_MEMORY);
    assert_non_null(strstr(fr_ctx_error(ctx), "ulimit -v"));
    fr_ctx_clear(ctx);
#endif
}

static void pins_its_thread(void **state)
{
    (void)state;
    cpu_set_t before, now;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int cpu = lowest_cpu(&before);
    fr_device *dev = open_device(1, true);
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_int_equal(CPU_COUNT(&now), 1);
    assert_int_equal(lowest_cpu(&now), cpu);
    fr_device_close(dev);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* A launcher or job system has bound the process: core 0 is the first core of its set. */
static void stays_where_the_process_was_put(void **state)
{
    (void)state;
    cpu_set_t before, only, now;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int last = fr__nth_cpu(fr__cpu_count() - 1);
    CPU_ZERO(&only);
    CPU_SET((unsigned)last, &only);
    assert_int_equal(sched_setaffinity(0, sizeof only, &only), 0);
    fr_device *dev = open_device(1, true), *none;
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    fr_device_close(dev);
    const fr_device_desc outside = {.n_threads = 1, .pin = true, .first_cpu = 1};
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
    if (second < 0) skip_because("a team pinned to its cores", "this machine has one core");
    fr_device *dev = open_device(2, true);
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
    fr_device *dev = open_device(3, false);
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
    fr_device *dev = open_device(2, false);
    float *x = calloc(N, sizeof *x), *y = calloc(N, sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = 0.5f;
    fr__backend_cpu.add(dev, FR_F32, y, x, N);
    for (int i = 0; i < N; i++) assert_true(y[i] == (float)i + 0.5f);
    free(x);
    free(y);
    fr_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_instruction_set_is_the_one_asked_for),
        cmocka_unit_test(instruction_sets_have_names),
        cmocka_unit_test(says_what_it_is),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(short_address_space_is_an_error),
        cmocka_unit_test(pins_its_thread),
        cmocka_unit_test(stays_where_the_process_was_put),
        cmocka_unit_test(pins_its_team),
        cmocka_unit_test(parallel_visits_all_once),
        cmocka_unit_test(add_adds),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
