/* test_room.c -- available memory, read from artificial folders: machines with control groups of
 * both versions, nested, without limits, and inside containers. */
#include "base/room.h"

#include "support/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MB ((uint64_t)1 << 20)

static char root[64];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/forerun-room-");
    memset(root + strlen(root), 'X', 6);
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Create a file below the root, and its folders. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        (void)mkdir(full, 0777);
        *at = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static fr__room look(void)
{
    fr__room room;
    fr__room_read(root, &room);
    return room;
}

static void put_machine(void)
{
    put("/proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n");
}

static void nothing_is_known(void **state)
{
    (void)state;
    fr__room room = look();
    assert_true(room.machine == UINT64_MAX && room.group == UINT64_MAX);
    put_machine();
    put("/proc/self/cgroup", "0::/\n");
    room = look();
    assert_int_equal(room.machine, 2 * MB);
    assert_true(room.group == UINT64_MAX);
}

/* The parent has less left than the group itself; file pages count as free. */
static void version_2_walks_up(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "0::/jobs/one\n");
    put("/sys/fs/cgroup/jobs/one/memory.max", "104857600\n");    /* 100 MB */
    put("/sys/fs/cgroup/jobs/one/memory.current", "10485760\n"); /* 10 */
    assert_int_equal(look().group, 90 * MB);
    put("/sys/fs/cgroup/jobs/one/memory.stat", "anon 1\ninactive_file 1048576\nactive_file 0\n");
    assert_int_equal(look().group, 91 * MB);
    put("/sys/fs/cgroup/jobs/memory.max", "52428800\n"); /* 50 */
    put("/sys/fs/cgroup/jobs/memory.current", "41943040\n");
    assert_int_equal(look().group, 10 * MB);
    put("/sys/fs/cgroup/jobs/memory.current", "62914560\n"); /* beyond its limit */
    assert_int_equal(look().group, 0);
    put("/sys/fs/cgroup/jobs/memory.max", "max\n");
    assert_int_equal(look().group, 91 * MB);
}

static void version_1_too(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
    assert_true(look().group == UINT64_MAX);
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "20971520\n");
    put("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "5242880\n");
    put("/sys/fs/cgroup/memory/a/b/memory.stat", "total_inactive_file 1048576\n");
    assert_int_equal(look().group, 16 * MB);
}

/* The group is mounted as the root, so the folder of the path does not exist. */
static void inside_a_container(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "0::/somewhere/outside\n");
    put("/sys/fs/cgroup/memory.max", "8388608\n");
    put("/sys/fs/cgroup/memory.current", "1048576\n");
    assert_int_equal(look().group, 7 * MB);
}

static void groups_are_told_apart(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/one\n");
    uint64_t one = look().group_id;
    assert_true(one == look().group_id);
    put("/proc/self/cgroup", "0::/two\n");
    assert_true(one != look().group_id);
}

static void of_this_process(void **state)
{
    (void)state;
    enum { BYTES = 64 << 20 };
    size_t before = fr__resident_bytes();
    char *block = malloc(BYTES);
    assert_non_null(block);
    memset(block, 1, BYTES);
    size_t after = fr__resident_bytes();
    assert_true(before > 0 && after >= before + BYTES / 2 && block[BYTES - 1] == 1);
    free(block);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(nothing_is_known),   RUN(version_2_walks_up),    RUN(version_1_too),
        RUN(inside_a_container), RUN(groups_are_told_apart), RUN(of_this_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
