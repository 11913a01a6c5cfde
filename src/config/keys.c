/* keys.c -- the keys of `train`, `parallel` and `run`, and all tables of keys together. */
#include "config/settings.h"

#include "io/units.h"

#include <forerun/cost.h>
#include <forerun/data.h>
#include <forerun/models.h>

#include <stdio.h>
#include <string.h>

FR_NAMES(optimizer_name, fr_optim_list)
FR_NAMES(schedule_name, fr_lr_list)
FR_NAMES(method_name, fr_method_list)
FR_NAMES(policy_name, fr_policy_list)
FR_NAMES(sync_name, fr_sync_list)

static const char *transport_name(int i)
{
    if (i == 0) return "auto";
    return fr_transport_list()[i - 1] ? fr_transport_list()[i - 1]->name : NULL;
}

static const char *backend_name(int i)
{
    return fr_backend_list()[i] ? fr_backend_name(fr_backend_list()[i]) : NULL;
}

FR_WORDS(metric_name, "loss", "accuracy")
FR_WORDS(memory_name, "refuse", "warn")
FR_WORDS(clip_name, "stage", "late")
FR_WORDS(shape_name, "linear", "cosine", "sqrt")
FR_WORDS(type_name, "fp32", "bf16")
FR_WORDS(kind_name, "measured", "emulated", "simulated", "published")

#define TO(member) FR_AT(fr__settings, member)
#define IN(member) FR_AT(fr__group_settings, member)
#define OPTIMIZER "train.optimizer."
#define GROUPS "train.groups[]."
#define SCHEDULE "train.schedule."
#define PARALLEL "parallel."
#define COMPARE "compare."

static const fr_key keys[] = {
    FR_INT("train.batch", "128", 1, 1 << 24, "samples in one update, over all replicas", TO(batch)),
    FR_INT("train.micro", "1", 1, 1 << 24,
           "micro-batches it is split into; with replicas the smallest multiple of every stage's "
           "number of replicas",
           TO(micro)),
    FR_INT("train.epochs", "1", 0, 1000000,
           "times through the training data, in whole mini-batches", TO(epochs)),
    FR_INT("train.steps", "0", 0, INT64_MAX / (1 << 24),
           "number of updates; above 0 it wins over epochs", TO(steps)),
    FR_INT("train.seed", "1", 0, INFINITY, "of weights, order of data, augmentation, dropout",
           TO(seed)),
    FR_REAL("train.clip_norm", "0", 0, FLT_MAX,
            "largest norm of the gradient, of a stage with asynchronous methods; 0: no clipping",
            TO(clip_norm)),
    FR_TEXT("train.clip", "stage",
            "asynchronous methods clip by the norm of the stage alone, or (late) also by that of "
            "the whole model, known some updates later",
            TO(clip), .choice = clip_name, .refusal = "'%s' is neither 'stage' nor 'late'"),
    FR_TEXT(
        "train.precision", "fp32",
        "type of activations, of their gradients, and of the weights that passes read; updates, "
        "gradients of weights and checkpoints are fp32 with either",
        TO(precision_name), .choice = type_name, .refusal = "'%s' is neither 'fp32' nor 'bf16'"),
    FR_BOOL("train.exact_sum", "false",
            "gradients of micro-batches added along a fixed tree: the same bits for any power of "
            "two of replicas",
            TO(exact_sum)),
    FR_INT("train.stop.patience", "0", 0, INFINITY,
           "evaluations in a row without a better one, after which the run ends early; 0: never",
           TO(stop_patience)),
    FR_TEXT("train.stop.metric", "loss", "what is better: a lower loss or a higher accuracy",
            TO(stop_metric), .choice = metric_name,
            .refusal = "'%s' is neither 'loss' nor 'accuracy'"),
    FR_REAL("train.stop.min_delta", "0", 0, FLT_MAX, "smallest difference that counts as better",
            TO(stop_min_delta)),
    FR_TEXT(OPTIMIZER "name", "sgd", "the rule of an update", .choice = optimizer_name,
            .refusal = "no optimizer is called '%s'; there are: %s"),
    FR_REAL(OPTIMIZER "lr", "(the optimizer's)", 0, FLT_MAX, "learning rate", TO(optim.lr)),
    FR_REAL(OPTIMIZER "weight_decay", "(the optimizer's)", 0, FLT_MAX,
            "pull towards zero; adamw, muon, lion: beside the gradient, others: in it",
            TO(optim.weight_decay)),
    FR_REAL(OPTIMIZER "momentum", "(0; muon: 0.95)", 0, 1, "share of the last direction that stays",
            TO(optim.momentum)),
    FR_REAL(
        OPTIMIZER "dampening", "0", 0, 1,
        "share of the gradient that is left out of the momentum, but for the first update, which "
        "takes all of it, as in PyTorch; SpecTrain's rule is momentum with lr x (1 - momentum)",
        TO(optim.dampening)),
    FR_BOOL(OPTIMIZER "nesterov", "(false; muon: true)",
            "step as if the momentum had been applied already", TO(optim.nesterov)),
    FR_REAL(OPTIMIZER "beta1", "0.9", 0, 1,
            "memory of the mean of gradients; lion: share of that mean in a step", TO(optim.beta1)),
    FR_REAL(OPTIMIZER "beta2", "(0.999; lion: 0.99)", 0, 1,
            "memory of the mean of their squares; lion: of the mean of gradients", TO(optim.beta2)),
    FR_REAL(OPTIMIZER "eps", "1e-08", 0, 1, "added to the root of that mean", TO(optim.eps)),
    FR_REAL(OPTIMIZER "momentum_decay", "0.004", 0, 1, "how slowly beta1 is reached",
            TO(optim.momentum_decay)),
    FR_REAL(OPTIMIZER "adamw_factor", "1", 0, FLT_MAX,
            "learning rate of the weights that are not matrices of hidden layers, as a multiple of "
            "lr",
            TO(optim.adamw_factor)),
    FR_BOOL(OPTIMIZER "match_rms_adamw", "true",
            "matrices move as far as with adamw: steps times 0.2 sqrt(max(rows, columns)); false: "
            "times sqrt(max(1, rows / columns))",
            TO(optim.match_rms_adamw)),
    FR_ITEMS("train.groups", NULL,
             "parameters with a rate or a weight decay of their own, or none at all; the first "
             "group that matches decides"),
    FR_TEXT(GROUPS "match", "",
            "name of a parameter, as layer1.weight; * stands for any text, as *.bias", IN(match)),
    FR_REAL(GROUPS "lr_factor", "1", 0, FLT_MAX, "learning rate, as a multiple of the others'",
            IN(lr_factor)),
    FR_REAL(GROUPS "weight_decay", "(the optimizer's)", 0, FLT_MAX,
            "in place of train.optimizer.weight_decay", IN(weight_decay)),
    FR_BOOL(GROUPS "freeze", "false",
            "keep the values: no update, and no gradients that only they would need", IN(freeze)),
    FR_TEXT(SCHEDULE "name", "constant", "how the learning rate changes", .choice = schedule_name,
            .refusal = "no learning-rate schedule is called '%s'; there are: %s", TO(lr.name)),
    FR_INT(SCHEDULE "warmup", "0", 0, INFINITY, "updates of linear rise at the start",
           TO(lr.warmup)),
    FR_INT(SCHEDULE "every", "1000", 1, INFINITY, "updates from one step down to the next",
           TO(lr.every)),
    FR_REAL(SCHEDULE "gamma", "0.1", 0, FLT_MAX, "what a step down multiplies by", TO(lr.gamma)),
    FR_REAL(SCHEDULE "power", "1", 0, FLT_MAX, "exponent of the descent; 1: a straight line",
            TO(lr.power)),
    FR_REAL(SCHEDULE "min_ratio", "0", 0, 1, "share of lr that is left at the end",
            TO(lr.min_ratio)),
    FR_REAL(SCHEDULE "decay", "0.1", 0, 1, "last share of the run, in which the rate falls",
            TO(lr.decay)),
    FR_REAL(SCHEDULE "rise", "0.3", 0, 1, "first share of the run, in which the rate rises to lr",
            TO(lr.rise)),
    FR_REAL(SCHEDULE "start_ratio", "0.04", 0, 1, "share of lr that the first update has",
            TO(lr.start_ratio)),
    FR_TEXT(SCHEDULE "shape", "(cosine; wsd: linear)",
            "of the descent; sqrt: 1 - sqrt(share of it that is over)", .choice = shape_name,
            .refusal = "no shape of a descent is called '%s'; there are: %s", TO(lr.shape)),
    FR_INT(SCHEDULE "timescale", "(warmup; without one 10000)", 1, INFINITY,
           "updates after the warm-up until the rate is lr / sqrt(2)", TO(lr.timescale)),

    FR_TEXT(PARALLEL "method", "single", "how the run is spread over workers",
            .choice = method_name, .refusal = "this build has no method '%s'; there are: %s"),
    FR_INT(PARALLEL "stages", "1", 1, FR_MAX_STAGES,
           "parts the model is cut into; unless given, as cuts, replicas or the schedule file have "
           "it",
           TO(stages)),
    FR_TEXTS(
        PARALLEL "cuts", NULL,
        "names of the nodes that begin a stage, the first one left out; none: balanced by work"),
    FR_INT(PARALLEL "chunks", NULL, 1, FR_MAX_STAGES, "stages per worker (1; interleaved: 2)",
           TO(chunks)),
    FR_INT(
        PARALLEL "lead", NULL, 1, FR_MAX_STAGES,
        "micro-batches that a stage of 1f1b and of asynchronous methods starts per stage to come "
        "before its first backward (1); 2 and more hide slow links and take memory",
        TO(lead)),
    FR_BOOL(PARALLEL "reorder", "false",
            "v-half and v-min: a shorter fill and drain in the same memory", TO(reorder)),
    FR_INT(
        PARALLEL "replicas", "1", 1, FR_MAX_REPLICAS,
        "workers of each stage, which share its micro-batches; a list: one number for each stage"),
    FR_TEXT(PARALLEL "sync.name", "(the method's)", "how replicas are kept in sync",
            .choice = sync_name, .refusal = "unknown parallel.sync '%s'; there are: %s",
            TO(sync.name)),
    FR_INT(PARALLEL "sync.every", "1", 1, INT32_MAX,
           "updates from one mean of the weights to the next", .of = "average", TO(sync.every)),
    FR_INT(PARALLEL "sync.every", NULL, 1, INT32_MAX,
           "updates per wave; default: those in flight in the pipeline", .of = "wsp",
           TO(sync.every)),
    FR_INT(PARALLEL "sync.distance", "0", 0, INT32_MAX,
           "waves that a replica may be ahead of the last known wave of the others", .of = "wsp",
           TO(sync.distance)),
    FR_TEXT(PARALLEL "weights", "(the method's)", "which weights a pass reads: weight policy",
            .choice = policy_name, .refusal = "no weight policy is called '%s'; there are: %s"),
    FR_TEXT(PARALLEL "schedule_file", NULL, "a schedule in place of the method's: text or CSV"),
    FR_INT(PARALLEL "segment", "256", 1, 1 << 20, "most mini-batches between two drains",
           .of = "methods without flush", TO(segment)),
    FR_BOOL(PARALLEL "xpipe.exact", "false",
            "exact counts of updates in place of the paper's rounding", .of = "xpipe", TO(exact)),
    FR_INT(PARALLEL "pipemare.warmup", "0", 0, INFINITY,
           "updates until all stages have the full learning rate", .of = "pipemare", TO(lr_warmup)),
    FR_TEXT(PARALLEL "transport", "auto", "what carries tensors between workers",
            .choice = transport_name, .refusal = "this build has no transport '%s'; there are: %s"),
    FR_TEXT(PARALLEL "messages", "(train.precision)",
            "type of the values and gradients that one worker sends to the next; bf16 halves the "
            "bytes of an fp32 run",
            .choice = type_name, .refusal = "'%s' is neither 'fp32' nor 'bf16'"),
    FR_INT(PARALLEL "workers_per_rank", "1", 1, FR_MAX_STAGES,
           "workers of each process, where there are several", TO(workers_per_rank)),
    FR_INT(PARALLEL "threads", "0", 0, 4096, "threads per worker; 0: an equal share of the cores",
           TO(threads)),
    FR_BOOL(PARALLEL "pin", "true", "each worker on cores of its own, if there are enough",
            TO(pin)),
    FR_TEXT(PARALLEL "backend", "(the first)", "which backend computes", .choice = backend_name,
            .refusal = "no backend is called '%s'; there are: %s"),
    FR_BOOL(
        PARALLEL "recompute", "(false)",
        "compute activations again before the backward instead of keeping them; a list: of "
        "these stages (numbers) and nodes (names; * stands for any text); auto: the cheapest nodes "
        "with which each worker is within its memory"),
    FR_AMOUNT(PARALLEL "memory", "(0)", FR_UNIT_BYTES, 0, 1e18,
              "memory that each worker may take, as 2 GB; 0: that of its device in the cluster",
              TO(worker_memory)),
    FR_TEXT(PARALLEL "cluster", NULL, "cluster file: the run is emulated on it"),
    FR_INTS(PARALLEL "devices", NULL, "the device of each worker; none: worker w on device w",
            .of = "emulated runs"),
    FR_REAL(PARALLEL "emulation.scale", "0", 0, 1e9,
            "wall-clock seconds per emulated second; 0: as many as this machine needs",
            .of = "emulated runs", TO(scale)),
    FR_TEXT(PARALLEL "profile", NULL, "profile for forecast and emulation, instead of measuring"),

    FR_TEXT("run.out", "(runs/NAME-OF-CONFIG)", "the run's folder; --out replaces it", TO(out)),
    FR_INT("run.checkpoint_every", "0", 0, INFINITY,
           "updates between checkpoints; 0: one at the end", TO(checkpoint_every)),
    FR_INT("run.eval_every", "0", -1, INFINITY,
           "updates between evaluations; 0: one at the end; -1: none", TO(eval_every)),
    FR_INT("run.keep", "3", 1, INT32_MAX, "number of checkpoints to keep", TO(keep)),
    FR_BOOL("run.keep_best", "false",
            "save and keep the checkpoint of the best evaluation (train.stop.metric), too",
            TO(keep_best)),
    FR_BOOL("run.grad_norm", "false", "report the norm of the gradient; with clipping it always is",
            TO(grad_norm)),
    FR_BOOL("run.predict", "true", "measure the stages first and forecast the time of a mini-batch",
            TO(forecasts)),
    FR_REAL("run.predict_s", "0", 0, 3600,
            "seconds spent on that; 0: a tenth of the run, 2 at most; where that is too little, "
            "the first mini-batches of the run give the forecast",
            TO(forecast_s)),
    FR_TEXT("run.memory", "refuse",
            "what to do if a run needs more memory than is available: refuse to start, or warn",
            TO(memory), .choice = memory_name, .refusal = "'%s' is neither 'refuse' nor 'warn'"),
    FR_BOOL("run.csv", "true", "write metrics.csv, too", TO(csv)),
    FR_BOOL("run.tensorboard", "true", "write events.out.tfevents.*, too", TO(tensorboard)),
    FR_BOOL("run.report", "true", "write report.html at the end", TO(report)),
    FR_REAL("run.stall_timeout", "30", 0.01, 1e6,
            "seconds without a heartbeat of a worker before the run is aborted", TO(stall_s)),
    FR_INT("run.trace", "2500", 0, 1 << 28,
           "events of each worker kept for trace.json; 0: no trace", TO(n_events)),
    FR_INT("run.prediction_samples", "1024", 0, 1 << 28,
           "weights of a stage watched for the prediction error; 0: none", TO(n_samples)),
    FR_TEXT("run.fault", NULL, "for tests: what goes wrong, where, when, as error:worker=1,step=3"),

    /* Read by `forerun compare`, left alone by all others. */
    FR_TEXT(COMPARE "title", "(none)", "heading of table and report"),
    FR_TEXT(COMPARE "note", "(none)", "note below the table"),
    FR_TEXT(COMPARE "baseline", "(the first case)", "speed-ups are over this case"),
    FR_INT(COMPARE "seeds", "1", 1, 1000, "runs of each case: train.seed and those after it"),
    FR_BOOL(COMPARE "checkpoints", "true", "keep the checkpoints of finished runs"),
    FR_TEXTS(COMPARE "columns", "(the usual ones)", "of the table"),
    FR_ITEMS(COMPARE "groups", NULL, "parts of the table; every case is run in each"),
    FR_TEXT(COMPARE "groups[].name", "", "of the group"),
    FR_TEXT(COMPARE "groups[].baseline", "(compare.baseline)",
            "speed-ups in this group are over this case"),
    FR_ITEMS(COMPARE "groups[].set", NULL, "keys with the values that they have in this group"),
    FR_ITEMS(COMPARE "cases", "", "what is compared"),
    FR_TEXT(COMPARE "cases[].name", "", "of the case, and of its folder"),
    FR_TEXTS(COMPARE "cases[].group", "(all)", "groups it is run in"),
    FR_TEXT(COMPARE "cases[].kind", "measured", "what its numbers are", .choice = kind_name,
            .refusal = "no kind is called '%s'; there are: measured, emulated (with "
                       "parallel.cluster), simulated, published"),
    FR_ITEMS(COMPARE "cases[].set", NULL, "keys with the values that they have in this case"),
    FR_ITEMS(COMPARE "cases[].published", NULL, "columns with published numbers"),
    FR_TEXT(COMPARE "cases[].published.source", "", "source of the published numbers"),
    FR_KEY_END,
};

typedef const fr_key *(*table)(void);
const fr_key *fr__settings_keys(void) { return keys; }
static const table tables[] = {fr_model_keys, fr_data_keys, fr__settings_keys, fr_cluster_keys};
enum { N_TABLES = sizeof tables / sizeof *tables };

const fr_key *fr_key_at(int i)
{
    for (int t = 0; t < N_TABLES; t++)
        for (const fr_key *k = tables[t](); k->path; k++)
            if (i-- == 0) return k;
    return NULL;
}

static bool has_word(const char *const *words, const char *word)
{
    while (*words && strcmp(*words, word) != 0) words++;
    return *words != NULL;
}

/* Records that name their keys: add those that have this one. */
#define ADD_USERS(section, list)                                           \
    if (strncmp(key->path, section, sizeof section - 1) == 0)              \
        for (int i = 0; (list)[i]; i++)                                    \
            if (has_word((list)[i]->keys, key->path + sizeof section - 1)) \
                fr__append_name(text, room, (list)[i]->name);

const char *fr_key_users(const fr_key *key, char *text, size_t room)
{
    text[0] = '\0';
    if (key->of) {
        snprintf(text, room, "%s", key->of);
        return text;
    }
    ADD_USERS("model.", fr_model_list())
    ADD_USERS("train.optimizer.", fr_optim_list())
    ADD_USERS("train.schedule.", fr_lr_list())
    return text;
}

const char *fr_key_kind_name(fr_key_kind kind)
{
    static const char *const names[] = {
        [FR_KEY_INT] = "integer", [FR_KEY_REAL] = "number",    [FR_KEY_BOOL] = "boolean",
        [FR_KEY_TEXT] = "text",   [FR_KEY_AMOUNT] = "amount",  [FR_KEY_INTS] = "integers",
        [FR_KEY_TEXTS] = "texts", [FR_KEY_ITEMS] = "mappings",
    };
    return names[kind];
}

const char *fr_key_range(const fr_key *key, char *text, size_t room)
{
    text[0] = '\0';
    if (key->choice) {
        for (int i = 0; key->choice(i); i++) fr__append_name(text, room, key->choice(i));
    } else if (key->kind == FR_KEY_BOOL) {
        snprintf(text, room, "true, false");
    } else if (key->kind == FR_KEY_INT || key->kind == FR_KEY_REAL) {
        bool is_open = isinf(key->max) || key->max >= INT32_MAX;
        if (is_open)
            snprintf(text, room, "from %.10g", key->min);
        else
            snprintf(text, room, "%.10g to %.10g", key->min, key->max);
    }
    return text;
}
