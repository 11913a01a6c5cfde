/* setup.c -- config -> data set and model -> description of an engine.
 *
 * Data set and model may each leave sizes to the other. A model given by name takes classes,
 * image size and vocabulary from the data, and sets the context length of data that is a stream.
 * For a model given node by node, and for synthetic data, the graph comes first and sets the shapes
 * of the data. */
#include "config/setup.h"

#include "base/alloc.h"
#include "io/conf.h"
#include "io/file.h"
#include "models/weight_map.h"

#include <forerun/models.h>
#include <stdio.h>
#include <string.h>

/* A size of a model given by name: from the config, else the model's default; 0 if the model has no
 * such key. */
static fr_status model_size(fr_conf *model, const fr_model *m, const char *key, int64_t preset,
                            int64_t *size)
{
    *size = 0;
    bool is_known = false;
    for (const char *const *k = m->keys; *k; k++) is_known |= strcmp(*k, key) == 0;
    if (!is_known) return FR_OK;
    *size = preset;
    if (!fr_conf_has(model, key)) return FR_OK;
    return fr_conf_int(model, key, preset, 0, INT32_MAX, size);
}

/* Sizes that the data set takes from a model given by name. */
static fr_status sizes_from_model(fr_conf *model, fr_data_info *want)
{
    const char *name;
    int64_t context;
    FR_TRY(fr_conf_text(model, "name", NULL, &name));
    const fr_model *m = fr_model_find(name);
    if (!m) return FR_OK; /* fr_model_from_conf has the better message */
    FR_TRY(model_size(model, m, "context", m->defaults->context, &context));
    if (context > 0) want->input = FR_SHAPE(m->input == FR_MODEL_PAIR ? 2 * context : context);
    FR_TRY(model_size(model, m, "vocab", 0, &want->vocab));
    if (fr_conf_has(model, "loss")) {
        fr_operator loss;
        FR_TRY(fr_conf_text(model, "loss", NULL, &name));
        want->has_float_targets = fr_operator_parse(name, &loss) && fr_operator_is_loss(loss) &&
                                  loss != FR_OP_CROSS_ENTROPY;
    }
    return model_size(model, m, "classes", 0, &want->n_classes);
}

static void known_from_data(const fr_data_info *d, fr_model_options *known)
{
    known->classes = d->n_classes;
    if (d->has_float_targets)
        known->classes = d->target.n_dims ? d->target.dim[d->target.n_dims - 1] : 1;
    known->vocab = d->vocab;
    if (d->input_dtype == FR_I32) {
        /* One target per token; for a pair of texts, one per token of the second. */
        const fr_shape *tokens =
            d->target.n_dims == 1 && !d->has_float_targets ? &d->target : &d->input;
        known->context = tokens->n_dims == 1 ? tokens->dim[0] : 0;
    } else {
        known->inputs = fr_shape_count(&d->input);
        if (d->input.n_dims == 3 && d->input.dim[1] == d->input.dim[2])
            known->channels = d->input.dim[0], known->image = d->input.dim[1];
    }
}

/* Operators over time may read the length of a sample beside their input. */
static bool reads_length(const fr_graph *g, int node)
{
    for (int i = node + 1; i < fr_graph_n_nodes(g); i++) {
        const fr_node *n = fr_graph_node(g, i);
        int length = fr_graph_length_input(g, n);
        if (length >= 0 && n->inputs[length] == node) return true;
    }
    return false;
}

/* Nodes that a run feeds and reads: the INPUT nodes are found by use, not by name. */
static fr_status find_nodes(fr__setup *s, fr_conf *model)
{
    fr_graph *g = s->graph;
    s->input = s->length = -1;
    s->loss = fr_graph_find_loss(g);
    if (s->loss < 0)
        return fr_conf_fail(model, NULL, "model %s has no loss: nothing to train",
                            fr_graph_name(g));
    if (fr_graph_param_count(g) == 0)
        return fr_conf_fail(model, NULL,
                            "model %s has no parameters: nothing to train; add a node that has "
                            "some, such as linear",
                            fr_graph_name(g));
    s->logits = fr_graph_node(g, s->loss)->inputs[0];
    s->target = fr_graph_node(g, s->loss)->inputs[1];
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        const fr_node *n = fr_graph_node(g, i);
        if (n->op != FR_OP_INPUT || i == s->target) continue;
        int *role = reads_length(g, i) ? &s->length : &s->input;
        if (*role >= 0)
            return fr_conf_fail(model, NULL, "model %s: inputs '%s' and '%s' both read the %s",
                                fr_graph_name(g), fr_graph_node(g, *role)->name, n->name,
                                role == &s->input ? "samples" : "lengths of samples");
        *role = i;
    }
    if (s->input >= 0) return FR_OK;
    return fr_conf_fail(model, NULL, "model %s has no input for samples", fr_graph_name(g));
}

/* The source of ids, through operators that only move them. */
static int source_of(const fr_graph *g, int node)
{
    const fr_node *n = fr_graph_node(g, node);
    bool moves = n->op != FR_OP_INPUT && n->dtype == FR_I32;
    return moves ? source_of(g, n->inputs[0]) : node;
}

/* Number of ids that every embedding of the input accepts; 0: no embedding. */
static int64_t vocab_of(const fr_graph *g, int input)
{
    int64_t vocab = 0;
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        const fr_node *n = fr_graph_node(g, i);
        if (n->op != FR_OP_EMBEDDING || source_of(g, n->inputs[0]) != input) continue;
        if (vocab == 0 || n->attrs.embedding.vocab < vocab) vocab = n->attrs.embedding.vocab;
    }
    return vocab;
}

static int64_t classes_of(const fr__setup *s)
{
    const fr_shape *logits = &fr_graph_node(s->graph, s->logits)->shape;
    return logits->n_dims ? logits->dim[logits->n_dims - 1] : 1;
}

static void sizes_from_graph(const fr__setup *s, fr_data_info *want)
{
    const fr_node *input = fr_graph_node(s->graph, s->input);
    want->input = input->shape;
    want->input_dtype = input->dtype;
    want->target = fr_graph_node(s->graph, s->target)->shape;
    want->has_float_targets = fr_graph_node(s->graph, s->target)->dtype == FR_F32;
    want->n_classes = want->has_float_targets ? 0 : classes_of(s);
    want->vocab = vocab_of(s->graph, s->input);
    want->has_length = s->length >= 0;
}

static bool fits(const fr_shape *model, const fr_shape *data)
{
    /* Samples are plain memory, so a flat input accepts an image with the same number of values. */
    return fr_shape_equal(model, data) ||
           (model->n_dims == 1 && model->dim[0] == fr_shape_count(data));
}

/* Classes or numbers, and their shape. */
static fr_status check_target(const fr__setup *s, fr_conf *model)
{
    const fr_data_info *d = fr_dataset_info(s->data);
    const fr_node *target = fr_graph_node(s->graph, s->target);
    const char *name = fr_graph_name(s->graph), *data = s->data_name;
    const char *loss = fr_operator_name(fr_graph_node(s->graph, s->loss)->op);
    const bool is_float = target->dtype == FR_F32;
    char a[64], b[64];
    if (is_float && !d->has_float_targets)
        return fr_conf_fail(model, NULL,
                            "loss %s reads numbers, the targets of data %s are classes; leave "
                            "model.loss out, or take data with numbers (npy, csv)",
                            loss, data);
    if (!is_float && d->has_float_targets)
        return fr_conf_fail(model, NULL,
                            "loss %s reads classes, the targets of data %s are numbers; set "
                            "model.loss to mse, smooth_l1, bce or cosine, or store classes as "
                            "integers",
                            loss, data);
    fr_shape_text(&target->shape, a, sizeof a), fr_shape_text(&d->target, b, sizeof b);
    if (is_float && !fr_shape_fits(&target->shape, &d->target))
        return fr_conf_fail(model, NULL,
                            "model %s gives numbers %s to loss %s, data %s has targets %s", name, a,
                            loss, data, b);
    if (is_float || fr_shape_equal(&target->shape, &d->target)) return FR_OK;
    return fr_conf_fail(model, NULL,
                        "model %s has targets %s, data %s gives %s: one is for "
                        "classes, the other for next tokens",
                        name, a, data, b);
}

fr_status fr__setup_check_fit(fr__setup *s, fr_conf *model)
{
    const fr_data_info *d = fr_dataset_info(s->data);
    const fr_node *input = fr_graph_node(s->graph, s->input);
    const char *name = fr_graph_name(s->graph), *data = s->data_name;
    char a[64], b[64];
    static const char *const kinds[] = {[FR_F32] = "numbers", [FR_I32] = "token ids"};
    if (input->dtype != d->input_dtype)
        return fr_conf_fail(model, NULL,
                            "model %s reads %s, data %s holds %s; choose a model "
                            "made for this data",
                            name, kinds[input->dtype], data, kinds[d->input_dtype]);
    if (!fits(&input->shape, &d->input))
        return fr_conf_fail(model, NULL,
                            "model %s takes samples %s, data %s gives %s; leave the "
                            "model's sizes out of the config to take those of the data",
                            name, fr_shape_text(&input->shape, a, sizeof a), data,
                            fr_shape_text(&d->input, b, sizeof b));
    FR_TRY(check_target(s, model));
    if (classes_of(s) < d->n_classes)
        return fr_conf_fail(model, NULL,
                            "model %s has %lld classes, data %s has %lld; "
                            "set them equal or leave them out",
                            name, (long long)classes_of(s), data, (long long)d->n_classes);
    int64_t vocab = vocab_of(s->graph, s->input);
    if (vocab > 0 && vocab < d->vocab)
        return fr_conf_fail(model, NULL,
                            "model %s has %lld tokens, data %s has %lld; raise "
                            "model.vocab or leave it out",
                            name, (long long)vocab, data, (long long)d->vocab);
    if (s->length >= 0 && !d->has_length)
        return fr_conf_fail(model, NULL,
                            "model %s needs the length of each sample, data %s has "
                            "none",
                            name, data);
    return FR_OK;
}

static fr_status open_graph(fr__setup *s, fr_conf *model, const fr_model_options *known)
{
    if (!s->graph) FR_TRY(fr_model_from_conf(s->ctx, model, known, &s->graph));
    return find_nodes(s, model);
}

/* A graph that the caller has given keeps its types unless the config has some. */
static fr_status set_precision(fr__setup *s)
{
    fr__settings *t = &s->settings;
    fr_graph *g;
    if (s->is_graph_given && !t->is_precision_given) t->precision = fr_graph_precision(s->graph);
    if (t->precision == fr_graph_precision(s->graph)) return FR_OK;
    FR_TRY(fr_graph_retype(s->ctx, s->graph, t->precision, NULL, &g));
    if (!s->is_graph_given) fr_graph_free(s->graph);
    s->graph = g, s->is_graph_given = false;
    return FR_OK;
}

static fr_status open_data(fr__setup *s, fr_conf *data, const fr_data_info *want)
{
    return s->data ? FR_OK : fr_dataset_open(s->ctx, data, want, &s->data);
}

static fr_status open_both(fr__setup *s, fr_conf *model, fr_conf *data)
{
    fr_data_info want = {0};
    fr_model_options known = {0};
    bool by_name = !s->graph && fr_conf_has(model, "name") && !fr_conf_has(model, "nodes") &&
                   !fr_conf_has(model, "file");
    const fr_data_source *source = fr_data_find(s->data_name);
    if (by_name && !(source && source->has_shapes_of_model)) {
        FR_TRY(sizes_from_model(model, &want));
        FR_TRY(open_data(s, data, &want));
        known_from_data(fr_dataset_info(s->data), &known);
        FR_TRY(open_graph(s, model, &known));
    } else {
        FR_TRY(open_graph(s, model, NULL));
        sizes_from_graph(s, &want);
        FR_TRY(open_data(s, data, &want));
    }
    return fr__setup_check_fit(s, model);
}

/* A section of the config; the config itself if the caller has given this part. */
static fr_status part_section(fr__setup *s, const char *key, bool is_given, fr_conf **out)
{
    *out = s->conf;
    if (!is_given) return fr_conf_section(s->conf, key, out);
    if (!fr_conf_has(s->conf, key)) return FR_OK;
    return fr_conf_fail(s->conf, key, "the caller has given the %s: leave this section out", key);
}

static fr_status open_all(fr__setup *s, const fr_run_options *o)
{
    fr_conf *model, *data;
    const char *name = o->config ? o->config : "config", *text = o->config_text;
    FR_TRY(text ? fr__conf_from_text(s->ctx, text, strlen(text), name, o->n_sets, o->sets, &s->conf)
                : fr_conf_load(s->ctx, name, o->n_sets, o->sets, &s->conf));
    FR_TRY(part_section(s, "model", o->graph, &model));
    FR_TRY(part_section(s, "data", o->data, &data));
    FR_TRY(fr__settings_read(s->conf, name, o->out, &s->settings));
    s->data_name = "given";
    if (!o->data) FR_TRY(fr_conf_text(data, "name", NULL, &s->data_name));
    FR_TRY(open_both(s, model, data));
    if (!o->graph) FR_TRY(fr__model_weights(model, &s->weights, &s->is_weights_strict));
    FR_TRY(set_precision(s));
    FR_TRY(fr__setup_groups(s));
    s->n_steps = fr__settings_n_steps(&s->settings, fr_dataset_info(s->data)->n_train);
    return fr_conf_finish(s->conf);
}

/* A program cannot be held to what it has in padding, which may become a member. */
enum { OPTIONS_SIZE = offsetof(fr_run_options, data) + sizeof(fr_dataset *) };
_Static_assert(sizeof(fr_run_options) == OPTIONS_SIZE, "no padding behind the last option");

fr_status fr__run_options_take(fr_ctx *ctx, const fr_run_options *given, fr_run_options *own)
{
    const char *bytes = (const char *)given;
    if (given->size < OPTIONS_SIZE)
        return fr_fail(
            ctx, FR_INVALID,
            "fr_run_options: size is %zu; set it to sizeof(fr_run_options), which is %zu",
            given->size, sizeof *own);
    for (size_t i = sizeof *own; i < given->size; i++)
        if (bytes[i])
            return fr_fail(ctx, FR_UNSUPPORTED,
                           "fr_run_options: byte %zu is set, but %s has %zu bytes of them; the "
                           "program was built for a newer version of the library",
                           i, fr_version(), sizeof *own);
    memset(own, 0, sizeof *own);
    memcpy(own, given, given->size < sizeof *own ? given->size : sizeof *own);
    own->size = sizeof *own;
    return FR_OK;
}

fr_status fr__setup_open(fr_ctx *ctx, const fr_run_options *o, fr__setup *s)
{
    memset(s, 0, sizeof *s);
    s->ctx = ctx;
    s->team = o->team;
    s->graph = o->graph, s->is_graph_given = o->graph;
    s->data = o->data, s->is_data_given = o->data;
    if (!o->config && !o->config_text) return fr_fail(ctx, FR_INVALID, "no config file was given");
    fr_status status = open_all(s, o);
    if (status != FR_OK) fr__setup_close(s);
    return status;
}

void fr__setup_close(fr__setup *s)
{
    fr__pipeline_close(&s->pipeline);
    if (!s->is_graph_given) fr_graph_free(s->graph);
    if (!s->is_data_given) fr_dataset_close(s->data);
    fr_conf_free(s->conf);
    fr__free(s->groups);
    fr__free(s->group_of);
    memset(s, 0, sizeof *s);
}

fr_loader_desc fr__setup_loader_desc(const fr__setup *s, fr_split split, int batch)
{
    const fr_shape *target = &fr_graph_node(s->graph, s->target)->shape;
    const bool is_cosine = fr_graph_node(s->graph, s->loss)->op == FR_OP_COSINE;
    return (fr_loader_desc){.data = s->data,
                            .split = split,
                            .batch = batch,
                            .seed = s->settings.seed,
                            .target_width = is_cosine ? (int)target->dim[target->n_dims - 1] : 0};
}

static fr_engine_desc engine_desc(const fr__setup *s)
{
    const fr__settings *t = &s->settings;
    return (fr_engine_desc){.graph = s->graph,
                            .backend = t->backend,
                            .n_threads = t->threads,
                            .pin = t->pin,
                            .optimizer = t->optimizer,
                            .options = t->optim,
                            .lr = t->lr,
                            .groups = fr__setup_param_groups(s),
                            .seed = t->seed,
                            .stall_s = t->stall_s};
}

fr_engine_desc fr__setup_eval_desc(const fr__setup *s, int batch, bool want_logits)
{
    fr_engine_desc d = engine_desc(s);
    d.micro_batch = batch, d.n_micro = 1;
    if (want_logits) d.logits_node = s->logits;
    return d;
}

static fr_status check_fault(fr__setup *s)
{
    fr_conf *run;
    int n = s->pipeline.schedule->n_workers;
    FR_TRY(fr_conf_section(s->conf, "run", &run));
    if (s->settings.fault.worker < n) return FR_OK;
    return fr_conf_fail(run, "fault", "worker %d is to fail, the run has workers 0 to %d",
                        s->settings.fault.worker, n - 1);
}

fr_status fr__setup_pipeline(fr__setup *s)
{
    fr__pipeline_close(&s->pipeline);
    FR_TRY(fr__pipeline_open(s->ctx, s->conf, &s->settings, s->graph, s->n_steps,
                             fr_team_size(s->team), &s->pipeline));
    return check_fault(s);
}

fr_engine_desc fr__setup_train_desc(const fr__setup *s, bool keep_grads, bool want_ledger)
{
    const fr__settings *t = &s->settings;
    const fr__pipeline *p = &s->pipeline;
    fr_engine_desc d = engine_desc(s);
    d.graph = p->graph;
    d.team = s->team;
    d.transport = t->transport;
    d.sync = p->sync;
    d.exact_sum = t->exact_sum;
    d.recompute = p->recompute;
    d.n_stages = p->n_stages, d.stages = p->stages;
    d.schedule = p->schedule;
    d.policy = t->policy;
    d.policy_options = fr__settings_policy_options(t);
    d.micro_batch = (int)(t->batch / t->micro);
    d.n_micro = (int)t->micro;
    d.clip_norm = t->clip_norm;
    d.clip_late = t->clip_late;
    d.want_norm = t->grad_norm;
    d.keep_grads = keep_grads;
    d.fault = &t->fault;
    d.want_ledger = want_ledger;
    d.n_events = t->n_events;
    d.n_samples = t->n_samples;
    d.want_snapshots = t->checkpoint_every > 0;
    if (s->want_outputs) d.logits_node = s->logits;
    return d;
}

fr_status fr__setup_forecast(const fr__setup *s, fr_memory_use *out)
{
    fr_engine_desc d = fr__setup_train_desc(s, false, false);
    d.team = NULL;
    return fr_engine_forecast(s->ctx, &d, out);
}

size_t fr__setup_largest_param(const fr_graph *g)
{
    int64_t most = 1;
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        int64_t n = fr_shape_count(&fr_graph_param(g, i)->shape);
        if (n > most) most = n;
    }
    return (size_t)most;
}

/* Checks everything first, so a config that is written can run. */
static fr_status save_config(fr__setup *s, const char *comment, const char *path)
{
    fr__text text = {0};
    FR_TRY(fr__pipeline_open(s->ctx, s->conf, &s->settings, s->graph, s->n_steps, 0, &s->pipeline));
    for (const char *line = comment; line && *line;) {
        size_t n = strcspn(line, "\n");
        fr__text_printf(&text, "# %.*s\n", n < 500 ? (int)n : 500, line);
        line += n + (line[n] != '\0');
    }
    fr__conf_format(s->conf, &text);
    fr_status status = text.failed ? fr__no_memory(s->ctx, text.n, "config")
                                   : fr__file_replace(s->ctx, path, text.at, text.n);
    fr__text_fini(&text);
    return status;
}

fr_status fr_run_save_config(fr_ctx *ctx, const fr_run_options *o, const char *comment,
                             const char *path)
{
    fr__setup s;
    fr_run_options own;
    FR_TRY(fr__run_options_take(ctx, o, &own));
    FR_TRY(fr__setup_open(ctx, &own, &s));
    fr_status status = save_config(&s, comment, path);
    fr__setup_close(&s);
    return status;
}
