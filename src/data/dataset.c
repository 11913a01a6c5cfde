/* dataset.c -- the registry of data sources, and the common calls of data sets. */
#include "base/names.h"
#include "data/source.h"
#include "io/file.h"
#include "io/key.h"

#include <stdio.h>
#include <string.h>

static const fr_data_source *const sources[] = {&fr__data_fashion_mnist,
                                                &fr__data_mnist,
                                                &fr__data_cifar10,
                                                &fr__data_text,
                                                &fr__data_tsv,
                                                &fr__data_pairs,
                                                &fr__data_multi30k,
                                                &fr__data_npy,
                                                &fr__data_csv,
                                                &fr__data_synthetic,
                                                NULL};

FR_REGISTRY(fr_data_source, sources, fr_data_list, fr_data_find)

fr_status fr_dataset_open(fr_ctx *ctx, fr_conf *section, const fr_data_info *want, fr_dataset **out)
{
    static const fr_data_info nothing_known = {0};
    const char *name = NULL;
    *out = NULL;
    FR_TRY(fr__key_read(section, fr__key_find(fr_data_keys(), "data.", "name", NULL), &name));
    fr_status status = fr_data_find(name)->open(ctx, section, want ? want : &nothing_known, out);
    if (status == FR_OK) return FR_OK;
    fr_dataset_close(*out);
    *out = NULL;
    return status;
}

void fr_dataset_close(fr_dataset *d)
{
    if (!d) return;
    if (d->ops->close) d->ops->close(d);
    fr__free(d);
}

const fr_data_info *fr_dataset_info(const fr_dataset *d) { return &d->info; }

size_t fr_dataset_bytes(const fr_dataset *d) { return d->bytes; }

fr_status fr_dataset_read(fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                          uint64_t draw, void *input, void *target, int32_t *length)
{
    int32_t unwanted;
    int64_t n = split == FR_TRAIN ? d->info.n_train : d->info.n_eval;
    if (index < 0 || index >= n)
        return fr_fail(d->ctx, FR_INVALID, "%s sample %lld requested, but the data set has %lld",
                       split == FR_TRAIN ? "training" : "evaluation", (long long)index,
                       (long long)n);
    return d->ops->read(d, split, index, seed, split == FR_TRAIN ? draw : FR_DRAW_PLAIN, input,
                        target, length ? length : &unwanted);
}

const char *fr_dataset_token_text(const fr_dataset *d, int32_t id, size_t *n)
{
    *n = 0;
    return d->ops->token_text ? d->ops->token_text(d, id, n) : NULL;
}

int64_t fr_dataset_encode(const fr_dataset *d, const char *text, size_t bytes, int32_t *ids,
                          int64_t room)
{
    return d->ops->encode ? d->ops->encode(d, text, bytes, ids, room) : -1;
}

void *fr__dataset_new(fr_ctx *ctx, size_t bytes, const fr__data_ops *ops)
{
    fr_dataset *d = fr__alloc(bytes);
    if (!d) {
        fr__no_memory(ctx, bytes, "data set");
        return NULL;
    }
    d->ctx = ctx;
    d->ops = ops;
    d->bytes = bytes;
    return d;
}

bool fr__data_file(const char *folder, const char *name, char path[FR_DATA_PATH])
{
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        int n = snprintf(path, FR_DATA_PATH, "%s/%s%s", folder, name, endings[i]);
        if (n > 0 && n < FR_DATA_PATH && fr__file_exists(path)) return true;
    }
    return false;
}
