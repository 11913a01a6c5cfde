/* settings.c -- reads `train` and `run`; `parallel` is in settings_parallel.c.
 *
 * keys.c lists the keys with their ranges and destinations; this file has what a row cannot
 * express. Optimizers and schedules list the keys they use. A key that the chosen one does not use
 * is never read, so fr_conf_finish refuses it. */
#include "config/settings.h"

#include "io/conf.h"
#include "io/json.h"

#include <stdio.h>
#include <string.h>

fr_status fr__setting(fr_conf *c, const char *section, const char *key, fr__settings *s)
{
    const fr_key *k = fr__key_find(fr__settings_keys(), section, key, NULL);
    return fr__key_read(c, k, (char *)s + k->offset);
}

fr_status fr__setting_name(fr_conf *c, const char *section, const char *key, const char **name)
{
    return fr__key_read(c, fr__key_find(fr__settings_keys(), section, key, NULL), name);
}

static fr_status read_optimizer(fr_conf *train, fr__settings *s)
{
    static const char section[] = "train.optimizer.";
    fr_conf *c;
    const char *name = NULL;
    FR_TRY(fr_conf_section(train, "optimizer", &c));
    FR_TRY(fr__setting_name(c, section, "name", &name));
    s->optimizer = fr_optim_find(name);
    s->optimizer->defaults(&s->optim);
    FR_TRY(fr__setting(c, section, "lr", s));
    FR_TRY(fr__keys_read_listed(c, fr__settings_keys(), section, s->optimizer->keys, s));
    const char *wrong = s->optimizer->check(&s->optim);
    return wrong ? fr_conf_fail(c, NULL, "optimizer %s: %s", name, wrong) : FR_OK;
}

static fr_status read_schedule(fr_conf *train, fr__settings *s)
{
    static const char section[] = "train.schedule.";
    fr_conf *c;
    FR_TRY(fr_conf_section(train, "schedule", &c));
    fr_lr_defaults(&s->lr);
    FR_TRY(fr__setting(c, section, "name", s));
    FR_TRY(fr__setting(c, section, "warmup", s));
    const fr_lr_schedule *schedule = fr_lr_find(s->lr.name);
    s->lr.shape = schedule->shape;
    FR_TRY(fr__keys_read_listed(c, fr__settings_keys(), section, schedule->keys, s));
    /* In a config 0 is a value; it does not stand for the default. */
    const char *wrong = s->lr.gamma == 0         ? "gamma must be in (0, 1]"
                        : s->lr.power == 0       ? "power must be above 0"
                        : s->lr.decay == 0       ? "decay must be in (0, 1]"
                        : s->lr.rise == 0        ? "rise must be in (0, 1)"
                        : s->lr.start_ratio == 0 ? "start_ratio must be in (0, 1]"
                                                 : fr_lr_check(&s->lr);
    return wrong ? fr_conf_fail(c, NULL, "schedule %s: %s", s->lr.name, wrong) : FR_OK;
}

/* Micro-batches go to the replicas in turn; each replica must get the same number. */
static fr_status check_micro(fr_conf *c, const fr__settings *s, int64_t least)
{
    if (s->micro % least != 0)
        return fr_conf_fail(c, "micro",
                            "%lld micro-batches cannot be divided equally among the replicas of a "
                            "stage; make train.micro a multiple of %lld, or leave it out",
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

static fr_status read_train(fr_conf *c, fr__settings *s)
{
    fr_conf *stop;
    int64_t least = s->micro = fr__settings_least_micro(s);
    s->is_micro_chosen = least > 1 && !fr_conf_has(c, "micro");
    s->is_precision_given = fr_conf_has(c, "precision");
    FR_TRY(fr__keys_read(c, fr__settings_keys(), "train.", NULL, s));
    s->precision = strcmp(s->precision_name, "bf16") == 0 ? FR_BF16 : FR_F32;
    s->clip_late = strcmp(s->clip, "late") == 0;
    FR_TRY(check_micro(c, s, least));
    if (s->epochs == 0 && s->steps == 0)
        return fr_conf_fail(c, "epochs", "epochs and steps are both 0: set one of them");
    FR_TRY(fr_conf_section(c, "stop", &stop));
    FR_TRY(fr__keys_read(stop, fr__settings_keys(), "train.stop.", NULL, s));
    FR_TRY(read_optimizer(c, s));
    FR_TRY(fr__settings_groups(c, s));
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

/* Fault injection, for tests. */
static fr_status read_fault(fr_conf *c, fr__settings *s)
{
    const char *text = NULL, *wrong;
    FR_TRY(fr__setting_name(c, "run.", "fault", &text));
    wrong = text && text[0] ? fr__fault_parse(text, &s->fault) : NULL;
    return wrong ? fr_conf_fail(c, "fault", "\"%s\": %s", text, wrong) : FR_OK;
}

static fr_status read_run(fr_conf *c, const char *config_path, const char *out, fr__settings *s)
{
    char preset[1024], quoted[8192];
    if (out) {
        fr__json j;
        fr__json_to_buffer(&j, quoted, sizeof quoted, 0); /* a JSON text is a YAML text */
        fr__json_text(&j, NULL, out);
        if (!fr__json_finish(&j)) return fr_conf_fail(c, "out", "--out: the path is too long");
        FR_TRY(fr_conf_record(c, "out", quoted));
    }
    default_out(config_path, preset, sizeof preset);
    s->out = preset;
    FR_TRY(fr__keys_read(c, fr__settings_keys(), "run.", NULL, s));
    if (!s->out[0]) return fr_conf_fail(c, "out", "the run's folder has no name");
    if ((s->stop_patience > 0 || s->keep_best) && s->eval_every <= 0)
        return fr_conf_fail(c, "eval_every",
                            "%s needs evaluations during the run: set run.eval_every to the "
                            "number of updates between them",
                            s->keep_best ? "run.keep_best" : "train.stop.patience");
    s->is_memory_binding = strcmp(s->memory, "refuse") == 0;
    return read_fault(c, s);
}

static fr_status check_messages(fr_conf *parallel, const fr__settings *s)
{
    if (!s->has_long_messages || s->precision == FR_F32) return FR_OK;
    return fr_conf_fail(parallel, "messages",
                        "with train.precision bf16 the values are bf16 before they are sent; leave "
                        "parallel.messages out");
}

fr_status fr__settings_read(fr_conf *root, const char *config_path, const char *out,
                            fr__settings *s)
{
    fr_conf *train, *parallel, *run;
    memset(s, 0, sizeof *s);
    fr__conf_drop(root, "compare"); /* describes many runs, not this one */
    FR_TRY(fr_conf_section(root, "train", &train));
    FR_TRY(fr_conf_section(root, "parallel", &parallel));
    FR_TRY(fr_conf_section(root, "run", &run));
    FR_TRY(fr__settings_parallel(parallel, s));
    FR_TRY(read_train(train, s));
    FR_TRY(check_messages(parallel, s));
    return read_run(run, config_path, out, s);
}

int64_t fr__settings_n_steps(fr__settings *s, int64_t n_train)
{
    int64_t n = s->steps > 0 ? s->steps : s->epochs * n_train / s->batch;
    if (n < 1) n = 1;
    s->lr.total = n;
    return n;
}
