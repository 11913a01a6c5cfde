/* read.c -- schedules from files: the text form, or CSV as torch.distributed.pipelining writes it.
 *
 * Either form becomes an array of entries with line and position, which error messages name. CSV
 * has instructions only: the row of a stage is its worker, and the numbers of stages and
 * micro-batches follow from the largest ones found.
 *
 * A file describes all replicas of its stages, or one pipeline. One pipeline is replicated if the
 * caller asks for the same number of replicas of every stage. */
#include "sched/read.h"

#include "io/file.h"
#include "sched/check.h"

#include <stdio.h>
#include <string.h>

static const char magic[] = "forerun-schedule";

/* Is this a name that survives writing and reading? */
static void set_name(fr__sched_reader *r, fr__text_span name)
{
    size_t n = name.n < sizeof r->name ? name.n : sizeof r->name - 1;
    while (n > 0 && *name.at == ' ') name.at++, n--;
    while (n > 0 && name.at[n - 1] == ' ') n--;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name.at[i];
        r->name[i] = c < ' ' || c == 0x7F || c == '#' ? '?' : name.at[i];
    }
    r->name[n] = '\0';
}

static bool is_text_form(const fr__sched_reader *r)
{
    fr__sched_reader look = *r;
    fr__text_span line;
    return fr__read_line(&look, &line) && fr__span_is(fr__read_part(&line, ' '), magic);
}

/* --- CSV ---------------------------------------------------------------------------------- */

static fr_status read_csv(fr__sched_reader *r)
{
    fr__text_span line;
    while (fr__read_line(r, &line)) {
        size_t before = r->entries.n;
        for (int number = 1; line.n > 0; number++) {
            fr__text_span cell = fr__read_part(&line, ',');
            if (cell.n > 0) FR_TRY(fr__read_entry(r, cell, number));
        }
        if (r->entries.n == before)
            return fr__read_fail(r, r->line, 0, "row %d has no instruction; each row is one worker",
                                 r->n_rows);
        r->n_rows++;
    }
    return FR_OK;
}

/* --- text form ---------------------------------------------------------------------------- */

static fr_status read_int(fr__sched_reader *r, const char *key, fr__text_span value, int *to)
{
    fr__text_span rest = value;
    if (*to != 0) return fr__read_fail(r, r->line, 0, "duplicate %s", key);
    if (!fr__read_number(&rest, to) || rest.n > 0 || *to < 1)
        return fr__read_fail(r, r->line, 0, "%s %.*s: expected a number from 1 to %d", key,
                             (int)(value.n < 40 ? value.n : 40), value.at, FR_SCHED_MAX_NUMBER);
    return FR_OK;
}

static fr_status read_flush(fr__sched_reader *r, fr__text_span value)
{
    if (!fr__span_is(value, "yes") && !fr__span_is(value, "no"))
        return fr__read_fail(r, r->line, 0, "flush %.*s: expected yes or no",
                             (int)(value.n < 40 ? value.n : 40), value.at);
    r->is_flush = fr__span_is(value, "yes");
    return FR_OK;
}

/* Read the next number of a list, at least `least`. */
static fr_status read_next(const fr__sched_reader *r, fr__text_span *list, size_t number, int least,
                           const char *what, int *value)
{
    fr__text_span part = fr__read_part(list, ' ');
    if (!fr__read_number(&part, value) || part.n > 0 || *value < least)
        return fr__read_fail(r, r->line, (int)number + 1, "expected %s, from %d", what, least);
    return FR_OK;
}

static fr_status read_worker_of(fr__sched_reader *r, fr__text_span value)
{
    if (r->worker_of.n) return fr__read_fail(r, r->line, 0, "duplicate worker_of");
    for (int w; value.n > 0;) {
        FR_TRY(read_next(r, &value, r->worker_of.n, 0, "the number of a worker", &w));
        if (!fr__vec_push(&r->worker_of, w))
            return fr__no_memory(r->ctx, r->worker_of.n * sizeof(int), r->path);
    }
    return FR_OK;
}

static fr_status read_replicas(fr__sched_reader *r, fr__text_span value)
{
    if (r->replicas.n) return fr__read_fail(r, r->line, 0, "duplicate replicas");
    for (int n; value.n > 0;) {
        FR_TRY(read_next(r, &value, r->replicas.n, 1, "the number of replicas of a stage", &n));
        if (!fr__vec_push(&r->replicas, n))
            return fr__no_memory(r->ctx, r->replicas.n * sizeof(int), r->path);
    }
    return FR_OK;
}

static fr_status read_links(fr__sched_reader *r, int way, fr__text_span value)
{
    if (r->has_links[way]) return fr__read_fail(r, r->line, 0, "duplicate list of links");
    r->has_links[way] = true;
    while (value.n > 0) {
        fr__text_span part = fr__read_part(&value, ' '), from = fr__read_part(&part, '>');
        fr_link l;
        if (!fr__read_number(&from, &l.from) || !fr__read_number(&part, &l.to) || from.n + part.n)
            return fr__read_fail(r, r->line, (int)r->links[way].n + 1,
                                 "expected a link from stage to stage, as %s", way ? "1>0" : "0>1");
        if (!fr__vec_push(&r->links[way], l))
            return fr__no_memory(r->ctx, r->links[way].n * sizeof l, r->path);
    }
    return FR_OK;
}

/* "worker 2: 2F0 2F1 ..." without its first word. */
static fr_status read_worker(fr__sched_reader *r, fr__text_span value)
{
    fr__text_span number = fr__read_part(&value, ':');
    int w;
    if (!fr__read_number(&number, &w) || number.n > 0 || w != r->n_rows)
        return fr__read_fail(r, r->line, 0, "expected \"worker %d: ...\" here", r->n_rows);
    while (value.n > 0 && (value.at[0] == ' ' || value.at[0] == '\t')) value.at++, value.n--;
    for (int i = 1; value.n > 0; i++) FR_TRY(fr__read_entry(r, fr__read_part(&value, ' '), i));
    r->n_rows++;
    return FR_OK;
}

static fr_status read_text_line(fr__sched_reader *r, fr__text_span line)
{
    fr__text_span key = fr__read_part(&line, ' ');
    if (fr__span_is(key, "worker")) return read_worker(r, line);
    if (fr__span_is(key, "name")) return set_name(r, line), FR_OK;
    if (fr__span_is(key, "stages")) return read_int(r, "stages", line, &r->n_stages);
    if (fr__span_is(key, "workers")) return read_int(r, "workers", line, &r->n_workers);
    if (fr__span_is(key, "micro")) return read_int(r, "micro", line, &r->n_micro);
    if (fr__span_is(key, "batches")) return read_int(r, "batches", line, &r->n_batches);
    if (fr__span_is(key, "flush")) return read_flush(r, line);
    if (fr__span_is(key, "worker_of")) return read_worker_of(r, line);
    if (fr__span_is(key, "replicas")) return read_replicas(r, line);
    if (fr__span_is(key, "forward")) return read_links(r, 0, line);
    if (fr__span_is(key, "backward")) return read_links(r, 1, line);
    return fr__read_fail(r, r->line, 0,
                         "%.*s: expected one of name, stages, workers, micro, batches, flush, "
                         "worker_of, replicas, forward, backward, worker",
                         (int)(key.n < 40 ? key.n : 40), key.at);
}

static fr_status read_text(fr__sched_reader *r)
{
    fr__text_span line;
    int version;
    (void)fr__read_line(r, &line); /* present: is_text_form has checked it */
    (void)fr__read_part(&line, ' ');
    if (!fr__read_number(&line, &version) || version != 1 || line.n > 0)
        return fr__read_fail(r, r->line, 0, "expected \"%s 1\"; other versions are not supported",
                             magic);
    while (fr__read_line(r, &line)) FR_TRY(read_text_line(r, line));
    if (r->n_workers && r->n_workers != r->n_rows)
        return fr__read_fail(r, r->line, 0, "workers %d, but there are %d lists", r->n_workers,
                             r->n_rows);
    return FR_OK;
}

/* --- entries to a schedule ---------------------------------------------------------------- */

/* Replicas of a stage that the caller asks for. */
static int wanted(const fr_schedule_desc *d, int stage)
{
    return d && d->replicas ? d->replicas[d->n_stages ? stage : 0] : 1;
}

static bool stands_in_several_rows(const fr__sched_reader *r, int stage)
{
    int row = -1;
    for (size_t i = 0; i < r->entries.n; i++) {
        if (r->entries.at[i].x.stage != stage) continue;
        if (row >= 0 && r->entries.at[i].worker != row) return true;
        row = r->entries.at[i].worker;
    }
    return false;
}

/* Replicas of the file, if it has any: the text form declares them; in CSV a replicated stage is in
 * several rows. Otherwise the file is one pipeline, which is replicated. */
static fr_status find_replicas(fr__sched_reader *r, const fr_schedule_desc *d)
{
    int most = 0;
    bool is_said = r->replicas.n > 0, is_even = true;
    for (int k = 0; k < r->n_stages; k++) {
        if (wanted(d, k) < 1)
            return fr_fail(r->ctx, FR_INVALID,
                           "%s: %d replicas of stage %d; at least 1 is required", r->path,
                           wanted(d, k), k);
        if (wanted(d, k) > wanted(d, most)) most = k;
        is_even &= wanted(d, k) == wanted(d, 0);
    }
    if (is_said && r->replicas.n != (size_t)r->n_stages)
        return fr_fail(r->ctx, FR_INVALID, "%s: replicas lists %zu stages, but there are %d",
                       r->path, r->replicas.n, r->n_stages);
    if (wanted(d, most) == 1) return FR_OK;
    for (int k = 0; is_said && k < r->n_stages; k++)
        if (r->replicas.at[k] != wanted(d, k))
            return fr_fail(r->ctx, FR_INVALID,
                           "%s: the file is for %d replicas of stage %d, not for %d; make them "
                           "equal, or omit the number in the config",
                           r->path, r->replicas.at[k], k, wanted(d, k));
    if (is_said) return FR_OK;
    if (stands_in_several_rows(r, most)) {
        for (int k = 0; k < r->n_stages; k++)
            if (!fr__vec_push(&r->replicas, wanted(d, k)))
                return fr__no_memory(r->ctx, r->replicas.n * sizeof(int), r->path);
        return FR_OK;
    }
    if (!is_even)
        return fr_fail(
            r->ctx, FR_INVALID,
            "%s: the file is for one pipeline, which can be replicated only as a whole, but stage "
            "%d should have %d replicas and stage %d %d; write one list per replica",
            r->path, 0, wanted(d, 0), most, wanted(d, most));
    r->n_pipelines = wanted(d, 0);
    return FR_OK;
}

static fr_status wrong_micro(const fr__sched_reader *r, int n_micro)
{
    char text[64] = "";
    if (r->n_pipelines > 1) snprintf(text, sizeof text, " shared by %d replicas", r->n_pipelines);
    return fr_fail(r->ctx, FR_INVALID,
                   "%s: the file is for %d micro-batches per mini-batch, not for %d%s", r->path,
                   r->n_micro, n_micro, text);
}

/* Derive the numbers that the file omits. They are limited by its length. */
static fr_status fill_sizes(fr__sched_reader *r, int n_micro, const fr_schedule_desc *d)
{
    int n_stages = 0, n_all = 0;
    for (size_t i = 0; i < r->entries.n; i++) {
        const fr_instr *x = &r->entries.at[i].x;
        if (x->stage >= n_stages) n_stages = x->stage + 1;
        if (!fr_is_of_batch(x->action) && x->micro >= n_all) n_all = x->micro + 1;
    }
    if (n_all == 0) return fr_fail(r->ctx, FR_INVALID, "%s: the file has no instructions", r->path);
    if (!r->n_stages) r->n_stages = n_stages;
    if (d && d->n_stages && d->n_stages != r->n_stages)
        return fr_fail(r->ctx, FR_INVALID,
                       "%s: the file has %d stages, but the model is cut into %d", r->path,
                       r->n_stages, d->n_stages);
    FR_TRY(find_replicas(r, d));
    if (n_micro % r->n_pipelines != 0)
        return fr_fail(r->ctx, FR_INVALID,
                       "%s: %d micro-batches per mini-batch do not divide among %d replicas; "
                       "train.micro must be a multiple of the replicas",
                       r->path, n_micro, r->n_pipelines);
    if (r->n_micro && n_micro && r->n_micro != n_micro / r->n_pipelines)
        return wrong_micro(r, n_micro);
    n_micro /= r->n_pipelines;
    if (!r->n_micro) r->n_micro = n_micro;
    if (!r->n_micro) r->n_micro = r->n_batches ? n_all / r->n_batches : n_all;
    if (!r->n_batches && r->n_micro) r->n_batches = n_all / r->n_micro;
    int64_t said = (int64_t)r->n_micro * r->n_batches;
    if (said != n_all)
        return fr_fail(r->ctx, FR_INVALID,
                       "%s: the file has micro-batches 0 to %d, %d in all; %s %d per mini-batch%s",
                       r->path, n_all - 1, n_all, said ? "expected a multiple of" : "fewer than",
                       r->n_micro ? r->n_micro : n_micro, said ? ", one for each mini-batch" : "");
    if ((int64_t)r->n_stages * n_all > (int64_t)r->entries.n)
        return fr_fail(r->ctx, FR_INVALID,
                       "%s: %zu instructions are too few for %d stages with %d micro-batches each; "
                       "is a number mistyped?",
                       r->path, r->entries.n, r->n_stages, n_all);
    return FR_OK;
}

/* The worker of a stage is the row of its instructions; with replicas, the first such row. */
static fr_status fill_workers(fr__sched_reader *r)
{
    bool is_said = r->worker_of.n > 0;
    if (is_said && r->worker_of.n != (size_t)r->n_stages)
        return fr_fail(r->ctx, FR_INVALID, "%s: worker_of lists %zu stages, but there are %d",
                       r->path, r->worker_of.n, r->n_stages);
    for (int k = 0; !is_said && k < r->n_stages; k++)
        if (!fr__vec_push(&r->worker_of, -1))
            return fr__no_memory(r->ctx, (size_t)r->n_stages * sizeof(int), r->path);
    for (size_t i = 0; i < r->entries.n; i++) {
        const fr__sched_entry *e = &r->entries.at[i];
        if (e->x.stage >= r->n_stages)
            return fr__read_fail(r, e->line, e->number, "no stage %d; there are %d", e->x.stage,
                                 r->n_stages);
        int *w = &r->worker_of.at[e->x.stage];
        int n = r->replicas.n > 0 ? r->replicas.at[e->x.stage] : 1;
        if (*w < 0) *w = e->worker;
        if (e->worker < *w || e->worker - *w >= n)
            return fr__read_fail(
                r, e->line, e->number,
                "stage %d is on worker %d, but this is worker %d; the stage has %d replica%s",
                e->x.stage, *w, e->worker, n, n == 1 ? "" : "s");
    }
    for (int k = 0; k < r->n_stages; k++)
        if (r->worker_of.at[k] < 0 || r->worker_of.at[k] >= r->n_rows)
            return fr_fail(r->ctx, FR_INVALID, "%s: no worker runs stage %d; stages are 0 to %d",
                           r->path, k, r->n_stages - 1);
    return FR_OK;
}

static fr_status check_entry(const fr__sched_reader *r, const fr__sched_entry *e)
{
    int n = r->n_batches;
    if (fr_is_of_batch(e->x.action) && e->x.micro >= n)
        return fr__read_fail(r, e->line, e->number, "no mini-batch %d; there %s %d", e->x.micro,
                             n == 1 ? "is" : "are", n);
    if (fr__is_transfer(e->x.action) && (e->x.peer < 0 || e->x.peer >= r->n_stages))
        return fr__read_fail(r, e->line, e->number, "peer stage %d, but stages are 0 to %d",
                             e->x.peer, r->n_stages - 1);
    return FR_OK;
}

/* Use the links of the model if given, else those of the file, else a chain. */
static fr_schedule_desc desc_of(const fr__sched_reader *r, const fr_schedule_desc *given)
{
    static const fr_link none[1];
    fr_schedule_desc d = {
        .n_stages = r->n_stages, .n_micro = r->n_micro, .n_batches = r->n_batches};
    if (r->replicas.n > 0) d.replicas = r->replicas.at;
    if (given && (given->forward || given->backward)) {
        d.n_forward = given->n_forward, d.forward = given->forward;
        d.n_backward = given->n_backward, d.backward = given->backward;
        return d;
    }
    for (int way = 0; way < 2; way++) {
        if (!r->has_links[way]) continue;
        const fr_link *links = r->links[way].n ? r->links[way].at : none;
        if (way == 0)
            d.n_forward = (int)r->links[way].n, d.forward = links;
        else
            d.n_backward = (int)r->links[way].n, d.backward = links;
    }
    return d;
}

/* If lowering deadlocks, the check has the better message. */
static fr_status lower(fr_ctx *ctx, fr_schedule *s, bool must_reduce)
{
    fr_status status = fr__schedule_lower(ctx, s, must_reduce);
    if (status == FR_INVALID) (void)fr__schedule_explain(ctx, s);
    return status;
}

static fr_status make_pipelines(fr__sched_reader *r, fr_schedule **s)
{
    int n = r->n_pipelines;
    if (n > FR_SCHED_MAX_NUMBER / r->n_micro)
        return fr_fail(r->ctx, FR_INVALID,
                       "%s: %d replicas with %d micro-batches each are too many", r->path, n,
                       r->n_micro);
    for (int k = 0; k < r->n_stages; k++)
        if (!fr__vec_push(&r->replicas, n))
            return fr__no_memory(r->ctx, r->replicas.n * sizeof(int), r->path);
    return fr__schedule_replicate(r->ctx, s, r->replicas.at, n * r->n_micro);
}

static fr_status build(fr__sched_reader *r, const fr_schedule_desc *given, fr_schedule **out)
{
    bool has_back = false, is_split = false;
    for (size_t i = 0; i < r->entries.n; i++) {
        int action = r->entries.at[i].x.action;
        FR_TRY(check_entry(r, &r->entries.at[i]));
        has_back |= action == FR_DO_B || action == FR_DO_I || action == FR_DO_W;
        is_split |= action == FR_DO_I || action == FR_DO_W;
    }
    fr_schedule_desc d = desc_of(r, given);
    FR_TRY(fr__schedule_new(r->ctx, r->name, &d, r->n_rows, r->worker_of.at, !has_back, out));
    fr_schedule *s = *out;
    s->is_flush = r->is_flush < 0 ? r->n_batches == 1 : r->is_flush;
    s->is_split = is_split;
    for (size_t i = 0; i < r->entries.n; i++) {
        const fr__sched_entry *e = &r->entries.at[i];
        fr__emit_transfer(s, e->worker, (fr_action)e->x.action, e->x.stage, e->x.micro, e->x.peer);
    }
    if (fr__emit_failed(s)) return fr__no_memory(r->ctx, r->entries.n * sizeof(fr_instr), r->path);
    if (r->n_pipelines > 1) FR_TRY(make_pipelines(r, out));
    return lower(r->ctx, *out, given && given->must_reduce);
}

static fr_status parse(fr__sched_reader *r, int n_micro, const fr_schedule_desc *d,
                       fr_schedule **out)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* byte order mark, which some editors write */
    if (r->end - r->at >= 3 && memcmp(r->at, mark, 3) == 0) r->at += 3;
    const bool is_text = is_text_form(r);
    FR_TRY(is_text ? read_text(r) : read_csv(r));
    FR_TRY(fill_sizes(r, n_micro, d));
    FR_TRY(fill_workers(r));
    if (!is_text) FR_TRY(fr__read_posts(r));
    return build(r, d, out);
}

fr_status fr__schedule_parse(fr_ctx *ctx, const char *path, const char *data, size_t bytes,
                             int n_micro, const fr_schedule_desc *d, fr_schedule **out)
{
    *out = NULL;
    const char *base = strrchr(path, '/');
    fr__sched_reader r = {.ctx = ctx,
                          .path = path,
                          .at = data,
                          .end = data + bytes,
                          .is_flush = -1,
                          .n_pipelines = 1};
    base = base ? base + 1 : path;
    set_name(&r, (fr__text_span){base, strlen(base)});
    fr_status status = parse(&r, n_micro, d, out);
    if (status != FR_OK) {
        /* Errors from below the reader do not name the file. */
        const char *text = fr_ctx_error(ctx);
        bool is_told = strncmp(text, path, strlen(path)) == 0;
        fr_fail(ctx, status, "%s%s%s", is_told ? "" : path, is_told ? "" : ": ", text);
        fr_schedule_free(*out);
        *out = NULL;
    } else if (r.n_skipped > 0) {
        fr_log(ctx, FR_LOG_WARN,
               "%s: ignored %d entries UNSHARD, RESHARD, REDUCE_GRAD or WAIT_REDUCE_GRAD: weights "
               "are not sharded here, and reductions are placed automatically",
               path, r.n_skipped);
    }
    if (status == FR_OK && r.n_overlaps > 0)
        fr_log(ctx, FR_LOG_WARN,
               "%s: %d entries OVERLAP_F_B: a worker runs one computation at a time, so their "
               "parts run one after the other",
               path, r.n_overlaps);
    fr__vec_fini(&r.entries);
    fr__vec_fini(&r.worker_of);
    fr__vec_fini(&r.replicas);
    fr__vec_fini(&r.links[0]);
    fr__vec_fini(&r.links[1]);
    return status;
}

fr_status fr_schedule_read(fr_ctx *ctx, const char *path, int n_micro, const fr_schedule_desc *d,
                           const fr_schedule **out)
{
    unsigned char *data;
    size_t bytes;
    fr_schedule *s;
    *out = NULL;
    FR_TRY(fr__file_read(ctx, path, FR_SCHED_MAX_BYTES, &data, &bytes));
    fr_status status = fr__schedule_parse(ctx, path, (const char *)data, bytes, n_micro, d, &s);
    fr__free(data);
    *out = s;
    return status;
}
