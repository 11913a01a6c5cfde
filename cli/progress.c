/* progress.c -- progress of a training. A terminal is updated ten times a second. A log gets a line
 * every 2 seconds at first, and fewer the longer the run takes, so that the log of a day stays
 * readable. Evaluations and the last mini-batch stay in both. */
#include "progress.h"

#include "cli.h"
#include "term.h"

#include <math.h>
#include <stdio.h>

const char *progress_clock(double seconds, char *text, size_t room)
{
    long long s = seconds > 0 && seconds < 1e9 ? (long long)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(text, room, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, room, "%lld:%02lld", s / 60, s % 60);
    return text;
}

const char *cli_metrics(const char *between, double accuracy, double mae, double perplexity,
                        char *text, size_t room)
{
    size_t n = 0;
    text[0] = '\0';
    if (!isnan(accuracy))
        n += (size_t)snprintf(text, room, "%saccuracy %.2f %%", between, 100 * accuracy);
    if (!isnan(mae) && n < room)
        n += (size_t)snprintf(text + n, room - n, "%smean absolute error %.4g", between, mae);
    if (!isnan(perplexity) && n < room)
        snprintf(text + n, room - n, "%sperplexity %.4g", between, perplexity);
    return text;
}

/* Whether it is time for another line. */
static bool is_due(cli_progress *s)
{
    double now = cli_now_s();
    if (s->began_s == 0) s->began_s = now;
    double wait = term_has_status() ? 0.1 : fmin(30, fmax(2, 0.1 * (now - s->began_s)));
    bool is_first = s->shown_s == 0 && term_has_status();
    if (!is_first && now - fmax(s->shown_s, s->began_s) < wait) return false;
    s->shown_s = now;
    return true;
}

void progress_show(cli_progress *s, const fr_progress *p)
{
    char head[64], tail[256], metrics[96], rate[32], left[32], done[32];
    bool has_eval = !isnan(p->eval_loss), is_last = p->step == p->n_steps;
    s->sample_s =
        s->sample_s > 0 ? 0.95 * s->sample_s + 0.05 / p->samples_per_s : 1 / p->samples_per_s;
    if (s->is_quiet || (!is_due(s) && !has_eval && !is_last)) return;
    snprintf(head, sizeof head, "step %lld/%lld", (long long)p->step, (long long)p->n_steps);
    int n = snprintf(tail, sizeof tail, "loss %.4f  lr %.3g  %s samples/s  %s", p->loss, p->lr,
                     cli_short(1 / s->sample_s, rate, sizeof rate),
                     progress_clock(p->elapsed_s, done, sizeof done));
    if (!is_last)
        n += snprintf(tail + n, sizeof tail - (size_t)n, "  left %s",
                      progress_clock(p->left_s, left, sizeof left));
    if (has_eval)
        snprintf(tail + n, sizeof tail - (size_t)n, "  eval loss %.4f%s", p->eval_loss,
                 cli_metrics("  ", p->eval_accuracy, p->eval_mae, p->eval_perplexity, metrics,
                             sizeof metrics));
    if (is_last) term_end_status();
    if (has_eval || is_last || !term_has_status())
        term_say(TERM_PLAIN, "%s  %s", head, tail);
    else
        term_status(head, (double)p->step / (double)p->n_steps, tail);
}
