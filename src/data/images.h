/* images.h -- labelled byte images in memory; normalised, shifted and mirrored when read.
 *
 * Pixels stay bytes, a quarter of the memory of floats. A table of 256 floats per channel maps a
 * byte to its normalised value, so decoding is one look-up per pixel. */
#ifndef FR_DATA_IMAGES_H
#define FR_DATA_IMAGES_H

#include "data/source.h"

#define FR_IMAGE_CHANNELS 3

/* One split. Pixels of image i: pixels + i * pixel_stride, (channels, height, width); its label:
 * labels[i * label_stride]. Both point into the blocks, which the part owns. */
typedef struct fr__image_part {
    int64_t n;
    const unsigned char *pixels, *labels;
    size_t pixel_stride, label_stride;
    unsigned char *blocks[2];
} fr__image_part;

typedef struct fr__images {
    fr_dataset base;
    int channels, height, width;
    float value[FR_IMAGE_CHANNELS][256]; /* of a byte, normalised */
    int crop;                            /* largest shift in pixels, up, down, left, right */
    bool flip;                           /* mirror images with probability 1/2 */
    int64_t limit;                       /* training images used; 0: all */
    fr__image_part part[2];              /* FR_TRAIN, FR_EVAL */
} fr__images;

typedef struct fr__image_kind {
    int channels, height, width, classes;
    float mean[FR_IMAGE_CHANNELS], std[FR_IMAGE_CHANNELS]; /* of pixels scaled to 0 .. 1 */
} fr__image_kind;

/* An empty set, in *out too; NULL: no memory, reported in the context. */
fr__images *fr__images_create(fr_ctx *ctx, const fr__data_options *o, const fr__image_kind *kind,
                              fr_dataset **out);
/* Call after loading the parts: check that there are images, apply the limit, set the numbers. */
fr_status fr__images_finish(fr__images *m, const char *where);

#endif
