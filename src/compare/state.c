/* state.c -- finished runs and the next run, from the folders of the runs alone.
 *
 *     OUT/compare.json
 *         CASE/config.yaml            the full config of the case
 *              seed-K/                a run
 *              seed-K.log             the output of its process
 *
 * So a comparison that was killed at any moment can continue: no state is in a file that could be
 * half written. */
#include "compare/compare.h"

#include "checkpoint/folder.h"
#include "io/file.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *fr__compare_path(const fr_compare *c, fr_arena *a, const char *folder, const char *file)
{
    return fr__arena_printf(a, "%s/%s%s%s", c->out, folder, file ? "/" : "", file ? file : "");
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

fr_status fr__compare_remove(fr_compare *c, const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return FR_OK;
    return fr__io_fail(c->ctx, "remove", path);
}

/* --- one run ---------------------------------------------------------------------------------- */

static enum fr__run_state state_of(const json_t *summary)
{
    const char *status = json_string_value(json_object_get(summary, "status"));
    if (status && strcmp(status, "done") == 0) return FR_RUN_DONE;
    if (status && strcmp(status, "diverged") == 0) return FR_RUN_DIVERGED;
    return FR_RUN_BEGUN;
}

fr_status fr__compare_look(fr_compare *c, const struct fr__case *k, struct fr__case_run *r)
{
    const char *file = k->kind == FR_KIND_SIMULATED ? FR_SIMULATED : "summary.json";
    const char *path = fr__compare_path(c, &c->arena, r->folder, file);
    const char *begun = fr__compare_path(c, &c->arena, r->folder, "metrics.jsonl");
    unsigned char *data;
    size_t bytes;
    json_error_t error;
    if (!path || !begun) return fr__compare_no_memory(c);
    r->is_there = fr__file_exists(begun);
    r->state = r->is_there ? FR_RUN_BEGUN : FR_RUN_ABSENT;
    if (!fr__file_exists(path)) return FR_OK;
    r->is_there = true;
    FR_TRY(fr__file_read_regular(c->ctx, path, (size_t)1 << 28, &data, &bytes));
    json_t *summary = json_loadb((const char *)data, bytes, 0, &error);
    fr__free(data);
    if (!summary)
        return fr_fail(c->ctx, FR_INVALID,
                       "%s:%d:%d: %s; remove the folder of the run to repeat it", path, error.line,
                       error.column, error.text);
    r->state = state_of(summary);
    fr__columns_read(summary, r->value);
    const json_t *wall = json_object_get(summary, "wall_s");
    r->wall_s = json_is_number(wall) ? json_number_value(wall) : NAN;
    json_decref(summary);
    return FR_OK;
}

static bool is_over(const struct fr__case_run *r)
{
    return r->state == FR_RUN_DONE || r->state == FR_RUN_DIVERGED || r->state == FR_RUN_FAILED;
}

/* --- all runs --------------------------------------------------------------------------------- */

int fr_compare_n_runs(const fr_compare *c, int *n_over)
{
    int n = 0, over = 0;
    for (int i = 0; i < c->n_cases; i++)
        for (int s = 0; s < c->cases[i].n_runs; s++) n++, over += is_over(&c->cases[i].runs[s]);
    if (n_over) *n_over = over;
    return n;
}

int fr_compare_n_failed(const fr_compare *c)
{
    int n = 0;
    for (int i = 0; i < c->n_cases; i++)
        for (int s = 0; s < c->cases[i].n_runs; s++)
            n += c->cases[i].runs[s].state == FR_RUN_FAILED;
    return n;
}

/* The next run: seed by seed; the order of cases rotates by one per seed. */
static bool find_next(fr_compare *c)
{
    for (int s = 0; s < c->n_seeds; s++) {
        for (int i = 0; i < c->n_cases; i++) {
            struct fr__case *k = &c->cases[(i + s) % c->n_cases];
            if (s >= k->n_runs || is_over(&k->runs[s])) continue;
            c->at = k, c->at_run = &k->runs[s];
            return true;
        }
    }
    c->at = NULL, c->at_run = NULL;
    return false;
}

static double mean_wall(const struct fr__case *k, int *n)
{
    double sum = 0;
    *n = 0;
    for (int s = 0; s < k->n_runs; s++)
        if (k->runs[s].state == FR_RUN_DONE && !isnan(k->runs[s].wall_s))
            sum += k->runs[s].wall_s, ++*n;
    return sum;
}

/* Estimated time of the remaining runs: from earlier runs of the same case, else from the mean of
 * all. */
static double later_s(const fr_compare *c)
{
    double sum = 0, all = 0;
    int n_all = 0, n;
    for (int i = 0; i < c->n_cases; i++) {
        if (c->cases[i].kind == FR_KIND_SIMULATED) continue;
        all += mean_wall(&c->cases[i], &n);
        n_all += n;
    }
    if (!n_all) return NAN;
    for (int i = 0; i < c->n_cases; i++) {
        const struct fr__case *k = &c->cases[i];
        double own = mean_wall(k, &n);
        if (k->kind == FR_KIND_SIMULATED) continue;
        for (int s = 0; s < k->n_runs; s++)
            if (!is_over(&k->runs[s]) && &k->runs[s] != c->at_run) sum += n ? own / n : all / n_all;
    }
    return sum;
}

/* --- the job ---------------------------------------------------------------------------------- */

static fr_status make_command(fr_compare *c, fr_compare_job *job)
{
    enum { MOST = 16 };
    const struct fr__case *k = c->at;
    const char **words = FR_ARENA_ARRAY(&c->job, const char *, MOST);
    const char *seed =
        fr__arena_printf(&c->job, "train.seed=%llu", (unsigned long long)c->at_run->seed);
    const char *profile = NULL;
    int n = 0;
    if (k->profile) profile = fr__arena_printf(&c->job, "parallel.profile=%s", k->profile);
    if (!words || !seed || (k->profile && !profile)) return fr__compare_no_memory(c);
    words[n++] = k->has_processes ? "launch" : "train";
    words[n++] = "--set", words[n++] = seed;
    if (profile) words[n++] = "--set", words[n++] = profile;
    words[n++] = "--out", words[n++] = job->folder;
    words[n++] = "--resume"; /* even without a checkpoint: the run may have been killed early */
    words[n++] = "--";
    words[n++] = fr__compare_path(c, &c->job, k->folder, "config.yaml");
    if (!words[n - 1]) return fr__compare_no_memory(c);
    job->command = words;
    return FR_OK;
}

static fr_status make_profile_job(fr_compare *c, fr_compare_job *job)
{
    const struct fr__case *k = c->at;
    const char **words = FR_ARENA_ARRAY(&c->job, const char *, 10);
    int n = 0;
    job->is_profile = true, job->is_resumed = job->is_simulated = false;
    job->name = fr__arena_printf(&c->job, "%s, measuring the cost of its nodes",
                                 k->group[0] ? k->group : k->name);
    job->log = fr__arena_printf(&c->job, "%s.log", k->profile);
    if (!words || !job->name || !job->log) return fr__compare_no_memory(c);
    words[n++] = "profile";
    words[n++] = "--out", words[n++] = k->profile;
    words[n++] = "--";
    words[n++] = fr__compare_path(c, &c->job, k->folder, "config.yaml");
    job->command = words;
    return words[n - 1] ? FR_OK : fr__compare_no_memory(c);
}

fr_status fr_compare_next(fr_compare *c, fr_compare_job *job)
{
    memset(job, 0, sizeof *job);
    fr__arena_fini(&c->job);
    if (!find_next(c)) return FR_OK;
    const struct fr__case *k = c->at;
    job->n_runs = fr_compare_n_runs(c, &job->number);
    job->number++;
    job->is_simulated = k->kind == FR_KIND_SIMULATED;
    job->is_resumed = c->at_run->state == FR_RUN_BEGUN;
    job->n_steps = k->n_steps;
    job->later_s = later_s(c);
    const char *blank = k->group[0] ? " " : "";
    job->name = job->is_simulated
                    ? fr__arena_printf(&c->job, "%s%s%s, simulated", k->group, blank, k->name)
                    : fr__arena_printf(&c->job, "%s%s%s, seed %llu", k->group, blank, k->name,
                                       (unsigned long long)c->at_run->seed);
    job->folder = fr__compare_path(c, &c->job, c->at_run->folder, NULL);
    job->log = fr__arena_printf(&c->job, "%s/%s.log", c->out, c->at_run->folder);
    if (!job->name || !job->folder || !job->log) return fr__compare_no_memory(c);
    c->at_profile = k->profile && !fr__file_exists(k->profile);
    if (c->at_profile) return make_profile_job(c, job);
    return job->is_simulated ? FR_OK : make_command(c, job);
}

/* Figures of the visible columns. */
static void tell_values(const fr_compare *c, const struct fr__case_run *r, char *text, size_t room)
{
    char number[40];
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < c->n_columns && n + 1 < room; i++) {
        const fr_compare_column *column = fr_compare_column_at(c->columns[i]);
        double v = r->value[c->columns[i]];
        if (isnan(v)) continue;
        fr__column_format(column, v, v, number, sizeof number);
        n += (size_t)snprintf(text + n, room - n, "%s%s %s%s%s", n ? ", " : "", column->label,
                              number, column->unit[0] ? " " : "", column->unit);
    }
}

static fr_status drop_checkpoints(fr_compare *c, const struct fr__case_run *r)
{
    const char *path = fr__compare_path(c, &c->job, r->folder, "checkpoint");
    return path ? fr__compare_remove(c, path) : fr__compare_no_memory(c);
}

/* Without the profile the run cannot start, so it has failed too. */
static fr_status profile_over(fr_compare *c, int exit_code, bool is_asked,
                              fr_compare_outcome *outcome)
{
    bool is_there = exit_code == 0 && fr__file_exists(c->at->profile);
    outcome->status = is_there ? "done" : is_asked ? "interrupted" : "failed";
    if (!is_there && !is_asked) c->at_run->state = FR_RUN_FAILED;
    return fr_compare_write(c);
}

fr_status fr_compare_over(fr_compare *c, int exit_code, fr_compare_outcome *outcome)
{
    struct fr__case_run *r = c->at_run;
    bool is_asked = exit_code == fr_status_exit_code(FR_INTERRUPTED);
    memset(outcome, 0, sizeof *outcome);
    if (!r) return fr_fail(c->ctx, FR_INVALID, "no run has been started");
    if (c->at_profile) return profile_over(c, exit_code, is_asked, outcome);
    FR_TRY(fr__compare_look(c, c->at, r));
    if (exit_code != 0 && r->state == FR_RUN_DONE) r->state = FR_RUN_FAILED;
    if (!is_over(r) && !is_asked) r->state = FR_RUN_FAILED;
    outcome->status = r->state == FR_RUN_DONE       ? "done"
                      : r->state == FR_RUN_DIVERGED ? "diverged"
                      : r->state == FR_RUN_FAILED   ? "failed"
                                                    : "interrupted";
    if (r->state == FR_RUN_DONE) tell_values(c, r, outcome->text, sizeof outcome->text);
    if (r->state == FR_RUN_DONE && !c->keeps_checkpoints) FR_TRY(drop_checkpoints(c, r));
    return fr_compare_write(c);
}

int fr_compare_folders(fr_compare *c, const char *const **folders)
{
    int n = 0;
    const char **list = FR_ARENA_ARRAY(&c->arena, const char *, fr_compare_n_runs(c, NULL) + 1);
    *folders = list;
    for (int i = 0; list && i < c->n_cases; i++) {
        const struct fr__case *k = &c->cases[i];
        for (int s = 0; s < k->n_runs && k->kind != FR_KIND_SIMULATED; s++) {
            if (!k->runs[s].is_there) continue;
            const char *path = fr__compare_path(c, &c->arena, k->runs[s].folder, NULL);
            if (path) list[n++] = path;
        }
    }
    return n;
}
