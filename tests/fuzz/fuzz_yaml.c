/* fuzz_yaml.c -- any text as a config, behind a zero byte an override: refused, or it answers every
 * kind of question, and what it would save loads back and is saved the same. */
#include "io/conf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each kind of question to each key, some of them twice. Answers and refusals are both fine. */
static void ask(fr_conf *c, int depth)
{
    static const char *const keys[] = {"a", "b", "train", "model", "lr", "batch", "layers"};
    int64_t i, many[4];
    double r;
    bool b;
    const char *t, *texts[4];
    int n;
    fr_conf *s;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        (void)fr_conf_int(c, keys[k], 1, 0, 100, &i);
        (void)fr_conf_real(c, keys[k], 1, 0, INFINITY, &r);
        (void)fr_conf_bool(c, keys[k], true, &b);
        (void)fr_conf_text(c, keys[k], "default", &t);
        (void)fr_conf_ints(c, keys[k], 4, many, &n);
        (void)fr_conf_texts(c, keys[k], 4, texts, &n);
        (void)fr_conf_where(c, keys[k]);
        if (depth == 0) continue;
        if (fr_conf_list_item(c, keys[k], 0, &s) == FR_OK) ask(s, depth - 1);
        if (fr_conf_is_mapping(c, keys[k]) && fr_conf_section(c, keys[k], &s) == FR_OK)
            ask(s, depth - 1);
    }
}

/* The text of a config, or NULL if it would be too long to load. */
static char *format(const fr_conf *c)
{
    fr__text o = {0};
    fr__conf_format(c, &o);
    if (o.failed) abort();
    if (o.n <= FR_CONF_MAX_BYTES) return o.at;
    fr__text_fini(&o);
    return NULL;
}

static void check_round_trip(fr_ctx *ctx, const fr_conf *c)
{
    char *text = format(c), *again;
    fr_conf *back;
    if (!text) return;
    fr_ctx_clear(ctx);
    if (fr_conf_parse(ctx, text, strlen(text), "saved", &back) != FR_OK) abort();
    again = format(back);
    fr_conf_free(back);
    /* Flow lists become block lists on the way, so the second and the third are compared. */
    if (again) {
        if (fr_conf_parse(ctx, again, strlen(again), "again", &back) != FR_OK) abort();
        char *third = format(back);
        if (!third || strcmp(again, third) != 0) abort();
        fr__free(third);
        fr_conf_free(back);
    }
    fr__free(again);
    fr__free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fr_ctx *ctx = fr_ctx_create();
    char *copy = fr__alloc(size + 1);
    fr_conf *c;
    if (size) memcpy(copy, data, size);
    size_t text_bytes = strlen(copy);
    if (fr_conf_parse(ctx, copy, text_bytes, "fuzz", &c) == FR_OK) {
        check_round_trip(ctx, c);
        if (text_bytes < size) (void)fr__conf_set(c, copy + text_bytes + 1);
        ask(c, 2);
        (void)fr_conf_finish(c);
        check_round_trip(ctx, c);
    } else if (c || !*fr_ctx_error(ctx)) {
        abort();
    }
    fr_conf_free(c);
    fr__free(copy);
    fr_ctx_free(ctx);
    return 0;
}
