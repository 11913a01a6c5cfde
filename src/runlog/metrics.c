/* metrics.c -- one table lists the metrics of a mini-batch with their names in each file.
 *
 * The step comes first in a line, so a resumed run finds the place to continue from. Scripts
 * follow metrics.jsonl during a run, so each of its lines is flushed. The other files are flushed
 * every few seconds and before each checkpoint. */
#include "runlog/metrics.h"

#include "base/thread.h"
#include "io/file.h"
#include "io/json.h"
#include "io/number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t flush_ns = 2000000000;

typedef enum kind { INTEGER, REAL, MAYBE /* a REAL; NaN: no value */ } kind;

typedef struct field {
    const char *name; /* in JSON and CSV */
    const char *tag;  /* in TensorBoard; NULL: not there */
    kind kind;
    size_t offset; /* in fr_progress */
} field;

#define IN_PROGRESS(name) offsetof(fr_progress, name)
static const field fields[] = {
    {"step", NULL, INTEGER, IN_PROGRESS(step)},
    {"samples", NULL, INTEGER, IN_PROGRESS(samples)},
    {"loss", "loss/train", REAL, IN_PROGRESS(loss)},
    {"lr", "lr", REAL, IN_PROGRESS(lr)},
    {"samples_per_s", "throughput/samples_per_s", REAL, IN_PROGRESS(samples_per_s)},
    {"elapsed_s", NULL, REAL, IN_PROGRESS(elapsed_s)},
    {"grad_norm", "grad_norm", MAYBE, IN_PROGRESS(grad_norm)},
    {"eval_loss", "loss/eval", MAYBE, IN_PROGRESS(eval_loss)},
    {"eval_accuracy", "accuracy/eval", MAYBE, IN_PROGRESS(eval_accuracy)},
    {"eval_mae", "mae/eval", MAYBE, IN_PROGRESS(eval_mae)},
    {"eval_perplexity", "perplexity/eval", MAYBE, IN_PROGRESS(eval_perplexity)},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static double real_of(const fr_progress *p, const field *f)
{
    double value;
    memcpy(&value, (const char *)p + f->offset, sizeof value);
    return value;
}

static bool is_absent(const fr_progress *p, const field *f)
{
    return f->kind == MAYBE && isnan(real_of(p, f));
}

/* The number as text for JSON and CSV; "" if there is none or it is not finite. */
static void format(const fr_progress *p, const field *f, char text[32])
{
    int64_t integer;
    text[0] = '\0';
    if (f->kind == INTEGER) {
        memcpy(&integer, (const char *)p + f->offset, sizeof integer);
        snprintf(text, 32, "%lld", (long long)integer);
    } else if (isfinite(real_of(p, f))) {
        (void)fr__real_format(real_of(p, f), text);
    }
}

/* --- opening --------------------------------------------------------------------------------- */

/* Length of the head and the lines after it, up to and including `step`. Each line begins with
 * `prefix` and its step. 0 if the head differs. */
static size_t kept_bytes(const char *text, const char *head, const char *prefix, int64_t step)
{
    size_t at = strlen(head);
    if (strncmp(text, head, at) != 0) return 0;
    for (;;) {
        const char *end = strchr(text + at, '\n');
        if (!end || strncmp(text + at, prefix, strlen(prefix)) != 0) return at;
        char *behind;
        long long n = strtoll(text + at + strlen(prefix), &behind, 10);
        if (*behind != ',' || n > step) return at;
        at = (size_t)(end - text) + 1;
    }
}

/* Opens a file of lines and truncates it to the step from which the run continues; a new file gets
 * its head. */
static fr_status open_lines(fr_ctx *ctx, const char *path, const char *head, const char *prefix,
                            int64_t step, FILE **file)
{
    size_t keep = 0;
    if (step > 0 && fr__file_exists(path)) {
        unsigned char *text;
        size_t bytes;
        FR_TRY(fr__file_read_regular(ctx, path, (size_t)1 << 40, &text, &bytes));
        keep = kept_bytes((const char *)text, head, prefix, step);
        fr__free(text);
    }
    *file = fopen(path, keep ? "r+" : "w");
    if (!*file) return fr__io_fail(ctx, "open", path);
    if (ftruncate(fileno(*file), (off_t)keep) != 0 || fseek(*file, 0, SEEK_END) != 0)
        return fr__io_fail(ctx, "cut back", path);
    errno = 0;
    if (keep == 0 && (fputs(head, *file) < 0 || fflush(*file) != 0))
        return fr__io_fail(ctx, "write", path);
    return FR_OK;
}

static fr_status open_csv(fr__metrics *m, const fr__folder *f, int64_t step)
{
    char head[256] = "";
    FR_TRY(fr__path(m->ctx, m->csv_path, "%s/metrics.csv", f->path));
    for (int i = 0; i < N_FIELDS; i++) {
        size_t n = strlen(head);
        snprintf(head + n, sizeof head - n, "%s%c", fields[i].name, i + 1 < N_FIELDS ? ',' : '\n');
    }
    return open_lines(m->ctx, m->csv_path, head, "", step, &m->csv);
}

static fr_status open_all(fr__metrics *m, const fr__folder *f, int64_t step, int more)
{
    FR_TRY(fr__folder_file(m->ctx, f, "metrics.jsonl", m->path));
    FR_TRY(open_lines(m->ctx, m->path, "", "{\"step\": ", step, &m->file));
    if (more & FR_METRICS_CSV) FR_TRY(open_csv(m, f, step));
    if (more & FR_METRICS_TENSORBOARD) FR_TRY(fr__tfevents_open(m->ctx, f->path, step, &m->events));
    return FR_OK;
}

fr_status fr__metrics_open(fr_ctx *ctx, const fr__folder *f, int64_t step, int more, fr__metrics *m)
{
    memset(m, 0, sizeof *m);
    m->ctx = ctx;
    m->folder = f;
    m->flushed_ns = fr__now_ns();
    fr_status status = open_all(m, f, step, more);
    if (status != FR_OK) fr__metrics_close(m);
    return status;
}

void fr__metrics_close(fr__metrics *m)
{
    if (m->file) fclose(m->file);
    if (m->csv) fclose(m->csv);
    m->file = m->csv = NULL;
    (void)fr__tfevents_close(&m->events); /* flushed before if the run needs them */
}

/* --- writing --------------------------------------------------------------------------------- */

typedef char row[N_FIELDS]
                [32]; /* the numbers of a mini-batch; formatting them takes most of the time */

/* Lists by stage of what the weight policy changes. */
static void write_rules(fr__json *j, const fr__stage_rules *r, const fr_progress *p)
{
    if (r->policy && r->policy->lr_factor) {
        fr__json_list(j, "stage_lr");
        for (int k = 0; k < r->n_stages; k++)
            fr__json_real(j, NULL, p->lr * fr__stage_lr_factor(r, k, p->step - 1));
        fr__json_end(j);
    }
    if (!r->policy || !r->policy->adapt) return;
    fr__json_list(j, "stage_momentum");
    for (int k = 0; k < r->n_stages; k++) fr__json_real(j, NULL, fr__stage_momentum(r, k));
    fr__json_end(j);
    fr__json_list(j, "stage_ahead");
    for (int k = 0; k < r->n_stages; k++) fr__json_int(j, NULL, fr__stage_ahead(r, k));
    fr__json_end(j);
}

static fr_status write_json(fr__metrics *m, const fr_progress *p, row texts)
{
    fr__json j;
    fr__json_to_file(&j, m->file, 0);
    fr__json_object(&j, NULL);
    for (int i = 0; i < N_FIELDS; i++)
        if (!is_absent(p, &fields[i])) fr__json_number(&j, fields[i].name, texts[i]);
    write_rules(&j, &m->rules, p);
    fr__json_end(&j);
    errno = 0;
    return fr__json_finish(&j) ? FR_OK : fr__io_fail(m->ctx, "write", m->path);
}

static fr_status write_csv(fr__metrics *m, row texts)
{
    char line[sizeof(row) + N_FIELDS];
    char *end = line;
    for (int i = 0; i < N_FIELDS; i++) {
        end = stpcpy(end, texts[i]);
        *end++ = i + 1 < N_FIELDS ? ',' : '\n';
    }
    size_t n = (size_t)(end - line);
    errno = 0;
    return fwrite(line, 1, n, m->csv) == n ? FR_OK : fr__io_fail(m->ctx, "write", m->csv_path);
}

static fr_status write_events(fr__metrics *m, const fr_progress *p)
{
    fr__tf_scalar scalars[N_FIELDS];
    int n = 0;
    for (const field *f = fields; f < fields + N_FIELDS; f++)
        if (f->tag && !is_absent(p, f)) scalars[n++] = (fr__tf_scalar){f->tag, real_of(p, f)};
    return fr__tfevents_write(&m->events, p->step, n, scalars);
}

/* `rm -r` of the folder during the run may remove the files and leave the folder. */
static fr_status check_place(const fr__metrics *m)
{
    struct stat named, open;
    FR_TRY(fr__folder_held(m->ctx, m->folder));
    if (stat(m->path, &named) == 0 && fstat(fileno(m->file), &open) == 0 &&
        named.st_dev == open.st_dev && named.st_ino == open.st_ino)
        return FR_OK;
    return fr_fail(
        m->ctx, FR_IO,
        "%s: was moved, removed or replaced while the run wrote to it; the run ends here", m->path);
}

fr_status fr__metrics_write(fr__metrics *m, const fr_progress *p)
{
    row texts;
    if (m->folder) FR_TRY(check_place(m));
    for (int i = 0; i < N_FIELDS; i++) format(p, &fields[i], texts[i]);
    FR_TRY(write_json(m, p, texts));
    if (m->csv) FR_TRY(write_csv(m, texts));
    if (m->events.file) FR_TRY(write_events(m, p));
    return fr__now_ns() - m->flushed_ns > flush_ns ? fr__metrics_flush(m) : FR_OK;
}

fr_status fr__metrics_flush(fr__metrics *m)
{
    m->flushed_ns = fr__now_ns();
    errno = 0;
    if (m->csv && fflush(m->csv) != 0) return fr__io_fail(m->ctx, "write", m->csv_path);
    return m->events.file ? fr__tfevents_flush(&m->events) : FR_OK;
}

static fr_status sync_file(fr_ctx *ctx, FILE *file, const char *path)
{
    return !file || fdatasync(fileno(file)) == 0 ? FR_OK : fr__io_fail(ctx, "sync", path);
}

fr_status fr__metrics_sync(fr__metrics *m, fr_ctx *ctx)
{
    FR_TRY(sync_file(ctx, m->file, m->path));
    FR_TRY(sync_file(ctx, m->csv, m->csv_path));
    return sync_file(ctx, m->events.file, m->events.path);
}
