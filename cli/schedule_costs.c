/* schedule_costs.c -- costs of instructions from the command line: letters, each with one number
 * for all stages or one for each; of transfers: one number for all links or one for each. */
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

/* A backward link has the number of the forward link between the same stages. */
static fr_status fill_backward(fr_ctx *ctx, const char *text, const fr_schedule *s, double *links)
{
    for (int l = 0; l < s->n_backward; l++) {
        int from = s->backward[l].from, to = s->backward[l].to;
        int same = fr_schedule_find_link(s->n_forward, s->forward, to, from);
        if (same < 0)
            return fr_fail(ctx, FR_INVALID,
                           "--link %s: stage %d sends gradients to stage %d and receives no values "
                           "of it; give one number for all links",
                           text, from, to);
        links[s->n_forward + l] = links[same];
    }
    return FR_OK;
}

static fr_status read_links(fr_ctx *ctx, const char *text, const fr_schedule *s,
                            schedule_costs *out)
{
    const char *at = text;
    int n = 0;
    double *links = out->links =
        calloc((size_t)(s->n_forward + s->n_backward) + 1, sizeof *out->links);
    if (!links) return fr_fail(ctx, FR_NO_MEMORY, "out of memory for %d links", s->n_forward);
    for (bool has_more = true; has_more; n++) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || !(value >= 0) || !isfinite(value) || (*end && *end != ','))
            return fr_fail(ctx, FR_INVALID,
                           "--link %s: at '%s': expected a time from 0, or one for each link, as "
                           "1.5 or 4,1",
                           text, at);
        if (n < s->n_forward) links[n] = value;
        if (n == 0) out->costs.link = value;
        has_more = *end == ',', at = end + 1;
    }
    if (n == 1) return FR_OK;
    if (n != s->n_forward)
        return fr_fail(ctx, FR_INVALID,
                       "--link %s has %d numbers, and the schedule has %d links between stages; "
                       "give one for each, or one for all of them",
                       text, n, s->n_forward);
    out->costs.link_forward = links, out->costs.link_backward = links + s->n_forward;
    return fill_backward(ctx, text, s, links);
}

fr_status costs_read(fr_ctx *ctx, const char *text, const char *links, const fr_schedule *s,
                     schedule_costs *out)
{
    *out = (schedule_costs){0};
    if (links) FR_TRY(read_links(ctx, links, s, out));
    if (text && !*text) return wrong(ctx, text, text);
    for (const char *at = text; at && *at;) FR_TRY(read_letter(ctx, text, &at, s->n_stages, out));
    out->costs.forward = out->of[0];
    out->costs.back_input = out->of[1];
    out->costs.back_weight = out->of[2];
    out->costs.backward = out->of[3];
    return FR_OK;
}

void costs_free(schedule_costs *c)
{
    for (int i = 0; i < 4; i++) free(c->of[i]);
    free(c->links);
    *c = (schedule_costs){0};
}

const fr_costs *costs_of(const schedule_costs *c)
{
    bool has_any = c->costs.link > 0 || c->costs.link_forward;
    for (int i = 0; i < 4; i++) has_any = has_any || c->of[i];
    return has_any ? &c->costs : NULL;
}
