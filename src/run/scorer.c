/* scorer.c -- counts by class, and sums by output. */
#include "run/scorer.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

enum { N_BEST = 5, PIECE = 8 };

static const fr_node *loss_of(const fr__setup *s) { return fr_graph_node(s->graph, s->loss); }

static bool is_of_classes(const fr__setup *s) { return loss_of(s)->op == FR_OP_CROSS_ENTROPY; }

bool fr__scorer_fits(const fr__setup *s)
{
    const fr_operator op = loss_of(s)->op;
    if (op == FR_OP_CROSS_ENTROPY) return fr_graph_node(s->graph, s->target)->shape.n_dims == 0;
    return op == FR_OP_MSE || op == FR_OP_SMOOTH_L1;
}

fr_status fr__scorer_open(const fr__setup *s, int64_t batch, fr__scorer *k)
{
    const fr_node *out = fr_graph_node(s->graph, s->logits);
    *k = (fr__scorer){.s = s, .batch = batch, .n_piece = PIECE};
    k->n_out = (size_t)fr_shape_count(&out->shape);
    k->target_size = (size_t)fr_shape_count(&fr_graph_node(s->graph, s->target)->shape) * 4;
    const size_t n = (size_t)(batch * PIECE);
    k->outputs = fr__alloc(fr__array_bytes(n, k->n_out * sizeof(float)));
    k->targets = fr__alloc(fr__array_bytes(n, k->target_size));
    k->hits = FR_NEW_ARRAY(int64_t, 4 * k->n_out);
    k->shift = FR_NEW_ARRAY(double, 4 * k->n_out);
    if (!k->outputs || !k->targets || !k->hits || !k->shift)
        return fr__no_memory(s->ctx, n * (k->n_out * sizeof(float) + k->target_size), "outputs");
    k->chosen = k->hits + k->n_out, k->real = k->chosen + k->n_out, k->count = k->real + k->n_out;
    k->sum = k->shift + k->n_out, k->squares = k->sum + k->n_out;
    k->residue = k->squares + k->n_out;
    return FR_OK;
}

void fr__scorer_close(fr__scorer *k)
{
    fr__free(k->outputs);
    fr__free(k->targets);
    fr__free(k->hits);
    fr__free(k->shift);
    *k = (fr__scorer){0};
}

/* Called in order, one call at a time. */
static fr_status next(void *user, fr_feed *out)
{
    fr__scorer *k = user;
    const size_t bytes = (size_t)k->batch * k->target_size;
    FR_TRY(k->source.next(k->source.user, out));
    memcpy(k->targets + (size_t)k->n_kept++ * bytes, out->target, bytes);
    return FR_OK;
}

static void release(void *user)
{
    fr__scorer *k = user;
    k->source.release(k->source.user);
}

fr_source fr__scorer_tap(fr__scorer *k, fr_source source)
{
    k->source = source;
    return (fr_source){.user = k, .next = next, .release = release};
}

/* Equal outputs count in the order of their classes, as for the accuracy. */
static void add_class(fr__scorer *k, const float *x, int32_t target)
{
    size_t best = 0;
    int64_t n_before = 0;
    for (size_t i = 1; i < k->n_out; i++)
        if (x[i] > x[best]) best = i;
    for (size_t i = 0; i < k->n_out; i++)
        n_before += x[i] > x[target] || (x[i] == x[target] && (int32_t)i < target);
    k->n++;
    k->n_top5 += n_before < N_BEST;
    k->hits[target] += (int32_t)best == target;
    k->chosen[best]++, k->real[target]++;
}

static void add_numbers(fr__scorer *k, const float *x, const float *t)
{
    for (size_t i = 0; i < k->n_out; i++) {
        if (isnan(t[i])) continue;
        if (k->count[i]++ == 0) k->shift[i] = (double)t[i];
        const double d = (double)t[i] - k->shift[i], error = (double)x[i] - (double)t[i];
        k->sum[i] += d, k->squares[i] += d * d, k->residue[i] += error * error;
    }
}

void fr__scorer_add(fr__scorer *k)
{
    const fr_attrs *a = &loss_of(k->s)->attrs;
    const bool is_of_class = is_of_classes(k->s);
    for (int64_t i = 0; i < k->n_kept * k->batch; i++) {
        const float *x = k->outputs + (size_t)i * k->n_out;
        const void *target = k->targets + (size_t)i * k->target_size;
        if (!is_of_class) {
            add_numbers(k, x, target);
            continue;
        }
        int32_t class;
        memcpy(&class, target, sizeof class);
        bool is_ignored = a->loss.has_ignore && class == a->loss.ignore_index;
        if (class >= 0 && (size_t) class < k->n_out && !is_ignored) add_class(k, x, class);
    }
    k->n_kept = 0;
}

static double f1_of(const fr__scorer *k)
{
    double sum = 0;
    int64_t n = 0;
    for (size_t i = 0; i < k->n_out; i++) {
        if (k->chosen[i] + k->real[i] == 0) continue;
        sum += 2 * (double)k->hits[i] / (double)(k->chosen[i] + k->real[i]);
        n++;
    }
    return sum / (double)n;
}

static double r2_of(const fr__scorer *k)
{
    double sum = 0;
    int64_t n = 0;
    for (size_t i = 0; i < k->n_out; i++) {
        double spread = k->squares[i] - k->sum[i] * k->sum[i] / (double)k->count[i];
        if (k->count[i] < 2 || !(spread > 0)) continue;
        sum += 1 - k->residue[i] / spread;
        n++;
    }
    return n > 0 ? sum / (double)n : NAN;
}

void fr__scorer_result(const fr__scorer *k, double *top5, double *f1, double *r2)
{
    const bool has_classes = is_of_classes(k->s) && k->n > 0;
    *top5 = has_classes && k->n_out > N_BEST ? (double)k->n_top5 / (double)k->n : NAN;
    *f1 = has_classes ? f1_of(k) : NAN;
    *r2 = is_of_classes(k->s) ? NAN : r2_of(k);
}
