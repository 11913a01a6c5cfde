/* step.c -- training speed: forward, backward and update on a fixed synthetic batch.
 *
 *     bench_step --model NAME [--threads N] [--batch N] [--micro N] [--steps N]
 *                [--repeats N] [--warmup N] [--backend NAME] [--optimizer NAME]
 *                [--method NAME] [--stages N] [--precision fp32|bf16]
 *
 * Prints one JSON object. A repeat is `steps` mini-batches; samples_per_s is the best repeat,
 * median_samples_per_s the median. The pipeline is drained between repeats, so with several stages
 * `steps` should be long. bench/compare.py runs it beside PyTorch. */
#include <forerun/engine.h>
#include <forerun/exec_plan.h>
#include <forerun/models.h>
#include <forerun/train.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "base/thread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPEATS = 1000, MAX_STAGES = 64 };

#define SMALL_GPT .layers = 6, .width = 384, .heads = 6, .context = 128, .vocab = 256

static const struct model_case {
    const char *name, *model;
    int batch;
    fr_model_options options;
} cases[] = {
    {"mlp", "mlp", 64, {.inputs = 2048, .depth = 8, .width = 2048, .classes = 10}},
    {"vgg16", "vgg16", 32, {.image = 32, .channels = 3, .classes = 10}},
    {"resnet50", "resnet50", 16, {.image = 32, .channels = 3, .classes = 10}},
    {"cnn", "cnn", 64, {.image = 28, .channels = 1, .classes = 10}},
    {"gpt", "gpt", 16, {SMALL_GPT}},
    {"gpt-tied", "gpt", 16, {SMALL_GPT, .tied = true}},
    {"gpt2", /* the small one, of 124 million parameters */
     "gpt",
     4,
     {.layers = 12, .width = 768, .heads = 12, .context = 64, .vocab = 50257, .tied = true}},
};

typedef struct settings {
    const struct model_case *model;
    const fr_backend *backend;
    const fr_optimizer *optimizer;
    const fr_method *method;
    int threads, batch, micro, steps, repeats, warmup, stages;
    fr_dtype precision;
} settings;

/* A batch in host memory: input and target for the INPUT nodes of the graph. */
typedef struct data {
    void *input;
    int32_t *target;
    int64_t n_targets;
} data;

static uint32_t draw(uint32_t stream, size_t i)
{
    uint32_t r[4];
    fr__random4(1, FR_STREAM_SYNTHETIC, stream, i, 0, r);
    return r[0];
}

/* Numbers with mean 0 and variance 1, or tokens; targets are random classes. */
static fr_status make_data(fr_ctx *ctx, const fr_graph *g, int batch, data *d)
{
    const fr_node *loss = fr_graph_node(g, fr_graph_find_op(g, FR_OP_CROSS_ENTROPY));
    const fr_node *logits = fr_graph_node(g, loss->inputs[0]);
    const fr_node *target = fr_graph_node(g, loss->inputs[1]);
    const fr_node *input = fr_graph_node(g, fr_graph_find(g, "input"));
    uint32_t n_classes = (uint32_t)logits->shape.dim[logits->shape.n_dims - 1];
    size_t n_input = (size_t)batch * (size_t)fr_shape_count(&input->shape);
    d->n_targets = batch * fr_shape_count(&target->shape);
    d->input = fr__alloc(4 * n_input);
    d->target = FR_NEW_ARRAY(int32_t, d->n_targets);
    if (!d->input || !d->target) return fr__no_memory(ctx, 4 * n_input, "a batch");
    for (size_t i = 0; i < n_input; i++) {
        if (input->dtype == FR_I32)
            ((int32_t *)d->input)[i] = (int32_t)(draw(1, i) % n_classes);
        else
            ((float *)d->input)[i] = (2 * fr__unit_float(draw(1, i)) - 1) * sqrtf(3);
    }
    for (size_t i = 0; i < (size_t)d->n_targets; i++)
        d->target[i] = (int32_t)(draw(2, i) % n_classes);
    return FR_OK;
}

/* The engine receives the same batch every time. */
static fr_status give(void *user, fr_feed *out)
{
    const data *d = user;
    *out = (fr_feed){.input = d->input, .target = d->target, .n_targets = d->n_targets};
    return FR_OK;
}
static void take_back(void *user) { (void)user; }

static bool note_loss(void *user, const fr_batch_report *r)
{
    *(double *)user = r->tally.loss / (double)r->tally.targets;
    return true;
}

/* Set rates[] to the rate of each repeat; return the mean loss of the last mini-batch. */
static fr_status measure(fr_engine *e, const settings *s, data *d, double *rates, double *loss)
{
    fr_source source = {.user = d, .next = give, .release = take_back};
    int64_t step = 0, n_done;
    for (int r = -1; r < s->repeats; r++) { /* round -1: warm-up */
        int steps = r < 0 ? s->warmup : s->steps;
        uint64_t start = fr__now_ns();
        FR_TRY(fr_engine_train(e, step, steps, &source, note_loss, loss, NULL, &n_done));
        double seconds = (double)(fr__now_ns() - start) * 1e-9;
        if (r >= 0) rates[r] = steps * s->batch / seconds;
        step += steps;
    }
    return FR_OK;
}

static int by_rate(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Memory of the largest worker, and busy share of the busiest one. */
static void report(const fr_graph *g, const fr_engine *e, const settings *s, double *rates,
                   double loss)
{
    const fr_memory_use *use = fr_engine_predicted(e, 0);
    size_t peak = fr_engine_peak_bytes(e, 0);
    double busy = 0;
    for (int i = 0; i < fr_engine_n_workers(e); i++) {
        const fr_worker_times *t = fr_engine_times(e, i);
        double mine = 0;
        for (int k = FR_SPENT_FORWARD; k <= FR_SPENT_STEP; k++) mine += (double)t->ns[k];
        busy = fmax(busy, mine / (double)t->wall_ns);
        if (fr_engine_peak_bytes(e, i) > peak)
            peak = fr_engine_peak_bytes(e, i), use = fr_engine_predicted(e, i);
    }
    qsort(rates, (size_t)s->repeats, sizeof *rates, by_rate);
    printf("{\"model\": \"%s\", \"backend\": \"%s\", \"about\": \"%s\", \"threads\": %d, "
           "\"batch\": %d, \"micro\": %d, \"optimizer\": \"%s\", \"steps\": %d, \"repeats\": %d, "
           "\"parameters\": %lld, \"loss\": %.6f, \"samples_per_s\": %.3f, "
           "\"median_samples_per_s\": %.3f, ",
           s->model->name, fr_backend_name(s->backend), fr_engine_about(e), s->threads, s->batch,
           s->micro, s->optimizer->name, s->steps, s->repeats, (long long)fr_graph_param_count(g),
           loss, rates[s->repeats - 1], rates[s->repeats / 2]);
    printf("\"precision\": \"%s\", \"method\": \"%s\", \"stages\": %d, \"busiest_share\": %.4f, ",
           s->precision == FR_BF16 ? "bf16" : "fp32", s->method->name, s->stages, busy);
    printf("\"predicted_bytes\": {\"weights\": %zu, \"grads\": %zu, \"optimizer\": %zu, "
           "\"buffers\": %zu, \"slots\": %zu, \"workspace\": %zu, \"cache\": %zu, \"io\": %zu, "
           "\"total\": %zu}, \"peak_bytes\": %zu, \"peak_rss_bytes\": %zu}\n",
           use->weights, use->grads, use->optimizer, use->buffers, use->slots, use->workspace,
           use->cache, use->io, use->total, peak, fr__peak_rss());
}

static fr_status make_schedule(fr_ctx *ctx, fr_graph *g, const settings *s, fr_stage *stages,
                               const fr_schedule **out)
{
    static fr_link links[2][MAX_STAGES * MAX_STAGES];
    int cuts[MAX_STAGES];
    const fr_generator *gen = fr_generator_find(s->method->generator);
    int n[2];
    if (!gen) return fr_fail(ctx, FR_INVALID, "no schedule called %s", s->method->generator);
    FR_TRY(fr_graph_balance(g, s->stages, cuts));
    FR_TRY(fr_graph_cut(g, s->stages - 1, cuts, stages));
    FR_TRY(fr_graph_links(g, s->stages, stages, &n[0], links[0], &n[1], links[1]));
    bool has_far_ties = fr_exec_find_far_tie(g, s->stages, stages) >= 0;
    fr_schedule_desc d = {.n_stages = s->stages,
                          .chunks = s->method->chunks,
                          .n_micro = s->micro,
                          .n_batches = gen->is_flush ? 1 : s->steps,
                          .n_forward = n[0],
                          .n_backward = n[1],
                          .forward = links[0],
                          .backward = links[1],
                          .must_reduce =
                              fr_exec_must_reduce(gen->is_flush, has_far_ties, 0, false)};
    const char *wrong = gen->check ? gen->check(&d) : NULL;
    if (wrong) return fr_fail(ctx, FR_INVALID, "method %s: %s", s->method->name, wrong);
    FR_TRY(fr_schedule_create(ctx, gen, &d, out));
    return fr_schedule_check(ctx, *out);
}

static fr_status make_graph(fr_ctx *ctx, const settings *s, fr_graph **out)
{
    fr_graph *g;
    FR_TRY(fr_model_build(ctx, fr_model_find(s->model->model), &s->model->options, &g));
    fr_status status = fr_graph_retype(ctx, g, s->precision, NULL, out);
    fr_graph_free(g);
    return status;
}

static fr_status run(fr_ctx *ctx, const settings *s)
{
    static double rates[MAX_REPEATS];
    fr_stage stages[MAX_STAGES];
    double loss = NAN;
    fr_graph *g = NULL;
    fr_engine *e = NULL;
    const fr_schedule *schedule = NULL;
    data d = {0};
    fr_engine_desc desc = {.backend = s->backend,
                           .n_threads = s->threads,
                           .pin = s->stages > 1,
                           .micro_batch = s->batch / s->micro,
                           .n_micro = s->micro,
                           .policy = fr_policy_find(s->method->policy),
                           .optimizer = s->optimizer,
                           .seed = 1};
    fr_status status;
    s->optimizer->defaults(&desc.options);
    fr_lr_defaults(&desc.lr);
    desc.options.momentum = 0.9;
    desc.options.lr = 1e-3;
    FR_TRY_GOTO(status, make_graph(ctx, s, &g), done);
    FR_TRY_GOTO(status, make_schedule(ctx, g, s, stages, &schedule), done);
    desc.graph = g, desc.n_stages = s->stages, desc.stages = stages, desc.schedule = schedule;
    FR_TRY_GOTO(status, make_data(ctx, g, s->batch, &d), done);
    FR_TRY_GOTO(status, fr_engine_create(ctx, &desc, &e), done);
    FR_TRY_GOTO(status, measure(e, s, &d, rates, &loss), done);
    report(g, e, s, rates, loss);
done:
    fr_engine_free(e);
    fr_schedule_free(schedule);
    fr__free(d.input);
    fr__free(d.target);
    fr_graph_free(g);
    return status;
}

static int usage(const char *problem, const char *what)
{
    fprintf(
        stderr,
        "bench_step: %s %s\nusage: bench_step --model mlp|vgg16|resnet50|cnn|gpt|gpt-tied|gpt2\n"
        "       [--threads N] [--batch N] [--micro N] [--steps N] [--repeats N] [--warmup N] "
        "[--backend NAME] "
        "[--optimizer NAME]\n       [--method NAME] [--stages N] [--precision fp32|bf16]\n",
        problem, what);
    return 2;
}

/* NULL if key = value is valid, else the error. */
static const char *set(settings *s, const char *key, const char *value)
{
    const struct {
        const char *key;
        int *to, min, max;
    } numbers[] = {
        {"--threads", &s->threads, 1, 1024},    {"--batch", &s->batch, 1, 1 << 20},
        {"--micro", &s->micro, 1, 1 << 20},     {"--steps", &s->steps, 1, 1 << 20},
        {"--warmup", &s->warmup, 0, 1 << 20},   {"--repeats", &s->repeats, 1, MAX_REPEATS},
        {"--stages", &s->stages, 1, MAX_STAGES}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(key, numbers[i].key) != 0) continue;
        char *end;
        long n = strtol(value, &end, 10);
        if (*end || end == value || n < numbers[i].min || n > numbers[i].max)
            return "not a count in range:";
        *numbers[i].to = (int)n;
        return NULL;
    }
    if (strcmp(key, "--backend") == 0)
        return (s->backend = fr_backend_find(value)) ? NULL : "no such backend:";
    if (strcmp(key, "--optimizer") == 0)
        return (s->optimizer = fr_optim_find(value)) ? NULL : "no such optimizer:";
    if (strcmp(key, "--method") == 0)
        return (s->method = fr_method_find(value)) ? NULL : "no such method:";
    if (strcmp(key, "--precision") == 0) {
        s->precision = strcmp(value, "bf16") == 0 ? FR_BF16 : FR_F32;
        return s->precision == FR_BF16 || strcmp(value, "fp32") == 0 ? NULL : "no such precision:";
    }
    if (strcmp(key, "--model") != 0) return "unknown option before";
    s->model = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(value, cases[i].name) == 0) s->model = &cases[i];
    return s->model ? NULL : "no such model:";
}

int main(int argc, char **argv)
{
    settings s = {.backend = fr_backend_list()[0],
                  .optimizer = fr_optim_find("sgd"),
                  .method = fr_method_find("single"),
                  .stages = 1,
                  .threads = 1,
                  .micro = 1,
                  .steps = 5,
                  .repeats = 5,
                  .warmup = 3};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return usage("no value after", argv[i]);
        const char *wrong = set(&s, argv[i], argv[i + 1]);
        if (wrong) return usage(wrong, argv[i + 1]);
    }
    if (!s.model) return usage("which", "--model?");
    if (s.batch == 0) s.batch = s.model->batch;
    if (s.batch % s.micro) return usage("--batch must be a multiple of", "--micro");
    fr_ctx *ctx = fr_ctx_create();
    if (!ctx) return 1;
    fr_status status = run(ctx, &s);
    if (status != FR_OK) fprintf(stderr, "bench_step: %s\n", fr_ctx_error(ctx));
    fr_ctx_free(ctx);
    return fr_status_exit_code(status);
}
