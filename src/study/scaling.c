/* scaling.c -- epochs and step times -> training time, data parallel against hybrid (Pal et al.
 * 2019, section 3).
 *
 * Training takes E epochs of n / B updates of T seconds each, B the global batch. Against one
 * device (batch b, E_1, T_1), with N = B / b parallel parts, the speed-up is N * (T_1 / T) * (E_1 /
 * E). Data parallel has N = all devices; hybrid has N = devices / M pipelines of M stages: fewer
 * parts, hence a smaller batch and fewer epochs, but each faster than a device. */
#include "study/efficiency.h"

#include "io/file.h"
#include "io/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void judge(const fr_time_row *r, fr_time_verdict *v)
{
    if (r->dp_speedup > v->dp_speedup) v->dp_devices = r->devices, v->dp_speedup = r->dp_speedup;
    if (r->hybrid_speedup > v->hybrid_speedup)
        v->hybrid_devices = r->devices, v->hybrid_speedup = r->hybrid_speedup;
    if (isnan(r->dp_speedup) || isnan(r->hybrid_speedup)) return;
    if (r->hybrid_speedup <= r->dp_speedup)
        v->crossover = 0;
    else if (v->crossover == 0)
        v->crossover = r->devices;
}

void fr_time_to_accuracy(const fr_efficiency *e, const fr_scaling *s, fr_time_row *rows,
                         fr_time_verdict *verdict)
{
    *verdict = (fr_time_verdict){0};
    if (e->n_rows == 0 || s->n_points == 0) return;
    int64_t batch = e->rows[0].batch;
    double first_s = s->points[0].dp_s, first_epochs = e->rows[0].epochs;
    for (int i = 0; i < s->n_points; i++) {
        const fr_scaling_point *p = &s->points[i];
        int n_pipelines = s->ways > 0 ? p->devices / s->ways : 0;
        fr_time_row r = {.devices = p->devices,
                         .dp_batch = p->devices * batch,
                         .hybrid_batch = n_pipelines * batch,
                         .dp_efficiency = first_s / p->dp_s};
        r.dp_epochs = fr_efficiency_epochs(e, r.dp_batch);
        r.hybrid_epochs = n_pipelines > 0 ? fr_efficiency_epochs(e, r.hybrid_batch) : NAN;
        r.dp_speedup = p->devices * r.dp_efficiency * first_epochs / r.dp_epochs;
        r.hybrid_speedup = n_pipelines * (first_s / p->hybrid_s) * first_epochs / r.hybrid_epochs;
        rows[i] = r;
        judge(&r, verdict);
    }
}

fr_status fr__scaling_open(fr_ctx *ctx, int ways, int room, fr_scaling *out)
{
    memset(out, 0, sizeof *out);
    out->ways = ways;
    out->arena = FR_NEW(fr_arena);
    if (out->arena) out->points = FR_ARENA_ARRAY(out->arena, fr_scaling_point, room);
    if (out->points) return FR_OK;
    fr_scaling_free(out);
    return fr__no_memory(ctx, 0, "step times");
}

void fr_scaling_free(fr_scaling *s)
{
    fr__arena_free(s->arena);
    memset(s, 0, sizeof *s);
}

/* --- from a file ------------------------------------------------------------------------------ */

/* The next field of a line, up to a comma or its end; false: there is none. */
static bool next_field(const char **at, char field[64])
{
    if (!*at) return false;
    size_t n = strcspn(*at, ",");
    const char *begin = *at, *end = *at + n;
    *at = *end == ',' ? end + 1 : NULL;
    while (begin < end && *begin == ' ') begin++;
    while (end > begin && (end[-1] == ' ' || end[-1] == '\r')) end--;
    if (end - begin >= 64) return false;
    memcpy(field, begin, (size_t)(end - begin));
    field[end - begin] = '\0';
    return true;
}

static bool read_seconds(const char **at, double *seconds)
{
    char field[64];
    *seconds = NAN;
    if (!next_field(at, field) || !field[0]) return true;
    return fr__real_scan(field, seconds) && *seconds > 0 && isfinite(*seconds);
}

static fr_status read_line(fr_ctx *ctx, const char *path, int number, const char *line,
                           fr_scaling *s)
{
    fr_scaling_point p;
    char field[64];
    int64_t devices = 0;
    int before = s->n_points > 0 ? s->points[s->n_points - 1].devices : 0;
    if (!next_field(&line, field) || !fr__int_scan(field, &devices) || devices <= before ||
        devices > 1 << 24)
        return fr_fail(ctx, FR_INVALID, "%s:%d: expected a number of devices above %d", path,
                       number, before);
    if (before == 0 && devices != 1)
        return fr_fail(ctx, FR_INVALID, "%s:%d: the first line must be that of one device", path,
                       number);
    p.devices = (int)devices;
    if (!read_seconds(&line, &p.dp_s) || !read_seconds(&line, &p.hybrid_s) || line)
        return fr_fail(ctx, FR_INVALID,
                       "%s:%d: expected devices, dp_s, hybrid_s; seconds above 0, or empty", path,
                       number);
    if (before == 0 && isnan(p.dp_s))
        return fr_fail(ctx, FR_INVALID, "%s:%d: the seconds of one device are missing", path,
                       number);
    s->points[s->n_points++] = p;
    return FR_OK;
}

static fr_status read_lines(fr_ctx *ctx, const char *path, char *text, fr_scaling *s)
{
    int number = 0;
    fr_status status = FR_OK;
    for (char *line = text; line && *line && status == FR_OK;) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        bool is_head = number++ == 0 && strncmp(line, "devices", 7) == 0;
        if (!is_head && line[strspn(line, " \r\t")]) status = read_line(ctx, path, number, line, s);
        line = end ? end + 1 : NULL;
    }
    if (status == FR_OK && s->n_points == 0)
        status = fr_fail(ctx, FR_INVALID, "%s: no lines of devices,dp_s,hybrid_s", path);
    return status;
}

fr_status fr_scaling_read(fr_ctx *ctx, const char *path, int ways, fr_scaling *out)
{
    unsigned char *data;
    size_t bytes;
    int n_lines = 1;
    memset(out, 0, sizeof *out);
    FR_TRY(fr__file_read(ctx, path, 1 << 24, &data, &bytes));
    for (size_t i = 0; i < bytes; i++) n_lines += data[i] == '\n';
    fr_status status = fr__scaling_open(ctx, ways, n_lines, out);
    if (status == FR_OK) status = read_lines(ctx, path, (char *)data, out);
    fr__free(data);
    if (status != FR_OK) fr_scaling_free(out);
    return status;
}
