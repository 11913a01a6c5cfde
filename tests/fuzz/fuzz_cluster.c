/* fuzz_cluster.c -- any text as a cluster file: refused with a text, or a tree of groups whose
 * devices have names, speeds and a way to each other. */
#include <forerun/cost.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

static void look_at(const fr_cluster *c)
{
    must(c->n_devices >= 1 && c->n_groups >= 1 && c->groups[0].parent == -1 && c->name);
    must(isfinite(c->overhead_s) && c->overhead_s >= 0);
    for (int g = 0; g < c->n_groups; g++) {
        must(c->groups[g].name && c->groups[g].parent < g);
        must(isfinite(c->groups[g].bandwidth) && c->groups[g].bandwidth >= 0);
        must(isfinite(c->groups[g].latency) && c->groups[g].latency >= 0);
    }
    for (int d = 0; d < c->n_devices; d++) {
        must(c->devices[d].name && c->devices[d].memory >= 0);
        must(c->devices[d].group >= 0 && c->devices[d].group < c->n_groups);
        double speed = fr_cluster_speed(c, d, NULL);
        must(isnan(speed) || speed > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("cluster", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    must(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    fr_ctx *ctx = fr_ctx_create();
    fr_cluster *c;
    if (fr_cluster_read(ctx, path, &c) == FR_OK)
        look_at(c);
    else
        must(!c && *fr_ctx_error(ctx));
    fr_cluster_free(c);
    fr_ctx_free(ctx);
    return 0;
}
