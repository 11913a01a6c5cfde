/* train.c -- Forerun as a library: a network built by C calls, cut in two, trained by two workers.
 *
 *     cc train.c $(pkg-config --cflags --libs forerun) -o train && ./train
 *
 * Made-up images of 10 classes; with {name: fashion-mnist} for `text` below it learns real ones. */
#include <forerun/forerun.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 32, MICRO = 4, STEPS = 100, ROOM = 16 };

/* conv -> relu -> flatten -> linear -> loss. A failed call gives -1, later ones pass it on. */
static fr_status build(fr_ctx *ctx, const fr_data_info *d, fr_graph **out)
{
    fr_graph *g;
    FR_TRY(fr_graph_create(ctx, "small", &g));
    fr_attrs input = {.input = {.shape = d->input}}, target = {.input = {.dtype = FR_I32}};
    fr_attrs conv = {.conv2d = {.out = 16, .kernel = {3, 3}, .stride = {2, 2}}};
    fr_attrs linear = {.linear = {.out = d->n_classes}};
    int x = fr_graph_add(g, FR_OP_INPUT, "input", &input, 0, NULL);
    x = fr_graph_add(g, FR_OP_CONV2D, "conv", &conv, 1, &x);
    x = fr_graph_add(g, FR_OP_RELU, "relu", NULL, 1, &x);
    x = fr_graph_add(g, FR_OP_FLATTEN, "flatten", NULL, 1, &x);
    int pair[2] = {fr_graph_add(g, FR_OP_LINEAR, "head", &linear, 1, &x),
                   fr_graph_add(g, FR_OP_INPUT, "target", &target, 0, NULL)};
    fr_graph_add(g, FR_OP_CROSS_ENTROPY, "loss", NULL, 2, pair);
    *out = g;
    return fr_graph_finish(g);
}

/* Mini-batches in flight: the engine requests the next one and releases the oldest. */
typedef struct belt {
    fr_loader *loader;
    const fr_batch *held[ROOM];
    int64_t n_out, n_back;
} belt;

static fr_status next(void *user, fr_feed *out)
{
    belt *s = user;
    const fr_batch **b = &s->held[s->n_out++ % ROOM];
    FR_TRY(fr_loader_next(s->loader, b));
    *out = (fr_feed){(*b)->input, (*b)->target, NULL, (*b)->n_targets};
    return FR_OK;
}
static void release(void *user)
{
    belt *s = user;
    fr_loader_release(s->loader, s->held[s->n_back++ % ROOM]);
}

static bool on_batch(void *user, const fr_batch_report *r)
{
    (void)user;
    if (r->step % 20 == 19)
        printf("mini-batch %3d  loss %.4f  accuracy %.1f %%\n", (int)r->step + 1,
               r->tally.loss / (double)BATCH, 100.0 * (double)r->tally.correct / (double)BATCH);
    return true; /* continue */
}

static fr_status train(fr_ctx *ctx, fr_graph *g, belt *b, const fr_schedule **s, fr_engine **e)
{
    int cut = fr_graph_find(g, "flatten"); /* the first node of the second stage */
    fr_stage stages[2];
    fr_schedule_desc shape = {.n_stages = 2, .n_micro = MICRO};
    fr_source source = {b, next, release};
    FR_TRY(fr_schedule_create(ctx, fr_generator_find("1f1b"), &shape, s));
    FR_TRY(fr_graph_cut(g, 1, &cut, stages));
    fr_engine_desc d = {.graph = g, .n_stages = 2, .stages = stages, .schedule = *s};
    d.backend = fr_backend_list()[0], d.optimizer = fr_optim_find("adam");
    d.micro_batch = BATCH / MICRO, d.n_micro = MICRO, d.seed = 1;
    d.optimizer->defaults(&d.options);
    FR_TRY(fr_engine_create(ctx, &d, e));
    return fr_engine_train(*e, 0, STEPS, &source, on_batch, NULL, NULL, &(int64_t){0});
}

int main(void)
{
    static const char text[] = "{name: synthetic, n: 2000}";
    fr_data_info want = {.input = FR_SHAPE(1, 28, 28), .n_classes = 10};
    fr_conf *conf = NULL;
    fr_dataset *data = NULL;
    fr_graph *graph = NULL;
    const fr_schedule *schedule = NULL;
    fr_engine *engine = NULL;
    belt b = {0};
    fr_ctx *ctx = fr_ctx_create();
    if (!ctx) return 1;
    fr_status status = fr_conf_parse(ctx, text, strlen(text), "data", &conf);
    if (status == FR_OK) status = fr_dataset_open(ctx, conf, &want, &data);
    fr_loader_desc d = {data, FR_TRAIN, BATCH, .seed = 1, .n_steps = STEPS, .ahead = ROOM};
    if (status == FR_OK) status = fr_loader_create(ctx, &d, &b.loader);
    if (status == FR_OK) status = build(ctx, fr_dataset_info(data), &graph);
    if (status == FR_OK) status = train(ctx, graph, &b, &schedule, &engine);
    if (status != FR_OK) fprintf(stderr, "train: %s\n", fr_ctx_error(ctx));
    fr_engine_free(engine), fr_schedule_free(schedule), fr_graph_free(graph);
    fr_loader_free(b.loader), fr_dataset_close(data), fr_conf_free(conf), fr_ctx_free(ctx);
    return fr_status_exit_code(status);
}
