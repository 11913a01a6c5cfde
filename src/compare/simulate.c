/* simulate.c -- simulated cases, and the profiles of emulated and simulated cases.
 *
 * All cases of a model share one profile. Separate profiles would add measurement noise to the
 * speed-ups. */
#include "compare/compare.h"

#include "io/file.h"
#include "io/json.h"
#include "io/sha256.h"

#include <string.h>

#include <stdlib.h>

fr_status fr__compare_name_profile(fr_compare *c, struct fr__case *k, const fr_conf *model,
                                   const fr_conf *optimizer)
{
    fr__text o = {0};
    fr__sha256 hash;
    char hex[65];
    fr__conf_format(model, &o);
    if (optimizer) fr__conf_format(optimizer, &o);
    fr__sha256_init(&hash);
    fr__sha256_update(&hash, o.at, o.n);
    fr__sha256_final(&hash, hex);
    bool failed = o.failed;
    fr__text_fini(&o);
    k->profile = fr__arena_printf(&c->arena, "%s/profile-%.8s.json", c->out, hex);
    return failed || !k->profile ? fr__compare_no_memory(c) : FR_OK;
}

/* --- simulations ------------------------------------------------------------------------------ */

/* Write the keys of a run's summary for which the simulation has numbers. */
static void write_forecast(fr__json *j, const struct fr__case *k, const fr_forecast *f)
{
    double batch = (double)k->batch;
    fr__json_object(j, NULL);
    fr__json_text(j, "status", "done");
    fr__json_bool(j, "simulated", true);
    fr__json_text(j, "method", k->method);
    fr__json_int(j, "batch", k->batch);
    fr__json_real(j, "samples_per_s", f->samples_per_s);
    fr__json_object(j, "bubble");
    fr__json_real(j, "share", f->bubble);
    fr__json_end(j);
    fr__json_object(j, "traffic");
    fr__json_real(j, "messages", f->message_bytes / batch); /* in both directions */
    fr__json_real(j, "sums", f->sum_bytes / batch);
    fr__json_end(j);
    fr__json_bool(j, "fits", f->fits);
    fr__json_list(j, "workers");
    for (int w = 0; w < f->n_workers; w++) {
        fr__json_object(j, NULL);
        fr__json_real(j, "busy_s", f->busy_s[w]);
        fr__json_real(j, "wait_s", f->wait_s[w]);
        fr__json_uint(j, "peak_bytes", f->memory[w]);
        fr__json_end(j);
    }
    fr__json_end(j);
    fr__json_end(j);
}

static fr_status save_forecast(fr_compare *c, const struct fr__case *k, const fr_forecast *f)
{
    const char *path = fr__compare_path(c, &c->job, k->folder, FR_SIMULATED);
    fr__json j;
    fr__json_to_text(&j, 2);
    write_forecast(&j, k, f);
    char *text = fr__json_take(&j, "\n");
    fr_status status = path && text ? fr__file_replace(c->ctx, path, text, strlen(text))
                                    : fr__compare_no_memory(c);
    fr__free(text);
    return status;
}

fr_status fr_compare_simulate(fr_compare *c)
{
    const struct fr__case *k = c->at;
    fr_forecast f;
    if (!k || k->kind != FR_KIND_SIMULATED)
        return fr_fail(c->ctx, FR_INVALID, "the next job is not a simulation");
    const char *config = fr__compare_path(c, &c->job, k->folder, "config.yaml");
    fr_run_options o = {.size = sizeof o, .config = config, .dump_step = -1};
    if (!config) return fr__compare_no_memory(c);
    FR_TRY(fr_run_simulate(c->ctx, &o, NULL, k->profile, 0, NULL, &f));
    fr_status status = save_forecast(c, k, &f);
    fr_forecast_free(&f);
    return status;
}
