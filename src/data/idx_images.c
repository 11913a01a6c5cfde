/* idx_images.c -- MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017): four IDX files,
 * packed with gzip or not. Fashion-MNIST is a Debian package and is found without a path. */
#include "data/images.h"
#include "io/conf.h"
#include "io/idx.h"

enum { SIDE = 28, CLASSES = 10 };

typedef struct idx_set {
    const char *name;
    const char *remedy; /* for a folder without the files */
    fr__image_kind kind;
} idx_set;

static const idx_set fashion_mnist = {
    .name = "fashion-mnist",
    .remedy = "apt install dataset-fashion-mnist, or set path to the folder of the four IDX files",
    .kind = {1, SIDE, SIDE, CLASSES, .mean = {0.2860f}, .std = {0.3530f}}};

static const idx_set mnist = {
    .name = "mnist",
    .remedy = "set path to the folder of the four IDX files",
    .kind = {1, SIDE, SIDE, CLASSES, .mean = {0.1307f}, .std = {0.3081f}}};

static fr_status load_idx(fr_conf *section, fr_ctx *ctx, const char *folder, const char *name,
                          const char *remedy, char path[FR_DATA_PATH], unsigned char **block,
                          size_t *bytes, fr__idx *idx)
{
    if (!fr__data_file(folder, name, path))
        return fr_conf_fail(section, "path", "%s has neither %s nor %s.gz; %s", folder, name, name,
                            remedy);
    FR_TRY(fr__file_read_by(ctx, path, FR_DATA_MAX_BYTES, &fr__idx_head, block, bytes));
    return fr__idx_parse(ctx, path, *block, *bytes, idx);
}

static fr_status check_labels(fr_ctx *ctx, const char *path, const fr__idx *labels)
{
    for (int64_t i = 0; i < labels->dim[0]; i++)
        if (labels->data[i] >= CLASSES)
            return fr_fail(ctx, FR_INVALID,
                           "%s: label %d of image %lld is not in 0 .. %d; is the file damaged?",
                           path, labels->data[i], (long long)i, CLASSES - 1);
    return FR_OK;
}

static fr_status load_part(fr_conf *section, fr__images *m, const idx_set *set, const char *folder,
                           const char *images_name, const char *labels_name, fr__image_part *part)
{
    char image_path[FR_DATA_PATH], label_path[FR_DATA_PATH];
    fr_ctx *ctx = m->base.ctx;
    fr__idx images, labels;
    size_t image_bytes, label_bytes;
    FR_TRY(load_idx(section, ctx, folder, images_name, set->remedy, image_path, &part->blocks[0],
                    &image_bytes, &images));
    FR_TRY(load_idx(section, ctx, folder, labels_name, set->remedy, label_path, &part->blocks[1],
                    &label_bytes, &labels));
    if (images.n_dims != 3 || images.dim[1] != SIDE || images.dim[2] != SIDE)
        return fr_fail(ctx, FR_INVALID, "%s: not images of %d x %d bytes (%d dimensions)",
                       image_path, SIDE, SIDE, images.n_dims);
    if (labels.n_dims != 1)
        return fr_fail(ctx, FR_INVALID, "%s: labels have %d dimensions, expected 1", label_path,
                       labels.n_dims);
    if (labels.dim[0] != images.dim[0])
        return fr_fail(ctx, FR_INVALID,
                       "%s has %lld labels, but %s has %lld images; are both from the same set?",
                       label_path, (long long)labels.dim[0], image_path, (long long)images.dim[0]);
    FR_TRY(check_labels(ctx, label_path, &labels));
    part->n = images.dim[0];
    part->pixels = images.data;
    part->labels = labels.data;
    part->pixel_stride = SIDE * SIDE;
    part->label_stride = 1;
    m->base.bytes += image_bytes + label_bytes;
    return FR_OK;
}

static fr_status open_set(fr_ctx *ctx, fr_conf *section, const idx_set *set, fr_dataset **out)
{
    fr__data_options o = {0};
    FR_TRY(fr__data_options_read(section, set->name, &o));
    fr__images *m = fr__images_create(ctx, &o, &set->kind, out);
    if (!m) return FR_NO_MEMORY;
    FR_TRY(load_part(section, m, set, o.path, "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                     &m->part[FR_TRAIN]));
    FR_TRY(load_part(section, m, set, o.path, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
                     &m->part[FR_EVAL]));
    return fr__images_finish(m, o.path);
}

static fr_status open_fashion_mnist(fr_ctx *ctx, fr_conf *section, const fr_data_info *want,
                                    fr_dataset **out)
{
    (void)want;
    return open_set(ctx, section, &fashion_mnist, out);
}

static fr_status open_mnist(fr_ctx *ctx, fr_conf *section, const fr_data_info *want,
                            fr_dataset **out)
{
    (void)want;
    return open_set(ctx, section, &mnist, out);
}

const fr_data_source fr__data_fashion_mnist = {
    .name = "fashion-mnist",
    .summary = "70,000 pictures of clothes, 28 x 28, 10 classes (Debian: dataset-fashion-mnist)",
    .open = open_fashion_mnist};

const fr_data_source fr__data_mnist = {.name = "mnist",
                                       .summary = "70,000 handwritten digits, 28 x 28, 10 classes",
                                       .open = open_mnist};
