/* lstm.c -- long short-term memory (Hochreiter and Schmidhuber, 1997), one layer over all steps.
 *
 *     gates = W_ih x[t] + W_hh h[t-1] + biases      rows of W: i, f, g, o, each H
 *     c[t]  = sigmoid(f) c[t-1] + sigmoid(i) tanh(g)
 *     h[t]  = sigmoid(o) tanh(c[t]),                h[-1] = c[-1] = 0
 *
 * With a projection (Sak et al., 2014) h[t] = W_hr (sigmoid(o) tanh(c[t])), P wide.
 *
 * Saved: the gates after their nonlinearity and the cells. All gradients start from the gradient
 * of the gates before it, found by walking time backwards; each pass does that walk for itself, so
 * that the two may run at different times. */
#include <math.h>

#include "backend/ref/ref.h"

enum { GATE_I, GATE_F, GATE_G, GATE_O };

typedef struct lstm {
    fr__kernel base;
    int64_t n_steps, width, hidden; /* T, D, H */
    int64_t out;                    /* P, or H without a projection */
    bool is_projected;
} lstm;

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Output of the cell before a projection. */
static double emitted(const lstm *l, const float *gates, const float *cell, int64_t u)
{
    return (double)gates[GATE_O * l->hidden + u] * tanh((double)cell[u]);
}

/* One step: gates (4H) and cell (H) written, h (P) too; cell_before, h_before NULL at the start. */
static void step_forward(const lstm *l, const fr__kernel_args *a, const float *x,
                         const float *h_before, const float *cell_before, float *gates, float *cell,
                         float *h)
{
    int64_t n_h = l->hidden;
    for (int64_t r = 0; r < 4 * n_h; r++) {
        double v = dot(fr__floats(a, 0) + r * l->width, x, l->width);
        if (h_before) v += dot(fr__floats(a, 1) + r * l->out, h_before, l->out);
        for (int b = 2; b < 4; b++) v += (double)fr__floats(a, b)[r];
        gates[r] = (float)(r / n_h == GATE_G ? tanh(v) : sigmoid(v));
    }
    const float *i = gates, *f = i + n_h, *g = f + n_h;
    for (int64_t u = 0; u < n_h; u++) {
        double before = cell_before ? (double)cell_before[u] : 0;
        cell[u] = (float)((double)f[u] * before + (double)i[u] * (double)g[u]);
        if (!l->is_projected) h[u] = (float)emitted(l, gates, cell, u);
    }
    for (int64_t p = 0; l->is_projected && p < l->out; p++) {
        double sum = 0;
        for (int64_t u = 0; u < n_h; u++)
            sum += (double)fr__floats(a, 4)[p * n_h + u] * emitted(l, gates, cell, u);
        h[p] = (float)sum;
    }
}

static fr_status lstm_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const lstm *l = (const lstm *)k;
    int64_t rows = k->batch * l->n_steps, n_h = l->hidden;
    /* Evaluation saves nothing, but the recurrence needs working memory. */
    float *gates = k->training ? a->saved : a->scratch; /* (N, T, 4H) */
    float *cells = gates + rows * 4 * n_h;              /* (N, T, H) */
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)a->x[0] + r * l->width;
        float *h = (float *)a->y + r * l->out, *cell = cells + r * n_h;
        bool first = r % l->n_steps == 0;
        step_forward(l, a, x, first ? NULL : h - l->out, first ? NULL : cell - n_h,
                     gates + r * 4 * n_h, cell, h);
    }
    return FR_OK;
}

/* Gradient d (4H) of one step's gates before their nonlinearity. dh: of the cell's output, from
 * above and from the later step. dc: of its cell, from the later step; replaced by that of the
 * earlier cell. */
static void step_backward(const lstm *l, const float *gates, const float *cell,
                          const float *cell_before, const double *dh, double *dc, double *d)
{
    int64_t n_h = l->hidden;
    for (int64_t u = 0; u < n_h; u++) {
        double i = (double)gates[GATE_I * n_h + u], f = (double)gates[GATE_F * n_h + u];
        double g = (double)gates[GATE_G * n_h + u], o = (double)gates[GATE_O * n_h + u];
        double t = tanh((double)cell[u]), before = cell_before ? (double)cell_before[u] : 0;
        dc[u] += dh[u] * o * (1 - t * t);
        d[GATE_I * n_h + u] = dc[u] * g * i * (1 - i);
        d[GATE_F * n_h + u] = dc[u] * before * f * (1 - f);
        d[GATE_G * n_h + u] = dc[u] * i * (1 - g * g);
        d[GATE_O * n_h + u] = dh[u] * t * o * (1 - o);
        dc[u] *= f;
    }
}

/* Gradients of all gates, (N, T, 4H), then of all outputs, (N, T, P), in the scratch. */
static const double *walk_back(const lstm *l, const fr__kernel_args *a)
{
    int64_t rows = l->base.batch * l->n_steps, n_h = l->hidden;
    const float *gates = a->saved, *cells = gates + rows * 4 * n_h, *dy = a->dy;
    double *d = a->scratch, *outs = d + rows * 4 * n_h, *dm = outs + rows * l->out, *dc = dm + n_h;
    for (int64_t r = rows - 1; r >= 0; r--) {
        bool first = r % l->n_steps == 0, last = r % l->n_steps == l->n_steps - 1;
        const double *after = d + (r + 1) * 4 * n_h;
        double *dh = outs + r * l->out;
        for (int64_t p = 0; p < l->out; p++) {
            dh[p] = (double)dy[r * l->out + p];
            for (int64_t g = 0; !last && g < 4 * n_h; g++)
                dh[p] += after[g] * (double)fr__floats(a, 1)[g * l->out + p];
        }
        for (int64_t u = 0; u < n_h; u++) {
            if (last) dc[u] = 0;
            dm[u] = l->is_projected ? 0 : dh[u];
            for (int64_t p = 0; l->is_projected && p < l->out; p++)
                dm[u] += dh[p] * (double)fr__floats(a, 4)[p * n_h + u];
        }
        const float *cell = cells + r * n_h;
        step_backward(l, gates + r * 4 * n_h, cell, first ? NULL : cell - n_h, dm, dc,
                      d + r * 4 * n_h);
    }
    return d;
}

static fr_status lstm_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const lstm *l = (const lstm *)k;
    int64_t rows = k->batch * l->n_steps, n_g = 4 * l->hidden;
    const double *d = walk_back(l, a);
    float *dx = a->dx[0];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < l->width; i++) {
            double sum = 0;
            for (int64_t g = 0; g < n_g; g++)
                sum += d[r * n_g + g] * (double)fr__floats(a, 0)[g * l->width + i];
            fr__ref_put(&dx[r * l->width + i], sum, a->add_dx[0]);
        }
    return FR_OK;
}

/* dw[g][i] = sum over rows r of d[r][g] * x[r][i]; rows at the start of a sample left out if
 * `shifted`, where x is the output one step earlier. */
static void outer_sum(const lstm *l, const double *d, const float *x, int64_t width, bool shifted,
                      float *dw, bool add)
{
    int64_t rows = l->base.batch * l->n_steps, n_g = 4 * l->hidden;
    for (int64_t g = 0; g < n_g; g++)
        for (int64_t i = 0; i < width; i++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++)
                if (!shifted || r % l->n_steps)
                    sum += d[r * n_g + g] * (double)x[(r - shifted) * width + i];
            fr__ref_put(&dw[g * width + i], sum, add);
        }
}

/* Gradient of W_hr: over rows, that of the output (N, T, P) times the cell's output. */
static void projection_sum(const lstm *l, const fr__kernel_args *a, const double *dh)
{
    int64_t rows = l->base.batch * l->n_steps, n_h = l->hidden;
    const float *gates = a->saved, *cells = gates + rows * 4 * n_h;
    for (int64_t p = 0; p < l->out; p++)
        for (int64_t u = 0; u < n_h; u++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++)
                sum += dh[r * l->out + p] * emitted(l, gates + r * 4 * n_h, cells + r * n_h, u);
            fr__ref_put(&a->dw[4][p * n_h + u], sum, a->add_dw);
        }
}

static fr_status lstm_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    const lstm *l = (const lstm *)k;
    int64_t rows = k->batch * l->n_steps, n_g = 4 * l->hidden;
    const double *d = walk_back(l, a);
    outer_sum(l, d, a->x[0], l->width, false, a->dw[0], a->add_dw);
    outer_sum(l, d, a->y, l->out, true, a->dw[1], a->add_dw);
    if (l->is_projected) projection_sum(l, a, d + rows * n_g);
    for (int64_t g = 0; g < n_g; g++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += d[r * n_g + g];
        for (int b = 2; b < 4; b++) fr__ref_put(&a->dw[b][g], sum, a->add_dw);
    }
    return FR_OK;
}

fr_status fr__ref_lstm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = lstm_forward,
                                       .backward_input = lstm_backward_input,
                                       .backward_weight = lstm_backward_weight};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(lstm), &ops, out));
    lstm *l = (lstm *)*out;
    l->n_steps = l->base.node->shape.dim[0];
    l->hidden = l->base.node->attrs.lstm.hidden;
    l->out = l->base.node->shape.dim[1];
    l->is_projected = l->base.node->attrs.lstm.projection > 0;
    l->width = fr__cols(fr__ref_input(*out, 0));
    l->base.needs_x = 1;
    l->base.needs_y = true;
    l->base.dw_reads_w = true;
    size_t rows = (size_t)(l->base.batch * l->n_steps), n_h = (size_t)l->hidden;
    size_t state = rows * 5 * n_h * sizeof(float);
    l->base.saved_bytes = spec->training ? state : 0;
    size_t grads = ((rows * 4 + 2) * n_h + rows * (size_t)l->out) * sizeof(double);
    l->base.scratch_bytes = spec->training ? grads : state;
    return FR_OK;
}
