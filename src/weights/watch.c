/* watch.c -- how good predictions are: a fixed sample of the weights, predicted and as they stood,
 * is put aside when a forward reads a prediction, and compared when the predicted version comes.
 *
 * Predicted(t) against W(t + s) is the error of the prediction, W(t) against W(t + s) what stale
 * weights would have cost. Guesses that never come true (the end of a run) are dropped. */
#include "weights/store.h"

#include "backend/device.h"
#include "base/alloc.h"

/* An update opens at most two kinds of guesses (before and after a mini-batch ends), and a guess
 * is open for as many updates as it looks ahead. */
fr_status fr__watch_init(fr_store *s, int farthest)
{
    fr_watch *w = &s->watch;
    if (s->d.n_samples <= 0 || s->d.n == 0 || farthest == 0) return FR_OK;
    w->n_samples = (size_t)s->d.n_samples < s->d.n ? (size_t)s->d.n_samples : s->d.n;
    w->stride = s->d.n / w->n_samples;
    w->n_guesses = 2 * (farthest + 1);
    w->guesses = FR_NEW_ARRAY(fr_guess, w->n_guesses);
    size_t n = w->n_samples * (size_t)(2 * w->n_guesses + 1);
    float *room = FR_NEW_ARRAY(float, n); /* (guess, 2, n_samples), then (n_samples) */
    if (!w->guesses || !room) {
        fr__free(room);
        return fr__no_memory(s->ctx, n * sizeof *room, "samples of predicted weights");
    }
    for (int g = 0; g < w->n_guesses; g++) {
        w->guesses[g].predicted = room + 2 * w->n_samples * (size_t)g;
        w->guesses[g].stale = w->guesses[g].predicted + w->n_samples;
    }
    w->truth = room + 2 * w->n_samples * (size_t)w->n_guesses;
    return FR_OK;
}

void fr__watch_fini(fr_watch *w)
{
    if (w->guesses) fr__free(w->guesses[0].predicted);
    fr__free(w->guesses);
}

void fr__watch_drop(fr_watch *w, int64_t version)
{
    for (int g = 0; g < w->n_guesses; g++)
        if (w->guesses[g].version >= version) w->guesses[g].is_open = false;
}

static fr_status sample(const fr_store *s, const fr_block *block, float *to)
{
    return fr__device_pick(s->d.device, to, block->at, s->watch.n_samples, s->watch.stride);
}

fr_status fr__watch_guess(fr_store *s, const fr_block *predicted)
{
    fr_watch *w = &s->watch;
    fr_guess *room = NULL;
    for (int i = 0; i < w->n_guesses; i++) {
        fr_guess *g = &w->guesses[i];
        if (!g->is_open)
            room = g;
        else if (g->version == predicted->version && g->ahead == predicted->ahead)
            return FR_OK; /* another micro-batch on the same weights */
    }
    /* A block that is read again after later updates has been put aside before. */
    if (!room || predicted->version != fr_store_version(s)) return FR_OK;
    *room = (fr_guess){.is_open = true,
                       .version = predicted->version,
                       .ahead = predicted->ahead,
                       .predicted = room->predicted,
                       .stale = room->stale};
    FR_TRY(sample(s, predicted, room->predicted));
    return sample(s, &s->blocks[s->newest], room->stale);
}

static double squared_distance(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sum;
}

fr_status fr__watch_check(fr_store *s)
{
    fr_watch *w = &s->watch;
    const fr_block *newest = &s->blocks[s->newest];
    bool has_truth = false;
    for (int i = 0; i < w->n_guesses; i++) {
        fr_guess *g = &w->guesses[i];
        if (!g->is_open || g->version + g->ahead > newest->version) continue;
        if (!has_truth) FR_TRY(sample(s, newest, w->truth));
        has_truth = true;
        g->is_open = false;
        w->error.predicted += squared_distance(g->predicted, w->truth, w->n_samples);
        w->error.stale += squared_distance(g->stale, w->truth, w->n_samples);
        w->error.n_values += (int64_t)w->n_samples;
        w->error.ahead += ((double)g->ahead - w->error.ahead) / (double)++w->n_checked;
    }
    return FR_OK;
}
