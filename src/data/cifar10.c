/* cifar10.c -- CIFAR-10 (Krizhevsky, 2009), binary version: records of one label byte and 3 planes
 * of 32 x 32 bytes. All files data_batch_*.bin are the training part, all test_batch*.bin the
 * evaluation part, packed or not. A subset of the files is sufficient. */
#include "base/vec.h"
#include "data/images.h"
#include "io/conf.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, CLASSES = 10, RECORD = 1 + 3 * SIDE * SIDE };

static const fr__image_kind kind = {.channels = 3,
                                    .height = SIDE,
                                    .width = SIDE,
                                    .classes = CLASSES,
                                    .mean = {0.4914f, 0.4822f, 0.4465f},
                                    .std = {0.2470f, 0.2435f, 0.2616f}};

typedef FR_VEC(char *) name_list;

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n >= m && strcmp(name + n - m, ending) == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* List the names in `folder` that begin with `prefix` and end in .bin or .bin.gz, sorted. */
static fr_status list_files(fr_ctx *ctx, const char *folder, const char *prefix, name_list *names)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return fr_fail(ctx, FR_INVALID, "cannot list %s: %s; is data.path right?", folder,
                       strerror(errno));
    bool has_room = true;
    for (struct dirent *e; has_room && (e = readdir(dir));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
        if (!ends_with(e->d_name, ".bin") && !ends_with(e->d_name, ".bin.gz")) continue;
        char *copy = fr__strdup(e->d_name);
        has_room = copy && fr__vec_push(names, copy);
        if (!has_room) fr__free(copy);
    }
    closedir(dir);
    if (!has_room) return fr__no_memory(ctx, 0, "list of CIFAR-10 files");
    if (names->n) qsort(names->at, names->n, sizeof *names->at, by_name);
    return FR_OK;
}

static fr_status check_records(fr_ctx *ctx, const char *path, const unsigned char *data,
                               size_t bytes)
{
    if (bytes == 0 || bytes % RECORD)
        return fr_fail(ctx, FR_INVALID,
                       "%s: %zu bytes are not whole records of %d bytes (record %zu is cut); "
                       "is the download complete?",
                       path, bytes, RECORD, bytes / RECORD);
    for (size_t i = 0; i < bytes / RECORD; i++)
        if (data[i * RECORD] >= CLASSES)
            return fr_fail(ctx, FR_INVALID,
                           "%s: record %zu has label %d, expected 0 .. %d; is this the binary "
                           "version of CIFAR-10?",
                           path, i, data[i * RECORD], CLASSES - 1);
    return FR_OK;
}

/* Append the records of one file to the part's block. */
static fr_status append_file(fr_ctx *ctx, const char *path, fr__image_part *part)
{
    unsigned char *data = NULL;
    size_t bytes, held = (size_t)part->n * RECORD;
    FR_TRY(fr__file_read(ctx, path, FR_DATA_MAX_BYTES, &data, &bytes));
    fr_status status = check_records(ctx, path, data, bytes);
    if (status == FR_OK && held == 0) {
        part->blocks[0] = data;
        data = NULL;
    } else if (status == FR_OK) {
        unsigned char *grown = fr__realloc(part->blocks[0], held, held + bytes);
        if (grown)
            memcpy(grown + held, data, bytes), part->blocks[0] = grown;
        else
            status = fr__no_memory(ctx, held + bytes, "CIFAR-10 images");
    }
    fr__free(data);
    if (status == FR_OK) part->n += (int64_t)(bytes / RECORD);
    return status;
}

static fr_status load_files(fr_ctx *ctx, const char *folder, const name_list *names,
                            fr__image_part *part)
{
    for (size_t i = 0; i < names->n; i++) {
        char path[FR_DATA_PATH];
        const char *name = names->at[i];
        /* x.bin sorts directly before x.bin.gz, which has the same records */
        if (i && ends_with(name, ".gz") && strlen(name) == strlen(names->at[i - 1]) + 3 &&
            strncmp(name, names->at[i - 1], strlen(name) - 3) == 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
            return fr_fail(ctx, FR_INVALID, "%s: path too long", folder);
        FR_TRY(append_file(ctx, path, part));
    }
    return FR_OK;
}

static fr_status load_part(fr__images *m, fr_conf *section, const char *folder, const char *prefix,
                           fr__image_part *part)
{
    name_list names = {0};
    fr_ctx *ctx = m->base.ctx;
    fr_status status = list_files(ctx, folder, prefix, &names);
    if (status == FR_OK && names.n == 0)
        status = fr_conf_fail(section, "path",
                              "%s has no file %s*.bin or %s*.bin.gz; set path to the folder of the "
                              "binary version of CIFAR-10",
                              folder, prefix, prefix);
    if (status == FR_OK) status = load_files(ctx, folder, &names, part);
    for (size_t i = 0; i < names.n; i++) fr__free(names.at[i]);
    fr__vec_fini(&names);
    if (status != FR_OK) return status;
    part->labels = part->blocks[0];
    part->pixels = part->blocks[0] + 1;
    part->pixel_stride = part->label_stride = RECORD;
    m->base.bytes += (size_t)part->n * RECORD;
    return FR_OK;
}

static fr_status cifar10_open(fr_ctx *ctx, fr_conf *section, const fr_data_info *want,
                              fr_dataset **out)
{
    fr__data_options o = {0};
    (void)want;
    FR_TRY(fr__data_options_read(section, "cifar10", &o));
    fr__images *m = fr__images_create(ctx, &o, &kind, out);
    if (!m) return FR_NO_MEMORY;
    FR_TRY(load_part(m, section, o.path, "data_batch_", &m->part[FR_TRAIN]));
    FR_TRY(load_part(m, section, o.path, "test_batch", &m->part[FR_EVAL]));
    return fr__images_finish(m, o.path);
}

const fr_data_source fr__data_cifar10 = {
    .name = "cifar10",
    .summary = "60,000 small colour pictures, 3 x 32 x 32, 10 classes (binary version)",
    .open = cifar10_open};
