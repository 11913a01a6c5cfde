/* thread.c -- clock, cores, resident memory. */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t fr__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int fr__cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

double fr__stolen_s(void)
{
    unsigned long long t[8];
    FILE *f = fopen("/proc/stat", "re");
    int n = 0;
    if (f) {
        n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
                   &t[4], &t[5], &t[6], &t[7]);
        fclose(f);
    }
    long hz = sysconf(_SC_CLK_TCK), n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    return n == 8 && hz > 0 && n_cores > 0 ? (double)t[7] / (double)hz / (double)n_cores : 0;
}

bool fr__thread_pin(int first, int n)
{
    cpu_set_t may, want;
    if (first < 0 || n < 1 || sched_getaffinity(0, sizeof may, &may) != 0) return false;
    CPU_ZERO(&want);
    int i = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &may)) continue;
        if (i >= first && i - first < n) CPU_SET(cpu, &want);
        i++;
    }
    return CPU_COUNT(&want) == n && sched_setaffinity(0, sizeof want, &want) == 0;
}

int fr__nth_cpu(int nth)
{
    cpu_set_t may;
    if (nth < 0 || sched_getaffinity(0, sizeof may, &may) != 0) return -1;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && nth-- == 0) return (int)cpu;
    return -1;
}

uint64_t fr__cpus_id(void)
{
    cpu_set_t may;
    uint64_t id = 0;
    if (sched_getaffinity(0, sizeof may, &may) != 0) return id;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may)) id = (id ^ (cpu + 1)) * 0x100000001b3u;
    return id;
}

void fr__thread_name(const char *name)
{
    char cut[16]; /* the kernel rejects longer names */
    snprintf(cut, sizeof cut, "%s", name);
    pthread_setname_np(pthread_self(), cut);
}

void fr__sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u),
                            .tv_nsec = (long)(ns % 1000000000u)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

size_t fr__peak_rss(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (size_t)u.ru_maxrss * 1024 : 0;
}
