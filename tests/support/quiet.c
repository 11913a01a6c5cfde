/* quiet.c -- the states of the threads, from Linux.
 *
 * With one check per thread, a thread could be woken after its check by one that is checked
 * later. So all are checked twice: a thread that sleeps both times and has not run in between (the
 * system counts this) has slept from one check to the other, and all of them at the moment between
 * the two rounds. */
#include "support/quiet.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* One thread: false if it does not sleep. *sum changes when it has been on a core. */
static bool is_asleep(const char *name, uint64_t *sum)
{
    char path[64], line[128];
    bool is_asleep = false;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", name);
    FILE *f = fopen(path, "re");
    if (!f) return false; /* it has just ended */
    while (fgets(line, sizeof line, f)) {
        char *switches = strstr(line, "voluntary_ctxt_switches:");
        if (strncmp(line, "State:", 6) == 0) is_asleep = strstr(line, "\tS") != NULL;
        if (switches) *sum = *sum * 31 + strtoull(strchr(switches, ':') + 1, NULL, 10);
    }
    fclose(f);
    *sum = *sum * 31 + strtoull(name, NULL, 10);
    return is_asleep;
}

static bool look(uint64_t *sum)
{
    DIR *threads = opendir("/proc/self/task");
    if (!threads) abort(); /* no test can be judged without it */
    const long self = syscall(SYS_gettid);
    bool are_asleep = true;
    for (const struct dirent *d; are_asleep && (d = readdir(threads)) != NULL;)
        if (d->d_name[0] != '.' && atol(d->d_name) != self) are_asleep = is_asleep(d->d_name, sum);
    closedir(threads);
    return are_asleep;
}

bool quiet_now(void)
{
    uint64_t first = 0, second = 0;
    return look(&first) && look(&second) && first == second;
}

void quiet_wait(void)
{
    while (!quiet_now()) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}
