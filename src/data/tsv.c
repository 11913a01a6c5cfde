/* tsv.c -- texts with labels, one per line: label, then text.
 *
 * Labels and vocabulary come from the training part only: words by frequency, then alphabetically;
 * id 0 is padding, id 1 every unknown word. Labels are numbered in sorted order (by value if all
 * are integers), so labels 0 .. K-1 keep their numbers. */
#include "io/tsv.h"
#include "data/source.h"
#include "data/vocab.h"
#include "io/conf.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

enum { PADDING = 0, UNKNOWN = 1, N_SPECIAL = 2 };
enum { MAX_CLASSES = 65536 };

static const char *const special[N_SPECIAL] = {[PADDING] = "", [UNKNOWN] = "<unk>"};

typedef struct tsv_part {
    FR_VEC(int64_t) begin; /* start of each text in ids; it ends at the next start or at ids.n */
    FR_VEC(int32_t) ids;
    FR_VEC(int32_t) labels;
} tsv_part;

typedef struct tsv_set {
    fr_dataset base;
    int64_t context;
    int64_t text_column; /* from 1; 0: not yet known; default: the last column of the first line */
    bool by_space;       /* the label ends at the first blank */
    fr__vocab words, labels;
    tsv_part part[2]; /* FR_TRAIN, FR_EVAL */
} tsv_set;

static fr_status tsv_read(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                          uint64_t draw, void *input, void *target, int32_t *length)
{
    const tsv_set *t = (const tsv_set *)d;
    const tsv_part *p = &t->part[split];
    size_t i = (size_t)index;
    int64_t end = i + 1 < p->begin.n ? p->begin.at[i + 1] : (int64_t)p->ids.n;
    int64_t n = end - p->begin.at[i];
    int32_t *ids = input; /* (context) */
    (void)seed, (void)draw;
    for (int64_t j = 0; j < n; j++) ids[j] = p->ids.at[p->begin.at[i] + j];
    for (int64_t j = n; j < t->context; j++) ids[j] = PADDING;
    *(int32_t *)target = p->labels.at[i];
    *length = (int32_t)n;
    return FR_OK;
}

static void part_fini(tsv_part *p)
{
    fr__vec_fini(&p->begin);
    fr__vec_fini(&p->ids);
    fr__vec_fini(&p->labels);
}

static void tsv_close(fr_dataset *d)
{
    tsv_set *t = (tsv_set *)d;
    fr__vocab_fini(&t->words);
    fr__vocab_fini(&t->labels);
    part_fini(&t->part[FR_TRAIN]);
    part_fini(&t->part[FR_EVAL]);
}

static const char *tsv_token_text(const fr_dataset *d, int32_t id, size_t *n)
{
    const fr__vocab *words = &((const tsv_set *)d)->words;
    if (id < 0 || (size_t)id >= words->words.n) return NULL;
    *n = words->words.at[id].bytes;
    return fr__vocab_text(words, id);
}

static int32_t id_of(const fr__vocab *words, const char *word, size_t bytes)
{
    int32_t id = fr__vocab_find(words, word, bytes);
    return id < 0 ? UNKNOWN : id;
}

static int64_t tsv_encode(const fr_dataset *d, const char *text, size_t bytes, int32_t *ids,
                          int64_t room)
{
    const fr__vocab *words = &((const tsv_set *)d)->words;
    size_t pos = 0, begin, n;
    int64_t count = 0;
    while (count < room && (n = fr__word_next(text, bytes, &pos, &begin)))
        ids[count++] = id_of(words, text + begin, n);
    return count;
}

static const fr__data_ops ops = {
    .read = tsv_read, .close = tsv_close, .token_text = tsv_token_text, .encode = tsv_encode};

static fr_status out_of_memory(const tsv_set *t)
{
    return fr__no_memory(t->base.ctx, t->base.bytes, "texts and vocabulary");
}

/* Move the start of a row's text to the text column. */
static fr_status cut_columns(tsv_set *t, const char *path, fr__tsv_row *row)
{
    int64_t columns = 2;
    for (size_t i = 0; i < row->text_bytes; i++) columns += row->text[i] == '\t';
    if (t->text_column == 0) t->text_column = columns;
    if (columns < t->text_column)
        return fr_fail(t->base.ctx, FR_INVALID,
                       "%s:%lld: %lld columns, but the text is expected in column %lld; correct "
                       "the line or set text_column",
                       path, (long long)row->line, (long long)columns, (long long)t->text_column);
    for (int64_t column = 2; column < t->text_column; column++) {
        const char *tab = memchr(row->text, '\t', row->text_bytes);
        row->text_bytes -= (size_t)(tab + 1 - row->text);
        row->text = tab + 1;
    }
    return FR_OK;
}

/* The number of a label; in training, new labels are added. */
static fr_status label_of(tsv_set *t, fr_split split, const char *path, const fr__tsv_row *row,
                          int32_t *out)
{
    fr_ctx *ctx = t->base.ctx;
    int shown = row->label_bytes < 40 ? (int)row->label_bytes : 40;
    if (row->label_bytes == 0)
        return fr_fail(ctx, FR_INVALID, "%s:%lld: the label is empty", path, (long long)row->line);
    if (split == FR_EVAL) {
        *out = fr__vocab_find(&t->labels, row->label, row->label_bytes);
        if (*out >= 0) return FR_OK;
        return fr_fail(ctx, FR_INVALID,
                       "%s:%lld: label '%.*s' does not occur in the training part (%zu labels)",
                       path, (long long)row->line, shown, row->label, t->labels.words.n);
    }
    *out = fr__vocab_add(&t->labels, row->label, row->label_bytes);
    if (*out < 0) return out_of_memory(t);
    if (*out >= MAX_CLASSES)
        return fr_fail(ctx, FR_INVALID,
                       "%s:%lld: more than %d different labels ('%.*s'); is the label the first "
                       "column?",
                       path, (long long)row->line, MAX_CLASSES, shown, row->label);
    return FR_OK;
}

/* In training, count all words of a text. Keep the first `context` words of every text. */
static fr_status add_row(tsv_set *t, fr_split split, const char *path, fr__tsv_row *row)
{
    tsv_part *p = &t->part[split];
    size_t pos = 0, begin, n;
    int32_t label = 0;
    int64_t first = (int64_t)p->ids.n, kept = 0;
    FR_TRY(cut_columns(t, path, row));
    FR_TRY(label_of(t, split, path, row, &label));
    while ((n = fr__word_next(row->text, row->text_bytes, &pos, &begin))) {
        if (split == FR_EVAL && kept == t->context) break;
        int32_t id = split == FR_TRAIN ? fr__vocab_add(&t->words, row->text + begin, n)
                                       : id_of(&t->words, row->text + begin, n);
        if (id < 0) return out_of_memory(t);
        if (kept++ < t->context && !fr__vec_push(&p->ids, id)) return out_of_memory(t);
    }
    /* an empty text has one token; -1 until words have their ids */
    if (kept == 0 && !fr__vec_push(&p->ids, split == FR_TRAIN ? -1 : UNKNOWN))
        return out_of_memory(t);
    if (!fr__vec_push(&p->begin, first) || !fr__vec_push(&p->labels, label))
        return out_of_memory(t);
    return FR_OK;
}

/* "label text" becomes "label<TAB>text": the first blank of each line. */
static void blanks_to_tabs(unsigned char *data, size_t bytes)
{
    bool in_label = true;
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] == '\n') {
            in_label = true;
        } else if (in_label && data[i] == ' ') {
            data[i] = '\t';
            in_label = false;
        }
    }
}

static fr_status load_file(tsv_set *t, fr_split split, const char *path)
{
    fr_ctx *ctx = t->base.ctx;
    unsigned char *data = NULL;
    size_t bytes = 0, pos = 0;
    int64_t line = 0;
    bool more = true;
    FR_TRY(fr__file_read(ctx, path, FR_DATA_MAX_BYTES, &data, &bytes));
    if (t->by_space) blanks_to_tabs(data, bytes);
    fr_status status = FR_OK;
    while (status == FR_OK && more) {
        fr__tsv_row row;
        status = fr__tsv_next(ctx, path, data, bytes, &pos, &line, &row, &more);
        if (status == FR_OK && more) status = add_row(t, split, path, &row);
    }
    fr__free(data);
    if (status == FR_OK && t->part[split].labels.n == 0)
        status = fr_fail(ctx, FR_INVALID, "%s: no lines; expected label, tab, text", path);
    return status;
}

static bool sort_labels(tsv_set *t)
{
    fr__vocab sorted = {0};
    tsv_part *p = &t->part[FR_TRAIN];
    int32_t *order = fr__vocab_order(&t->labels, false);
    int32_t *place = FR_NEW_ARRAY(int32_t, t->labels.words.n);
    bool done = order && place;
    for (size_t i = 0; done && i < t->labels.words.n; i++) {
        const fr__word *w = &t->labels.words.at[order[i]];
        place[order[i]] = (int32_t)i;
        done = fr__vocab_add(&sorted, fr__vocab_text(&t->labels, order[i]), w->bytes) == (int32_t)i;
    }
    for (size_t i = 0; done && i < p->labels.n; i++) p->labels.at[i] = place[p->labels.at[i]];
    fr__free(order);
    fr__free(place);
    fr__vocab_fini(done ? &t->labels : &sorted);
    if (done) t->labels = sorted;
    return done;
}

/* Replace numbers in order of appearance with final ids and classes. */
static fr_status settle_vocab(tsv_set *t, int64_t size)
{
    tsv_part *p = &t->part[FR_TRAIN];
    int32_t *new_id = FR_NEW_ARRAY(int32_t, t->words.words.n);
    bool done = new_id && fr__vocab_rank(&t->words, N_SPECIAL, special, UNKNOWN, size, new_id) &&
                sort_labels(t);
    for (size_t i = 0; done && i < p->ids.n; i++)
        p->ids.at[i] = p->ids.at[i] < 0 ? UNKNOWN : new_id[p->ids.at[i]];
    fr__free(new_id);
    return done ? FR_OK : out_of_memory(t);
}

static fr_status read_keys(fr_conf *section, const fr_data_info *want, fr__data_options *k)
{
    *k = (fr__data_options){.context = want->input.n_dims > 0 ? want->input.dim[0] : 0,
                            .vocab = want->vocab > N_SPECIAL ? want->vocab : 0};
    FR_TRY(fr__data_options_read(section, "tsv", k));
    if (k->text_column == 1)
        return fr_conf_fail(section, "text_column",
                            "text_column 1 is the label; use 2 or more, or omit the key");
    return FR_OK;
}

/* The file itself, or the first existing name in a folder; "": none, if that is allowed. */
static fr_status find_file(fr_conf *section, const char *key, const char *path,
                           const char *const *names, bool is_needed, char found[FR_DATA_PATH])
{
    found[0] = '\0';
    if (!fr__dir_exists(path)) {
        if (!fr__file_exists(path))
            return fr_conf_fail(section, key, "no file or folder %s; set %s", path, key);
        if (snprintf(found, FR_DATA_PATH, "%s", path) >= FR_DATA_PATH)
            return fr_conf_fail(section, key, "the path is too long");
        return FR_OK;
    }
    for (int i = 0; names[i]; i++)
        if (fr__data_file(path, names[i], found)) return FR_OK;
    found[0] = '\0';
    if (!is_needed) return FR_OK;
    return fr_conf_fail(section, key, "folder %s has neither %s nor %s.gz; name the file itself",
                        path, names[0], names[0]);
}

static fr_status load(tsv_set *t, fr_conf *section, const fr__data_options *k)
{
    static const char *const train_names[] = {"train.tsv", NULL};
    static const char *const eval_names[] = {"test.tsv", "dev.tsv", "valid.tsv", NULL};
    char train[FR_DATA_PATH], eval[FR_DATA_PATH] = "";
    fr_data_info *info = &t->base.info;
    FR_TRY(find_file(section, "path", k->path, train_names, true, train));
    if (k->eval_path[0])
        FR_TRY(find_file(section, "eval_path", k->eval_path, eval_names, true, eval));
    else if (fr__dir_exists(k->path))
        FR_TRY(find_file(section, "path", k->path, eval_names, false, eval));
    FR_TRY(load_file(t, FR_TRAIN, train));
    FR_TRY(settle_vocab(t, k->vocab));
    if (eval[0]) FR_TRY(load_file(t, FR_EVAL, eval));
    *info = (fr_data_info){.n_train = (int64_t)t->part[FR_TRAIN].labels.n,
                           .n_eval = (int64_t)t->part[FR_EVAL].labels.n,
                           .input = FR_SHAPE(t->context),
                           .input_dtype = FR_I32,
                           .n_classes = (int64_t)t->labels.words.n,
                           .vocab = (int64_t)t->words.words.n,
                           .has_length = true};
    t->base.bytes += fr__vocab_bytes(&t->words) + fr__vocab_bytes(&t->labels);
    for (int s = 0; s < 2; s++)
        t->base.bytes += t->part[s].begin.room * sizeof(int64_t) +
                         (t->part[s].ids.room + t->part[s].labels.room) * sizeof(int32_t);
    return FR_OK;
}

static fr_status tsv_open(fr_ctx *ctx, fr_conf *section, const fr_data_info *want, fr_dataset **out)
{
    fr__data_options k;
    FR_TRY(read_keys(section, want, &k));
    tsv_set *t = fr__dataset_new(ctx, sizeof *t, &ops);
    if (!t) return FR_NO_MEMORY;
    *out = &t->base;
    t->context = k.context;
    t->by_space = strcmp(k.separator, "space") == 0;
    t->text_column = t->by_space ? 2 : k.text_column;
    t->words.lower = k.lower;
    return load(t, section, &k);
}

const fr_data_source fr__data_tsv = {
    .name = "tsv",
    .summary = "texts with labels, one per line; vocabulary from the training part",
    .open = tsv_open};
