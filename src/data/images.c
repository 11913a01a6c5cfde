/* images.c -- labelled byte images: normalisation by table, random shift and mirror.
 *
 * The shift is the usual "pad by p black pixels, crop at a random place"; black is byte 0 before
 * normalisation. Random numbers depend only on (seed, draw number). */
#include "data/images.h"
#include "base/philox.h"

/* One row of the input; black outside the image (row NULL: the whole row). */
static void put_row(float *to, const unsigned char *row, const float value[256], int width,
                    int shift, bool mirror)
{
    int begin = !row ? width : shift < 0 ? -shift : 0;
    int end = shift > 0 ? width - shift : width;
    int step = mirror ? -1 : 1;
    float *at = mirror ? to + width - 1 : to;
    for (int x = 0; x < begin; x++) at[x * step] = value[0];
    for (int x = begin; x < end; x++) at[x * step] = value[row[x + shift]];
    for (int x = end; x < width; x++) at[x * step] = value[0];
}

static fr_status images_read(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                             uint64_t draw, void *input, void *target, int32_t *length)
{
    const fr__images *m = (const fr__images *)d;
    const fr__image_part *part = &m->part[split];
    const unsigned char *pixels = part->pixels + (size_t)index * part->pixel_stride;
    int down = 0, right = 0;
    bool mirror = false;
    if (draw != FR_DRAW_PLAIN) {
        uint32_t lot[4], places = 2 * (uint32_t)m->crop + 1;
        fr__random4(seed, FR_STREAM_AUGMENT, 0, draw, 0, lot);
        down = (int)(lot[0] % places) - m->crop;
        right = (int)(lot[1] % places) - m->crop;
        mirror = m->flip && (lot[2] & 1);
    }
    float *to = input; /* (channels, height, width) */
    for (int c = 0; c < m->channels; c++) {
        for (int y = 0; y < m->height; y++, to += m->width) {
            int from = y + down;
            const unsigned char *row =
                from < 0 || from >= m->height ? NULL : pixels + (c * m->height + from) * m->width;
            put_row(to, row, m->value[c], m->width, right, mirror);
        }
    }
    *(int32_t *)target = part->labels[(size_t)index * part->label_stride];
    *length = 0;
    return FR_OK;
}

static void images_close(fr_dataset *d)
{
    fr__images *m = (fr__images *)d;
    for (int i = 0; i < 4; i++) fr__free(m->part[i / 2].blocks[i % 2]);
}

static const fr__data_ops ops = {.read = images_read, .close = images_close};

fr__images *fr__images_create(fr_ctx *ctx, const fr__data_options *o, const fr__image_kind *kind,
                              fr_dataset **out)
{
    fr__images *m = fr__dataset_new(ctx, sizeof *m, &ops);
    if (!m) return NULL;
    *out = &m->base;
    m->channels = kind->channels;
    m->height = kind->height;
    m->width = kind->width;
    m->limit = o->limit;
    m->crop = (int)o->crop;
    m->flip = o->flip;
    for (int c = 0; c < kind->channels; c++)
        for (int v = 0; v < 256; v++)
            m->value[c][v] = ((float)v / 255.0f - kind->mean[c]) / kind->std[c];
    m->base.info = (fr_data_info){.input = FR_SHAPE(kind->channels, kind->height, kind->width),
                                  .input_dtype = FR_F32,
                                  .n_classes = kind->classes};
    return m;
}

fr_status fr__images_finish(fr__images *m, const char *where)
{
    fr__image_part *train = &m->part[FR_TRAIN], *eval = &m->part[FR_EVAL];
    if (train->n < 1)
        return fr_fail(m->base.ctx, FR_INVALID, "%s: no training images; at least one is needed",
                       where);
    if (m->limit > 0 && m->limit < train->n) train->n = m->limit;
    m->base.info.n_train = train->n;
    m->base.info.n_eval = eval->n;
    return FR_OK;
}
