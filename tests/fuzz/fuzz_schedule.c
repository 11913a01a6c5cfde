/* fuzz_schedule.c -- any bytes as a schedule file: refused with a text, or what was read can be
 * checked and written, and a schedule that passes the check comes back the same. */
#include "sched/read.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

static void write_and_read(fr_ctx *ctx, const fr_schedule *s)
{
    fr_clock c;
    fr_schedule *again;
    must(fr_schedule_clock(ctx, s, NULL, &c) == FR_OK);
    char *text = fr_schedule_to_text(s), *csv = fr_schedule_to_csv(s);
    char *grid = fr_schedule_to_grid(s, &c, 120, true), *json = fr_schedule_to_json(s, &c);
    must(text && csv && grid && json);
    must(fr__schedule_parse(ctx, "text", text, strlen(text), 0, NULL, &again) == FR_OK);
    must(fr_schedule_check(ctx, again) == FR_OK);
    char *twice = fr_schedule_to_text(again);
    must(twice && strcmp(text, twice) == 0);
    fr_schedule_free(again);
    fr_text_free(text), fr_text_free(csv), fr_text_free(grid), fr_text_free(json);
    fr_text_free(twice);
    fr_clock_free(&c);
}

/* The first byte gives the number of micro-batches per mini-batch and of replicas per stage. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_schedule *s;
    if (size > 0) {
        const char *text = (const char *)data + 1;
        const int replicas = 1 + data[0] / 8 % 3;
        const fr_schedule_desc d = {.replicas = &replicas};
        if (fr__schedule_parse(ctx, "fuzz", text, size - 1, data[0] % 8, &d, &s) != FR_OK)
            must(!s && *fr_ctx_error(ctx));
        else if (fr_schedule_check(ctx, s) == FR_OK)
            write_and_read(ctx, s);
        else
            must(strstr(fr_ctx_error(ctx), "worker") != NULL);
        fr_schedule_free(s);
    }
    fr_ctx_free(ctx);
    return 0;
}
