/* summary.c -- summary.json, replaced as a whole. */
#include "train/summary.h"

#include "base/thread.h"
#include "io/file.h"
#include "io/json.h"

static void write_memory(fr_json *j, const fr_memory_use *m)
{
    const struct {
        const char *name;
        size_t bytes;
    } parts[] = {{"weights", m->weights}, {"grads", m->grads}, {"optimizer", m->optimizer},
                 {"buffers", m->buffers}, {"slots", m->slots}, {"workspace", m->workspace},
                 {"cache", m->cache},     {"io", m->io}};
    fr__json_object(j, "predicted");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        fr__json_uint(j, parts[i].name, parts[i].bytes);
    fr__json_end(j);
}

static void write_worker(fr_json *j, const fr_worker *w, double wait_s)
{
    fr__json_object(j, NULL);
    fr__json_real(j, "busy_s", (double)fr_worker_busy_ns(w) * 1e-9);
    fr__json_real(j, "wait_s", wait_s);
    fr__json_real(j, "comm_s", 0); /* one worker has nobody to talk to */
    fr__json_uint(j, "peak_bytes", fr_worker_peak_bytes(w));
    fr__json_uint(j, "predicted_peak_bytes", fr_worker_predicted(w)->total);
    write_memory(j, fr_worker_predicted(w));
    fr__json_end(j);
}

static void write_all(fr_json *j, const fr_setup *s, const fr_worker *w, const fr_summary *sum)
{
    const fr_settings *t = &s->settings;
    const fr_run_result *r = sum->result;
    fr__json_object(j, NULL);
    fr__json_text(j, "status", sum->status);
    fr__json_text(j, "model", fr_graph_name(s->graph));
    fr__json_int(j, "parameters", fr_graph_param_count(s->graph));
    fr__json_text(j, "data", s->data_name);
    fr__json_text(j, "method", t->method->name);
    fr__json_int(j, "stages", t->stages);
    fr__json_int(j, "replicas", t->replicas);
    fr__json_int(j, "batch", t->batch);
    fr__json_int(j, "micro", t->micro);
    fr__json_uint(j, "seed", t->seed);
    fr__json_text(j, "optimizer", t->optimizer->name);
    fr__json_int(j, "steps", r->steps);
    fr__json_int(j, "samples", r->samples);
    fr__json_real(j, "train_loss", r->train_loss);
    fr__json_real(j, "eval_loss", r->eval_loss);
    fr__json_real(j, "eval_accuracy", r->eval_accuracy);
    fr__json_real(j, "samples_per_s", r->samples_per_s);
    fr__json_real(j, "wall_s", r->wall_s);
    fr__json_text(j, "weights_sha256", r->weights_sha256);
    fr__json_list(j, "workers");
    write_worker(j, w, sum->wait_s);
    fr__json_end(j);
    fr__json_uint(j, "peak_resident_bytes", fr__peak_rss());
    fr__json_uint(j, "data_bytes", fr_dataset_bytes(s->data));
    fr__json_text(j, "backend", fr_worker_about(w));
    fr__json_text(j, "checkpoint", sum->checkpoint);
    fr__json_text(j, "config", sum->config);
    fr__json_text(j, "forerun", fr_version());
    fr__json_end(j);
}

fr_status fr__summary_write(const fr_setup *s, const fr_worker *w, const fr_folder *f,
                            const fr_summary *sum)
{
    enum { ROOM = 32768 };
    char path[FR_PATH];
    FR_TRY(fr__path(s->ctx, path, "%s/summary.json", f->path));
    char *text = fr__alloc(ROOM);
    if (!text) return fr__no_memory(s->ctx, ROOM, "summary");
    fr_json j;
    fr__json_to_buffer(&j, text, ROOM - 1, 2);
    write_all(&j, s, w, sum);
    fr_status status = FR_OK;
    if (!fr__json_finish(&j)) status = fr_fail(s->ctx, FR_INTERNAL, "%s: text too long", path);
    if (status == FR_OK) {
        text[j.bytes++] = '\n';
        status = fr__file_replace(s->ctx, path, text, j.bytes);
    }
    fr__free(text);
    return status;
}
