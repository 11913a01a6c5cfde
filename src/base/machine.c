/* machine.c -- describes the machine on which times were measured. */
#include "base/thread.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The text after `key` and `mark` in the first line of a file that begins with the key; "" if there
 * is none. */
static void look_up(const char *path, const char *key, char mark, char *text, size_t room)
{
    char line[512];
    text[0] = '\0';
    FILE *f = fopen(path, "re");
    while (f && !text[0] && fgets(line, sizeof line, f)) {
        const char *from = strchr(line, mark);
        if (strncmp(line, key, strlen(key)) != 0 || !from) continue;
        from += 1 + strspn(from + 1, " \t\"");
        snprintf(text, room, "%.*s", (int)strcspn(from, "\"\n"), from);
    }
    if (f) fclose(f);
}

void fr_machine_read(fr_machine *m)
{
    struct utsname name;
    *m = (fr_machine){.cores = (int)sysconf(_SC_NPROCESSORS_ONLN), .usable_cores = fr__cpu_count()};
    look_up("/proc/cpuinfo", "model name", ':', m->processor, sizeof m->processor);
    look_up("/etc/os-release", "PRETTY_NAME", '=', m->system, sizeof m->system);
    if (uname(&name) == 0)
        snprintf(m->kernel, sizeof m->kernel, "%.32s %.64s %.24s", name.sysname, name.release,
                 name.machine);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) m->memory_bytes = (uint64_t)pages * (uint64_t)page;
#if defined(__clang__)
    snprintf(m->compiler, sizeof m->compiler, "clang %d.%d.%d", __clang_major__, __clang_minor__,
             __clang_patchlevel__);
#elif defined(__GNUC__)
    snprintf(m->compiler, sizeof m->compiler, "gcc %d.%d.%d", __GNUC__, __GNUC_MINOR__,
             __GNUC_PATCHLEVEL__);
#endif
}
