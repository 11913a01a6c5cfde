/* svg.c -- a schedule as a drawing: one row per worker, time to the right, to scale.
 *
 * Forwards are blue and backwards orange, in two tints that alternate by mini-batch (or by the
 * stages of a worker). The tints also differ in lightness, for readers with colour blindness, and
 * blocks carry letters. Text follows the reader's light or dark scheme; blocks are pale in both. A
 * block may carry a note, such as the weights it reads. A tooltip shows all details of a block. */
#include "base/text.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 920, /* target width of the blocks, in pixels */
    LEAST = 560, /* needed by the line below */
    MOST_UNITS = 2000,
    LEFT = 68,  /* before the first block */
    TOP = 68,   /* above the first row */
    GAP = 6,    /* between rows */
    FOOT = 66,  /* below the last one */
    LETTER = 6, /* approximate width of a letter */
};

typedef struct drawing {
    const fr_schedule *s;
    const fr_clock *c;
    const fr_notes *notes;
    fr__text out;
    double unit;  /* time of the shortest computation */
    double scale; /* pixels per unit */
    double end;   /* end time of the drawing */
    int height;   /* of a row */
    bool is_used[FR_DO_W + 1], has_update, has_note;
    bool is_short; /* labels do not name the stage: small letters on the second of two */
} drawing;

static bool is_computation(int action) { return action <= FR_DO_W; }

static double width_of(const drawing *d, double time) { return time / d->unit * d->scale; }
static double x_of(const drawing *d, double time) { return (double)LEFT + width_of(d, time); }

static int y_of(const drawing *d, int worker) { return TOP + worker * (d->height + GAP); }

static const char *plural(int n, const char *more) { return n == 1 ? "" : more; }

static void put_escaped(drawing *d, const char *text)
{
    for (; *text; text++) {
        if (*text == '&')
            fr__text_printf(&d->out, "&amp;");
        else if (*text == '<')
            fr__text_printf(&d->out, "&lt;");
        else
            fr__text_put_bytes(&d->out, text, 1);
    }
}

/* --- head --------------------------------------------------------------------------------------*/

static const char style[] =
    "<style>\n"
    "text{font:12px system-ui,sans-serif;fill:#24292f}\n"
    ".h{font-size:15px;font-weight:600}.m{fill:#57606a}.r{fill:#808a94;fill-opacity:.14}\n"
    ".l{font:10px ui-monospace,monospace;text-anchor:middle;fill:#101820}\n"
    ".v{font:8.5px ui-monospace,monospace;text-anchor:middle;fill:#101820}\n"
    ".e{text-anchor:end}.k{text-anchor:middle}.u{stroke:#24292f;"
    "stroke-width:2.5}\n"
    ".f0{fill:#a6d0f5}.f1{fill:#6fb0ea}.b0{fill:#f9cd94}.b1{fill:#efa54a}\n"
    ".i0{fill:#98dac7}.i1{fill:#5cbfa4}.w0{fill:#e8c1e0}.w1{fill:#d094c6}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#9da7b1}.u{stroke:#e6edf3}\n"
    ".l,.v{fill:#101820}}\n"
    "</style>\n";

static void draw_head(drawing *d)
{
    const fr_schedule *s = d->s;
    int width = (int)fmax(LEAST, ceil(x_of(d, d->end)) + 14), height = y_of(d, s->n_workers) + FOOT;
    fr__text_printf(&d->out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                    "height=\"%d\" role=\"img\">\n<title>schedule of ",
                    width, height, width, height);
    put_escaped(d, s->name);
    fr__text_printf(&d->out, "</title>\n");
    fr__text_put_bytes(&d->out, style, sizeof style - 1);
    fr__text_printf(&d->out, "<text class=\"h\" x=\"8\" y=\"20\">");
    put_escaped(d, s->name);
    fr__text_printf(&d->out,
                    "</text>\n<text class=\"m\" x=\"8\" y=\"38\">%d stage%s on %d worker%s, ",
                    s->n_stages, plural(s->n_stages, "s"), s->n_workers, plural(s->n_workers, "s"));
    fr__text_printf(&d->out, "%d micro-batch%s", s->n_micro, plural(s->n_micro, "es"));
    if (s->n_batches > 1)
        fr__text_printf(&d->out, " in a mini-batch, %d mini-batches (a, b, ...)", s->n_batches);
    if (d->end < d->c->makespan) fr__text_printf(&d->out, "; cut off at time %g", d->end);
    fr__text_printf(&d->out, "</text>\n");
}

static void draw_axis(drawing *d)
{
    int every = 5, n = (int)(d->end / d->unit + 1e-6);
    for (int times = 2; every * d->scale < 40; times = 7 - times) every *= times;
    for (int u = 0; u <= n; u += every)
        fr__text_printf(&d->out, "<text class=\"m k\" x=\"%.4g\" y=\"%d\">%g</text>\n",
                        x_of(d, u * d->unit), TOP - 8, u * d->unit);
}

/* --- blocks ------------------------------------------------------------------------------------*/

/* Tint: by mini-batch if there are several, else by the stages of a worker. */
static int tint_of(const fr_schedule *s, const fr_instr *x)
{
    int n_own, turn = 0;
    const int *own = fr__stages_of(s, s->worker_of[x->stage], &n_own);
    if (s->n_batches > 1) return x->micro / s->n_micro % 2;
    while (turn < n_own && own[turn] != x->stage) turn++;
    return turn % 2;
}

/* "F3"; "Fb3" in mini-batch b; "4F3" with several stages per worker, or short "f3" on the second.
 */
static int label_of(const drawing *d, const fr_instr *x, char text[64])
{
    const fr_schedule *s = d->s;
    int n_own, n = 0, m = x->micro % s->n_micro;
    const int *own = fr__stages_of(s, s->worker_of[x->stage], &n_own);
    if (n_own > 1 && !d->is_short) n = snprintf(text, 64, "%d", x->stage);
    text[n] = fr__action_name(x->action)[0];
    if (d->is_short && x->stage != own[0]) text[n] = (char)(text[n] + 'a' - 'A');
    n++;
    if (s->n_batches > 1) text[n++] = (char)('a' + x->micro / s->n_micro % 26);
    text[n] = '\0';
    if (s->n_batches == 1 || s->n_micro > 1) n += snprintf(text + n, 64 - (size_t)n, "%d", m);
    return n;
}

/* The longest label that fits; its length, or 0. */
static int fit_label(const drawing *d, const fr_instr *x, double width, char text[64])
{
    int n = label_of(d, x, text);
    if (n * LETTER > width + 2) n = snprintf(text, 64, "%d", x->micro % d->s->n_micro);
    return n * LETTER <= width + 2 ? n : 0;
}

static void draw_block(drawing *d, int w, int i)
{
    static const char *const words[] = {"forward", "backward", "backward of inputs",
                                        "gradients of weights"};
    const fr_instr *x = &d->s->lists[w].at[i];
    double from = d->c->start[w][i], to = d->c->end[w][i];
    char label[64], note[24] = "";
    int y = y_of(d, w);
    double left = x_of(d, from), width = x_of(d, to) - left - 1, middle = left + width / 2;
    if (d->notes) d->notes->text(d->notes->user, w, i, note, sizeof note);
    fr__text_printf(&d->out, "<g><title>%s of micro-batch %d, stage %d, %g to %g", words[x->action],
                    x->micro, x->stage, from, to);
    if (note[0]) fr__text_printf(&d->out, ", weights %s", note);
    fr__text_printf(&d->out,
                    "</title><rect class=\"%c%d\" x=\"%.5g\" y=\"%d\" width=\"%.4g\" height=\"%d\" "
                    "rx=\"2\"/>",
                    "fbiw"[x->action], tint_of(d->s, x), left, y, width, d -> height);
    int base = y + (d->notes ? 13 : d->height / 2 + 4);
    if (fit_label(d, x, width, label) > 0)
        fr__text_printf(&d->out, "<text class=\"l\" x=\"%.5g\" y=\"%d\">%s</text>", middle, base,
                        label);
    if (note[0] && (int)strlen(note) * (LETTER - 1) <= width + 2)
        fr__text_printf(&d->out, "<text class=\"v\" x=\"%.5g\" y=\"%d\">%s</text>", middle,
                        y + d->height - 5, note);
    fr__text_printf(&d->out, "</g>\n");
    d->is_used[x->action] = true;
    d->has_note |= note[0] != '\0';
}

/* Below the worker, if it has several stages, their numbers. */
static void draw_row_name(drawing *d, int w)
{
    int n_own, y = y_of(d, w) + d->height / 2;
    const int *own = fr__stages_of(d->s, w, &n_own);
    fr__text_printf(&d->out, "<text class=\"e\" x=\"%d\" y=\"%d\">worker %d</text>\n", LEFT - 6,
                    n_own > 1 ? y - 1 : y + 4, w);
    if (n_own < 2) return;
    fr__text_printf(&d->out, "<text class=\"m e\" style=\"font-size:10px\" x=\"%d\" y=\"%d\">",
                    LEFT - 6, y + 11);
    for (int i = 0; i < n_own && i < 4; i++)
        fr__text_printf(&d->out, "%s%d", i ? ", " : "", own[i]);
    fr__text_printf(&d->out, "%s</text>\n", n_own > 4 ? ", .." : "");
}

static void draw_worker(drawing *d, int w)
{
    const fr_instr_list *l = &d->s->lists[w];
    int y = y_of(d, w);
    draw_row_name(d, w);
    fr__text_printf(&d->out, "<rect class=\"r\" x=\"%d\" y=\"%d\" width=\"%.5g\" height=\"%d\"/>\n",
                    LEFT, y, width_of(d, d->end), d->height);
    for (int i = 0; i < l->n; i++)
        if (is_computation(l->at[i].action) && d->c->start[w][i] < d->end) draw_block(d, w, i);
    for (int i = 0; i < l->n; i++) { /* above the blocks */
        if (l->at[i].action != FR_DO_STEP || d->c->end[w][i] > d->end) continue;
        double x = x_of(d, d->c->end[w][i]) - 0.5;
        fr__text_printf(&d->out,
                        "<line class=\"u\" x1=\"%.5g\" x2=\"%.5g\" y1=\"%d\" y2=\"%d\"/>\n", x, x,
                        y - 2, y + d->height + 2);
        d->has_update = true;
    }
}

/* --- foot --------------------------------------------------------------------------------------*/

static void draw_foot(drawing *d)
{
    static const char *const words[] = {"forward", "backward", "backward of inputs",
                                        "gradients of weights"};
    int x = LEFT, y = y_of(d, d->s->n_workers) + 16;
    double busy = 0, all = d->c->makespan * d->s->n_workers;
    for (int a = 0; a <= FR_DO_W; a++) {
        if (!d->is_used[a]) continue;
        fr__text_printf(
            &d->out,
            "<rect class=\"%c1\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\"/>"
            "<text x=\"%d\" y=\"%d\">%s</text>\n",
            "fbiw"[a], x, y - 10, x + 17, y, words[a]);
        x += 40 + 7 * (int)strlen(words[a]);
    }
    if (d->has_update) {
        fr__text_printf(&d->out,
                        "<line class=\"u\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>"
                        "<text x=\"%d\" y=\"%d\">update</text>\n",
                        x + 4, x + 4, y - 11, y + 3, x + 12, y);
        x += 72;
    }
    if (d->is_short)
        fr__text_printf(&d->out, "<text x=\"%d\" y=\"%d\">small letters: second stage</text>\n", x,
                        y);
    if (d->has_note)
        fr__text_printf(&d->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", x, y, d->notes->legend);
    for (int w = 0; w < d->s->n_workers; w++) busy += d->c->busy[w];
    fr__text_printf(&d->out, "<text class=\"m\" x=\"%d\" y=\"%d\">%sall done at %g", LEFT, y + 24,
                    d->c->has_costs ? "" : "time in units of a forward, transfers free; ",
                    d->c->makespan);
    if (d->c->period > 0 && d->s->n_batches == 1)
        fr__text_printf(&d->out, ", the next mini-batch %g later", d->c->period);
    fr__text_printf(&d->out, ", workers idle %.1f %%%s</text>\n</svg>\n",
                    all > 0 ? 100 * (1 - busy / all) : 0,
                    d->s->n_batches > 1 ? ", filling and draining" : "");
}

static bool has_two_stages(const fr_schedule *s)
{
    int n_own = 2;
    for (int w = 0; w < s->n_workers && n_own == 2; w++) fr__stages_of(s, w, &n_own);
    return n_own == 2;
}

/* Labels with digits at both ends need a gap between them. */
static bool needs_short_labels(const drawing *d)
{
    char text[64];
    fr_instr longest = {.stage = d->s->n_stages - 1, .micro = d->s->n_micro - 1};
    return label_of(d, &longest, text) * LETTER > d->scale - 1;
}

static void measure(drawing *d)
{
    d->unit = 0;
    for (int w = 0; w < d->s->n_workers; w++)
        for (int i = 0; i < d->s->lists[w].n; i++) {
            double length = d->c->end[w][i] - d->c->start[w][i];
            bool counts = is_computation(d->s->lists[w].at[i].action) && length > 0;
            if (counts && (d->unit == 0 || length < d->unit)) d->unit = length;
        }
    if (d->unit == 0) d->unit = 1;
    double units = d->c->makespan / d->unit;
    d->scale = fmin(30, fmax(10, (double)WIDTH / fmax(units, 1)));
    d->end = fmin(units, (double)MOST_UNITS) * d->unit;
    d->height = d->notes ? 32 : 26;
    d->is_short = has_two_stages(d->s) && needs_short_labels(d);
}

char *fr_schedule_to_svg(const fr_schedule *s, const fr_clock *c, const fr_notes *notes)
{
    drawing d = {.s = s, .c = c, .notes = notes};
    measure(&d);
    draw_head(&d);
    draw_axis(&d);
    for (int w = 0; w < s->n_workers; w++) draw_worker(&d, w);
    draw_foot(&d);
    return fr__text_take(&d.out);
}
