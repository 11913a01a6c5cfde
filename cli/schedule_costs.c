/* schedule_costs.c -- costs of instructions from the command line: letters, each with one number
 * for all stages or one for each. */
#include "schedule_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char letters[] = "FIWB";

static fr_status wrong(fr_ctx *ctx, const char *text, const char *at)
{
    return fr_fail(ctx, FR_INVALID,
                   "--costs %s: at '%s': expected F=, I=, W= or B= once each, with a number from 0 "
                   "or one for each stage, as F=1,B=2.5 or F=1,2,1,2",
                   text, at);
}

/* The numbers after one letter, up to the next letter or the end. */
static fr_status read_numbers(fr_ctx *ctx, const char *text, const char **at, double *to, int most,
                              int *n)
{
    *n = 0;
    do {
        char *end;
        double value = strtod(*at, &end);
        if (end == *at || !(value >= 0) || !isfinite(value) || (*end && *end != ','))
            return wrong(ctx, text, *at);
        if (*n < most) to[*n] = value;
        ++*n;
        *at = *end ? end + 1 : end;
        if (*end && !**at) return wrong(ctx, text, end);
    } while (**at && !strchr(letters, **at));
    return FR_OK;
}

static fr_status read_letter(fr_ctx *ctx, const char *text, const char **at, int n_stages,
                             schedule_costs *out)
{
    const char *letter = strchr(letters, **at);
    int n;
    if (!letter || (*at)[1] != '=' || out->of[letter - letters]) return wrong(ctx, text, *at);
    double *table = out->of[letter - letters] = calloc((size_t)n_stages, sizeof *table);
    if (!table) return fr_fail(ctx, FR_NO_MEMORY, "out of memory for %d stages", n_stages);
    *at += 2;
    FR_TRY(read_numbers(ctx, text, at, table, n_stages, &n));
    if (n != 1 && n != n_stages)
        return fr_fail(ctx, FR_INVALID,
                       "--costs %s: %c has %d numbers for %d stages; give one for each, or one for "
                       "all of them",
                       text, *letter, n, n_stages);
    for (int k = n; k < n_stages; k++) table[k] = table[0];
    return FR_OK;
}

fr_status costs_read(fr_ctx *ctx, const char *text, double link, int n_stages, schedule_costs *out)
{
    *out = (schedule_costs){.costs.link = link};
    if (!(link >= 0) || !isfinite(link))
        return fr_fail(ctx, FR_INVALID, "--link %g: expected a time from 0", link);
    if (text && !*text) return wrong(ctx, text, text);
    for (const char *at = text; at && *at;) FR_TRY(read_letter(ctx, text, &at, n_stages, out));
    out->costs.forward = out->of[0];
    out->costs.back_input = out->of[1];
    out->costs.back_weight = out->of[2];
    out->costs.backward = out->of[3];
    return FR_OK;
}

void costs_free(schedule_costs *c)
{
    for (int i = 0; i < 4; i++) free(c->of[i]);
    *c = (schedule_costs){0};
}

const fr_costs *costs_of(const schedule_costs *c)
{
    bool has_any = c->costs.link > 0;
    for (int i = 0; i < 4; i++) has_any = has_any || c->of[i];
    return has_any ? &c->costs : NULL;
}
