/* lr.c -- learning rate schedules: factors of the base rate, by update number.
 *
 * All schedules share the warm-up: update t < warmup uses (t + 1) / warmup of the base rate, then
 * the schedule starts at its own t = 0. Cosine (Loshchilov and Hutter, ICLR 2017), polynomial and
 * wsd (warm-up, stable, decay; Hu et al. 2024) reach min_ratio at the end of the run and stay
 * there.
 *
 * one-cycle (Smith and Topin 2018) is PyTorch's OneCycleLR: it has a rise of its own in place of
 * the warm-up, and its last update has min_ratio. inverse-sqrt (Vaswani et al. 2017) has no end. */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

static const char *const no_keys[] = {NULL};

/* Completed share of the run after warm-up at update t, in [0, 1]. */
static double progress(const fr_lr_options *o, int64_t t)
{
    int64_t length = o->total - o->warmup;
    return t < length ? (double)t / (double)length : 1;
}

static double constant_factor(const fr_lr_options *o, int64_t t)
{
    (void)o, (void)t;
    return 1;
}

static double step_factor(const fr_lr_options *o, int64_t t)
{
    return pow(o->gamma, (double)(t / o->every));
}

/* Half a cosine from 1 at p = 0 down to 0 at p = 1. */
static double half_cosine(double p)
{
    const double pi = 3.14159265358979323846;
    return 0.5 * (1 + cos(pi * p));
}

static double cosine_factor(const fr_lr_options *o, int64_t t)
{
    return o->min_ratio + (1 - o->min_ratio) * half_cosine(progress(o, t));
}

static double polynomial_factor(const fr_lr_options *o, int64_t t)
{
    return o->min_ratio + (1 - o->min_ratio) * pow(1 - progress(o, t), o->power);
}

/* A descent from 1 to 0 in the shape of the options; p in [0, 1]. */
static double descent(const fr_lr_options *o, double p)
{
    if (strcmp(o->shape, "linear") == 0) return 1 - p;
    if (strcmp(o->shape, "sqrt") == 0) return 1 - sqrt(p);
    return half_cosine(p);
}

/* The decay is the last part of the run, warm-up included in the run; a warm-up that reaches into
 * it leaves the rest of it to the decay. */
static double wsd_factor(const fr_lr_options *o, int64_t t)
{
    const double length = o->decay * (double)o->total, left = (double)(o->total - o->warmup - t);
    if (left >= length) return 1;
    return o->min_ratio + (1 - o->min_ratio) * descent(o, left > 0 ? 1 - left / length : 1);
}

static double one_cycle_factor(const fr_lr_options *o, int64_t t)
{
    const double top = o->rise * (double)o->total - 1, end = (double)(o->total - 1);
    const double now = t < o->total ? (double)t : end;
    if (now < top) return 1 + (o->start_ratio - 1) * descent(o, now / top);
    const double p = end > top ? (now - top) / (end - top) : 0;
    return o->min_ratio + (1 - o->min_ratio) * descent(o, p);
}

/* Without a time scale that of the warm-up, which continues lr * sqrt(warmup / update). */
static double inverse_sqrt_factor(const fr_lr_options *o, int64_t t)
{
    const int64_t scale = o->timescale > 0 ? o->timescale : o->warmup > 0 ? o->warmup : 10000;
    return 1 / sqrt(1 + (double)t / (double)scale);
}

const fr_lr_schedule fr__lr_constant = {
    .name = "constant",
    .summary = "always lr",
    .is_endless = true,
    .keys = no_keys,
    .factor = constant_factor,
};

const fr_lr_schedule fr__lr_step = {
    .name = "step",
    .summary = "times gamma after every `every` updates",
    .is_endless = true,
    .keys = (const char *const[]){"every", "gamma", NULL},
    .factor = step_factor,
};

const fr_lr_schedule fr__lr_cosine = {
    .name = "cosine",
    .summary = "half a cosine from lr down to min_ratio * lr",
    .keys = (const char *const[]){"min_ratio", NULL},
    .factor = cosine_factor,
};

const fr_lr_schedule fr__lr_polynomial = {
    .name = "polynomial",
    .summary = "(1 - t / total)^power from lr down to min_ratio * lr",
    .keys = (const char *const[]){"power", "min_ratio", NULL},
    .factor = polynomial_factor,
};

const fr_lr_schedule fr__lr_wsd = {
    .name = "wsd",
    .summary = "warm-up, stable, decay: lr, and down to min_ratio * lr in the last part of the run",
    .shape = "linear",
    .keys = (const char *const[]){"decay", "shape", "min_ratio", NULL},
    .factor = wsd_factor,
};

const fr_lr_schedule fr__lr_one_cycle = {
    .name = "one-cycle",
    .summary = "from start_ratio * lr up to lr, then down to min_ratio * lr",
    .shape = "cosine",
    .keys = (const char *const[]){"rise", "start_ratio", "shape", "min_ratio", NULL},
    .factor = one_cycle_factor,
};

const fr_lr_schedule fr__lr_inverse_sqrt = {
    .name = "inverse-sqrt",
    .summary = "lr / sqrt(1 + t / timescale) after the warm-up, without an end",
    .is_endless = true,
    .keys = (const char *const[]){"timescale", NULL},
    .factor = inverse_sqrt_factor,
};

static fr_lr_options filled(const fr_lr_options *o)
{
    fr_lr_options full = *o;
    if (!full.name) full.name = "constant";
    if (full.every == 0) full.every = 1000;
    if (full.gamma == 0) full.gamma = 0.1;
    if (full.power == 0) full.power = 1;
    if (full.decay == 0) full.decay = 0.1;
    if (full.rise == 0) full.rise = 0.3;
    if (full.start_ratio == 0) full.start_ratio = 0.04;
    const fr_lr_schedule *schedule = fr_lr_find(full.name);
    if (!full.shape) full.shape = schedule && schedule->shape ? schedule->shape : "cosine";
    return full;
}

void fr_lr_defaults(fr_lr_options *o)
{
    *o = filled(&(fr_lr_options){0});
    o->shape = NULL; /* depends on the name */
}

const char *fr_lr_check(const fr_lr_options *given)
{
    const fr_lr_options full = filled(given), *o = &full;
    if (!fr_lr_find(o->name))
        return "name must be constant, step, cosine, polynomial, wsd, one-cycle or inverse-sqrt";
    if (o->warmup < 0) return "warmup must be 0 or more updates";
    if (o->every < 1) return "every must be at least 1";
    if (!(o->gamma > 0 && o->gamma <= 1)) return "gamma must be in (0, 1]";
    if (!(o->power > 0 && isfinite(o->power))) return "power must be above 0";
    if (!(o->min_ratio >= 0 && o->min_ratio <= 1)) return "min_ratio must be in [0, 1]";
    if (!(o->decay > 0 && o->decay <= 1)) return "decay must be in (0, 1]";
    if (!(o->rise > 0 && o->rise < 1)) return "rise must be in (0, 1)";
    if (!(o->start_ratio > 0 && o->start_ratio <= 1)) return "start_ratio must be in (0, 1]";
    if (o->timescale < 0) return "timescale must be 0 or more updates";
    if (strcmp(o->shape, "linear") != 0 && strcmp(o->shape, "cosine") != 0 &&
        strcmp(o->shape, "sqrt") != 0)
        return "shape must be linear, cosine or sqrt";
    if (strcmp(o->name, "one-cycle") == 0 && o->warmup > 0)
        return "it has a rise of its own; leave warmup out, rise is its share of the run";
    return NULL;
}

double fr_lr_at(const fr_lr_options *o, double base_lr, int64_t t)
{
    if (t < o->warmup) return base_lr * (double)(t + 1) / (double)o->warmup;
    const fr_lr_options full = filled(o);
    const fr_lr_schedule *schedule = fr_lr_find(full.name);
    return base_lr * (schedule ? schedule->factor(&full, t - o->warmup) : 1);
}
