/* metrics.c -- metrics.jsonl. The step comes first in a line, so that a resumed run can find the
 * place to go on from. */
#include "train/metrics.h"

#include "io/file.h"
#include "io/json.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Length of the lines up to and with `step`; they begin with {"step":N, as written below. */
static size_t kept_bytes(const char *text, size_t bytes, int64_t step)
{
    size_t at = 0;
    while (at < bytes) {
        const char *end = memchr(text + at, '\n', bytes - at);
        long long n;
        if (!end || sscanf(text + at, "{\"step\": %lld", &n) != 1 || n > step) break;
        at = (size_t)(end - text) + 1;
    }
    return at;
}

fr_status fr__metrics_open(fr_ctx *ctx, const fr_folder *f, int64_t step, fr_metrics *m)
{
    memset(m, 0, sizeof *m);
    m->ctx = ctx;
    FR_TRY(fr__path(ctx, m->path, "%s/metrics.jsonl", f->path));
    size_t keep = 0;
    if (step > 0 && fr__file_exists(m->path)) {
        unsigned char *text;
        size_t bytes;
        FR_TRY(fr__file_read(ctx, m->path, (size_t)1 << 40, &text, &bytes));
        keep = kept_bytes((const char *)text, bytes, step);
        fr__free(text);
    }
    m->file = fopen(m->path, keep ? "r+" : "w");
    if (!m->file) return fr__io_fail(ctx, "open", m->path);
    if (ftruncate(fileno(m->file), (off_t)keep) == 0 && fseek(m->file, 0, SEEK_END) == 0)
        return FR_OK;
    fr_status status = fr__io_fail(ctx, "cut back", m->path);
    fr__metrics_close(m);
    return status;
}

void fr__metrics_close(fr_metrics *m)
{
    if (m->file) fclose(m->file);
    m->file = NULL;
}

fr_status fr__metrics_write(fr_metrics *m, const fr_progress *p)
{
    fr_json j;
    fr__json_to_file(&j, m->file, 0);
    fr__json_object(&j, NULL);
    fr__json_int(&j, "step", p->step);
    fr__json_int(&j, "samples", p->samples);
    fr__json_real(&j, "loss", p->loss);
    fr__json_real(&j, "lr", p->lr);
    fr__json_real(&j, "samples_per_s", p->samples_per_s);
    fr__json_real(&j, "elapsed_s", p->elapsed_s);
    if (!isnan(p->grad_norm)) fr__json_real(&j, "grad_norm", p->grad_norm);
    if (!isnan(p->eval_loss)) fr__json_real(&j, "eval_loss", p->eval_loss);
    if (!isnan(p->eval_accuracy)) fr__json_real(&j, "eval_accuracy", p->eval_accuracy);
    fr__json_end(&j);
    errno = 0;
    return fr__json_finish(&j) ? FR_OK : fr__io_fail(m->ctx, "write", m->path);
}

fr_status fr__metrics_sync(fr_metrics *m, fr_ctx *ctx)
{
    return fdatasync(fileno(m->file)) == 0 ? FR_OK : fr__io_fail(ctx, "sync", m->path);
}
