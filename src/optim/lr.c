/* lr.c -- learning rate schedules: factors of the base rate, by update number.
 *
 * All schedules share the warm-up: update t < warmup uses (t + 1) / warmup of the base rate, then
 * the schedule starts at its own t = 0. Cosine (Loshchilov and Hutter, ICLR 2017) and polynomial
 * reach min_ratio at the end of the run and stay there. */
#include "optim/optim.h"

#include <math.h>

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

static double cosine_factor(const fr_lr_options *o, int64_t t)
{
    const double pi = 3.14159265358979323846;
    return o->min_ratio + (1 - o->min_ratio) * 0.5 * (1 + cos(pi * progress(o, t)));
}

static double polynomial_factor(const fr_lr_options *o, int64_t t)
{
    return o->min_ratio + (1 - o->min_ratio) * pow(1 - progress(o, t), o->power);
}

const fr_lr_schedule fr__lr_constant = {
    .name = "constant",
    .summary = "always lr",
    .is_constant = true,
    .keys = no_keys,
    .factor = constant_factor,
};

const fr_lr_schedule fr__lr_step = {
    .name = "step",
    .summary = "times gamma after every `every` updates",
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

static fr_lr_options filled(const fr_lr_options *o)
{
    fr_lr_options full = *o;
    if (!full.name) full.name = "constant";
    if (full.every == 0) full.every = 1000;
    if (full.gamma == 0) full.gamma = 0.1;
    if (full.power == 0) full.power = 1;
    return full;
}

void fr_lr_defaults(fr_lr_options *o) { *o = filled(&(fr_lr_options){0}); }

const char *fr_lr_check(const fr_lr_options *given)
{
    const fr_lr_options full = filled(given), *o = &full;
    if (!fr_lr_find(o->name)) return "name must be constant, step, cosine or polynomial";
    if (o->warmup < 0) return "warmup must be 0 or more updates";
    if (o->every < 1) return "every must be at least 1";
    if (!(o->gamma > 0 && o->gamma <= 1)) return "gamma must be in (0, 1]";
    if (!(o->power > 0 && isfinite(o->power))) return "power must be above 0";
    if (!(o->min_ratio >= 0 && o->min_ratio <= 1)) return "min_ratio must be in [0, 1]";
    return NULL;
}

double fr_lr_at(const fr_lr_options *o, double base_lr, int64_t t)
{
    if (t < o->warmup) return base_lr * (double)(t + 1) / (double)o->warmup;
    const fr_lr_options full = filled(o);
    const fr_lr_schedule *schedule = fr_lr_find(full.name);
    return base_lr * (schedule ? schedule->factor(&full, t - o->warmup) : 1);
}
