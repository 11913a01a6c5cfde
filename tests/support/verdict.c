/* verdict.c -- results of the harness against expected ones. */
#include <math.h>
#include <stdio.h>

#include "support/harness.h"

/* Numbers of bf16, rounded from floats that are within `limit` of each other: mostly the same,
 * rarely neighbours. One in eight is rare: limits are far below the distance of neighbours. */
static bool rounded_alike(verdict *v, const char *what, const float *got, const float *want,
                          size_t n, double limit)
{
    size_t n_moved = 0;
    for (size_t i = 0; i < n; i++) {
        const double a = (double)got[i], b = (double)want[i], apart = fabs(a - b);
        if (apart <= limit) continue;
        n_moved++;
        if (apart <= limit + scalbn(1, ilogb(fmax(fabs(a), fabs(b))) - 7)) continue;
        snprintf(v->text, sizeof v->text, "%s[%zu of %zu]: got %.9g, rounded from %.9g or so", what,
                 i, n, a, b);
        return false;
    }
    if (n_moved <= 2 + n / 8) return true;
    snprintf(v->text, sizeof v->text, "%s: %zu of %zu numbers are rounded otherwise", what, n_moved,
             n);
    return false;
}

bool harness_near(verdict *v, const char *what, const float *got, const float *want, size_t n,
                  double tolerance)
{
    double largest = 0, worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        double size = fabs((double)want[i]), error = fabs((double)got[i] - (double)want[i]);
        if (size > largest) largest = size;
        if (!(error <= worst)) { /* NaN is worst of all */
            worst = error, at = i;
            if (isnan(error)) break;
        }
    }
    if (worst <= tolerance * largest) return true;
    snprintf(v->text, sizeof v->text, "%s[%zu of %zu]: got %.9g, expected %.9g (largest %.3g)",
             what, at, n, (double)got[at], (double)want[at], largest);
    return false;
}

bool harness_near_as(verdict *v, const char *what, fr_dtype type, const float *got,
                     const float *want, size_t n, double tolerance)
{
    double largest = 0;
    if (type != FR_BF16) return harness_near(v, what, got, want, n, tolerance);
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)want[i]));
    return rounded_alike(v, what, got, want, n, tolerance * largest);
}

static bool compare(verdict *v, const harness *a, const harness *b, double tolerance, bool by_type)
{
    char what[96];
    for (int i = 0; i < a->n_out; i++) {
        const fr_dtype type = by_type ? fr_program_output(a->program, i)->dtype : FR_F32;
        snprintf(what, sizeof what, "y%d", i);
        if (!harness_near_as(v, what, type, a->y[i], b->y[i], a->n_y[i], tolerance)) return false;
    }
    for (int i = 0; i < a->n_params; i++) {
        const char *name =
            fr_graph_param(a->graph, fr_program_placement(a->program, i)->param)->name;
        snprintf(what, sizeof what, "%s after", name);
        if (a->after[i] && !harness_near(v, what, a->after[i], b->after[i], a->n_w[i], tolerance))
            return false;
        snprintf(what, sizeof what, "gradient of %s", name);
        if (a->dw[i] && !a->options.eval &&
            !harness_near(v, what, a->dw[i], b->dw[i], a->n_w[i], tolerance))
            return false;
    }
    for (int i = 0; i < a->n_in && !a->options.eval; i++) {
        const fr_dtype type = by_type ? fr_program_input(a->program, i)->dtype : FR_F32;
        snprintf(what, sizeof what, "dx%d", i);
        if (a->dx[i] && !harness_near_as(v, what, type, a->dx[i], b->dx[i], a->n_x[i], tolerance))
            return false;
    }
    return true;
}

bool harness_same(verdict *v, const harness *a, const harness *b, double tolerance)
{
    return compare(v, a, b, tolerance, false);
}

bool harness_same_as(verdict *v, const harness *a, const harness *b, double tolerance)
{
    return compare(v, a, b, tolerance, true);
}
