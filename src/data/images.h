/* images.h -- labelled byte images in memory: normalised, shifted and mirrored on the way out.
 *
 * Pixels stay bytes (a quarter of the memory of floats); a table of 256 floats a channel turns a
 * byte into its normalised value, so that decoding is one look-up a pixel. */
#ifndef FR_DATA_IMAGES_H
#define FR_DATA_IMAGES_H

#include "data/source.h"

#define FR_IMAGE_CHANNELS 3

/* One split. Pixels of image i: pixels + i * pixel_stride, (channels, height, width); its label:
 * labels[i * label_stride]. Both point into the blocks, which the part owns. */
typedef struct fr_image_part {
    int64_t n;
    const unsigned char *pixels, *labels;
    size_t pixel_stride, label_stride;
    unsigned char *blocks[2];
} fr_image_part;

typedef struct fr_images {
    fr_dataset base;
    int channels, height, width;
    float value[FR_IMAGE_CHANNELS][256]; /* of a byte, normalised */
    int crop;                            /* largest shift in pixels, up, down, left, right */
    bool flip;                           /* mirror every other image, by lot */
    int64_t limit;                       /* training images used; 0: all */
    fr_image_part part[2];               /* FR_TRAIN, FR_EVAL */
} fr_images;

typedef struct fr_image_kind {
    int channels, height, width, classes;
    float mean[FR_IMAGE_CHANNELS], std[FR_IMAGE_CHANNELS]; /* of pixels scaled to 0 .. 1 */
} fr_image_kind;

/* An empty set. NULL-safe release: fr_dataset_close. */
fr_status fr__images_create(fr_ctx *ctx, const fr_data_options *o, const fr_image_kind *kind,
                            fr_images **out);
/* The parts are loaded: check that there are images, cut to the limit, fill in the numbers. */
fr_status fr__images_finish(fr_images *m, const char *where);

#endif
