#include "probe/samples.h"

#include <stdlib.h>
#include <string.h>

#define STOPPED 3.0 /* times the median */

bool fr__samples_init(fr_samples *s, fr_arena *a, int n_values)
{
    *s = (fr_samples){.n_values = n_values, .room = FR_SAMPLES, .n_each = 1};
    size_t row_bytes = (size_t)n_values * sizeof *s->rows;
    while (s->room > FR_LEAST_SAMPLES && (size_t)s->room * row_bytes > FR_SAMPLES_BYTES)
        s->room /= 2;
    s->rows = fr__arena_alloc(a, fr__array_bytes((size_t)s->room, row_bytes));
    s->order = FR_ARENA_ARRAY(a, int, s->room);
    return s->rows && s->order;
}

static double *row_of(const fr_samples *s, int i)
{
    return s->rows + (size_t)i * (size_t)s->n_values;
}

static void add(const fr_samples *s, double *to, const double *values)
{
    for (int i = 0; i < s->n_values; i++) to[i] += values[i];
}

static void merge_pairs(fr_samples *s)
{
    size_t bytes = (size_t)s->n_values * sizeof *s->rows;
    for (int i = 0; i < s->n / 2; i++) {
        memmove(row_of(s, i), row_of(s, 2 * i), bytes);
        add(s, row_of(s, i), row_of(s, 2 * i + 1));
    }
    s->n /= 2;
    s->n_each *= 2;
}

void fr__samples_add(fr_samples *s, const double *values)
{
    if (s->n == s->room) merge_pairs(s);
    double *row = row_of(s, s->n);
    if (s->n_added == 0) memset(row, 0, (size_t)s->n_values * sizeof *row);
    add(s, row, values);
    if (++s->n_added < s->n_each) return;
    s->n++;
    s->n_added = 0;
}

static int compare(const void *a, const void *b, void *samples)
{
    double x = *row_of(samples, *(const int *)a), y = *row_of(samples, *(const int *)b);
    return (x > y) - (x < y);
}

/* The number of entries of s->order that count. */
static int sort(fr_samples *s)
{
    int n = s->n;
    for (int i = 0; i < n; i++) s->order[i] = i;
    qsort_r(s->order, (size_t)n, sizeof *s->order, compare, s);
    double most = STOPPED * *row_of(s, s->order[(n - 1) / 2]);
    while (*row_of(s, s->order[n - 1]) > most) n--;
    return n;
}

void fr__samples_mean(fr_samples *s, double *mean)
{
    int n = sort(s);
    memset(mean, 0, (size_t)s->n_values * sizeof *mean);
    for (int i = 0; i < n; i++) add(s, mean, row_of(s, s->order[i]));
    for (int i = 0; i < s->n_values; i++) mean[i] /= (double)n * s->n_each;
}
