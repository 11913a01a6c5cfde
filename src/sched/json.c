/* json.c -- the JSON form, for scripts:
 *
 *     {"method", "stages", "micro", "batches", "replicas": [stage], "makespan", "period",
 * "peak_live": [worker], "workers": [[instruction, ...], ...]} */
#include "io/json.h"

#include <forerun/clock.h>

#include <math.h>

static void write_json(fr__json *j, const fr_schedule *s, const fr_clock *c)
{
    char text[48];
    fr__json_object(j, NULL);
    fr__json_text(j, "method", s->name);
    fr__json_int(j, "stages", s->n_stages);
    fr__json_int(j, "micro", s->n_micro);
    fr__json_int(j, "batches", s->n_batches);
    fr__json_list(j, "replicas");
    for (int k = 0; k < s->n_stages; k++) fr__json_int(j, NULL, s->replicas[k]);
    fr__json_end(j);
    fr__json_real(j, "makespan", c->makespan);
    fr__json_real(j, "period", c->period > 0 ? c->period : NAN);
    fr__json_list(j, "peak_live");
    for (int w = 0; w < s->n_workers; w++) fr__json_int(j, NULL, c->peak_live[w]);
    fr__json_end(j);
    fr__json_list(j, "workers");
    for (int w = 0; w < s->n_workers; w++) {
        fr__json_list(j, NULL);
        for (int i = 0; i < s->lists[w].n; i++)
            fr__json_text(j, NULL, fr_instr_text(&s->lists[w].at[i], text));
        fr__json_end(j);
    }
    fr__json_end(j);
    fr__json_end(j);
}

char *fr_schedule_to_json(const fr_schedule *s, const fr_clock *c)
{
    fr__json j;
    fr__json_to_text(&j, 0);
    write_json(&j, s, c);
    return fr__json_take(&j, "\n");
}
