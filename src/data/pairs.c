/* pairs.c -- parallel text: line i of one file is the translation of line i of the other.
 *
 * A sample is two texts with `context` ids each: the source followed by </s>, and the input of the
 * decoder, <s> and the target. The targets are the target's words and </s>:
 *
 *     source   ein hund schläft </s> <pad>        length 4
 *     decoder  <s> a dog is sleeping
 *     targets  a dog is sleeping </s>
 *
 * Each side has its own vocabulary from its training file: four special words, then the most
 * frequent ones. Long texts are cut. multi30k is `pairs` with its own file names. */
#include "data/source.h"
#include "data/vocab.h"
#include "io/conf.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

enum { PADDING, UNKNOWN, START, END, N_SPECIAL };
enum { SOURCE, TARGET, N_SIDES };

static const char *const special[N_SPECIAL] = {"<pad>", "<unk>", "<s>", "</s>"};

typedef struct pairs_part {
    FR_VEC(int64_t) begin; /* start of each text in ids; it ends at the next start or at ids.n */
    FR_VEC(int32_t) ids;   /* the first `context` words of each text */
} pairs_part;

typedef struct pairs_set {
    fr_dataset base;
    int64_t context;
    bool by_space; /* words are separated by white space only: the text is tokenised */
    fr__vocab words[N_SIDES];
    pairs_part part[N_SIDES][2]; /* FR_TRAIN, FR_EVAL */
} pairs_set;

/* Words of text i. */
static const int32_t *text_at(const pairs_part *p, int64_t i, int64_t *n)
{
    int64_t first = p->begin.at[i], next = i + 1;
    *n = (next < (int64_t)p->begin.n ? p->begin.at[next] : (int64_t)p->ids.n) - first;
    return p->ids.at + first;
}

static fr_status pairs_read(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                            uint64_t draw, void *input, void *target, int32_t *length)
{
    const pairs_set *p = (const pairs_set *)d;
    int64_t n_source, n_target, context = p->context;
    const int32_t *source = text_at(&p->part[SOURCE][split], index, &n_source);
    const int32_t *words = text_at(&p->part[TARGET][split], index, &n_target);
    int32_t *ids = input, *known = ids + context, *next = target; /* (context) each */
    (void)seed, (void)draw;
    for (int64_t i = 0; i < context; i++) {
        ids[i] = i < n_source ? source[i] : i == n_source ? END : PADDING;
        next[i] = i < n_target ? words[i] : i == n_target ? END : FR_TARGET_IGNORE;
        known[i] = i == 0 ? START : i <= n_target ? words[i - 1] : PADDING;
    }
    *length = (int32_t)(n_source < context ? n_source + 1 : context);
    return FR_OK;
}

static void pairs_close(fr_dataset *d)
{
    pairs_set *p = (pairs_set *)d;
    for (int side = 0; side < N_SIDES; side++) {
        fr__vocab_fini(&p->words[side]);
        for (int s = 0; s < 2; s++) {
            fr__vec_fini(&p->part[side][s].begin);
            fr__vec_fini(&p->part[side][s].ids);
        }
    }
}

static const fr__data_ops ops = {.read = pairs_read, .close = pairs_close};

static fr_status out_of_memory(const pairs_set *p)
{
    return fr__no_memory(p->base.ctx, p->base.bytes, "parallel text");
}

/* The next word of a line, separated by white space, or also by punctuation. */
static size_t next_word(const pairs_set *p, const char *line, size_t bytes, size_t *pos,
                        size_t *begin)
{
    if (!p->by_space) return fr__word_next(line, bytes, pos, begin);
    while (*pos < bytes && strchr(" \t\r\v\f", line[*pos])) ++*pos; /* also a zero byte */
    *begin = *pos;
    while (*pos < bytes && !strchr(" \t\r\v\f", line[*pos])) ++*pos;
    return *pos - *begin;
}

/* In training, count all words; ids are still in order of appearance. */
static bool add_line(pairs_set *p, int side, fr_split split, const char *line, size_t bytes)
{
    pairs_part *part = &p->part[side][split];
    size_t pos = 0, begin, n;
    int64_t kept = 0;
    if (!fr__vec_push(&part->begin, (int64_t)part->ids.n)) return false;
    while ((n = next_word(p, line, bytes, &pos, &begin))) {
        int32_t id = split == FR_TRAIN ? fr__vocab_add(&p->words[side], line + begin, n)
                                       : fr__vocab_find(&p->words[side], line + begin, n);
        if (id < 0 && split == FR_TRAIN) return false;
        if (id < 0) id = UNKNOWN;
        if (kept++ < p->context && !fr__vec_push(&part->ids, id)) return false;
    }
    return true;
}

static fr_status load_file(pairs_set *p, int side, fr_split split, const char *path)
{
    unsigned char *data = NULL;
    size_t bytes = 0;
    FR_TRY(fr__file_read(p->base.ctx, path, FR_DATA_MAX_BYTES, &data, &bytes));
    const char *text = (const char *)data;
    bool done = true;
    for (size_t at = 0; done && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - text) - at : bytes - at;
        done = add_line(p, side, split, text + at, n);
        at += n + 1;
    }
    fr__free(data);
    if (!done) return out_of_memory(p);
    if (p->part[side][split].begin.n == 0)
        return fr_fail(p->base.ctx, FR_INVALID, "%s: the file is empty; expected one text per line",
                       path);
    return FR_OK;
}

/* Replace ids by order of appearance with ids by frequency. */
static fr_status settle_vocab(pairs_set *p, int side, int64_t size)
{
    pairs_part *part = &p->part[side][FR_TRAIN];
    int32_t *new_id = FR_NEW_ARRAY(int32_t, p->words[side].words.n + 1);
    bool done =
        new_id && fr__vocab_rank(&p->words[side], N_SPECIAL, special, UNKNOWN, size, new_id);
    for (size_t i = 0; done && i < part->ids.n; i++) part->ids.at[i] = new_id[part->ids.at[i]];
    fr__free(new_id);
    return done ? FR_OK : out_of_memory(p);
}

static fr_status load_split(pairs_set *p, fr_split split, const char *const paths[N_SIDES],
                            int64_t vocab)
{
    for (int side = 0; side < N_SIDES; side++) {
        FR_TRY(load_file(p, side, split, paths[side]));
        if (split == FR_TRAIN) FR_TRY(settle_vocab(p, side, vocab));
    }
    size_t n = p->part[SOURCE][split].begin.n, m = p->part[TARGET][split].begin.n;
    if (n == m) return FR_OK;
    return fr_fail(p->base.ctx, FR_INVALID,
                   "%s has %zu lines, %s has %zu; line i of both must be the same text",
                   paths[SOURCE], n, paths[TARGET], m);
}

static void describe(pairs_set *p)
{
    int64_t n_source = (int64_t)p->words[SOURCE].words.n;
    int64_t n_target = (int64_t)p->words[TARGET].words.n;
    p->base.info = (fr_data_info){.n_train = (int64_t)p->part[SOURCE][FR_TRAIN].begin.n,
                                  .n_eval = (int64_t)p->part[SOURCE][FR_EVAL].begin.n,
                                  .input = FR_SHAPE(2 * p->context),
                                  .input_dtype = FR_I32,
                                  .target = FR_SHAPE(p->context),
                                  .n_classes = n_target,
                                  .vocab = n_source > n_target ? n_source : n_target,
                                  .has_length = true};
    for (int side = 0; side < N_SIDES; side++) {
        p->base.bytes += fr__vocab_bytes(&p->words[side]);
        for (int s = 0; s < 2; s++)
            p->base.bytes += p->part[side][s].begin.room * sizeof(int64_t) +
                             p->part[side][s].ids.room * sizeof(int32_t);
    }
}

typedef struct pairs_files {
    const char *path[2][N_SIDES]; /* FR_TRAIN, FR_EVAL; FR_EVAL may be NULL */
    bool by_space;
} pairs_files;

/* Defaults that the model has. */
static fr__data_options presets(const fr_data_info *want)
{
    return (fr__data_options){.context = want->input.n_dims == 1 ? want->input.dim[0] / 2 : 0,
                              .vocab = want->vocab > N_SPECIAL ? want->vocab : 0};
}

static fr_status open_files(fr_ctx *ctx, const fr__data_options *o, const pairs_files *files,
                            fr_dataset **out)
{
    pairs_set *p = fr__dataset_new(ctx, sizeof *p, &ops);
    if (!p) return FR_NO_MEMORY;
    *out = &p->base;
    p->context = o->context;
    p->by_space = files->by_space;
    for (int side = 0; side < N_SIDES; side++) p->words[side].lower = o->lower;
    FR_TRY(load_split(p, FR_TRAIN, files->path[FR_TRAIN], o->vocab));
    if (files->path[FR_EVAL][SOURCE])
        FR_TRY(load_split(p, FR_EVAL, files->path[FR_EVAL], o->vocab));
    describe(p);
    return FR_OK;
}

/* ---- pairs: files by name ---- */

static fr_status read_pair(fr_conf *section, const char *key, const char **paths)
{
    int n;
    FR_TRY(fr__conf_data_list(section, key, N_SIDES, paths, &n));
    if (n != N_SIDES)
        return fr_conf_fail(section, key, "%d files; %s must be [source, target]", n, key);
    for (int i = 0; i < N_SIDES; i++)
        if (!fr__file_exists(paths[i]))
            return fr_conf_fail(section, key, "no file %s; set %s to [source, target]", paths[i],
                                key);
    return FR_OK;
}

static fr_status pairs_open(fr_ctx *ctx, fr_conf *section, const fr_data_info *want,
                            fr_dataset **out)
{
    pairs_files files = {0};
    fr__data_options o = presets(want);
    FR_TRY(read_pair(section, "train", files.path[FR_TRAIN]));
    if (fr_conf_has(section, "eval")) FR_TRY(read_pair(section, "eval", files.path[FR_EVAL]));
    FR_TRY(fr__data_options_read(section, "pairs", &o));
    files.by_space = strcmp(o.split, "spaces") == 0;
    return open_files(ctx, &o, &files, out);
}

const fr_data_source fr__data_pairs = {
    .name = "pairs",
    .summary = "parallel text: a source and its translation, line by line",
    .open = pairs_open};

/* ---- multi30k ---- */

/* The file of a part and a language in the folder: the tokenised one if it exists, else the raw
 * one. */
static bool find_part(const char *folder, const char *part, const char *language, bool is_raw,
                      char path[FR_DATA_PATH])
{
    char name[256], below[FR_DATA_PATH];
    int n = snprintf(name, sizeof name, "%s%s.%s", part, is_raw ? "" : ".lc.norm.tok", language);
    int m = snprintf(below, sizeof below, "%s/%s", folder, is_raw ? "raw" : "tok");
    if (n >= (int)sizeof name || m >= FR_DATA_PATH) return false;
    return fr__data_file(folder, name, path) || fr__data_file(below, name, path);
}

static fr_status multi30k_open(fr_ctx *ctx, fr_conf *section, const fr_data_info *want,
                               fr_dataset **out)
{
    fr__data_options o = presets(want);
    char paths[2][N_SIDES][FR_DATA_PATH];
    pairs_files files = {.by_space = true};
    FR_TRY(fr__data_options_read(section, "multi30k", &o));
    const char *folder = o.path, *parts[2] = {"train", o.eval};
    const char *languages[N_SIDES] = {[SOURCE] = o.source, [TARGET] = o.target};
    if (!fr__dir_exists(folder)) return fr_conf_fail(section, "path", "no folder %s", folder);
    /* All files must be of one kind, because their words differ. */
    for (int s = 0; s < 2; s++)
        for (int side = 0; side < N_SIDES; side++)
            files.by_space &= find_part(folder, parts[s], languages[side], false, paths[s][side]);
    for (int s = 0; s < 2; s++)
        for (int side = 0; side < N_SIDES; side++) {
            if (!find_part(folder, parts[s], languages[side], !files.by_space, paths[s][side]))
                return fr_conf_fail(section, s == FR_TRAIN ? "path" : "eval",
                                    "%s has neither %s.lc.norm.tok.%s nor %s.%s, with or without "
                                    ".gz, nor below tok/ and raw/",
                                    folder, parts[s], languages[side], parts[s], languages[side]);
            files.path[s][side] = paths[s][side];
        }
    return open_files(ctx, &o, &files, out);
}

const fr_data_source fr__data_multi30k = {
    .name = "multi30k",
    .summary = "Multi30k: captions of pictures in two languages, to translate",
    .open = multi30k_open};
