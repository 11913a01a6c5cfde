/* efficiency.c -- epochs to a quality at each global batch (Pal et al. 2019, section 4).
 *
 * A trial is a run of the config with another batch. The micro-batch size stays, so a larger
 * batch adds the gradients of more micro-batches before an update, on the same devices. Numbers of
 * updates (the warm-up, the steps of a schedule) are scaled to keep their position in epochs. A
 * trial evaluates at equal distances in samples and stops when it has reached the goal. */
#include "study/efficiency.h"

#include "config/setup.h"
#include "io/file.h"
#include "io/number.h"
#include "io/sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_EVALS = 4, N_OWN_SETS = 13, MAX_BATCHES = 256 };
static const double own_margin = 1.01; /* factor of the best loss for FR_GOAL_OWN */

static const char *const rule_names[] = {
#define FR_X(name, text) text,
    FR_LR_RULE_LIST(FR_X)
#undef FR_X
};

const char *fr_lr_rule_name(fr_lr_rule rule)
{
    return (unsigned)rule < FR_LR_RULE_COUNT ? rule_names[rule] : "unknown rule";
}

bool fr_lr_rule_parse(const char *name, fr_lr_rule *rule)
{
    for (int i = 0; i < FR_LR_RULE_COUNT; i++)
        if (strcmp(rule_names[i], name) == 0) {
            *rule = (fr_lr_rule)i;
            return true;
        }
    return false;
}

bool fr_goal_parse(const char *text, fr_goal *goal)
{
    static const char *const names[] = {[FR_GOAL_LOSS] = "loss=", [FR_GOAL_ACCURACY] = "accuracy="};
    for (int i = FR_GOAL_LOSS; i <= FR_GOAL_ACCURACY; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(text, names[i], n) != 0) continue;
        goal->kind = (fr_goal_kind)i;
        return fr__real_scan(text + n, &goal->value);
    }
    return false;
}

/* Distance of an evaluation from the goal; 0 or less: reached. */
static double distance(const fr_eval_point *p, const fr_goal *goal)
{
    return goal->kind == FR_GOAL_LOSS ? p->loss - goal->value : goal->value - p->accuracy;
}

double fr_trial_epochs(const fr_trial *t, const fr_goal *goal)
{
    for (int i = 0; i < t->n_points; i++) {
        double here = distance(&t->points[i], goal);
        if (!(here <= 0)) continue;
        double before = i > 0 ? distance(&t->points[i - 1], goal) : NAN;
        double epochs = t->points[i].epochs;
        if (!isfinite(before)) return epochs; /* at the latest */
        double from = t->points[i - 1].epochs;
        return from + (epochs - from) * before / (before - here);
    }
    return NAN;
}

/* --- from the config -------------------------------------------------------------------------- */

static void hash_config(fr__study *s, const void *text, size_t bytes)
{
    const fr_run_options *run = s->o->run;
    fr__sha256 sha;
    fr__sha256_init(&sha);
    fr__sha256_update(&sha, text, bytes);
    for (int i = 0; i < run->n_sets; i++)
        fr__sha256_update(&sha, run->sets[i], strlen(run->sets[i]) + 1);
    fr__sha256_final(&sha, s->config);
}

static fr_status take_config(fr__study *s)
{
    fr__setup setup;
    unsigned char *text;
    size_t bytes;
    FR_TRY(fr__setup_open(s->ctx, s->o->run, &setup));
    const fr__settings *t = &setup.settings;
    const fr_data_info *info = fr_dataset_info(setup.data);
    const fr_lr_schedule *schedule = fr_lr_find(t->lr.name);
    bool has_every = false, has_timescale = false;
    for (const char *const *key = schedule->keys; *key; key++) {
        has_every |= !strcmp(*key, "every");
        has_timescale |= !strcmp(*key, "timescale");
    }
    s->method = t->method->name, s->stages = (int)t->stages;
    s->n_train = info->n_train;
    s->batch = t->batch, s->micro_batch = t->batch / t->micro;
    s->seed = t->seed, s->lr = t->optim.lr;
    s->warmup = t->lr.warmup, s->every = has_every ? t->lr.every : 0;
    s->timescale = has_timescale ? t->lr.timescale : 0;
    s->epochs = (double)(setup.n_steps * t->batch) / (double)info->n_train;
    s->max_epochs = s->o->max_epochs > 0 ? s->o->max_epochs : 3 * s->epochs;
    s->n_evals = s->o->evals > 0 ? s->o->evals : DEFAULT_EVALS;
    bool can_evaluate = info->n_eval > 0;
    fr__setup_close(&setup);
    if (!can_evaluate)
        return fr_fail(
            s->ctx, FR_INVALID,
            "%s: the data has no evaluation part, which decides when a quality is reached",
            s->o->run->config);
    FR_TRY(fr__file_read(s->ctx, s->o->run->config, 1 << 24, &text, &bytes));
    hash_config(s, text, bytes);
    fr__free(text);
    return FR_OK;
}

/* Sorts the batches, removes duplicates and checks each. */
static fr_status check_batches(const fr__study *s, int64_t *batches, int *n)
{
    if (s->o->n_batches < 1 || s->o->n_batches > MAX_BATCHES)
        return fr_fail(s->ctx, FR_INVALID, "%d batch sizes; give between 1 and %d", s->o->n_batches,
                       MAX_BATCHES);
    memcpy(batches, s->o->batches, (size_t)s->o->n_batches * sizeof *batches);
    qsort(batches, (size_t)s->o->n_batches, sizeof *batches, fr__by_int64);
    *n = 0;
    for (int i = 0; i < s->o->n_batches; i++) {
        int64_t b = batches[i];
        if (b < 1 || b % s->micro_batch != 0)
            return fr_fail(s->ctx, FR_INVALID,
                           "batch %lld is not a multiple of %lld, the micro-batch of the config "
                           "(train.batch / train.micro), which all batches are made of",
                           (long long)b, (long long)s->micro_batch);
        if (b > s->n_train)
            return fr_fail(s->ctx, FR_INVALID,
                           "batch %lld is more than the %lld training samples of an epoch",
                           (long long)b, (long long)s->n_train);
        if (*n == 0 || batches[*n - 1] != b) batches[(*n)++] = b;
    }
    return FR_OK;
}

static double rate_of(const fr__study *s, int64_t batch)
{
    double ratio = (double)batch / (double)s->batch;
    switch (s->o->lr_rule) {
    case FR_LR_RULE_LINEAR: return s->lr * ratio;
    case FR_LR_RULE_SQRT: return s->lr * sqrt(ratio);
    default: return s->lr;
    }
}

fr_trial *fr__study_trial(fr__study *s, int64_t batch, uint64_t seed)
{
    for (size_t i = 0; i < s->trials.n; i++)
        if (s->trials.at[i]->batch == batch && s->trials.at[i]->seed == seed)
            return s->trials.at[i];
    fr_trial *t = FR_ARENA_NEW(s->arena, fr_trial);
    if (!t || !fr__vec_push(&s->trials, t)) return NULL;
    *t = (fr_trial){.batch = batch, .seed = seed, .lr = rate_of(s, batch)};
    return t;
}

/* --- one trial -------------------------------------------------------------------------------- */

typedef struct watch {
    const fr__study *s;
    fr_trial *t;
    const fr_goal *goal;
    volatile int stop;
    bool is_asked; /* stopped by the user, not by the goal */
} watch;

static void on_progress(void *user, const fr_progress *p)
{
    watch *w = user;
    fr_trial *t = w->t;
    volatile int *stop = w->s->o->run->stop;
    if (!isnan(p->eval_loss) && t->n_points < t->room) {
        double epochs = (double)(p->step * t->batch) / (double)w->s->n_train;
        t->points[t->n_points++] = (fr_eval_point){epochs, p->eval_loss, p->eval_accuracy};
        bool is_there = w->goal->kind == FR_GOAL_OWN ? epochs >= w->s->epochs * (1 - 1e-9)
                                                     : !isnan(fr_trial_epochs(t, w->goal));
        if (is_there) w->stop = 1;
    }
    if (stop && *stop) w->is_asked = true, w->stop = 1;
    if (w->s->o->tell) w->s->o->tell(w->s->o->user, t, p);
}

/* Removes checkpoints, then the other files. They need not exist. */
static fr_status clear_folder(const fr__study *s, const char *folder, bool is_all)
{
    char checkpoints[FR_PATH];
    fr__steps steps;
    FR_TRY(fr__path(s->ctx, checkpoints, "%s/checkpoint", folder));
    FR_TRY(fr__folder_steps(s->ctx, checkpoints, &steps));
    fr_status status = FR_OK;
    for (size_t i = 0; i < steps.n && status == FR_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "step-%lld", (long long)steps.at[i]);
        status = fr__folder_discard(s->ctx, -1, checkpoints, name);
    }
    fr__vec_fini(&steps);
    if (status == FR_OK) status = fr__dir_remove(s->ctx, checkpoints);
    return status == FR_OK && is_all ? fr__dir_remove(s->ctx, folder) : status;
}

typedef struct trial_sets {
    char text[N_OWN_SETS][96];
    int n;
} trial_sets;

static void set(trial_sets *x, const char *key, double value)
{
    char number[32];
    fr__real_format(value, number);
    snprintf(x->text[x->n++], sizeof x->text[0], "%s=%s", key, number);
}

static int64_t in_updates(const fr__study *s, const fr_trial *t, int64_t of_config)
{
    int64_t n = llround((double)(of_config * s->batch) / (double)t->batch);
    return n > 1 ? n : 1;
}

static void make_sets(const fr__study *s, const fr_trial *t, trial_sets *x)
{
    double epoch = (double)s->n_train / (double)t->batch; /* in updates */
    int64_t every = llround(epoch / s->n_evals);
    x->n = 0;
    set(x, "train.batch", (double)t->batch);
    set(x, "train.micro", (double)(t->batch / s->micro_batch));
    set(x, "train.steps", ceil(s->max_epochs * epoch));
    set(x, "train.seed", (double)t->seed);
    set(x, "train.optimizer.lr", t->lr);
    if (s->warmup > 0) set(x, "train.schedule.warmup", (double)in_updates(s, t, s->warmup));
    if (s->every > 0) set(x, "train.schedule.every", (double)in_updates(s, t, s->every));
    if (s->timescale > 0)
        set(x, "train.schedule.timescale", (double)in_updates(s, t, s->timescale));
    set(x, "run.eval_every", (double)(every > 1 ? every : 1));
    set(x, "run.checkpoint_every", 0);
    set(x, "run.trace", 0);
    set(x, "run.prediction_samples", 0);
    snprintf(x->text[x->n++], sizeof x->text[0], "run.predict=false");
}

static fr_status interrupted(const fr__study *s)
{
    int n = 0;
    for (size_t i = 0; i < s->trials.n; i++) n += s->trials.at[i]->n_points > 0;
    return fr_fail(s->ctx, FR_INTERRUPTED,
                   "interrupted; %d finished trainings are in %s, and the same command continues",
                   n, s->file);
}

/* Runs the trial. A stop at the goal and a divergence are not failures. */
static fr_status train(fr__study *s, watch *w, const char *folder)
{
    trial_sets own;
    const fr_run_options *run = s->o->run;
    make_sets(s, w->t, &own);
    const char **sets = FR_ARENA_ARRAY(s->arena, const char *, run->n_sets + own.n);
    if (!sets) return fr__no_memory(s->ctx, 0, "settings");
    for (int i = 0; i < run->n_sets; i++) sets[i] = run->sets[i];
    for (int i = 0; i < own.n; i++) sets[run->n_sets + i] = own.text[i];
    fr_run_options o = {.size = sizeof o,
                        .config = run->config,
                        .n_sets = run->n_sets + own.n,
                        .sets = sets,
                        .out = folder,
                        .dump_step = -1,
                        .progress = on_progress,
                        .user = w,
                        .stop = &w->stop};
    fr_status status = fr_train(s->ctx, &o, NULL);
    w->t->diverged = status == FR_DIVERGED;
    w->t->is_whole = status == FR_OK || status == FR_DIVERGED;
    if (w->is_asked) w->t->n_points = 0; /* unfinished */
    if (status != FR_DIVERGED && status != FR_INTERRUPTED) return status;
    return w->is_asked ? interrupted(s) : FR_OK;
}

static fr_status run_trial(fr__study *s, fr_trial *t, const fr_goal *goal)
{
    char folder[FR_PATH];
    watch w = {.s = s, .t = t, .goal = goal};
    t->n_points = 0;
    FR_TRY(fr__path(s->ctx, folder, "%s/batch-%lld-seed-%llu", s->o->run->out, (long long)t->batch,
                    (unsigned long long)t->seed));
    double steps = s->max_epochs * (double)s->n_train / (double)t->batch;
    double most =
        s->max_epochs * s->n_evals * 2 + 4; /* rounding of the distance at most halves it */
    t->room = (int)(most < steps + 2 ? most : steps + 2);
    t->points = FR_ARENA_ARRAY(s->arena, fr_eval_point, t->room);
    if (!t->points) return fr__no_memory(s->ctx, 0, "evaluations");
    if (s->o->run->stop && *s->o->run->stop) return interrupted(s);
    FR_TRY(clear_folder(s, folder, true));
    FR_TRY(train(s, &w, folder));
    if (!s->o->keep_checkpoints) FR_TRY(clear_folder(s, folder, false));
    if (s->o->tell) s->o->tell(s->o->user, t, NULL);
    return FR_OK;
}

/* --- all of them ------------------------------------------------------------------------------ */

/* The best loss within the config's epochs, plus a margin. */
static bool own_goal(const fr__study *s, const fr_trial *t, fr_goal *goal)
{
    double best = INFINITY;
    bool is_long_enough = t->is_whole;
    for (int i = 0; i < t->n_points && !(i > 0 && t->points[i - 1].epochs >= s->epochs); i++) {
        if (t->points[i].loss < best) best = t->points[i].loss;
        is_long_enough |= t->points[i].epochs >= s->epochs * (1 - 1e-9);
    }
    *goal = (fr_goal){FR_GOAL_LOSS, own_margin * best};
    return is_long_enough && isfinite(best);
}

static fr_status find_goal(fr__study *s, int64_t smallest, fr_goal *goal)
{
    *goal = s->o->goal;
    if (goal->kind != FR_GOAL_OWN) return FR_OK;
    fr_trial *t = fr__study_trial(s, smallest, s->seed);
    if (!t) return fr__no_memory(s->ctx, 0, "trials");
    if (own_goal(s, t, goal)) return FR_OK;
    FR_TRY(run_trial(s, t, &s->o->goal));
    if (own_goal(s, t, goal)) return FR_OK;
    return fr_fail(s->ctx, FR_DIVERGED,
                   "batch %lld diverged, so it sets no goal; lower the learning rate or give a "
                   "--target",
                   (long long)smallest);
}

static fr_status run_row(fr__study *s, const fr_goal *goal, fr_efficiency_row *row)
{
    double sum = 0;
    row->lr = rate_of(s, row->batch);
    row->least = INFINITY, row->most = 0;
    for (int i = 0; i < row->n_seeds; i++) {
        fr_trial *t = fr__study_trial(s, row->batch, s->seed + (uint64_t)i);
        if (!t) return fr__no_memory(s->ctx, 0, "trials");
        double epochs = fr_trial_epochs(t, goal);
        if (isnan(epochs) && !t->is_whole) {
            FR_TRY(run_trial(s, t, goal));
            FR_TRY(fr__study_save(s, goal, 0, NULL));
            epochs = fr_trial_epochs(t, goal);
        } else if (s->o->tell) {
            s->o->tell(s->o->user, t, NULL);
        }
        if (isnan(epochs)) continue;
        row->n_reached++;
        sum += epochs;
        row->least = fmin(row->least, epochs), row->most = fmax(row->most, epochs);
    }
    row->epochs = row->n_reached == row->n_seeds ? sum / row->n_seeds : NAN;
    if (row->n_reached == 0) row->least = row->most = NAN;
    return FR_OK;
}

static fr_status measure(fr__study *s, fr_efficiency *e)
{
    int64_t batches[MAX_BATCHES];
    FR_TRY(take_config(s));
    FR_TRY(check_batches(s, batches, &e->n_rows));
    FR_TRY(fr__dir_make(s->ctx, s->o->run->out));
    FR_TRY(fr__path(s->ctx, s->file, "%s/efficiency.json", s->o->run->out));
    FR_TRY(fr__study_load(s));
    FR_TRY(find_goal(s, batches[0], &e->goal));
    FR_TRY(fr__study_save(s, &e->goal, 0, NULL));
    e->n_train = s->n_train;
    e->rows = FR_ARENA_ARRAY(s->arena, fr_efficiency_row, e->n_rows);
    if (!e->rows) return fr__no_memory(s->ctx, 0, "results");
    for (int i = 0; i < e->n_rows; i++) {
        fr_efficiency_row *row = &e->rows[i];
        row->batch = batches[i];
        row->n_seeds = s->o->n_seeds > 0 ? s->o->n_seeds : 1;
        FR_TRY(run_row(s, &e->goal, row));
        row->ratio = e->rows[0].epochs / row->epochs;
    }
    return fr__study_save(s, &e->goal, e->n_rows, e->rows);
}

fr_status fr_efficiency_measure(fr_ctx *ctx, const fr_efficiency_options *o, fr_efficiency *out)
{
    fr_run_options run;
    fr_efficiency_options own = *o;
    memset(out, 0, sizeof *out);
    if (!o->run || !o->run->out)
        return fr_fail(ctx, FR_INVALID, "no folder for the results was given");
    FR_TRY(fr__run_options_take(ctx, o->run, &run));
    own.run = &run;
    out->arena = FR_NEW(fr_arena);
    if (!out->arena) return fr__no_memory(ctx, sizeof(fr_arena), "results");
    fr__study s = {.ctx = ctx, .o = &own, .arena = out->arena};
    fr_status status = measure(&s, out);
    fr__vec_fini(&s.trials);
    if (status != FR_OK) fr_efficiency_free(out);
    return status;
}

void fr_efficiency_free(fr_efficiency *e)
{
    fr__arena_free(e->arena);
    memset(e, 0, sizeof *e);
}

double fr_efficiency_epochs(const fr_efficiency *e, int64_t batch)
{
    const fr_efficiency_row *r = e->rows;
    if (e->n_rows == 0) return NAN;
    if (batch <= r[0].batch) return r[0].epochs;
    for (int i = 1; i < e->n_rows; i++) {
        if (batch > r[i].batch) continue;
        if (batch == r[i].batch) return r[i].epochs;
        double share = log((double)batch / (double)r[i - 1].batch) /
                       log((double)r[i].batch / (double)r[i - 1].batch);
        return exp(log(r[i - 1].epochs) * (1 - share) + log(r[i].epochs) * share);
    }
    return NAN;
}
