/* train.c -- Forerun as a library: a network built by C calls, trained and evaluated.
 *
 *     cc train.c $(pkg-config --cflags --libs forerun) -o train && ./train
 *
 * Made-up images of 10 classes; with {name: fashion-mnist} for `text` below it learns real ones. */
#include <forerun/forerun.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 32, STEPS = 100 };

/* conv -> relu -> pool -> linear -> loss. A failed call gives -1, later ones pass it on, and
 * fr_graph_finish tells what was wrong. */
static fr_status build(fr_ctx *ctx, const fr_data_info *d, fr_graph **out)
{
    fr_graph *g;
    FR_TRY(fr_graph_create(ctx, "small", &g));
    fr_attrs input = {.input = {.shape = d->input}}, target = {.input = {.dtype = FR_I32}};
    fr_attrs conv = {.conv2d = {.out = 16, .kernel = {3, 3}, .pad = {1, 1}}};
    fr_attrs pool = {.pool = {.kernel = {2, 2}}}, linear = {.linear = {.out = d->n_classes}};
    int x = fr_graph_add(g, FR_OP_INPUT, "input", &input, 0, NULL);
    x = fr_graph_add(g, FR_OP_CONV2D, "conv", &conv, 1, &x);
    x = fr_graph_add(g, FR_OP_RELU, "relu", NULL, 1, &x);
    x = fr_graph_add(g, FR_OP_MAX_POOL, "pool", &pool, 1, &x);
    x = fr_graph_add(g, FR_OP_FLATTEN, "flatten", NULL, 1, &x);
    int pair[2] = {fr_graph_add(g, FR_OP_LINEAR, "head", &linear, 1, &x),
                   fr_graph_add(g, FR_OP_INPUT, "target", &target, 0, NULL)};
    fr_graph_add(g, FR_OP_CROSS_ENTROPY, "loss", NULL, 2, pair);
    *out = g;
    return fr_graph_finish(g);
}

/* All mini-batches of a loader through the worker: trains if rate > 0, else evaluates. */
static fr_status run(fr_ctx *ctx, fr_worker *w, fr_dataset *data, fr_split split, double rate)
{
    fr_loader_desc desc = {
        .data = data, .split = split, .batch = BATCH, .seed = 1, .n_steps = STEPS};
    fr_loader *loader;
    fr_tally sum = {0}, t;
    const fr_batch *b = NULL;
    double norm;
    FR_TRY(fr_loader_create(ctx, &desc, &loader));
    fr_status status = fr_loader_next(loader, &b);
    while (status == FR_OK && b) {
        fr_feed feed = {b->step, b->input, b->target, NULL, b->n_targets, rate, false};
        status =
            rate > 0 ? fr_worker_train(w, &feed, &t, &norm) : fr_worker_eval(w, &feed, &t, NULL);
        sum.loss += t.loss, sum.targets += t.targets, sum.correct += t.correct;
        fr_loader_release(loader, b);
        if (status == FR_OK) status = fr_loader_next(loader, &b);
    }
    fr_loader_free(loader);
    if (status == FR_OK)
        printf("%-10s loss %.4f  accuracy %.1f %%\n", rate > 0 ? "training" : "evaluation",
               sum.loss / (double)sum.targets, 100.0 * (double)sum.correct / (double)sum.targets);
    return status;
}

static fr_status train(fr_ctx *ctx, fr_conf **conf, fr_dataset **data, fr_graph **g, fr_worker **w)
{
    static const char text[] = "{name: synthetic, n: 2000, n_eval: 400}";
    fr_data_info want = {.input = FR_SHAPE(1, 28, 28), .n_classes = 10};
    FR_TRY(fr_conf_parse(ctx, text, strlen(text), "data", conf));
    FR_TRY(fr_dataset_open(ctx, *conf, &want, data));
    FR_TRY(build(ctx, fr_dataset_info(*data), g));
    fr_worker_desc desc = {.graph = *g,
                           .backend = fr_backend_list()[0],
                           .device = {.first_cpu = -1},
                           .micro_batch = BATCH,
                           .n_micro = 1,
                           .n_slots = 1,
                           .optimizer = fr_optim_find("adam"),
                           .seed = 1,
                           .logits_node = -1};
    desc.optimizer->defaults(&desc.options);
    FR_TRY(fr_worker_create(ctx, &desc, w));
    printf("%lld parameters on %s\n", (long long)fr_graph_param_count(*g), fr_worker_about(*w));
    FR_TRY(run(ctx, *w, *data, FR_TRAIN, 0.002));
    return run(ctx, *w, *data, FR_EVAL, 0);
}

int main(void)
{
    fr_conf *conf = NULL;
    fr_dataset *data = NULL;
    fr_graph *graph = NULL;
    fr_worker *worker = NULL;
    fr_ctx *ctx = fr_ctx_create();
    if (!ctx) return 1;
    fr_status status = train(ctx, &conf, &data, &graph, &worker);
    if (status != FR_OK) fprintf(stderr, "train: %s\n", fr_ctx_error(ctx));
    fr_worker_free(worker);
    fr_graph_free(graph);
    fr_dataset_close(data);
    fr_conf_free(conf);
    fr_ctx_free(ctx);
    return fr_status_exit_code(status);
}
