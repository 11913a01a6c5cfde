/* room.c -- available memory, as reported by the kernel.
 *
 * A control group may have less memory than the machine, and each of its parents less still, so the
 * chain is walked up to the root. File pages count against the limit of a group but are reclaimed
 * on demand, so they count as free here, as in MemAvailable. */
#include "base/room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNKNOWN UINT64_MAX
#define NO_LIMIT ((uint64_t)1 << 60) /* version 1 writes a huge number if there is no limit */
enum { MOST_PATH = 4096 };

/* The files of one version, in the folder of a group. */
typedef struct layout {
    const char *controller; /* start of its line in /proc/self/cgroup */
    const char *mount;      /* root of its folders */
    const char *limit, *usage;
    const char *file_keys[2]; /* field of memory.stat: pages that can be reclaimed */
} layout;

static const layout layouts[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"memory",
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static FILE *open_in(const char *root, const char *folder, const char *name)
{
    char path[2 * MOST_PATH];
    int n = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    return n > 0 && n < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* The number in the first line that begins with `key` and a blank or colon; key "": in the first
 * line. */
static uint64_t read_number(const char *root, const char *folder, const char *name, const char *key)
{
    char line[256];
    uint64_t found = UNKNOWN;
    size_t n = strlen(key);
    FILE *f = open_in(root, folder, name);
    while (f && found == UNKNOWN && fgets(line, sizeof line, f)) {
        const char *at = line + n;
        if (strncmp(line, key, n) != 0 || (n > 0 && !strchr(" \t:", *at))) continue;
        at += strspn(at, ": \t");
        char *end;
        uint64_t value = strtoull(at, &end, 10);
        if (end == at) break; /* "max" */
        found = value;
    }
    if (f) fclose(f);
    return found;
}

/* Memory that one group has left; UNKNOWN: it has no limit. */
static uint64_t left_in(const char *root, const layout *l, const char *folder)
{
    uint64_t limit = read_number(root, folder, l->limit, "");
    uint64_t usage = read_number(root, folder, l->usage, "");
    if (limit >= NO_LIMIT || usage == UNKNOWN) return UNKNOWN;
    for (int i = 0; i < 2; i++) {
        uint64_t files = read_number(root, folder, "memory.stat", l->file_keys[i]);
        if (files != UNKNOWN) usage -= files < usage ? files : usage;
    }
    return usage < limit ? limit - usage : 0;
}

/* The path of the group in a line "4:memory:/a/b" or "0::/a/b" of this version; NULL: not one. */
static char *path_in(char *line, const layout *l)
{
    char *names = strchr(line, ':');
    char *path = names ? strchr(names + 1, ':') : NULL;
    if (!path) return NULL;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (!l->controller[0]) return names[1] == '\0' ? path : NULL;
    for (char *rest, *name = strtok_r(names + 1, ",", &rest); name;
         name = strtok_r(NULL, ",", &rest))
        if (strcmp(name, l->controller) == 0) return path;
    return NULL;
}

/* FNV-1a */
static uint64_t hash(const char *text)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001B3u;
    return h;
}

/* The minimum over the group and all of its parents. Inside a container, the group may be mounted
 * as the root, so missing folders are skipped. */
static void walk_up(const char *root, const layout *l, char *path, fr__room *out)
{
    char folder[2 * MOST_PATH];
    out->group_id ^= hash(path);
    for (;;) {
        int n = snprintf(folder, sizeof folder, "%s%s", l->mount, path);
        uint64_t left = n > 0 && n < (int)sizeof folder ? left_in(root, l, folder) : UNKNOWN;
        if (left < out->group) out->group = left;
        char *last = strrchr(path, '/');
        if (!last) return;
        *last = '\0';
    }
}

void fr__room_read(const char *root, fr__room *out)
{
    uint64_t kb = read_number(root, "/proc", "meminfo", "MemAvailable");
    *out = (fr__room){.machine = kb == UNKNOWN ? UNKNOWN : kb * 1024, .group = UNKNOWN};
    for (int i = 0; i < N_LAYOUTS; i++) {
        char line[MOST_PATH];
        FILE *f = open_in(root, "/proc/self", "cgroup");
        while (f && fgets(line, sizeof line, f)) {
            char *path = path_in(line, &layouts[i]);
            if (path) walk_up(root, &layouts[i], path, out);
        }
        if (f) fclose(f);
    }
}

size_t fr__resident_bytes(void)
{
    unsigned long whole, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%lu %lu", &whole, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}
