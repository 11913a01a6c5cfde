/* synthetic.c -- synthetic, learnable data of any shape, cheap enough for measurements of speed.
 *
 * Everything is a pure function of (seed, split, index). The class is drawn first, then the input
 * follows from it:
 *   numbers  noise + pattern of the class, together N(0, 1); the best classifier is linear. Both
 *            are windows into one pool of normal numbers, so a sample costs a copy. Along height
 *            and width the pattern repeats every 4, so that convolutions and pooling see it.
 *   tokens   half of them from four words that mark the class, the rest random
 *   next     (one target per token) mostly the next letter of a small alphabet, sometimes
 *            any letter: a model can learn the rule, but not the exceptions
 *   floats   (a loss that reads floats) the numbers of the class, one of 16
 *   pairs    (twice as many tokens as targets) a text of random letters and its translation: each
 *            letter becomes the next one */
#include "base/philox.h"
#include "data/source.h"

#include <math.h>

enum { PLACES = 1 << 16, TILE = 4, MAX_LETTERS = 256, N_MARKS = 4, N_LEVELS = 16 };
enum { POOL_LOT, TRAIN_LOT, EVAL_LOT, CLASS_LOT }; /* ids of the random stream */

static const float pattern_part = 0.5f, noise_part = 0.8660254f; /* squares add up to 1 */

typedef struct synthetic_set {
    fr_dataset base;
    uint64_t seed;
    int64_t input_count, target_count;
    bool is_next_token, is_pair;
    float *pool; /* (PLACES + input_count) normal numbers; NULL for tokens */
    int32_t n_letters, first_letter, letter_step; /* token ids in use */
} synthetic_set;

/* Floats: each class has numbers of its own in 0 .. 1, which every loss accepts. */
static void put_floats(const synthetic_set *s, int32_t class, float *to)
{
    for (int64_t i = 0; i < s->target_count; i++) {
        uint32_t lot[4];
        fr__random4(s->seed, FR_STREAM_SYNTHETIC, CLASS_LOT, (uint64_t) class, 1 + (uint32_t)i,
                    lot);
        to[i] = (float)(lot[0] >> 8) * 0x1p-24f;
    }
}

static void fill_pool(float *pool, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i += 2) { /* Box and Muller, 1958 */
        uint32_t lot[4];
        fr__random4(seed, FR_STREAM_SYNTHETIC, POOL_LOT, (uint64_t)i, 0, lot);
        double radius = sqrt(-2 * log(((double)lot[0] + 1) * 0x1p-32));
        double angle = 6.283185307179586 * 0x1p-32 * lot[1];
        pool[i] = (float)(radius * cos(angle));
        if (i + 1 < n) pool[i + 1] = (float)(radius * sin(angle));
    }
}

/* (..., height, width): a tile of the pattern for each plane, repeated; one dimension: no repeat.
 */
static void put_numbers(const synthetic_set *s, const float *noise, const float *pattern, float *to)
{
    const fr_shape *shape = &s->base.info.input;
    int64_t width = shape->dim[shape->n_dims - 1];
    int64_t height = shape->n_dims > 2 ? shape->dim[shape->n_dims - 2] : 1;
    int64_t tile = shape->n_dims > 1 && width > TILE ? TILE : width;
    int64_t tile_rows = height < TILE ? height : TILE;
    int64_t rows = s->input_count / width;
    for (int64_t row = 0; row < rows; row++, noise += width, to += width) {
        const float *p = pattern + (row / height * tile_rows + row % height % tile_rows) * tile;
        for (int64_t x = 0; x < width; x += tile) {
            int64_t n = width - x < tile ? width - x : tile;
            for (int64_t i = 0; i < n; i++)
                to[x + i] = noise_part * noise[x + i] + pattern_part * p[i];
        }
    }
}

static int32_t letter_id(const synthetic_set *s, uint32_t lot)
{
    return s->first_letter + (int32_t)(lot % (uint32_t)s->n_letters) * s->letter_step;
}

/* One random word per position, four from each call. */
typedef struct lots {
    uint64_t seed, index;
    uint32_t id, n, word[4];
} lots;

static uint32_t draw_lot(lots *l)
{
    if (l->n % 4 == 0)
        fr__random4(l->seed, FR_STREAM_SYNTHETIC, l->id, l->index, 1 + l->n / 4, l->word);
    return l->word[l->n++ % 4];
}

static void put_next_tokens(const synthetic_set *s, lots *l, uint32_t start, int64_t n,
                            int32_t *ids, int32_t *target)
{
    uint32_t letter = start % (uint32_t)s->n_letters;
    for (int64_t i = 0; i < n; i++) {
        uint32_t lot = draw_lot(l);
        ids[i] = letter_id(s, letter);
        letter = (lot & 7 ? letter + 1 : lot >> 3) % (uint32_t)s->n_letters;
        target[i] = letter_id(s, letter);
    }
}

/* The source, then the input of the decoder: a start token 0, then the targets shifted by one. */
static void put_pair(const synthetic_set *s, lots *l, int64_t n, int32_t *ids, int32_t *target)
{
    int64_t context = s->target_count;
    int32_t *known = ids + context;
    for (int64_t i = 0; i < n; i++) {
        uint32_t letter = draw_lot(l) % (uint32_t)s->n_letters;
        ids[i] = letter_id(s, letter);
        target[i] = letter_id(s, letter + 1);
        known[i] = i > 0 ? target[i - 1] : 0;
    }
    for (int64_t i = n; i < context; i++) ids[i] = known[i] = 0, target[i] = FR_TARGET_IGNORE;
}

static void put_marked_tokens(const synthetic_set *s, lots *l, const uint32_t marks[N_MARKS],
                              int64_t n, int32_t *ids)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t lot = draw_lot(l);
        ids[i] = letter_id(s, lot & 1 ? marks[(lot >> 1) % N_MARKS] : lot >> 1);
    }
}

static fr_status synthetic_read(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                                uint64_t draw, void *input, void *target, int32_t *length)
{
    const synthetic_set *s = (const synthetic_set *)d;
    uint32_t id = split == FR_TRAIN ? TRAIN_LOT : EVAL_LOT, lot[4], marks[N_MARKS];
    (void)seed, (void)draw;
    fr__random4(s->seed, FR_STREAM_SYNTHETIC, id, (uint64_t)index, 0, lot);
    const bool is_float = d->info.has_float_targets;
    int32_t class = (int32_t)(lot[0] % (uint32_t)(is_float ? N_LEVELS : d->info.n_classes));
    int32_t *classes = target;
    fr__random4(s->seed, FR_STREAM_SYNTHETIC, CLASS_LOT, (uint64_t) class, 0, marks);
    for (int64_t i = 0; i < s->target_count && !is_float; i++) classes[i] = class;
    if (is_float) put_floats(s, class, target);
    *length = 0;
    if (s->pool) {
        put_numbers(s, s->pool + lot[1] % PLACES, s->pool + marks[0] % PLACES, input);
        return FR_OK;
    }
    int64_t n = s->is_pair ? s->target_count : s->input_count;
    if (d->info.has_length) n -= lot[1] % (uint32_t)(n / 2 + 1);
    lots l = {.seed = s->seed, .index = (uint64_t)index, .id = id};
    int32_t *ids = input;
    *length = (int32_t)n;
    if (s->is_pair) {
        put_pair(s, &l, n, ids, classes);
        return FR_OK;
    }
    if (s->is_next_token)
        put_next_tokens(s, &l, lot[2], n, ids, classes);
    else
        put_marked_tokens(s, &l, marks, n, ids);
    for (int64_t i = n; i < s->input_count; i++) {
        ids[i] = 0;
        if (s->is_next_token) classes[i] = FR_TARGET_IGNORE;
    }
    return FR_OK;
}

static void synthetic_close(fr_dataset *d) { fr__free(((synthetic_set *)d)->pool); }

static const fr__data_ops ops = {.read = synthetic_read, .close = synthetic_close};

static fr_status check_want(fr_conf *section, const fr_data_info *want)
{
    int64_t count = 1;
    bool is_whole =
        want->has_float_targets || (want->n_classes > 0 && want->n_classes <= INT32_MAX);
    if (want->input_dtype == FR_I32)
        is_whole = is_whole && want->vocab > 0 && want->vocab <= INT32_MAX;
    else
        is_whole = is_whole && want->input.n_dims > 0;
    for (int i = 0; i < want->input.n_dims; i++) {
        int64_t dim = want->input.dim[i];
        is_whole = is_whole && dim > 0 && dim <= INT32_MAX / count;
        if (is_whole) count *= dim;
    }
    for (int i = 0; i < want->target.n_dims; i++)
        is_whole = is_whole && want->target.dim[i] > 0 && want->target.dim[i] <= INT32_MAX;
    if (is_whole) return FR_OK;
    return fr_conf_fail(section, "name",
                        "synthetic data takes its shapes from the model, which left them open; "
                        "give the model its sizes (inputs or image, classes, context, vocab)");
}

static void choose_letters(synthetic_set *s)
{
    const fr_data_info *info = &s->base.info;
    int64_t vocab = info->vocab;
    if ((s->is_next_token || s->is_pair) && info->n_classes < vocab) vocab = info->n_classes;
    if (info->has_length && vocab > 3) s->first_letter = 2; /* after padding and unknown */
    int64_t usable = vocab - s->first_letter;
    s->n_letters = usable < MAX_LETTERS ? (int32_t)usable : MAX_LETTERS;
    s->letter_step = (int32_t)(usable / s->n_letters);
}

static fr_status synthetic_open(fr_ctx *ctx, fr_conf *section, const fr_data_info *want,
                                fr_dataset **out)
{
    fr__data_options o = {0};
    FR_TRY(fr__data_options_read(section, "synthetic", &o));
    FR_TRY(check_want(section, want));
    synthetic_set *s = fr__dataset_new(ctx, sizeof *s, &ops);
    if (!s) return FR_NO_MEMORY;
    *out = &s->base;
    s->base.info = *want;
    s->base.info.n_train = o.n;
    s->base.info.n_eval = o.n_eval;
    s->seed = o.seed;
    s->input_count = fr_shape_count(&want->input);
    s->target_count = fr_shape_count(&want->target);
    const bool has_next =
        want->input_dtype == FR_I32 && want->target.n_dims > 0 && !want->has_float_targets;
    s->is_next_token = has_next && s->target_count == s->input_count;
    s->is_pair = has_next && s->input_count == 2 * s->target_count;
    if (want->input_dtype == FR_I32) {
        choose_letters(s);
        return FR_OK;
    }
    int64_t n_pool = PLACES + s->input_count;
    s->pool = FR_NEW_ARRAY(float, n_pool);
    if (!s->pool) return fr__no_memory(ctx, (size_t)n_pool * sizeof(float), "synthetic data");
    fill_pool(s->pool, n_pool, s->seed);
    s->base.bytes += (size_t)n_pool * sizeof(float);
    return FR_OK;
}

const fr_data_source fr__data_synthetic = {
    .name = "synthetic",
    .has_shapes_of_model = true,
    .summary = "synthetic data in the shapes of the model, learnable and cheap",
    .open = synthetic_open};
