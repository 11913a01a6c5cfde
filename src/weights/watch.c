/* watch.c -- how good predictions are: a fixed sample of the weights, predicted and as they stood,
 * is put aside when a forward reads a prediction, and compared when the predicted version comes.
 *
 * Predicted(t) against W(t + s) is the error of the prediction, W(t) against W(t + s) what stale
 * weights would have cost. Guesses that never come true (the end of a run) are dropped. */
#include "weights/store.h"

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
    size_t n = 2 * w->n_samples * (size_t)w->n_guesses;
    float *room = FR_NEW_ARRAY(float, n); /* (guess, 2, n_samples) */
    if (!w->guesses || !room) {
        fr__free(room);
        return fr__no_memory(s->ctx, n * sizeof *room, "samples of predicted weights");
    }
    for (int g = 0; g < w->n_guesses; g++) {
        w->guesses[g].predicted = room + 2 * w->n_samples * (size_t)g;
        w->guesses[g].stale = w->guesses[g].predicted + w->n_samples;
    }
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

void fr__watch_guess(fr_store *s, const fr_block *predicted)
{
    fr_watch *w = &s->watch;
    fr_guess *room = NULL;
    for (int i = 0; i < w->n_guesses; i++) {
        fr_guess *g = &w->guesses[i];
        if (!g->is_open)
            room = g;
        else if (g->version == predicted->version && g->ahead == predicted->ahead)
            return; /* another micro-batch on the same weights */
    }
    /* A block that is read again after later updates has been put aside before. */
    if (!room || predicted->version != fr_store_version(s)) return;
    *room = (fr_guess){.is_open = true,
                       .version = predicted->version,
                       .ahead = predicted->ahead,
                       .predicted = room->predicted,
                       .stale = room->stale};
    const float *newest = s->blocks[s->newest].at;
    for (size_t i = 0; i < w->n_samples; i++) {
        room->predicted[i] = predicted->at[i * w->stride];
        room->stale[i] = newest[i * w->stride];
    }
}

static double squared_distance(const float *a, const float *b, size_t n, size_t stride)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i * stride];
        sum += d * d;
    }
    return sum;
}

void fr__watch_check(fr_store *s)
{
    fr_watch *w = &s->watch;
    const fr_block *newest = &s->blocks[s->newest];
    for (int i = 0; i < w->n_guesses; i++) {
        fr_guess *g = &w->guesses[i];
        if (!g->is_open || g->version + g->ahead > newest->version) continue;
        g->is_open = false;
        w->error.predicted += squared_distance(g->predicted, newest->at, w->n_samples, w->stride);
        w->error.stale += squared_distance(g->stale, newest->at, w->n_samples, w->stride);
        w->error.n_values += (int64_t)w->n_samples;
        w->error.ahead += ((double)g->ahead - w->error.ahead) / (double)++w->n_checked;
    }
}
