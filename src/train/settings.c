/* settings.c -- reads `train` and `run`; `parallel` is in settings_parallel.c.
 *
 * Optimizers and schedules name the keys they use; the two tables below say where each key goes.
 * A key that the chosen one does not use is never asked for, so fr_conf_finish refuses it. */
#include "train/settings.h"

#include "io/conf.h"
#include "io/json.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

typedef enum field_kind { REAL, INTEGER, BOOLEAN } field_kind;

typedef struct field {
    const char *key;
    field_kind kind;
    size_t offset;
    double min, max; /* REAL; an INTEGER starts at min */
} field;

#define IN_OPTIM(name) offsetof(fr_optim_options, name)
static const field optim_fields[] = {
    {"lr", REAL, IN_OPTIM(lr), 0, FLT_MAX},
    {"weight_decay", REAL, IN_OPTIM(weight_decay), 0, FLT_MAX},
    {"momentum", REAL, IN_OPTIM(momentum), 0, 1},
    {"dampening", REAL, IN_OPTIM(dampening), 0, 1},
    {"nesterov", BOOLEAN, IN_OPTIM(nesterov), 0, 0},
    {"beta1", REAL, IN_OPTIM(beta1), 0, 1},
    {"beta2", REAL, IN_OPTIM(beta2), 0, 1},
    {"eps", REAL, IN_OPTIM(eps), 0, 1},
    {"momentum_decay", REAL, IN_OPTIM(momentum_decay), 0, 1},
    {NULL, REAL, 0, 0, 0},
};

#define IN_LR(name) offsetof(fr_lr_options, name)
static const field lr_fields[] = {
    {"warmup", INTEGER, IN_LR(warmup), 0, 0},    {"every", INTEGER, IN_LR(every), 1, 0},
    {"gamma", REAL, IN_LR(gamma), 0, FLT_MAX},   {"power", REAL, IN_LR(power), 0, FLT_MAX},
    {"min_ratio", REAL, IN_LR(min_ratio), 0, 1}, {NULL, REAL, 0, 0, 0},
};

/* The value already in `base` is the default. */
static fr_status read_field(fr_conf *c, const field *fields, const char *key, void *base)
{
    const field *f = fields;
    while (f->key && strcmp(f->key, key) != 0) f++;
    if (!f->key) return fr_conf_fail(c, NULL, "%s: a key without a place in the settings", key);
    void *at = (char *)base + f->offset;
    switch (f->kind) {
    case REAL: return fr_conf_real(c, key, *(double *)at, f->min, f->max, at);
    case INTEGER: return fr_conf_int(c, key, *(int64_t *)at, (int64_t)f->min, INT64_MAX, at);
    case BOOLEAN: return fr_conf_bool(c, key, *(bool *)at, at);
    }
    return FR_OK;
}

static fr_status read_fields(fr_conf *c, const field *fields, const char *const *keys, void *base)
{
    for (; *keys; keys++) FR_TRY(read_field(c, fields, *keys, base));
    return FR_OK;
}

void fr__append_name(char *text, size_t room, const char *name)
{
    size_t n = strlen(text);
    snprintf(text + n, room - n, "%s%s", n ? ", " : "", name);
}

static fr_status read_optimizer(fr_conf *train, fr_settings *s)
{
    fr_conf *c;
    const char *name;
    char names[256] = "";
    FR_TRY(fr_conf_section(train, "optimizer", &c));
    FR_TRY(fr_conf_text(c, "name", "sgd", &name));
    s->optimizer = fr_optim_find(name);
    FR_APPEND_NAMES(names, fr_optim_list());
    if (!s->optimizer)
        return fr_conf_fail(c, "name", "no optimizer is called '%s'; there are: %s", name, names);
    s->optimizer->defaults(&s->optim);
    FR_TRY(read_field(c, optim_fields, "lr", &s->optim));
    FR_TRY(read_fields(c, optim_fields, s->optimizer->keys, &s->optim));
    const char *wrong = s->optimizer->check(&s->optim);
    return wrong ? fr_conf_fail(c, NULL, "optimizer %s: %s", name, wrong) : FR_OK;
}

static fr_status read_schedule(fr_conf *train, fr_settings *s)
{
    fr_conf *c;
    char names[256] = "";
    FR_TRY(fr_conf_section(train, "schedule", &c));
    fr_lr_defaults(&s->lr);
    FR_TRY(fr_conf_text(c, "name", "constant", &s->lr.name));
    const fr_lr_schedule *schedule = fr_lr_find(s->lr.name);
    FR_APPEND_NAMES(names, fr_lr_list());
    if (!schedule)
        return fr_conf_fail(c, "name", "no learning-rate schedule is called '%s'; there are: %s",
                            s->lr.name, names);
    FR_TRY(read_field(c, lr_fields, "warmup", &s->lr));
    FR_TRY(read_fields(c, lr_fields, schedule->keys, &s->lr));
    const char *wrong = fr_lr_check(&s->lr);
    return wrong ? fr_conf_fail(c, NULL, "schedule %s: %s", s->lr.name, wrong) : FR_OK;
}

/* Micro-batches are dealt out to replicas in turn, each as many as the others. */
static fr_status read_micro(fr_conf *c, fr_settings *s)
{
    int64_t least = fr__settings_least_micro(s);
    s->is_micro_chosen = least > 1 && !fr_conf_has(c, "micro");
    FR_TRY(fr_conf_int(c, "micro", least, 1, 1 << 24, &s->micro));
    if (s->micro % least != 0)
        return fr_conf_fail(c, "micro",
                            "%lld micro-batches do not go to the replicas of a stage in equal "
                            "parts; make train.micro a multiple of %lld, or leave it out",
                            (long long)s->micro, (long long)least);
    if (s->batch % s->micro != 0)
        return fr_conf_fail(c, s->is_micro_chosen ? "batch" : "micro",
                            "batch %lld does not split into %lld equal micro-batches%s; make "
                            "train.batch a multiple of %s",
                            (long long)s->batch, (long long)s->micro,
                            s->is_micro_chosen ? ", which the replicas need" : "",
                            s->is_micro_chosen ? "that" : "train.micro");
    return FR_OK;
}

static fr_status read_train(fr_conf *c, fr_settings *s)
{
    int64_t seed;
    FR_TRY(fr_conf_int(c, "batch", 128, 1, 1 << 24, &s->batch));
    FR_TRY(read_micro(c, s));
    FR_TRY(fr_conf_int(c, "epochs", 1, 0, 1000000, &s->epochs));
    FR_TRY(fr_conf_int(c, "steps", 0, 0, INT64_MAX / (1 << 24), &s->steps));
    FR_TRY(fr_conf_int(c, "seed", 1, 0, INT64_MAX, &seed));
    FR_TRY(fr_conf_real(c, "clip_norm", 0, 0, FLT_MAX, &s->clip_norm));
    FR_TRY(fr_conf_bool(c, "exact_sum", false, &s->exact_sum));
    s->seed = (uint64_t)seed;
    if (s->epochs == 0 && s->steps == 0)
        return fr_conf_fail(c, "epochs", "epochs and steps are both 0: set one of them");
    FR_TRY(read_optimizer(c, s));
    return read_schedule(c, s);
}

/* "runs/fashion-cnn" for "examples/fashion-cnn.yaml". */
static void default_out(const char *config_path, char *out, size_t room)
{
    const char *name = strrchr(config_path, '/');
    name = name ? name + 1 : config_path;
    const char *dot = strrchr(name, '.');
    int n = dot && dot != name ? (int)(dot - name) : (int)strlen(name);
    snprintf(out, room, "runs/%.*s", n, name);
}

/* What is watched while the run goes, and what a test lets go wrong. */
static fr_status read_watch(fr_conf *c, fr_settings *s)
{
    int64_t n_events, n_samples;
    FR_TRY(fr_conf_real(c, "stall_timeout", 30, 0.01, 1e6, &s->stall_s));
    FR_TRY(fr_conf_int(c, "trace", 2500, 0, 1 << 28, &n_events));
    FR_TRY(fr_conf_int(c, "prediction_samples", 1024, 0, 1 << 28, &n_samples));
    s->n_events = (int)n_events, s->n_samples = (int)n_samples;
    if (!fr_conf_has(c, "fault")) return FR_OK;
    const char *text, *wrong;
    FR_TRY(fr_conf_text(c, "fault", NULL, &text));
    wrong = text[0] ? fr_fault_parse(text, &s->fault) : NULL;
    return wrong ? fr_conf_fail(c, "fault", "\"%s\": %s", text, wrong) : FR_OK;
}

static fr_status read_memory(fr_conf *c, fr_settings *s)
{
    const char *word;
    FR_TRY(fr_conf_text(c, "memory", "refuse", &word));
    s->is_memory_binding = strcmp(word, "refuse") == 0;
    if (s->is_memory_binding || strcmp(word, "warn") == 0) return FR_OK;
    return fr_conf_fail(c, "memory", "'%s' is neither 'refuse' nor 'warn'", word);
}

static fr_status read_run(fr_conf *c, const char *config_path, const char *out, fr_settings *s)
{
    char preset[1024], quoted[8192];
    if (out) {
        fr_json j;
        fr__json_to_buffer(&j, quoted, sizeof quoted, 0); /* a JSON text is a YAML text */
        fr__json_text(&j, NULL, out);
        if (!fr__json_finish(&j)) return fr_conf_fail(c, "out", "--out: the path is too long");
        FR_TRY(fr_conf_record(c, "out", quoted));
    }
    default_out(config_path, preset, sizeof preset);
    FR_TRY(fr_conf_text(c, "out", preset, &s->out));
    if (!s->out[0]) return fr_conf_fail(c, "out", "the run's folder has no name");
    FR_TRY(fr_conf_int(c, "checkpoint_every", 0, 0, INT64_MAX, &s->checkpoint_every));
    FR_TRY(fr_conf_int(c, "eval_every", 0, -1, INT64_MAX, &s->eval_every));
    FR_TRY(fr_conf_int(c, "keep", 3, 1, INT32_MAX, &s->keep));
    FR_TRY(fr_conf_bool(c, "grad_norm", false, &s->grad_norm));
    FR_TRY(fr_conf_bool(c, "predict", true, &s->predicts));
    FR_TRY(fr_conf_real(c, "predict_s", 0, 0, 3600, &s->predict_s));
    FR_TRY(read_memory(c, s));
    FR_TRY(fr_conf_bool(c, "csv", true, &s->csv));
    FR_TRY(fr_conf_bool(c, "tensorboard", true, &s->tensorboard));
    FR_TRY(fr_conf_bool(c, "report", true, &s->report));
    return read_watch(c, s);
}

fr_status fr__settings_read(fr_conf *root, const char *config_path, const char *out, fr_settings *s)
{
    fr_conf *train, *parallel, *run;
    memset(s, 0, sizeof *s);
    fr__conf_drop(root, "compare"); /* of many runs, not of this one */
    FR_TRY(fr_conf_section(root, "train", &train));
    FR_TRY(fr_conf_section(root, "parallel", &parallel));
    FR_TRY(fr_conf_section(root, "run", &run));
    FR_TRY(fr__settings_parallel(parallel, s));
    FR_TRY(read_train(train, s));
    return read_run(run, config_path, out, s);
}

int64_t fr__settings_n_steps(fr_settings *s, int64_t n_train)
{
    int64_t n = s->steps > 0 ? s->steps : s->epochs * n_train / s->batch;
    if (n < 1) n = 1;
    s->lr.total = n;
    return n;
}
