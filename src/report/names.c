/* names.c -- short names of runs: the part of their folders by which they differ.
 *
 *     runs/demo/dp/seed-1         dp/seed-1
 *     runs/demo/dp/seed-2         dp/seed-2
 *     runs/demo/1f1b/seed-1       1f1b/seed-1
 *
 * Common trailing parts are omitted (with one seed: dp, 1f1b). Each name consists of the smallest
 * number of parts before them that makes all names unique; the number is the same for all runs. */
#include "report/runs.h"

#include "base/utf8.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path cut up at its slashes. */
typedef struct parts {
    char **at; /* [n] */
    int n;
} parts;

static bool is_dots(const char *part) { return strcmp(part, ".") == 0 || strcmp(part, "..") == 0; }

/* False: no memory. Paths with `.` or `..` are resolved first. */
static bool cut(fr_arena *a, const char *folder, parts *p)
{
    char real[PATH_MAX], *rest;
    for (int round = 0; round < 2; round++) {
        char *text = fr__arena_strdup(a, round ? real : folder);
        bool has_dots = false;
        p->n = 0;
        p->at = FR_ARENA_ARRAY(a, char *, strlen(text ? text : "") / 2 + 2);
        if (!text || !p->at) return false;
        for (char *t = strtok_r(text, "/", &rest); t; t = strtok_r(NULL, "/", &rest)) {
            has_dots = has_dots || is_dots(t);
            p->at[p->n++] = t;
        }
        if (!has_dots || round || !realpath(folder, real)) break;
    }
    if (p->n == 0) p->at[p->n++] = fr__arena_strdup(a, "/");
    return p->at[0] != NULL;
}

/* Number of trailing parts common to all paths; each path keeps at least one part. */
static int common_end(const parts *p, size_t n)
{
    if (n < 2) return 0;
    for (int t = 0;; t++)
        for (size_t i = 0; i < n; i++)
            if (p[i].n <= t + 1 || strcmp(p[i].at[p[i].n - 1 - t], p[0].at[p[0].n - 1 - t]) != 0)
                return t;
}

/* The `depth` parts before the last `end`, as UTF-8; NULL: no memory. */
static char *join(fr_arena *a, const parts *p, int depth, int end)
{
    int last = p->n - end, first = last > depth ? last - depth : 0;
    size_t room = 1, width;
    for (int i = first; i < last; i++) room += 3 * strlen(p->at[i]) + 1;
    char *name = fr__arena_alloc(a, room), *to = name;
    for (int i = first; i < last && name; i++) {
        if (i > first) *to++ = '/';
        for (const char *t = p->at[i]; *t; t += width) {
            bool is_good = fr__utf8_next(t, &width) >= 0;
            memcpy(to, is_good ? t : "\xEF\xBF\xBD", is_good ? width : 3);
            to += is_good ? width : 3;
        }
    }
    return name;
}

static int by_name(const void *a, const void *b)
{
    const fr__shown *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);
    return order ? order : (*x > *y) - (*x < *y);
}

/* Are all names different? `sorted` has room for pointers to all runs. */
static bool are_apart(const fr__runs *r, const fr__shown **sorted)
{
    for (size_t i = 0; i < r->list.n; i++) sorted[i] = &r->list.at[i];
    qsort(sorted, r->list.n, sizeof *sorted, by_name);
    for (size_t i = 1; i < r->list.n; i++)
        if (strcmp(sorted[i]->name, sorted[i - 1]->name) == 0) return false;
    return true;
}

/* Names can be equal if a folder is given twice, or if they differ only in bytes that are not
 * UTF-8. Append a number to the later one. */
static bool number_equals(fr__runs *r)
{
    for (size_t i = 1; i < r->list.n; i++) {
        const char *base = r->list.at[i].name;
        int n = 1;
        for (size_t k = 0; k < i; k++) {
            if (strcmp(r->list.at[k].name, r->list.at[i].name) != 0) continue;
            r->list.at[i].name = fr__arena_printf(&r->arena, "%s (%d)", base, ++n);
            if (!r->list.at[i].name) return false;
            k = (size_t)-1; /* start again: the new name may be taken too */
        }
    }
    return true;
}

static bool name_all(fr__runs *r, parts *p, const fr__shown **sorted)
{
    int most = 1;
    size_t n = r->list.n;
    for (size_t i = 0; i < n; i++) {
        if (!cut(&r->arena, r->list.at[i].folder, &p[i])) return false;
        if (p[i].n > most) most = p[i].n;
    }
    int end = common_end(p, n);
    for (int depth = 1; depth <= most; depth++) {
        for (size_t i = 0; i < n; i++) {
            r->list.at[i].name = join(&r->arena, &p[i], depth, end);
            if (!r->list.at[i].name) return false;
        }
        if (are_apart(r, sorted)) return true;
    }
    return number_equals(r);
}

fr_status fr__name_runs(fr_ctx *ctx, fr__runs *r)
{
    size_t n = r->list.n;
    parts *p = FR_NEW_ARRAY(parts, n);
    const fr__shown **sorted = FR_NEW_ARRAY(const fr__shown *, n);
    bool ok = p && sorted && name_all(r, p, sorted);
    fr__free(p);
    fr__free(sorted);
    return ok ? FR_OK : fr__no_memory(ctx, n * sizeof *p, "names of runs");
}
