/* prediction_error.c -- measures the error of predicted weights.
 *
 * When a forward reads a prediction, a fixed sample of the predicted and of the newest weights is
 * saved. It is compared when the predicted version exists. Predicted(t) minus W(t + s) is the error
 * of the prediction; W(t) minus W(t + s) is the error of stale weights. Predictions still open at
 * the end of a run are dropped. */
#include "weights/store.h"

#include "backend/device.h"
#include "base/alloc.h"

/* An update opens at most two kinds of predictions (before and after a mini-batch ends), and each
 * stays open for `ahead` updates. */
fr_status fr__error_samples_init(fr_store *s, int farthest)
{
    fr__prediction_samples *w = &s->samples;
    if (s->d.n_samples <= 0 || s->d.n == 0 || farthest == 0) return FR_OK;
    w->n_samples = (size_t)s->d.n_samples < s->d.n ? (size_t)s->d.n_samples : s->d.n;
    w->stride = s->d.n / w->n_samples;
    w->n_predictions = 2 * (farthest + 1);
    w->predictions = FR_NEW_ARRAY(fr__sampled_prediction, w->n_predictions);
    size_t n = w->n_samples * (size_t)(2 * w->n_predictions + 1);
    float *room = FR_NEW_ARRAY(float, n); /* (prediction, 2, n_samples), then (n_samples) */
    if (!w->predictions || !room) {
        fr__free(room);
        return fr__no_memory(s->ctx, n * sizeof *room, "samples of predicted weights");
    }
    for (int g = 0; g < w->n_predictions; g++) {
        w->predictions[g].predicted = room + 2 * w->n_samples * (size_t)g;
        w->predictions[g].stale = w->predictions[g].predicted + w->n_samples;
    }
    w->truth = room + 2 * w->n_samples * (size_t)w->n_predictions;
    return FR_OK;
}

void fr__error_samples_fini(fr__prediction_samples *w)
{
    if (w->predictions) fr__free(w->predictions[0].predicted);
    fr__free(w->predictions);
}

void fr__error_samples_drop(fr__prediction_samples *w, int64_t version)
{
    for (int g = 0; g < w->n_predictions; g++)
        if (w->predictions[g].version >= version) w->predictions[g].is_open = false;
}

static fr_status sample(const fr_store *s, fr_dtype type, const void *from, float *to)
{
    return fr__device_pick(s->d.device, to, type, from, s->samples.n_samples, s->samples.stride);
}

fr_status fr__error_samples_record(fr_store *s, const fr__weight_block *predicted)
{
    fr__prediction_samples *w = &s->samples;
    fr__sampled_prediction *room = NULL;
    for (int i = 0; i < w->n_predictions; i++) {
        fr__sampled_prediction *g = &w->predictions[i];
        if (!g->is_open)
            room = g;
        else if (g->version == predicted->version && g->ahead == predicted->ahead)
            return FR_OK; /* another micro-batch on the same weights */
    }
    /* A block read again after later updates was sampled at its first read. */
    if (!room || predicted->version != s->version) return FR_OK;
    *room = (fr__sampled_prediction){.is_open = true,
                                     .version = predicted->version,
                                     .ahead = predicted->ahead,
                                     .predicted = room->predicted,
                                     .stale = room->stale};
    FR_TRY(sample(s, s->d.type, predicted->at, room->predicted));
    return sample(s, FR_F32, fr_store_newest(s), room->stale);
}

static bool counts(const fr_store *s, size_t sample)
{
    size_t at = sample * s->samples.stride;
    for (int i = 0; i < s->d.n_copies; i++)
        if (at >= s->d.copies[i].at && at - s->d.copies[i].at < s->d.copies[i].n) return false;
    return true;
}

static double squared_distance(const fr_store *s, const float *a, const float *b)
{
    double sum = 0;
    for (size_t i = 0; i < s->samples.n_samples; i++) {
        double d = (double)a[i] - (double)b[i];
        if (counts(s, i)) sum += d * d;
    }
    return sum;
}

static int64_t n_values(const fr_store *s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->samples.n_samples; i++) n += counts(s, i);
    return n;
}

fr_status fr__error_samples_compare(fr_store *s)
{
    fr__prediction_samples *w = &s->samples;
    bool has_truth = false;
    for (int i = 0; i < w->n_predictions; i++) {
        fr__sampled_prediction *g = &w->predictions[i];
        if (!g->is_open || g->version + g->ahead > s->version) continue;
        if (!has_truth) FR_TRY(sample(s, FR_F32, fr_store_newest(s), w->truth));
        has_truth = true;
        g->is_open = false;
        w->error.predicted += squared_distance(s, g->predicted, w->truth);
        w->error.stale += squared_distance(s, g->stale, w->truth);
        w->error.n_values += n_values(s);
        w->error.ahead += ((double)g->ahead - w->error.ahead) / (double)++w->n_checked;
    }
    return FR_OK;
}
